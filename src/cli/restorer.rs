//! `ledger restorer`, hidden: the process that restores GPU settings after its supervisor has ended.

use super::context::Context;
use super::failure::{Failure, exit};
use crate::engine;
use crate::host::{process, signals};
use std::path::PathBuf;

/// Restore GPU settings when the supervisor is gone (started by a supervisor)
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file with the settings to restore
    file: PathBuf,

    /// The driver's management library, if it is not the default one
    #[arg(long)]
    nvml: Option<PathBuf>,
}

pub(super) fn run(args: &Args, _context: &Context) -> Result<u8, Failure> {
    process::take_name();
    // A signal to all processes of a job ends the supervisor too, and then this process is needed.
    signals::outlive().map_err(|error| Failure::new(exit::FAILED, format!("cannot catch signals: {error}")))?;
    // It must survive a closed terminal and the terminal's keys, too.
    process::leave_session()
        .map_err(|error| Failure::new(exit::FAILED, format!("cannot leave the session: {error}")))?;
    engine::watch_settings(&args.file, args.nvml.as_deref(), std::io::stdin(), std::io::stdout())?;
    Ok(exit::YES)
}
