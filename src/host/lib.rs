//! The machine: clocks, processes, signals, files, environment variables, `/proc`, git, containers, Slurm's variables.
//!
//! The only crate, besides `ledger-gpu` for the GPUs, that asks the machine anything. Every answer is plain data of `ledger-record`
//! or of this crate, so that others can be tested with answers that were made up. It knows nothing of manifests, ledgers'
//! contents or training, and decides nothing: it reports facts. What cannot be found out is absent from a table of facts,
//! never guessed.

pub mod checks;
pub mod clock;
pub mod command;
pub mod container;
pub mod cpu;
pub mod death;
pub mod environment;
pub mod files;
pub mod filesystem;
pub mod git;
pub mod holder;
pub mod machine;
pub mod mapped;
pub mod meter;
pub mod owner;
pub mod ownership;
pub mod platform;
pub mod process;
mod procfs;
pub mod python;
pub mod secrets;
pub mod sif;
pub mod signals;
pub mod slurm;
pub mod sums;
pub mod terminal;
pub mod user_key;

pub use checks::checks;
pub use holder::{Holder, holders};
pub use owner::{Liveness, liveness, this_owner};
pub use procfs::cpu_time_ns;

use std::path::PathBuf;

/// The machine did not answer, or not in a form that is known.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file or directory refused an operation.
    #[error("cannot {action} `{path}` ({remedy})", path = .path.display())]
    File {
        /// What was tried: `read`, `sync`.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What a person can do.
        remedy: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file of the kernel does not look as documented.
    #[error("`{path}` has no {what} (the kernel's file must be readable and in the form that proc(5) documents)", path = .path.display())]
    Form {
        /// Which file.
        path: PathBuf,
        /// What is missing in it.
        what: &'static str,
    },
    /// A call that concerns no file failed.
    #[error("cannot {action} ({remedy})")]
    System {
        /// What was tried.
        action: &'static str,
        /// What a person can do.
        remedy: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}
