//! Convolutions of images, with bias and ReLU.

use super::computed;
use crate::forward_context::ForwardContext;
use crate::native::dnn;
use crate::native::kernels::{add_bias, add_bias_back, add_bias_back_nhwc};
use crate::precision::Precision;
use crate::tape::Plain;
use burn::tensor::activation::relu;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Tensor};
use std::sync::PoisonError;

/// Stride and padding of a square window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Distance between two positions, in pixels.
    pub stride: usize,
    /// Rows and columns around the image: zeros for convolutions, minus infinity for max pooling.
    pub padding: usize,
}

impl Window {
    /// Number of positions of a window of this side along one side of an image.
    pub fn places(self, window: usize, image: usize) -> usize {
        (image + 2 * self.padding).saturating_sub(window) / self.stride.max(1) + 1
    }
}

/// The parameters of a convolution, flat, float32.
pub struct Filters<'a> {
    /// A name that is unique in the model.
    pub name: &'a str,
    /// The weight.
    pub weight: Tensor<1>,
    /// The shape of the weight, [out, in, side, side].
    pub shape: [usize; 4],
    /// The bias [out], if there is one.
    pub bias: Option<Tensor<1>>,
}

/// Convolves [rows, in, height, width] to [rows, out, height', width'] in the number format of the context. If images
/// are stored NHWC, so is the output, provided that cuDNN has a plan for it.
pub fn convolve(
    ctx: &ForwardContext<'_>,
    x: Tensor<4>,
    filters: Filters<'_>,
    window: Window,
    rectified: bool,
) -> Tensor<4> {
    let activated = |y: Tensor<4>| if rectified { relu(y) } else { y };
    if dnn::Storage::of(&ctx.off_tape(x.clone())) == dnn::Storage::Nhwc {
        let y = match filters.bias.clone() {
            Some(bias) => biased_nhwc(ctx, &x, &filters, bias, window, rectified),
            None => unbiased(ctx, &x, &filters, window, dnn::Storage::Nhwc).map(activated),
        };
        if let Some(y) = y {
            return y;
        }
    }
    match unbiased(ctx, &x, &filters, window, dnn::Storage::Nchw) {
        Some(y) => match filters.bias {
            Some(bias) => biased(ctx, y, bias, rectified),
            None => activated(y),
        },
        None => reference(ctx, x, filters, window, rectified),
    }
}

fn reference(
    ctx: &ForwardContext<'_>,
    x: Tensor<4>,
    filters: Filters<'_>,
    window: Window,
    rectified: bool,
) -> Tensor<4> {
    let (Filters { weight, shape, bias, .. }, Window { stride, padding }) = (filters, window);
    [Some(&weight), bias.as_ref()].into_iter().flatten().for_each(|parameter| ctx.mark_untracked(parameter));
    let options = ConvOptions::new([stride; 2], [padding; 2], [1, 1], 1);
    let y = conv2d(ctx.round(x), ctx.round(weight.reshape(shape)), bias.map(|bias| ctx.round(bias)), options);
    if rectified { relu(y) } else { y }
}

/// y + bias, followed by ReLU if `rectified`, in the format of y.
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

/// Converts images to the number format of the context and NHWC storage. Convolutions, batch normalisation, ReLU, max
/// pooling, [`concat_channels`] and nearest-neighbour upsampling keep this storage. Images stay unchanged on the CPU,
/// without cuDNN, and with one pixel or one channel.
pub fn stored_nhwc(ctx: &ForwardContext<'_>, x: Tensor<4>) -> Tensor<4> {
    let ([_, channels, height, width], format) = (x.dims(), x.dtype());
    if channels == 1 || height * width == 1 || !dnn::available() {
        return x;
    }
    let given = ctx.round(ctx.off_tape(x.clone()));
    if given.dtype() == format && dnn::Storage::of(&given) == dnn::Storage::Nhwc {
        return x;
    }
    match dnn::Storage::Nhwc.laid(given) {
        Some(laid) => {
            let back = move |gradient: Tensor<4>, _| [Some(gradient.cast(format).into())];
            ctx.recorded(|| [x.into()], laid, back)
        }
        None => x,
    }
}

