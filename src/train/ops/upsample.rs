//! Upsampling of images by a factor of two, and its backward pass.

use crate::native::dnn::Storage;
use crate::native::kernels;
use crate::precision::exact;
use burn::tensor::{DType, FloatDType, Tensor};

/// Repeats each value as two by two. An optional lateral tensor of the output's shape is added; the output then has its format.
/// Without one, images that are stored NHWC stay so.
pub fn doubled(x: Tensor<4>, lateral: Option<Tensor<4>>) -> Tensor<4> {
    let storage = Storage::of(&x);
    match lateral {
        None if storage == Storage::Nhwc => spread(x, storage),
        lateral => kernels::upsample(&x, lateral.as_ref()).unwrap_or_else(|| match lateral {
            Some(lateral) => {
                let format = lateral.dtype();
                in_format(spread(exact(x), Storage::Nchw) + exact(lateral), format)
            }
            None => spread(x, Storage::Nchw),
        }),
    }
}

fn spread(x: Tensor<4>, storage: Storage) -> Tensor<4> {
    let [rows, channels, height, width] = x.dims();
    let (lines, values) = lines(x.dims(), storage);
    let columns = storage.lying(x).reshape([lines, width, 1, values]);
    let wide = Tensor::cat(vec![columns; 2], 2).reshape([lines, 1, width * 2 * values]);
    let large = [rows, channels, height * 2, width * 2];
    storage.named(Tensor::cat(vec![wide; 2], 1).reshape(storage.shape(large)))
}

/// Sums each two by two values, in their format. Images that are stored NHWC stay so.
pub fn halved(gradient: &Tensor<4>) -> Tensor<4> {
    let storage = Storage::of(gradient);
    let by_kernel = if storage == Storage::Nchw { kernels::upsample_back(gradient) } else { None };
    by_kernel.unwrap_or_else(|| {
        let [rows, channels, height, width] = gradient.dims();
        let small = [rows, channels, height / 2, width / 2];
        let (lines, values) = lines(small, storage);
        let given = storage.lying(exact(gradient.clone()));
        let columns = given.reshape([lines * 2 * small[3], 2, values]).sum_dim(1);
        let sums = columns.reshape([lines, 2, small[3] * values]).sum_dim(1);
        in_format(storage.named(sums.reshape(storage.shape(small))), gradient.dtype())
    })
}

/// The number of stored pixel rows of images of this shape, and the number of adjacent values per pixel.
fn lines([rows, channels, height, _]: [usize; 4], storage: Storage) -> (usize, usize) {
    match storage {
        Storage::Nchw => (rows * channels * height, 1),
        Storage::Nhwc => (rows * height, channels),
    }
}

/// Casts a tensor to a number format, if needed.
pub fn in_format(tensor: Tensor<4>, format: DType) -> Tensor<4> {
    if tensor.dtype() == format { tensor } else { tensor.cast(FloatDType::from(format)) }
}
