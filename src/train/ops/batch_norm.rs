//! Batch normalisation of images, with an optional residual and activation.

use super::computed;
use crate::forward_context::{ForwardContext, SecondPart};
use crate::native::kernels::{self, BatchGradients, BatchNorm, BatchNormed};
use crate::number::real_len;
use crate::precision::exact;
use crate::tape::Plain;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use std::sync::PoisonError;

/// The epsilon of batch normalisation (Ioffe and Szegedy 2015; PyTorch's default).
pub const BATCH_EPSILON: f64 = 1e-5;
/// The weight of a batch in the running statistics (PyTorch's `momentum`).
const SHARE: f64 = 0.1;

/// The activation function after a normalisation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// The identity.
    #[default]
    None,
    /// ReLU.
    Relu,
    /// Leaky ReLU with this slope for negative values, which is not negative (Maas et al. 2013).
    Leaky(f64),
}

impl Activation {
    /// The factor of negative values; `None` for the identity.
    pub fn leak(self) -> Option<f64> {
        match self {
            Self::None => None,
            Self::Relu => Some(0.0),
            Self::Leaky(leak) => Some(leak),
        }
    }

    pub fn apply<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::None => x,
            Self::Relu => relu(x),
            Self::Leaky(leak) => relu(x.clone()) - relu(-x) * leak,
        }
    }
}

/// The residual and activation after a normalisation.
#[derive(Clone, Debug, Default)]
pub struct After {
    /// A residual to add, in the shape of the normalised tensor.
    pub residual: Option<Tensor<4>>,
    /// Whether the residual is added after the activation, as in Darknet; otherwise before it.
    pub residual_last: bool,
    /// The activation function.
    pub activation: Activation,
}

impl After {
    /// ReLU only.
    pub fn relu() -> Self {
        Self { activation: Activation::Relu, ..Self::default() }
    }

    /// ReLU of the sum with a residual.
    pub fn relu_of_sum(residual: Tensor<4>) -> Self {
        Self { residual: Some(residual), ..Self::relu() }
    }

    /// Leaky ReLU, then the sum with the residual, if there is one.
    pub fn leaky(leak: f64, residual: Option<Tensor<4>>) -> Self {
        Self { residual, residual_last: true, activation: Activation::Leaky(leak) }
    }

    /// Applies residual and activation to values in float32.
    pub fn apply(self, y: Tensor<4>) -> Tensor<4> {
        let add = |y: Tensor<4>, residual: Option<Tensor<4>>| match residual {
            Some(residual) => y + exact(residual),
            None => y,
        };
        if self.residual_last {
            add(self.activation.apply(y), self.residual)
        } else {
            self.activation.apply(add(y, self.residual))
        }
    }
}

/// Batch normalisation of [rows, channels, height, width]. `vectors` are gain and bias, `running` the names of running mean and variance.
/// Computed in float32 and rounded once, to the number format of the input.
pub fn batch_norm(
    ctx: &mut ForwardContext<'_>,
    x: Tensor<4>,
    vectors: [Tensor<1>; 2],
    running: &[String; 2],
    after: After,
) -> Tensor<4> {
    // The kernels have no backward pass for running statistics.
    let by_kernels = if ctx.taped() && !ctx.is_training() { None } else { kernel(ctx, &x, &vectors, running, &after) };
    by_kernels.unwrap_or_else(|| reference(ctx, x, vectors, running, after))
}

fn reference(
    ctx: &mut ForwardContext<'_>,
    x: Tensor<4>,
    [gain, bias]: [Tensor<1>; 2],
    names: &[String; 2],
    after: After,
) -> Tensor<4> {
    let [rows, channels, height, width] = x.dims();
    let format = x.dtype();
    let per_channel = |values: Tensor<1>| values.reshape([1, channels, 1, 1]);
    let x = exact(x);
    let y = if ctx.is_training() {
        // All inner means are over the same number of values, so their mean is the overall mean.
        let mean_of = |values: Tensor<4>| {
            values.reshape([rows, channels, height * width]).mean_dim(2).mean_dim(0).reshape([1, channels, 1, 1])
        };
        let mean = mean_of(x.clone());
        let centred = x - mean.clone();
        let variance = mean_of(centred.clone() * centred.clone());
        let (count, [mean_name, variance_name]) = (real_len(rows * height * width), names);
        ctx.update_running(mean_name, mean.reshape([channels]), SHARE);
        ctx.update_running(
            variance_name,
            variance.clone().reshape([channels]) * (count / (count - 1.0).max(1.0)),
            SHARE,
        );
        let scale = per_channel(gain) * (variance + BATCH_EPSILON).sqrt().recip();
        centred * scale + per_channel(bias)
    } else {
        let [scale, shift] = scale_and_shift(ctx, [gain, bias], names);
        x * per_channel(scale) + per_channel(shift)
    };
    let y = after.apply(y);
    if y.dtype() == format { y } else { ctx.round(y) }
}

/// Batch normalisation in inference as a scale and a shift for each channel.
pub fn scale_and_shift(
    ctx: &ForwardContext<'_>,
    [gain, bias]: [Tensor<1>; 2],
    [mean_name, variance_name]: &[String; 2],
) -> [Tensor<1>; 2] {
    let scale = gain * (ctx.running(variance_name) + BATCH_EPSILON).sqrt().recip();
    let shift = bias - ctx.running(mean_name) * scale.clone();
    [scale, shift]
}

fn kernel(
    ctx: &mut ForwardContext<'_>,
    x: &Tensor<4>,
    vectors: &[Tensor<1>; 2],
    names: &[String; 2],
    after: &After,
) -> Option<Tensor<4>> {
    let [scale, shift] = vectors.each_ref().map(|vector| ctx.off_tape(vector.clone()));
    let [mean, variance] = names.each_ref().map(|name| ctx.off_tape(ctx.running(name)));
    let given = ctx.off_tape(x.clone());
    let residual = after.residual.clone().map(|residual| ctx.off_tape(residual));
    let channels = [&scale, &shift, &mean, &variance];
    let (residual, residual_last, leak) = (residual.as_ref(), after.residual_last, after.activation.leak());
    let norm = BatchNorm { channels, epsilon: BATCH_EPSILON, residual, residual_last, leak };
    if !ctx.is_training() {
        return kernels::batch_norm_answer(&given, &norm);
    }
    let BatchNormed { y, running, kept } = kernels::batch_norm(&given, &norm, SHARE)?;
    for (name, new) in names.iter().zip(running) {
        ctx.set_running(name, new);
    }
    let second_part = SecondPart::default();
    let found = SecondPart::clone(&second_part);
    let back = move |gradient, kept| {
        let second = found.lock().unwrap_or_else(PoisonError::into_inner).take();
        let BatchGradients { x, gain, bias, residual } = computed(kernels::batch_norm_back(gradient, second, kept));
        ([Some(x.into()), Some(gain.into()), Some(bias.into())], residual.map(Plain::from))
    };
    let on_tape = || {
        let [gain, bias] = vectors.clone();
        [x.clone().into(), gain.into(), bias.into()]
    };
    let y = match &after.residual {
        None => ctx.recorded(on_tape, y, move |gradient, _| back(gradient, kept).0),
        Some(residual) => {
            let on_tape = || {
                let [x, gain, bias] = on_tape();
                [x, gain, bias, residual.clone().into()]
            };
            ctx.recorded(on_tape, y, move |gradient, _| {
                let ([x, gain, bias], residual) = back(gradient, kept);
                [x, gain, bias, residual]
            })
        }
    };
    ctx.takes_second_part(&y, second_part);
    Some(y)
}
