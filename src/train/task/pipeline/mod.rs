//! Pipeline parallelism: the units of a model are distributed over stages, each on a device of its own (Huang et al.
//! 2019, "GPipe: efficient training of giant neural networks using pipeline parallelism").
//!
//! A batch is cut into micro-batches. These go through the stages one after the other, forward in order and backward in
//! reverse order. The parameters of a stage do not change meanwhile, and the gradients are summed. Batch normalisation
//! uses the statistics of a micro-batch, and each micro-batch updates the running statistics (section 2.3 of the
//! paper). A single stage sums the gradients of micro-batches in the same way.
//!
//! A parameter that units of two stages use is on both stages. Each stage adds the other's gradient to its own, so that
//! both copies stay equal.

mod boundary;
mod costs;
mod exchange;
mod micro;
mod stages;

pub use costs::costs;
pub use stages::{Stages, cut};

use super::classification::{on_device, scored, static_metrics};
use super::network::{Network, leaves};
use super::{Gradients, Score, Step, Task, Whole};
use crate::TrainError;
use crate::data::dataset::{Dataset, Samples};
use crate::device::Place;
use crate::fit::WARM_UP;
use crate::fit::heartbeat::Heartbeat;
use crate::forward_context::ForwardContext;
use crate::gradient_readiness::{Mark, ReadyMarks, begin};
use crate::layers::{cross_entropy, loss_and_correct};
use crate::models::units::Activation;
use crate::models::{Input, Model};
use crate::native::memory::read;
use crate::ops::joined;
use crate::parallel::{Endpoint, FlatTensor, ParallelError, SyncPoint};
use crate::parameters::{self, ParamSpec};
use crate::precision::Precision;
use crate::task::ahead::Ahead;
use crate::task::evaluate::turn;
use boundary::Boundary;
use burn::tensor::{Tensor, TensorData};
use ledger_record::{Digest, Value};
use micro::Micro;
use std::cell::RefCell;
use std::sync::Arc;

/// A stage of a model in training.
pub struct PipelineStage {
    network: Network,
    stages: Arc<Stages>,
    number: usize,
    /// The endpoint for messages to the other stages; `None` for a single stage.
    endpoint: Option<Endpoint>,
    data: Arc<dyn Dataset>,
    seed: u64,
    /// Rows of an evaluation batch.
    batch: usize,
    micro_batches: usize,
    ahead: Ahead<Samples>,
    /// The next inference batch: the input on the first stage, `None` on the others.
    inference_batch: Option<Option<Input>>,
    /// The number of inference exchanges between stages, which numbers their messages.
    exchanges: u64,
    /// Marks before and behind each pass of this step.
    borders: RefCell<Vec<Mark>>,
}

/// The parts from which a stage is made.
pub struct Parts {
    /// The whole model.
    pub model: Box<dyn Model>,
    /// Number format of products and convolutions.
    pub precision: Precision,
    /// The data.
    pub data: Arc<dyn Dataset>,
    /// The seed of random draws.
    pub seed: u64,
    /// Rows of a step.
    pub batch: usize,
    /// The number of micro-batches in a step.
    pub micro_batches: usize,
}

/// Saved tensors of a micro-batch, from its forward pass to its backward pass.
struct SavedMicroBatch {
    leaves: Vec<Tensor<1>>,
    /// The activation from the previous stage, as leaves.
    received: Option<Boundary>,
    output: Box<StageOutput>,
}

#[expect(clippy::large_enum_variant, reason = "lies in a box")]
enum StageOutput {
    Loss(Tensor<1>),
    Boundary(Boundary),
}

impl PipelineStage {
    /// A stage before its first step.
    pub fn new(parts: Parts, stages: Arc<Stages>, number: usize, endpoint: Option<Endpoint>, place: &Place) -> Self {
        let Parts { model, precision, data, seed, batch, micro_batches } = parts;
        let statistics = stages.own_statistics(number, &*model);
        let network = Network::part(model, [stages.own(number), statistics], precision, place);
        let batch = batch.min(data.eval_len()).max(1);
        let (ahead, exchanges) = (Ahead::new(), 0);
        let borders = RefCell::default();
        Self {
            network,
            stages,
            number,
            endpoint,
            data,
            seed,
            batch,
            micro_batches,
            ahead,
            inference_batch: None,
            exchanges,
            borders,
        }
    }

