//! The loss of a classifier.

#[cfg(feature = "cuda")]
use crate::train::native;
use crate::train::number::real_len;
#[cfg(feature = "cuda")]
use crate::train::number::single;
use crate::train::pass::Pass;
use crate::train::precision::exact;
#[cfg(feature = "cuda")]
use crate::train::tape::computed;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};

/// What an answer that no class has is set to before the softmax: nothing remains of it, and it is no infinity.
const NEVER: f32 = -1.0e30;

/// Mean cross-entropy in nats, shape [1], float32, of answers [rows, columns] to the right classes [rows]. A row whose class is negative does not count; `counted` says
/// how many do. Columns from `classes` on are padding and are never an answer.
pub fn cross_entropy(
    pass: &Pass<'_>,
    answers: Tensor<2>,
    targets: Tensor<1, Int>,
    [classes, counted]: [usize; 2],
) -> Tensor<1> {
    let share = 1.0 / real_len(counted.max(1));
    #[cfg(feature = "cuda")]
    let (answers, targets) = match by_kernel(pass, answers, targets, classes, share) {
        Ok(loss) => return loss,
        Err(given) => given,
    };
    summed(pass, possible(pass, answers, classes), targets) * share
}

/// By kernels of ours, which go through the answers once for the loss and once for the gradient.
#[cfg(feature = "cuda")]
#[expect(clippy::result_large_err, reason = "what comes back is what was given")]
fn by_kernel(
    pass: &Pass<'_>,
    answers: Tensor<2>,
    targets: Tensor<1, Int>,
    classes: usize,
    share: f64,
) -> Result<Tensor<1>, (Tensor<2>, Tensor<1, Int>)> {
    let right = if pass.taped() { targets.clone().inner() } else { targets.clone() };
    let given = pass.off_tape(answers.clone());
    let Some(loss) = native::kernels::cross_entropy(&given, &right, classes) else { return Err((answers, targets)) };
    let recorded = pass.recorded(
        || [answers.into()],
        loss * share,
        move |upstream, _| {
            let gradient = native::kernels::cross_entropy_back(given, &right, classes, single(share), &upstream);
            [Some(computed(gradient).into())]
        },
    );
    Ok(recorded)
}

/// Shape [2], float32: the sum of the cross-entropies in nats, and how many answers are right, where the largest of a row is the answer. Otherwise as [`cross_entropy`].
pub fn judge(pass: &Pass<'_>, answers: Tensor<2>, targets: Tensor<1, Int>, classes: usize) -> Tensor<1> {
    let answers = possible(pass, answers, classes);
    let rows = answers.dims()[0];
    let right = answers.clone().argmax(1).reshape([rows]).equal(targets.clone()).float();
    let right = pass.constant(right.reshape([1, rows]).sum_dim(1).reshape([1]));
    Tensor::cat(vec![summed(pass, answers, targets), right], 0)
}

/// In float32, and without what no class has.
fn possible(pass: &Pass<'_>, answers: Tensor<2>, classes: usize) -> Tensor<2> {
    let (answers, columns) = (exact(answers.clone()), answers.dims()[1]);
    if columns == classes {
        return answers;
    }
    let padding: Vec<f32> = (0..columns).map(|column| if column < classes { 0.0 } else { NEVER }).collect();
    answers + pass.values(padding, [1, columns])
}

/// Sums run along one dimension: a full `sum` may use atomics, whose order changes from run to run.
fn summed(pass: &Pass<'_>, answers: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    let rows = answers.dims()[0];
    // Whole numbers are never on a tape, and what is made of them is not either.
    let counts = pass.constant(targets.clone().greater_equal_elem(0).float());
    let picked = log_softmax(answers, 1).gather(1, targets.clamp_min(0).reshape([rows, 1])).reshape([rows]);
    -(picked * counts).reshape([1, rows]).sum_dim(1).reshape([1])
}
