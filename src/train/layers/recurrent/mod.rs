//! Recurrent layers: LSTM (Hochreiter and Schmidhuber 1997) and GRU (Cho et al. 2014), as PyTorch defines them.
//!
//! A stack is one cuDNN operation where cuDNN is available (`stack`), otherwise one layer after the other (`layer`).

mod layer;
mod stack;

use crate::forward_context::ForwardContext;
use crate::number::{real_len, single, wide};
use crate::parameters::{Init, ParamSpec};
use burn::tensor::Tensor;

pub use crate::ops::Unit as Cell;

/// The four parameters of layer `layer` of a stack, with PyTorch's names: `weight_ih` [inputs, gates·hidden],
/// `weight_hh` [hidden, gates·hidden] and a bias for each. All are initialised uniformly in ±1/√hidden.
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

/// Floating-point operations of a layer over one row, counted as in `Model::forward_flops`.
pub fn recurrent_flops(width: u64, cell: Cell, [inputs, hidden]: [u64; 2]) -> u64 {
    2 * width * wide(cell.gates()) * hidden * (inputs + hidden)
}

/// A stack of recurrent layers: x [width·rows, inputs], time step by time step, to the states of the last layer
/// [width·rows, hidden] in the same order. Every row starts from zero states, and there is no dropout between the
/// layers.
///
/// The output is in float32 or in the number format of the context. With cuDNN, products, states and outputs of all
/// layers are in the number format of the context, as in PyTorch, and sums in float32. The gradient of the parameters
/// is also rounded to that format. Without cuDNN, products are in the number format of the context, gates and states in
/// float32.
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
