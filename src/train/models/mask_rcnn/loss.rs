//! Weighted sums, in float32, of the binary cross-entropy and of the smooth L1 loss. Values with weight 0 do not contribute.

use crate::forward_context::ForwardContext;
use crate::precision::exact;
use burn::tensor::activation::{relu, sigmoid};
use burn::tensor::{Tensor, TensorData};

/// The difference at which smooth L1 changes from a square to an absolute value (torchvision's `beta`).
const BETA: f64 = 1.0 / 9.0;

/// Targets and weights for a prediction, row by row: one of each per value.
pub struct Goal {
    /// The target of each value.
    pub targets: Vec<f32>,
    /// The weight of each value.
    pub weights: Vec<f32>,
}

/// Σ weight·(−t·ln σ(x) − (1 − t)·ln(1 − σ(x))), shape [1], of logits [rows, columns].
pub fn binary(ctx: &ForwardContext<'_>, logits: Tensor<2>, goal: Goal) -> Tensor<1> {
    weighted(
        ctx,
        logits,
        goal,
        |x, t| relu(x.clone()) - x.clone() * t + (-x.abs()).exp().log1p(),
        |x, t| sigmoid(x) - t,
    )
}

/// Σ weight·l(x − t), shape [1], of predictions [rows, columns]: l(d) is d²/2β if |d| < β = 1/9, otherwise |d| − β/2
/// (Girshick 2015, "Fast R-CNN", equation 3).
pub fn smooth_l1(ctx: &ForwardContext<'_>, answers: Tensor<2>, goal: Goal) -> Tensor<1> {
    weighted(
        ctx,
        answers,
        goal,
        |x, t| {
            let size = (x - t).abs();
            let square = size.clone().clamp_max(BETA);
            square.clone() * square.clone() * (0.5 / BETA) + (size - square)
        },
        |x, t| ((x - t) * (1.0 / BETA)).clamp(-1.0, 1.0),
    )
}

type Curve = fn(Tensor<2>, Tensor<2>) -> Tensor<2>;

/// The weighted sum of `value(x, t)` over predictions x and targets t, with `slope` as its derivative by x.
fn weighted(ctx: &ForwardContext<'_>, answers: Tensor<2>, goal: Goal, value: Curve, slope: Curve) -> Tensor<1> {
    let ([rows, columns], format) = (answers.dims(), answers.dtype());
    let upload =
        |values: Vec<f32>| -> Tensor<2> { Tensor::from_data(TensorData::new(values, [rows, columns]), ctx.device()) };
    let (targets, weights) = (upload(goal.targets), upload(goal.weights));
    let given = exact(ctx.off_tape(answers.clone()));
    let losses = value(given.clone(), targets.clone()) * weights.clone();
    let sum: Tensor<1> = losses.sum_dim(1).reshape([1, rows]).sum_dim(1).reshape([1]);
    ctx.recorded(
        || [answers.into()],
        sum,
        move |gradient, _| {
            let gradient: Tensor<1> = gradient;
            let slopes = slope(given, targets) * weights * gradient.reshape([1, 1]);
            [Some(slopes.cast(format).into())]
        },
    )
}

#[cfg(test)]
mod tests;
