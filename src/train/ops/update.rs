//! The update of many parameters by an optimiser.

use crate::native::kernels;
use burn::tensor::Tensor;

pub use kernels::{Decay, State, Step, Updated};

/// Updates every parameter by its gradient, in place if a tensor's memory is not shared.
pub fn update(step: Step, decays: &[Decay], state: State) -> Updated {
    if let Some(kernel) = kernels::update(step, decays, 1.0, &state) {
        return kernel(state);
    }
    let State { parameters, gradients, memory } = state;
    let old = parameters.into_iter().zip(gradients).zip(decays).zip(memory);
    old.map(|(((parameter, gradient), decay), memory)| {
        let (parameter, gradient) = decayed(*decay, parameter, gradient);
        reference(step, parameter, gradient, memory)
    })
    .unzip()
}

/// Applies weight decay to the parameter or to the gradient.
pub fn decayed(decay: Decay, parameter: Tensor<1>, gradient: Tensor<1>) -> (Tensor<1>, Tensor<1>) {
    match decay {
        Decay::None => (parameter, gradient),
        Decay::Add(decay) => (parameter.clone(), gradient + parameter * decay),
        Decay::Shrink(factor) => (parameter * factor, gradient),
    }
}

fn reference(step: Step, p: Tensor<1>, g: Tensor<1>, [m, v]: [Tensor<1>; 2]) -> (Tensor<1>, [Tensor<1>; 2]) {
    match step {
        Step::Sgd { rate } => (p - g * rate, [m, v]),
        Step::Momentum { rate, momentum } => {
            let b = m * momentum + g;
            (p - b.clone() * rate, [b, v])
        }
        Step::Adam { rate, keep1, beta2, keep2, root, epsilon } => {
            let m = m.clone() + (g.clone() - m) * keep1;
            let v = v * beta2 + g.clone() * g * keep2;
            (p - m.clone() / (v.clone().sqrt() / root + epsilon) * rate, [m, v])
        }
    }
}
