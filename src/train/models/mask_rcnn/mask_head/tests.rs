use super::*;
use crate::detection::boxes::Xyxy;
use crate::forward_context::ModelState;
use crate::layers::convolve;
use crate::parameters::{Index, initial};
use crate::precision::Precision;
use burn::tensor::{Device, TensorData};

const HEAD: MaskHead = MaskHead { channels: 3, classes: 4 };

/// The parameters, with biases that are not 0.
fn parameters() -> Vec<Vec<f32>> {
    let param_specs = HEAD.param_specs().into_iter();
    let param_specs: Vec<ParamSpec> =
        param_specs.map(|param_spec| ParamSpec { init: Init::Uniform(0.6), ..param_spec }).collect();
    initial(&param_specs, 3)
}

/// The output of the last two layers for a region [channels, 14, 14], computed from their definitions.
fn expected(region: &[f64], class: usize) -> Vec<f64> {
    let param_specs = HEAD.param_specs();
    let of = |name: &str| -> Vec<f64> {
        let place = param_specs.iter().position(|param_spec| param_spec.name == name).expect("there");
        parameters()[place].iter().copied().map(f64::from).collect()
    };
    let [weight, bias] = ["weight", "bias"].map(|part| of(&format!("{ENLARGE}.{part}")));
    let [maps, map_bias] = ["weight", "bias"].map(|part| of(&format!("{MAPS}.{part}")));
    let mut logits = vec![map_bias[class]; MAP * MAP];
    for (n, logit) in logits.iter_mut().enumerate() {
        let (y, x) = (n / MAP, n % MAP);
        for to in 0..3 {
            let from = |from: usize| {
                region[(from * SIDE + y / 2) * SIDE + x / 2] * weight[((from * 3 + to) * 2 + y % 2) * 2 + x % 2]
            };
            let value = bias[to] + (0..3).map(from).sum::<f64>();
            *logit += value.max(0.0) * maps[class * 3 + to];
        }
    }
    logits
}

/// The input of the last two layers, computed by layers that have their own tests.
fn region(ctx: &ForwardContext<'_>, levels: &[Tensor<4>], rois: &[Roi]) -> Vec<f64> {
    let mut x = roi_align(ctx, levels, rois, &SCALES, SIDE);
    for number in 0..CONVOLUTIONS {
        x = relu(convolve(ctx, &convolution_name(number), x, Window { stride: 1, padding: 1 }));
    }
    x.inner().try_into_vec_as::<f32>().expect("readable").into_iter().map(f64::from).collect()
}

#[test]
fn a_region_gets_the_mask_of_its_class() {
    let device = Device::flex();
    let leaves: Vec<Tensor<1>> = parameters()
        .iter()
        .map(|values| {
            Tensor::from_inner(Tensor::from_data(TensorData::from(values.as_slice()), &device)).require_grad()
        })
        .collect();
    let (none, index) = (Index::default(), Index::new(&HEAD.param_specs()));
    let ctx = ForwardContext::inference_on_tape(ModelState {
        index: &index,
        parameters: &leaves,
        statistics: &none,
        running: &mut [],
        precision: Precision::Fp32,
        device: device.clone(),
    });
    let level = |side: usize| {
        let values: Vec<f32> =
            (0..3 * side * side).map(|n| f32::from(u8::try_from(n * 37 % 101).expect("small")) / 50.0).collect();
        ctx.constant(Tensor::<4>::from_data(TensorData::new(values, [1, 3, side, side]), &device))
    };
    let levels = [16, 8, 4, 2].map(level);
    let rois = [[0.0, 0.0, 40.0, 50.0], [10.0, 20.0, 60.0, 33.0], [0.0; 4]].map(|edges| Roi {
        row: 0,
        level: 0,
        bounds: Xyxy::new(edges),
    });
    let found: Vec<f32> = HEAD.maps(&ctx, &levels, &rois, &[2, 1, -1]).inner().try_into_vec_as().expect("readable");
    let regions = region(&ctx, &levels, &rois);
    for (n, class) in [2, 1].into_iter().enumerate() {
        let expected = expected(&regions[n * 3 * SIDE * SIDE..][..3 * SIDE * SIDE], class);
        assert!(expected.iter().any(|logit| (logit - expected[0]).abs() > 0.01), "a map that is not even");
        for (found, expected) in found[n * MAP * MAP..].iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-4, "{found}, not {expected}");
        }
    }
}

#[test]
fn only_regions_with_a_target_contribute_to_the_loss() {
    let ctx = ForwardContext::without_parameters(Precision::Fp32, &Device::flex());
    let maps = ctx.constant(Tensor::<2>::ones([3, MAP * MAP], &Device::flex()));
    let of = |targets| loss(&ctx, maps.clone(), targets).inner().try_into_scalar::<f32>().expect("readable");
    let target = |value: f32| Some(vec![value; MAP * MAP]);
    // ln(1 + e) − t.
    let entropy = 1.0_f32.exp().ln_1p();
    assert!((of(vec![target(0.5), None, target(1.0)]) - (entropy - 0.75)).abs() < 1e-5);
    assert_eq!(of(vec![None, None, None]), 0.0);
}
