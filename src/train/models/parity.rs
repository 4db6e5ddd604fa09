//! Compares models with their reference implementations on fixed parameters and inputs.
//!
//! `tests/parity/*.py` computes the reference results with PyTorch and prints them as lines `name value…`. Both sides
//! compute parameters and inputs from the same formula, so the files contain only results, whatever the size of the
//! model.

use super::{Input, Model};
use crate::forward_context::{ForwardContext, ModelState, int_tensor};
use crate::layers::cross_entropy;
use crate::number::{fraction, real_len, wide};
use crate::parameters::{Index, ParamSpec};
use crate::precision::{Precision, exact};
use burn::tensor::{Device, Tensor, TensorData};
use std::collections::BTreeMap;

/// The n-th value of the sequence with this name: in [-1, 1), a multiple of 2^-23.
pub fn value(name: &str, n: usize) -> f32 {
    let hash = |h: u32| {
        let h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
        let h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
        h ^ (h >> 16)
    };
    // FNV-1a.
    let key = name.bytes().fold(0x811c_9dc5_u32, |key, byte| (key ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let n = u32::try_from(n).unwrap_or(u32::MAX);
    let bits = u64::from(hash(hash(n.wrapping_mul(0x9e37_79b9)).wrapping_add(key))) << 32;
    2.0 * fraction(bits) - 1.0
}

/// The values of a parameter or a running statistic.
///
/// They are around 1 for gains and variances and around 0 for biases and means. Other weights are within ±√(3/n), where
/// n is the number of values divided by the largest dimension, so that activations keep their scale.
///
/// The last gain of a bottleneck is around 0.1. At 1, fifty layers of ReLU amplify float32 rounding until the
/// reference's own results in float32 and float64 differ by a tenth.
pub fn values(param_spec: &ParamSpec) -> Vec<f32> {
    let largest = param_spec.shape.iter().copied().max().unwrap_or(1);
    let (middle, bound) = match param_spec.shape.as_slice() {
        [_] if param_spec.name.ends_with("bn3.weight") => (0.1, 0.02),
        [_] if param_spec.name.ends_with("weight") || param_spec.name.ends_with("var") => (1.0, 0.2),
        [_] => (0.0, 0.1),
        _ => (0.0, crate::number::single((3.0 / real_len(param_spec.len() / largest)).sqrt())),
    };
    (0..param_spec.len()).map(|n| middle + bound * value(&param_spec.name, n)).collect()
}

/// The device of the comparison: the CPU, or the first GPU if `LEDGER_PARITY=cuda` is set.
pub fn device() -> Device {
    if on_gpu() {
        return Device::cuda(0);
    }
    Device::flex()
}

/// Whether products use TF32 (ten-bit mantissas): on a GPU, unless `NVIDIA_TF32_OVERRIDE=0` is set.
pub fn rounds() -> bool {
    on_gpu() && std::env::var("NVIDIA_TF32_OVERRIDE").map_or(true, |value| value != "0")
}

fn on_gpu() -> bool {
    std::env::var("LEDGER_PARITY").is_ok_and(|device| device == "cuda")
}

/// Images [rows, channels, side, side] from the sequence `input`.
pub fn images([rows, channels, side]: [usize; 3]) -> Input {
    let values: Vec<f32> = (0..rows * channels * side * side).map(|n| 2.0 * value("input", n)).collect();
    Input::Images(Tensor::from_data(TensorData::new(values, [rows, channels, side, side]), &device()))
}

/// Integers from 0 to `bound` - 1 from the sequence with this name.
pub fn below(name: &str, len: usize, bound: i32) -> Vec<i32> {
    (0..len)
        .map(|n| {
            let share = f64::from(value(name, n)) / 2.0 + 0.5;
            (0..bound).rev().find(|number| f64::from(*number) <= share * f64::from(bound)).unwrap_or(0)
        })
        .collect()
}

/// Tokens [rows, width] from the sequence `input`.
pub fn tokens([rows, width]: [usize; 2], vocabulary: i32) -> Input {
    Input::Tokens(int_tensor(&below("input", rows * width, vocabulary), [rows, width], &device()))
}

/// The [summaries](told) of a model's step: of its outputs (`answers`), of each parameter's gradient and of each
/// running statistic after the step (by name); and its `loss`.
pub fn computed(
    model: &dyn Model,
    input: Input,
    targets: &[i32],
    trains: bool,
    precision: Precision,
) -> BTreeMap<String, Vec<f64>> {
    let step = |ctx: &mut ForwardContext<'_>| {
        let input = input.taped(ctx);
        let answers = model.forward(ctx, input);
        let [rows, _] = answers.dims();
        assert_eq!(rows, targets.len(), "a position for each target");
        let counted = targets.iter().filter(|target| **target >= 0).count();
        let right = ctx.indices(int_tensor(targets, [rows], ctx.device()));
        let loss = cross_entropy(ctx, answers.clone(), right, [model.classes(), counted]);
        let columns = exact(answers).narrow(1, 0, model.classes());
        [loss, columns.reshape([rows * model.classes()])]
    };
    traced([&model.param_specs(), &model.statistics()], step, trains, precision)
}

/// As [`computed`], for a function that returns loss and outputs.
pub fn traced(
    [param_specs, statistics]: [&[ParamSpec]; 2],
    step: impl FnOnce(&mut ForwardContext<'_>) -> [Tensor<1>; 2],
    trains: bool,
    precision: Precision,
) -> BTreeMap<String, Vec<f64>> {
    let device = device();
    let flat =
        |param_spec: &ParamSpec| Tensor::<1>::from_data(TensorData::from(values(param_spec).as_slice()), &device);
    let leaves: Vec<Tensor<1>> =
        param_specs.iter().map(|param_spec| Tensor::from_inner(flat(param_spec)).require_grad()).collect();
    let mut running: Vec<Tensor<1>> = statistics.iter().map(flat).collect();
    let (index, statistics_index) = (Index::new(param_specs), Index::new(statistics));
    let state = ModelState {
        index: &index,
        parameters: &leaves,
        statistics: &statistics_index,
        running: &mut running,
        precision,
        device: device.clone(),
    };
    let mut ctx = if trains { ForwardContext::training(state, 1, 1) } else { ForwardContext::inference_on_tape(state) };
    let [loss, answers] = step(&mut ctx);
    let gradients = ctx.backward(&loss);
    let mut found = BTreeMap::new();
    let read = |tensor: Tensor<1>| tensor.try_into_vec_as::<f32>().expect("readable");
    found.insert("loss".to_owned(), read(loss.inner()).into_iter().map(f64::from).collect());
    found.insert("answers".to_owned(), told("answers", &read(answers.inner())));
    for (param_spec, gradient) in param_specs.iter().zip(gradients) {
        let gradient = gradient.unwrap_or_else(|| panic!("`{}` has no gradient", param_spec.name));
        found.insert(param_spec.name.clone(), told(&param_spec.name, &read(gradient)));
    }
    for (param_spec, value) in statistics.iter().zip(running) {
        found.insert(param_spec.name.clone(), told(&param_spec.name, &read(value)));
    }
    found
}

/// Summarises values by their Euclidean norm and their dot product with the sequence of this name. Any changed value
/// changes both; the product also depends on the order.
pub fn told(name: &str, values: &[f32]) -> Vec<f64> {
    let norm = values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    let product: f64 = values.iter().enumerate().map(|(n, v)| f64::from(*v) * f64::from(value(name, n))).sum();
    vec![norm, product]
}

/// Asserts that results agree with the lines of a file: their differences are at most `tolerance` times the expected norm.
pub fn agree(found: &BTreeMap<String, Vec<f64>>, file: &str, tolerance: f64) {
    let expected: BTreeMap<&str, Vec<f64>> = file
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next().expect("a name");
            (name, words.map(|word| word.parse().expect("a number")).collect())
        })
        .collect();
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(names, expected.keys().copied().collect::<Vec<_>>(), "the same names");
    let (mut faults, mut worst) = (Vec::new(), (0.0, ""));
    // Gradients that are only rounding errors (a bias before batch normalisation) are compared relative to the largest norm.
    let gradients = expected.iter().filter(|(name, _)| !["answers", "loss"].contains(name));
    let largest = gradients.map(|(_, values)| values[0].abs()).fold(0.0, f64::max);
    for (name, values) in found {
        let expected = &expected[name.as_str()];
        let measure = expected[0].abs().max(1e-3 * largest);
        let off = values.iter().zip(expected).map(|(a, b)| (a - b).abs() / measure).fold(0.0, f64::max);
        if off > worst.0 {
            worst = (off, name);
        }
        let answers = ["answers", "loss"].contains(&name.as_str());
        if answers {
            println!("{name}: {off:.1e} off");
        }
        // TF32 rounding flips some ReLUs, which changes the gradients of the first layers of deep networks most.
        let tolerance = match (rounds(), answers) {
            (true, true) => tolerance.max(2e-3),
            (true, false) => tolerance.max(0.25),
            (false, false) if on_gpu() => tolerance.max(1e-3),
            (false, _) => tolerance,
        };
        if off > tolerance || values.iter().any(|value| value.is_nan()) || values.len() != expected.len() {
            faults.push(format!("{name}: {values:?}, the reference {expected:?}"));
        }
    }
    println!("`{}`: {:.1e} off, the most of {}", worst.1, worst.0, found.len());
    assert!(faults.is_empty(), "{} of {} differ:\n{}", faults.len(), found.len(), faults.join("\n"));
    assert!(wide(found.len()) > 2, "nothing was compared");
}

/// Asserts that a step in fp16 and bf16 gives finite results and nearly the loss of float32.
pub fn half_is_near(step: impl Fn(Precision) -> BTreeMap<String, Vec<f64>>) {
    let right = step(Precision::Fp32)["loss"][0];
    for (precision, share) in [(Precision::Fp16, 0.01), (Precision::Bf16, 0.05)] {
        let half = step(precision);
        assert!(half.values().flatten().all(|value| value.is_finite()), "{precision:?}: {half:?}");
        let loss = half["loss"][0];
        assert!((loss - right).abs() < share * right, "{precision:?}: {loss}, not {right}");
    }
}

#[test]
fn the_formula_matches_the_scripts() {
    // `tests/parity/formula.py` prints these numbers.
    let values = [value("input", 0), value("input", 1), value("fc.weight", 70_000)];
    assert_eq!(values, [0.598_066_2, 0.733_929_4, -0.284_982_44]);
    assert_eq!(below("input", 8, 100), [79, 86, 76, 24, 69, 60, 55, 32]);
}
