//! Affine maps.

use super::product::{Product, product, widen};
use crate::forward_context::ForwardContext;
use crate::native::kernels::affine;
use crate::precision::{Precision, exact};
use crate::tape::computed;
use crate::tape::{Plain, Taped};
use burn::tensor::{DType, FloatDType, Tensor};

/// x·W + b: [rows, in] to [rows, out] in the number format of the context, with `name.weight` [in, out] and, where there is one,
/// `name.bias` [out].
pub fn linear(ctx: &ForwardContext<'_>, name: &str, x: Tensor<2>) -> Tensor<2> {
    linear_joined(ctx, &[name.to_owned()], x)
}

/// Up to three affine maps of the same rows and of one shape as one product: [rows, in] to their answers side by side, [rows, sum of all out]. Each has a weight and a bias, or none has
/// a bias.
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
    Maps { shape: [*inputs, *outputs], weights, biases, table: false, columns }.apply(ctx, x)
}

/// Affine maps of the same rows, side by side, with flat parameters in float32.
pub struct Maps {
    /// Of each weight: [in, out], or [out, in] of a table.
    pub shape: [usize; 2],
    /// As many as there are maps.
    pub weights: Vec<Tensor<1>>,
    /// [out] each; one for every weight or none at all.
    pub biases: Vec<Tensor<1>>,
    /// The weight is a table, one alone.
    pub table: bool,
    /// Columns of the answer; those for which there are no parameters are 0.
    pub columns: usize,
}

impl Maps {
    /// [rows, in] to [rows, columns] in the number format of the context. The gradient of x comes back in its own format, those of the
    /// parameters are not rounded.
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

    /// With as many inputs as x and the parameters are.
    fn recorded<const N: usize>(self, ctx: &ForwardContext<'_>, x: Tensor<2>) -> Tensor<2> {
        let off_tape = Self {
            weights: self.weights.iter().map(|weight| ctx.off_tape(weight.clone())).collect(),
            biases: self.biases.iter().map(|bias| ctx.off_tape(bias.clone())).collect(),
            ..self
        };
        let format = x.dtype();
        let (answer, kept) = off_tape.forward(ctx.precision, ctx.round(ctx.off_tape(x.clone())));
        let on_tape = || {
            let parameters = self.weights.into_iter().chain(self.biases).map(Taped::from);
            array::<_, N>([x.into()].into_iter().chain(parameters))
        };
        ctx.recorded(on_tape, answer, move |gradient, wanted| {
            let of_x =
                wanted[0].then_some(if format == DType::F32 { FloatDType::F32 } else { kept.precision.format() });
            let parameters = wanted[1..].contains(&true);
            let LinearGradients { x, weights, biases } = kept.backward(gradient, of_x, parameters);
            let parameters = weights.into_iter().chain(biases).map(Plain::from);
            // What is not wanted is nowhere to be found.
            let all = [x.map(Plain::from)].into_iter().chain(parameters.map(Some)).chain((0..N).map(|_| None));
            array::<_, N>(all.take(N))
        })
    }

    /// The answer to x in the number format of the products.
    fn forward(self, precision: Precision, x: Tensor<2>) -> (Tensor<2>, SavedTensors) {
        let Self { shape, weights, biases, table, columns } = self;
        let x = {
            let how = affine::Affine { shape, table, columns, tf32: precision == Precision::Fp32 };
            match affine::affine(x, &weights, &biases, how) {
                Ok(affine::Mapped { y, kept }) => {
                    return (y, SavedTensors { precision, by: By::Kernels(Box::new(kept)) });
                }
                Err(x) => x,
            }
        };
        let (maps, biased, axis) = (weights.len(), !biases.is_empty(), usize::from(!table));
        // Rounded first: there is less to bring together.
        let weights = weights.into_iter().map(|weight| precision.round(weight).reshape(shape)).collect();
        let weight = filled(weights, axis, columns);
        let how = Product::of(precision);
        let how = if table { how.second_transposed() } else { how };
        let mut answer = product(x.clone(), weight.clone(), how);
        if biased {
            let biases = biases.into_iter().map(|bias| precision.round(bias).unsqueeze()).collect();
            answer = answer + filled(biases, 1, columns);
        }
        let by = By::Operations(Box::new(Operations { x, weight, maps, outputs: shape[axis], biased, table }));
        (answer, SavedTensors { precision, by })
    }
}

/// Saved tensors for the backward pass.
struct SavedTensors {
    precision: Precision,
    by: By,
}

/// Who went forward, and goes backward too.
enum By {
    Operations(Box<Operations>),
    Kernels(Box<affine::SavedTensors>),
}

struct Operations {
    x: Tensor<2>,
    /// All weights.
    weight: Tensor<2>,
    maps: usize,
    /// Columns of each map.
    outputs: usize,
    biased: bool,
    table: bool,
}

/// The gradients of x, of the weights and of the biases, where they are wanted; those of parameters are flat.
struct LinearGradients {
    x: Option<Tensor<2>>,
    weights: Vec<Tensor<1>>,
    biases: Vec<Tensor<1>>,
}

impl SavedTensors {
    /// The gradient of x is in this format.
    fn backward(self, gradient: Tensor<2>, x: Option<FloatDType>, parameters: bool) -> LinearGradients {
        let gradient = self.precision.round(gradient);
        match self.by {
            By::Operations(kept) => kept.backward(self.precision, gradient, x, parameters),
            By::Kernels(kept) => {
                let affine::AffineGradients { x, weights, biases } =
                    computed(affine::affine_back(gradient, *kept, x, parameters));
                LinearGradients { x, weights, biases }
            }
        }
    }
}

impl Operations {
    fn backward(
        self,
        precision: Precision,
        gradient: Tensor<2>,
        of_x: Option<FloatDType>,
        parameters: bool,
    ) -> LinearGradients {
        let Self { x, weight, maps, outputs, biased, table } = self;
        let how = Product::of(precision);
        let of_x = of_x.map(|format| {
            let how = if table { how } else { how.second_transposed() };
            product(gradient.clone(), weight, if format == FloatDType::F32 { how.exact() } else { how })
        });
        if !parameters {
            return LinearGradients { x: of_x, weights: Vec::new(), biases: Vec::new() };
        }
        let (lhs, rhs) = if table { (gradient.clone(), x) } else { (x, gradient.clone()) };
        let all = product(lhs, rhs, how.first_transposed().exact());
        let parts = |all: &Tensor<2>, axis: usize| {
            let part = |map: usize| all.clone().narrow(axis, map * outputs, outputs).flatten(0, 1);
            (0..maps).map(part).collect::<Vec<Tensor<1>>>()
        };
        let biases = if biased { parts(&exact(gradient).sum_dim(0), 1) } else { Vec::new() };
        LinearGradients { x: of_x, weights: parts(&all, usize::from(!table)), biases }
    }
}

/// Matrices one after the other along an axis, and zeros behind them.
fn filled(mut matrices: Vec<Tensor<2>>, axis: usize, length: usize) -> Tensor<2> {
    let joined = if matrices.len() == 1 { matrices.remove(0) } else { Tensor::cat(matrices, axis) };
    if joined.dims()[axis] < length { widen(joined, axis, length) } else { joined }
}

fn array<T, const N: usize>(values: impl Iterator<Item = T>) -> [T; N] {
    match <[T; N]>::try_from(values.collect::<Vec<T>>()) {
        Ok(values) => values,
        Err(values) => panic!("{} values for {N} places", values.len()),
    }
}

#[cfg(test)]
mod tests;
