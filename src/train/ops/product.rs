//! Matrix products.

use crate::native;
use crate::precision::{Precision, exact};
use burn::tensor::Tensor;

/// The configuration of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// The number format of the factors.
    pub precision: Precision,
    /// Whether each factor is transposed (its last two axes).
    pub transposed: [bool; 2],
    /// Whether the output is in float32. It is then not rounded to the number format of the factors, where the device supports that.
    pub exact: bool,
}

impl Product {
    /// A product of untransposed factors, with an output in their number format.
    pub fn of(precision: Precision) -> Self {
        Self { precision, transposed: [false; 2], exact: false }
    }

    /// With the first factor transposed.
    pub fn first_transposed(self) -> Self {
        Self { transposed: [true, self.transposed[1]], ..self }
    }

    /// With the second factor transposed.
    pub fn second_transposed(self) -> Self {
        Self { transposed: [self.transposed[0], true], ..self }
    }

    /// With an output in float32.
    pub fn exact(self) -> Self {
        Self { exact: true, ..self }
    }
}

/// The batched matrix product over the last two axes, off the tape, with factors rounded to the number format.
pub fn product<const D: usize>(a: Tensor<D>, b: Tensor<D>, how: Product) -> Tensor<D> {
    let Product { precision, transposed: [transpose_lhs, transpose_rhs], exact } = how;
    let (a, b) = (precision.round(a), precision.round(b));
    let options = native::Options { transpose_lhs, transpose_rhs, tf32: precision == Precision::Fp32, exact };
    native::matmul(&a, &b, options).unwrap_or_else(|| reference(a, b, how))
}

fn reference<const D: usize>(a: Tensor<D>, b: Tensor<D>, how: Product) -> Tensor<D> {
    let swapped = |matrix: Tensor<D>, swap: bool| if swap { matrix.swap_dims(D - 2, D - 1) } else { matrix };
    let [first, second] = how.transposed;
    let product = aligned(swapped(a, first), swapped(b, second), how.precision.lanes());
    if how.exact { exact(product) } else { product }
}

/// The product, with rows padded to a multiple of 16 bytes. Burn reuses a kernel tuned for aligned rows for other rows
/// of about the same size, where it fails to launch on CUDA: "TMA requires strides to be aligned to 16 bytes"
/// (cubek-matmul 0.3.0-pre.3).
fn aligned<const D: usize>(a: Tensor<D>, b: Tensor<D>, lanes: usize) -> Tensor<D> {
    let columns = b.dims()[D - 1];
    let widened = widen(a, D - 1, lanes).matmul(widen(widen(b, D - 2, lanes), D - 1, lanes));
    if widened.dims()[D - 1] == columns { widened } else { widened.narrow(D - 1, 0, columns) }
}

/// Pads a dimension with zeros to a multiple of `lanes`.
pub fn widen<const D: usize>(matrix: Tensor<D>, dim: usize, lanes: usize) -> Tensor<D> {
    let mut zeros = matrix.dims();
    zeros[dim] = zeros[dim].next_multiple_of(lanes) - zeros[dim];
    if zeros[dim] == 0 {
        return matrix;
    }
    let zeros = Tensor::zeros(zeros, (&matrix.device(), matrix.dtype()));
    Tensor::cat(vec![matrix, zeros], dim)
}
