//! The machine: clocks, processes, signals, files, environment variables, `/proc`, git, containers, Slurm's variables.
//!
//! Only this crate, and `ledger-gpu` for the GPUs, queries the machine. Results are plain data of `ledger-record` or of
//! this crate, so that tests of other crates can use made-up results. It knows nothing of manifests, ledgers' contents
//! or training, and decides nothing: it reports facts. Unknown facts are absent, never guessed.

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

/// A query of the machine failed, or its result has an unknown format.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// An operation on a file or directory failed.
    #[error("cannot {action} `{path}` ({remedy})", path = .path.display())]
    File {
        /// The attempted operation: `read`, `sync`.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// The suggested fix.
        remedy: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A file of the kernel lacks a documented field.
    #[error("`{path}` has no {what} (the kernel's file must be readable and in the form that proc(5) documents)", path = .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The missing field.
        what: &'static str,
    },
    /// A system call that concerns no file failed.
    #[error("cannot {action} ({remedy})")]
    System {
        /// The attempted operation.
        action: &'static str,
        /// The suggested fix.
        remedy: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}
