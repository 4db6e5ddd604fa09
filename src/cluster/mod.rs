//! Slurm: submits a manifest's cells as job arrays, tracks them and imports their results.
//!
//! A submission is a folder that the submitting host and the nodes share. It holds the cells in full, the scripts, and
//! the tasks' results. This room knows Slurm's commands and that folder. Only commands on the submitting host open the
//! ledger's file; a task has its own ledger in its node's scratch space. The room must not know how models are trained
//! or how output looks.

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

/// Why a submission cannot be made, read or imported.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// One of Slurm's commands could not be run.
    #[error("{0} (Slurm's commands are on a cluster's login node)")]
    Command(#[from] CommandError),
    /// One of Slurm's commands refused.
    #[error("`{command}` refused: {said}")]
    Refused {
        /// The command.
        command: &'static str,
        /// Its message.
        said: String,
    },
    /// It is unknown from `sbatch`'s answer whether there is a job.
    #[error("it is unknown whether `sbatch` submitted the array: {said}")]
    Unanswered {
        /// Its message.
        said: String,
    },
    /// The request cannot be expressed to Slurm.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A file could not be written or read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A file of a submission has invalid content.
    #[error("`{}` is not a record of a submission: {fault}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault.
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
    /// An operation on the file system failed.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// The attempted operation.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// No submission has this name.
    #[error("no submission is called `{text}`{hint}")]
    Unknown {
        /// The given text.
        text: String,
        /// The existing submissions to choose from.
        hint: String,
    },
    /// Another command is submitting cells of the ledger to Slurm.
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
