//! Normalisation, in float32 whatever the number format of the context.

use crate::forward_context::ForwardContext;
use crate::native::kernels::{self, BatchGradients, BatchNorm, BatchNormed};
use crate::number::real_len;
use crate::parameters::{Init, ParamSpec};
use crate::precision::exact;
use crate::tape::{Plain, computed};
use burn::tensor::FloatDType;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;

/// What batch normalisation adds to a variance (Ioffe and Szegedy 2015; PyTorch's default).
pub(super) const BATCH_EPSILON: f64 = 1e-5;
/// The share of a batch in the running statistics (PyTorch's `momentum`).
const SHARE: f64 = 0.1;

/// `name.weight`, which starts at 1, and `name.bias`, which starts at 0.
pub fn norm_specs(name: &str, features: usize) -> [ParamSpec; 2] {
    [("weight", 1.0), ("bias", 0.0)]
        .map(|(part, start)| ParamSpec::new(format!("{name}.{part}"), &[features], Init::Constant(start)))
}

/// `name.running_mean`, which starts at 0, and `name.running_var`, which starts at 1.
pub fn norm_statistics(name: &str, features: usize) -> [ParamSpec; 2] {
    [("running_mean", 0.0), ("running_var", 1.0)]
        .map(|(part, start)| ParamSpec::new(format!("{name}.{part}"), &[features], Init::Constant(start)))
}

/// A function of each value behind a normalisation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// The value itself.
    #[default]
    None,
    /// The value, or zero where it is below.
    Relu,
    /// The value, or this times it where it is below zero; not negative (Maas et al. 2013).
    Leaky(f64),
}

impl Activation {
    /// What values below zero are multiplied by; none where they are not.
    pub fn leak(self) -> Option<f64> {
        match self {
            Self::None => None,
            Self::Relu => Some(0.0),
            Self::Leaky(leak) => Some(leak),
        }
    }

    pub(super) fn apply<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::None => x,
            Self::Relu => relu(x),
            Self::Leaky(leak) => relu(x.clone()) - relu(-x) * leak,
        }
    }
}

/// What follows a normalisation.
#[derive(Clone, Debug, Default)]
pub struct After {
    /// Is added, in the shape of what is normalised.
    pub residual: Option<Tensor<4>>,
    /// The residual is added behind the activation, as in Darknet; otherwise before it.
    pub residual_last: bool,
    /// What becomes of each value.
    pub activation: Activation,
}

impl After {
    /// The rectifier alone.
    pub fn relu() -> Self {
        Self { activation: Activation::Relu, ..Self::default() }
    }

    /// The rectifier of the sum with a residual.
    pub fn relu_of_sum(residual: Tensor<4>) -> Self {
        Self { residual: Some(residual), ..Self::relu() }
    }

    /// The leaky rectifier, and behind it the sum with a residual where there is one.
    pub fn leaky(leak: f64, residual: Option<Tensor<4>>) -> Self {
        Self { residual, residual_last: true, activation: Activation::Leaky(leak) }
    }

