//! Recurrent layers: long short-term memory (Hochreiter and Schmidhuber 1997) and gated recurrent units (Cho et al. 2014), as PyTorch defines them.
//!
//! A layer is one product for the inputs of all times and one for each time; its backward pass is written by hand, off the tape, in as many products. On the
//! tape each time's slice of the inputs would leave a gradient of the size of all of them, and each time's product a gradient of the size of the weights.

mod gru;
mod lstm;

use super::linear::product;
use crate::train::number::{real_len, single, wide};
use crate::train::parameters::{Layout, Start};
use crate::train::pass::Pass;
use crate::train::precision::{Precision, exact};
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
}

/// The four parameters of a layer, with PyTorch's names for layer `layer` of a stack: `weight_ih` [inputs, gates·hidden], `weight_hh` [hidden, gates·hidden] and a
/// bias for each. All start uniform in ±1/√hidden.
pub fn recurrent_layouts(name: &str, layer: usize, cell: Cell, [inputs, hidden]: [usize; 2]) -> Vec<Layout> {
    let gates = cell.gates() * hidden;
    let start = Start::Uniform(single(1.0 / real_len(hidden).sqrt()));
    let called = |part: &str, shape: &[usize]| Layout::new(format!("{name}.{part}_l{layer}"), shape, start);
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

/// Layer `layer` of a stack: x [width·rows, inputs], all rows of the first time first, to [width·rows, hidden] in the same order, in float32. Every row starts from a state of
/// zeros. Products are in the number format of the pass, gates and states in float32.
pub fn recurrent(pass: &mut Pass<'_>, name: &str, layer: usize, cell: Cell, x: Tensor<2>, width: usize) -> Tensor<2> {
    let called = |part: &str| format!("{name}.{part}_l{layer}");
    let (of_input, of_hidden) = (called("weight_ih"), called("weight_hh"));
    let (bias_input, bias_hidden) = (called("bias_ih"), called("bias_hh"));
    let bias = |name: &str| pass.off_tape(pass.exact::<1>(name)).unsqueeze();
    let weights = Weights {
        precision: pass.precision,
        input: pass.round(pass.off_tape(pass.exact(&of_input))),
        hidden: pass.round(pass.off_tape(pass.exact(&of_hidden))),
        biases: [bias(&bias_input), bias(&bias_hidden)],
    };
    let inputs = pass.round(pass.off_tape(x.clone()));
    let (hidden, steps) = weights.forward(cell, inputs.clone(), width, pass.taped());
    let answer = Tensor::cat(hidden[1..].to_vec(), 0);
    let before = hidden[..width].to_vec();
    pass.by_hand(x, answer, move |gradient| {
        let Gates { input, hidden } = weights.backward(gradient, steps);
        let sum = |gates: &Tensor<2>| exact(gates.clone()).sum_dim(0).reshape([gates.dims()[1]]);
        let biases = [(bias_input, sum(&input)), (bias_hidden, sum(&hidden))];
        let Weights { precision, input: weight, .. } = weights;
        let of = |x: Tensor<2>, gates: Tensor<2>| flat(exact(product(precision, x.transpose(), gates)));
        let parameters = [(of_input, of(inputs, input.clone())), (of_hidden, of(Tensor::cat(before, 0), hidden))];
        let inputs = exact(product(precision, input, weight.transpose()));
        (inputs, parameters.into_iter().chain(biases).collect())
    })
}

fn flat(matrix: Tensor<2>) -> Tensor<1> {
    let [rows, columns] = matrix.dims();
    matrix.reshape([rows * columns])
}

/// The parameters of a layer, off the tape.
struct Weights {
    precision: Precision,
    input: Tensor<2>,
    hidden: Tensor<2>,
    biases: [Tensor<2>; 2],
}

/// What the gates get from the inputs and from the state before, or the gradients of these.
struct Gates {
    input: Tensor<2>,
    hidden: Tensor<2>,
}

/// What the backward pass needs of one time.
enum Step {
    Lstm(Box<lstm::Step>),
    Gru(Box<gru::Step>),
}

impl Weights {
    /// The states [rows, hidden] before the first time and after each, and what the backward pass needs where there is one.
    fn forward(&self, cell: Cell, inputs: Tensor<2>, width: usize, taped: bool) -> (Vec<Tensor<2>>, Vec<Step>) {
        let rows = inputs.dims()[0] / width;
        let inputs = product(self.precision, inputs, self.input.clone());
        let start = Tensor::zeros([rows, self.hidden.dims()[0]], &inputs.device());
        let (mut memory, mut states, mut steps) = (start.clone(), vec![start.clone()], Vec::with_capacity(width));
        let mut state = start;
        for time in 0..width {
            let [of_input, of_hidden] = self.biases.clone();
            let gates = Gates {
                input: exact(inputs.clone().narrow(0, time * rows, rows)) + of_input,
                hidden: exact(product(self.precision, state.clone(), self.hidden.clone())) + of_hidden,
            };
            let step;
            (state, step) = match cell {
                Cell::Lstm => {
                    let (state, next, step) = lstm::forward(gates, memory);
                    memory = next;
                    (state, Step::Lstm(Box::new(step)))
                }
                Cell::Gru => {
                    let (state, step) = gru::forward(gates, state);
                    (state, Step::Gru(Box::new(step)))
                }
            };
            states.push(state.clone());
            if taped {
                steps.push(step);
            }
        }
        (states, steps)
    }

    /// The gradients of the gates at all times, [width·rows, gates·hidden] in the number format of the products.
    fn backward(&self, gradient: Tensor<2>, steps: Vec<Step>) -> Gates {
        let width = steps.len();
        let [all, hidden] = gradient.dims();
        let rows = all / width;
        let mut of_state = Tensor::zeros([rows, hidden], &gradient.device());
        let mut of_memory = of_state.clone();
        let (mut inputs, mut hiddens) = (Vec::with_capacity(width), Vec::with_capacity(width));
        for (time, step) in steps.into_iter().enumerate().rev() {
            let of_answer = gradient.clone().narrow(0, time * rows, rows) + of_state;
            let (gates, direct) = match step {
                Step::Lstm(step) => {
                    let (gates, before) = lstm::backward(*step, of_answer, of_memory);
                    of_memory = before;
                    (gates, None)
                }
                Step::Gru(step) => {
                    let (gates, direct) = gru::backward(*step, of_answer);
                    (gates, Some(direct))
                }
            };
            let [input, hidden] = [gates.input, gates.hidden].map(|gates| self.precision.round(gates));
            let through = exact(product(self.precision, hidden.clone(), self.hidden.clone().transpose()));
            of_state = match direct {
                Some(direct) => direct + through,
                None => through,
            };
            inputs.push(input);
            hiddens.push(hidden);
        }
        let [input, hidden] = [inputs, hiddens].map(|mut gates| {
            gates.reverse();
            Tensor::cat(gates, 0)
        });
        Gates { input, hidden }
    }
}

/// Splits [rows, parts·hidden] into its parts.
fn parts<const N: usize>(gates: &Tensor<2>) -> [Tensor<2>; N] {
    let hidden = gates.dims()[1] / N;
    std::array::from_fn(|part| gates.clone().narrow(1, part * hidden, hidden))
}
