//! Normalisation, always in float32.

use crate::forward_context::ForwardContext;
use crate::ops::{self, After};
use crate::parameters::{Init, ParamSpec};
use crate::precision::exact;
use burn::tensor::Tensor;

/// The parameters `name.weight`, initially 1, and `name.bias`, initially 0.
pub fn norm_specs(name: &str, features: usize) -> [ParamSpec; 2] {
    [("weight", 1.0), ("bias", 0.0)]
        .map(|(part, start)| ParamSpec::new(format!("{name}.{part}"), &[features], Init::Constant(start)))
}

/// The running statistics `name.running_mean`, initially 0, and `name.running_var`, initially 1.
pub fn norm_statistics(name: &str, features: usize) -> [ParamSpec; 2] {
    [("running_mean", 0.0), ("running_var", 1.0)]
        .map(|(part, start)| ParamSpec::new(format!("{name}.{part}"), &[features], Init::Constant(start)))
}

/// Batch normalisation of [rows, channels, height, width] (Ioffe and Szegedy 2015, algorithms 1 and 2), followed by
/// `after`. The running variance is unbiased, as in PyTorch. Computed in float32 and rounded once, to the number format
/// of the input.
pub fn batch_norm(ctx: &mut ForwardContext<'_>, name: &str, x: Tensor<4>, after: After) -> Tensor<4> {
    let [gain, bias] = ["weight", "bias"].map(|part| ctx.parameter::<1>(&format!("{name}.{part}")));
    ops::batch_norm(ctx, x, [gain, bias], &running_names(name), after)
}

/// Batch normalisation in inference as a scale and a shift for each channel.
pub(super) fn scale_and_shift(ctx: &ForwardContext<'_>, name: &str) -> [Tensor<1>; 2] {
    let [gain, bias] = ["weight", "bias"].map(|part| ctx.parameter::<1>(&format!("{name}.{part}")));
    ops::scale_and_shift(ctx, [gain, bias], &running_names(name))
}

pub(super) fn running_names(name: &str) -> [String; 2] {
    ["running_mean", "running_var"].map(|part| format!("{name}.{part}"))
}

/// Layer normalisation of each row of [rows, features] (Ba, Kiros, Hinton 2016). The output is in float32.
pub fn layer_norm(ctx: &ForwardContext<'_>, name: &str, x: Tensor<2>, epsilon: f64) -> Tensor<2> {
    let [gain, bias] = ["weight", "bias"].map(|part| ctx.parameter::<1>(&format!("{name}.{part}")));
    ops::layer_norm(ctx, exact(x), [gain, bias], epsilon)
}

#[cfg(test)]
mod tests;
