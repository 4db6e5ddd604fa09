//! Convolutions, max pooling and recurrent layers by cuDNN, on the very buffers of Burn's tensors.
//!
//! All is decided from shapes and formats before anything is asked of the card. What cuDNN has no kernel for is answered by `None`. Tensors are those of a device without a tape; images are `[count, channels, height, width]` and lie in memory
//! as their [`Storage`] says. What lies otherwise, or begins at an odd address, is copied first.

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
mod tests;

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

/// The ordinal of the card that a tensor lies on; none for another device, and where there is a tape.
fn card<const D: usize>(tensor: &Tensor<D>) -> Option<usize> {
    card_of(&tensor.device())
}

/// How many windows fit along each axis of an image.
fn fitting(image: [usize; 2], window: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Option<[usize; 2]> {
    let mut count = [0; 2];
    for axis in 0..2 {
        let padded = padding[axis].checked_mul(2)?.checked_add(image[axis])?;
        let steps = padded.checked_sub(window[axis])?.checked_div(stride[axis])?;
        count[axis] = steps.checked_add(1)?;
    }
    Some(count)
}

/// Whether there is something in a tensor, and not more than an `int` can count: cuDNN's kernels are not all made for more.
fn countable(shape: [usize; 4]) -> bool {
    let values = shape.iter().try_fold(1_usize, |values, length| values.checked_mul(*length));
    values.and_then(|values| i32::try_from(values).ok()).is_some_and(|values| values > 0)
}
