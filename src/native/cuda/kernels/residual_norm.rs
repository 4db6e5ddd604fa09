//! Residual layer norm: adds the output of a transformer's layer to the residual, after dropout, and normalises the sum, in one kernel.

use super::compile::Program;
use super::run::{Argument, pair, queue};
use super::{beside, count, fresh, of_format, primitive, ready, room, same_device, single, tensor};
use crate::cuda::Cube;
use crate::cuda::product::begins;
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use std::ffi::CStr;

/// Rows that a block processes at a time, one warp each, as in the kernel.
const WARPS: u32 = 4;
/// The maximum blocks of the backward, each with a part of the gradients of gain and bias: four for each of 132
/// multiprocessors.
const BLOCKS: u32 = 528;
/// The maximum features of a row, so that they fit into a warp's registers.
const FEATURES: usize = 1024;
/// The alignment of addresses in bytes.
const PACK: u32 = 16;

/// The configuration of a residual layer norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResidualNorm {
    /// Post-norm: the new residual is the normalised sum; otherwise (pre-norm) the sum.
    pub post: bool,
    /// Added to the variance.
    pub epsilon: f64,
    /// The key of the dropout.
    pub key: u32,
    /// The dropout rate of the added values; 0 for none.
    pub share: f64,
}

/// The output of a residual layer norm.
pub struct ResidualNormOutput {
    /// The normalised sum, in the format of the added values.
    pub normed: Tensor<2>,
    /// The new residual, in float32.
    pub stream: Tensor<2>,
    /// Saved tensors for the backward pass.
    pub kept: SavedTensors,
}

/// The tensors that the backward of [`residual_norm`] needs.
pub struct SavedTensors {
    sum: Tensor<2>,
    gain: Tensor<1>,
    mean: Tensor<1>,
    inverse: Tensor<1>,
    sizes: Sizes,
}

/// Gradients of the residual, of the added values (in their format), and of gain and bias.
pub struct ResidualNormGradients {
    /// The gradient of the residual, in float32.
    pub x: Tensor<2>,
    /// The gradient of the added values.
    pub added: Tensor<2>,
    /// The gradient of the gain, in float32.
    pub gain: Tensor<1>,
    /// The gradient of the bias, in float32.
    pub bias: Tensor<1>,
}

/// Adds values to a residual x [rows, features] in float32, after dropout as in [`drop`](super::drop), and normalises
/// the sum. All arithmetic is in float32, and each result is rounded once. `None` if the kernels cannot run.
pub fn residual_norm(
    x: Tensor<2>,
    added: Tensor<2>,
    gain: &Tensor<1>,
    bias: &Tensor<1>,
    how: ResidualNorm,
) -> Option<ResidualNormOutput> {
    let vectors = [gain, bias].into_iter().all(|vector| vector.dims()[0] == x.dims()[1]);
    let alike = [gain, bias].into_iter().all(|vector| vector.dtype() == DType::F32 && same_device(vector, &x));
    let sizes = Sizes::of(&x, &added, how).filter(|_| vectors && alike)?;
    let given = [primitive(&x)?, primitive(&added)?, primitive(gain)?, primitive(bias)?];
    drop((x, added));
    let ([normed, sum, mean, inverse], exact) = sizes.forward(given);
    let (normed, sum) = (tensor(normed), tensor(sum));
    let stream = exact.map_or_else(|| Tensor::clone(if how.post { &normed } else { &sum }), tensor);
    let kept = SavedTensors { sum, gain: gain.clone(), mean: tensor(mean), inverse: tensor(inverse), sizes };
    Some(ResidualNormOutput { normed, stream, kept })
}

/// Returns the gradients, from those of the normalised sum, in its format, and of the new residual, in float32, if
/// there is one. `None` if they do not fit the outputs.
pub fn residual_norm_back(
    of_normed: Tensor<2>,
    of_stream: Option<Tensor<2>>,
    kept: SavedTensors,
) -> Option<ResidualNormGradients> {
    let SavedTensors { sum, gain, mean, inverse, sizes } = kept;
    let Sizes { rows, features, dtype, .. } = sizes;
    let fits = |tensor: &Tensor<2>, format| {
        tensor.dims() == [rows, features] && tensor.dtype() == format && same_device(tensor, &sum)
    };
    if !fits(&of_normed, dtype) || !of_stream.as_ref().is_none_or(|stream| fits(stream, DType::F32)) {
        return None;
    }
    let given = [primitive(&sum)?, primitive(&of_normed)?, primitive(&gain)?, primitive(&mean)?, primitive(&inverse)?];
    let stream = beside(of_stream.as_ref())?;
    drop((sum, of_normed, of_stream));
    let [x, added, gain, bias] = sizes.backward(given, stream);
    Some(ResidualNormGradients { x: tensor(x), added: tensor(added), gain: tensor(gain), bias: tensor(bias) })
}

/// The shape of a residual, and its configuration.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    rows: usize,
    features: usize,
    high: u32,
    wide: u32,
    /// The format of the added values and of the normalised sum.
    dtype: DType,
    how: ResidualNorm,
    /// The forward and the backward kernel.
    names: [&'static CStr; 2],
}

