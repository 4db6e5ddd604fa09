//! Multi-head self-attention (Vaswani et al. 2017, section 3.2).

use super::linear::{linear, linear_joined};
use crate::forward_context::ForwardContext;
use crate::number::real_len;
use crate::ops::{AttentionConfig, Product, Softmax, attention_softmax, product};
use crate::precision::Precision;
use burn::tensor::Tensor;

/// One layer of attention: where its parameters are, and how it looks.
pub struct Attention {
    /// The maps to queries, keys and values, [hidden, hidden] each in this order, or one map to all of them side by side.
    pub qkv: Vec<String>,
    /// The map of what was seen, [hidden, hidden].
    pub output: String,
    /// How many look at once, each with its share of the features.
    pub heads: usize,
    /// A token does not see those that come after it.
    pub causal: bool,
    /// The share of what is seen that is dropped, after the softmax.
    pub dropout: f64,
}

/// x [rows·width, hidden] to the same shape in the number format of the context. Every token of a row sees all of that row, but what comes
/// after it where attention is causal.
///
/// Scores are products in the number format of the context; queries are scaled before, so that they stay within binary16. The softmax is in
/// float32.
pub fn attend(ctx: &mut ForwardContext<'_>, layer: &Attention, x: Tensor<2>, [rows, width]: [usize; 2]) -> Tensor<2> {
    let (heads, hidden) = (layer.heads, x.dims()[1]);
    let qkv = linear_joined(ctx, &layer.qkv, x);
    let core = Core {
        precision: ctx.precision,
        shape: [rows, width, heads, hidden / heads],
        causal: layer.causal,
        key: if layer.dropout > 0.0 { ctx.dropout_key() } else { None },
        share: layer.dropout,
    };
    let (seen, kept) = core.forward(ctx.off_tape(qkv.clone()));
    let seen = ctx.recorded(|| [qkv.into()], seen, move |gradient, _| [Some(core.backward(gradient, kept).into())]);
    linear(ctx, &layer.output, seen)
}

/// What is between the maps. Off the tape, on which each of the three parts of `qkv` would leave a gradient of the size of all of them.
#[derive(Clone, Copy)]
struct Core {
    precision: Precision,
    /// Rows, width, heads, and features of a head.
    shape: [usize; 4],
    causal: bool,
    /// Of the dropout, in a training step that has one.
    key: Option<u32>,
    share: f64,
}

/// What the backward pass needs, each [rows, heads, width, features or width].
struct SavedTensors {
    queries: Tensor<4>,
    keys: Tensor<4>,
    values: Tensor<4>,
    shares: Tensor<4>,
    softmax: Softmax,
}

impl Core {
    /// qkv [rows·width, 3·hidden] to [rows·width, hidden].
    fn forward(&self, qkv: Tensor<2>) -> (Tensor<2>, SavedTensors) {
        let [rows, width, heads, features] = self.shape;
        let [queries, keys, values] = [0, 1, 2].map(|part| {
            let part = qkv.clone().narrow(1, part * heads * features, heads * features);
            part.reshape([rows, width, heads, features]).swap_dims(1, 2)
        });
        let queries = queries * self.scale();
        let how = Product::of(self.precision);
        let scores = product(queries.clone(), keys.clone(), how.second_transposed());
        let (shares, softmax) = attention_softmax(scores, self.config(), self.precision);
        let seen = self.joined(product(shares.clone(), values.clone(), how));
        (seen, SavedTensors { queries, keys, values, shares, softmax })
    }

    /// The gradient of qkv from that of the answer.
    fn backward(&self, gradient: Tensor<2>, kept: SavedTensors) -> Tensor<2> {
        let SavedTensors { queries, keys, values, shares, softmax } = kept;
        let [rows, width, heads, features] = self.shape;
        let gradient = self.precision.round(gradient).reshape([rows, width, heads, features]).swap_dims(1, 2);
        let how = Product::of(self.precision);
        let of_values = product(shares, gradient.clone(), how.first_transposed());
        let of_shares = product(gradient, values, how.second_transposed());
        let of_scores = softmax.backward(of_shares, self.config(), self.precision);
        let of_queries = product(of_scores.clone(), keys, how) * self.scale();
        let of_keys = product(of_scores, queries, how.first_transposed());
        Tensor::cat([of_queries, of_keys, of_values].map(|part| self.joined(part)).to_vec(), 1)
    }

    fn scale(&self) -> f64 {
        1.0 / real_len(self.shape[3]).sqrt()
    }

    /// [rows, heads, width, features] to [rows·width, hidden].
    fn joined(&self, parts: Tensor<4>) -> Tensor<2> {
        let [rows, width, heads, features] = self.shape;
        parts.swap_dims(1, 2).reshape([rows * width, heads * features])
    }

    fn config(&self) -> AttentionConfig {
        let share = if self.key.is_some() { self.share } else { 0.0 };
        AttentionConfig { causal: self.causal, key: self.key.unwrap_or(0), share }
    }
}

/// Floating-point operations of [`attend`] over one row, counted as `Model::forward_flops` says: four maps, and products of T×d with d×T and of T×T with T×d for each head.
pub fn attention_flops(width: u64, hidden: u64) -> u64 {
    2 * width * 4 * hidden * hidden + 2 * 2 * width * width * hidden
}
