//! Recurrent layers: long short-term memory (Hochreiter and Schmidhuber 1997) and gated recurrent units (Cho et al. 2014), as PyTorch defines them.
//!
//! A stack is one operation of cuDNN where that is there (`stack`), and else one layer after the other (`layer`).

mod layer;
mod stack;

use crate::forward_context::ForwardContext;
use crate::number::{real_len, single, wide};
use crate::ops::Unit;
use crate::parameters::{Init, ParamSpec};
use burn::tensor::Tensor;

/// Which cell a layer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Long short-term memory: the gates i, f, g, o.
    Lstm,
    /// Gated recurrent unit: the gates r, z, n, with a bias inside of the product with r.
    Gru,
}

impl Cell {
    /// Width of its gates over that of its state.
    pub fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }

    fn unit(self) -> Unit {
        match self {
            Self::Lstm => Unit::Lstm,
            Self::Gru => Unit::Gru,
        }
    }
}

/// The four parameters of a layer, with PyTorch's names for layer `layer` of a stack: `weight_ih` [inputs, gates·hidden], `weight_hh` [hidden, gates·hidden] and a
/// bias for each. All start uniform in ±1/√hidden.
pub fn recurrent_specs(name: &str, layer: usize, cell: Cell, [inputs, hidden]: [usize; 2]) -> Vec<ParamSpec> {
    let gates = cell.gates() * hidden;
    let start = Init::Uniform(single(1.0 / real_len(hidden).sqrt()));
    let called = |part: &str, shape: &[usize]| ParamSpec::new(format!("{name}.{part}_l{layer}"), shape, start);
    vec![
        called("weight_ih", &[inputs, gates]),
        called("weight_hh", &[hidden, gates]),
        called("bias_ih", &[gates]),
        called("bias_hh", &[gates]),
    ]
}

/// Floating-point operations of a layer over one row, counted as `Model::forward_flops` says.
pub fn recurrent_flops(width: u64, cell: Cell, [inputs, hidden]: [u64; 2]) -> u64 {
    2 * width * wide(cell.gates()) * hidden * (inputs + hidden)
}

/// So many layers on top of each other: x [width·rows, inputs], all rows of the first time first, to the states of the highest layer [width·rows, hidden] in the same order. Every row starts
/// from states of zeros, and nothing is dropped between the layers.
///
/// The answer is in float32 or in the number format of the context. By cuDNN products, states and answers of all layers are in the number
/// format of the context, as in PyTorch, and sums in float32; the gradient of the parameters comes in that format too before it is float32.
/// Otherwise products are in the number format of the context, gates and states in float32.
pub fn recurrent_stack(
    ctx: &ForwardContext<'_>,
    name: &str,
    layers: usize,
    cell: Cell,
    x: Tensor<2>,
    width: usize,
) -> Tensor<2> {
    match stack::stack(ctx, name, layers, cell, &x, width) {
        Some(answer) => answer,
        None => (0..layers).fold(x, |x, number| layer::layer(ctx, name, number, cell, x, width)),
    }
}
