//! Batch normalisation with fixed statistics, gain and bias.

use super::norm::running_names;
use crate::forward_context::ForwardContext;
use crate::ops::{self, After, FrozenSaved};
use crate::parameters::{Init, ParamSpec};
use crate::precision::exact;
use crate::tape::{Plain, Taped};
use burn::tensor::Tensor;

/// The four statistics of a frozen norm: `name.weight` and `name.running_var`, initially 1, and `name.bias` and
/// `name.running_mean`, initially 0.
pub fn frozen_statistics(name: &str, features: usize) -> [ParamSpec; 4] {
    [("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)]
        .map(|(part, start)| ParamSpec::new(format!("{name}.{part}"), &[features], Init::Constant(start)))
}

/// Sets the mean and the variance of a frozen norm to those of the channels of x, so that its output for x is normalised.
pub fn calibrate_norm(ctx: &mut ForwardContext<'_>, name: &str, x: &Tensor<4>) {
    let [rows, channels, height, width] = x.dims();
    // All inner means are over the same number of values, so their mean is the overall mean.
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

/// (x − mean)·weight/√(variance + 10⁻⁵) + bias for x [rows, channels, height, width], followed by `after`
/// (torchvision's `FrozenBatchNorm2d`).
///
/// All four vectors are statistics of the context and do not change. Computed in float32 and rounded once, to the
/// number format of the input.
pub fn frozen_norm(ctx: &ForwardContext<'_>, name: &str, x: Tensor<4>, after: After) -> Tensor<4> {
    let After { residual, residual_last, activation } = after;
    if let (Some(residual), true) = (residual.clone(), residual_last && activation.leak().is_some()) {
        // The backward pass needs the sign of the activation's input, which the sum does not show.
        return frozen_norm(ctx, name, x, After { activation, ..After::default() }) + residual;
    }
    let [mean, variance] = running_names(name);
    let channels = [format!("{name}.weight"), format!("{name}.bias"), mean, variance];
    let channels = channels.map(|part| ctx.off_tape(ctx.running(&part)));
    let [given, beside] = [Some(x.clone()), residual.clone()].map(|tensor| tensor.map(|tensor| ctx.off_tape(tensor)));
    let Some(given) = given else { unreachable!("what is normalised is there") };
    let y = ops::frozen_norm(&channels, given, After { residual: beside, residual_last, activation });
    let [gain, _, _, variance] = channels;
    let kept = FrozenSaved { activation: activation.leak().map(|leak| (y.clone(), leak)), gain, variance };
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

#[cfg(test)]
mod tests;
