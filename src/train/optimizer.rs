//! Optimisers with PyTorch's definitions, one parameter after the other.
//!
//! Knows parameters as flat tensors and nothing of models. On the CPU one pass over each parameter does the whole update, in
//! place; on other devices the same formulas run as tensor operations.
//!
//! - `sgd`: p ← p − lr·g.
//! - `momentum`: b ← μ·b + g, p ← p − lr·b; b starts at 0; no dampening, no Nesterov. (`torch.optim.SGD(momentum=μ)`)
//! - `adamw`: `adam` after p ← p − lr·λ·p (Loshchilov and Hutter, arXiv:1711.05101; `torch.optim.AdamW`).
//! - `adam`: m ← m + (1−β₁)(g−m), v ← β₂·v + (1−β₂)g², p ← p − lr/(1−β₁ᵗ) · m / (√v/√(1−β₂ᵗ) + ε).
//!   (`torch.optim.Adam`; Kingma and Ba, arXiv:1412.6980, with ε outside of the root)

use super::native::kernels;
use super::number::{real, single};
use super::parameters::ParamSpec;
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
        /// β₁, how slowly the mean of gradients forgets.
        beta1: f64,
        /// β₂, how slowly the mean of their squares forgets.
        beta2: f64,
        /// ε, added to the root.
        epsilon: f64,
    },
}

/// How parameters shrink beside what their gradients ask for. Only matrices and kernels do: biases, gains and other vectors have no decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decay {
    /// They do not.
    None,
    /// λ·p is added to the gradient (`weight_decay` of `torch.optim.SGD` and `Adam`).
    Coupled(f64),
    /// p shrinks by the share lr·λ before the update (`weight_decay` of `torch.optim.AdamW`).
    Decoupled(f64),
}

