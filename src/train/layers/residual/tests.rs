use super::*;
use crate::forward_context::ModelState;
use crate::layers::norm_specs;
use crate::number::real_len;
use crate::ops::dropped;
use crate::parameters::Index;
use crate::precision::{Precision, exact};
use crate::sample_tensors::{near, read, uniform};
use burn::tensor::{Device, FloatDType, TensorData};

const EPSILON: f64 = 1e-5;

/// A residual connection with random inputs.
struct Case {
    shape: [usize; 2],
    post: bool,
    dropout: f64,
    precision: Precision,
    /// Whether the loss also depends on the residual stream.
    whole: bool,
}

fn values(seed: u64, len: usize) -> Vec<f32> {
    let rounded = Tensor::<1>::from_data(TensorData::from(uniform(seed, len).as_slice()), &Device::flex());
    read(rounded.cast(FloatDType::BF16).cast(FloatDType::F16))
}

fn state<'a>(index: &'a [Index; 2], parameters: &'a [Tensor<1>], device: &Device, case: &Case) -> ModelState<'a> {
    let [index, statistics] = index;
    let precision = case.precision;
    ModelState { index, parameters, statistics, running: &mut [], precision, device: device.clone() }
}

impl Case {
    fn given(&self) -> [Vec<f32>; 6] {
        let [rows, features] = self.shape;
        let lengths = [rows * features, rows * features, features, features, rows * features, rows * features];
        let mut seed = 0;
        lengths.map(|len| {
            seed += 1;
            values(seed, len)
        })
    }

    /// The layer's residual stream and normalised output, and the gradients of the residual, the branch output, gain and bias.
    fn computed(&self, device: &Device) -> Vec<Vec<f32>> {
        let Self { shape, post, dropout, precision, whole } = *self;
        let [x, added, gain, bias, of_residual, of_normed] = self.given();
        let matrix = |values: Vec<f32>| Tensor::<2>::from_data(TensorData::new(values, shape), device);
        let leaf = |values: Vec<f32>| {
            Tensor::from_inner(Tensor::<1>::from_data(TensorData::from(values.as_slice()), device)).require_grad()
        };
        let index = [Index::new(&norm_specs("norm", shape[1])), Index::default()];
        let parameters = [leaf(gain), leaf(bias)];
        let mut ctx = ForwardContext::training(state(&index, &parameters, device, self), 5, 7);
        let x = Tensor::from_inner(matrix(x)).require_grad();
        let added = Tensor::from_inner(matrix(added).cast(precision.format())).require_grad();
        let how = Residual { norm: "norm", epsilon: EPSILON, post, dropout };
        let Stream { residual, normed } = how.add(&mut ctx, x.clone(), added.clone());
        assert_eq!(residual.dtype(), FloatDType::F32.into());
        assert_eq!(normed.dtype(), precision.format().into());
        let mut loss = exact(normed.clone()) * Tensor::from_inner(matrix(of_normed));
        if whole {
            loss = loss + residual.clone() * Tensor::from_inner(matrix(of_residual));
        }
        let mut tape = loss.backward();
        let [of_x, of_added] = [&x, &added].map(|leaf| leaf.grad_remove(&mut tape).expect("used"));
        assert_eq!(of_added.dtype(), added.dtype());
        let mut found = vec![read(residual.inner()), read(normed.inner()), read(of_x), read(of_added)];
        found.extend(parameters.iter().map(|leaf| read(leaf.grad_remove(&mut tape).expect("used"))));
        found
    }

    /// The dropout mask of the branch output, including its scale.
    fn mask(&self) -> Vec<f64> {
        let [rows, features] = self.shape;
        let ones = Tensor::<2>::ones([rows, features], &Device::flex());
        let (index, parameters) = ([Index::default(), Index::default()], []);
        let key = ForwardContext::training(state(&index, &parameters, &Device::flex(), self), 5, 7).dropout_key();
        let mask = if self.dropout > 0.0 { dropped(ones, key.expect("trains"), self.dropout) } else { ones };
        read(mask).into_iter().map(f64::from).collect()
    }

