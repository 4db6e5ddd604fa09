use super::*;
use crate::forward_context::ModelState;
use crate::number::real_len;
use crate::ops::Activation;
use crate::parameters::Index;
use crate::precision::Precision;
use crate::sample_tensors::{around, off_double, read};
use burn::tensor::{Device, TensorData};

/// The epsilon of batch normalisation.
const BATCH_EPSILON: f64 = 1e-5;

/// The shape of the input, the residual and activation after the norm, and whether it is a training step.
#[derive(Clone, Copy, Debug)]
struct Case {
    dims: [usize; 4],
    residual: bool,
    /// Whether the residual is added after the activation.
    last: bool,
    activation: Activation,
    trains: bool,
}

fn cases(dims: [usize; 4], trains: bool) -> impl Iterator<Item = Case> {
    let activations = [Activation::None, Activation::Relu, Activation::Leaky(0.1)];
    let places = [(false, false), (true, false), (true, true)];
    activations.into_iter().flat_map(move |activation| {
        places.into_iter().map(move |(residual, last)| Case { dims, residual, last, activation, trains })
    })
}

/// The activation in float64.
fn bent(case: Case, value: f64) -> f64 {
    match case.activation {
        Activation::Relu => value.max(0.0),
        Activation::Leaky(leak) if value < 0.0 => value * leak,
        _ => value,
    }
}

/// All inputs: images, gain, bias, residual, the gradient of the output, running mean and running variance.
fn given(case: Case) -> [Vec<f32>; 7] {
    let (all, channels) = (case.dims.iter().product(), case.dims[1]);
    [
        around(1, all, 0.5, 2.0),
        around(2, channels, 1.0, 0.5),
        around(3, channels, 0.0, 0.5),
        around(4, all, 0.0, 1.0),
        around(5, all, 0.0, 1.0),
        around(6, channels, 0.0, 1.0),
        around(7, channels, 1.0, 0.5),
    ]
}

/// The formula in float64: the output, the new running statistics, and the input of the activation.
fn formula(case: Case, [x, gain, bias, residual, _, mean, variance]: &[Vec<f64>; 7]) -> [Vec<f64>; 4] {
    let [_, channels, height, width] = case.dims;
    let of = |n: usize| n / (height * width) % channels;
    let (mut y, mut before, mut means, mut variances) =
        (vec![0.0; x.len()], vec![0.0; x.len()], Vec::new(), Vec::new());
    for channel in 0..channels {
        let places: Vec<usize> = (0..x.len()).filter(|n| of(*n) == channel).collect();
        let count = real_len(places.len());
        let mean_of = |value: &dyn Fn(usize) -> f64| places.iter().map(|n| value(*n)).sum::<f64>() / count;
        let batch_mean = mean_of(&|n| x[n]);
        let batch_variance = mean_of(&|n| (x[n] - batch_mean).powi(2));
        let (by, spread) = if case.trains { (batch_mean, batch_variance) } else { (mean[channel], variance[channel]) };
        for n in places {
            let normed = (x[n] - by) / (spread + BATCH_EPSILON).sqrt() * gain[channel] + bias[channel];
            let beside = if case.residual { residual[n] } else { 0.0 };
            before[n] = if case.last { normed } else { normed + beside };
            y[n] = bent(case, before[n]) + if case.last { beside } else { 0.0 };
        }
        let moved = |old: f64, new: f64| if case.trains { 0.9 * old + 0.1 * new } else { old };
        means.push(moved(mean[channel], batch_mean));
        variances.push(moved(variance[channel], batch_variance * count / (count - 1.0)));
    }
    [y, means, variances, before]
}

/// The layer's output and running statistics, and on a tape the gradients of images, gain, bias and residual.
fn by_layer(case: Case, device: &Device, precision: Precision, taped: bool) -> Vec<(&'static str, Vec<f32>)> {
    let [x, gain, bias, residual, dy, mean, variance] = given(case);
    let (param_specs, statistics) = (norm_specs("bn", case.dims[1]), norm_statistics("bn", case.dims[1]));
    let flat = |values: &Vec<f32>| Tensor::<1>::from_data(TensorData::from(values.as_slice()), device);
    let images = |values: &Vec<f32>| precision.round(flat(values)).reshape(case.dims);
    let leaf = |tensor: Tensor<1>| if taped { Tensor::from_inner(tensor).require_grad() } else { tensor };
    let leaf4 = |tensor: Tensor<4>| if taped { Tensor::from_inner(tensor).require_grad() } else { tensor };
    let parameters = [&gain, &bias].map(|values| leaf(flat(values)));
    let (x, residual) = (leaf4(images(&x)), case.residual.then(|| leaf4(images(&residual))));
    let mut running = [flat(&mean), flat(&variance)];
    let state = ModelState {
        index: &Index::new(&param_specs),
        parameters: &parameters,
        statistics: &Index::new(&statistics),
        running: &mut running,
        precision,
        device: device.clone(),
    };
    let mut ctx = match (case.trains, taped) {
        (true, _) => ForwardContext::training(state, 1, 1),
        (false, true) => ForwardContext::inference_on_tape(state),
        (false, false) => ForwardContext::inference(state),
    };
    let after = After { residual: residual.clone(), residual_last: case.last, activation: case.activation };
    let y = batch_norm(&mut ctx, "bn", x.clone(), after);
    assert_eq!(y.dtype(), x.dtype(), "the format stays");
    let slope = ctx.constant(images(&dy));
    let mut found = vec![("y", read(ctx.off_tape(y.clone())))];
    let [mean, variance] = running;
    found.extend([("running mean", read(mean)), ("running variance", read(variance))]);
    if taped {
        let all = case.dims.iter().product();
        let mut tape = exact(y * slope).reshape([1, all]).sum_dim(1).backward();
        let [gain, bias] = parameters.map(|leaf| leaf.grad_remove(&mut tape).map(read).expect("used"));
        let x = x.grad_remove(&mut tape).map(read).expect("used");
        let residual = residual.map(|residual| residual.grad_remove(&mut tape).map(read).expect("used"));
        found.extend([("dx", x), ("dgain", gain), ("dbias", bias)]);
        found.extend(residual.map(|residual| ("dresidual", residual)));
    }
    found
}

