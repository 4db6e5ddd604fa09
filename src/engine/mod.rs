//! An attempt from its start to its seal; sweeps of many; recovery of those whose supervisor died.
//!
//! Knows the order in which things happen: fingerprint, claim, journal, worker, journal, seal. Must not know how a model is
//! trained, how a question is answered, or how anything looks.

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

/// An attempt could not be made or kept.
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
    /// The machine refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The kernels of the GPU cannot be kept.
    #[error(transparent)]
    Kernels(#[from] KernelCacheError),
    /// What the cell asks for cannot be set on the GPUs.
    #[error(transparent)]
    Hold(#[from] HoldError),
    /// The image that it is bound to is not there any more.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// Its data are other ones than it is named by.
    #[error(
        "{0}; the remaining runs with these data were not started (repeat the command, or `submit`, to compute their ids again)"
    )]
    Data(String),
    /// Its program is another one than it is named by.
    #[error(
        "{0}; the remaining runs of this program were not started (repeat the command: the changed program has other run ids)"
    )]
    Program(String),
    /// Nobody can say whether its data are those that it is named by.
    #[error("the run was not started, since its data cannot be checked (repeat the command, or `submit`)")]
    Unseen(#[source] BindError),
    /// The attempt is over, but could not be sealed.
    #[error("the attempt could not be sealed and waits in `{}` (the next command seals it)", journal.display())]
    Unsealed {
        /// Where it is kept.
        journal: PathBuf,
        /// What it is found by once somebody has sealed it.
        nonce: Nonce,
        /// Why.
        #[source]
        source: Box<StoreError>,
    },
    /// A journal that this process cannot judge claims the run.
    #[error("the run is locked by `{}`, of another host or a newer ledger (wait for it; if its command is gone, `ledger doctor --seal` with that name seals its attempt)", journal.display())]
    Blocked {
        /// The journal.
        journal: PathBuf,
    },
}

/// What an engine tells whoever watches, as it happens.
#[derive(Debug)]
pub enum Seen<'a> {
    /// An attempt begins.
    Begun(&'a Bound),
    /// A process that already runs is supervised, and its events are expected in this pipe.
    Attached(RunId, &'a Path),
    /// Its worker said something.
    Event(RunId, &'a Event),
    /// Its worker wrote a line to its standard output or error.
    Output(RunId, &'a str),
    /// It is over and sealed.
    Ended(&'a Bound, &'a Executed),
    /// It could not be made or kept.
    Troubled(&'a Bound, &'a EngineError),
    /// The run is being executed by another process.
    Elsewhere(&'a Bound),
    /// Its GPUs, the hottest of that many °C, are waited for.
    Cooling(&'a Bound, u32),
    /// The first look at its hardware takes long, and is waited for.
    Unread(&'a Bound),
    /// A journal without an owner was sealed.
    Recovered(AttemptId),
}

/// Watches attempts as they happen, from several threads.
pub trait Watch: Sync {
    /// Takes note.
    fn see(&self, seen: Seen<'_>);

    /// What else is to be recorded of an attempt whose worker has ended.
    fn last_facts(&self, _run: RunId) -> Table {
        Table::new()
    }
}

/// How an attached process ended its side of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachedEnd {
    /// It said that it finished.
    Finished,
    /// It said that Ctrl-C stopped it.
    Interrupted,
    /// It said nothing, as a process that is killed.
    Silent,
}

/// What tells a supervisor to stop, polled many times a second.
pub trait Stop: Sync {
    /// How often it was asked to: once means at the next good moment, more means now.
    fn asked(&self) -> u32;
    /// How much longer a worker may take to stop, where somebody waits who will kill us soon.
    fn time_left(&self) -> Option<Duration>;
    /// How an attached process ended its side. None while it goes on.
    fn attached_end(&self) -> Option<AttachedEnd> {
        None
    }
    /// Who asks, as it is recorded: `it was stopped on request`.
    fn by(&self) -> String {
        "on request".to_owned()
    }
}
