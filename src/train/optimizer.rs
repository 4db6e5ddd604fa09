//! Optimisers with PyTorch's definitions, one parameter after the other.
//!
//! Knows parameters as flat tensors and nothing of models. On the CPU one pass over each parameter does the whole
//! update, in place. On other devices the same formulas run as tensor operations.
//!
//! - `sgd`: p ← p − lr·g.
//! - `momentum`: b ← μ·b + g, p ← p − lr·b; b starts at 0; no dampening, no Nesterov. (`torch.optim.SGD(momentum=μ)`)
//! - `adamw`: `adam` after p ← p − lr·λ·p (Loshchilov and Hutter, arXiv:1711.05101; `torch.optim.AdamW`).
//! - `adam`: m ← m + (1−β₁)(g−m), v ← β₂·v + (1−β₂)g², p ← p − lr/(1−β₁ᵗ) · m / (√v/√(1−β₂ᵗ) + ε).
//!   (`torch.optim.Adam`; Kingma and Ba, arXiv:1412.6980, with ε outside of the root)

pub mod gradient;
pub mod schedule;

use crate::number::{real, single};
use crate::ops::{self, State, Step};
use crate::parameters::ParamSpec;
use burn::tensor::{Device, Tensor, TensorReadError};
use rayon::prelude::*;
use std::ops::Range;

/// An update rule and its constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Gradient descent.
    Sgd,
    /// Gradient descent with momentum.
    Momentum {
        /// μ.
        momentum: f64,
    },
    /// Adam.
    Adam {
        /// β₁, the decay rate of the mean of gradients.
        beta1: f64,
        /// β₂, the decay rate of the mean of squared gradients.
        beta2: f64,
        /// ε, added to the root.
        epsilon: f64,
    },
}

/// Weight decay. It applies to matrices and kernels only: biases, gains and other vectors have none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decay {
    /// No weight decay.
    None,
    /// λ·p is added to the gradient (`weight_decay` of `torch.optim.SGD` and `Adam`).
    Coupled(f64),
    /// p shrinks by the factor 1 − lr·λ before the update (`weight_decay` of `torch.optim.AdamW`).
    Decoupled(f64),
}

/// A rule and its state for each parameter.
pub struct Optimizer {
    rule: Rule,
    decays: Vec<Decay>,
    step: u64,
    memory: Memory,
}

/// Momentum's b, or Adam's m and v, one entry for each parameter.
enum Memory {
    Host(Vec<[Vec<f32>; 2]>),
    Device(Vec<[Tensor<1>; 2]>),
}

impl Optimizer {
    /// An optimiser for the CPU: it updates in the host's memory.
    pub fn on_host(rule: Rule, decay: Decay, param_specs: &[ParamSpec]) -> Self {
        let [first, second] = rule.remembers();
        let zeros = |wanted: bool, param_spec: &ParamSpec| vec![0.0; if wanted { param_spec.len() } else { 0 }];
        let memory =
            param_specs.iter().map(|param_spec| [zeros(first, param_spec), zeros(second, param_spec)]).collect();
        Self { rule, decays: decays(decay, param_specs), step: 0, memory: Memory::Host(memory) }
    }

    /// An optimiser for other devices: it updates by tensor operations.
    pub fn on_device(rule: Rule, decay: Decay, param_specs: &[ParamSpec], device: &Device) -> Self {
        let wanted = rule.remembers();
        let zeros = |param_spec: &ParamSpec| {
            wanted.map(|wanted| Tensor::zeros([if wanted { param_spec.len() } else { 1 }], device))
        };
        let memory = param_specs.iter().map(zeros).collect();
        Self { rule, decays: decays(decay, param_specs), step: 0, memory: Memory::Device(memory) }
    }

    /// Updates every parameter by its gradient. Parameters have the order given at construction. Gradients come in
    /// parts, one range of parameters after the other.
    pub fn step(
        &mut self,
        parameters: &mut Vec<Tensor<1>>,
        parts: impl Iterator<Item = (Range<usize>, Vec<Tensor<1>>)>,
        learning_rate: f64,
    ) -> Result<(), TensorReadError> {
        self.step += 1;
        let update = update_of(self.rule, self.step, learning_rate);
        for (which, gradients) in parts {
            // An update in place needs the only reference to the tensor.
            let mut some = parameters.drain(which.clone()).collect();
            assert_eq!(gradients.len(), which.len(), "a gradient for each parameter of a part");
            self.part(update, (&mut some, gradients), which.clone(), learning_rate)?;
            parameters.splice(which.start..which.start, some);
        }
        Ok(())
    }