/// Duplicates images for two uses. If they are stored NHWC, the operation that computed them adds the two gradients if
/// it can. Otherwise they are added in storage order, as Burn's own addition would not use vector reads.
pub fn forked(ctx: &ForwardContext<'_>, x: Tensor<4>) -> [Tensor<4>; 2] {
    let (given, storage) = (ctx.off_tape(x.clone()), dnn::Storage::Nhwc);
    if dnn::Storage::of(&given) != storage {
        return [x.clone(), x];
    }
    let second_part = ctx.second_part(&x);
    let backward = move |(one, other): (Tensor<4>, Option<Tensor<4>>), _| {
        let sum = match (other, &second_part) {
            (None, _) => one,
            (other, Some(second_part)) => {
                *second_part.lock().unwrap_or_else(PoisonError::into_inner) = other;
                one
            }
            (Some(other), None) => storage.named(storage.lying(one) + storage.lying(other)),
        };
        [Some(sum.into())]
    };
    <[_; 2]>::from(ctx.recorded_twice(|| [x.into()], (given.clone(), given), backward))
}

/// Concatenates images [rows, channels, height, width] along the channels. If all of them are stored NHWC, so are the result and the
/// gradients.
pub fn concat_channels(ctx: &ForwardContext<'_>, images: Vec<Tensor<4>>) -> Tensor<4> {
    let storage = dnn::Storage::Nhwc;
    let given: Vec<Tensor<4>> = images.iter().map(|images| ctx.off_tape(images.clone())).collect();
    if given.iter().any(|images| dnn::Storage::of(images) != storage) {
        return Tensor::cat(images, 1);
    }
    let channels: Vec<usize> = given.iter().map(|images| images.dims()[1]).collect();
    let joined = Tensor::cat(given.into_iter().map(|images| storage.lying(images)).collect(), 3);
    let backward = move |gradient: Tensor<4>, _: &[bool]| {
        let (gradient, mut start) = (storage.lying(gradient), 0);
        let part = |count: usize| {
            let part = gradient.clone().narrow(3, start, count);
            start += count;
            Some(computed(storage.laid(storage.named(part))).into())
        };
        channels.into_iter().map(part).collect()
    };
    ctx.recorded_all(|| images.into_iter().map(Into::into).collect(), storage.named(joined), backward)
}

/// The operands of a cuDNN convolution, saved for its gradients.
struct Given {
    images: Tensor<4>,
    filters: Tensor<4>,
    input: [usize; 4],
    /// The shape of the weight.
    shape: [usize; 4],
    how: dnn::Convolution,
    /// The original number formats of images and weight.
    formats: [DType; 2],
}

impl Given {
    /// Prepares the operands; `None` if cuDNN cannot compute the convolution and its gradients in this storage.
    fn of(
        ctx: &ForwardContext<'_>,
        x: &Tensor<4>,
        filters: &Filters<'_>,
        window: Window,
        storage: dnn::Storage,
    ) -> Option<Self> {
        let (shape, Window { stride, padding }) = (filters.shape, window);
        let tf32 = ctx.precision == Precision::Fp32;
        let how = dnn::Convolution { stride: [stride; 2], padding: [padding; 2], tf32, storage };
        let images = ctx.round(ctx.off_tape(x.clone()));
        if !ctx.folds() && !dnn::possible(&images, shape, how) {
            return None;
        }
        let formats = [x.dtype(), filters.weight.dtype()];
        let filters = ctx.constant_of(&format!("{} {storage:?}", filters.name), || {
            storage.laid(ctx.round(ctx.off_tape(filters.weight.clone())).reshape(shape))
        })?;
        Some(Self { input: images.dims(), images, filters, shape, how, formats })
    }

