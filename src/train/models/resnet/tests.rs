use super::*;
use crate::models::{learning, parity};
use crate::parameters::{Init, count};
use crate::precision::Precision;

#[test]
fn fifty_layers_have_as_many_parameters_and_operations_as_published() {
    let model = Resnet::fifty(1000);
    assert_eq!(count(&model.param_specs()), 25_557_032);
    // torchvision publishes 4.089 billion multiply-adds; the exact number is that of PyTorch's `FlopCounterMode`.
    assert_eq!(model.forward_flops(0), 8_178_368_512);
    assert_eq!(Resnet { side: 64, ..model }.forward_flops(0), 671_383_552);
    assert_eq!(count(&Resnet::fifty(10).param_specs()), 23_528_522);
    let tiny = Resnet::tiny(10);
    assert_eq!((count(&tiny.param_specs()), tiny.forward_flops(0)), (35_470, 553_472));
    // 53 convolutions, each with a norm, and the classifier.
    assert_eq!((model.param_specs().len(), model.statistics().len()), (53 * 3 + 2, 53 * 2));
}

#[test]
fn names_and_their_order_match_torchvision() {
    let param_specs = Resnet::fifty(1000).param_specs();
    let first: Vec<(&str, &[usize])> =
        param_specs[..16].iter().map(|param_spec| (param_spec.name.as_str(), param_spec.shape.as_slice())).collect();
    assert_eq!(
        first,
        [
            ("conv1.weight", [64, 3, 7, 7].as_slice()),
            ("bn1.weight", &[64]),
            ("bn1.bias", &[64]),
            ("layer1.0.conv1.weight", &[64, 64, 1, 1]),
            ("layer1.0.bn1.weight", &[64]),
            ("layer1.0.bn1.bias", &[64]),
            ("layer1.0.conv2.weight", &[64, 64, 3, 3]),
            ("layer1.0.bn2.weight", &[64]),
            ("layer1.0.bn2.bias", &[64]),
            ("layer1.0.conv3.weight", &[256, 64, 1, 1]),
            ("layer1.0.bn3.weight", &[256]),
            ("layer1.0.bn3.bias", &[256]),
            ("layer1.0.downsample.0.weight", &[256, 64, 1, 1]),
            ("layer1.0.downsample.1.weight", &[256]),
            ("layer1.0.downsample.1.bias", &[256]),
            ("layer1.1.conv1.weight", &[64, 256, 1, 1]),
        ]
    );
    let last = param_specs.last().expect("some");
    assert_eq!((last.name.as_str(), last.shape.as_slice()), ("fc.bias", [1000].as_slice()));
    assert_eq!(Resnet::fifty(1000).statistics()[1].name, "bn1.running_var");
}

#[test]
fn parameters_are_initialised_as_in_torchvision() {
    let param_specs = Resnet::fifty(1000).param_specs();
    let init = |name: &str| param_specs.iter().find(|param_spec| param_spec.name == name).expect("there").init;
    assert_eq!(init("conv1.weight"), Init::Normal((2.0_f64 / 3136.0).sqrt()));
    assert_eq!(init("layer4.2.conv3.weight"), Init::Normal((2.0_f64 / 2048.0).sqrt()));
    assert_eq!([init("layer4.2.bn3.weight"), init("bn1.bias")], [Init::Constant(1.0), Init::Constant(0.0)]);
    let Init::Uniform(bound) = init("fc.bias") else { panic!("uniform") };
    assert!((bound - 1.0 / 2048_f32.sqrt()).abs() < 1e-8);
}

fn agrees(model: Resnet, [rows, side]: [usize; 2], trains: bool, file: &str, tolerance: f64) {
    let classes = i32::try_from(model.classes).expect("small");
    let targets = parity::below("targets", rows, classes);
    let found = parity::computed(&model, parity::images([rows, 3, side]), &targets, trains, Precision::Fp32);
    parity::agree(&found, file, tolerance);
}

#[test]
fn a_training_step_matches_pytorch() {
    let file = include_str!("../../../../tests/parity/resnet_tiny_train.txt");
    agrees(Resnet::tiny(10), [4, 64], true, file, 1e-4);
}

#[test]
fn inference_matches_pytorch() {
    let file = include_str!("../../../../tests/parity/resnet_tiny_eval.txt");
    agrees(Resnet::tiny(10), [4, 64], false, file, 1e-4);
}

/// Rounding may flip a ReLU whose input is within 1e-6 of 0, which changes the gradients below it by up to a hundredth.
/// A failure of that size is no fault.
#[test]
#[ignore = "takes ten seconds"]
fn fifty_layers_match_torchvision() {
    let train = include_str!("../../../../tests/parity/resnet50_64_train.txt");
    let answer = include_str!("../../../../tests/parity/resnet50_64_eval.txt");
    agrees(Resnet::fifty(1000), [3, 64], false, answer, 1e-4);
    agrees(Resnet::fifty(1000), [3, 64], true, train, 1e-4);
}

#[test]
#[ignore = "takes ten seconds"]
fn fifty_layers_match_torchvision_at_full_size() {
    let file = include_str!("../../../../tests/parity/resnet50_224_train.txt");
    agrees(Resnet::fifty(1000), [2, 224], true, file, 2e-2);
}

#[test]
fn one_batch_is_learned_by_heart() {
    let targets: Vec<i32> = (0..8).collect();
    let losses = learning::losses(&Resnet::tiny(10), &parity::images([8, 3, 32]), &targets, 40, 1e-2);
    // The initial loss is that of random logits: ln 10 plus a contribution of their spread.
    assert!((1.5..6.0).contains(&losses[0]), "{losses:?}");
    assert!(losses.last().is_some_and(|loss| *loss < 0.05), "{losses:?}");
}

#[test]
fn half_precision_gives_about_the_same() {
    parity::half_is_near(|precision| {
        parity::computed(&Resnet::tiny(10), parity::images([4, 3, 64]), &[3, 1, 4, 1], true, precision)
    });
}
