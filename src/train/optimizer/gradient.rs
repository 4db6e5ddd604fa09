//! Checks and norms of gradients between the backward pass and the update.
//!
//! Gradients stay on the device; only the sum of their squares is read.

use crate::ops::square_sum;
use burn::tensor::{Tensor, TensorReadError};

/// Whether the sum of the squares of a step's gradients is finite. It is not if any value is NaN or infinite, or if its square overflows.
pub fn finite(gradients: &[Tensor<1>]) -> Result<bool, TensorReadError> {
    square_sum(gradients).try_into_scalar::<f32>().map(f32::is_finite)
}

/// The sum of the squares of all values.
pub fn squares(gradients: &[Tensor<1>]) -> Result<f64, TensorReadError> {
    // A pipeline stage may have only an embedding that another stage counts.
    if gradients.is_empty() {
        return Ok(0.0);
    }
    square_sum(gradients).try_into_scalar::<f32>().map(f64::from)
}

/// The factor that clips gradients with this sum of squares to the norm `norm`, as in [`clipped`](crate::ops::clipped).
pub fn shortening(squares: f64, norm: f64) -> f64 {
    let share = norm / (squares.sqrt() + 1e-6);
    // NaN stays NaN, on all stages.
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
    fn a_single_bad_value_is_detected() {
        assert!(finite(&tensors(&[&[1.0, 2.0], &[3.0]])).expect("readable"));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!finite(&tensors(&[&[1.0, 2.0], &[3.0, bad, 0.0]])).expect("readable"));
            assert!(!finite(&tensors(&[&[bad]])).expect("readable"));
        }
    }

    #[test]
    fn clipping_bounds_the_norm_of_all_gradients() {
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
