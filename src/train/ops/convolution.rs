//! Convolutions of images, with their bias and the rectifier behind them.

use super::computed;
use crate::forward_context::ForwardContext;
use crate::native::dnn;
use crate::native::kernels::{add_bias, add_bias_back, add_bias_back_nhwc};
use crate::precision::Precision;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;

/// How a square window moves over an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Pixels between two places.
    pub stride: usize,
    /// Rows and columns around the image: of zeros for convolutions, of minus infinity for maxima.
    pub padding: usize,
}

impl Window {
    /// Places of a window of this side along one side of an image.
    pub fn places(self, window: usize, image: usize) -> usize {
        (image + 2 * self.padding).saturating_sub(window) / self.stride.max(1) + 1
    }
}

/// The parameters of a convolution, flat, float32.
pub struct Filters {
    /// The weight.
    pub weight: Tensor<1>,
    /// Its shape [out, in, side, side].
    pub shape: [usize; 4],
    /// [out].
    pub bias: Option<Tensor<1>>,
}

/// [rows, in, height, width] to [rows, out, height', width'] in the number format of the context. Images that lie NHWC give ones that do too, where
/// there is a bias.
pub fn convolve(
    ctx: &ForwardContext<'_>,
    x: Tensor<4>,
    filters: Filters,
    window: Window,
    rectified: bool,
) -> Tensor<4> {
    if let Some(y) = in_nhwc(ctx, &x, &filters, window, rectified) {
        return y;
    }
    match by_cudnn(ctx, &x, &filters, window) {
        Some(y) => match filters.bias {
            Some(bias) => biased(ctx, y, bias, rectified),
            None if rectified => relu(y),
            None => y,
        },
        None => reference(ctx, x, filters, window, rectified),
    }
}

fn reference(ctx: &ForwardContext<'_>, x: Tensor<4>, filters: Filters, window: Window, rectified: bool) -> Tensor<4> {
    let (Filters { weight, shape, bias }, Window { stride, padding }) = (filters, window);
    [Some(&weight), bias.as_ref()].into_iter().flatten().for_each(|parameter| ctx.mark_untracked(parameter));
    let options = ConvOptions::new([stride; 2], [padding; 2], [1, 1], 1);
    let y = conv2d(ctx.round(x), ctx.round(weight.reshape(shape)), bias.map(|bias| ctx.round(bias)), options);
    if rectified { relu(y) } else { y }
}

/// y + bias, with the rectifier if there is one, in the format of y.
fn biased(ctx: &ForwardContext<'_>, y: Tensor<4>, bias: Tensor<1>, rectified: bool) -> Tensor<4> {
    let on_tape = ctx.taped().then(|| y.clone());
    let (given, vector) = (ctx.off_tape(y), ctx.off_tape(bias.clone()));
    let Some(kernel) = add_bias(&given, &vector, rectified) else {
        ctx.mark_untracked(&bias);
        let channels = bias.dims()[0];
        let y = on_tape.unwrap_or(given) + ctx.round(bias).reshape([1, channels, 1, 1]);
        return if rectified { relu(y) } else { y };
    };
    let answer = kernel(given);
    let Some(y) = on_tape else { return answer };
    let (kept, precision) = (rectified.then(|| answer.clone()), ctx.precision);
    ctx.recorded(
        || [y.into(), bias.into()],
        answer,
        move |gradient, _| {
            let (y, bias) = computed(add_bias_back(precision.round(gradient), kept.as_ref()));
            [Some(y.into()), Some(bias.into())]
        },
    )
}

/// Images in the number format of the context and stored NHWC: convolutions with a bias, rectifiers and maxima of windows that do not
/// overlap keep this storage. On a device without cuDNN the images as they are.
pub fn stored_nhwc(ctx: &ForwardContext<'_>, x: Tensor<4>) -> Tensor<4> {
    let (given, format) = (ctx.round(ctx.off_tape(x.clone())), x.dtype());
    if given.dtype() == format && dnn::Storage::of(&given) == dnn::Storage::Nhwc {
        return x;
    }
    match dnn::Storage::Nhwc.laid(given).filter(|_| dnn::available()) {
        Some(laid) => {
            let back = move |gradient: Tensor<4>, _| [Some(gradient.cast(format).into())];
            ctx.recorded(|| [x.into()], laid, back)
        }
        None => x,
    }
}

