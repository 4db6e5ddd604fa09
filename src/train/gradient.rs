//! What is done to gradients between the backward pass and the update.
//!
//! Everything stays on the device; only whether all values are finite is read, where half precision needs it.

use super::fit::joined;
use super::native::kernels::{self, Factor};
use super::number::single;
use burn::tensor::{Tensor, TensorReadError};

/// The sum of the squares of all values, shape [1]. Sums run along one dimension: a full `sum` may use atomics, whose order changes from run to run.
fn square_sum(gradients: &[Tensor<1>]) -> Tensor<1> {
    if let Some(sum) = kernels::square_sum(gradients) {
        return sum;
    }
    let squares = |gradient: &Tensor<1>| {
        let len = gradient.dims()[0];
        (gradient.clone() * gradient.clone()).reshape([1, len]).sum_dim(1).reshape([1])
    };
    let each: Vec<Tensor<1>> = gradients.iter().map(squares).collect();
    let count = each.len();
    joined(each).reshape([1, count]).sum_dim(1).reshape([1])
}

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

/// By what gradients of this sum of squares are multiplied so that their norm is at most `norm`, as [`clipped`] has it.
pub fn shortening(squares: f64, norm: f64) -> f64 {
    let share = norm / (squares.sqrt() + 1e-6);
    // What is no number stays none, on all stages.
    if share >= 1.0 { 1.0 } else { share }
}

/// All of them times a factor.
pub fn scaled(gradients: Vec<Tensor<1>>, factor: f64) -> Vec<Tensor<1>> {
    let gradients = match kernels::multiplied(gradients, Factor::Given(single(factor))) {
        Ok(scaled) => return scaled,
        Err(gradients) => gradients,
    };
    gradients.into_iter().map(|gradient| gradient * factor).collect()
}

/// Shortened so that the norm of all together is at most `norm` (Pascanu et al. 2013; PyTorch's `clip_grad_norm_`, with its 1e-6).
pub fn clipped(gradients: Vec<Tensor<1>>, norm: f64) -> Vec<Tensor<1>> {
    let sum = square_sum(&gradients);
    let gradients = match kernels::multiplied(gradients, Factor::Norm(&sum, single(norm))) {
        Ok(clipped) => return clipped,
        Err(gradients) => gradients,
    };
    let factor = ((sum.sqrt() + 1e-6).recip() * norm).clamp_max(1.0);
    gradients.into_iter().map(|gradient| gradient * factor.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
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
