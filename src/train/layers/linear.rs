//! Affine maps.

use super::product::multiply;
use crate::train::pass::Pass;
use burn::tensor::Tensor;

/// x·W + b: [rows, in] to [rows, out], with `name.weight` [in, out] and, where there is one, `name.bias` [out].
pub fn linear(pass: &Pass<'_>, name: &str, x: Tensor<2>) -> Tensor<2> {
    let product = multiply(pass, x, pass.exact(&format!("{name}.weight")));
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
