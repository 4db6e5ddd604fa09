//! Affine maps as one operation forward and one backward, by cuBLASLt products that add the bias and sum its gradient
//! themselves.

use super::compile::Program;
use super::packing::{PARTS, pack, row_sums};
use super::{primitive, ready, same_device, tensor};
use crate::cuda::plan::Role;
use crate::cuda::product::{matmul, matmul_bias, matmul_sums, shaped};
use crate::cuda::{Cube, Options, available, format};
use burn::tensor::{DType, FloatDType, Tensor};
use burn_cubecl::kernel::{into_contiguous, slice};

/// The configuration of affine maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affine {
    /// The shape of each weight.
    pub shape: [usize; 2],
    /// Whether the weight is a table [out, in], for a single map. Otherwise weights are [in, out].
    pub table: bool,
    /// The columns of the output: those of all maps side by side, and zero padding.
    pub columns: usize,
    /// Whether float32 factors may be rounded to TF32.
    pub tf32: bool,
}

/// The output of affine maps, with the saved tensors.
pub struct Mapped {
    /// The output [rows, columns], in the format of x.
    pub y: Tensor<2>,
    /// The saved tensors.
    pub kept: SavedTensors,
}

/// The tensors that the backward pass needs.
pub struct SavedTensors {
    x: Tensor<2>,
    /// All weights, flat.
    weight: Tensor<1>,
    sizes: Sizes,
}

/// The gradients of affine maps.
pub struct AffineGradients {
    /// The gradient of x, if requested.
    pub x: Option<Tensor<2>>,
    /// The gradient of each weight, flat, in float32, if requested.
    pub weights: Vec<Tensor<1>>,
    /// The gradient of each bias, in float32, if requested.
    pub biases: Vec<Tensor<1>>,
}

/// Applies maps of one shape side by side to x [rows, in]: x·W + b, with flat weights and biases. x has the format of
/// the products.
///
/// Weights and biases are in float32 and rounded to the format of x; those of a single map may be in that format. Each
/// weight has a bias, or none has. Sums are in float32 and rounded once.
///
/// `None` if the kernels cannot run.
pub fn affine(x: &Tensor<2>, weights: &[Tensor<1>], biases: &[Tensor<1>], how: Affine) -> Option<Mapped> {
    let sizes = Sizes::of(x, weights, biases, how)?;
    let parameters: Vec<Cube> = weights.iter().chain(biases).map(primitive).collect::<Option<_>>()?;
    let (y, laid) = sizes.forward(primitive(x)?, parameters);
    let weight = laid.map_or_else(|| weights[0].clone(), tensor);
    Some(Mapped { y: tensor(y), kept: SavedTensors { x: x.clone(), weight, sizes } })
}

/// Returns the gradients, from that of the output, in its format: of x in this format if one is given, and of weights
/// and biases if requested. `None` if the gradient does not fit the output.
pub fn affine_back(
    dy: Tensor<2>,
    kept: SavedTensors,
    x: Option<FloatDType>,
    parameters: bool,
) -> Option<AffineGradients> {
    let SavedTensors { x: of, weight, sizes } = kept;
    if dy.dims() != [sizes.rows, sizes.columns] || dy.dtype() != sizes.dtype || !same_device(&dy, &of) {
        return None;
    }
    let given = [primitive(&dy)?, primitive(&of)?, primitive(&weight)?];
    drop((dy, of, weight));
    Some(sizes.backward(given, x.map(DType::from), parameters))
}

/// The shape of the maps and their number formats.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    rows: usize,
    /// The number of input features of one map; below, of output features.
    inputs: usize,
    outputs: usize,
    /// The number of maps side by side.
    parts: usize,
    columns: usize,
    biased: bool,
    table: bool,
    tf32: bool,
    /// The format of the products.
    dtype: DType,
    /// The format of the parameters.
    given: DType,
}

impl Sizes {
    /// Returns `None` if the maps cannot be computed here.
    fn of(x: &Tensor<2>, weights: &[Tensor<1>], biases: &[Tensor<1>], how: Affine) -> Option<Self> {
        let Affine { shape, table, columns, tf32 } = how;
        let ([rows, inputs], dtype, parts) = (x.dims(), x.dtype(), weights.len());
        let [from, outputs] = if table { [shape[1], shape[0]] } else { shape };
        let given = weights.first()?.dtype();
        let alike = |vectors: &[Tensor<1>], len| {
            let fits = |vector: &Tensor<1>| vector.dims() == [len] && vector.dtype() == given;
            vectors.iter().all(|vector| fits(vector) && same_device(vector, x))
        };
        let fit = from == inputs
            && (given == DType::F32 || given == dtype && parts == 1 && columns == outputs)
            && alike(weights, inputs * outputs)
            && alike(biases, outputs)
            && (biases.is_empty() || biases.len() == parts)
            && (1..=if table { 1 } else { PARTS }).contains(&parts)
            && columns >= parts * outputs
            && ![rows, inputs, outputs].contains(&0)
            && [rows, inputs, columns].iter().all(|len| i32::try_from(*len).is_ok());
        let runs = fit && format(dtype).is_some() && ready(Program::Affine, x) && available();
        runs.then_some(Self {
            rows,
            inputs,
            outputs,
            parts,
            columns,
            biased: !biases.is_empty(),
            table,
            tf32,
            dtype,
            given,
        })
    }

