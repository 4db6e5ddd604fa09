//! The loss of a classifier.

use crate::forward_context::ForwardContext;
use crate::number::real_len;
use crate::ops::{cross_entropy_sum, picked, possible, summed};
use burn::tensor::{Int, Tensor};

/// The mean cross-entropy in nats, shape [1], float32, of logits [rows, columns] with target classes [rows].
///
/// Rows with a negative target are ignored; `counted` is the number of the others. Columns from `classes` on are padding.
pub fn cross_entropy(
    ctx: &ForwardContext<'_>,
    answers: Tensor<2>,
    targets: Tensor<1, Int>,
    [classes, counted]: [usize; 2],
) -> Tensor<1> {
    let share = 1.0 / real_len(counted.max(1));
    cross_entropy_sum(ctx, answers, targets, classes, share)
}

/// The sum of the cross-entropies in nats, and the number of rows whose largest logit is that of the target: shape [2],
/// float32. Rows whose cross-entropy is NaN are never correct. Otherwise as [`cross_entropy`].
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
    // Devices disagree on the largest of values with a NaN. The row's softmax is then all NaN, which is not equal to itself.
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

    /// The loss and the number of correct rows; columns from `classes` on are padding.
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
        // The first of two equal logits is the prediction, and the last row is ignored.
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
    fn rows_whose_largest_logit_is_the_target_are_correct() {
        largest_is_right(&Device::flex());
    }

    #[test]
    fn rows_with_nan_are_not_correct() {
        none_is_right(&Device::flex());
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_card_judges_as_the_processor_on_gpu() {
        largest_is_right(&Device::cuda(0));
        none_is_right(&Device::cuda(0));
    }
}
