//! A stack of recurrent layers as one operation of cuDNN and of the tape.

#[cfg(test)]
mod tests;

use super::Cell;
use crate::forward_context::ForwardContext;
use crate::ops::{Recurrent, Stack};
use crate::precision::Precision;
use crate::tape::{MOST, Plain};
use burn::tensor::Tensor;
use std::iter::once;

/// `recurrent_stack` by cuDNN; `None` if cuDNN does not support it.
pub(super) fn stack(
    ctx: &ForwardContext<'_>,
    name: &str,
    layers: usize,
    cell: Cell,
    x: &Tensor<2>,
    width: usize,
) -> Option<Tensor<2>> {
    stack_in(ctx, name, layers, cell, x, (width, ctx.precision == Precision::Fp32))
}

/// [`stack`], with or without TF32 for float32 products.
fn stack_in(
    ctx: &ForwardContext<'_>,
    name: &str,
    layers: usize,
    cell: Cell,
    x: &Tensor<2>,
    (width, tf32): (usize, bool),
) -> Option<Tensor<2>> {
    let given = ctx.off_tape(x.clone());
    let how = Stack { unit: cell, layers, width, format: ctx.precision.format(), tf32 };
    let parameters = parameters(ctx, name, layers);
    let values: Vec<Tensor<1>> = parameters.iter().map(|parameter| ctx.off_tape(parameter.clone())).collect();
    // The tape also records x.
    let recurrent = if parameters.len() < MOST { Recurrent::of(how, &given, &values) } else { None }?;
    let (answer, kept) = recurrent.forward(given, &values, ctx.taped());
    let Some(kept) = kept else { return Some(answer) };
    let format = x.dtype();
    let on_tape = || once(x.clone().into()).chain(parameters.into_iter().map(Into::into)).collect();
    Some(ctx.recorded_all(on_tape, answer, move |gradient, wanted| {
        let (of_x, of_parameters) = kept.backward(gradient);
        let of_x = if of_x.dtype() == format { of_x } else { of_x.cast(format) };
        let all = once(Plain::from(of_x)).chain(of_parameters.into_iter().map(Plain::from));
        all.zip(wanted).map(|(gradient, wanted)| wanted.then_some(gradient)).collect()
    }))
}

/// The flat parameters `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh` of each layer, from the lowest on.
fn parameters(ctx: &ForwardContext<'_>, name: &str, layers: usize) -> Vec<Tensor<1>> {
    let of_layer = |layer| {
        ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
            .map(|part| ctx.flat_parameter(&format!("{name}.{part}_l{layer}")).0)
    };
    (0..layers).flat_map(of_layer).collect()
}
