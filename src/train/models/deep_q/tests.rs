use super::*;
use crate::models::{learning, parity};
use crate::parameters::{Init, count};
use crate::precision::Precision;
use burn::tensor::TensorData;

fn states(rows: usize) -> Input {
    let values: Vec<f32> = (0..rows * 4).map(|n| 2.0 * parity::value("input", n)).collect();
    Input::Rows(Tensor::from_data(TensorData::new(values, [rows, 4]), &parity::device()))
}

#[test]
fn networks_have_as_many_parameters_and_operations_as_published() {
    let (state, frames) = (DeepQ::cart_pole(2), DeepQ::nature(4));
    assert_eq!([count(&state.param_specs()), count(&frames.param_specs())], [17_410, 1_686_180]);
    let each: Vec<usize> = frames.param_specs().chunks(2).map(|pair| pair[0].len() + pair[1].len()).collect();
    assert_eq!(each, [8_224, 32_832, 36_928, 1_606_144, 2_052]);
    // The numbers of PyTorch's `FlopCounterMode`.
    assert_eq!([state.forward_flops(0), frames.forward_flops(0)], [34_304, 18_690_048]);
}

#[test]
fn layers_are_initialised_as_in_pytorch() {
    let param_specs = DeepQ::nature(4).param_specs();
    let bounds: Vec<f32> = param_specs
        .iter()
        .map(|param_spec| if let Init::Uniform(bound) = param_spec.init { bound } else { panic!("{param_spec:?}") })
        .collect();
    for (pair, inputs) in bounds.chunks(2).zip([256.0_f32, 512.0, 576.0, 3136.0, 512.0]) {
        assert!(pair.iter().all(|bound| (bound - 1.0 / inputs.sqrt()).abs() < 1e-7), "{pair:?}");
    }
}

#[test]
fn values_of_states_match_pytorch() {
    let targets = parity::below("targets", 6, 2);
    let found = parity::computed(&DeepQ::cart_pole(2), states(6), &targets, true, Precision::Fp32);
    parity::agree(&found, include_str!("../../../../tests/parity/deep_q_state.txt"), 1e-4);
}

#[test]
fn values_of_frames_match_pytorch() {
    let targets = parity::below("targets", 2, 4);
    let found = parity::computed(&DeepQ::nature(4), parity::images([2, 4, 84]), &targets, true, Precision::Fp32);
    parity::agree(&found, include_str!("../../../../tests/parity/deep_q_frames.txt"), 1e-4);
}

#[test]
fn one_batch_is_learned_by_heart() {
    let losses = learning::losses(&DeepQ::cart_pole(2), &states(8), &[0, 1, 1, 0, 1, 0, 0, 1], 60, 1e-2);
    assert!(losses[0] > 0.5 && losses.last().is_some_and(|loss| *loss < 0.05), "{losses:?}");
    let losses = learning::losses(&DeepQ::nature(4), &parity::images([4, 4, 84]), &[2, 0, 3, 1], 12, 1e-3);
    assert!(losses[0] > 1.0 && losses.last().is_some_and(|loss| *loss < 0.05), "{losses:?}");
}

#[test]
fn half_precision_gives_about_the_same() {
    parity::half_is_near(|precision| {
        parity::computed(&DeepQ::nature(4), parity::images([2, 4, 84]), &[3, 1], true, precision)
    });
}

#[test]
#[should_panic(expected = "does not answer")]
fn a_state_network_rejects_frames() {
    parity::computed(&DeepQ::cart_pole(2), parity::images([2, 4, 84]), &[0, 1], false, Precision::Fp32);
}
