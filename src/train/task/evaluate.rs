//! Evaluation: loss and accuracy on held-out data, and the number of timed inference batches.
//!
//! Outputs are read back and scored on the host in double precision, so that the scores do not depend on a device's
//! summation order.

use super::Score;
use crate::data::images::{CLASSES, Images};
use crate::data::{Batch, image_batch};
use crate::device::Place;
use crate::number::real_len;
use crate::spec::Small;
use burn::tensor::{Tensor, TensorReadError};

/// Samples of an evaluation batch: enough to keep two cores busy, small enough for their memory.
pub const BATCH: usize = 200;

/// Evaluates the parameters on every image: mean cross-entropy and the fraction of right answers. Calls `beat` with the
/// number of rows before each batch.
pub fn evaluate(
    model: &Small,
    parameters: &[Tensor<1>],
    images: &Images,
    place: &Place,
    beat: &mut dyn FnMut(usize),
) -> Result<Score, TensorReadError> {
    let (mut loss, mut right) = (0.0, 0.0);
    for indices in batches(images.len()) {
        beat(indices.len());
        let answers = answer(model, parameters, image_batch(images, &indices), place)?;
        for (row, &index) in answers.chunks_exact(CLASSES).zip(&indices) {
            let (row_loss, is_right) = loss_and_correct(row, usize::from(images.labels[index]));
            loss += row_loss;
            right += f64::from(u8::from(is_right));
        }
    }
    let count = real_len(images.len());
    Ok(vec![("eval_loss", loss / count), ("eval_accuracy", right / count)])
}

/// Returns the samples of the n-th batch of `rows` rows, in a cycle over `len` samples.
pub fn turn(n: u64, rows: usize, len: usize) -> Vec<usize> {
    let first = usize::try_from(n).unwrap_or_default().wrapping_mul(rows);
    (0..rows).map(|row| first.wrapping_add(row) % len.max(1)).collect()
}

/// Whether timed inference has enough batches: a hundred, or at least ten that took two seconds themselves or a minute
/// with their data. `answered_ns` is the time of the batches, `all_ns` includes preparing their data.
pub fn enough(answers: u64, answered_ns: u64, all_ns: u64) -> bool {
    answers >= 100 || answers >= 10 && (answered_ns >= 2_000_000_000 || all_ns >= 60_000_000_000)
}

fn batches(len: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..len).step_by(BATCH).map(move |start| (start..len.min(start + BATCH)).collect())
}

/// Returns the model's outputs for images, in the host's memory.
pub fn answer(
    model: &Small,
    parameters: &[Tensor<1>],
    batch: Batch,
    place: &Place,
) -> Result<Vec<f32>, TensorReadError> {
    model.answer(parameters, batch, place)?.try_into_vec_as()
}

/// Returns the cross-entropy of one row of outputs, and whether the right class is the first of the largest. NaN is
/// never right.
fn loss_and_correct(answers: &[f32], label: usize) -> (f64, bool) {
    let right = f64::from(answers[label]);
    let largest = answers.iter().fold(f64::NEG_INFINITY, |largest, answer| largest.max(f64::from(*answer)));
    let sum: f64 = answers.iter().map(|answer| (f64::from(*answer) - largest).exp()).sum();
    let first = answers.iter().position(|answer| f64::from(*answer) == largest);
    let finite = answers.iter().all(|answer| !answer.is_nan());
    (largest + sum.ln() - right, finite && first == Some(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_answer_counts() {
        let (loss, right) = loss_and_correct(&[0.0, 2.0, 0.0], 1);
        assert!(right);
        assert!((loss - (1.0 + 2.0 * (-2.0_f64).exp()).ln()).abs() < 1e-12);
        assert!(!loss_and_correct(&[0.0, 2.0, 0.0], 2).1);
        assert!(!loss_and_correct(&[2.0, 2.0], 1).1);
    }

    #[test]
    fn timed_batches_have_the_requested_size() {
        assert_eq!(turn(0, 3, 5), [0, 1, 2]);
        assert_eq!(turn(1, 3, 5), [3, 4, 0]);
        assert_eq!(turn(7, 5, 2), [1, 0, 1, 0, 1]);
    }

    #[test]
    fn ten_to_a_hundred_batches_are_timed_for_two_seconds() {
        assert!(!enough(9, 90_000_000_000, 90_000_000_000));
        assert!(!enough(10, 1_999_999_999, 1_999_999_999));
        assert!(enough(10, 2_000_000_000, 2_000_000_000));
        assert!(!enough(99, 0, 0));
        assert!(enough(100, 0, 0));
    }

    #[test]
    fn batches_with_slow_data_take_a_minute_at_most() {
        assert!(!enough(10, 57_000_000, 59_999_999_999));
        assert!(!enough(9, 57_000_000, 60_000_000_000));
        assert!(enough(10, 57_000_000, 60_000_000_000));
    }

    #[test]
    fn nan_outputs_are_wrong() {
        let (loss, right) = loss_and_correct(&[f32::NAN, 1.0], 1);
        assert!(loss.is_nan() && !right);
        assert!(!loss_and_correct(&[f32::NAN; 2], 0).1);
    }
}
