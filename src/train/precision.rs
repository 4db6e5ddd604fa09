//! Number formats of the arithmetic, and loss scaling, which keeps small gradients in half precision.
//!
//! Products of matrices and convolutions use the number format. Parameters, gradients, norms, softmax, losses and
//! reductions are always float32 (Micikevicius et al. 2018, "Mixed precision training", section 3).

use burn::tensor::{DType, FloatDType, Tensor};

/// The number format of matrix products and convolutions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// float32; a GPU may round the factors to TF32.
    #[default]
    Fp32,
    /// IEEE binary16, with a scaled loss.
    Fp16,
    /// bfloat16.
    Bf16,
}

impl Precision {
    /// Returns the name in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
        }
    }

    /// Returns the format of that name.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Fp32, Self::Fp16, Self::Bf16].into_iter().find(|precision| precision.name() == name)
    }

    /// Returns Burn's type of the format.
    pub fn format(self) -> FloatDType {
        match self {
            Self::Fp32 => FloatDType::F32,
            Self::Fp16 => FloatDType::F16,
            Self::Bf16 => FloatDType::BF16,
        }
    }

    /// Rounds to the format; differentiable. Does nothing if the tensor has the format already.
    pub fn round<const D: usize>(self, tensor: Tensor<D>) -> Tensor<D> {
        if tensor.dtype() == DType::from(self.format()) { tensor } else { tensor.cast(self.format()) }
    }

    /// Returns the number of values in 16 bytes.
    pub fn lanes(self) -> usize {
        if self == Self::Fp32 { 4 } else { 8 }
    }
}

/// Converts back to float32.
pub fn exact<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    Precision::Fp32.round(tensor)
}

/// Dynamic loss scaling: a loss is multiplied by a factor so that its gradients do not vanish in binary16 (the same
/// paper, section 3.2; constants of PyTorch's `GradScaler`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaler {
    scale: f64,
    good_steps: u32,
    skipped: u64,
}

const FIRST_SCALE: f64 = 65_536.0;
const GROWTH_INTERVAL: u32 = 2000;
/// A larger scale would make the scaled loss exceed float32.
const LARGEST_SCALE: f64 = 1.0e30;

impl Scaler {
    /// A scaler if the format needs one.
    pub fn of(precision: Precision) -> Option<Self> {
        (precision == Precision::Fp16).then_some(Self { scale: FIRST_SCALE, good_steps: 0, skipped: 0 })
    }

    /// Returns the factor of the next step.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Returns the number of steps that were skipped because a gradient was not finite.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Updates the scale by whether all gradients of a step were finite. Returns whether to apply the step.
    pub fn take(&mut self, finite: bool) -> bool {
        if finite {
            self.good_steps += 1;
            if self.good_steps == GROWTH_INTERVAL {
                self.good_steps = 0;
                self.scale = (self.scale * 2.0).min(LARGEST_SCALE);
            }
        } else {
            self.good_steps = 0;
            self.skipped += 1;
            self.scale = (self.scale / 2.0).max(1.0);
        }
        finite
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn names_are_those_of_the_manifest() {
        for name in ["fp32", "fp16", "bf16"] {
            assert_eq!(Precision::of(name).map(Precision::name), Some(name));
        }
        assert_eq!(Precision::of("fp8"), None);
    }

    #[test]
    fn formats_round_as_they_should_and_gradients_come_back_in_float32() {
        let third = |precision: Precision| {
            let tensor = Tensor::<1>::from_inner(Tensor::from_data([1.0_f32 / 3.0], &Device::flex())).require_grad();
            let rounded = exact(precision.round(tensor.clone()));
            let mut tape = (rounded.clone() * 3.0).backward();
            let gradient = tensor.grad_remove(&mut tape).expect("on the tape");
            assert_eq!(gradient.dtype(), DType::F32);
            (rounded.try_into_scalar::<f32>().expect("readable"), gradient.try_into_scalar::<f32>().expect("readable"))
        };
        assert_eq!(third(Precision::Fp32), (1.0 / 3.0, 3.0));
        // 11 and 8 significant bits.
        assert_eq!(third(Precision::Fp16), (0.333_251_95, 3.0));
        assert_eq!(third(Precision::Bf16), (0.333_984_38, 3.0));
    }

    #[test]
    fn the_scale_falls_at_once_and_rises_after_two_thousand_steps() {
        assert_eq!(Scaler::of(Precision::Bf16), None);
        let mut scaler = Scaler::of(Precision::Fp16).expect("scaled");
        assert!(!scaler.take(false));
        assert_eq!((scaler.scale(), scaler.skipped()), (32_768.0, 1));
        assert!((0..1999).all(|_| scaler.take(true)));
        assert_eq!(scaler.scale(), 32_768.0);
        assert!(scaler.take(true));
        assert_eq!(scaler.scale(), 65_536.0);
        (0..100).for_each(|_| _ = scaler.take(false));
        assert_eq!(scaler.scale(), 1.0);
    }
}
