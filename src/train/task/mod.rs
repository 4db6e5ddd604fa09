//! Tasks as the loop sees them: parameters, gradients of a step, evaluation, inference.
//!
//! A task joins a model and its data and knows nothing of optimisers, epochs or the order of samples.

mod ahead;
mod classification;
mod detection;
mod inference;
mod network;
mod open;
mod pipeline;
mod replayed;
mod rl;
mod small;
mod target_positions;

#[cfg(test)]
pub use open::open;
pub use open::{Loaded, param_specs};

pub mod evaluate;

use crate::device::Place;
use crate::fit::heartbeat::Heartbeat;
use crate::gradient_readiness::{ParameterGroups, ReadyMarks};
use crate::parameters::{self, ParamSpec};
use crate::{Sink, TrainError};
use burn::tensor::Tensor;
use ledger_record::{Digest, EventKind, PhaseEdge, Value};
use std::time::Duration;

/// A task.
pub trait Task {
    /// The parameters in their order.
    fn param_specs(&self) -> &[ParamSpec];

    /// Their initial values.
    fn initial(&self, seed: u64) -> Vec<Vec<f32>> {
        parameters::initial(self.param_specs(), seed)
    }

    /// The number of trainable values.
    fn parameter_count(&self) -> u64 {
        parameters::count(self.param_specs())
    }

    /// For each parameter, whether this stage counts it: the first of the stages that have it.
    fn owned(&self) -> Vec<bool> {
        vec![true; self.param_specs().len()]
    }

    /// All parameters of the model with their values, of which the task has these; none on all stages but the first.
    fn whole_model(&mut self, mine: Vec<Vec<f32>>) -> Result<Option<Whole>, TrainError> {
        Ok(Some((self.param_specs().to_vec(), mine)))
    }

    /// Number of training samples of an epoch.
    fn samples(&self) -> usize;

    /// Whether each step is a full batch over all data: then the whole run is one epoch.
    fn is_full_batch(&self) -> bool {
        false
    }

    /// One step. It tells the phases `data`, `forward` and `backward`.
    fn gradients(&mut self, step: &Step<'_>, parameters: &[Tensor<1>]) -> Result<Gradients, TrainError>;

    /// Evaluates the parameters: names and values of metrics, `eval_loss` first. `None` without evaluation data. It beats before each
    /// batch.
    fn evaluate(
        &mut self,
        parameters: &[Tensor<1>],
        heartbeat: &mut Heartbeat<'_>,
    ) -> Result<Option<Score>, TrainError>;

    /// The default batch size of timed inference; `None` without evaluation data.
    fn inference_rows(&self) -> Option<usize>;

    /// Prepares the n-th inference batch of so many rows of evaluation data. Batches follow each other; after the last sample comes the
    /// first. With batch 0 begins a row of batches of one size, which the same parameters answer.
    fn prepare_inference(&mut self, n: u64, rows: usize) -> Result<(), TrainError>;

    /// Runs inference on the batch that was prepared last, and waits for its end. It may be replayed if the rank has the whole model.
    fn infer(
        &mut self,
        parameters: &[Tensor<1>],
        heartbeat: &Heartbeat<'_>,
        may_replay: bool,
    ) -> Result<(), TrainError>;

    /// Whether inference is replayed since batch 0: `recorded`, or why not. `None` if the task does not try.
    fn inference_graph(&self) -> Option<&str> {
        None
    }

    /// Hashes all that is trained on or evaluated with.
    fn digest(&self) -> Digest;

    /// Facts about the data.
    fn facts(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// Metrics that are known before the run: names, values and units.
    fn static_metrics(&self) -> Vec<(&'static str, f64, &'static str)> {
        Vec::new()
    }

    /// Metrics of the final parameters, beside the last evaluation's.
    fn metrics(&self, _values: &[Vec<f32>]) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// A model's parameters and their values.
pub type Whole = (Vec<ParamSpec>, Vec<Vec<f32>>);

/// What an evaluation found: `eval_loss` or `eval_accuracy`, for example, and its value.
pub type Score = Vec<(&'static str, f64)>;

/// What a step found.
pub struct Gradients {
    /// The loss before it, shape [1] and off the tape.
    pub loss: Tensor<1>,
    /// The gradient of every parameter in their order, times the step's scale.
    pub gradients: Vec<Tensor<1>>,
    /// How many samples or tokens the loss is the mean of, by which ranks weigh theirs; none where it is a sum.
    pub mean_of: Option<usize>,
    /// Where the gradients of each group that the step asks for are whole; nothing where that is not known.
    pub marks: ReadyMarks,
}

/// The samples of a step.
pub struct Step<'a> {
    /// Its number, from 1.
    pub number: u64,
    /// The epoch that it belongs to, from 1.
    pub epoch: u64,
    /// The rank that does it: what it draws for itself differs from what others draw.
    pub rank: usize,
    /// Its samples.
    pub indices: &'a [usize],
    /// Those of the first rank; its own where there is no other.
    pub lead: &'a [usize],
    /// Those of the step after it, if it is of the same epoch and has any.
    pub next: Option<&'a [usize]>,
    /// Parameters whose gradients are wanted as soon as they are there, in groups.
    pub groups: Option<&'a ParameterGroups>,
    /// Its passes may be replayed: a whole batch, behind the warm-up, that is not measured from inside.
    pub may_replay: bool,
    /// The loss scale: the loss is multiplied by it before the backward pass, and so are the gradients.
    pub scale: f64,
    /// How its parts are told.
    pub inner: Inner<'a>,
}

#[cfg(test)]
impl<'a> Step<'a> {
    /// One of a rank whose samples are `indices`, in the first epoch and without loss scaling.
    pub fn of_rank(rank: usize, indices: &'a [usize], inner: Inner<'a>) -> Self {
        let number = inner.step;
        Self {
            number,
            epoch: 1,
            rank,
            indices,
            lead: indices,
            next: None,
            groups: None,
            may_replay: false,
            scale: 1.0,
            inner,
        }
    }
}

/// The inner phases of one step.
#[derive(Clone, Copy)]
pub struct Inner<'a> {
    /// Where it happens.
    pub place: &'a Place,
    /// Where events go.
    pub sink: &'a dyn Sink,
    /// Its number.
    pub step: u64,
    /// Synchronise with the device after each phase.
    pub waits: bool,
    /// Emit the phases.
    pub tells: bool,
    /// The time limit of each phase, if supervised.
    pub limit: Option<Duration>,
    /// The timeout of waits for another rank.
    pub wait_limit: Option<Duration>,
}

impl Inner<'_> {
    /// Does a part of the step's work.
    pub fn phase<T>(self, name: &'static str, work: impl FnOnce() -> Result<T, TrainError>) -> Result<T, TrainError> {
        let tell = |edge| {
            if self.tells {
                self.sink.emit(EventKind::Phase { name: name.to_owned(), index: self.step, edge });
            }
        };
        self.sink.doing(name, self.step, self.limit);
        tell(PhaseEdge::Start);
        let done = work()?;
        if self.waits {
            self.place.sync()?;
        }
        tell(PhaseEdge::Stop);
        Ok(done)
    }
}

#[cfg(test)]
mod tests;
