//! Classification of positions: of images, or of the tokens of a text.

use super::ahead::Ahead;
use super::inference::Inference;
use super::network::{Network, answer_taped, backward, leaves};
use super::replayed::{Passes, Replayed};
use super::target_positions::TargetPositions;
use super::{Gradients, Score, Step, Task};
use crate::data::dataset::{Dataset, Inputs, Samples};
use crate::data::planes::{DEVIATION, MEAN};
use crate::fit::heartbeat::Heartbeat;
use crate::forward_context::int_tensor;
use crate::layers::{cross_entropy, loss_and_correct, standardise};
use crate::models::{Input, Model};
use crate::number::{real, real_len};
use crate::parameters::ParamSpec;
use crate::rng::rank_seed;
use crate::task::evaluate::turn;
use crate::{DataError, TrainError};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use ledger_record::{Digest, Value};
use std::sync::Arc;

/// A model and its data.
pub struct ClassificationTask {
    network: Network,
    data: Arc<dyn Dataset>,
    seed: u64,
    /// Rows of an evaluation batch.
    batch: usize,
    ahead: Ahead<Samples>,
    replayed: Replayed<Passes>,
    inference: Inference<Input, Tensor<2>>,
}

impl ClassificationTask {
    /// A task before its first step. Evaluation batches have `batch` rows.
    pub fn new(network: Network, data: Arc<dyn Dataset>, seed: u64, batch: usize) -> Self {
        let batch = batch.min(data.eval_len()).max(1);
        Self {
            network,
            data,
            seed,
            batch,
            ahead: Ahead::new(),
            replayed: Replayed::default(),
            inference: Inference::default(),
        }
    }

    fn samples(&mut self, step: &Step<'_>) -> Result<Samples, DataError> {
        let (data, seed) = (Arc::clone(&self.data), self.seed);
        self.ahead.take(step, move |epoch, indices| data.train(seed, epoch, indices))
    }

    /// Returns an evaluation batch [on the device](on_device).
    fn eval_batch(&self, indices: &[usize]) -> Result<(Input, Tensor<1, Int>, usize), DataError> {
        Ok(on_device(self.data.eval(indices)?, &self.network.place.device()))
    }

    /// Returns the summed loss of a batch and the number of right answers.
    fn judged(
        &mut self,
        parameters: &[Tensor<1>],
        input: Input,
        targets: Tensor<1, Int>,
    ) -> Result<Vec<f32>, TrainError> {
        let classes = self.network.model.classes();
        let found =
            self.network.answer(parameters, input, |ctx, answers| loss_and_correct(ctx, answers, targets, classes));
        found.try_into_vec_as().map_err(|source| TrainError::read("the answers", source))
    }
}

/// Puts samples on a device: returns the model's input, the target classes, and how many of these count.
pub(super) fn on_device(samples: Samples, device: &Device) -> (Input, Tensor<1, Int>, usize) {
    let Samples { inputs, targets } = samples;
    (standard_input(inputs, device), int_tensor(&targets, [targets.len()], device), counted(&targets))
}

/// Returns the number of targets that count.
pub(super) fn counted(targets: &[i32]) -> usize {
    targets.iter().filter(|target| **target >= 0).count()
}

/// Returns a model's input on a device.
pub(super) fn standard_input(inputs: Inputs, device: &Device) -> Input {
    match inputs {
        Inputs::Pictures { bytes, shape } => Input::Images(standardised(bytes, shape, device)),
        Inputs::Tokens { ids, shape } => Input::Tokens(int_tensor(&ids, shape, device)),
    }
}

/// Returns the bytes of pictures as standardised float32 values.
fn standardised(bytes: Vec<u8>, shape: [usize; 4], device: &Device) -> Tensor<4> {
    standardise(Tensor::from_data(TensorData::new(bytes, shape), (device, DType::U8)), MEAN, DEVIATION)
}

impl Task for ClassificationTask {
    fn param_specs(&self) -> &[ParamSpec] {
        &self.network.param_specs
    }

    fn samples(&self) -> usize {
        self.data.train_len()
    }

