//! What a worker runs: models, data, optimisers, and the loop that trains.
//!
//! Takes a cell and tells what happens as events; knows nothing of manifests, journals or ledgers.
//! Without the feature `train` the crate is empty. Every random number is made on the host from the cell's seed (`rng`); on the CPU the
//! same
//! cell gives the same bits in every loss and every weight, whatever the number of threads.
#![cfg(feature = "train")]

mod data;
mod detection;
mod device;
mod fit;
mod forward_context;
mod layers;
mod models;
mod ops;
mod optimizer;
mod parallel;
mod parameters;
mod precision;
mod ranks;
mod rl;
mod rng;
mod spec;
mod task;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod sample_tensors;

pub use data::DataError;
pub use data::idx::IdxError;
pub use device::load::load;
pub use device::memory::{memory, memory_before_steps};
pub use device::messages::{Logged, WatchError, watch_device_log};
pub use device::{BURN, DeviceError, program};
pub use parallel::{Fault, FaultError, write_last_phases};
pub use spec::SpecError;

use detection::mean_average_precision::EvaluationError;
use ledger_native::cuda as native;
use ledger_native::{gradient_readiness, number, tape};
use ledger_record::{Cell, Digest, EventKind};
use models::detector::ReadError;
use parallel::ParallelError;
use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Where a run's events go, and the clock that they are stamped with: this room has none of its own.
pub trait Sink: Sync {
    /// The time, in nanoseconds since some moment; it never goes back.
    fn now_ns(&self) -> u64;

    /// Takes one event of a rank and of that time, which may lie before that of an event taken earlier.
    fn emit_from(&self, rank: usize, t_ns: u64, kind: EventKind);

    /// Takes one event of that time.
    fn emit_at(&self, t_ns: u64, kind: EventKind) {
        self.emit_from(0, t_ns, kind);
    }

