//! Images twice as high and wide, and back.

use crate::native::kernels;
use crate::precision::exact;
use burn::tensor::{DType, FloatDType, Tensor};

/// Each value four times, as two by two, plus a lateral tensor of that shape where there is one, in whose format the answer is.
pub fn doubled(x: Tensor<4>, lateral: Option<Tensor<4>>) -> Tensor<4> {
    kernels::upsample(&x, lateral.as_ref()).unwrap_or_else(|| {
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
    })
}

/// Sums of two by two values, in their format.
pub fn halved(gradient: &Tensor<4>) -> Tensor<4> {
    kernels::upsample_back(gradient).unwrap_or_else(|| {
        let [rows, channels, height, width] = gradient.dims();
        let columns = exact(gradient.clone()).reshape([rows * channels * height, width / 2, 2]).sum_dim(2);
        let sums = columns.reshape([rows * channels * (height / 2), 2, width / 2]).sum_dim(1);
        in_format(sums.reshape([rows, channels, height / 2, width / 2]), gradient.dtype())
    })
}

/// A tensor in a number format.
pub fn in_format(tensor: Tensor<4>, format: DType) -> Tensor<4> {
    if tensor.dtype() == format { tensor } else { tensor.cast(FloatDType::from(format)) }
}
