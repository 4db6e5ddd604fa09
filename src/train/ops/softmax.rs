//! The softmax of attention, with its mask and dropout.

use super::{computed, dropped};
use crate::native::kernels;
use crate::precision::{Precision, exact};
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Int, Tensor};

pub use kernels::AttentionConfig;

/// Added to the scores of masked tokens: their weight becomes 0, and the value is finite.
const NEVER: f64 = -1.0e30;

/// The saved state for the backward pass.
pub enum Softmax {
    /// The scores, and what our kernel saved.
    Scores(Box<(Tensor<4>, Tensor<2>)>),
    /// The attention weights before dropout, in float32.
    Weights(Box<Tensor<4>>),
}

/// Computes attention weights after dropout, in the number format, from scores [rows, heads, width, width]. The softmax is in float32.
pub fn attention_softmax(scores: Tensor<4>, config: AttentionConfig, precision: Precision) -> (Tensor<4>, Softmax) {
    if let Some((weights, rest)) = kernels::attention_softmax(scores.clone(), config, precision.format()) {
        return (weights, Softmax::Scores(Box::new((scores, rest))));
    }
    let (width, scores) = (scores.dims()[3], exact(scores));
    let scores = if config.causal { scores.clone() + causal_mask(width, &scores.device()) } else { scores };
    let all = softmax(scores, 3);
    (precision.round(dropped(all.clone(), config.key, config.share)), Softmax::Weights(Box::new(all)))
}

impl Softmax {
    /// The gradient of the scores from that of the attention weights.
    pub fn backward(self, gradient: Tensor<4>, config: AttentionConfig, precision: Precision) -> Tensor<4> {
        match self {
            Self::Scores(given) => {
                let (scores, rest) = *given;
                computed(kernels::attention_softmax_back(scores, gradient, &rest, config))
            }
            Self::Weights(all) => {
                let all = *all;
                let slope = dropped(exact(gradient), config.key, config.share);
                let along = (slope.clone() * all.clone()).sum_dim(3);
                precision.round(all * (slope - along))
            }
        }
    }
}

/// The additive mask that hides later tokens: [1, 1, width, width].
fn causal_mask(width: usize, device: &Device) -> Tensor<4> {
    let end = i64::try_from(width).unwrap_or(i64::MAX);
    let places = Tensor::<1, Int>::arange(0..end, device);
    let after = places.clone().unsqueeze_dim::<2>(0) - places.unsqueeze_dim::<2>(1);
    (after.clamp(0, 1).float() * NEVER).unsqueeze()
}
