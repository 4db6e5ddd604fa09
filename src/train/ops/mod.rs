//! The operations that layers, optimisers and buckets use: the only interface between them and the compute backends.
//!
//! Each operation has two implementations. NVIDIA's libraries and our own kernels (`native`) are tried first. They
//! return `None` if they are not available, on the CPU, and for shapes and formats that they do not support. Then
//! Burn's operations are used (`reference` in each file), which run on every device and are the reference for the
//! kernels. Callers do not see which implementation was used.
//!
//! Knows tensors, number formats and the tape, and nothing of the names of parameters.

mod affine;
mod attention;
mod batch_norm;
mod bucket;
mod convolution;
mod cross_entropy;
mod curve;
mod dropout;
mod frozen_norm;
mod gather;
mod gradients;
mod layer_norm;
mod place_loss;
mod pool;
mod product;
mod recurrent;
mod residual_norm;
mod roi_align;
mod softmax;
mod standardise;
mod update;
mod upsample;

pub use crate::native::dnn::{Recurrent, Stack};
pub use affine::{Affine, AffineGradients, affine, folded_affine};
pub use attention::{AttentionShape, attention};
pub use batch_norm::{Activation, After, batch_norm, scale_and_shift};
pub use bucket::{in_bucket, out_of_bucket};
pub use convolution::{Filters, Window, concat_channels, convolve, convolve_residual_relu, forked, stored_nhwc};
pub use cross_entropy::{cross_entropy_sum, picked, possible, summed};
pub use curve::{Curve, curve, curve_back};
pub use dropout::{dropped, dropped_on_tape};
pub use frozen_norm::{FrozenSaved, frozen_norm};
pub use gather::gathered;
pub use gradients::{clipped, scaled, square_sum};
pub use layer_norm::layer_norm;
pub use place_loss::{PlaceTargets, class_logits, decoded, objectness, place_loss, place_scores};
pub use pool::{max_pool, mean_pixel};
pub use product::{Product, product};
#[cfg(test)]
pub use recurrent::SavedStates;
pub use recurrent::{Gates, Unit, Weights};
pub use residual_norm::{ResidualNorm, residual_norm};
pub use roi_align::{Roi, roi_align};
pub use softmax::AttentionConfig;
pub use standardise::standardise;
pub use update::{Decay, State, Step, decayed, update};
pub use upsample::{doubled, halved, in_format};

use burn::tensor::Tensor;

/// Concatenates tensors.
pub fn joined(mut tensors: Vec<Tensor<1>>) -> Tensor<1> {
    if tensors.len() == 1 { tensors.remove(0) } else { Tensor::cat(tensors, 0) }
}

/// The result of a backward pass by the implementation of its forward pass. Panics if there is none, as a part of the
/// gradient would silently be missing.
fn computed<T>(found: Option<T>) -> T {
    match found {
        Some(gradient) => gradient,
        None => panic!("what was possible in the forward pass is not in the backward pass"),
    }
}
