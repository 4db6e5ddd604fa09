//! Tasks as the training loop uses them: parameters, gradients of a step, evaluation, inference.
//!
//! A task combines a model and its data. It knows nothing of optimisers, epochs or the order of samples.

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
use burn::tensor::{Tensor, TensorData};
use ledger_record::{Digest, EventKind, PhaseEdge, Value};
use std::time::Duration;

/// A model and its data, as the training loop uses them.
pub trait Task {
    /// Returns the parameters in their order.
    fn param_specs(&self) -> &[ParamSpec];

    /// Returns their initial values.
    fn initial(&self, seed: u64) -> Vec<Vec<f32>> {
        parameters::initial(self.param_specs(), seed)
    }

    /// Returns the number of trainable values.
    fn parameter_count(&self) -> u64 {
        parameters::count(self.param_specs())
    }

    /// Returns for each parameter whether this stage counts it: it is the first of the stages that have it.
    fn owned(&self) -> Vec<bool> {
        vec![true; self.param_specs().len()]
    }

    /// Returns all parameters of the model with their values, of which this task has `mine`. Returns `None` on all
    /// stages but the first.
    fn whole_model(&mut self, mine: Vec<TensorData>) -> Result<Option<Whole>, TrainError> {
        Ok(Some((self.param_specs().to_vec(), mine)))
    }

    /// Returns the number of training samples of an epoch.
    fn samples(&self) -> usize;

    /// Whether each step is a full batch over all data. The whole run is then one epoch.
    fn is_full_batch(&self) -> bool {
        false
    }

    /// Computes the gradients of a step. Reports the phases `data`, `forward` and `backward`.
    fn gradients(&mut self, step: &Step<'_>, parameters: &[Tensor<1>]) -> Result<Gradients, TrainError>;

    /// Evaluates the parameters. Returns names and values of metrics, `eval_loss` first; `None` without evaluation
    /// data. Sends a heartbeat before each batch.
    fn evaluate(
        &mut self,
        parameters: &[Tensor<1>],
        heartbeat: &mut Heartbeat<'_>,
    ) -> Result<Option<Score>, TrainError>;

    /// Returns the default batch size of timed inference; `None` without evaluation data.
    fn inference_rows(&self) -> Option<usize>;

    /// Prepares the n-th inference batch of `rows` rows of evaluation data. Batches follow each other in a cycle over
    /// the samples. Batch 0 begins a series of batches of one size with the same parameters.
    fn prepare_inference(&mut self, n: u64, rows: usize) -> Result<(), TrainError>;

    /// Runs inference on the batch that was prepared last and waits for its end. It may be replayed if the rank has the
    /// whole model.
    fn infer(
        &mut self,
        parameters: &[Tensor<1>],
        heartbeat: &Heartbeat<'_>,
        may_replay: bool,
    ) -> Result<(), TrainError>;

    /// Returns whether inference has been replayed since batch 0: `recorded`, or the reason why not. `None` if the task
    /// does not try.
    fn inference_graph(&self) -> Option<&str> {
        None
    }

    /// Returns a digest of all training and evaluation data.
    fn digest(&self) -> Digest;

    /// Returns facts about the data.
    fn facts(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// Returns metrics that are known before the run: names, values and units.
    fn static_metrics(&self) -> Vec<(&'static str, f64, &'static str)> {
        Vec::new()
    }

    /// Returns metrics of the final parameters, besides those of the last evaluation.
    fn metrics(&self, _values: &[TensorData]) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// A model's parameters and their values.
pub type Whole = (Vec<ParamSpec>, Vec<TensorData>);

/// The scores of an evaluation: names, such as `eval_loss` or `eval_accuracy`, and values.
pub type Score = Vec<(&'static str, f64)>;

/// The results of a step.
pub struct Gradients {
    /// The loss before the step's update, shape [1] and off the tape.
    pub loss: Tensor<1>,
    /// The gradient of every parameter in their order, times the step's scale.
    pub gradients: Vec<Tensor<1>>,
    /// The number of samples or tokens that the loss is the mean of, by which ranks are weighted; `None` if the loss is
    /// a sum.
    pub mean_of: Option<usize>,
    /// Marks behind which the gradients of each requested group are complete; empty if that is not known.
    pub marks: ReadyMarks,
}

/// The samples of a step.
pub struct Step<'a> {
    /// Its number, from 1.
    pub number: u64,
    /// The epoch that it belongs to, from 1.
    pub epoch: u64,
    /// The rank of the step, whose random draws differ from those of other ranks.
    pub rank: usize,
    /// Its samples.
    pub indices: &'a [usize],
    /// The samples of the first rank; the step's own if there is no other rank.
    pub lead: &'a [usize],
    /// The samples of the next step, if it is in the same epoch and has any.
    pub next: Option<&'a [usize]>,
    /// Groups of parameters whose gradients are needed as soon as they are complete.
    pub groups: Option<&'a ParameterGroups>,
    /// Whether its passes may be replayed: a whole batch after the warm-up that is not measured from inside.
    pub may_replay: bool,
    /// The loss scale: the loss is multiplied by it before the backward pass, and so are the gradients.
    pub scale: f64,
    /// Reports its inner phases.
    pub inner: Inner<'a>,
}

#[cfg(test)]
impl<'a> Step<'a> {
    /// A step of a rank with the samples `indices`, in the first epoch, without loss scaling, reported phases and limits.
    pub fn of_rank(rank: usize, indices: &'a [usize], place: &'a Place, sink: &'a dyn Sink, number: u64) -> Self {
        let inner = Inner { place, sink, step: number, waits: false, tells: false, limit: None, wait_limit: None };
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
    /// The device.
    pub place: &'a Place,
    /// The receiver of events.
    pub sink: &'a dyn Sink,
    /// The number of the step.
    pub step: u64,
    /// Whether to synchronise with the device after each phase.
    pub waits: bool,
    /// Whether to emit the phases.
    pub tells: bool,
    /// The time limit of each phase, if supervised.
    pub limit: Option<Duration>,
    /// The timeout of waits for another rank.
    pub wait_limit: Option<Duration>,
}

impl Inner<'_> {
    /// Runs a phase of the step.
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
