//! The loss of a classifier.

use crate::forward_context::ForwardContext;
use crate::native;
use crate::number::real_len;
use crate::number::single;
use crate::precision::exact;
use crate::tape::computed;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};

/// What an answer that no class has is set to before the softmax: nothing remains of it, and it is no infinity.
const NEVER: f32 = -1.0e30;

/// Mean cross-entropy in nats, shape [1], float32, of answers [rows, columns] to the right classes [rows]. A row whose class is negative does not count; `counted` says
/// how many do. Columns from `classes` on are padding and are never an answer.
pub fn cross_entropy(
    ctx: &ForwardContext<'_>,
    answers: Tensor<2>,
    targets: Tensor<1, Int>,
    [classes, counted]: [usize; 2],
) -> Tensor<1> {
    let share = 1.0 / real_len(counted.max(1));
    let (answers, targets) = match by_kernel(ctx, answers, targets, classes, share) {
        Ok(loss) => return loss,
        Err(given) => given,
    };
    summed(ctx, picked(possible(ctx, answers, classes), targets.clone()), targets) * share
}

/// By kernels of ours, which go through the answers once for the loss and once for the gradient.
#[expect(clippy::result_large_err, reason = "what comes back is what was given")]
fn by_kernel(
    ctx: &ForwardContext<'_>,
    answers: Tensor<2>,
    targets: Tensor<1, Int>,
    classes: usize,
    share: f64,
) -> Result<Tensor<1>, (Tensor<2>, Tensor<1, Int>)> {
    let right = if ctx.taped() { targets.clone().inner() } else { targets.clone() };
    let given = ctx.off_tape(answers.clone());
    let Some(loss) = native::kernels::cross_entropy(&given, &right, classes) else { return Err((answers, targets)) };
    let recorded = ctx.recorded(
        || [answers.into()],
        loss * share,
        move |upstream, _| {
            let gradient = native::kernels::cross_entropy_back(given, &right, classes, single(share), &upstream);
            [Some(computed(gradient).into())]
        },
    );
    Ok(recorded)
}

/// Shape [2], float32: the sum of the cross-entropies in nats, and how many answers are right, where the largest of a row is the answer. A row that has no cross-entropy is
/// never right. Otherwise as [`cross_entropy`].
pub fn loss_and_correct(
    ctx: &ForwardContext<'_>,
    answers: Tensor<2>,
    targets: Tensor<1, Int>,
    classes: usize,
) -> Tensor<1> {
    let answers = possible(ctx, answers, classes);
    let rows = answers.dims()[0];
    let largest = answers.clone().argmax(1).reshape([rows]).equal(targets.clone()).float();
    let picked = picked(answers, targets.clone());
    // Where a NaN is, devices differ in what they take for the largest, but all of the row's softmax is NaN, which equals nothing.
    let right = largest * picked.clone().equal(picked.clone()).float();
    let right = ctx.constant(right.reshape([1, rows]).sum_dim(1).reshape([1]));
    Tensor::cat(vec![summed(ctx, picked, targets), right], 0)
}

/// In float32, and without what no class has.
fn possible(ctx: &ForwardContext<'_>, answers: Tensor<2>, classes: usize) -> Tensor<2> {
    let (answers, columns) = (exact(answers.clone()), answers.dims()[1]);
    if columns == classes {
        return answers;
    }
    let padding: Vec<f32> = (0..columns).map(|column| if column < classes { 0.0 } else { NEVER }).collect();
    answers + ctx.values(padding, [1, columns])
}

/// The logarithm of each right class's probability, shape [rows]; that of the first class where none is right.
fn picked(answers: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    let rows = answers.dims()[0];
    log_softmax(answers, 1).gather(1, targets.clamp_min(0).reshape([rows, 1])).reshape([rows])
}

/// Sums run along one dimension: a full `sum` may use atomics, whose order changes from run to run.
fn summed(ctx: &ForwardContext<'_>, picked: Tensor<1>, targets: Tensor<1, Int>) -> Tensor<1> {
    let rows = picked.dims()[0];
    // Whole numbers are never on a tape, and what is made of them is not either.
    let counts = ctx.constant(targets.greater_equal_elem(0).float());
    -(picked * counts).reshape([1, rows]).sum_dim(1).reshape([1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward_context::{ModelState, int_tensor};
    use crate::parameters::Index;
    use crate::precision::Precision;
    use burn::tensor::{Device, TensorData};

    /// The loss, and how many answers are right, where columns from `classes` on are padding.
    fn judged<const COLUMNS: usize>(
        answers: &[[f32; COLUMNS]],
        targets: &[i32],
        classes: usize,
        device: &Device,
    ) -> [f32; 2] {
        let none = Index::default();
        let state = ModelState {
            index: &none,
            parameters: &[],
            statistics: &none,
            running: &mut [],
            precision: Precision::Fp32,
            device: device.clone(),
        };
        let rows = [answers.len()];
        let answers =
            Tensor::<2>::from_data(TensorData::new(answers.as_flattened().to_vec(), [rows[0], COLUMNS]), device);
        let found =
            loss_and_correct(&ForwardContext::inference(state), answers, int_tensor(targets, rows, device), classes);
        let found: Vec<f32> = found.try_into_vec_as().expect("readable");
        found.try_into().expect("a loss and a count")
    }

    fn largest_is_right(device: &Device) {
        let answers = [[0.0, 2.0, 9.0], [2.0, 2.0, 9.0], [2.0, 2.0, 9.0], [3.0, 1.0, 9.0]];
        let [loss, right] = judged(&answers, &[1, 0, 1, -1], 2, device);
        // The first of two that are as large is the answer, and the last row does not count.
        assert_eq!(right, 2.0);
        let expected = (1.0 + (-2.0_f32).exp()).ln() + 2.0 * 2.0_f32.ln();
        assert!((loss - expected).abs() < 1e-5, "{loss} for {expected}");
        assert_eq!(judged(&answers, &[2, 2, 2, 2], 3, device)[1], 4.0);
    }

    fn none_is_right(device: &Device) {
        const NAN: f32 = f32::NAN;
        for classes in [2, 3] {
            for target in 0..2 {
                let [loss, right] = judged(&[[NAN; 3]; 4], &[target; 4], classes, device);
                assert!(loss.is_nan() && right == 0.0, "{right} are right of {classes}");
            }
            let rows = [[NAN, 5.0, 1.0], [5.0, NAN, 1.0], [0.0, 7.0, 1.0]];
            let [loss, right] = judged(&rows, &[1, 0, 1], classes, device);
            assert!(loss.is_nan() && right == 1.0, "{right} are right of {classes}");
        }
    }

    #[test]
    fn the_largest_answer_of_those_that_count_is_right() {
        largest_is_right(&Device::flex());
    }

    #[test]
    fn answers_that_are_no_numbers_are_wrong() {
        none_is_right(&Device::flex());
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_card_judges_as_the_processor_on_gpu() {
        largest_is_right(&Device::cuda(0));
        none_is_right(&Device::cuda(0));
    }
}
