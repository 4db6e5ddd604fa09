//! Test helpers: trains a model for a few steps on one batch.

use super::{Input, Model};
use crate::forward_context::{ForwardContext, ModelState, initial_statistics, int_tensor};
use crate::layers::cross_entropy;
use crate::parameters::{Index, ParamSpec, initial};
use crate::precision::Precision;
use burn::tensor::{Device, Tensor, TensorData};

/// Returns the loss before each of `steps` steps of Adam on one batch.
pub fn losses(model: &dyn Model, input: &Input, targets: &[i32], steps: i32, rate: f64) -> Vec<f32> {
    let mut loss = batch_loss(model, input, targets);
    learned([&model.param_specs(), &model.statistics()], &mut loss, steps, [rate, 0.999]).losses
}

/// Returns a function that computes the loss of a model on one batch.
pub fn batch_loss(
    model: &dyn Model,
    input: &Input,
    targets: &[i32],
) -> impl FnMut(&mut ForwardContext<'_>) -> Tensor<1> {
    move |ctx: &mut ForwardContext<'_>| {
        let input = input.clone().taped(ctx);
        let answers = model.forward(ctx, input);
        let rows = targets.len();
        let right = ctx.indices(int_tensor(targets, [rows], ctx.device()));
        cross_entropy(ctx, answers, right, [model.classes(), rows])
    }
}

/// The result of [`learned`].
pub struct Learned {
    /// The loss before each step.
    pub losses: Vec<f32>,
    /// The parameters after the last step.
    pub parameters: Vec<Tensor<1>>,
    /// The running statistics after the last step.
    pub running: Vec<Tensor<1>>,
}

/// Takes `steps` steps of [`adam`] for a model with these parameters and running statistics.
pub fn learned(
    [param_specs, statistics]: [&[ParamSpec]; 2],
    loss: &mut dyn FnMut(&mut ForwardContext<'_>) -> Tensor<1>,
    steps: i32,
    rate_and_decay: [f64; 2],
) -> Learned {
    let device = Device::flex();
    let (index, statistics_index) = (Index::new(param_specs), Index::new(statistics));
    let mut running = initial_statistics(statistics, &device);
    let mut parameters: Vec<Tensor<1>> = initial(param_specs, 1)
        .into_iter()
        .map(|values| Tensor::from_data(TensorData::from(values.as_slice()), &device))
        .collect();
    let mut moments: Vec<[Tensor<1>; 2]> = parameters.iter().map(|one| [one.zeros_like(), one.zeros_like()]).collect();
    let mut losses = Vec::new();
    for step in 1..=steps {
        let leaves: Vec<Tensor<1>> =
            parameters.iter().map(|one| Tensor::from_inner(one.clone()).require_grad()).collect();
        let state = ModelState {
            index: &index,
            parameters: &leaves,
            statistics: &statistics_index,
            running: &mut running,
            precision: Precision::Fp32,
            device: device.clone(),
        };
        let mut ctx = ForwardContext::training(state, 1, u64::from(step.unsigned_abs()));
        let loss = loss(&mut ctx);
        let gradients = ctx.backward(&loss);
        losses.push(loss.inner().try_into_scalar::<f32>().expect("readable"));
        let gradients = gradients.into_iter().map(|gradient| gradient.expect("on the tape"));
        adam(&mut parameters, &mut moments, gradients, step, rate_and_decay);
    }
    Learned { losses, parameters, running }
}

/// A step of Adam (Kingma and Ba 2014, algorithm 1) with this learning rate and β₂. Steps count from 1.
pub fn adam(
    parameters: &mut [Tensor<1>],
    moments: &mut [[Tensor<1>; 2]],
    gradients: impl IntoIterator<Item = Tensor<1>>,
    step: i32,
    [rate, decay]: [f64; 2],
) {
    let [first_share, second_share] = [0.9_f64, decay].map(|decay| 1.0 - decay.powi(step));
    for ((parameter, moments), gradient) in parameters.iter_mut().zip(moments).zip(gradients) {
        let [first, second] = moments.clone();
        let first = first * 0.9 + gradient.clone() * 0.1;
        let second = second * decay + gradient.clone() * gradient * (1.0 - decay);
        *moments = [first.clone(), second.clone()];
        let by = first * (rate / first_share) / ((second * (1.0 / second_share)).sqrt() + 1e-8);
        *parameter = parameter.clone() - by;
    }
}