    /// The wanted gradients of images and weight.
    fn gradients(self, gradient: Tensor<4>, [of_x, of_weight]: [bool; 2]) -> [Option<Plain>; 2] {
        let Self { images, filters, input, shape, how, formats } = self;
        let of_x = of_x.then(|| computed(dnn::of_input(gradient.clone(), filters, input, how)));
        let of_weight = of_weight.then(|| computed(dnn::of_weight(images, gradient, shape, how)));
        let [_, _, height, width] = shape;
        let flat = |weight: Tensor<4>| {
            // Windows of one pixel have the same layout in both storage orders; Burn would copy them.
            let weight = if height * width == 1 { how.storage.lying(weight) } else { weight };
            weight.reshape([shape.iter().product::<usize>()]).cast(formats[1])
        };
        [of_x.map(|x| x.cast(formats[0]).into()), of_weight.map(|weight| flat(weight).into())]
    }
}

/// ReLU of the sum of a convolution with bias and a residual in the number format of the context, off any tape.
pub fn convolve_residual_relu(
    ctx: &ForwardContext<'_>,
    x: Tensor<4>,
    filters: Filters<'_>,
    window: Window,
    residual: Tensor<4>,
) -> Tensor<4> {
    let nhwc = dnn::Storage::Nhwc;
    let by_kernel = filters.bias.as_ref().filter(|_| dnn::Storage::of(&x) == nhwc).and_then(|bias| {
        let given = Given::of(ctx, &x, &filters, window, nhwc)?;
        let bias = rounded_bias(ctx, filters.name, bias);
        dnn::convolve_biased(&given.images, &given.filters, &bias, Some(&residual), true, given.how)
    });
    by_kernel.unwrap_or_else(|| relu(convolve(ctx, x, filters, window, false) + residual))
}

fn rounded_bias(ctx: &ForwardContext<'_>, name: &str, bias: &Tensor<1>) -> Tensor<1> {
    ctx.constant_of(&format!("{name} bias"), || ctx.round(ctx.off_tape(bias.clone())))
}

/// A fused convolution with bias and optional ReLU over images in NHWC, with output in NHWC. `None` if cuDNN cannot do it.
fn biased_nhwc(
    ctx: &ForwardContext<'_>,
    x: &Tensor<4>,
    filters: &Filters<'_>,
    bias: Tensor<1>,
    window: Window,
    rectified: bool,
) -> Option<Tensor<4>> {
    let given = Given::of(ctx, x, filters, window, dnn::Storage::Nhwc)?;
    let rounded = rounded_bias(ctx, filters.name, &bias);
    let y = dnn::convolve_biased(&given.images, &given.filters, &rounded, None, rectified, given.how)?;
    let (precision, kept) = (ctx.precision, rectified.then(|| y.clone()));
    let on_tape = || [x.clone().into(), filters.weight.clone().into(), bias.into()];
    Some(ctx.recorded(on_tape, y, move |gradient, [of_x, of_weight, _]| {
        let (gradient, of_bias) = computed(add_bias_back_nhwc(precision.round(gradient), kept.as_ref()));
        drop(kept);
        let [of_x, of_weight] = given.gradients(gradient, [of_x, of_weight]);
        [of_x, of_weight, Some(of_bias.into())]
    }))
}

/// A convolution without its bias, with images and output in this storage. `None` if cuDNN cannot do it.
fn unbiased(
    ctx: &ForwardContext<'_>,
    x: &Tensor<4>,
    filters: &Filters<'_>,
    window: Window,
    storage: dnn::Storage,
) -> Option<Tensor<4>> {
    let (given, precision) = (Given::of(ctx, x, filters, window, storage)?, ctx.precision);
    let y = dnn::convolve(given.images.clone(), given.filters.clone(), given.how)?;
    let on_tape = || [x.clone().into(), filters.weight.clone().into()];
    Some(ctx.recorded(on_tape, y, move |gradient, wanted| given.gradients(precision.round(gradient), wanted)))
}