    /// Whether the parameters can be used without packing.
    fn plain(&self) -> bool {
        self.dtype == self.given && self.parts == 1 && self.columns == self.outputs
    }

    /// Returns the shape of a weight.
    fn weight(&self) -> [usize; 2] {
        if self.table { [self.outputs, self.inputs] } else { [self.inputs, self.outputs] }
    }

    /// Returns the shape of all weights together.
    fn laid(&self) -> [usize; 2] {
        if self.table { [self.columns, self.inputs] } else { [self.inputs, self.columns] }
    }

    fn options(&self, transpose_lhs: bool, transpose_rhs: bool) -> Options {
        Options { transpose_lhs, transpose_rhs, tf32: self.tf32, exact: false }
    }

    /// Returns the output, and the packed weights, flat, if packing was necessary.
    fn forward(self, x: Cube, parameters: Vec<Cube>) -> (Cube, Option<Cube>) {
        let parameters: Vec<Cube> = parameters.into_iter().map(into_contiguous).collect();
        let (weights, biases) = parameters.split_at(self.parts);
        let (weight, bias) = if self.plain() {
            (shaped(&weights[0], self.laid()), biases.first().cloned())
        } else {
            let bias = self.biased.then(|| laid(biases, [1, self.outputs], [1, self.columns], self.dtype));
            (laid(weights, self.weight(), self.laid(), self.dtype), bias)
        };
        let options = self.options(false, self.table);
        let y = match bias {
            Some(bias) => matmul_bias(x, weight.clone(), &bias, self.dtype, options),
            None => matmul(x, weight.clone(), self.dtype, options),
        };
        (y, (!self.plain()).then(|| flat(&weight)))
    }

    /// Returns the gradients of x in this format, of the weights and of the biases.
    fn backward(self, given: [Cube; 3], x: Option<DType>, parameters: bool) -> AffineGradients {
        let [dy, of, weight] = given.map(into_contiguous);
        let x = x.map(|dtype| {
            let weight = shaped(&weight, self.laid());
            tensor(matmul(dy.clone(), weight, dtype, self.options(false, !self.table)))
        });
        let (mut of_weights, mut biases) = (Vec::new(), Vec::new());
        if parameters {
            let (weights, sums) = self.of_weights(&dy, of);
            of_weights.extend(weights.into_iter().map(|weight| tensor(flat(&into_contiguous(weight)))));
            if self.biased {
                let sums = sums.unwrap_or_else(|| summed(&dy));
                biases.extend((0..self.parts).map(|part| tensor(self.of_bias(&sums, part))));
            }
        }
        AffineGradients { x, weights: of_weights, biases }
    }

    /// Returns the gradient of each weight. Also returns the sums of the output's gradient over its rows if the
    /// products can compute them.
    fn of_weights(&self, dy: &Cube, x: Cube) -> (Vec<Cube>, Option<Cube>) {
        let (lhs, rhs, role) =
            if self.table { (dy.clone(), x, Role::SumsOfFirst) } else { (x, dy.clone(), Role::SumsOfSecond) };
        let (all, sums) = if self.biased {
            matmul_sums(lhs, rhs, role, DType::F32, self.options(true, false))
        } else {
            (matmul(lhs, rhs, DType::F32, self.options(true, false)), None)
        };
        if self.parts == 1 && self.columns == self.outputs {
            return (vec![all], sums);
        }
        let [high, wide] = self.weight();
        let part = |part: usize| {
            let range = part * self.outputs..(part + 1) * self.outputs;
            slice(all.clone(), &if self.table { [range, 0..wide] } else { [0..high, range] })
        };
        ((0..self.parts).map(part).collect(), sums)
    }

    /// Returns the gradient of the bias of one map.
    fn of_bias(&self, sums: &Cube, part: usize) -> Cube {
        if self.parts == 1 && self.columns == self.outputs {
            return sums.clone();
        }
        slice(sums.clone(), std::slice::from_ref(&(part * self.outputs..(part + 1) * self.outputs)))
    }
}

fn laid(sources: &[Cube], source: [usize; 2], shape: [usize; 2], dtype: DType) -> Cube {
    match pack(sources, source, shape, dtype) {
        Some(laid) => laid,
        None => unreachable!("sizes were looked at before"),
    }
}

/// Returns the values of a contiguous tensor as a vector.
fn flat(tensor: &Cube) -> Cube {
    shaped(tensor, [tensor.meta.num_elements()])
}

fn summed(dy: &Cube) -> Cube {
    match row_sums(dy) {
        Some(sums) => sums,
        None => unreachable!("sizes were looked at before"),
    }
}

#[cfg(test)]
mod tests;