    fn gradients(&mut self, step: &Step<'_>, parameters: &[Tensor<1>]) -> Result<Gradients, TrainError> {
        let inner = step.inner;
        let (input, positions, counted) = inner.phase("data", || {
            let (samples, device) = (self.samples(step)?, self.network.place.device());
            let Samples { inputs, targets } = samples;
            let positions = TargetPositions::of(&targets, &*self.network.model, &*self.data, &device);
            Ok((standard_input(inputs, &device), positions, counted(&targets)))
        })?;
        let Self { network, replayed, .. } = self;
        let (classes, seeds) = (network.model.classes(), [rank_seed(self.seed, step.rank), step.number]);
        let reads = ((input, positions), Some(counted));
        let mut running = std::mem::take(&mut network.running);
        let kept = (parameters, &mut running);
        let found = replayed.gradients(step, kept, reads, |parameters, running, (input, positions)| {
            let leaves = leaves(parameters);
            let (model, mut ctx) = network.training_with(&leaves, running, seeds);
            let loss = inner.phase("forward", || {
                let targets = positions.select(&mut ctx);
                let answers = answer_taped(model, &mut ctx, input);
                Ok(cross_entropy(&ctx, answers, targets, [classes, counted]))
            })?;
            let repeats = ctx.repeats();
            inner.phase("backward", || Ok((backward(ctx, loss, step, counted), repeats)))
        });
        network.running = running;
        found
    }

    fn evaluate(
        &mut self,
        parameters: &[Tensor<1>],
        heartbeat: &mut Heartbeat<'_>,
    ) -> Result<Option<Score>, TrainError> {
        let (mut loss, mut right, mut all) = (0.0, 0.0, 0);
        let all_indices: Vec<usize> = (0..self.data.eval_len()).collect();
        for indices in all_indices.chunks(self.batch) {
            heartbeat.beat(indices.len());
            let (input, targets, counted) = self.eval_batch(indices)?;
            let found = self.judged(parameters, input, targets)?;
            if let [batch_loss, batch_right] = found[..] {
                loss += f64::from(batch_loss);
                right += f64::from(batch_right);
            }
            all += counted;
        }
        Ok(Some(scored(&*self.network.model, [loss, right], all)))
    }

    fn inference_rows(&self) -> Option<usize> {
        Some(self.batch)
    }

    fn prepare_inference(&mut self, n: u64, rows: usize) -> Result<(), TrainError> {
        if n == 0 {
            // Frees the memory of their graphs for the next graph.
            (self.replayed, self.inference) = Default::default();
        }
        let (input, ..) = self.eval_batch(&turn(n, rows, self.data.eval_len()))?;
        self.inference.prepare(input);
        Ok(self.network.place.sync()?)
    }

    fn infer(&mut self, parameters: &[Tensor<1>], _: &Heartbeat<'_>, may_replay: bool) -> Result<(), TrainError> {
        let Self { network, inference, .. } = self;
        inference.answer(network, parameters, may_replay, |model, ctx, input| model.forward(ctx, input)).map(drop)
    }

    fn inference_graph(&self) -> Option<&str> {
        self.inference.graph()
    }

    fn digest(&self) -> Digest {
        self.data.digest()
    }

    fn facts(&self) -> Vec<(&'static str, Value)> {
        self.data.facts()
    }

    fn static_metrics(&self) -> Vec<(&'static str, f64, &'static str)> {
        static_metrics(&*self.network.model, &*self.data)
    }
}

/// Returns the scores of summed losses and right answers over `all` targets.
pub(super) fn scored(model: &dyn Model, [loss, right]: [f64; 2], all: usize) -> Score {
    let all = real_len(all.max(1));
    let mut score = vec![("eval_loss", loss / all), ("eval_accuracy", right / all)];
    if model.answers_tokens() {
        score.push(("eval_perplexity", (loss / all).exp()));
    }
    score
}

/// Returns the metrics of a model and its data that are known before training.
pub(super) fn static_metrics(model: &dyn Model, data: &dyn Dataset) -> Vec<(&'static str, f64, &'static str)> {
    let width = data.width();
    // The backward pass computes the gradient of each product by two products of the same size (Kaplan et al. 2020, section 2.1).
    let mut stated =
        vec![("flops_per_sample", 3.0 * real(model.flops_at_positions(width, data.max_targets())), "FLOP")];
    if model.answers_tokens() {
        stated.push(("tokens_per_sample", real_len(width), ""));
    }
    stated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_channel_has_its_own_mean_and_deviation() {
        let picture = standardised(vec![0, 255, 51, 102, 153, 204], [1, 3, 1, 2], &Device::flex());
        // (byte / 255 - mean) / deviation, computed by hand.
        let expected = [-2.117_904, 2.248_908, -1.142_857, -0.25, 0.862_222, 1.751_111];
        let found: Vec<f32> = picture.try_into_vec_as().expect("readable");
        for (value, expected) in found.into_iter().zip(expected) {
            assert!((value - expected).abs() < 1e-5, "{value} instead of {expected}");
        }
    }
}
