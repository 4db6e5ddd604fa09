//! A recurrent layer as one product for the inputs of all time steps and one product per time step, with a hand-written
//! backward pass off the tape.
//!
//! On the tape, the slice of each time step would create a gradient of the size of all inputs, and its product a
//! gradient of the size of the weights.

#[cfg(test)]
mod tests;

use super::Cell;
use crate::forward_context::ForwardContext;
use crate::ops::{Gates, Product, Weights, product};
use crate::precision::exact;
use burn::tensor::Tensor;

/// Layer `number` of a stack: x [width·rows, inputs], time step by time step, to [width·rows, hidden] in the same
/// order, in float32. Every row starts from a zero state. Products are in the number format of the context, gates and
/// states in float32.
pub fn layer(ctx: &ForwardContext<'_>, name: &str, number: usize, cell: Cell, x: Tensor<2>, width: usize) -> Tensor<2> {
    let called = |part: &str| format!("{name}.{part}_l{number}");
    let [of_input, of_hidden] = ["weight_ih", "weight_hh"].map(|part| ctx.parameter::<2>(&called(part)));
    let biases = ["bias_ih", "bias_hh"].map(|part| ctx.parameter::<1>(&called(part)));
    let weights = Weights {
        precision: ctx.precision,
        input: ctx.constant_of(&called("weight_ih"), || ctx.round(ctx.off_tape(of_input.clone()))),
        hidden: ctx.constant_of(&called("weight_hh"), || ctx.round(ctx.off_tape(of_hidden.clone()))),
        biases: biases.clone().map(|bias| ctx.off_tape(bias).unsqueeze()),
    };
    let format = x.dtype();
    let inputs = ctx.round(ctx.off_tape(x.clone()));
    let (answer, course) = weights.forward(cell, inputs.clone(), width, ctx.taped());
    let [bias_input, bias_hidden] = biases;
    let on_tape = || [x.into(), of_input.into(), of_hidden.into(), bias_input.into(), bias_hidden.into()];
    ctx.recorded(on_tape, answer, move |gradient, [of_x, ..]| {
        let (Gates { input, hidden }, before) = weights.backward(gradient, course);
        let sum = |gates: &Tensor<2>| exact(gates.clone()).sum_dim(0).reshape([gates.dims()[1]]);
        let biases = [sum(&input), sum(&hidden)].map(|sum| Some(sum.into()));
        let Weights { precision, input: weight, .. } = weights;
        let how = Product::of(precision).exact();
        let of = |x: Tensor<2>, gates: Tensor<2>| Some(product(x, gates, how.first_transposed()).into());
        let (of_input, of_hidden) = (of(inputs, input.clone()), of(before, hidden));
        let of_x = of_x.then(|| product(input, weight, how.second_transposed()).cast(format).into());
        let [bias_input, bias_hidden] = biases;
        [of_x, of_input, of_hidden, bias_input, bias_hidden]
    })
}
