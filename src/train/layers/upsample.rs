//! Upsampling of images by a factor of two.

use crate::forward_context::ForwardContext;
use crate::ops::{doubled, halved, in_format};
use crate::tape::Plain;
use burn::tensor::Tensor;

/// Nearest-neighbour upsampling: [rows, channels, height, width] to [rows, channels, 2·height, 2·width], in the number format of the input.
pub fn upsample_nearest(ctx: &ForwardContext<'_>, x: Tensor<4>) -> Tensor<4> {
    let given = ctx.off_tape(x.clone());
    let y = doubled(given, None);
    ctx.recorded(|| [x.into()], y, move |gradient, _| [Some(halved(&gradient).into())])
}

/// The sum of a lateral tensor [rows, channels, 2·height, 2·width] and [`upsample_nearest`] of x, rounded once, to the
/// number format of the lateral tensor (Lin et al. 2017, "Feature pyramid networks", figure 3).
pub fn upsample_add(ctx: &ForwardContext<'_>, x: Tensor<4>, lateral: Tensor<4>) -> Tensor<4> {
    let format = x.dtype();
    let [given, beside] = [&x, &lateral].map(|tensor| ctx.off_tape(tensor.clone()));
    let y = doubled(given, Some(beside));
    ctx.recorded(
        || [x.into(), lateral.into()],
        y,
        move |gradient, [of_x, of_lateral]| {
            let x = of_x.then(|| in_format(halved(&gradient), format).into());
            [x, of_lateral.then(|| Plain::from(gradient))]
        },
    )
}

#[cfg(test)]
mod tests;
