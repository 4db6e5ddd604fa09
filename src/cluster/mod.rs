//! Slurm: a manifest's cells as job arrays, what became of them, and bringing it home.
//!
//! A submission is a folder that the submitting host and the nodes share: the cells in full, the scripts, and what tasks put there.
//! Knows Slurm's commands and that folder. The ledger's own file is opened by commands on the submitting host alone; a task has a
//! ledger of its own in the scratch space of its node. Must not know how a model is trained or how anything looks.

mod collect;
mod fields;
mod folder;
mod handover;
mod mirror;
mod note;
mod request;
mod resume;
mod script;
mod slurm;
mod spool;
mod state;
mod submission;
mod submit;
mod task;
mod turn;

pub use collect::{Brought, Collected, collect, read_result};
pub use folder::{Folder, Submitted, Tally};
pub use handover::{Handover, find_jobs, handovers};
pub use mirror::Mirror;
pub use note::{CellNote, CellState, Note};
pub use request::{Request, RequestError};
pub use resume::{Again, again, resume};
pub use script::{Script, quoted};
pub use slurm::{Answer, Fate, Job, Limits, Seen, Slurm, TaskId};
pub use spool::Spool;
pub use state::{Stand, Standing, State, stand};
pub use submission::{Array, Listed, Member, ProgramText, Submission, TaskFile};
pub use submit::{Covered, Draft, Drafted, Placed, cover, draft, place, under_way, waiting};
pub use task::{Left, Spooler, left};
pub use turn::Turn;

use crate::host::HostError;
use crate::host::command::CommandError;
use crate::journal::JournalError;
use crate::store::StoreError;
use crate::wire::PackError;
use std::path::PathBuf;

/// A submission that cannot be made, read or brought home.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// One of Slurm's commands could not be asked.
    #[error("{0} (Slurm's commands are on a cluster's login node)")]
    Command(#[from] CommandError),
    /// One of Slurm's commands refused.
    #[error("`{command}` refused: {said}")]
    Refused {
        /// Its name.
        command: &'static str,
        /// What it said.
        said: String,
    },
    /// `sbatch` gave no answer from which it follows whether there is a job.
    #[error("it is unknown whether `sbatch` submitted the array: {said}")]
    Unanswered {
        /// What it said.
        said: String,
    },
    /// What is asked for cannot be asked of Slurm.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A file could not be written or read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A file of a submission is not what it should be.
    #[error("`{}` is not a record of a submission: {fault}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        fault: String,
    },
    /// A file of a submission was written by a newer ledger.
    #[error("`{}` has format {found}, but this ledger reads up to 1 (use a newer ledger)", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
    },
    /// The file system refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Nothing is called so.
    #[error("no submission is called `{text}`{hint}")]
    Unknown {
        /// What was given.
        text: String,
        /// What there is instead.
        hint: String,
    },
    /// Another command hands cells of the ledger to Slurm.
    #[error("another `submit` of this ledger is running (try again when it has ended)")]
    Busy,
    /// The ledger cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An attempt cannot be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
}

fn io_error(action: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> ClusterError {
    let path = path.to_owned();
    move |source| ClusterError::Io { action, path, source }
}
