//! Convolutions of images.

use crate::forward_context::ForwardContext;
use crate::native::dnn;
use crate::native::kernels::{add_bias, add_bias_back, add_bias_back_nhwc};
use crate::number::{real_len, wide};
use crate::parameters::{Init, ParamSpec};
use crate::precision::Precision;
use crate::tape::computed;
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

/// `name.weight` [out, in, side, side], normal around 0 with the deviation √(2/(out·side²)): it keeps the size of gradients where half of them pass a ReLU (He et al. 2015,
/// "Delving deep into rectifiers", section 2.2, backward case; torchvision's `kaiming_normal_` with `fan_out`).
pub fn convolution_spec(name: &str, [to, from, side]: [usize; 3]) -> ParamSpec {
    let deviation = (2.0 / real_len(to * side * side)).sqrt();
    ParamSpec::new(format!("{name}.weight"), &[to, from, side, side], Init::Normal(deviation))
}

/// Floating-point operations of a convolution that gives images of `places` x `places`: 2·side²·in·out·places².
pub fn convolution_flops([to, from, side]: [usize; 3], places: usize) -> u64 {
    2 * wide(side * side * from * to) * wide(places * places)
}

/// [rows, in, height, width] to [rows, out, height', width'], with `name.weight` [out, in, side, side] and, where there is one, `name.bias` [out], in the number
/// format of the context.
pub fn convolve(ctx: &ForwardContext<'_>, name: &str, x: Tensor<4>, window: Window) -> Tensor<4> {
    followed(ctx, name, x, window, false)
}

/// [`convolve`] with a rectifier behind it.
pub fn convolve_relu(ctx: &ForwardContext<'_>, name: &str, x: Tensor<4>, window: Window) -> Tensor<4> {
    followed(ctx, name, x, window, true)
}

fn followed(ctx: &ForwardContext<'_>, name: &str, x: Tensor<4>, window: Window, rectified: bool) -> Tensor<4> {
    let weight = format!("{name}.weight");
    let named = format!("{name}.bias");
    let bias = ctx.has(&named).then(|| ctx.parameter::<1>(&named));
    if let Some(y) = bias.as_ref().and_then(|bias| in_nhwc(ctx, &x, &weight, bias, window, rectified)) {
        return y;
    }
    if let Some(y) = by_cudnn(ctx, &x, &weight, window) {
        return match bias {
            Some(bias) => biased(ctx, y, (&named, &bias), rectified),
            None if rectified => relu(y),
            None => y,
        };
    }
    ctx.mark_untracked(&named);
    let Window { stride, padding } = window;
    let options = ConvOptions::new([stride; 2], [padding; 2], [1, 1], 1);
    let y = conv2d(ctx.round(x), ctx.round(ctx.parameter::<4>(&weight)), bias.map(|bias| ctx.round(bias)), options);
    if rectified { relu(y) } else { y }
}

/// y + bias, with the rectifier if there is one, in the format of y.
fn biased(ctx: &ForwardContext<'_>, y: Tensor<4>, (name, bias): (&str, &Tensor<1>), rectified: bool) -> Tensor<4> {
    by_kernel(ctx, y, bias, rectified).unwrap_or_else(|y| {
        ctx.mark_untracked(name);
        let y = y + ctx.round(bias.clone()).reshape([1, bias.dims()[0], 1, 1]);
        if rectified { relu(y) } else { y }
    })
}

#[expect(clippy::result_large_err, reason = "what comes back is what was given")]
fn by_kernel(
    ctx: &ForwardContext<'_>,
    y: Tensor<4>,
    bias: &Tensor<1>,
    rectified: bool,
) -> Result<Tensor<4>, Tensor<4>> {
    let on_tape = ctx.taped().then(|| y.clone());
    let answer = match (add_bias(ctx.off_tape(y), &ctx.off_tape(bias.clone()), rectified), &on_tape) {
        (Ok(answer), _) => answer,
        (Err(_), Some(y)) => return Err(y.clone()),
        (Err(y), None) => return Err(y),
    };
    let Some(y) = on_tape else { return Ok(answer) };
    let (kept, precision) = (rectified.then(|| answer.clone()), ctx.precision);
    Ok(ctx.recorded(
        || [y.into(), bias.clone().into()],
        answer,
        move |gradient, _| {
            let (y, bias) = computed(add_bias_back(precision.round(gradient), kept.as_ref()));
            [Some(y.into()), Some(bias.into())]
        },
    ))
}

/// Images in the number format of the context and stored NHWC: convolutions with a bias, rectifiers and maxima of windows that do not
/// overlap
/// keep this storage. On a device without cuDNN the images as they are.
pub fn stored_nhwc(ctx: &ForwardContext<'_>, x: Tensor<4>) -> Tensor<4> {
    {
        let (given, format) = (ctx.round(ctx.off_tape(x.clone())), x.dtype());
        if given.dtype() == format && dnn::Storage::of(&given) == dnn::Storage::Nhwc {
            return x;
        }
        if let Some(laid) = dnn::Storage::Nhwc.laid(given).filter(|_| dnn::available()) {
            let back = move |gradient: Tensor<4>, _| [Some(gradient.cast(format).into())];
            return ctx.recorded(|| [x.into()], laid, back);
        }
    }
    x
}

fn asked(ctx: &ForwardContext<'_>, window: Window, storage: dnn::Storage) -> dnn::Convolution {
    let Window { stride, padding } = window;
    dnn::Convolution { stride: [stride; 2], padding: [padding; 2], tf32: ctx.precision == Precision::Fp32, storage }
}

/// A convolution with its bias and rectifier in one pass over images that lie NHWC, where its result lies too. None where images lie
/// otherwise or cuDNN cannot do it.
fn in_nhwc(
    ctx: &ForwardContext<'_>,
    x: &Tensor<4>,
    weight: &str,
    bias: &Tensor<1>,
    window: Window,
    rectified: bool,
) -> Option<Tensor<4>> {
    let how = asked(ctx, window, dnn::Storage::Nhwc);
    let (weight, shape) = ctx.flat_parameter(weight);
    let shape = <[usize; 4]>::try_from(shape).ok()?;
    let images = ctx.round(ctx.off_tape(x.clone()));
    let input = images.dims();
    if dnn::Storage::of(&images) != how.storage || !dnn::possible(&images, shape, how) {
        return None;
    }
    let filters = how.storage.laid(ctx.round(ctx.off_tape(weight.clone())).reshape(shape))?;
    let rounded = ctx.round(ctx.off_tape(bias.clone()));
    let y = dnn::convolve_biased(&images, &filters, &rounded, rectified, how)?;
    let (formats, precision, kept) = ([x.dtype(), weight.dtype()], ctx.precision, rectified.then(|| y.clone()));
    let on_tape = || [x.clone().into(), weight.into(), bias.clone().into()];
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

/// None where cuDNN cannot do it.
fn by_cudnn(ctx: &ForwardContext<'_>, x: &Tensor<4>, weight: &str, window: Window) -> Option<Tensor<4>> {
    let how = asked(ctx, window, dnn::Storage::Nchw);
    let (weight, shape) = ctx.flat_parameter(weight);
    let shape = <[usize; 4]>::try_from(shape).ok()?;
    let images = ctx.round(ctx.off_tape(x.clone()));
    let filters = ctx.round(ctx.off_tape(weight.clone()).reshape(shape));
    let input = images.dims();
    if !dnn::possible(&images, shape, how) {
        return None;
    }
    let y = dnn::convolve(images.clone(), filters.clone(), how).ok()?;
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

#[cfg(test)]
mod tests;
