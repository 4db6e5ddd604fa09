//! What stands between the halves of a transformer's layers: what a half gives is added to a residual, and the sum is normalised.

use crate::forward_context::ForwardContext;
use crate::ops::{ResidualNorm, residual_norm};
use burn::tensor::Tensor;

/// How a residual and what is added to it go on.
#[derive(Clone, Copy, Debug)]
pub struct Residual<'a> {
    /// Of the layer normalisation.
    pub norm: &'a str,
    /// What is added to its variance.
    pub epsilon: f64,
    /// What goes on is what was normalised (Vaswani et al. 2017, "post-norm"); otherwise it is the sum, and what was normalised is for the next half alone ("pre-norm").
    pub post: bool,
    /// The share that is dropped of what is added.
    pub dropout: f64,
}

/// What goes on after a half of a layer, both [rows, features].
pub struct Stream {
    /// To which the next half adds, in float32.
    pub residual: Tensor<2>,
    /// What the next half is a function of, in the number format of the context.
    pub normed: Tensor<2>,
}

impl Stream {
    /// Of what is normalised already, float32.
    pub fn new(ctx: &ForwardContext<'_>, residual: Tensor<2>) -> Self {
        Self { normed: ctx.round(residual.clone()), residual }
    }
}

impl Residual<'_> {
    /// Adds to x, float32, what a half of a layer gave, in the number format of the context, and normalises the sum. All arithmetic is in
    /// float32.
    ///
    /// A loss has to depend on what was normalised.
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
