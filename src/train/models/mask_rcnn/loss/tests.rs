use super::*;
use crate::precision::Precision;
use burn::tensor::Device;

const ANSWERS: [f32; 8] = [0.0, 1.5, -2.0, 0.05, -0.1, 90.0, -95.0, 3.0];
const TARGETS: [f32; 8] = [1.0, 0.3, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0];
const WEIGHTS: [f32; 8] = [1.0, 0.5, 2.0, 1.0, 1.0, 0.25, 0.125, 0.0];

type Loss = fn(&ForwardContext<'_>, Tensor<2>, Goal) -> Tensor<1>;

/// The loss, and the gradient of three times the loss for each prediction.
fn found(loss: Loss) -> (f32, Vec<f32>) {
    let ctx = ForwardContext::without_parameters(Precision::Fp32, &Device::flex());
    let answers = Tensor::<2>::from_data(TensorData::new(ANSWERS.to_vec(), [4, 2]), &Device::flex());
    let answers = Tensor::from_inner(answers).require_grad();
    let goal = Goal { targets: TARGETS.to_vec(), weights: WEIGHTS.to_vec() };
    let sum = loss(&ctx, answers.clone(), goal);
    let mut tape = (sum.clone() * 3.0).backward();
    let gradient = answers.grad_remove(&mut tape).expect("on the tape");
    (sum.inner().try_into_scalar().expect("readable"), gradient.try_into_vec_as().expect("readable"))
}

/// Compares loss and gradient with the formula in float64 and its central differences.
fn agrees(loss: Loss, formula: fn(f64, f64) -> f64, slope_at_zero: f64) {
    let (sum, gradients) = found(loss);
    let triples = || ANSWERS.iter().zip(TARGETS).zip(WEIGHTS).map(|((x, t), w)| [*x, t, w].map(f64::from));
    let expected: f64 = triples().map(|[x, t, w]| w * formula(x, t)).sum();
    assert!((f64::from(sum) - expected).abs() < 1e-5 * expected, "{sum}, not {expected}");
    for (gradient, [x, t, w]) in gradients.iter().zip(triples()) {
        let slope = (formula(x + 1e-5, t) - formula(x - 1e-5, t)) / 2e-5;
        let expected = 3.0 * w * if x == 0.0 { slope_at_zero } else { slope };
        assert!((f64::from(*gradient) - expected).abs() < 1e-4, "{gradient}, not {expected}, at {x} for {t}");
    }
}

#[test]
fn binary_cross_entropy_matches_its_formula() {
    // ln(1 + e^x) − t·x. For large x the logarithm is x, while e^x would overflow.
    agrees(binary, |x, t| if x > 50.0 { x } else { x.exp().ln_1p() } - t * x, -0.5);
}

#[test]
fn smooth_l1_matches_its_formula() {
    let formula = |x: f64, t: f64| {
        let d = (x - t).abs();
        if d < 1.0 / 9.0 { 4.5 * d * d } else { d - 1.0 / 18.0 }
    };
    agrees(smooth_l1, formula, -1.0);
}