    fn first(&self) -> bool {
        self.number == 0
    }

    fn last(&self) -> bool {
        self.number + 1 == self.stages.count()
    }

    /// Runs the forward pass of a micro-batch through this stage.
    fn forward(
        &mut self,
        step: &Step<'_>,
        number: usize,
        (parameters, counted): (&[Tensor<1>], usize),
        micro: Micro,
    ) -> Result<SavedMicroBatch, TrainError> {
        let received = match micro.input {
            Some(_) => None,
            None => Some(self.receive(step, "forward", self.number.wrapping_sub(1))?.leaves()),
        };
        self.border(step);
        let leaves = leaves(parameters);
        let (classes, units) = (self.network.model.classes(), self.stages.units(self.number));
        let (model, mut ctx) = self.network.training(&leaves, [self.seed, step.number]);
        let activation = match (micro.input, received.clone()) {
            (Some(input), _) => Activation::Input(input.taped(&ctx)),
            (None, Some(received)) => received.activation(),
            (None, None) => panic!("a stage has nothing to begin with"),
        };
        let targets = micro.targets.map(|targets| targets.select(&mut ctx));
        let output = run(model, &mut ctx, units, activation, number);
        let output = match targets {
            Some(targets) => StageOutput::Loss(cross_entropy(&ctx, output.rows(), targets, [classes, counted])),
            None => {
                let boundary = Boundary::of(output);
                self.send(step, "forward", self.number + 1, boundary.clone().off_tape())?;
                StageOutput::Boundary(boundary)
            }
        };
        Ok(SavedMicroBatch { leaves, received, output: Box::new(output) })
    }

    /// Runs the backward pass of a micro-batch through this stage. Returns gradients of the parameters, and the loss on
    /// the last stage.
    fn backward(
        &self,
        step: &Step<'_>,
        saved: SavedMicroBatch,
    ) -> Result<(Vec<Tensor<1>>, Option<Tensor<1>>), TrainError> {
        let SavedMicroBatch { leaves, received, output } = saved;
        let (root, loss) = match *output {
            StageOutput::Loss(loss) if step.scale == 1.0 => (loss.clone(), Some(loss.inner())),
            StageOutput::Loss(loss) => (loss.clone() * step.scale, Some(loss.inner())),
            StageOutput::Boundary(boundary) => (boundary.root(self.receive(step, "backward", self.number + 1)?), None),
        };
        self.border(step);
        let mut tape = root.backward();
        if let Some(received) = received {
            self.send(step, "backward", self.number - 1, received.gradients(&mut tape))?;
        }
        let of = |(leaf, param_spec): (&Tensor<1>, &ParamSpec)| match leaf.grad_remove(&mut tape) {
            Some(gradient) => Ok(crate::tape::clean(gradient)),
            None => Err(param_spec.name.clone()),
        };
        let found: Result<Vec<Tensor<1>>, String> = leaves.iter().zip(&self.network.param_specs).map(of).collect();
        let expected = leaves.len();
        found.map(|found| (found, loss)).map_err(|_| TrainError::Gradients { found: expected - 1, expected })
    }

    /// Marks the beginning or the end of a pass. Steps that wait between their phases or that compile are not timed.
    fn border(&self, step: &Step<'_>) {
        if self.endpoint.is_some() && !step.inner.waits && step.number > WARM_UP {
            self.borders.borrow_mut().push(Mark::of(&self.network.place.device(), true));
        }
    }

    /// Marks the end of a pass and submits its work, because this stage may wait for another one before its next pass.
    fn ended(&self, step: &Step<'_>) {
        self.border(step);
        begin(&self.network.place.device());
    }
}