    /// What follows values in float32.
    pub(super) fn apply(self, y: Tensor<4>) -> Tensor<4> {
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

/// Batch normalisation of [rows, channels, height, width] (Ioffe and Szegedy 2015, algorithms 1 and 2) with what follows it. The running variance is the unbiased one, as in PyTorch. All is
/// computed in float32 and rounded once, to the number format of the input.
pub fn batch_norm(ctx: &mut ForwardContext<'_>, name: &str, x: Tensor<4>, after: After) -> Tensor<4> {
    let [rows, channels, height, width] = x.dims();
    if let Some(y) = batch_by_kernel(ctx, name, &x, &after) {
        return y;
    }
    let format = x.dtype();
    let per_channel = |values: Tensor<1>| values.reshape([1, channels, 1, 1]);
    let [gain, bias] = ["weight", "bias"].map(|part| ctx.parameter::<1>(&format!("{name}.{part}")));
    let [mean_name, variance_name] = running_names(name);
    let x = exact(x);
    let y = if ctx.is_training() {
        // Means over equally many values each: their mean is the mean of all.
        let mean_of = |values: Tensor<4>| {
            values.reshape([rows, channels, height * width]).mean_dim(2).mean_dim(0).reshape([1, channels, 1, 1])
        };
        let mean = mean_of(x.clone());
        let centred = x - mean.clone();
        let variance = mean_of(centred.clone() * centred.clone());
        let count = real_len(rows * height * width);
        ctx.update_running(&mean_name, mean.reshape([channels]), SHARE);
        ctx.update_running(
            &variance_name,
            variance.clone().reshape([channels]) * (count / (count - 1.0).max(1.0)),
            SHARE,
        );
        let scale = per_channel(gain) * (variance + BATCH_EPSILON).sqrt().recip();
        centred * scale + per_channel(bias)
    } else {
        let scale = gain * (ctx.running(&variance_name) + BATCH_EPSILON).sqrt().recip();
        let shift = bias - ctx.running(&mean_name) * scale.clone();
        x * per_channel(scale) + per_channel(shift)
    };
    let y = after.apply(y);
    if y.dtype() == format { y } else { ctx.round(y) }
}

pub(super) fn running_names(name: &str) -> [String; 2] {
    ["running_mean", "running_var"].map(|part| format!("{name}.{part}"))
}

/// Layer normalisation of each row of [rows, features] (Ba, Kiros, Hinton 2016). The answer is in float32.
pub fn layer_norm(ctx: &ForwardContext<'_>, name: &str, x: Tensor<2>, epsilon: f64) -> Tensor<2> {
    let [gain, bias] = ["weight", "bias"].map(|part| ctx.parameter::<1>(&format!("{name}.{part}")));
    let x = exact(x);
    if let Some(y) = layer_by_kernel(ctx, &x, [&gain, &bias], epsilon) {
        return y;
    }
    let [gain, bias] = [gain, bias].map(Tensor::unsqueeze);
    let centred = x.clone() - x.mean_dim(1);
    let variance = (centred.clone() * centred.clone()).mean_dim(1);
    centred * (variance + epsilon).sqrt().recip() * gain + bias
}

/// By kernels of ours, in one pass over the values.
fn layer_by_kernel(
    ctx: &ForwardContext<'_>,
    x: &Tensor<2>,
    [gain, bias]: [&Tensor<1>; 2],
    epsilon: f64,
) -> Option<Tensor<2>> {
    let [scale, shift] = [gain, bias].map(|vector| ctx.off_tape(vector.clone()));
    let given = ctx.off_tape(x.clone());
    let normed = kernels::layer_norm(given.clone(), &scale, &shift, epsilon, FloatDType::F32).ok()?;
    let kernels::Normed { y, mean, inverse } = normed;
    let on_tape = || [x.clone().into(), gain.clone().into(), bias.clone().into()];
    Some(ctx.recorded(on_tape, y, move |gradient, _| {
        let found = computed(kernels::layer_norm_back(given, gradient, &scale, &mean, &inverse));
        let (of_x, of_gain, of_bias) = found;
        [Some(of_x.into()), Some(of_gain.into()), Some(of_bias.into())]
    }))
}

/// By kernels of ours; none where they cannot be run.
fn batch_by_kernel(ctx: &mut ForwardContext<'_>, name: &str, x: &Tensor<4>, after: &After) -> Option<Tensor<4>> {
    // They have no gradients with running statistics.
    if ctx.taped() && !ctx.is_training() {
        return None;
    }
    let [gain, bias] = ["weight", "bias"].map(|part| ctx.parameter::<1>(&format!("{name}.{part}")));
    let [scale, shift] = [&gain, &bias].map(|vector| ctx.off_tape(vector.clone()));
    let names = running_names(name);
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
    let back = |gradient, kept| {
        let BatchGradients { x, gain, bias, residual } = kernels::batch_norm_back(gradient, kept);
        ([Some(x.into()), Some(gain.into()), Some(bias.into())], residual.map(Plain::from))
    };
    let on_tape = || [x.clone().into(), gain.into(), bias.into()];
    Some(match &after.residual {
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
    })
}

#[cfg(test)]
mod tests;
