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

use super::number::{real, single};
use super::parameters::Layout;
use burn::tensor::{Device, Tensor, TensorData, TensorReadError};
use rayon::prelude::*;

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
    pub fn on_host(rule: Rule, decay: Decay, layouts: &[Layout]) -> Self {
        let [first, second] = rule.remembers();
        let zeros = |wanted: bool, layout: &Layout| vec![0.0; if wanted { layout.len() } else { 0 }];
        let memory = layouts.iter().map(|layout| [zeros(first, layout), zeros(second, layout)]).collect();
        Self { rule, decays: decays(decay, layouts), step: 0, memory: Memory::Host(memory) }
    }

    /// An optimiser that updates by tensor operations: for every other device.
    pub fn on_device(rule: Rule, decay: Decay, layouts: &[Layout], device: &Device) -> Self {
        let wanted = rule.remembers();
        let zeros =
            |layout: &Layout| wanted.map(|wanted| Tensor::zeros([if wanted { layout.len() } else { 1 }], device));
        let memory = layouts.iter().map(zeros).collect();
        Self { rule, decays: decays(decay, layouts), step: 0, memory: Memory::Device(memory) }
    }

    /// Updates every parameter by its gradient. Both lists have the order that the optimiser was made with.
    pub fn step(
        &mut self,
        parameters: &mut [Tensor<1>],
        gradients: Vec<Tensor<1>>,
        learning_rate: f64,
    ) -> Result<(), TensorReadError> {
        self.step += 1;
        let update = Update::new(self.rule, self.step, learning_rate);
        match &mut self.memory {
            Memory::Host(memory) => {
                for (((parameter, gradient), memory), decay) in
                    parameters.iter_mut().zip(gradients).zip(memory).zip(&self.decays)
                {
                    let device = parameter.device();
                    let gradient = decay.before(parameter, gradient, learning_rate);
                    let mut data = take(parameter).try_into_data()?;
                    let gradient = gradient.try_into_data()?;
                    update.host(data.as_mut_slice()?, gradient.as_slice()?, memory);
                    *parameter = Tensor::from_data(data, &device);
                }
            }
            Memory::Device(memory) => {
                for (((parameter, gradient), memory), decay) in
                    parameters.iter_mut().zip(gradients).zip(memory).zip(&self.decays)
                {
                    let gradient = decay.before(parameter, gradient, learning_rate);
                    *parameter = update.device(take(parameter), gradient, memory);
                }
            }
        }
        Ok(())
    }
}

fn decays(decay: Decay, layouts: &[Layout]) -> Vec<Decay> {
    layouts.iter().map(|layout| if layout.shape.len() > 1 { decay } else { Decay::None }).collect()
}

impl Decay {
    /// Shrinks the parameter, or gives the gradient that will.
    fn before(self, parameter: &mut Tensor<1>, gradient: Tensor<1>, rate: f64) -> Tensor<1> {
        match self {
            Self::None => gradient,
            Self::Coupled(decay) => gradient + parameter.clone() * decay,
            Self::Decoupled(decay) => {
                *parameter = take(parameter) * (1.0 - rate * decay);
                gradient
            }
        }
    }
}

/// Takes a tensor out of its place, so that nobody else holds its memory and it can be changed there.
fn take(tensor: &mut Tensor<1>) -> Tensor<1> {
    let empty = Tensor::from_data(TensorData::from([0.0_f32; 1]), &tensor.device());
    std::mem::replace(tensor, empty)
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

    fn device(&self, p: Tensor<1>, g: Tensor<1>, [first, second]: &mut [Tensor<1>; 2]) -> Tensor<1> {
        match *self {
            Self::Sgd { rate } => p - g * rate,
            Self::Momentum { rate, momentum } => {
                let b = take(first) * momentum + g;
                *first = b.clone();
                p - b * rate
            }
            Self::Adam { rate, keep1, beta2, keep2, root, epsilon } => {
                let m = take(first);
                let m = m.clone() + (g.clone() - m) * keep1;
                let v = take(second) * beta2 + g.clone() * g * keep2;
                *first = m.clone();
                *second = v.clone();
                p - m / (v.sqrt() / root + epsilon) * rate
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
