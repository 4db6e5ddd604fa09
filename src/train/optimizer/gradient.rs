//! What is done to gradients between the backward pass and the update.
//!
//! Everything stays on the device; only whether all values are finite is read, where half precision needs it.

use crate::ops::square_sum;
use burn::tensor::{Tensor, TensorReadError};

/// Whether every value of a step's gradients is a number, and none so large that its square is none.
pub fn finite(gradients: &[Tensor<1>]) -> Result<bool, TensorReadError> {
    square_sum(gradients).try_into_scalar::<f32>().map(f32::is_finite)
}

/// The sum of the squares of all values.
pub fn squares(gradients: &[Tensor<1>]) -> Result<f64, TensorReadError> {
    // A stage of a pipeline may have nothing but a table that another one counts.
    if gradients.is_empty() {
        return Ok(0.0);
    }
    square_sum(gradients).try_into_scalar::<f32>().map(f64::from)
}

/// By what gradients of this sum of squares are multiplied so that their norm is at most `norm`, as [`clipped`](crate::ops::clipped) has it.
pub fn shortening(squares: f64, norm: f64) -> f64 {
    let share = norm / (squares.sqrt() + 1e-6);
    // What is no number stays none, on all stages.
    if share >= 1.0 { 1.0 } else { share }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{clipped, scaled};
    use burn::tensor::{Device, TensorData};

    fn tensors(values: &[&[f32]]) -> Vec<Tensor<1>> {
        values.iter().map(|values| Tensor::from_data(TensorData::from(*values), &Device::flex())).collect()
    }

    fn read(tensors: Vec<Tensor<1>>) -> Vec<Vec<f32>> {
        tensors.into_iter().map(|tensor| tensor.try_into_vec_as().expect("readable")).collect()
    }

    #[test]
    fn one_bad_value_among_all_is_seen() {
        assert!(finite(&tensors(&[&[1.0, 2.0], &[3.0]])).expect("readable"));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!finite(&tensors(&[&[1.0, 2.0], &[3.0, bad, 0.0]])).expect("readable"));
            assert!(!finite(&tensors(&[&[bad]])).expect("readable"));
        }
    }

    #[test]
    fn the_norm_of_all_together_is_bounded() {
        let long = read(clipped(tensors(&[&[3.0, 0.0], &[4.0]]), 1.0));
        let expected = [vec![0.6, 0.0], vec![0.8]];
        for (found, expected) in long.concat().iter().zip(expected.concat()) {
            assert!((found - expected).abs() < 1e-6, "{long:?}");
        }
        assert_eq!(read(clipped(tensors(&[&[0.3, 0.0], &[0.4]]), 1.0)), [vec![0.3, 0.0], vec![0.4]]);
        assert_eq!(read(scaled(tensors(&[&[2.0]]), 0.5)), [[1.0]]);
        assert_eq!(squares(&tensors(&[&[3.0, 0.0], &[4.0]])).expect("readable"), 25.0);
        assert_eq!(squares(&[]).expect("nothing to read"), 0.0, "of a stage that has nothing of its own");
    }
}
