//! Self-attention between its projections (Vaswani et al. 2017, section 3.2), and its backward pass.
//!
//! It runs off the tape, where slices would create three gradients of the size of the whole input.

use super::softmax::{AttentionConfig, Softmax, attention_softmax};
use super::{Product, computed, product};
use crate::native::kernels;
use crate::number::real_len;
use crate::precision::Precision;
use burn::tensor::Tensor;

pub use kernels::AttentionShape;

/// The saved state for the backward pass.
pub struct SavedAttention {
    precision: Precision,
    by: By,
}

enum By {
    /// Kernels that do not store scores.
    Kernels(Box<kernels::SavedAttention>),
    Reference(Box<Stored>),
}

/// Scaled queries, keys, values, and attention weights after dropout, each [rows, heads, width, features or width].
struct Stored {
    reference: Reference,
    queries: Tensor<4>,
    keys: Tensor<4>,
    values: Tensor<4>,
    weights: Tensor<4>,
    softmax: Softmax,
}

/// Maps qkv [rows·width, 3·heads·features], the concatenated queries, keys and values, to [rows·width, heads·features].
///
/// Products are in the number format, the softmax in float32.
pub fn attention(
    qkv: Tensor<2>,
    shape: AttentionShape,
    config: AttentionConfig,
    precision: Precision,
) -> (Tensor<2>, SavedAttention) {
    if let Some((output, saved)) = kernels::fused_attention(&qkv, shape, config) {
        return (output, SavedAttention { precision, by: By::Kernels(Box::new(saved)) });
    }
    let (output, stored) = Reference { precision, shape, config }.forward(qkv);
    (output, SavedAttention { precision, by: By::Reference(Box::new(stored)) })
}

impl SavedAttention {
    /// The gradient of queries, keys and values from that of the output.
    pub fn backward(self, gradient: Tensor<2>) -> Tensor<2> {
        let gradient = self.precision.round(gradient);
        match self.by {
            By::Kernels(saved) => computed(saved.backward(&gradient)),
            By::Reference(stored) => stored.backward(gradient),
        }
    }
}

/// Attention with stored scores.
#[derive(Clone, Copy)]
struct Reference {
    precision: Precision,
    shape: AttentionShape,
    config: AttentionConfig,
}

impl Reference {
    fn forward(self, qkv: Tensor<2>) -> (Tensor<2>, Stored) {
        let AttentionShape { rows, width, heads, features } = self.shape;
        let [queries, keys, values] = [0, 1, 2].map(|part| {
            let part = qkv.clone().narrow(1, part * heads * features, heads * features);
            part.reshape([rows, width, heads, features]).swap_dims(1, 2)
        });
        // Scaled before the product, so that scores stay within the range of fp16.
        let queries = queries * self.scale();
        let how = Product::of(self.precision);
        let scores = product(queries.clone(), keys.clone(), how.second_transposed());
        let (weights, softmax) = attention_softmax(scores, self.config, self.precision);
        let output = self.joined(product(weights.clone(), values.clone(), how));
        (output, Stored { reference: self, queries, keys, values, weights, softmax })
    }

    fn scale(&self) -> f64 {
        1.0 / real_len(self.shape.features).sqrt()
    }

    /// [rows, heads, width, features] to [rows·width, heads·features].
    fn joined(&self, parts: Tensor<4>) -> Tensor<2> {
        let AttentionShape { rows, width, heads, features } = self.shape;
        parts.swap_dims(1, 2).reshape([rows * width, heads * features])
    }
}

impl Stored {
    fn backward(self, gradient: Tensor<2>) -> Tensor<2> {
        let Self { reference, queries, keys, values, weights, softmax } = self;
        let AttentionShape { rows, width, heads, features } = reference.shape;
        let gradient = gradient.reshape([rows, width, heads, features]).swap_dims(1, 2);
        let how = Product::of(reference.precision);
        let of_values = product(weights, gradient.clone(), how.first_transposed());
        let of_weights = product(gradient, values, how.second_transposed());
        let of_scores = softmax.backward(of_weights, reference.config, reference.precision);
        let of_queries = product(of_scores.clone(), keys, how) * reference.scale();
        let of_keys = product(of_scores, queries, how.first_transposed());
        Tensor::cat([of_queries, of_keys, of_values].map(|part| reference.joined(part)).to_vec(), 1)
    }
}
