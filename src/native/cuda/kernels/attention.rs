//! The softmax of attention, between its two products.

use super::compile::Program;
use super::run::{Argument, aligned, pair, queue};
use super::{count, fresh, own, primitive, ready, room, same_device, single, tensor};
use burn::tensor::{DType, FloatDType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use std::ffi::CStr;

/// The factor of scores in the kernels: scores arrive already scaled.
const SCALE: f32 = 1.0;
/// Rows of a block, one warp each, as in the kernel.
const WARPS: u32 = 8;

/// The configuration of the attention softmax: how scores become attention weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Causal mask: a position does not attend to later ones.
    pub causal: bool,
    /// The key of the dropout.
    pub key: u32,
    /// The dropout rate of attention weights; 0 for none.
    pub share: f64,
}

impl AttentionConfig {
    /// Returns the dropout's key, its threshold as in the kernels, and the factor of kept weights. `None` without
    /// dropout.
    pub(super) fn dropped(self) -> Option<(u32, f32, f32)> {
        let factor = single(1.0 / (1.0 - self.share));
        (self.share > 0.0).then_some((self.key, single(self.share * 16_777_216.0), factor))
    }
}

/// Computes the softmax over the last axis of scores [batch, heads, width, width], in float32 and rounded once to
/// `into`, with dropout as in [`drop`](fn@super::drop). Also returns, for the backward pass, the maximum and the
/// inverse sum of each row, `[batch·heads·width, 2]`.
///
/// `None` if the kernels cannot run.
pub fn attention_softmax(
    scores: Tensor<4>,
    config: AttentionConfig,
    into: FloatDType,
) -> Option<(Tensor<4>, Tensor<2>)> {
    let (dims, into) = (scores.dims(), DType::from(into));
    let [name, _] = kernels(scores.dtype(), into)?;
    let layout = Layout::of(&scores, config)?;
    let input = primitive(&scores)?;
    drop(scores);
    let [batch, heads, height, _] = dims;
    let x = into_contiguous(input);
    let y = if into == x.dtype { room(&x) } else { fresh(&x, dims, into) };
    let rest = fresh(&x, [batch * heads * height, 2], DType::F32);
    queue(Program::Attention, &x, &[&x.handle, &y.handle, &rest.handle], move |places, card| {
        let words = layout.words();
        let arguments = [
            Argument::Address(places[0]),
            Argument::Address(places[1]),
            Argument::Address(places[2]),
            Argument::Words(&words),
            Argument::U32(layout.packed(&places[..2])),
        ];
        card.launch(name, [layout.rows.div_ceil(WARPS), 1], [32 * WARPS, 1], &arguments)
    });
    Some((tensor(y), tensor(rest)))
}

/// Returns the gradient of the scores, in their format, from that of the attention weights, `dy`, in theirs. `rest` is
/// the second result of the forward pass, and `config` must be the same. `None` if the kernels cannot run.
pub fn attention_softmax_back(
    scores: Tensor<4>,
    dy: Tensor<4>,
    rest: &Tensor<2>,
    config: AttentionConfig,
) -> Option<Tensor<4>> {
    let dims @ [batch, heads, height, _] = scores.dims();
    let [_, name] = kernels(scores.dtype(), dy.dtype())?;
    let layout = Layout::of(&scores, config)?;
    let rest_fits = rest.dims() == [batch * heads * height, 2] && rest.dtype() == DType::F32;
    if !rest_fits || dy.dims() != dims || !same_device(rest, &scores) || !same_device(&dy, &scores) {
        return None;
    }
    let given = [primitive(&scores)?, primitive(&dy)?, primitive(rest)?];
    drop((scores, dy));
    let [x, dy, rest] = given.map(into_contiguous);
    let dx = if dy.dtype == x.dtype && own(&dy) { dy.clone() } else { room(&x) };
    let buffers = [&x.handle, &dy.handle, &rest.handle, &dx.handle];
    queue(Program::Attention, &x, &buffers, move |places, card| {
        let words = layout.words();
        let packed = layout.packed(&[places[0], places[1], places[3]]);
        let mut arguments: Vec<_> = places[..4].iter().map(|place| Argument::Address(*place)).collect();
        arguments.extend([Argument::Words(&words), Argument::U32(packed)]);
        card.launch(name, [layout.rows.div_ceil(WARPS), 1], [32 * WARPS, 1], &arguments)
    });
    Some(tensor(dx))
}

/// Returns the forward and backward kernels for these formats.
fn kernels(from: DType, into: DType) -> Option<[&'static CStr; 2]> {
    match (from, into) {
        (DType::F32, DType::F32) => Some([c"attend_f32_f32", c"attend_back_f32_f32"]),
        (DType::F32, DType::F16) => Some([c"attend_f32_f16", c"attend_back_f32_f16"]),
        (DType::F32, DType::BF16) => Some([c"attend_f32_bf16", c"attend_back_f32_bf16"]),
        (DType::F16, DType::F16) => Some([c"attend_f16_f16", c"attend_back_f16_f16"]),
        (DType::BF16, DType::BF16) => Some([c"attend_bf16_bf16", c"attend_back_bf16_bf16"]),
        _ => None,
    }
}

/// The kernels' parameters besides their tensors.
#[derive(Clone, Copy)]
struct Layout {
    rows: u32,
    width: u32,
    causal: bool,
    dropped: Option<(u32, f32, f32)>,
}

impl Layout {
    /// Returns `None` if the kernels cannot run.
    fn of(scores: &Tensor<4>, config: AttentionConfig) -> Option<Self> {
        let [batch, heads, height, width] = scores.dims();
        let all = count(scores.shape().num_elements())?;
        // Dropout counts values with 32 bits, and the loops over a row count slightly beyond its end.
        if all == 0 || height != width || !ready(Program::Attention, scores) {
            return None;
        }
        Some(Self {
            rows: count(batch * heads * height)?,
            width: count(width)?,
            causal: config.causal,
            dropped: config.dropped(),
        })
    }

    fn words(&self) -> [u64; 4] {
        let (key, threshold, factor) = self.dropped.unwrap_or_default();
        [
            pair(self.rows, self.width),
            pair(self.causal.into(), SCALE.to_bits()),
            pair(self.dropped.is_some().into(), key),
            pair(threshold.to_bits(), factor.to_bits()),
        ]
    }

    fn packed(&self, places: &[u64]) -> u32 {
        (aligned(places, 16) && self.width.is_multiple_of(4)).into()
    }
}
