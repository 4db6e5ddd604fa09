//! Dropout with masks that depend only on seed, step and place, and are computed on the device.
//!
//! A random generator of the device would be shared by its threads. Masks drawn on the host are too large: attention
//! alone drops a billion values a step.

use crate::forward_context::ForwardContext;
use crate::ops::dropped_on_tape;
use burn::tensor::Tensor;

/// In training, sets a share of the values to zero and scales the others by 1/(1-share) (Srivastava et al. 2014, "inverted" dropout).
pub fn dropout<const D: usize>(ctx: &mut ForwardContext<'_>, x: Tensor<D>, share: f64) -> Tensor<D> {
    if share <= 0.0 {
        return x;
    }
    match ctx.dropout_key() {
        Some(key) => dropped_on_tape(ctx, x, key, share),
        None => x,
    }
}
