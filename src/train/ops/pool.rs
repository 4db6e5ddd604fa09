//! Max pooling and mean pooling of images.

use super::{Window, computed};
use crate::forward_context::ForwardContext;
use crate::native::dnn;
use crate::native::kernels::{Windows, pool_max_nhwc};
use crate::precision::exact;
use burn::tensor::Tensor;
use burn::tensor::module::max_pool2d;

/// Max pooling with windows of `side` x `side`: [rows, channels, height, width] to [rows, channels, height', width'],
/// in the number format of the input. If images are stored NHWC, so is the output.
pub fn max_pool(ctx: &ForwardContext<'_>, x: Tensor<4>, side: usize, window: Window) -> Tensor<4> {
    let (given, Window { stride, padding }) = (ctx.off_tape(x.clone()), window);
    let lie_nhwc = dnn::Storage::of(&given) == dnn::Storage::Nhwc;
    let by_kernel = if lie_nhwc { pool_max_nhwc(&given, Windows { side, stride, padding }) } else { None };
    if let Some((y, saved)) = by_kernel {
        return ctx.recorded(|| [x.into()], y, move |gradient, _| [Some(computed(saved.backward(&gradient)).into())]);
    }
    let how = dnn::Pool { size: [side; 2], stride: [stride; 2], padding: [padding; 2] };
    if let Some(y) = dnn::pool_max(&given, how) {
        let maxima = y.clone();
        let backward = move |gradient, _| [Some(computed(dnn::pool_max_back(&given, &maxima, &gradient, how)).into())];
        return ctx.recorded(|| [x.into()], y, backward);
    }
    max_pool2d(x, [side; 2], [stride; 2], [padding; 2], [1, 1], false)
}

/// The mean of each channel: [rows, channels, height, width] to [rows, channels], in float32.
pub fn mean_pixel(ctx: &ForwardContext<'_>, x: Tensor<4>) -> Tensor<2> {
    let [rows, channels, height, width] = x.dims();
    if dnn::Storage::of(&ctx.off_tape(x.clone())) == dnn::Storage::Nhwc {
        // In storage order, as otherwise Burn would read and write one value at a time.
        let pixels = exact(x.permute([0, 2, 3, 1])).reshape([rows, height * width, channels]);
        return pixels.mean_dim(1).reshape([rows, channels]);
    }
    exact(x).reshape([rows, channels, height * width]).mean_dim(2).reshape([rows, channels])
}
