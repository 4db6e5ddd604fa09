//! The small models on images of digits, and the line.

use super::replayed::{Passes, Replayed};
use super::{Gradients, Score, Step, Task};
use crate::TrainError;
use crate::data::{Batch, Data, image_batch};
use crate::device::Place;
use crate::fit::heartbeat::Heartbeat;
use crate::gradient_readiness::ReadyMarks;
use crate::parameters::ParamSpec;
use crate::rng::rank_seed;
use crate::spec::Small;
use crate::task::evaluate::{BATCH, answer, evaluate, turn};
use burn::tensor::{Tensor, TensorData};
use ledger_record::Digest;
use std::sync::Arc;

/// A small model and its data.
pub struct SmallTask {
    model: Small,
    param_specs: Vec<ParamSpec>,
    data: Arc<Data>,
    seed: u64,
    place: Place,
    replayed: Replayed<Passes>,
    replayed_inference: Replayed<Tensor<2>>,
    /// The next inference batch.
    inference_batch: Option<(Batch, Tensor<2>)>,
}

impl SmallTask {
    /// A task before its first step.
    pub fn new(model: Small, data: Arc<Data>, seed: u64, place: Place) -> Self {
        Self {
            model,
            param_specs: model.param_specs(),
            data,
            seed,
            place,
            replayed: Replayed::default(),
            replayed_inference: Replayed::default(),
            inference_batch: None,
        }
    }
}

impl Task for SmallTask {
    fn param_specs(&self) -> &[ParamSpec] {
        &self.param_specs
    }

    fn samples(&self) -> usize {
        self.data.train_len()
    }

    fn is_full_batch(&self) -> bool {
        *self.data == Data::Line
    }

    fn gradients(&mut self, step: &Step<'_>, parameters: &[Tensor<1>]) -> Result<Gradients, TrainError> {
        let (model, place, inner) = (self.model, &self.place, step.inner);
        let unread = |source| TrainError::read("the gradients", source);
        let fed = inner.phase("data", || {
            let batch = self.data.batch(step.indices);
            let mask = model.mask(rank_seed(self.seed, step.rank), step.number, batch.rows, place);
            Ok(model.feed(batch, mask, place))
        })?;
        let mean_of = (!self.is_full_batch()).then_some(step.indices.len());
        let kept = (parameters, &mut Vec::new());
        self.replayed.gradients(step, kept, (fed, mean_of), |parameters, _, fed| {
            let taped = inner.phase("forward", || model.forward(parameters, fed, place).map_err(unread))?;
            let (loss, gradients) = inner.phase("backward", || taped.backward().map_err(unread))?;
            // The dropout mask of a step is one of its inputs.
            Ok((Gradients { loss, gradients, mean_of, marks: ReadyMarks::default() }, true))
        })
    }

    fn evaluate(
        &mut self,
        parameters: &[Tensor<1>],
        heartbeat: &mut Heartbeat<'_>,
    ) -> Result<Option<Score>, TrainError> {
        let Data::Images { eval, .. } = &*self.data else { return Ok(None) };
        evaluate(&self.model, parameters, eval, &self.place, &mut |rows| heartbeat.beat(rows))
            .map(Some)
            .map_err(|source| TrainError::read("the answers", source))
    }

    fn inference_rows(&self) -> Option<usize> {
        match &*self.data {
            Data::Images { eval, .. } => Some(BATCH.min(eval.len())),
            Data::Line => None,
        }
    }

    fn prepare_inference(&mut self, n: u64, rows: usize) -> Result<(), TrainError> {
        if n == 0 {
            (self.replayed, self.replayed_inference) = Default::default();
        }
        if let Data::Images { eval, .. } = &*self.data {
            let batch = image_batch(eval, &turn(n, rows, eval.len()));
            let inputs = batch.inputs(&self.place);
            self.inference_batch = Some((batch, inputs));
        }
        Ok(self.place.sync()?)
    }

    fn infer(&mut self, parameters: &[Tensor<1>], _: &Heartbeat<'_>, may_replay: bool) -> Result<(), TrainError> {
        let Some((batch, inputs)) = self.inference_batch.take() else { return Ok(()) };
        let (model, place) = (&self.model, &self.place);
        match place {
            Place::Host => {
                answer(model, parameters, batch, place).map_err(|source| TrainError::read("the answers", source))?;
            }
            Place::Device(device) => {
                self.replayed_inference.inference(place, (may_replay, &[parameters]), inputs, |inputs| {
                    model.answer_on_device(parameters, inputs, device)
                })?;
            }
        }
        Ok(place.sync()?)
    }

    fn inference_graph(&self) -> Option<&str> {
        self.replayed_inference.outcome()
    }

    fn digest(&self) -> Digest {
        self.data.digest()
    }

    fn metrics(&self, values: &[TensorData]) -> Vec<(&'static str, f64)> {
        let (Small::Linear { .. }, [weight, bias]) = (self.model, values) else { return Vec::new() };
        let named = |name, values: &TensorData| Some((name, f64::from(*values.as_slice::<f32>().ok()?.first()?)));
        named("weight", weight).into_iter().chain(named("bias", bias)).collect()
    }
}