    fn part(
        &mut self,
        update: Step,
        (parameters, gradients): (&mut Vec<Tensor<1>>, Vec<Tensor<1>>),
        which: Range<usize>,
        learning_rate: f64,
    ) -> Result<(), TensorReadError> {
        let old = std::mem::take(parameters).into_iter().zip(gradients).zip(&self.decays[which.clone()]);
        match &mut self.memory {
            Memory::Host(memory) => {
                for (((parameter, gradient), decay), memory) in old.zip(&mut memory[which]) {
                    let device = parameter.device();
                    let (parameter, gradient) = ops::decayed(decay.at(learning_rate), parameter, gradient);
                    let mut data = parameter.try_into_data()?;
                    let gradient = gradient.try_into_data()?;
                    host(update, data.as_mut_slice()?, gradient.as_slice()?, memory);
                    parameters.push(Tensor::from_data(data, &device));
                }
            }
            Memory::Device(memory) => {
                let (given, decays): (Vec<_>, Vec<ops::Decay>) =
                    old.map(|(given, decay)| (given, decay.at(learning_rate))).unzip();
                let (old, gradients) = given.into_iter().unzip();
                let state = State { parameters: old, gradients, memory: memory.drain(which.clone()).collect() };
                let (new, all) = ops::update(update, &decays, state);
                *parameters = new;
                memory.splice(which.start..which.start, all);
            }
        }
        Ok(())
    }
}

fn decays(decay: Decay, param_specs: &[ParamSpec]) -> Vec<Decay> {
    param_specs.iter().map(|param_spec| if param_spec.shape.len() > 1 { decay } else { Decay::None }).collect()
}

impl Decay {
    /// Returns the operation on a parameter or its gradient before the update.
    fn at(self, rate: f64) -> ops::Decay {
        match self {
            Self::None => ops::Decay::None,
            Self::Coupled(decay) => ops::Decay::Add(decay),
            Self::Decoupled(decay) => ops::Decay::Shrink(1.0 - rate * decay),
        }
    }
}

impl Rule {
    fn remembers(self) -> [bool; 2] {
        match self {
            Self::Sgd => [false, false],
            Self::Momentum { .. } => [true, false],
            Self::Adam { .. } => [true, true],
        }
    }
}

/// Returns the update of one step with its constants, computed in double precision.
fn update_of(rule: Rule, step: u64, rate: f64) -> Step {
    match rule {
        Rule::Sgd => Step::Sgd { rate },
        Rule::Momentum { momentum } => Step::Momentum { rate, momentum },
        Rule::Adam { beta1, beta2, epsilon } => Step::Adam {
            rate: rate / (1.0 - beta1.powf(real(step))),
            keep1: 1.0 - beta1,
            beta2,
            keep2: 1.0 - beta2,
            root: (1.0 - beta2.powf(real(step))).sqrt(),
            epsilon,
        },
    }
}

/// Updates a parameter in the host's memory.
fn host(step: Step, p: &mut [f32], g: &[f32], [first, second]: &mut [Vec<f32>; 2]) {
    match step {
        Step::Sgd { rate } => {
            let rate = single(rate);
            chunks(p).zip(g.par_chunks(CHUNK)).for_each(|(p, g)| {
                p.iter_mut().zip(g).for_each(|(p, g)| *p -= rate * g);
            });
        }
        Step::Momentum { rate, momentum } => {
            let (rate, momentum) = (single(rate), single(momentum));
            chunks(p).zip(g.par_chunks(CHUNK)).zip(chunks(first)).for_each(|((p, g), b)| {
                for ((p, g), b) in p.iter_mut().zip(g).zip(b) {
                    *b = momentum * *b + g;
                    *p -= rate * *b;
                }
            });
        }
        Step::Adam { rate, keep1, beta2, keep2, root, epsilon } => {
            let [rate, keep1, beta2, keep2, root, epsilon] = [rate, keep1, beta2, keep2, root, epsilon].map(single);
            chunks(p).zip(g.par_chunks(CHUNK)).zip(chunks(first)).zip(chunks(second)).for_each(|(((p, g), m), v)| {
                for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
                    *m += keep1 * (g - *m);
                    *v = beta2 * *v + keep2 * g * g;
                    *p -= rate * (*m / (v.sqrt() / root + epsilon));
                }
            });
        }
    }
}

/// Values that one thread updates at a time: four arrays of them fit into a second-level cache. Elements are
/// independent, so the result is the same for every number of threads.
const CHUNK: usize = 32_768;

fn chunks(values: &mut [f32]) -> rayon::slice::ChunksMut<'_, f32> {
    values.par_chunks_mut(CHUNK)
}

#[cfg(test)]
mod tests;