impl Sizes {
    /// Returns `None` if the kernels cannot run.
    fn of(x: &Tensor<2>, added: &Tensor<2>, how: ResidualNorm) -> Option<Self> {
        let ([rows, features], dtype) = (x.dims(), added.dtype());
        let (high, wide) = (count(rows)?, count(features)?);
        let names = [
            of_format(dtype, [c"join_f32", c"join_f16", c"join_bf16"])?,
            of_format(dtype, [c"join_back_f32", c"join_back_f16", c"join_back_bf16"])?,
        ];
        // Dropout counts values with 32 bits.
        let counted = rows > 0 && count(rows * features).is_some();
        let packed = features > 0 && features.is_multiple_of(4) && features <= FEATURES;
        let alike = added.dims() == x.dims() && x.dtype() == DType::F32 && same_device(added, x);
        let runs = counted && packed && alike && ready(Program::Norm, x);
        runs.then_some(Self { rows, features, high, wide, dtype, how, names })
    }

    /// Whether the new residual has to be written in addition to the other outputs.
    fn writes_exact(&self) -> bool {
        self.how.post && self.dtype != DType::F32
    }

    fn drop(&self) -> [u64; 2] {
        let ResidualNorm { key, share, .. } = self.how;
        let (threshold, factor) = (single(share * 16_777_216.0), single(1.0 / (1.0 - share)));
        [pair((share > 0.0).into(), key), pair(threshold.to_bits(), factor.to_bits())]
    }

    /// Returns the normalised sum, the sum, mean and inverse standard deviation of each row, and the new residual if it
    /// is separate.
    fn forward(self, given: [Cube; 4]) -> ([Cube; 4], Option<Cube>) {
        let [x, added, gain, bias] = given.map(packed);
        let shape = [self.rows, self.features];
        let (sum, normed) = (room(&x), room(&added));
        let [mean, inverse] = [(); 2].map(|()| fresh(&x, [self.rows], DType::F32));
        let exact = self.writes_exact().then(|| fresh(&x, shape, DType::F32));
        let mut buffers =
            [&x, &added, &gain, &bias, &sum, &normed, &mean, &inverse].map(|tensor| &tensor.handle).to_vec();
        buffers.extend(exact.as_ref().map(|exact| &exact.handle));
        queue(Program::Norm, &x, &buffers, move |places, card| {
            let order = [0, 1, 2, 3, 4, 5, 8, 6, 7];
            let places = order.map(|number: usize| Argument::Address(places.get(number).copied().unwrap_or(0)));
            let drop = self.drop();
            let shape = [Argument::U32(self.high), Argument::U32(self.wide)];
            let rest = [Argument::F32(single(self.how.epsilon)), Argument::Words(&drop)];
            let arguments: Vec<_> = places.into_iter().chain(shape).chain(rest).collect();
            card.launch(self.names[0], [self.high.div_ceil(WARPS), 1], [32 * WARPS, 1], &arguments)
        });
        ([normed, sum, mean, inverse], exact)
    }

    /// Returns the gradients of the residual, of the added values, of gain and bias.
    fn backward(self, given: [Cube; 5], of_stream: Option<Cube>) -> [Cube; 4] {
        let of_stream = of_stream.map(packed);
        let [sum, of_normed, gain, mean, inverse] = given.map(packed);
        let (of_x, of_added) = (room(of_stream.as_ref().unwrap_or(&sum)), room(&of_normed));
        let [of_gain, of_bias] = [(); 2].map(|()| fresh(&sum, [self.features], DType::F32));
        let blocks = self.high.div_ceil(WARPS).min(BLOCKS);
        let parts = usize::try_from(blocks).map_or(self.rows, |blocks| blocks);
        let parts = fresh(&sum, [2, parts, self.features], DType::F32);
        let buffers = [&sum, &of_normed, &gain, &mean, &inverse, &of_x, &of_added, &parts, &of_gain, &of_bias];
        let mut buffers = buffers.map(|tensor| &tensor.handle).to_vec();
        buffers.extend(of_stream.as_ref().map(|stream| &stream.handle));
        queue(Program::Norm, &sum, &buffers, move |places, card| {
            let order = [0, 1, 10, 2, 3, 4, 5, 6, 7];
            let given = order.map(|number: usize| Argument::Address(places.get(number).copied().unwrap_or(0)));
            let drop = self.drop();
            let shape = [self.high, self.wide, self.how.post.into()].map(Argument::U32);
            let arguments: Vec<_> = given.into_iter().chain(shape).chain([Argument::Words(&drop)]).collect();
            card.launch(self.names[1], [blocks, 1], [32 * WARPS, 1], &arguments)?;
            let [parts, of_gain, of_bias] = [7, 8, 9].map(|number| Argument::Address(places[number]));
            let arguments = [parts, of_gain, of_bias, Argument::U32(blocks), Argument::U32(self.wide)];
            card.launch(c"norm_total", [self.wide.div_ceil(32), 2], [32, 8], &arguments)
        });
        [of_x, of_added, of_gain, of_bias]
    }
}

/// Returns a tensor in the layout that the kernels read.
fn packed(tensor: Cube) -> Cube {
    let tensor = into_contiguous(tensor);
    if begins(&tensor) < PACK { tensor.copy() } else { tensor }
}
