//! What stands between the halves of a transformer's layers: what a half gives is added to a residual, and the sum is normalised.

use super::dropout::dropped_on_tape;
use super::norm::layer_norm;
use crate::forward_context::ForwardContext;
use crate::native::kernels::residual_norm;
use crate::precision::exact;
use crate::tape::computed;
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
        let ctx = &*ctx;
        if let Some(stream) = self.by_kernel(ctx, &x, &added, key) {
            return stream;
        }
        let added = exact(added);
        let added = match key {
            Some(key) => dropped_on_tape(ctx, added, key, self.dropout),
            None => added,
        };
        let sum = x + added;
        let normed = layer_norm(ctx, self.norm, sum.clone(), self.epsilon);
        Stream { residual: if self.post { normed.clone() } else { sum }, normed: ctx.round(normed) }
    }

    /// In one pass over the values forward and one backward.
    fn by_kernel(
        &self,
        ctx: &ForwardContext<'_>,
        x: &Tensor<2>,
        added: &Tensor<2>,
        key: Option<u32>,
    ) -> Option<Stream> {
        let [gain, bias] = ["weight", "bias"].map(|part| ctx.flat_parameter(&format!("{}.{part}", self.norm)).0);
        let [scale, shift] = [&gain, &bias].map(|vector| ctx.off_tape(vector.clone()));
        let [given, more] = [x, added].map(|matrix| ctx.off_tape(matrix.clone()));
        let precision = ctx.precision;
        let share = if key.is_some() { self.dropout } else { 0.0 };
        let how = residual_norm::ResidualNorm { post: self.post, epsilon: self.epsilon, key: key.unwrap_or(0), share };
        let format = added.dtype();
        let more = ctx.round(more);
        let residual_norm::ResidualNormOutput { normed, stream, kept } =
            residual_norm::residual_norm(given, more, &scale, &shift, how).ok()?;
        let on_tape = || [x.clone().into(), added.clone().into(), gain.into(), bias.into()];
        let backward = move |(of_normed, of_stream): (Tensor<2>, Option<Tensor<2>>), _: [bool; 4]| {
            let slopes =
                computed(residual_norm::residual_norm_back(precision.round(of_normed), of_stream.map(exact), kept));
            let residual_norm::ResidualNormGradients { x, added, gain, bias } = slopes;
            let added = if added.dtype() == format { added } else { exact(added) };
            [Some(x.into()), Some(added.into()), Some(gain.into()), Some(bias.into())]
        };
        let (normed, residual) = ctx.recorded_twice(on_tape, (normed, stream), backward);
        Some(Stream { residual, normed })
    }
}

#[cfg(test)]
mod tests;
