//! The worker's trainer: models, data, optimisers and the training loop.
//!
//! Takes a cell and reports the run as events. Knows nothing of manifests, journals or ledgers.
//! Without the feature `train` the crate is empty.
//! Every random number is made on the host from the cell's seed (`rng`). On the CPU the same cell gives the same bits
//! in every loss and every weight, whatever the number of threads.
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

/// The receiver of a run's events, and the clock that stamps them.
pub trait Sink: Sync {
    /// Returns the time in nanoseconds since an arbitrary moment; it never goes back.
    fn now_ns(&self) -> u64;

    /// Takes an event of a rank at a time, which may be earlier than the time of a previous event.
    fn emit_from(&self, rank: usize, t_ns: u64, kind: EventKind);

    /// Takes an event of the first rank at a time.
    fn emit_at(&self, t_ns: u64, kind: EventKind) {
        self.emit_from(0, t_ns, kind);
    }

    /// Reports the current activity and, if known, how long it may take. The supervisor uses both if it hears nothing
    /// more.
    fn doing(&self, _what: &'static str, _index: u64, _limit: Option<Duration>) {}

    /// Takes an event of the first rank at the current time.
    fn emit(&self, kind: EventKind) {
        self.emit_at(self.now_ns(), kind);
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It did all its steps, even if its values are not finite.
    Done,
    /// It was asked to stop and stopped before a step.
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
    /// A value could not be read back from the device.
    #[error("{what} cannot be read back from the device (its own messages say more)")]
    Read {
        /// The value that was to be read.
        what: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// Communication between ranks failed.
    #[error(transparent)]
    Parallel(#[from] ParallelError),
    /// A rank failed and ended the run.
    #[error("rank {rank} failed, last in {last}: {problem}")]
    Rank {
        /// Its rank, from 0.
        rank: usize,
        /// Its last phase.
        last: String,
        /// The failure.
        problem: String,
    },
    /// The results of an evaluation are malformed: a fault of the model's code.
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    /// The load that keeps a GPU busy cannot run.
    #[error("the load cannot run on the GPU: {reason} (`ledger doctor` shows what is missing)")]
    Load {
        /// The cause.
        reason: String,
    },
    /// Some parameters do not affect the loss: a fault of the model's code.
    #[error("{found} of {expected} parameters have a gradient (the model does not use the others)")]
    Gradients {
        /// The number of gradients found.
        found: usize,
        /// The number of parameters.
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

/// Trains a cell and reports events to the sink. `tuned` says whether an earlier run has tuned the device's kernels; it
/// affects status messages, time limits and the number of warm-up steps. A `fault` is injected into one of several ranks.
///
/// Events, in this order:
/// - the facts `device_name`, `precision`, `kernels`, and `rayon_threads` on the CPU; on a GPU the fact `smoke`, the
///   result of a first small operation;
/// - one `Plan`, a `Status`, and the fact `inner_every`; on a GPU, if `telemetry.idle_s` is above 0, the phase `idle`
///   with the parameters uploaded and nothing running;
/// - for each epoch an `epoch` phase with a `Step` for each optimiser step (series `loss`, before the step's update),
///   then an `eval` phase and a `Step` without a duration for the evaluation (series `eval_loss`, `eval_accuracy`);
/// - except for `linear`: the metrics `eval_loss`, `accuracy` and `inference_batch_size`, and an `inference` phase for
///   each timed batch of evaluation data; each of `inference.batch_sizes` has an `inference_batch` phase around its
///   own;
/// - the metrics `loss`, `skipped_steps` if losses are scaled, and for `linear` `weight` and `bias`; the digests
///   `weights` and `data`;
/// - for a published model the phase `peak` and the metric `matmul_tflops`.
///
/// A GPU works asynchronously on a queue:
/// - Its first ten steps compile and tune. Of these, the first three and the last are read one by one, as are steps on
///   a smaller batch. The fact `first_step_s` is the duration of the first.
/// - The losses of all other steps are read together, up to the next step that is read alone. Each of them has its own
///   duration by the GPU's clock, or the mean of all if the device has no clock.
/// - Every step that `inner_every` divides is measured from inside and read alone. Its phases `data`, `forward`,
///   `backward` and `optimizer` have the step's number and end when their work is done, not when it is queued.
///
/// With several ranks, all events come from the first one, except that each rank reports the phases of its steps,
/// `epoch`, and its steps without a loss. A step's loss is that of all shards together. The phase `all_reduce` lies
/// between `backward` and `optimizer`, from when a rank has its own gradients to when it has the sums. Facts: `ranks`,
/// `batch_global`, `last_batch` (samples of an epoch's last step), `learning_rate` (after its scaling),
/// `all_reduce_mib`. Rank N reports the digest `shard.N` of the samples that it saw.
///
/// A diverged run ends like any other; its values are not finite. `stop` is checked before every step and while idle. A
/// stopped run reports the steps that it did and nothing more.
///
/// # Errors
/// If the cell, its data or the device cannot be used, or the device fails. A panic on a device's thread counts as a
/// device failure.
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
    device::suffice(spec.device, spec.ranks)?;
    let (loaded, place) = ranks::beside_loading(&spec, || ranks::opened(&spec, device::open, sink))?;
    let task = loaded.task(&spec, &place, 0);
    let train = || fit::fit(parallel::ProcessGroup::single(), &spec, task, &place, sink, stop, tuned);
    if matches!(place, device::Place::Host) {
        return train();
    }
    device::caught(train).unwrap_or_else(|problem| Err(DeviceError::Lost { device: place.name(), problem }.into()))
}

/// Returns a digest of sample output of each data generator, by the data's name. It changes whenever the generated data
/// change.
pub fn generators() -> Vec<(&'static str, Digest)> {
    vec![
        ("digits", data::digits::REFERENCE),
        ("shapes", data::shapes::REFERENCE),
        ("scenes", data::scenes::REFERENCE),
        ("grammar", data::grammar::REFERENCE),
    ]
}

/// Returns the number of trainable values of a cell's model.
pub fn parameter_count(cell: &Cell) -> Result<u64, TrainError> {
    Ok(parameters::count(&task::param_specs(&spec::Spec::read_task(cell)?)))
}
