//! Batch normalisation whose statistics, gain and bias stay as they are.

use super::norm::{After, BATCH_EPSILON, running_names};
use crate::forward_context::ForwardContext;
use crate::native::kernels::{self, BatchNorm, FrozenNorm};
use crate::parameters::{Init, ParamSpec};
use crate::precision::exact;
use crate::tape::{Plain, Taped};
use burn::tensor::Tensor;

/// The four statistics of a frozen normalisation: `name.weight` and `name.running_var`, which start at 1, `name.bias` and `name.running_mean`, which start at 0.
pub fn frozen_statistics(name: &str, features: usize) -> [ParamSpec; 4] {
    [("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)]
        .map(|(part, start)| ParamSpec::new(format!("{name}.{part}"), &[features], Init::Constant(start)))
}

/// Sets the mean and the variance of a frozen norm to those of the channels of x, so that what it gives for them is normalised.
pub fn calibrate_norm(ctx: &mut ForwardContext<'_>, name: &str, x: &Tensor<4>) {
    let [rows, channels, height, width] = x.dims();
    // Means over equally many values each: their mean is the mean of all.
    let mean_of = |values: Tensor<4>| -> Tensor<1> {
        values.reshape([rows, channels, height * width]).mean_dim(2).mean_dim(0).reshape([channels])
    };
    let x = exact(ctx.off_tape(x.clone()));
    let mean = mean_of(x.clone());
    let centred = x - mean.clone().reshape([1, channels, 1, 1]);
    let variance = mean_of(centred.clone() * centred);
    for (name, value) in running_names(name).iter().zip([mean, variance]) {
        ctx.set_running(name, value);
    }
}

/// (x − mean)·weight/√(variance + 10⁻⁵) + bias of [rows, channels, height, width], with what follows it; torchvision's `FrozenBatchNorm2d`.
/// All four are statistics of the context, and none
/// of them changes. Computed in float32 and rounded once, to the number format of the input.
pub fn frozen_norm(ctx: &ForwardContext<'_>, name: &str, x: Tensor<4>, after: After) -> Tensor<4> {
    let After { residual, residual_last, activation } = after;
    if let (Some(residual), true) = (residual.clone(), residual_last && activation.leak().is_some()) {
        // The sum does not tell what the activation was of.
        return frozen_norm(ctx, name, x, After { activation, ..After::default() }) + residual;
    }
    let [mean, variance] = running_names(name);
    let channels = [format!("{name}.weight"), format!("{name}.bias"), mean, variance];
    let channels = channels.map(|part| ctx.off_tape(ctx.running(&part)));
    let [given, beside] = [Some(x.clone()), residual.clone()].map(|tensor| tensor.map(|tensor| ctx.off_tape(tensor)));
    let Some(given) = given else { unreachable!("what is normalised is there") };
    let y = answer(&channels, given, After { residual: beside, residual_last, activation });
    let [gain, _, _, variance] = channels;
    let kept = SavedTensors { activation: activation.leak().map(|leak| (y.clone(), leak)), gain, variance };
    match residual {
        None => ctx.recorded(
            || [x.into()],
            y,
            move |gradient, _| {
                let (x, _) = kept.backward(gradient, false);
                [Some(x.into())]
            },
        ),
        Some(residual) => {
            let on_tape = || [x, residual].map(Taped::from);
            ctx.recorded(on_tape, y, move |gradient, _| {
                let (x, residual) = kept.backward(gradient, true);
                [Some(x.into()), residual.map(Plain::from)]
            })
        }
    }
}

/// Off the tape.
fn answer(channels: &[Tensor<1>; 4], x: Tensor<4>, after: After) -> Tensor<4> {
    {
        let (residual, residual_last, leak) = (after.residual.as_ref(), after.residual_last, after.activation.leak());
        let channels = channels.each_ref();
        let norm = BatchNorm { channels, epsilon: BATCH_EPSILON, residual, residual_last, leak };
        if let Some(y) = kernels::batch_norm_answer(&x, &norm) {
            return y;
        }
    }
    let [gain, bias, mean, variance] = channels;
    let format = x.dtype();
    let scale = scale(gain, variance);
    let shift = bias.clone() - mean.clone() * scale.clone();
    after.apply(exact(x) * per_channel(scale) + per_channel(shift)).cast(format)
}

fn scale(gain: &Tensor<1>, variance: &Tensor<1>) -> Tensor<1> {
    gain.clone() * (variance.clone() + BATCH_EPSILON).sqrt().recip()
}

fn per_channel(values: Tensor<1>) -> Tensor<4> {
    let [channels] = values.dims();
    values.reshape([1, channels, 1, 1])
}

/// What the backward needs: the answer and what values below zero were multiplied by, where there was an activation.
struct SavedTensors {
    activation: Option<(Tensor<4>, f64)>,
    gain: Tensor<1>,
    variance: Tensor<1>,
}

impl SavedTensors {
    /// The gradients of what was normalised and of the residual, where there was one.
    fn backward(self, gradient: Tensor<4>, residual: bool) -> (Tensor<4>, Option<Tensor<4>>) {
        let Self { activation, gain, variance } = self;
        let gradient = {
            let activation = activation.as_ref().map(|(y, leak)| (y, *leak));
            let norm = FrozenNorm { channels: [&gain, &variance], epsilon: BATCH_EPSILON, activation, residual };
            match kernels::frozen_norm_back(gradient, &norm) {
                Ok(found) => return found,
                Err(gradient) => gradient,
            }
        };
        let format = gradient.dtype();
        let slope = match activation {
            None => exact(gradient),
            Some((y, leak)) => {
                let below = exact(y).lower_equal_elem(0.0).float();
                exact(gradient) * (below * (leak - 1.0) + 1.0)
            }
        };
        let x = (slope.clone() * per_channel(scale(&gain, &variance))).cast(format);
        (x, residual.then(|| slope.cast(format)))
    }
}

#[cfg(test)]
mod tests;
