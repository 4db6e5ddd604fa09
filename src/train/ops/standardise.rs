//! Standardisation of images.

use crate::native::kernels;
use burn::tensor::{FloatDType, Int, Tensor};

/// Converts bytes of images [rows, 3, height, width] to float32: (byte / 255 − mean) / deviation, with a mean and a
/// standard deviation for each channel. Rounding is that of torchvision's `ToTensor` and `Normalize`.
pub fn standardise(bytes: Tensor<4, Int>, means: [f32; 3], deviations: [f32; 3]) -> Tensor<4> {
    if let Some(images) = kernels::standardise(&bytes, means, deviations) {
        return images;
    }
    let device = bytes.device();
    let channels = |values: [f32; 3]| Tensor::<1>::from_data(values, &device).reshape([1, 3, 1, 1]);
    (bytes.cast(FloatDType::F32) / 255.0 - channels(means)) / channels(deviations)
}
