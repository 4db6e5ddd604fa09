//! What a worker runs: models, data, optimisers, and the loop that trains.
//!
//! Takes a [`Cell`] and tells what happens as events; knows nothing of manifests, journals or ledgers.
//! The only room that names Burn. Every random draw is made on the host from the cell's seed (`draw`); on the CPU the same
//! cell gives the same bits in every loss and every weight, whatever the number of threads.

mod convolution;
mod data;
mod device;
mod digits;
mod draw;
mod evaluate;
mod fit;
mod idx;
mod images;
mod model;
mod number;
mod optimizer;
mod schedule;
mod spec;
mod watch;

#[cfg(test)]
mod sample;

pub use data::DataError;
pub use device::{BURN, DeviceError, REVISION, program};
pub use digits::reference_digest as digits_reference_digest;
pub use idx::IdxError;
pub use spec::SpecError;
pub use watch::{WatchError, watch_device_log};

use crate::record::{Cell, EventKind};
use number::wide;
use std::error::Error;
use std::sync::atomic::AtomicBool;

/// Where a run's events go. It stamps each with time and rank.
pub trait Sink: Sync {
    /// Takes one event.
    fn emit(&self, kind: EventKind);
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
    /// Parameters do not take part in the loss: a fault of the model's code.
    #[error("{found} of {expected} parameters have a gradient (the model does not use the others)")]
    Gradients {
        /// How many gradients came back.
        found: usize,
        /// How many parameters there are.
        expected: usize,
    },
}

impl TrainError {
    fn read(what: &'static str, source: impl Error + Send + Sync + 'static) -> Self {
        Self::Read { what, source: Box::new(source) }
    }
}

/// Trains a cell and tells the sink what happens.
///
/// Events, in this order: one `Plan`; a `Status`; for each epoch its `epoch` phase with a `Step` for each optimiser step
/// (series `loss`, before the step's update), then an `eval` phase and a `Step` without a duration, which is no training step
/// but the evaluation after it (series `eval_loss`, `eval_accuracy`); at the end the metrics `eval_loss`, `accuracy`,
/// `inference_time` (none of them for `linear`), `loss`, `train_time`, `epoch_time`, for `linear` also `weight` and `bias`, and
/// the digests `weights` and `data`. A diverged run ends like any other; its values are not finite.
///
/// `stop` is looked at before every step. A stopped run tells of the steps that it did and of nothing more.
pub fn run(cell: &Cell, sink: &dyn Sink, stop: &AtomicBool) -> Result<Finish, TrainError> {
    let spec = spec::Spec::read(cell)?;
    let place = device::open(spec.device)?;
    let data = data::Data::load(&spec.data, spec.batch, spec.seed)?;
    fit::fit(&spec, &data, &place, sink, stop)
}

/// How many values the model of a cell learns.
pub fn parameter_count(cell: &Cell) -> Result<u64, TrainError> {
    let model = spec::Spec::read_model(cell)?;
    Ok(model.layouts().iter().map(|layout| wide(layout.len())).sum())
}