fn doubled(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

#[test]
fn outputs_and_statistics_match_the_formula() {
    for case in [true, false].into_iter().flat_map(|trains| cases([3, 4, 3, 2], trains)) {
        let [y, mean, variance, _] = formula(case, &given(case).map(|values| doubled(&values)));
        let taped = by_layer(case, &Device::flex(), Precision::Fp32, true);
        let plain = if case.trains { None } else { Some(by_layer(case, &Device::flex(), Precision::Fp32, false)) };
        for found in [Some(taped), plain].into_iter().flatten() {
            for ((what, ours), theirs) in found.iter().zip([&y, &mean, &variance]) {
                assert!(off_double(ours, theirs) < 1e-6, "{what} of {case:?}: {ours:?}, not {theirs:?}");
            }
        }
    }
}

#[test]
fn gradients_match_differences_of_the_formula() {
    const STEP: f64 = 1e-6;
    for case in [true, false].into_iter().flat_map(|trains| cases([3, 4, 3, 2], trains)) {
        let inputs = given(case).map(|values| doubled(&values));
        let [.., before] = formula(case, &inputs);
        assert!(before.iter().all(|value| value.abs() > 1e-4), "none at the bend");
        let loss = |inputs: &[Vec<f64>; 7]| -> f64 {
            let [y, ..] = formula(case, inputs);
            y.into_iter().zip(&inputs[4]).map(|(y, slope)| y * slope).sum()
        };
        let found = by_layer(case, &Device::flex(), Precision::Fp32, true);
        for (input, what) in [(0, "dx"), (1, "dgain"), (2, "dbias"), (3, "dresidual")] {
            let Some((_, ours)) = found.iter().find(|(name, _)| *name == what) else {
                assert!(what == "dresidual" && !case.residual);
                continue;
            };
            let difference = |n: usize| {
                let moved = |by: f64| {
                    let mut inputs = inputs.clone();
                    inputs[input][n] += by;
                    loss(&inputs)
                };
                (moved(STEP) - moved(-STEP)) / (2.0 * STEP)
            };
            let theirs: Vec<f64> = (0..ours.len()).map(difference).collect();
            assert!(off_double(ours, &theirs) < 2e-6, "{what} of {case:?}: {ours:?}, not {theirs:?}");
        }
    }
}

#[test]
fn half_precision_is_rounded_once() {
    for case in cases([3, 4, 3, 2], true) {
        let rounded = given(case).map(|values| {
            let values = Tensor::<1>::from_data(TensorData::from(values.as_slice()), &Device::flex());
            doubled(&read(Precision::Bf16.round(values)))
        });
        let [x, _, _, residual, dy, ..] = rounded;
        let [_, gain, bias, _, _, mean, variance] = given(case).map(|values| doubled(&values));
        let [y, ..] = formula(case, &[x, gain, bias, residual, dy, mean, variance]);
        let found = by_layer(case, &Device::flex(), Precision::Bf16, true);
        for (ours, value) in found[0].1.iter().zip(y) {
            // Half a unit in the last of eight significant bits, plus the rounding of float32.
            assert!((f64::from(*ours) - value).abs() <= value.abs() / 256.0 + 1e-6, "{case:?}: {ours}, not {value}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn the_layer_is_that_of_the_cpu_on_gpu() {
    use crate::native::fault;
    for dims in [[2, 3, 5, 7], [6, 16, 7, 7], [3, 8, 14, 14], [5, 4, 12, 12]] {
        for case in [true, false].into_iter().flat_map(|trains| cases(dims, trains)) {
            for (precision, close) in [(Precision::Fp32, 1e-5), (Precision::Fp16, 2e-3), (Precision::Bf16, 1.6e-2)] {
                for taped in if case.trains { vec![true] } else { vec![true, false] } {
                    let theirs = by_layer(case, &Device::flex(), precision, taped);
                    let ours = by_layer(case, &Device::cuda(0), precision, taped);
                    assert_eq!(fault(), None, "{case:?}");
                    for ((what, ours), (_, theirs)) in ours.iter().zip(&theirs) {
                        let apart = off_double(ours, &doubled(theirs));
                        assert!(apart < close, "{what} of {case:?} in {precision:?}, taped {taped}: {apart:.1e} off");
                    }
                }
            }
        }
    }
}
