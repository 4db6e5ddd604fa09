//! The cross-entropy of a classifier.

use super::computed;
use crate::forward_context::ForwardContext;
use crate::native::kernels;
use crate::number::single;
use crate::precision::exact;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};

/// Added to padding logits before the softmax: their probability becomes 0, and the value is finite.
const NEVER: f32 = -1.0e30;

/// The sum of the cross-entropies in nats, times `share`, shape [1], float32, of logits [rows, columns] with target
/// classes [rows]. Rows with a negative target are ignored. Columns from `classes` on are padding.
pub fn cross_entropy_sum(
    ctx: &ForwardContext<'_>,
    answers: Tensor<2>,
    targets: Tensor<1, Int>,
    classes: usize,
    share: f64,
) -> Tensor<1> {
    let right = if ctx.taped() { targets.clone().inner() } else { targets.clone() };
    let given = ctx.off_tape(answers.clone());
    let Some((loss, rows)) = kernels::cross_entropy(&given, &right, classes) else {
        return summed(ctx, picked(possible(ctx, answers, classes), targets.clone()), targets) * share;
    };
    ctx.recorded(
        || [answers.into()],
        loss * share,
        move |upstream, _| {
            let gradient = kernels::cross_entropy_back(given, &right, classes, rows, single(share), &upstream);
            [Some(computed(gradient).into())]
        },
    )
}

/// The logits in float32, with padding masked out.
pub fn possible(ctx: &ForwardContext<'_>, answers: Tensor<2>, classes: usize) -> Tensor<2> {
    let (answers, columns) = (exact(answers.clone()), answers.dims()[1]);
    if columns == classes {
        return answers;
    }
    let padding: Vec<f32> = (0..columns).map(|column| if column < classes { 0.0 } else { NEVER }).collect();
    answers + ctx.values(padding, [1, columns])
}

/// The log-probability of each target class, shape [rows]; of class 0 if the target is negative.
pub fn picked(answers: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    let rows = answers.dims()[0];
    log_softmax(answers, 1).gather(1, targets.clamp_min(0).reshape([rows, 1])).reshape([rows])
}

/// The negative sum of the log-probabilities of rows with a target, shape [1]. Sums along one dimension, as a full
/// `sum` may use atomics, whose order changes from run to run.
pub fn summed(ctx: &ForwardContext<'_>, picked: Tensor<1>, targets: Tensor<1, Int>) -> Tensor<1> {
    let rows = picked.dims()[0];
    // Integer tensors, and tensors computed from them, are never on a tape.
    let counts = ctx.constant(targets.greater_equal_elem(0).float());
    -(picked * counts).reshape([1, rows]).sum_dim(1).reshape([1])
}