/// A rule and what it remembers of each parameter.
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
    /// An optimiser that updates in the host's memory: for the CPU.
    pub fn on_host(rule: Rule, decay: Decay, param_specs: &[ParamSpec]) -> Self {
        let [first, second] = rule.remembers();
        let zeros = |wanted: bool, param_spec: &ParamSpec| vec![0.0; if wanted { param_spec.len() } else { 0 }];
        let memory =
            param_specs.iter().map(|param_spec| [zeros(first, param_spec), zeros(second, param_spec)]).collect();
        Self { rule, decays: decays(decay, param_specs), step: 0, memory: Memory::Host(memory) }
    }

    /// An optimiser that updates by tensor operations: for every other device.
    pub fn on_device(rule: Rule, decay: Decay, param_specs: &[ParamSpec], device: &Device) -> Self {
        let wanted = rule.remembers();
        let zeros = |param_spec: &ParamSpec| {
            wanted.map(|wanted| Tensor::zeros([if wanted { param_spec.len() } else { 1 }], device))
        };
        let memory = param_specs.iter().map(zeros).collect();
        Self { rule, decays: decays(decay, param_specs), step: 0, memory: Memory::Device(memory) }
    }

    /// Updates every parameter by its gradient. Parameters have the order that the optimiser was made with; gradients come in parts, those of some parameters and then those of others.
    pub fn step(
        &mut self,
        parameters: &mut Vec<Tensor<1>>,
        parts: impl Iterator<Item = (Range<usize>, Vec<Tensor<1>>)>,
        learning_rate: f64,
    ) -> Result<(), TensorReadError> {
        self.step += 1;
        let update = Update::new(self.rule, self.step, learning_rate);
        for (which, gradients) in parts {
            // Nobody else may hold a tensor that is to be changed where it is.
            let mut some = parameters.drain(which.clone()).collect();
            assert_eq!(gradients.len(), which.len(), "a gradient for each parameter of a part");
            self.part(&update, (&mut some, gradients), which.clone(), learning_rate)?;
            parameters.splice(which.start..which.start, some);
        }
        Ok(())
    }

    fn part(
        &mut self,
        update: &Update,
        (parameters, gradients): (&mut Vec<Tensor<1>>, Vec<Tensor<1>>),
        which: Range<usize>,
        learning_rate: f64,
    ) -> Result<(), TensorReadError> {
        let old = std::mem::take(parameters).into_iter().zip(gradients).zip(&self.decays[which.clone()]);
        match &mut self.memory {
            Memory::Host(memory) => {
                for (((parameter, gradient), decay), memory) in old.zip(&mut memory[which]) {
                    let device = parameter.device();
                    let (parameter, gradient) = decay.before(parameter, gradient, learning_rate);
                    let mut data = parameter.try_into_data()?;
                    let gradient = gradient.try_into_data()?;
                    update.host(data.as_mut_slice()?, gradient.as_slice()?, memory);
                    parameters.push(Tensor::from_data(data, &device));
                }
            }
            Memory::Device(memory) => {
                let old: Vec<_> = old.zip(memory.drain(which.clone())).collect();
                let old = match update.by_kernel(old, learning_rate) {
                    Ok((new, after)) => {
                        *parameters = new;
                        memory.splice(which.start..which.start, after);
                        return Ok(());
                    }
                    Err(old) => old,
                };
                let mut all = Vec::with_capacity(old.len());
                for (((parameter, gradient), decay), before) in old {
                    let (parameter, gradient) = decay.before(parameter, gradient, learning_rate);
                    let (parameter, after) = update.device(parameter, gradient, before);
                    parameters.push(parameter);
                    all.push(after);
                }
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
    /// Shrinks the parameter, or gives the gradient that will.
    fn before(self, parameter: Tensor<1>, gradient: Tensor<1>, rate: f64) -> (Tensor<1>, Tensor<1>) {
        match self {
            Self::None => (parameter, gradient),
            Self::Coupled(decay) => (parameter.clone(), gradient + parameter * decay),
            Self::Decoupled(decay) => (parameter * (1.0 - rate * decay), gradient),
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

/// A parameter and its gradient, its decay, and what is remembered of it.
type Old<'a> = (((Tensor<1>, Tensor<1>), &'a Decay), [Tensor<1>; 2]);

/// One step's constants, computed in double precision.
enum Update {
    Sgd { rate: f64 },
    Momentum { rate: f64, momentum: f64 },
    Adam { rate: f64, keep1: f64, beta2: f64, keep2: f64, root: f64, epsilon: f64 },
}

impl Update {
    fn new(rule: Rule, step: u64, rate: f64) -> Self {
        match rule {
            Rule::Sgd => Self::Sgd { rate },
            Rule::Momentum { momentum } => Self::Momentum { rate, momentum },
            Rule::Adam { beta1, beta2, epsilon } => Self::Adam {
                rate: rate / (1.0 - beta1.powf(real(step))),
                keep1: 1.0 - beta1,
                beta2,
                keep2: 1.0 - beta2,
                root: (1.0 - beta2.powf(real(step))).sqrt(),
                epsilon,
            },
        }
    }

    fn host(&self, p: &mut [f32], g: &[f32], [first, second]: &mut [Vec<f32>; 2]) {
        match *self {
            Self::Sgd { rate } => {
                let rate = single(rate);
                chunks(p).zip(g.par_chunks(CHUNK)).for_each(|(p, g)| {
                    p.iter_mut().zip(g).for_each(|(p, g)| *p -= rate * g);
                });
            }
            Self::Momentum { rate, momentum } => {
                let (rate, momentum) = (single(rate), single(momentum));
                chunks(p).zip(g.par_chunks(CHUNK)).zip(chunks(first)).for_each(|((p, g), b)| {
                    for ((p, g), b) in p.iter_mut().zip(g).zip(b) {
                        *b = momentum * *b + g;
                        *p -= rate * *b;
                    }
                });
            }
            Self::Adam { rate, keep1, beta2, keep2, root, epsilon } => {
                let [rate, keep1, beta2, keep2, root, epsilon] = [rate, keep1, beta2, keep2, root, epsilon].map(single);
                chunks(p).zip(g.par_chunks(CHUNK)).zip(chunks(first)).zip(chunks(second)).for_each(
                    |(((p, g), m), v)| {
                        for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
                            *m += keep1 * (g - *m);
                            *v = beta2 * *v + keep2 * g * g;
                            *p -= rate * (*m / (v.sqrt() / root + epsilon));
                        }
                    },
                );
            }
        }
    }

    /// All parameters at once by a kernel of ours.
    fn by_kernel<'a>(&self, old: Vec<Old<'a>>, learning_rate: f64) -> Result<kernels::Updated, Vec<Old<'a>>> {
        let step = match *self {
            Self::Sgd { rate } => kernels::Step::Sgd { rate },
            Self::Momentum { rate, momentum } => kernels::Step::Momentum { rate, momentum },
            Self::Adam { rate, keep1, beta2, keep2, root, epsilon } => {
                kernels::Step::Adam { rate, keep1, beta2, keep2, root, epsilon }
            }
        };
        let kept: Vec<&'a Decay> = old.iter().map(|((_, decay), _)| *decay).collect();
        let decays: Vec<kernels::Decay> = kept
            .iter()
            .map(|decay| match decay {
                Decay::None => kernels::Decay::None,
                Decay::Coupled(decay) => kernels::Decay::Add(*decay),
                Decay::Decoupled(decay) => kernels::Decay::Shrink(1.0 - learning_rate * decay),
            })
            .collect();
        let (both, memory): (Vec<_>, Vec<_>) = old.into_iter().map(|((both, _), memory)| (both, memory)).unzip();
        let (parameters, gradients) = both.into_iter().unzip();
        kernels::update(step, &decays, 1.0, kernels::State { parameters, gradients, memory }).map_err(|state| {
            let both = state.parameters.into_iter().zip(state.gradients);
            both.zip(kept).zip(state.memory).collect()
        })
    }

    fn device(&self, p: Tensor<1>, g: Tensor<1>, [m, v]: [Tensor<1>; 2]) -> (Tensor<1>, [Tensor<1>; 2]) {
        match *self {
            Self::Sgd { rate } => (p - g * rate, [m, v]),
            Self::Momentum { rate, momentum } => {
                let b = m * momentum + g;
                (p - b.clone() * rate, [b, v])
            }
            Self::Adam { rate, keep1, beta2, keep2, root, epsilon } => {
                let m = m.clone() + (g.clone() - m) * keep1;
                let v = v * beta2 + g.clone() * g * keep2;
                (p - m.clone() / (v.clone().sqrt() / root + epsilon) * rate, [m, v])
            }
        }
    }
}

/// Numbers that one thread updates at a time: four arrays of them fit into a second-level cache. Elements do not meet, so that the result is the same for every number of threads.
const CHUNK: usize = 32_768;

fn chunks(values: &mut [f32]) -> rayon::slice::ChunksMut<'_, f32> {
    values.par_chunks_mut(CHUNK)
}

#[cfg(test)]
mod tests;
