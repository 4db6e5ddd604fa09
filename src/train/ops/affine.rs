//! Affine maps of the same rows, with concatenated outputs.

use super::product::{Product, product, widen};
use crate::native::kernels::affine::{self as kernels, Mapped};
use crate::precision::{Precision, exact};
use burn::tensor::{FloatDType, Tensor};

pub use kernels::{Affine, AffineGradients};

/// Maps x [rows, in], in the number format, to [rows, columns], with flat parameters in float32 or from
/// [`folded_affine`]. Also returns the saved tensors.
pub fn affine(
    precision: Precision,
    x: Tensor<2>,
    weights: Vec<Tensor<1>>,
    biases: Vec<Tensor<1>>,
    how: Affine,
) -> (Tensor<2>, SavedTensors) {
    if let Some(Mapped { y, kept }) = kernels::affine(&x, &weights, &biases, how) {
        return (y, SavedTensors { precision, by: By::Kernels(Box::new(kept)) });
    }
    let (y, kept) = Reference::forward(precision, x, weights, biases, how);
    (y, SavedTensors { precision, by: By::Reference(Box::new(kept)) })
}

/// Saved tensors for the backward pass.
pub struct SavedTensors {
    precision: Precision,
    by: By,
}

/// The implementation of the forward pass, which also computes the backward pass.
enum By {
    Kernels(Box<kernels::SavedTensors>),
    Reference(Box<Reference>),
}

impl SavedTensors {
    /// The gradients: of x in format `x`, if one is given, and of weights and biases, if `parameters` is set.
    pub fn backward(self, gradient: Tensor<2>, x: Option<FloatDType>, parameters: bool) -> AffineGradients {
        let gradient = self.precision.round(gradient);
        match self.by {
            By::Kernels(kept) => super::computed(kernels::affine_back(gradient, *kept, x, parameters)),
            By::Reference(kept) => kept.backward(self.precision, gradient, x, parameters),
        }
    }
}

struct Reference {
    x: Tensor<2>,
    /// All weights, joined.
    weight: Tensor<2>,
    maps: usize,
    /// Columns of each map.
    outputs: usize,
    biased: bool,
    table: bool,
}

impl Reference {
    fn forward(
        precision: Precision,
        x: Tensor<2>,
        weights: Vec<Tensor<1>>,
        biases: Vec<Tensor<1>>,
        how: Affine,
    ) -> (Tensor<2>, Self) {
        let Affine { shape, table, .. } = how;
        let (maps, biased, axis) = (weights.len(), !biases.is_empty(), usize::from(!table));
        let (weight, bias) = together(precision, weights, biases, how);
        let how = Product::of(precision);
        let how = if table { how.second_transposed() } else { how };
        let mut answer = product(x.clone(), weight.clone(), how);
        if let Some(bias) = bias {
            answer = answer + bias;
        }
        (answer, Self { x, weight, maps, outputs: shape[axis], biased, table })
    }

    fn backward(
        self,
        precision: Precision,
        gradient: Tensor<2>,
        of_x: Option<FloatDType>,
        parameters: bool,
    ) -> AffineGradients {
        let Self { x, weight, maps, outputs, biased, table } = self;
        let how = Product::of(precision);
        let of_x = of_x.map(|format| {
            let how = if table { how } else { how.second_transposed() };
            product(gradient.clone(), weight, if format == FloatDType::F32 { how.exact() } else { how })
        });
        if !parameters {
            return AffineGradients { x: of_x, weights: Vec::new(), biases: Vec::new() };
        }
        let (lhs, rhs) = if table { (gradient.clone(), x) } else { (x, gradient.clone()) };
        let all = product(lhs, rhs, how.first_transposed().exact());
        let parts = |all: &Tensor<2>, axis: usize| {
            let part = |map: usize| all.clone().narrow(axis, map * outputs, outputs).flatten(0, 1);
            (0..maps).map(part).collect::<Vec<Tensor<1>>>()
        };
        let biases = if biased { parts(&exact(gradient).sum_dim(0), 1) } else { Vec::new() };
        AffineGradients { x: of_x, weights: parts(&all, usize::from(!table)), biases }
    }
}

/// The weights of all maps as one matrix, and the biases as one row, in the number format.
fn together(
    precision: Precision,
    weights: Vec<Tensor<1>>,
    biases: Vec<Tensor<1>>,
    Affine { shape, table, columns, .. }: Affine,
) -> (Tensor<2>, Option<Tensor<2>>) {
    // Rounding first leaves less to copy.
    let weights = weights.into_iter().map(|weight| precision.round(weight).reshape(shape)).collect();
    let biases: Vec<_> = biases.into_iter().map(|bias| precision.round(bias).unsqueeze()).collect();
    let bias = (!biases.is_empty()).then(|| filled(biases, 1, columns));
    (filled(weights, usize::from(!table), columns), bias)
}

/// Joins the parameters of several maps to those of one map for [`affine`], flat and in the number format.
pub fn folded_affine(
    precision: Precision,
    weights: Vec<Tensor<1>>,
    biases: Vec<Tensor<1>>,
    how: Affine,
) -> (Tensor<1>, Option<Tensor<1>>) {
    let (weight, bias) = together(precision, weights, biases, how);
    (weight.flatten(0, 1), bias.map(|bias| bias.flatten(0, 1)))
}

/// Concatenates matrices along an axis and pads the result with zeros to `length`.
fn filled(mut matrices: Vec<Tensor<2>>, axis: usize, length: usize) -> Tensor<2> {
    let joined = if matrices.len() == 1 { matrices.remove(0) } else { Tensor::cat(matrices, axis) };
    if joined.dims()[axis] < length { widen(joined, axis, length) } else { joined }
}
