//! Images twice as high and wide.

use crate::forward_context::ForwardContext;
use crate::native::kernels;
use crate::precision::exact;
use crate::tape::Plain;
use burn::tensor::{DType, FloatDType, Tensor};

/// Each value four times, as two by two (nearest neighbour): [rows, channels, height, width] to [rows, channels, 2·height, 2·width], in the number format of the input.
pub fn upsample_nearest(ctx: &ForwardContext<'_>, x: Tensor<4>) -> Tensor<4> {
    let given = ctx.off_tape(x.clone());
    let y = doubled(given, None);
    ctx.recorded(|| [x.into()], y, move |gradient, _| [Some(halved(gradient).into())])
}

/// The sum of a lateral tensor [rows, channels, 2·height, 2·width] and of [`upsample_nearest`] of x, in the number format of the lateral tensor; rounded once (Lin et al. 2017, "Feature
/// pyramid networks", figure 3).
pub fn upsample_add(ctx: &ForwardContext<'_>, x: Tensor<4>, lateral: Tensor<4>) -> Tensor<4> {
    let format = x.dtype();
    let [given, beside] = [&x, &lateral].map(|tensor| ctx.off_tape(tensor.clone()));
    let y = doubled(given, Some(beside));
    ctx.recorded(
        || [x.into(), lateral.into()],
        y,
        move |gradient, [of_x, of_lateral]| {
            let x = of_x.then(|| in_format(halved(gradient.clone()), format).into());
            [x, of_lateral.then(|| Plain::from(gradient))]
        },
    )
}

/// Off the tape.
fn doubled(x: Tensor<4>, lateral: Option<Tensor<4>>) -> Tensor<4> {
    if let Some(y) = kernels::upsample(&x, lateral.as_ref()) {
        return y;
    }
    let [rows, channels, height, width] = x.dims();
    let format = lateral.as_ref().map_or(x.dtype(), Tensor::dtype);
    let columns = exact(x).reshape([rows * channels * height, 1, width, 1]);
    let wide = Tensor::cat(vec![columns.clone(), columns], 3).reshape([rows * channels * height, 1, width * 2]);
    let y = Tensor::cat(vec![wide.clone(), wide], 1).reshape([rows, channels, height * 2, width * 2]);
    let y = match lateral {
        Some(lateral) => y + exact(lateral),
        None => y,
    };
    in_format(y, format)
}

/// Sums of two by two values, off the tape.
fn halved(gradient: Tensor<4>) -> Tensor<4> {
    let gradient = match kernels::upsample_back(gradient) {
        Ok(sums) => return sums,
        Err(gradient) => gradient,
    };
    let ([rows, channels, height, width], format) = (gradient.dims(), gradient.dtype());
    let columns = exact(gradient).reshape([rows * channels * height, width / 2, 2]).sum_dim(2);
    let sums = columns.reshape([rows * channels * (height / 2), 2, width / 2]).sum_dim(1);
    in_format(sums.reshape([rows, channels, height / 2, width / 2]), format)
}

fn in_format(tensor: Tensor<4>, format: DType) -> Tensor<4> {
    if tensor.dtype() == format { tensor } else { tensor.cast(FloatDType::from(format)) }
}

#[cfg(test)]
mod tests;
