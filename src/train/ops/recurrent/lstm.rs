//! One time step of an LSTM: c = f·c₋₁ + i·g and h = o·tanh c, where i, f, o = σ and g = tanh of their gates.

use super::{Gates, parts};
use burn::tensor::Tensor;
use burn::tensor::activation::sigmoid;

/// The activated gates, the previous cell state c₋₁, and tanh c.
pub struct Step {
    i: Tensor<2>,
    f: Tensor<2>,
    g: Tensor<2>,
    o: Tensor<2>,
    before: Tensor<2>,
    tanh: Tensor<2>,
}

/// The next h and c, [rows, hidden], and the saved step.
pub fn forward(gates: Gates, before: Tensor<2>) -> (Tensor<2>, Tensor<2>, Step) {
    let [i, f, g, o] = parts(&(gates.input + gates.hidden));
    let ([i, f, o], g) = ([i, f, o].map(sigmoid), g.tanh());
    let after = f.clone() * before.clone() + i.clone() * g.clone();
    let tanh = after.clone().tanh();
    (o.clone() * tanh.clone(), after, Step { i, f, g, o, before, tanh })
}

/// The gradients of the gates and of c₋₁, from those of h and c. That of c excludes its part through h.
pub fn backward(step: Step, of_h: Tensor<2>, of_c: Tensor<2>) -> (Gates, Tensor<2>) {
    let Step { i, f, g, o, before, tanh } = step;
    let of_c = of_c + of_h.clone() * o.clone() * rest(tanh.clone() * tanh.clone());
    let gates = vec![
        of_c.clone() * g.clone() * i.clone() * rest(i.clone()),
        of_c.clone() * before * f.clone() * rest(f.clone()),
        of_c.clone() * i * rest(g.clone() * g),
        of_h * tanh * o.clone() * rest(o),
    ];
    let gates = Tensor::cat(gates, 1);
    (Gates { input: gates.clone(), hidden: gates }, of_c * f)
}

/// 1 − x.
pub fn rest(x: Tensor<2>) -> Tensor<2> {
    x.neg() + 1.0
}
