//! Sums of squares, scaling and clipping of many gradients at once.

use crate::native::kernels::{self, Factor};
use crate::number::single;
use crate::ops::joined;
use burn::tensor::Tensor;

/// The sum of the squares of all values, shape [1]. Sums along one dimension, as a full `sum` may use atomics, whose
/// order changes from run to run.
pub fn square_sum(gradients: &[Tensor<1>]) -> Tensor<1> {
    kernels::square_sum(gradients).unwrap_or_else(|| {
        let squares = |gradient: &Tensor<1>| {
            let len = gradient.dims()[0];
            (gradient.clone() * gradient.clone()).reshape([1, len]).sum_dim(1).reshape([1])
        };
        let each: Vec<Tensor<1>> = gradients.iter().map(squares).collect();
        let count = each.len();
        joined(each).reshape([1, count]).sum_dim(1).reshape([1])
    })
}

/// Multiplies all gradients by a factor, in place if a tensor's memory is not shared.
pub fn scaled(gradients: Vec<Tensor<1>>, factor: f64) -> Vec<Tensor<1>> {
    if let Some(multiply) = kernels::multiplied(&gradients, Factor::Given(single(factor))) {
        return multiply(gradients);
    }
    gradients.into_iter().map(|gradient| gradient * factor).collect()
}

/// Clips gradients to a total norm of at most `norm` (Pascanu et al. 2013; PyTorch's `clip_grad_norm_`, with its 1e-6).
pub fn clipped(gradients: Vec<Tensor<1>>, norm: f64) -> Vec<Tensor<1>> {
    let sum = square_sum(&gradients);
    if let Some(multiply) = kernels::multiplied(&gradients, Factor::Norm(&sum, single(norm))) {
        return multiply(gradients);
    }
    let factor = ((sum.sqrt() + 1e-6).recip() * norm).clamp_max(1.0);
    gradients.into_iter().map(|gradient| gradient * factor.clone()).collect()
}
