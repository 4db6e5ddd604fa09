//! Our own CUDA kernels for operations that take Burn several passes, compiled on the machine that runs them.
//!
//! Each function computes what the tensor operations in its description compute. It returns `None` if there is no
//! compiler, for other devices, for tensors on a tape, and for unsupported formats. Some functions return a closure
//! that takes the tensors and may overwrite them in place, so these should have no other owner. Results are the same
//! every time.

mod activation;
pub mod affine;
mod attention;
mod batch_norm;
mod bias;
pub(super) mod bucket;
mod compile;
mod dropout;
mod embedding;
mod frozen_norm;
mod fused_attention;
mod gradients;
mod loss;
mod nhwc;
mod norm;
mod packing;
mod place_loss;
mod recurrent;
pub mod residual_norm;
mod roi_align;
mod run;
mod standardise;
mod transpose;
mod update;
mod upsample;

#[cfg(test)]
mod tests;

pub use activation::{Curve, curve, curve_back};
pub use attention::{AttentionConfig, attention_softmax, attention_softmax_back};
pub use batch_norm::{BatchGradients, BatchNorm, BatchNormed, batch_norm, batch_norm_answer, batch_norm_back};
pub use bias::{add_bias, add_bias_back};
pub use bucket::{gathered, scattered};
pub use dropout::drop;
pub use embedding::embedding_back;
pub use frozen_norm::{FrozenNorm, frozen_norm_back};
pub use fused_attention::{AttentionShape, SavedAttention, fused_attention};
pub(super) use gradients::copied;
pub use gradients::{Factor, multiplied, square_sum};
pub use loss::{RowStatistics, cross_entropy, cross_entropy_back};
pub use nhwc::{Windows, add_bias_back_nhwc, pool_max_nhwc};
pub use norm::{Normed, layer_norm, layer_norm_back};
pub use place_loss::{PlaceTargets, place_losses, place_losses_back, place_scores};
pub use recurrent::{Recurrence, SavedStates, Unit, recurrent, recurrent_back};
pub use roi_align::{roi_align, roi_align_back};
pub use standardise::standardise;
pub use transpose::{Transposition, transpose, transposes};
pub use update::{Decay, State, Step, Updated, update};
pub use upsample::{upsample, upsample_back};

use crate::cuda::{Cube, beside, card_of, owned, primitive, tensor, whole};
use crate::number::single;
use burn::tensor::{DType, Tensor};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use compile::image;
pub(super) use compile::{Program, attribute};
pub(super) use run::{Argument, Launcher};
use std::ffi::CStr;

/// Whether the kernels of a program can run on the device of this tensor.
fn ready<const D: usize>(program: Program, tensor: &Tensor<D>) -> bool {
    card_of(&tensor.device()).is_some_and(|card| image(program, card).is_some())
}

fn same_device<const D: usize, const E: usize>(one: &Tensor<D>, other: &Tensor<E>) -> bool {
    one.device() == other.device()
}

/// Selects one of three kernels by the format.
fn of_format(dtype: DType, [f32, f16, bf16]: [&'static CStr; 3]) -> Option<&'static CStr> {
    match dtype {
        DType::F32 => Some(f32),
        DType::F16 => Some(f16),
        DType::BF16 => Some(bf16),
        _ => None,
    }
}

/// Whether a tensor may be overwritten.
fn own(tensor: &Cube) -> bool {
    tensor.can_mut() && tensor.is_nonoverlapping()
}

/// Returns memory for the result of a pointwise kernel: the tensor's own if it is not shared.
pub(super) fn room(tensor: &Cube) -> Cube {
    if own(tensor) { tensor.clone() } else { fresh(tensor, tensor.meta.shape().clone(), tensor.dtype) }
}

/// Allocates memory on the device of a tensor.
fn fresh(like: &Cube, shape: impl Into<burn::backend::Shape>, dtype: DType) -> Cube {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape.into(), dtype)
}

/// Converts a length to the kernels' type.
fn count(len: usize) -> Option<u32> {
    u32::try_from(len).ok()
}
