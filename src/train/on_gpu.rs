//! What a GPU computes, against the host: `cargo test --release --lib -- --ignored on_gpu` on a machine that has one.

use crate::data::digits;
use crate::data::image_batch;
use crate::device::Place;
use crate::ops::joined;
use crate::optimizer::{Decay, Optimizer, Rule};
use crate::parameters::initial;
use crate::spec::Small;
use burn::tensor::{Device, Tensor, TensorData};

fn values(tensor: Tensor<1>) -> Vec<f32> {
    tensor.try_into_vec_as().expect("readable")
}

/// Losses of answers that are given as a part of a wider matrix, so that no product of matrices has to be tuned.
#[test]
#[ignore = "needs a GPU"]
fn losses_of_given_answers_are_those_of_the_host() {
    let rows = 64_usize;
    let wide: Vec<f32> =
        (0_u8..=255).cycle().step_by(37).take(rows * 12).map(|value| f32::from(value) / 64.0).collect();
    let targets: Vec<f32> = (0..rows * 10).map(|at| if at % 10 == (at / 10) % 10 { 1.0 } else { 0.0 }).collect();
    let model = Small::Softmax;
    let all = |device: &Device| {
        let wide = || Tensor::<2>::from_data(TensorData::new(wide.clone(), [rows, 12]), device);
        let bias = || Tensor::<1>::from_data(TensorData::from([0.1_f32; 10].as_slice()), device);
        let targets = || Tensor::<2>::from_data(TensorData::new(targets.clone(), [rows, 10]), device);
        let one = |tensor: Tensor<1>| values(tensor).first().copied().unwrap_or(f32::NAN);
        let answers = || wide().narrow(1, 0, 10) + bias().reshape([1, 10]);
        let taped = || {
            let (wide, bias) = (Tensor::from_inner(wide()).require_grad(), Tensor::from_inner(bias()).require_grad());
            let answers = wide.clone().narrow(1, 0, 10) + bias.clone().reshape([1, 10]);
            let loss = model.loss(answers, Tensor::from_inner(targets()));
            let mut tape = loss.backward();
            (loss.inner(), bias.grad_remove(&mut tape), wide.grad_remove(&mut tape))
        };
        let updated = |with: fn(Tensor<1>) -> Tensor<1>| {
            let (loss, gradient, _) = taped();
            let moved = gradient.map(|gradient| bias() - gradient * 0.1);
            let read = one(with(loss));
            drop(moved);
            read
        };
        vec![
            ("part", one(model.loss(answers(), targets()))),
            ("part, joined", one(joined(vec![model.loss(answers(), targets())]))),
            ("taped", one(taped().0)),
            ("taped, joined", one(joined(vec![taped().0]))),
            ("taped, gradients kept", {
                let (loss, _bias, _wide) = taped();
                one(loss)
            }),
            ("taped, gradients kept, joined", {
                let (loss, _bias, _wide) = taped();
                one(joined(vec![loss]))
            }),
            ("updated", updated(|loss| loss)),
            ("updated, joined", updated(|loss| joined(vec![loss]))),
            ("updated, joined twice", updated(|loss| joined(vec![loss.clone(), loss]))),
        ]
    };
    agree(&all(&Device::cuda(0)), &all(&Device::flex()));
}

fn agree(found: &[(&'static str, f32)], expected: &[(&'static str, f32)]) {
    let lines: Vec<String> = found
        .iter()
        .zip(expected)
        .map(|((how, found), (_, expected))| {
            let verdict = if (found - expected).abs() > 2e-3 * expected.abs() { "WRONG" } else { "right" };
            format!("{verdict}: {how}: {found}, the host {expected}")
        })
        .collect();
    assert!(!lines.iter().any(|line| line.starts_with("WRONG")), "\n{}", lines.join("\n"));
}

/// The whole step of a model, as the loop makes it.
#[test]
#[ignore = "needs a GPU"]
fn losses_of_steps_are_those_of_the_host() {
    let (model, rows) = (Small::Softmax, 64);
    let set = digits::generate(0, digits::Split::Train, rows);
    let batch = image_batch(&set, &(0..rows).collect::<Vec<_>>());
    let all = |place: &Place| {
        let initial = initial(&model.param_specs(), 1);
        let mut parameters: Vec<Tensor<1>> = initial
            .iter()
            .map(|values| Tensor::from_data(TensorData::from(values.as_slice()), &place.device()))
            .collect();
        let mut optimizer = match place {
            Place::Host => Optimizer::on_host(Rule::Sgd, Decay::None, &model.param_specs()),
            Place::Device(device) => Optimizer::on_device(Rule::Sgd, Decay::None, &model.param_specs(), device),
        };
        let one = |tensor: Tensor<1>| values(tensor).first().copied().unwrap_or(f32::NAN);
        let mut step = |parameters: &mut Vec<Tensor<1>>| {
            let fed = model.feed(batch.clone(), None, place);
            let (loss, gradients) =
                model.forward(parameters, fed, place).expect("readable").backward().expect("readable");
            optimizer.step(parameters, std::iter::once((0..gradients.len(), gradients)), 0.1).expect("readable");
            loss
        };
        let mut found = Vec::new();
        for (how, together, waits) in [
            ("first, alone", false, false),
            ("second, joined", true, false),
            ("third, joined, waited for", true, true),
            ("fourth, alone, waited for", false, true),
            ("fifth, joined", true, false),
        ] {
            let loss = step(&mut parameters);
            if waits {
                place.sync().expect("a device");
            }
            found.push((how, one(if together { joined(vec![loss]) } else { loss })));
        }
        let queued: Vec<Tensor<1>> = (0..5).map(|_| step(&mut parameters)).collect();
        for (how, loss) in
            ["queued 1", "queued 2", "queued 3", "queued 4", "queued 5"].into_iter().zip(values(joined(queued)))
        {
            found.push((how, loss));
        }
        found
    };
    agree(&all(&Place::Device(Device::cuda(0))), &all(&Place::Host));
}
