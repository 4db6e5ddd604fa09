//! A residual sum with dropout, and its layer normalisation.

use super::{computed, dropped_on_tape, layer_norm};
use crate::forward_context::ForwardContext;
use crate::native::kernels::residual_norm::{self as kernels, ResidualNormGradients, ResidualNormOutput};
use crate::precision::exact;
use burn::tensor::Tensor;

pub use kernels::ResidualNorm;

/// Applies dropout to the branch output `added`, adds it to x and normalises the sum. Returns the residual stream in
/// float32 and the normalised output in the number format of the context. x is float32, and all arithmetic is in
/// float32. The loss must depend on the normalised output.
pub fn residual_norm(
    ctx: &ForwardContext<'_>,
    x: Tensor<2>,
    added: Tensor<2>,
    [gain, bias]: [Tensor<1>; 2],
    how: ResidualNorm,
) -> [Tensor<2>; 2] {
    let [scale, shift] = [&gain, &bias].map(|vector| ctx.off_tape(vector.clone()));
    let [given, more] = [&x, &added].map(|matrix| ctx.off_tape(matrix.clone()));
    let Some(output) = kernels::residual_norm(given, ctx.round(more), &scale, &shift, how) else {
        return reference(ctx, x, added, [gain, bias], how);
    };
    let ResidualNormOutput { normed, stream, kept } = output;
    let (format, precision) = (added.dtype(), ctx.precision);
    let on_tape = || [x.into(), added.into(), gain.into(), bias.into()];
    let backward = move |(of_normed, of_stream): (Tensor<2>, Option<Tensor<2>>), _: [bool; 4]| {
        let slopes = kernels::residual_norm_back(precision.round(of_normed), of_stream.map(exact), kept);
        let ResidualNormGradients { x, added, gain, bias } = computed(slopes);
        let added = if added.dtype() == format { added } else { exact(added) };
        [Some(x.into()), Some(added.into()), Some(gain.into()), Some(bias.into())]
    };
    let (normed, residual) = ctx.recorded_twice(on_tape, (normed, stream), backward);
    [residual, normed]
}

fn reference(
    ctx: &ForwardContext<'_>,
    x: Tensor<2>,
    added: Tensor<2>,
    vectors: [Tensor<1>; 2],
    how: ResidualNorm,
) -> [Tensor<2>; 2] {
    let ResidualNorm { post, epsilon, key, share } = how;
    let added = exact(added);
    let sum = x + if share > 0.0 { dropped_on_tape(ctx, added, key, share) } else { added };
    let normed = layer_norm(ctx, sum.clone(), vectors, epsilon);
    [if post { normed.clone() } else { sum }, ctx.round(normed)]
}
