//! What a GPU computes, against the host: `cargo test --release --lib -- --ignored on_gpu` on a machine that has one.

use super::data::image_batch;
use super::device::Place;
use super::digits;
use super::spec::ModelSpec;
use burn::tensor::{Device, Tensor, TensorData};

const MODELS: [ModelSpec; 3] = [ModelSpec::Softmax, ModelSpec::Mlp { hidden: 128 }, ModelSpec::Cnn { dropout: 0.5 }];

fn values(tensor: Tensor<1>) -> Vec<f32> {
    tensor.try_into_vec_as().expect("readable")
}

/// The loss as it is read after a step, read in several ways.
fn losses(model: ModelSpec, rows: usize, place: &Place) -> Vec<(&'static str, f32)> {
    let set = digits::generate(0, digits::Split::Train, rows);
    let batch = image_batch(&set, &(0..rows).collect::<Vec<_>>());
    let initial = model.initial(1);
    let parameters: Vec<Tensor<1>> =
        initial.iter().map(|values| Tensor::from_data(TensorData::from(values.as_slice()), &place.device())).collect();
    let loss = || {
        let fed = model.feed(batch.clone(), model.mask(1, 1, rows, place), place);
        let taped = model.forward(&parameters, fed, place).expect("readable");
        taped.backward().expect("readable")
    };
    let one = |tensor: Tensor<1>| values(tensor).first().copied().unwrap_or(f32::NAN);
    let mut found = vec![
        ("alone", one(loss().0)),
        ("joined alone", one(Tensor::cat(vec![loss().0], 0))),
        ("joined with another", one(Tensor::cat(vec![loss().0, loss().0], 0))),
    ];
    let (kept, gradients) = loss();
    drop(gradients);
    found.push(("after its gradients went", one(kept)));
    let (kept, gradients) = loss();
    gradients.into_iter().for_each(|gradient| drop(values(gradient)));
    found.push(("after its gradients were read", one(kept)));
    let (kept, _gradients) = loss();
    place.sync().expect("a device");
    found.push(("after the device was waited for", one(kept)));
    let (kept, gradients) = loss();
    let moved: Vec<Tensor<1>> =
        parameters.iter().zip(gradients).map(|(parameter, gradient)| parameter.clone() - gradient * 0.1).collect();
    found.push(("after an update was queued", one(kept)));
    drop(moved);
    found
}

#[test]
#[ignore = "needs a GPU"]
fn losses_are_those_of_the_host_however_they_are_read() {
    let gpu = Place::Device(Device::cuda(0));
    let mut wrong = Vec::new();
    for model in MODELS {
        for rows in [64, 7] {
            let host = losses(model, rows, &Place::Host)[0].1;
            for (how, loss) in losses(model, rows, &gpu) {
                if (loss - host).abs() > 2e-3 * host.abs() {
                    wrong.push(format!("{model:?} {rows} rows, {how}: {loss} and not {host}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs a GPU"]
fn sums_along_a_dimension_are_right_whatever_their_shape() {
    let device = Device::cuda(0);
    let mut wrong = Vec::new();
    for len in [10, 70, 640, 1000, 4096] {
        let data: Vec<f32> = (0_u8..=255).cycle().take(len).map(f32::from).collect();
        let expected: f32 = data.iter().sum();
        let flat = || Tensor::<1>::from_data(TensorData::from(data.as_slice()), &device);
        let ways: [(&str, Tensor<1>); 5] = [
            ("reshape, sum_dim, reshape", flat().reshape([1, len]).sum_dim(1).reshape([1])),
            ("product before", (flat() * 1.0).reshape([1, len]).sum_dim(1).reshape([1])),
            ("product after", flat().reshape([1, len]).sum_dim(1).reshape([1]) * 1.0),
            ("product before and after", (flat() * 1.0).reshape([1, len]).sum_dim(1).reshape([1]) * 1.0),
            ("two sums", flat().reshape([len / 10, 10]).sum_dim(1).reshape([1, len / 10]).sum_dim(1).reshape([1])),
        ];
        for (how, sum) in ways {
            let sum = values(sum)[0];
            if (sum - expected).abs() > 1e-5 * expected {
                wrong.push(format!("{len} values, {how}: {sum} and not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
