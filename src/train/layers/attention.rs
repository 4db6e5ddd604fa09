//! Multi-head self-attention (Vaswani et al. 2017, section 3.2).

use super::linear::{linear, linear_joined};
use crate::forward_context::ForwardContext;
use crate::ops::{AttentionConfig, AttentionShape, attention};
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
    /// The share of attention weights that is dropped.
    pub dropout: f64,
}

/// x [rows·width, hidden] to the same shape in the number format of the context. Every token of a row sees all of that row, but what comes
/// after it where attention is causal.
pub fn attend(ctx: &mut ForwardContext<'_>, layer: &Attention, x: Tensor<2>, [rows, width]: [usize; 2]) -> Tensor<2> {
    let (heads, hidden) = (layer.heads, x.dims()[1]);
    let qkv = linear_joined(ctx, &layer.qkv, x);
    let key = if layer.dropout > 0.0 { ctx.dropout_key() } else { None };
    let share = if key.is_some() { layer.dropout } else { 0.0 };
    let config = AttentionConfig { causal: layer.causal, key: key.unwrap_or(0), share };
    let shape = AttentionShape { rows, width, heads, features: hidden / heads };
    let (attended, saved) = attention(ctx.off_tape(qkv.clone()), shape, config, ctx.precision);
    let attended = ctx.recorded(|| [qkv.into()], attended, move |gradient, _| [Some(saved.backward(gradient).into())]);
    linear(ctx, &layer.output, attended)
}

/// Floating-point operations of [`attend`] over one row, counted as `Model::forward_flops` says: four maps, and products of T×d with d×T and of T×T with T×d for each head.
pub fn attention_flops(width: u64, hidden: u64) -> u64 {
    2 * width * 4 * hidden * hidden + 2 * 2 * width * width * hidden
}
