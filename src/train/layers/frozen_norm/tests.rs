use super::*;
use crate::forward_context::{ModelState, initial_statistics};
use crate::ops::Activation;
use crate::parameters::Index;
use crate::precision::Precision;
use crate::sample_tensors::{around, off_double, read};
use burn::tensor::{Device, TensorData};

const SHAPE: [usize; 4] = [2, 3, 4, 5];

/// The shape of the input, and the residual and activation after the norm.
#[derive(Clone, Copy, Debug)]
struct Case {
    dims: [usize; 4],
    residual: bool,
    last: bool,
    activation: Activation,
}

fn cases(dims: [usize; 4]) -> impl Iterator<Item = Case> {
    let activations = [Activation::None, Activation::Relu, Activation::Leaky(0.1)];
    let places = [(false, false), (true, false), (true, true)];
    activations.into_iter().flat_map(move |activation| {
        places.into_iter().map(move |(residual, last)| Case { dims, residual, last, activation })
    })
}

/// Weight, bias, mean and variance; then images, residual and the gradient of the output.
fn given(dims: [usize; 4]) -> ([Vec<f32>; 4], [Vec<f32>; 3]) {
    let (all, channels) = (dims.iter().product(), dims[1]);
    let vectors = [(1, 1.0, 0.5), (2, 0.0, 0.5), (3, 0.3, 1.0), (4, 2.0, 1.0)];
    let vectors = vectors.map(|(seed, middle, bound)| around(seed, channels, middle, bound));
    (vectors, [10, 11, 12].map(|seed| around(seed, all, 0.0, 2.0)))
}

fn images(values: Vec<f32>, dims: [usize; 4], device: &Device) -> Tensor<4> {
    Tensor::from_data(TensorData::new(values, dims), device)
}

/// Calls a function with a context that has these statistics of the norm `n`.
fn with<T>(
    statistics: &mut [Tensor<1>],
    (precision, device): (Precision, &Device),
    taped: bool,
    work: impl FnOnce(&mut ForwardContext<'_>) -> T,
) -> T {
    let none = Index::default();
    let index = Index::new(&frozen_statistics("n", statistics[0].dims()[0]));
    let state = ModelState {
        index: &none,
        parameters: &[],
        statistics: &index,
        running: statistics,
        precision,
        device: device.clone(),
    };
    work(&mut if taped { ForwardContext::inference_on_tape(state) } else { ForwardContext::inference(state) })
}

/// The layer's output, and the gradients of images and residual.
fn by_layer(case: Case, precision: Precision, device: &Device) -> Vec<Vec<f32>> {
    let (vectors, [x, residual, slopes]) = given(case.dims);
    let mut statistics = vectors.map(|values| Tensor::from_data(TensorData::from(values.as_slice()), device));
    with(&mut statistics, (precision, device), true, |ctx| {
        let rounded = |values| Tensor::from_inner(precision.round(images(values, case.dims, device)));
        let (x, residual) = (rounded(x).require_grad(), case.residual.then(|| rounded(residual).require_grad()));
        let after = After { residual: residual.clone(), residual_last: case.last, activation: case.activation };
        let y = frozen_norm(ctx, "n", x.clone(), after);
        assert_eq!(y.dtype(), x.dtype(), "the format stays");
        let all = case.dims.iter().product();
        let mut tape = exact(y.clone() * rounded(slopes)).reshape([1, all]).sum_dim(1).backward();
        let gradient = |leaf: Tensor<4>| read(leaf.grad_remove(&mut tape).expect("on the tape"));
        let gradients: Vec<_> = [Some(x), residual].into_iter().flatten().map(gradient).collect();
        std::iter::once(read(y.inner())).chain(gradients).collect()
    })
}

/// The same by the formula in float64, from rounded inputs.
fn by_formula(case: Case, precision: Precision) -> Vec<Vec<f64>> {
    let (vectors, of_images) = given(case.dims);
    let [gain, bias, mean, variance] = vectors.map(|values| values.into_iter().map(f64::from).collect::<Vec<_>>());
    let [x, residual, slopes] = of_images.map(|values| {
        let values = read(precision.round(images(values, case.dims, &Device::flex())));
        values.into_iter().map(f64::from).collect::<Vec<_>>()
    });
    let bent = |value: f64| match case.activation {
        Activation::Relu if value <= 0.0 => (0.0, 0.0),
        Activation::Leaky(leak) if value <= 0.0 => (value * leak, leak),
        _ => (value, 1.0),
    };
    let mut all = vec![Vec::new(); if case.residual { 3 } else { 2 }];
    for (n, ((x, residual), slope)) in x.iter().zip(&residual).zip(&slopes).enumerate() {
        let channel = n / (case.dims[2] * case.dims[3]) % case.dims[1];
        let scale = gain[channel] / (variance[channel] + 1e-5).sqrt();
        let normed = (x - mean[channel]) * scale + bias[channel];
        let beside = if case.residual { *residual } else { 0.0 };
        let (y, steep) = bent(if case.last { normed } else { normed + beside });
        all[0].push(if case.last { y + beside } else { y });
        all[1].push(slope * steep * scale);
        if case.residual {
            all[2].push(if case.last { *slope } else { slope * steep });
        }
    }
    all
}

fn compare(case: Case, device: &Device) {
    for (precision, close) in [(Precision::Fp32, 2e-6), (Precision::Fp16, 1.5e-3), (Precision::Bf16, 1.2e-2)] {
        let (ours, theirs) = (by_layer(case, precision, device), by_formula(case, precision));
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let apart = off_double(ours, theirs);
            assert!(apart < close, "{case:?} in {precision:?}: {apart:.1e} off");
        }
    }
}

#[test]
fn outputs_and_gradients_match_the_formula() {
    cases(SHAPE).for_each(|case| compare(case, &Device::flex()));
}

#[test]
fn a_calibrated_norm_normalises_its_input() {
    let device = Device::flex();
    let mut statistics = initial_statistics(&frozen_statistics("n", 3), &device);
    let given = || images(around(3, 120, 0.5, 2.0), SHAPE, &device);
    let y = with(&mut statistics, (Precision::Fp32, &device), false, |ctx| {
        let before = frozen_norm(ctx, "n", given(), After::default());
        assert!(read(before - given()).iter().all(|off| off.abs() < 1e-4), "without statistics nothing happens");
        calibrate_norm(ctx, "n", &given());
        frozen_norm(ctx, "n", given(), After::default())
    });
    let y = read(y);
    for channel in 0..3 {
        let values: Vec<f32> = y.chunks(20).skip(channel).step_by(3).flatten().copied().collect();
        let mean = values.iter().sum::<f32>() / 40.0;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / 40.0;
        assert!(mean.abs() < 1e-5 && (variance - 1.0).abs() < 1e-3, "{mean}, {variance}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn frozen_norms_on_gpu() {
    use crate::native::fault;
    let card = Device::cuda(0);
    for dims in [[2, 3, 5, 7], [1, 64, 56, 56], [3, 16, 7, 7], [6, 8, 14, 14], [17, 8, 1, 1], [2, 5, 61, 67]] {
        for case in cases(dims) {
            compare(case, &card);
            let again = || by_layer(case, Precision::Bf16, &card);
            assert!(again() == again(), "{case:?}: not the same twice");
            assert_eq!(fault(), None, "{case:?}");
        }
    }
}
