//! Element-wise functions.

use crate::native::kernels;
use crate::precision::{Precision, exact};
use burn::tensor::{DType, FloatDType, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, TAU};

pub use kernels::Curve;

/// The factor of x³ in the tanh variant.
const CUBIC: f64 = 0.044_715;

/// Applies a function; the output is in the number format. Arithmetic is in float32.
pub fn curve(of: Curve, x: &Tensor<2>, precision: Precision) -> Tensor<2> {
    let by_kernel = if has_kernel(x, precision) { kernels::curve(of, x) } else { None };
    by_kernel.unwrap_or_else(|| {
        let [value, _] = reference(of, exact(x.clone()));
        precision.round(value)
    })
}

/// The gradient of x, in the format of x, from that of the output.
pub fn curve_back(of: Curve, x: &Tensor<2>, gradient: Tensor<2>, precision: Precision) -> Tensor<2> {
    let has_kernel = has_kernel(x, precision);
    let gradient = if has_kernel { precision.round(gradient) } else { gradient };
    if has_kernel && let Some(kernel) = kernels::curve_back(of, x, &gradient) {
        return kernel(gradient);
    }
    let [_, slope] = reference(of, exact(x.clone()));
    (exact(gradient) * slope).cast(FloatDType::from(x.dtype()))
}

/// The output of kernels has the format of x.
fn has_kernel(x: &Tensor<2>, precision: Precision) -> bool {
    x.dtype() == DType::from(precision.format())
}

/// A function and its derivative.
///
/// Burn's own x·Φ(x) has the derivative of the tanh variant on CUDA (0.22.0-pre.3).
fn reference(of: Curve, x: Tensor<2>) -> [Tensor<2>; 2] {
    match of {
        Curve::Gelu => {
            let share = ((x.clone() * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
            let density = (x.clone() * x.clone() * -0.5).exp() * (1.0 / TAU.sqrt());
            [x.clone() * share.clone(), share + x * density]
        }
        Curve::GeluTanh => {
            let square = x.clone() * x.clone();
            let tanh = (x.clone() * (square.clone() * CUBIC + 1.0) * FRAC_2_PI.sqrt()).tanh();
            let share = (tanh.clone() + 1.0) * 0.5;
            let steepness = (square * (3.0 * CUBIC) + 1.0) * (0.5 * FRAC_2_PI.sqrt());
            [x.clone() * share.clone(), share + x * (tanh.clone() * tanh * -1.0 + 1.0) * steepness]
        }
    }
}
