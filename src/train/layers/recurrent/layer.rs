//! One layer as a product for the inputs of all times and one for each time; its backward pass is written by hand, off the tape, in as many products. On the tape each time's slice of
//! the inputs would leave a gradient of the size of all of them, and each time's product a gradient of the size of the weights. On a CUDA device each of both loops over time is one
//! operation (`native`).

#[cfg(test)]
mod tests;

use super::super::product::{Product, product};
use super::{Cell, gru, lstm};
use crate::forward_context::ForwardContext;
use crate::precision::{Precision, exact};
use burn::tensor::Tensor;

use crate::native::kernels as native;

/// Layer `number` of a stack: x [width·rows, inputs], all rows of the first time first, to [width·rows, hidden] in the same order, in float32. Every row starts from a state of
/// zeros. Products are in the number format of the context, gates and states in float32.
pub(super) fn layer(
    ctx: &ForwardContext<'_>,
    name: &str,
    number: usize,
    cell: Cell,
    x: Tensor<2>,
    width: usize,
) -> Tensor<2> {
    let called = |part: &str| format!("{name}.{part}_l{number}");
    let [of_input, of_hidden] = ["weight_ih", "weight_hh"].map(|part| ctx.parameter::<2>(&called(part)));
    let biases = ["bias_ih", "bias_hh"].map(|part| ctx.parameter::<1>(&called(part)));
    let weights = Weights {
        precision: ctx.precision,
        input: ctx.round(ctx.off_tape(of_input.clone())),
        hidden: ctx.round(ctx.off_tape(of_hidden.clone())),
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

/// The parameters of a layer, off the tape.
struct Weights {
    precision: Precision,
    input: Tensor<2>,
    hidden: Tensor<2>,
    biases: [Tensor<2>; 2],
}

/// What the gates get from the inputs and from the state before, or the gradients of these.
pub(super) struct Gates {
    pub(super) input: Tensor<2>,
    pub(super) hidden: Tensor<2>,
}

/// What the backward pass needs of one time.
enum Step {
    Lstm(Box<lstm::Step>),
    Gru(Box<gru::Step>),
}

/// What the backward pass needs of all times.
enum SavedStates {
    /// The states before each, and the rest; nothing where there is no backward.
    Steps(Vec<Tensor<2>>, Vec<Step>),
    /// Of a loop that ran as a whole.
    Whole(Box<native::SavedStates>),
}

impl Weights {
    /// The states after each time, [width·rows, hidden], and what the backward pass needs where there is one.
    fn forward(&self, cell: Cell, inputs: Tensor<2>, width: usize, taped: bool) -> (Tensor<2>, SavedStates) {
        let inputs = product(inputs, self.input.clone(), Product::of(self.precision));
        let inputs = {
            let how = native::Recurrence { unit: cell.unit(), width, tf32: self.precision == Precision::Fp32, taped };
            match native::recurrent(how, inputs, &self.hidden, &self.biases) {
                Ok((states, course)) => {
                    let none = SavedStates::Steps(Vec::new(), Vec::new());
                    return (states, course.map_or(none, |course| SavedStates::Whole(Box::new(course))));
                }
                Err(inputs) => inputs,
            }
        };
        let (mut states, steps) = self.forward_each(cell, inputs, width, taped);
        let answer = Tensor::cat(states[1..].to_vec(), 0);
        states.pop();
        (answer, SavedStates::Steps(states, steps))
    }

    /// The gradients of the gates at all times, [width·rows, gates·hidden], and the states before, [width·rows, hidden], both in the number format of the products.
    fn backward(&self, gradient: Tensor<2>, course: SavedStates) -> (Gates, Tensor<2>) {
        match course {
            SavedStates::Steps(before, steps) => {
                (self.backward_each(gradient, steps), self.precision.round(Tensor::cat(before, 0)))
            }
            SavedStates::Whole(course) => {
                let before = course.before.clone();
                let [input, hidden] = native::recurrent_back(&exact(gradient), &self.hidden, *course);
                (Gates { input, hidden }, before)
            }
        }
    }

    /// The states [rows, hidden] before the first time and after each, from what the inputs give to the gates, and what the backward pass needs where there is one.
    fn forward_each(&self, cell: Cell, inputs: Tensor<2>, width: usize, taped: bool) -> (Vec<Tensor<2>>, Vec<Step>) {
        let rows = inputs.dims()[0] / width;
        let start = Tensor::zeros([rows, self.hidden.dims()[0]], &inputs.device());
        let (mut memory, mut states, mut steps) = (start.clone(), vec![start.clone()], Vec::with_capacity(width));
        let mut state = start;
        for time in 0..width {
            let [of_input, of_hidden] = self.biases.clone();
            let gates = Gates {
                input: exact(inputs.clone().narrow(0, time * rows, rows)) + of_input,
                hidden: product(state.clone(), self.hidden.clone(), Product::of(self.precision).exact()) + of_hidden,
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

    fn backward_each(&self, gradient: Tensor<2>, steps: Vec<Step>) -> Gates {
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
            let through =
                product(hidden.clone(), self.hidden.clone(), Product::of(self.precision).second_transposed().exact());
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
pub(super) fn parts<const N: usize>(gates: &Tensor<2>) -> [Tensor<2>; N] {
    let hidden = gates.dims()[1] / N;
    std::array::from_fn(|part| gates.clone().narrow(1, part * hidden, hidden))
}
