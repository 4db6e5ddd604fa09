//! One time step of a GRU: h = (1 − z)·n + z·h₋₁, where r, z = σ of their gates and n = tanh(input part + r · state
//! part). The state part includes its bias.

use super::lstm::rest;
use super::{Gates, parts};
use burn::tensor::Tensor;
use burn::tensor::activation::sigmoid;

/// The activated gates, the state part of n, and the previous state.
pub struct Step {
    r: Tensor<2>,
    z: Tensor<2>,
    n: Tensor<2>,
    given: Tensor<2>,
    before: Tensor<2>,
}

/// The next state [rows, hidden], and the saved step.
pub fn forward(gates: Gates, before: Tensor<2>) -> (Tensor<2>, Step) {
    let ([r, z, n], [r_given, z_given, given]) = (parts(&gates.input), parts(&gates.hidden));
    let (r, z) = (sigmoid(r + r_given), sigmoid(z + z_given));
    let n = (n + r.clone() * given.clone()).tanh();
    (rest(z.clone()) * n.clone() + z.clone() * before.clone(), Step { r, z, n, given, before })
}

/// The gradients of the gates, and that of the previous state without its part through the gates, from the gradient of the next state.
pub fn backward(step: Step, of_h: Tensor<2>) -> (Gates, Tensor<2>) {
    let Step { r, z, n, given, before } = step;
    let of_n = of_h.clone() * rest(z.clone()) * rest(n.clone() * n.clone());
    let of_z = of_h.clone() * (before - n) * z.clone() * rest(z.clone());
    let of_r = of_n.clone() * given * r.clone() * rest(r.clone());
    let input = Tensor::cat(vec![of_r.clone(), of_z.clone(), of_n.clone()], 1);
    let hidden = Tensor::cat(vec![of_r, of_z, of_n * r], 1);
    (Gates { input, hidden }, of_h * z)
}
