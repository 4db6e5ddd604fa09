//! The time loop of a recurrent layer: one operation on a CUDA device, otherwise one product per time step.

mod gru;
mod lstm;

use super::computed;
use super::product::{Product, product};
use crate::native::kernels::{self, Recurrence};
use crate::precision::{Precision, exact};
use burn::tensor::Tensor;

pub use kernels::Unit;

/// The parameters of a layer, off the tape.
pub struct Weights {
    /// The number format of the products.
    pub precision: Precision,
    /// [inputs, gates·hidden].
    pub input: Tensor<2>,
    /// [hidden, gates·hidden].
    pub hidden: Tensor<2>,
    /// The biases of the products with inputs and states, [1, gates·hidden] in float32.
    pub biases: [Tensor<2>; 2],
}

/// The contributions of the input and of the previous state to the gates, or their gradients.
pub struct Gates {
    /// From the input.
    pub input: Tensor<2>,
    /// From the previous state.
    pub hidden: Tensor<2>,
}

/// The saved state of one time step for the backward pass.
pub enum Step {
    Lstm(Box<lstm::Step>),
    Gru(Box<gru::Step>),
}

/// The saved state of all time steps for the backward pass.
pub enum SavedStates {
    /// For each time step the state before it, and the rest; empty if there is no backward pass.
    Steps(Vec<Tensor<2>>, Vec<Step>),
    /// The saved state of a loop that ran in kernels as a whole.
    Whole(Box<kernels::SavedStates>),
}

impl Weights {
    /// The states after each time step, [width·rows, hidden], and if `taped` the saved state for the backward pass.
    pub fn forward(&self, unit: Unit, inputs: Tensor<2>, width: usize, taped: bool) -> (Tensor<2>, SavedStates) {
        let inputs = product(inputs, self.input.clone(), Product::of(self.precision));
        let how = Recurrence { unit, width, tf32: self.precision == Precision::Fp32, taped };
        if let Some(kernel) = kernels::recurrent(how, &inputs, &self.hidden, &self.biases) {
            let (states, course) = kernel(inputs);
            let none = SavedStates::Steps(Vec::new(), Vec::new());
            return (states, course.map_or(none, |course| SavedStates::Whole(Box::new(course))));
        }
        let (mut states, steps) = self.forward_each(unit, inputs, width, taped);
        let answer = Tensor::cat(states[1..].to_vec(), 0);
        states.pop();
        (answer, SavedStates::Steps(states, steps))
    }

    /// The gradients of the gates at all time steps, [width·rows, gates·hidden], and the states before each,
    /// [width·rows, hidden], both in the number format of the products.
    pub fn backward(&self, gradient: Tensor<2>, course: SavedStates) -> (Gates, Tensor<2>) {
        match course {
            SavedStates::Steps(before, steps) => {
                (self.backward_each(gradient, steps), self.precision.round(Tensor::cat(before, 0)))
            }
            SavedStates::Whole(course) => {
                let before = course.before.clone();
                let [input, hidden] = computed(kernels::recurrent_back(&exact(gradient), &self.hidden, *course));
                (Gates { input, hidden }, before)
            }
        }
    }

    /// The states [rows, hidden] before the first time step and after each, and if `taped` the saved steps. `inputs`
    /// are the contributions of the input to the gates.
    fn forward_each(&self, unit: Unit, inputs: Tensor<2>, width: usize, taped: bool) -> (Vec<Tensor<2>>, Vec<Step>) {
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
            (state, step) = match unit {
                Unit::Lstm => {
                    let (state, next, step) = lstm::forward(gates, memory);
                    memory = next;
                    (state, Step::Lstm(Box::new(step)))
                }
                Unit::Gru => {
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
fn parts<const N: usize>(gates: &Tensor<2>) -> [Tensor<2>; N] {
    let hidden = gates.dims()[1] / N;
    std::array::from_fn(|part| gates.clone().narrow(1, part * hidden, hidden))
}
