//! Executes attempts from start to seal, sweeps of many attempts, and the recovery of those whose supervisor died.
//!
//! Knows the order of the steps: fingerprint, lock, journal, worker, journal, seal. Must not know how a model is
//! trained, how queries are answered, or how output is formatted.

mod attach;
mod attached;
mod attempt;
mod backlog;
mod bind;
mod bound;
mod calibrate;
mod calibrations;
mod closure;
mod container;
mod data;
mod drift;
mod expect;
mod fold;
mod halt;
mod hold;
mod hold_error;
mod kept;
mod kernels;
mod left;
mod libraries;
mod living;
mod loaded;
mod machine;
mod matches;
mod orphans;
mod output;
mod pending;
mod place;
mod program;
mod protocol;
mod recover;
mod refusal;
mod restore;
mod said;
mod sweep;
mod telemetry;
mod until;
mod worker;
mod zeusd;

pub use attach::attach;
pub use attempt::{Attempted, Executed, execute};
pub use bind::{anchor, bind, bind_anchored, observe_only, rebind, rebind_with};
pub use bound::{Bound, Launch, OBSERVE_ONLY, Trainer};
pub use calibrate::{CalibrateError, Calibrated, Load, calibrate};
pub use calibrations::{CalibrationError, KeptCalibration, calibration_check};
pub use container::{ContainerError, Image, image_of, surroundings};
pub use data::DataFiles;
pub use drift::{Canary, Drift};
pub use expect::Expected;
pub use fold::{FIRST_REJECTED, Folded, IMPOSSIBLE, REJECTED};
pub use hold_error::HoldError;
pub use kernels::{KernelCache, KernelCacheError, UnpinnedError, is_compiled_late};
pub use left::Left;
pub use living::{Living, OutputFollower, Pulse};
pub use loaded::{is_changed, is_of_files, is_of_identity, is_of_program, read_files, read_files_changed};
pub use machine::{KnownFile, Machine};
pub use matches::is_stale;
pub use orphans::is_of_left_processes;
pub use place::Place;
pub use program::ProgramFile;
pub use protocol::{CANARY, Order};
pub use recover::{Recovered, recover, recover_left, try_recover};
pub use refusal::{BindError, ClosureError, Refusal};
pub use restore::{Held, HeldState, Restored, held, restore, watch_settings};
pub use sweep::{Cause, Planned, Sweep, SweepReport, attempts, plan};
pub use until::{Repeated, Until, filled};
pub use worker::Shim;
pub use zeusd::zeusd_socket;

use crate::host::HostError;
use crate::journal::JournalError;
use crate::record::{AttemptId, Event, Nonce, RunId, Table};
use crate::store::StoreError;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An attempt could not be executed or stored.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The cell cannot be bound to this machine.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The ledger cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A system call failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The compiled kernels cannot be stored.
    #[error(transparent)]
    Kernels(#[from] KernelCacheError),
    /// The settings that the cell asks for cannot be made on the GPUs.
    #[error(transparent)]
    Hold(#[from] HoldError),
    /// The image that the run is bound to cannot be used.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// The data changed after the run id was computed.
    #[error(
        "{0}; the remaining runs with these data were not started (repeat the command, or `submit`, to compute their ids again)"
    )]
    Data(String),
    /// The program changed after the run id was computed.
    #[error(
        "{0}; the remaining runs of this program were not started (repeat the command: the changed program has other run ids)"
    )]
    Program(String),
    /// The data cannot be compared with those of the run id.
    #[error("the run was not started, since its data cannot be checked (repeat the command, or `submit`)")]
    Unseen(#[source] BindError),
    /// The attempt is over, but could not be sealed.
    #[error("the attempt could not be sealed and waits in `{}` (the next command seals it)", journal.display())]
    Unsealed {
        /// The journal that has it.
        journal: PathBuf,
        /// The nonce by which it is found once it is sealed.
        nonce: Nonce,
        /// Why.
        #[source]
        source: Box<StoreError>,
    },
    /// A journal whose owner this process cannot check locks the run.
    #[error("the run is locked by `{}`, of another host or a newer ledger (wait for it; if its command is gone, `ledger doctor --seal` with that name seals its attempt)", journal.display())]
    Blocked {
        /// The journal.
        journal: PathBuf,
    },
}

/// An event in the execution of attempts, for observers.
#[derive(Debug)]
pub enum Seen<'a> {
    /// An attempt begins.
    Begun(&'a Bound),
    /// A process that already runs is supervised. It writes its events to this pipe.
    Attached(RunId, &'a Path),
    /// The worker reported an event.
    Event(RunId, &'a Event),
    /// The worker wrote text to its standard output or error.
    Output(RunId, &'a str),
    /// The attempt is over and sealed.
    Ended(&'a Bound, &'a Executed),
    /// The attempt could not be executed or stored.
    Troubled(&'a Bound, &'a EngineError),
    /// Another process executes the run.
    Elsewhere(&'a Bound),
    /// The run waits for its GPUs to cool. The hottest has this temperature in °C.
    Cooling(&'a Bound, u32),
    /// The first sample of its sensors takes long.
    Unread(&'a Bound),
    /// A journal without an owner was sealed.
    Recovered(AttemptId),
}

/// Observes attempts, from several threads.
pub trait Watch: Sync {
    /// Receives an event.
    fn see(&self, seen: Seen<'_>);

    /// Further facts to record for an attempt whose worker has ended.
    fn last_facts(&self, _run: RunId) -> Table {
        Table::new()
    }
}

/// How an attached process ended the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachedEnd {
    /// It reported that it finished.
    Finished,
    /// It reported that Ctrl-C stopped it.
    Interrupted,
    /// It reported nothing, as when it is killed.
    Silent,
}

/// A request to stop, polled many times a second.
pub trait Stop: Sync {
    /// The number of requests: one means to stop at the next good moment, more mean now.
    fn asked(&self) -> u32;
    /// The time left for a worker to stop, if this process will be killed soon, as by a scheduler.
    fn time_left(&self) -> Option<Duration> {
        None
    }
    /// How an attached process ended the recording. `None` while it goes on.
    fn attached_end(&self) -> Option<AttachedEnd> {
        None
    }
    /// The source of the request for the record: `it was stopped on request`.
    fn by(&self) -> String {
        "on request".to_owned()
    }
}

/// A fixed number of requests.
#[cfg(test)]
impl Stop for u32 {
    fn asked(&self) -> u32 {
        *self
    }
}
