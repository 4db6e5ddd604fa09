//! Multi-head self-attention (Vaswani et al. 2017, section 3.2).

use super::dropout::dropout;
use super::linear::{linear, linear_joined};
use crate::train::number::real_len;
use crate::train::pass::Pass;
use crate::train::precision::exact;
use burn::tensor::activation::softmax;
use burn::tensor::{Int, Tensor};

/// What is added to the score of a token that may not be seen: nothing of it remains after the softmax, and it is no infinity.
const NEVER: f64 = -1.0e30;

/// One layer of attention: where its parameters are, and how it looks.
pub struct Attention {
    /// The maps to queries, keys and values, [hidden, hidden] each in this order, or one map to all of them side by side.
    pub qkv: Vec<String>,
    /// The map of what was seen, [hidden, hidden].
    pub output: String,
    /// How many look at once, each with its share of the features.
    pub heads: usize,
    /// The share of what is seen that is dropped, after the softmax.
    pub dropout: f64,
}

/// x [rows·width, hidden] to the same shape in the number format of the pass. Every token of a row sees all of that row, except what the mask forbids.
///
/// Scores are products in the number format of the pass; queries are scaled before, so that they stay within binary16. The softmax is in float32.
pub fn attend(
    pass: &mut Pass<'_>,
    layer: &Attention,
    x: Tensor<2>,
    [rows, width]: [usize; 2],
    mask: Option<&Tensor<4>>,
) -> Tensor<2> {
    let (heads, hidden) = (layer.heads, x.dims()[1]);
    let features = hidden / heads;
    let qkv = linear_joined(pass, &layer.qkv, x);
    let [queries, keys, values] = [0, 1, 2].map(|part| {
        let part = qkv.clone().narrow(1, part * hidden, hidden);
        part.reshape([rows, width, heads, features]).swap_dims(1, 2)
    });
    let scores = exact((queries * (1.0 / real_len(features).sqrt())).matmul(keys.swap_dims(2, 3)));
    let scores = match mask {
        Some(mask) => scores + mask.clone(),
        None => scores,
    };
    let shares = dropout(pass, softmax(scores, 3), layer.dropout);
    let seen = pass.round(shares).matmul(values).swap_dims(1, 2).reshape([rows * width, hidden]);
    linear(pass, &layer.output, seen)
}

/// A mask [1, 1, width, width] for [`attend`], in float32, that hides from each token those after it.
pub fn causal_mask(pass: &Pass<'_>, width: usize) -> Tensor<4> {
    let end = i64::try_from(width).unwrap_or(i64::MAX);
    let places = Tensor::<1, Int>::arange(0..end, pass.device());
    let after = places.clone().unsqueeze_dim::<2>(0) - places.unsqueeze_dim::<2>(1);
    pass.constant(after.clamp(0, 1).float() * NEVER).unsqueeze()
}

/// Floating-point operations of [`attend`] over one row, counted as `Model::forward_flops` says: four maps, and products of T×d with d×T and of T×T with T×d for each head.
pub fn attention_flops(width: u64, hidden: u64) -> u64 {
    2 * width * 4 * hidden * hidden + 2 * 2 * width * width * hidden
}
