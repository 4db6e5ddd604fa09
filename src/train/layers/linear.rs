//! Linear layers (affine maps).

use crate::forward_context::ForwardContext;
use crate::ops::{Affine, AffineGradients, affine, folded_affine};
use crate::parameters::{Init, ParamSpec};
use crate::precision::Precision;
use crate::tape::{Plain, Taped};
use burn::tensor::{DType, FloatDType, Tensor};

/// `name.weight` of this shape and initialisation, and `name.bias` with one value for each of the `outputs`, initialised to 0.
pub fn zero_bias_specs(name: &str, shape: &[usize], outputs: usize, init: Init) -> [ParamSpec; 2] {
    let bias = ParamSpec::new(format!("{name}.bias"), &[outputs], Init::Constant(0.0));
    [ParamSpec::new(format!("{name}.weight"), shape, init), bias]
}

/// x·W + b: [rows, in] to [rows, out] in the number format of the context. The parameters are `name.weight` [in, out] and, if it exists,
/// `name.bias` [out].
pub fn linear(ctx: &ForwardContext<'_>, name: &str, x: Tensor<2>) -> Tensor<2> {
    linear_joined(ctx, &[name.to_owned()], x)
}

/// Applies up to three affine maps of the same shape to the same rows as one product: [rows, in] to their concatenated
/// outputs, [rows, sum of all out]. Either all maps have a bias or none has.
pub fn linear_joined(ctx: &ForwardContext<'_>, names: &[String], x: Tensor<2>) -> Tensor<2> {
    let (mut weights, mut biases, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        let (weight, shape) = ctx.flat_parameter(&format!("{name}.weight"));
        weights.push(weight);
        shapes.push(shape);
        let bias = format!("{name}.bias");
        if ctx.has(&bias) {
            biases.push(ctx.flat_parameter(&bias).0);
        }
    }
    let Some([inputs, outputs]) = shapes.first().filter(|first| shapes.iter().all(|shape| shape == *first)) else {
        panic!("maps {names:?} are not of one shape");
    };
    let columns = outputs * names.len();
    let maps = Maps { shape: [*inputs, *outputs], weights, biases, table: false, columns };
    maps.apply_named(ctx, &names.join(" "), x)
}

/// Affine maps of the same rows, with flat parameters in float32; their outputs are concatenated.
pub struct Maps {
    /// The shape of each weight: [in, out], or [out, in] of a table.
    pub shape: [usize; 2],
    /// One weight for each map.
    pub weights: Vec<Tensor<1>>,
    /// One bias [out] for each map, or none at all.
    pub biases: Vec<Tensor<1>>,
    /// Whether the (single) weight is an embedding table.
    pub table: bool,
    /// Columns of the output; columns beyond the parameters are 0.
    pub columns: usize,
}

impl Maps {
    /// Maps [rows, in] to [rows, columns] in the number format of the context. The gradient of x has the format of x;
    /// those of the parameters are not rounded.
    pub fn apply(self, ctx: &ForwardContext<'_>, x: Tensor<2>) -> Tensor<2> {
        match (self.weights.len(), self.biases.len()) {
            (1, 0) => self.recorded::<2>(ctx, x),
            (1, 1) => self.recorded::<3>(ctx, x),
            (2, 2) => self.recorded::<5>(ctx, x),
            (3, 0) => self.recorded::<4>(ctx, x),
            (3, 3) => self.recorded::<7>(ctx, x),
            (weights, biases) => panic!("there are {weights} maps side by side, and {biases} have a bias"),
        }
    }

    /// [`Self::apply`] for unchanged parameters of the model. If the context folds constants, the parameters are
    /// rounded and joined once, and cached under this name.
    pub fn apply_named(self, ctx: &ForwardContext<'_>, name: &str, x: Tensor<2>) -> Tensor<2> {
        if !ctx.folds() {
            return self.apply(ctx, x);
        }
        let Self { shape: [first, second], weights, biases, table, columns } = self;
        let how = Affine { shape: [first, second], table, columns, tf32: ctx.precision == Precision::Fp32 };
        let (weight, bias) = ctx.constant_of(name, || folded_affine(ctx.precision, weights, biases, how));
        let shape = if table { [columns, second] } else { [first, columns] };
        affine(ctx.precision, ctx.round(x), vec![weight], bias.into_iter().collect(), Affine { shape, ..how }).0
    }

    /// [`Self::apply`] as an operation of the tape with N inputs: x and the parameters.
    fn recorded<const N: usize>(self, ctx: &ForwardContext<'_>, x: Tensor<2>) -> Tensor<2> {
        let Self { shape, table, columns, .. } = self;
        let off_tape = |vectors: &[Tensor<1>]| vectors.iter().map(|vector| ctx.off_tape(vector.clone())).collect();
        let (weights, biases) = (off_tape(&self.weights), off_tape(&self.biases));
        let (format, precision) = (x.dtype(), ctx.precision);
        let how = Affine { shape, table, columns, tf32: precision == Precision::Fp32 };
        let (answer, kept) = affine(precision, ctx.round(ctx.off_tape(x.clone())), weights, biases, how);
        let on_tape = || {
            let parameters = self.weights.into_iter().chain(self.biases).map(Taped::from);
            array::<_, N>([x.into()].into_iter().chain(parameters))
        };
        ctx.recorded(on_tape, answer, move |gradient, wanted| {
            let of_x = wanted[0].then_some(if format == DType::F32 { FloatDType::F32 } else { precision.format() });
            let parameters = wanted[1..].contains(&true);
            let AffineGradients { x, weights, biases } = kept.backward(gradient, of_x, parameters);
            let parameters = weights.into_iter().chain(biases).map(Plain::from);
            // Unwanted gradients are `None`.
            let all = [x.map(Plain::from)].into_iter().chain(parameters.map(Some)).chain((0..N).map(|_| None));
            array::<_, N>(all.take(N))
        })
    }
}

fn array<T, const N: usize>(values: impl Iterator<Item = T>) -> [T; N] {
    match <[T; N]>::try_from(values.collect::<Vec<T>>()) {
        Ok(values) => values,
        Err(values) => panic!("{} values for {N} places", values.len()),
    }
}

#[cfg(test)]
mod tests;
