//! The cross-entropy of a classifier.

use super::computed;
use crate::forward_context::ForwardContext;
use crate::native::kernels;
use crate::number::single;
use crate::precision::exact;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};

/// What an answer that no class has is set to before the softmax: nothing remains of it, and it is no infinity.
const NEVER: f32 = -1.0e30;

/// The sum of the cross-entropies in nats, times a share, shape [1], float32, of answers [rows, columns] to the right classes [rows]. A row whose
/// class is negative does not count. Columns from `classes` on are padding and are never an answer.
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

/// In float32, and without what no class has.
pub fn possible(ctx: &ForwardContext<'_>, answers: Tensor<2>, classes: usize) -> Tensor<2> {
    let (answers, columns) = (exact(answers.clone()), answers.dims()[1]);
    if columns == classes {
        return answers;
    }
    let padding: Vec<f32> = (0..columns).map(|column| if column < classes { 0.0 } else { NEVER }).collect();
    answers + ctx.values(padding, [1, columns])
}

/// The logarithm of each right class's probability, shape [rows]; that of the first class where none is right.
pub fn picked(answers: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    let rows = answers.dims()[0];
    log_softmax(answers, 1).gather(1, targets.clamp_min(0).reshape([rows, 1])).reshape([rows])
}

/// Sums run along one dimension: a full `sum` may use atomics, whose order changes from run to run.
pub fn summed(ctx: &ForwardContext<'_>, picked: Tensor<1>, targets: Tensor<1, Int>) -> Tensor<1> {
    let rows = picked.dims()[0];
    // Whole numbers are never on a tape, and what is made of them is not either.
    let counts = ctx.constant(targets.greater_equal_elem(0).float());
    -(picked * counts).reshape([1, rows]).sum_dim(1).reshape([1])
}