fn asked(ctx: &ForwardContext<'_>, window: Window, storage: dnn::Storage) -> dnn::Convolution {
    let Window { stride, padding } = window;
    dnn::Convolution { stride: [stride; 2], padding: [padding; 2], tf32: ctx.precision == Precision::Fp32, storage }
}

/// A convolution with its bias and rectifier in one pass over images that lie NHWC, where its result lies too. None without a bias, where images lie
/// otherwise, or where cuDNN cannot do it.
fn in_nhwc(
    ctx: &ForwardContext<'_>,
    x: &Tensor<4>,
    filters: &Filters,
    window: Window,
    rectified: bool,
) -> Option<Tensor<4>> {
    let (how, shape) = (asked(ctx, window, dnn::Storage::Nhwc), filters.shape);
    let (weight, bias) = (filters.weight.clone(), filters.bias.clone()?);
    let images = ctx.round(ctx.off_tape(x.clone()));
    let input = images.dims();
    if dnn::Storage::of(&images) != how.storage || !dnn::possible(&images, shape, how) {
        return None;
    }
    let filters = how.storage.laid(ctx.round(ctx.off_tape(weight.clone())).reshape(shape))?;
    let rounded = ctx.round(ctx.off_tape(bias.clone()));
    let y = dnn::convolve_biased(&images, &filters, &rounded, rectified, how)?;
    let (formats, precision, kept) = ([x.dtype(), weight.dtype()], ctx.precision, rectified.then(|| y.clone()));
    let on_tape = || [x.clone().into(), weight.into(), bias.into()];
    Some(ctx.recorded(on_tape, y, move |gradient, [of_x, of_weight, _]| {
        let (gradient, of_bias) = computed(add_bias_back_nhwc(precision.round(gradient), kept.as_ref()));
        drop(kept);
        let of_x = of_x.then(|| computed(dnn::of_input(gradient.clone(), filters, input, how)));
        let of_weight = of_weight.then(|| computed(dnn::of_weight(images, gradient, shape, how)));
        let flat = |weight: Tensor<4>| weight.cast(formats[1]).reshape([shape.iter().product::<usize>()]);
        let of_weight = of_weight.map(|weight| flat(weight).into());
        [of_x.map(|x| x.cast(formats[0]).into()), of_weight, Some(of_bias.into())]
    }))
}

/// A convolution without its bias. None where cuDNN cannot do it.
fn by_cudnn(ctx: &ForwardContext<'_>, x: &Tensor<4>, filters: &Filters, window: Window) -> Option<Tensor<4>> {
    let (how, shape, weight) = (asked(ctx, window, dnn::Storage::Nchw), filters.shape, filters.weight.clone());
    let images = ctx.round(ctx.off_tape(x.clone()));
    let filters = ctx.round(ctx.off_tape(weight.clone()).reshape(shape));
    let input = images.dims();
    if !dnn::possible(&images, shape, how) {
        return None;
    }
    let y = dnn::convolve(images.clone(), filters.clone(), how)?;
    let (formats, precision) = ([x.dtype(), weight.dtype()], ctx.precision);
    let on_tape = || [x.clone().into(), weight.into()];
    Some(ctx.recorded(on_tape, y, move |gradient, [of_x, of_weight]| {
        let gradient = precision.round(gradient);
        let of_x = of_x.then(|| computed(dnn::of_input(gradient.clone(), filters, input, how)));
        let of_weight = of_weight.then(|| computed(dnn::of_weight(images, gradient, shape, how)));
        let flat = |weight: Tensor<4>| weight.cast(formats[1]).reshape([shape.iter().product::<usize>()]);
        [of_x.map(|x| x.cast(formats[0]).into()), of_weight.map(|weight| flat(weight).into())]
    }))
}