/// Runs units of a model, one after the other.
fn run(
    model: &dyn Model,
    ctx: &mut ForwardContext<'_>,
    units: std::ops::Range<usize>,
    activation: Activation,
    micro: usize,
) -> Activation {
    let Some(parts) = model.units() else { panic!("the model is not made of units") };
    units.fold(activation, |activation, unit| {
        ctx.begin(unit, micro);
        parts.unit(ctx, unit, activation)
    })
}

/// Puts a stage's values in their places. Returns whether they equal the values that another stage put there before.
fn put(values: &mut [TensorData], places: &[usize], theirs: Vec<TensorData>) -> bool {
    let mut alike = true;
    for (place, theirs) in places.iter().zip(theirs) {
        match values.get_mut(*place) {
            Some(value) if value.num_elements() == 0 => *value = theirs,
            Some(value) => alike &= value.as_bytes() == theirs.as_bytes(),
            None => alike = false,
        }
    }
    alike
}

impl Task for PipelineStage {
    fn param_specs(&self) -> &[ParamSpec] {
        &self.network.param_specs
    }

    fn initial(&self, seed: u64) -> Vec<Vec<f32>> {
        parameters::initial_of(&self.stages.numbered(self.number), seed)
    }

    fn owned(&self) -> Vec<bool> {
        self.stages.owned(self.number)
    }

    fn samples(&self) -> usize {
        self.data.train_len()
    }

    fn gradients(&mut self, step: &Step<'_>, parameters: &[Tensor<1>]) -> Result<Gradients, TrainError> {
        let inner = step.inner;
        let (micros, counted) = inner.phase("data", || self.micros(step))?;
        let mut saved = inner.phase("forward", || {
            let each = micros.into_iter().enumerate();
            let forward = |(number, micro)| {
                let saved = self.forward(step, number, (parameters, counted), micro);
                self.ended(step);
                saved
            };
            each.map(forward).collect::<Result<Vec<SavedMicroBatch>, _>>()
        })?;
        inner.phase("backward", || {
            let (mut gradients, mut loss): (Vec<Tensor<1>>, Option<Tensor<1>>) = (Vec::new(), None);
            while let Some(saved) = saved.pop() {
                let (found, part) = self.backward(step, saved)?;
                gradients = if gradients.is_empty() {
                    found
                } else {
                    gradients.into_iter().zip(found).map(|(sum, more)| sum + more).collect()
                };
                loss = match (loss, part) {
                    (Some(sum), Some(part)) => Some(sum + part),
                    (sum, part) => sum.or(part),
                };
                self.ended(step);
            }
            self.tie(step, &mut gradients)?;
            if let Some(endpoint) = &self.endpoint {
                endpoint.release(0, SyncPoint { what: "backward", index: step.number, limit: inner.wait_limit })?;
            }
            let loss = loss.unwrap_or_else(|| Tensor::zeros([1], &self.network.place.device()));
            Ok(Gradients {
                loss,
                gradients,
                mean_of: Some(counted),
                marks: ReadyMarks { passes: self.borders.take(), ..ReadyMarks::default() },
            })
        })
    }

    fn evaluate(
        &mut self,
        parameters: &[Tensor<1>],
        heartbeat: &mut Heartbeat<'_>,
    ) -> Result<Option<Score>, TrainError> {
        let (mut found, mut all, classes) = (Vec::new(), 0, self.network.model.classes());
        let indices: Vec<usize> = (0..self.data.eval_len()).collect();
        for indices in indices.chunks(self.batch) {
            heartbeat.beat(indices.len());
            // Stages in the middle need no samples.
            let asked = if self.first() || self.last() { Some(self.data.eval(indices)?) } else { None };
            let (input, targets, counted) = match asked.map(|samples| on_device(samples, &self.network.place.device()))
            {
                Some((input, targets, counted)) => (self.first().then_some(input), Some(targets), counted),
                None => (None, None, 0),
            };
            let judged = self.answered((parameters, heartbeat.wait_limit()), input, |ctx, answers| {
                targets.map(|targets| loss_and_correct(ctx, answers, targets, classes))
            })?;
            found.extend(judged.flatten());
            all += counted;
        }
        let found = (!found.is_empty()).then(|| joined(found));
        let Some(found) = self.led(found, heartbeat.wait_limit())? else { return Ok(None) };
        let found: Vec<f32> = found.try_into_vec_as().map_err(|source| TrainError::read("the answers", source))?;
        let [loss, right] =
            [0, 1].map(|place| found.iter().skip(place).step_by(2).copied().map(f64::from).sum::<f64>());
        Ok(Some(scored(&*self.network.model, [loss, right], all)))
    }