    /// Learns what is being done from now on, and how long it may take where that is known: for who asks if nothing more is heard.
    fn doing(&self, _what: &'static str, _index: u64, _limit: Option<Duration>) {}

    /// Takes one event of now.
    fn emit(&self, kind: EventKind) {
        self.emit_at(self.now_ns(), kind);
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It did all its steps, whatever its numbers say.
    Done,
    /// It was asked to stop and did so before a step.
    Stopped,
}

/// A run cannot be started or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The cell cannot be trained.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device did not give a value back.
    #[error("{what} cannot be read back from the device (its own messages say more)")]
    Read {
        /// What was to be read.
        what: &'static str,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// Ranks cannot do something together.
    #[error(transparent)]
    Parallel(#[from] ParallelError),
    /// A rank failed, and with it the run.
    #[error("rank {rank} failed, last in {last}: {problem}")]
    Rank {
        /// Its number, from 0.
        rank: usize,
        /// Its last phase.
        last: String,
        /// What came of it.
        problem: String,
    },
    /// What was found cannot be judged: a fault of the model's code.
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    /// A GPU cannot be kept busy.
    #[error("the load cannot run on the GPU: {reason} (`ledger doctor` shows what is missing)")]
    Load {
        /// Why.
        reason: String,
    },
    /// Parameters do not take part in the loss: a fault of the model's code.
    #[error("{found} of {expected} parameters have a gradient (the model does not use the others)")]
    Gradients {
        /// How many gradients came back.
        found: usize,
        /// How many parameters there are.
        expected: usize,
    },
}

impl From<ReadError> for TrainError {
    fn from(ReadError { what, source }: ReadError) -> Self {
        Self::Read { what, source }
    }
}

impl TrainError {
    fn read(what: &'static str, source: impl Error + Send + Sync + 'static) -> Self {
        Self::Read { what, source: Box::new(source) }
    }
}

/// Trains a cell and tells the sink what happens. `tuned` says, for whoever waits, whether an earlier run has tuned the device's kernels. A `fault` that is asked for
/// happens to one of several ranks.
///
/// Events, in this order:
/// - the facts `device_name`, `precision`, `kernels`, and `rayon_threads` on the CPU; on a GPU the fact `smoke`, of a first small
///   operation whose result is compared;
/// - one `Plan`, a `Status`, and the fact `inner_every`; on a GPU, where `telemetry.idle_s` is above 0, the phase `idle` with the
///   parameters uploaded and nothing running;
/// - for each epoch its `epoch` phase with a `Step` for each optimiser step (series `loss`, before the step's update), then an
///   `eval` phase and a `Step` without a duration, which is no training step but the evaluation after it (series `eval_loss`,
///   `eval_accuracy`);
/// - the metrics `eval_loss` and `accuracy`, `inference_batch_size`, and an `inference` phase for each timed answer to one batch of
///   evaluation data (none of them for `linear`), for each of `inference.batch_sizes` in a phase `inference_batch`; `loss`,
///   `skipped_steps` where losses are scaled, for `linear` also `weight` and `bias`, and the digests `weights` and `data`;
/// - for a published model the phase `peak` and the metric `matmul_tflops`.
///
/// A GPU works off a queue. Of its first ten steps, which compile and tune, the first three and the last are read one by one, as are those on a smaller
/// batch; the fact `first_step_s` tells of the first. The losses of all others are read together up to the next such one: each of these steps has
/// its own time by the card's clock, or where that has none the mean of their times, and lies where these times put it. Every step that `inner_every` divides is measured from inside: the phases `data`, `forward`, `backward` and
/// `optimizer` have the step's number and end when their work is done, not when it is queued. Such a step is a batch of its own.
///
/// With several ranks all events are the first one's, but for the phases of steps, `epoch` and the steps themselves without a loss, of which each rank tells. A step's loss is
/// that of all shards together. `all_reduce` lies between `backward` and `optimizer`: from when a rank has its gradients to when it has those of all. Facts: `ranks`,
/// `batch_global`, `last_batch` (samples of an epoch's last step), `learning_rate` (after its scaling), `all_reduce_mib`. Each rank tells the digest `shard.N` of the samples
/// that it saw, N being its number.
///
/// A diverged run ends like any other; its values are not finite. `stop` is looked at before every step and while idle. A stopped
/// run tells of the steps that it did and of nothing more.
///
/// # Errors
/// If the cell, its data or the device cannot be used, or the device fails. A panic of the device's threads is such a failure.
pub fn run(
    cell: &Cell,
    tuned: bool,
    fault: Option<Fault>,
    sink: &dyn Sink,
    stop: &AtomicBool,
) -> Result<Finish, TrainError> {
    let spec = spec::Spec::read(cell)?;
    if spec.ranks > 1 {
        return ranks::train(&spec, tuned, fault, sink, stop);
    }
    if let Some(fault) = fault {
        return Err(ParallelError::NoFault { fault }.into());
    }
    let place = ranks::opened(&spec, device::open, sink)?;
    let task = task::Loaded::load(&spec)?.task(&spec, &place, 0);
    let train = || fit::fit(parallel::ProcessGroup::single(), &spec, task, &place, sink, stop, tuned);
    if matches!(place, device::Place::Host) {
        return train();
    }
    device::caught(train).unwrap_or_else(|problem| Err(DeviceError::Lost { device: place.name(), problem }.into()))
}

/// What each generator of data draws, as a digest, by the data's name: it changes with every change of what is drawn.
pub fn generators() -> Vec<(&'static str, Digest)> {
    vec![
        ("digits", data::digits::reference_digest()),
        ("shapes", data::shapes::reference_digest()),
        ("scenes", data::scenes::reference_digest()),
        ("grammar", data::grammar::reference_digest()),
    ]
}

/// How many values the model of a cell learns.
pub fn parameter_count(cell: &Cell) -> Result<u64, TrainError> {
    Ok(parameters::count(&task::param_specs(&spec::Spec::read_task(cell)?)))
}
