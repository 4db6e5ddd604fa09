//! Convolutions, max pooling and recurrent layers by cuDNN, directly on the buffers of Burn's tensors.
//!
//! Shapes and formats decide everything before work is submitted. Functions return `None` if cuDNN has no kernel.
//! Tensors must not be on a tape. Images are `[count, channels, height, width]` and lie in memory as their [`Storage`]
//! says. Tensors in another layout or at an unaligned address are copied first.

mod convolution;
mod descriptors;
mod execution;
mod graph;
mod job;
mod library;
mod pool;
mod recurrent;
mod storage;
#[cfg(test)]
pub(super) mod tests;

pub use convolution::{Convolution, convolve, convolve_biased, of_input, of_weight, possible};
pub use pool::{Pool, pool_max, pool_max_back};
pub use recurrent::{Recurrent, Stack, places};
pub use storage::Storage;

use super::{card_of, primitive, tensor};
use burn::tensor::Tensor;

/// Whether cuDNN can be loaded.
pub fn available() -> bool {
    library::dnn().is_some()
}

/// Returns the ordinal of a tensor's GPU, or `None` for another device or a tensor on a tape.
fn card<const D: usize>(tensor: &Tensor<D>) -> Option<usize> {
    card_of(&tensor.device())
}

/// Returns how many windows fit along each axis of an image.
fn fitting(image: [usize; 2], window: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Option<[usize; 2]> {
    let mut count = [0; 2];
    for axis in 0..2 {
        let padded = padding[axis].checked_mul(2)?.checked_add(image[axis])?;
        let steps = padded.checked_sub(window[axis])?.checked_div(stride[axis])?;
        count[axis] = steps.checked_add(1)?;
    }
    Some(count)
}

/// Whether a tensor is not empty and its size fits into an `int`, as some of cuDNN's kernels require.
fn countable(shape: [usize; 4]) -> bool {
    let values = shape.iter().try_fold(1_usize, |values, length| values.checked_mul(*length));
    values.and_then(|values| i32::try_from(values).ok()).is_some_and(|values| values > 0)
}
