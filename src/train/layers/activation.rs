//! The two variants of the Gaussian error linear unit (Hendrycks and Gimpel 2016), in float32.

use crate::forward_context::ForwardContext;
use crate::ops::{Curve, curve, curve_back};
use burn::tensor::Tensor;

/// x·Φ(x), with the error function. Arithmetic is in float32, the output in the number format of the context.
pub fn gelu(ctx: &ForwardContext<'_>, x: Tensor<2>) -> Tensor<2> {
    applied(ctx, Curve::Gelu, x)
}

/// x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))), `gelu_new` in GPT-2. Arithmetic is in float32, the output in the number format of the context.
pub fn gelu_tanh(ctx: &ForwardContext<'_>, x: Tensor<2>) -> Tensor<2> {
    applied(ctx, Curve::GeluTanh, x)
}

/// Applies a function and saves its input for the backward pass.
fn applied(ctx: &ForwardContext<'_>, of: Curve, x: Tensor<2>) -> Tensor<2> {
    let (at, precision) = (ctx.off_tape(x.clone()), ctx.precision);
    let y = curve(of, &at, precision);
    ctx.recorded(|| [x.into()], y, move |gradient, _| [Some(curve_back(of, &at, gradient, precision).into())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward_context::ModelState;
    use crate::parameters::Index;
    use crate::precision::{Precision, exact};
    use burn::tensor::{Device, TensorData};

    type Function = fn(&ForwardContext<'_>, Tensor<2>) -> Tensor<2>;

    /// Values and derivatives at these points, computed on the tape, and the values computed off it.
    fn at(points: &[f32], function: Function) -> [Vec<f32>; 3] {
        let device = Device::flex();
        let none = Index::default();
        let state = ModelState {
            index: &none,
            parameters: &[],
            statistics: &none,
            running: &mut [],
            precision: Precision::Fp32,
            device: device.clone(),
        };
        let x = Tensor::<2>::from_data(TensorData::new(points.to_vec(), [1, points.len()]), &device);
        let plain = function(&ForwardContext::inference(state), x.clone());
        let x = Tensor::from_inner(x).require_grad();
        let y = function(&ForwardContext::without_parameters(Precision::Fp32, &device), x.clone());
        let slopes = x.grad_remove(&mut y.backward()).expect("on the tape");
        [y.inner(), slopes, plain].map(|tensor| tensor.try_into_vec_as().expect("readable"))
    }

    #[test]
    fn values_match_pytorch() {
        // `torch.nn.functional.gelu` in float64, and with `approximate="tanh"`.
        let points = [-3.0, -1.0, -0.1, 0.0, 0.5, 2.0];
        let exact = [-0.004_049_694, -0.158_655_25, -0.046_017_215, 0.0, 0.345_731_23, 1.954_499_7];
        let tanh = [-0.003_637_392, -0.158_808_01, -0.046_017_25, 0.0, 0.345_714, 1.954_597_7];
        for (function, expected) in [(gelu as Function, exact), (gelu_tanh as Function, tanh)] {
            let [values, _, plain] = at(&points, function);
            for ((value, plain), expected) in values.iter().zip(plain).zip(expected) {
                assert!((value - expected).abs() < 1e-6 && (plain - expected).abs() < 1e-6, "{value} for {expected}");
            }
        }
    }

    #[test]
    fn derivatives_match_differences_of_values() {
        let points: Vec<f32> = (-20..=20_i8).map(|n| f32::from(n) / 5.0).collect();
        let moved = |by: f32| -> Vec<f32> { points.iter().map(|point| point + by).collect() };
        for function in [gelu as Function, gelu_tanh as Function] {
            let [_, slopes, _] = at(&points, function);
            let [[_, _, above], [_, _, below]] = [0.01, -0.01].map(|by| at(&moved(by), function));
            for (n, slope) in slopes.iter().enumerate() {
                let difference = (above[n] - below[n]) / 0.02;
                assert!((slope - difference).abs() < 1e-4, "{slope} at {}, by difference {difference}", points[n]);
            }
        }
    }

    /// Values and gradients in a number format, at points that every format represents exactly.
    fn on(device: &Device, precision: Precision, shape: [usize; 2], function: Function) -> [Vec<f32>; 2] {
        let points = |by: u8| {
            let values = (0..=255_u8).cycle().map(|n| (f32::from(n.wrapping_mul(by)) - 128.0) / 32.0);
            let values: Vec<f32> = values.take(shape[0] * shape[1]).collect();
            Tensor::from_inner(Tensor::<2>::from_data(TensorData::new(values, shape), device).cast(precision.format()))
        };
        let x = points(37).require_grad();
        let y = function(&ForwardContext::without_parameters(precision, device), x.clone());
        assert_eq!(y.dtype(), x.dtype());
        let slopes = x.grad_remove(&mut (y.clone() * points(11)).backward()).expect("on the tape");
        assert_eq!(slopes.dtype(), x.dtype());
        [y.inner(), slopes].map(|tensor| exact(tensor).try_into_vec_as().expect("readable"))
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn values_and_slopes_on_gpu() {
        for (precision, tolerance) in [(Precision::Fp32, 2e-6), (Precision::Fp16, 1e-3), (Precision::Bf16, 8e-3)] {
            for shape in [[1, 1], [3, 5], [7, 33], [1024, 3072]] {
                for function in [gelu as Function, gelu_tanh as Function] {
                    let ours = on(&Device::cuda(0), precision, shape, function);
                    for (ours, theirs) in ours.iter().zip(on(&Device::flex(), precision, shape, function)) {
                        for (ours, theirs) in ours.iter().zip(theirs) {
                            let off = (ours - theirs).abs() / theirs.abs().max(1.0);
                            assert!(off <= tolerance, "{ours} for {theirs}, {precision:?} {shape:?}");
                        }
                    }
                    assert_eq!(ours, on(&Device::cuda(0), precision, shape, function), "other bits");
                }
            }
        }
        assert_eq!(crate::native::fault(), None);
    }
}
