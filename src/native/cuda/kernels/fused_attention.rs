//! Attention without stored scores, and its backward (Dao 2023, "FlashAttention-2", section 3.1).
//!
//! The backward computes the scores twice: for the gradient of queries, and for those of keys and values. Thus no sum
//! depends on the order of thread blocks, and results are the same every time.

use super::attention::AttentionConfig;
use super::compile::{Program, attribute};
use super::run::{Argument, pair, queue_some};
use super::{count, fresh, primitive, ready, tensor};
use crate::cuda::layout::packed;
use crate::cuda::plan::Format;
use crate::cuda::{Cube, card_of, format};
use burn::tensor::{DType, Tensor};
use std::f32::consts::LOG2_E;

/// As in the kernels: features of a head, queries or keys of a block, and its threads.
const HEAD: usize = 64;
const TILE: usize = 64;
const THREADS: u32 = 128;
/// The maximum second dimension of a grid.
const MOST_DOWN: usize = 65_535;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`, and the first version whose tensor cores multiply bfloat16.
const MAJOR: i32 = 75;
const AMPERE: i32 = 8;

/// The sizes of a layer of self-attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// The number of sequences in a batch.
    pub rows: usize,
    /// The number of tokens in a sequence.
    pub width: usize,
    /// The number of heads.
    pub heads: usize,
    /// Features per head.
    pub features: usize,
}

/// The tensors that [`fused_attention`] keeps for its backward pass.
#[derive(Debug)]
pub struct SavedAttention {
    task: Task,
    qkv: Cube,
    output: Cube,
    /// The base-2 logarithm of the sum of each row's exponentiated scores: [rows·heads·width], in float32.
    log_sums: Cube,
    /// A bit per attention weight, 1 if dropout kept it: [rows·heads·width·tiles, 2]. `None` without dropout.
    mask: Option<Cube>,
}

/// Self-attention of queries, keys and values [rows·width, 3·heads·features], side by side in this order, to
/// [rows·width, heads·features]. Scores are scaled by 1/√features. Products take float16 or bfloat16 and sum in
/// float32; the softmax is in float32. Dropout acts on attention weights as [`drop`](fn@super::drop) does on a tensor
/// [rows, heads, width, width].
///
/// `None` if the kernels cannot run:
/// - on other devices, and on GPUs before Ampere;
/// - for heads with other than 64 features, and in float32;
/// - with more than 65,535 heads in all sequences together;
/// - with dropout and more than 2³² attention weights.
pub fn fused_attention(
    qkv: &Tensor<2>,
    shape: AttentionShape,
    config: AttentionConfig,
) -> Option<(Tensor<2>, SavedAttention)> {
    let task = Task::of(qkv, shape, config)?;
    let qkv = packed(primitive(qkv)?);
    let AttentionShape { rows, width, heads, features } = shape;
    let all = rows * heads * width;
    let output = fresh(&qkv, [rows * width, heads * features], qkv.dtype);
    let log_sums = fresh(&qkv, [all], DType::F32);
    let mask = task.dropped.map(|_| fresh(&qkv, [all * width.div_ceil(TILE), 2], DType::U32));
    let tensors = [Some(&qkv), Some(&output), Some(&log_sums), mask.as_ref()];
    queue_some(task.program(), &qkv, &tensors, move |places, card| {
        let words = task.words();
        let mut arguments: Vec<_> = places.into_iter().map(Argument::Address).collect();
        arguments.push(Argument::Words(&words));
        card.launch(c"attention", task.blocks, [THREADS, 1], &arguments)
    });
    Some((tensor(output.clone()), SavedAttention { task, qkv, output, log_sums, mask }))
}

impl SavedAttention {
    /// Returns the gradient of queries, keys and values, in their shape and format, from that of the output. `None` if
    /// the latter differs from the output in shape or format.
    pub fn backward(self, gradient: &Tensor<2>) -> Option<Tensor<2>> {
        let Self { task, qkv, output, log_sums, mask } = self;
        let dy = packed(primitive(gradient)?);
        if dy.meta.shape() != output.meta.shape() || dy.dtype != output.dtype || dy.device != output.device {
            return None;
        }
        // Per row of scores, the dot product of the output and its gradient.
        let dots = fresh(&qkv, log_sums.meta.shape().clone(), DType::F32);
        let result = fresh(&qkv, qkv.meta.shape().clone(), qkv.dtype);
        let tensors = [&qkv, &output, &dy, &log_sums, &dots, &result].map(Some);
        let tensors: Vec<_> = tensors.into_iter().chain([mask.as_ref()]).collect();
        queue_some(task.program(), &qkv, &tensors, move |places, card| {
            let [qkv, output, dy, log_sums, dots, result, mask] = places[..] else { unreachable!("seven tensors") };
            let words = task.words();
            let launch = |name, addresses: &[u64]| {
                let mut arguments: Vec<_> = addresses.iter().copied().map(Argument::Address).collect();
                arguments.push(Argument::Words(&words));
                card.launch(name, task.blocks, [THREADS, 1], &arguments)
            };
            launch(c"attention_back_queries", &[qkv, output, dy, log_sums, mask, dots, result])?;
            launch(c"attention_back_keys", &[qkv, dy, log_sums, mask, dots, result])
        });
        Some(tensor(result))
    }
}

/// The sizes and dropout of a layer.
#[derive(Clone, Copy, Debug)]
struct Task {
    format: Format,
    width: u32,
    heads: u32,
    /// Tiles per sequence, and heads of all sequences.
    blocks: [u32; 2],
    causal: bool,
    /// The dropout's key, its threshold, and the factor of kept weights.
    dropped: Option<(u32, f32, f32)>,
}

impl Task {
    /// Returns `None` if the kernels cannot run.
    fn of(qkv: &Tensor<2>, shape: AttentionShape, config: AttentionConfig) -> Option<Self> {
        let AttentionShape { rows, width, heads, features } = shape;
        let format = format(qkv.dtype()).filter(|format| *format != Format::F32)?;
        let fits = features == HEAD && qkv.dims() == [rows * width, 3 * heads * features] && rows * heads * width > 0;
        // Dropout counts attention weights with 32 bits.
        let counted = config.dropped().is_none() || count(rows * heads * width * width).is_some();
        if !fits || !counted || rows * heads > MOST_DOWN || attribute(card_of(&qkv.device())?, MAJOR).ok()? < AMPERE {
            return None;
        }
        if !ready(Program::FusedAttention(format), qkv) {
            return None;
        }
        Some(Self {
            format,
            width: count(width)?,
            heads: count(heads)?,
            blocks: [count(width.div_ceil(TILE))?, count(rows * heads)?],
            causal: config.causal,
            dropped: config.dropped(),
        })
    }

    fn program(&self) -> Program {
        Program::FusedAttention(self.format)
    }

    fn words(&self) -> [u64; 4] {
        let (key, threshold, factor) = self.dropped.unwrap_or_default();
        // 1/√64, times log2(e) because the softmax uses powers of two.
        let scale = 0.125 * LOG2_E;
        [
            pair(self.width, self.heads),
            pair(self.causal.into(), scale.to_bits()),
            pair(self.dropped.is_some().into(), key),
            pair(threshold.to_bits(), factor.to_bits()),
        ]
    }
}
