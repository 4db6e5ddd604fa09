//! The residual connection of a transformer: adds the output of a branch (attention or feed-forward) to the residual
//! stream and normalises the sum.

use crate::forward_context::ForwardContext;
use crate::ops::{ResidualNorm, residual_norm};
use burn::tensor::Tensor;

/// The configuration of a residual connection.
#[derive(Clone, Copy, Debug)]
pub struct Residual<'a> {
    /// The name of the layer normalisation.
    pub norm: &'a str,
    /// The epsilon of the layer normalisation.
    pub epsilon: f64,
    /// Whether the normalised sum becomes the residual stream (Vaswani et al. 2017, "post-norm"). Otherwise the sum
    /// does, and only the next branch gets the normalised sum ("pre-norm").
    pub post: bool,
    /// Dropout probability of the branch output.
    pub dropout: f64,
}

/// The residual stream after a branch; both tensors are [rows, features].
pub struct Stream {
    /// The residual that the next branch adds to, in float32.
    pub residual: Tensor<2>,
    /// The input of the next branch, in the number format of the context.
    pub normed: Tensor<2>,
}

impl Stream {
    /// The stream that starts with an already normalised tensor in float32.
    pub fn new(ctx: &ForwardContext<'_>, residual: Tensor<2>) -> Self {
        Self { normed: ctx.round(residual.clone()), residual }
    }
}

impl Residual<'_> {
    /// Adds the branch output `added`, in the number format of the context, to x in float32, and normalises the sum.
    /// All arithmetic is in float32.
    ///
    /// The loss must depend on the normalised output.
    pub fn add(&self, ctx: &mut ForwardContext<'_>, x: Tensor<2>, added: Tensor<2>) -> Stream {
        let key = if self.dropout > 0.0 { ctx.dropout_key() } else { None };
        let [gain, bias] = ["weight", "bias"].map(|part| ctx.flat_parameter(&format!("{}.{part}", self.norm)).0);
        let share = if key.is_some() { self.dropout } else { 0.0 };
        let how = ResidualNorm { post: self.post, epsilon: self.epsilon, key: key.unwrap_or(0), share };
        let [residual, normed] = residual_norm(ctx, x, added, [gain, bias], how);
        Stream { residual, normed }
    }
}

#[cfg(test)]
mod tests;