    fn inference_rows(&self) -> Option<usize> {
        Some(self.batch)
    }

    fn prepare_inference(&mut self, n: u64, rows: usize) -> Result<(), TrainError> {
        let input = if self.first() {
            let samples = self.data.eval(&turn(n, rows, self.data.eval_len()))?;
            Some(on_device(samples, &self.network.place.device()).0)
        } else {
            None
        };
        self.inference_batch = Some(input);
        Ok(self.network.place.sync()?)
    }

    fn infer(&mut self, parameters: &[Tensor<1>], heartbeat: &Heartbeat<'_>, _: bool) -> Result<(), TrainError> {
        let Some(input) = self.inference_batch.take() else { return Ok(()) };
        let limit = heartbeat.wait_limit();
        let answers = self.answered((parameters, limit), input, |_, answers| answers)?;
        // The first stage waits for the first output value of the last stage, which arrives when the last stage is
        // done.
        let word = answers.map(|answers| answers.slice([0..1, 0..1]).flatten::<1>(0, 1));
        self.led(word, limit)?;
        Ok(self.network.place.sync()?)
    }

    fn parameter_count(&self) -> u64 {
        parameters::count(self.stages.param_specs())
    }

    fn whole_model(&mut self, mine: Vec<TensorData>) -> Result<Option<Whole>, TrainError> {
        let Some(endpoint) = &self.endpoint else { return Ok(Some((self.stages.param_specs().to_vec(), mine))) };
        let limit = Some(endpoint.limits.step.saturating_add(endpoint.limits.last));
        let at = SyncPoint { what: "weights", index: 1, limit };
        let place = &self.network.place;
        if !self.first() {
            let device = place.device();
            let tensor = |values: TensorData| FlatTensor {
                shape: vec![values.num_elements()],
                values: Tensor::from_data(values, &device),
            };
            endpoint.send(0, at, mine.into_iter().map(tensor).collect())?;
            endpoint.release(0, at)?;
            place.sync()?;
            place.check()?;
            return Ok(None);
        }
        let mut values = vec![TensorData::new(Vec::<f32>::new(), [0]); self.stages.param_specs().len()];
        put(&mut values, self.stages.places(0), mine);
        for stage in 1..self.stages.count() {
            let received =
                |tensor: FlatTensor| read(&tensor.values).map_err(|source| TrainError::read("the parameters", source));
            let theirs: Vec<TensorData> =
                endpoint.receive(stage, at)?.into_iter().map(received).collect::<Result<_, _>>()?;
            if !put(&mut values, self.stages.places(stage), theirs) {
                return Err(ParallelError::Apart { ranks: vec![stage] }.into());
            }
        }
        Ok(Some((self.stages.param_specs().to_vec(), values)))
    }

    fn digest(&self) -> Digest {
        self.data.digest()
    }

    fn facts(&self) -> Vec<(&'static str, Value)> {
        let mut facts = self.data.facts();
        facts.push(("micro_batches", self.micro_batches.into()));
        if self.endpoint.is_some() {
            facts.push(("stages", self.stages.to_string().into()));
            facts.push(("bubble_of_gpipe", self.stages.bubble(self.micro_batches).into()));
        }
        facts
    }

    fn static_metrics(&self) -> Vec<(&'static str, f64, &'static str)> {
        static_metrics(&*self.network.model, &*self.data)
    }
}

#[cfg(test)]
mod tests;
