//! Multi-head self-attention (Vaswani et al. 2017, section 3.2).

use super::linear::{linear, linear_joined};
use crate::forward_context::ForwardContext;
use crate::ops::{AttentionConfig, AttentionShape, attention};
use burn::tensor::Tensor;

/// The parameter names and the configuration of an attention layer.
pub struct Attention {
    /// The projections to queries, keys and values, in this order and [hidden, hidden] each, or one projection to all three, concatenated.
    pub qkv: Vec<String>,
    /// The output projection, [hidden, hidden].
    pub output: String,
    /// Number of heads, which split the features evenly.
    pub heads: usize,
    /// Whether later tokens are masked.
    pub causal: bool,
    /// Dropout probability of the attention weights.
    pub dropout: f64,
}

/// Applies attention within each row to x [rows·width, hidden]. The output has the same shape, in the number format of the context.
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

/// Floating-point operations of [`attend`] over one row, counted as in `Model::forward_flops`: four projections, and
/// for each head a product of T×d with d×T and one of T×T with T×d.
pub fn attention_flops(width: u64, hidden: u64) -> u64 {
    2 * width * 4 * hidden * hidden + 2 * 2 * width * width * hidden
}
