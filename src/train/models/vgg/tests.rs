use super::*;
use crate::models::{learning, parity};
use crate::parameters::count;
use crate::precision::Precision;

#[test]
fn sixteen_layers_have_as_many_parameters_and_operations_as_published() {
    let model = Vgg::sixteen(1000);
    assert_eq!(count(&model.param_specs()), 138_357_544);
    // torchvision publishes 15.47 billion multiply-adds; the exact number is that of PyTorch's `FlopCounterMode`.
    assert_eq!(model.forward_flops(0), 30_940_528_640);
    assert_eq!(Vgg { side: 32, ..model }.forward_flops(0), 873_660_416);
    let tiny = Vgg::tiny(10);
    assert_eq!((count(&tiny.param_specs()), tiny.forward_flops(0)), (33_706, 1_324_672));
}

#[test]
fn names_and_their_order_match_torchvision() {
    let param_specs = Vgg::sixteen(1000).param_specs();
    let weights: Vec<&str> =
        param_specs.iter().filter_map(|param_spec| param_spec.name.strip_suffix(".weight")).collect();
    let features = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28].map(|number| format!("features.{number}"));
    let classifier = [0, 3, 6].map(|number| format!("classifier.{number}"));
    assert_eq!(weights, [features.as_slice(), &classifier].concat());
    assert_eq!((param_specs[1].name.as_str(), param_specs[1].shape.as_slice()), ("features.0.bias", [64].as_slice()));
    assert_eq!(param_specs[26].shape, [25_088, 4096]);
}

#[test]
fn parameters_are_initialised_as_in_torchvision() {
    for param_spec in Vgg::sixteen(1000).param_specs() {
        let right = match param_spec.shape.as_slice() {
            [to, _, 3, 3] => Init::Normal((2.0 / crate::number::real_len(9 * to)).sqrt()),
            [_, _] => Init::Normal(0.01),
            _ => Init::Constant(0.0),
        };
        assert_eq!(param_spec.init, right, "{}", param_spec.name);
    }
}

/// Checks training without dropout and inference with it against the same file, as they compute the same.
fn agrees(model: Vgg, [rows, side]: [usize; 2], file: &str, tolerance: f64) {
    let classes = i32::try_from(model.classes).expect("small");
    let targets = parity::below("targets", rows, classes);
    for (dropout, trains) in [(0.0, true), (0.5, false)] {
        let model = Vgg { dropout, ..model };
        let found = parity::computed(&model, parity::images([rows, 3, side]), &targets, trains, Precision::Fp32);
        parity::agree(&found, file, tolerance);
    }
}

#[test]
fn mean_pooling_repeats_a_single_pixel_as_in_pytorch() {
    agrees(Vgg::tiny(10), [3, 32], include_str!("../../../../tests/parity/vgg_tiny_32.txt"), 1e-4);
}

#[test]
fn mean_pooling_with_overlap_matches_pytorch() {
    agrees(Vgg::tiny(10), [2, 96], include_str!("../../../../tests/parity/vgg_tiny_96.txt"), 1e-4);
}

#[test]
#[ignore = "takes half a minute"]
fn sixteen_layers_match_torchvision() {
    agrees(Vgg::sixteen(1000), [2, 64], include_str!("../../../../tests/parity/vgg16_64.txt"), 1e-4);
}

/// See the tests of `resnet` for the tolerance.
#[test]
#[ignore = "takes a minute"]
fn sixteen_layers_match_torchvision_at_full_size() {
    agrees(Vgg::sixteen(1000), [2, 224], include_str!("../../../../tests/parity/vgg16_224.txt"), 1e-2);
}

#[test]
fn dropout_applies_in_training_only() {
    let loss = |dropout, trains| {
        let model = Vgg { dropout, ..Vgg::tiny(10) };
        parity::computed(&model, parity::images([3, 3, 32]), &[3, 1, 4], trains, Precision::Fp32)["loss"][0]
    };
    let without = loss(0.0, true);
    assert_eq!(loss(0.5, false), without);
    assert!((loss(0.5, true) - without).abs() > 1e-3);
}

#[test]
fn one_batch_is_learned_by_heart() {
    let model = Vgg { dropout: 0.0, ..Vgg::tiny(10) };
    let targets: Vec<i32> = (0..8).collect();
    let losses = learning::losses(&model, &parity::images([8, 3, 32]), &targets, 100, 3e-3);
    // The classifier's initial weights are small, so its logits are nearly equal: the loss is ln 10.
    assert!((losses[0] - 10_f32.ln()).abs() < 0.05, "{losses:?}");
    assert!(losses.last().is_some_and(|loss| *loss < 0.05), "{losses:?}");
}

#[test]
fn half_precision_gives_about_the_same() {
    let model = Vgg { dropout: 0.0, ..Vgg::tiny(10) };
    parity::half_is_near(|precision| parity::computed(&model, parity::images([2, 3, 64]), &[3, 1], true, precision));
}