    /// The residual stream and the normalised output, by their definition in float64.
    fn defined(&self, [x, added, gain, bias]: &[Vec<f64>; 4], mask: &[f64]) -> [Vec<f64>; 2] {
        let features = self.shape[1];
        let sum: Vec<f64> = x.iter().zip(added).zip(mask).map(|((x, added), mask)| x + added * mask).collect();
        let norm = |row: &[f64]| {
            let mean = row.iter().sum::<f64>() / real_len(features);
            let variance = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / real_len(features);
            let hats = row.iter().map(move |value| (value - mean) / (variance + EPSILON).sqrt());
            hats.zip(gain).zip(bias).map(|((hat, gain), bias)| hat * gain + bias).collect::<Vec<f64>>()
        };
        let normed: Vec<f64> = sum.chunks(features).flat_map(norm).collect();
        [if self.post { normed.clone() } else { sum }, normed]
    }
}

#[test]
fn outputs_match_the_definition_and_gradients_its_differences() {
    for (post, dropout, whole) in
        [(true, 0.0, true), (false, 0.0, true), (true, 0.4, true), (false, 0.4, true), (false, 0.4, false)]
    {
        let case = Case { shape: [3, 5], post, dropout, precision: Precision::Fp32, whole };
        let found = case.computed(&Device::flex());
        let mask = case.mask();
        assert_eq!(dropout > 0.0, mask.contains(&0.0));
        let [x, added, gain, bias, of_residual, of_normed] =
            case.given().map(|values| values.into_iter().map(f64::from).collect::<Vec<f64>>());
        let given = [x, added, gain, bias];
        let single = |values: Vec<f64>| values.into_iter().map(crate::number::single).collect::<Vec<f32>>();
        let answers = case.defined(&given, &mask);
        let what = format!("post {post}, dropout {dropout}");
        for (ours, theirs) in found.iter().zip(answers) {
            near(&what, ours, &single(theirs), 2e-6);
        }
        let loss = |given: &[Vec<f64>; 4]| {
            let [residual, normed] = case.defined(given, &mask);
            let sum = |values: Vec<f64>, slopes: &[f64]| values.iter().zip(slopes).map(|(a, b)| a * b).sum::<f64>();
            sum(normed, &of_normed) + if whole { sum(residual, &of_residual) } else { 0.0 }
        };
        for (part, ours) in found[2..].iter().enumerate() {
            let differences = (0..ours.len()).map(|place| {
                let moved = |by: f64| {
                    let mut given = given.clone();
                    given[part][place] += by;
                    loss(&given)
                };
                (moved(1e-5) - moved(-1e-5)) / 2e-5
            });
            near(&format!("{what}, gradient {part}"), ours, &single(differences.collect()), 2e-5);
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn residuals_on_gpu() {
    let card = Device::cuda(0);
    // The first and the last have no kernel.
    for shape in [[3, 5], [3, 8], [5, 24], [130, 768], [9, 772], [33, 1024], [4096, 768], [5, 1028]] {
        for (post, dropout, whole) in [(true, 0.1, true), (false, 0.1, true), (true, 0.0, false), (false, 0.0, false)] {
            for (precision, tolerance) in [(Precision::Fp32, 2e-5), (Precision::Fp16, 1e-3), (Precision::Bf16, 8e-3)] {
                let case = Case { shape, post, dropout, precision, whole };
                let (ours, theirs) = (case.computed(&card), case.computed(&Device::flex()));
                for (part, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                    let what = format!("{shape:?} in {precision:?}, post {post}, dropout {dropout}, part {part}");
                    near(&what, ours, theirs, tolerance);
                }
                assert!(ours == case.computed(&card), "other bits");
            }
        }
    }
    assert_eq!(crate::native::fault(), None);
}
