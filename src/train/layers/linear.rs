//! Affine maps and products of matrices.

use crate::train::pass::Pass;
use crate::train::precision::Precision;
use burn::tensor::Tensor;

/// x·W + b: [rows, in] to [rows, out], with `name.weight` [in, out] and, where there is one, `name.bias` [out].
pub fn linear(pass: &Pass<'_>, name: &str, x: Tensor<2>) -> Tensor<2> {
    let product = multiply(pass, x, pass.weight(&format!("{name}.weight")));
    let bias = format!("{name}.bias");
    if pass.has(&bias) { product + pass.weight::<1>(&bias).unsqueeze() } else { product }
}

/// Several affine maps of the same rows as one product: [rows, in] to their answers side by side, [rows, sum of all out]. Each has a weight and a bias.
pub fn linear_joined(pass: &Pass<'_>, names: &[String], x: Tensor<2>) -> Tensor<2> {
    if let [name] = names {
        return linear(pass, name, x);
    }
    let weights = names.iter().map(|name| pass.weight(&format!("{name}.weight"))).collect();
    let biases = names.iter().map(|name| pass.weight::<1>(&format!("{name}.bias"))).collect();
    multiply(pass, x, Tensor::cat(weights, 1)) + Tensor::cat(biases, 0).unsqueeze()
}

/// The product of two matrices in the number format of the pass.
pub fn multiply(pass: &Pass<'_>, a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    product(pass.precision, a, b)
}

/// The product of two matrices in a number format, on the tape or off it.
///
/// Rows are filled up to a multiple of 16 bytes: a product that was tuned with such rows is taken for others of about the same size too, and then fails
/// to launch on CUDA: "TMA requires strides to be aligned to 16 bytes" (cubek-matmul 0.3.0-pre.3).
pub fn product(precision: Precision, a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    let (a, b) = (precision.round(a), precision.round(b));
    let columns = b.dims()[1];
    let lanes = precision.lanes();
    let widened = widen(a, 1, lanes).matmul(widen(widen(b, 0, lanes), 1, lanes));
    if widened.dims()[1] == columns { widened } else { widened.narrow(1, 0, columns) }
}

/// Zeros at the end of a dimension, up to a multiple of `lanes`.
pub fn widen(matrix: Tensor<2>, dim: usize, lanes: usize) -> Tensor<2> {
    let mut zeros = matrix.dims();
    zeros[dim] = zeros[dim].next_multiple_of(lanes) - zeros[dim];
    if zeros[dim] == 0 {
        return matrix;
    }
    let zeros = Tensor::zeros(zeros, (&matrix.device(), matrix.dtype()));
    Tensor::cat(vec![matrix, zeros], dim)
}
