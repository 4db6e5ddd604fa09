//! The loss of a classifier.

use crate::forward_context::ForwardContext;
use crate::number::real_len;
use crate::ops::{cross_entropy_sum, picked, possible, summed};
use burn::tensor::{Int, Tensor};

/// Mean cross-entropy in nats, shape [1], float32, of answers [rows, columns] to the right classes [rows]. A row whose class is negative does not count; `counted` says
/// how many do. Columns from `classes` on are padding and are never an answer.
pub fn cross_entropy(
    ctx: &ForwardContext<'_>,
    answers: Tensor<2>,
    targets: Tensor<1, Int>,
    [classes, counted]: [usize; 2],
) -> Tensor<1> {
    let share = 1.0 / real_len(counted.max(1));
    cross_entropy_sum(ctx, answers, targets, classes, share)
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
