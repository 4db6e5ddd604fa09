//! `ledger restorer`, hidden: the process that undoes what was set on GPUs when its supervisor is gone.

use super::failure::{Failure, exit};
use crate::engine;
use crate::host::signals::Interrupts;
use std::path::PathBuf;

/// What a supervisor starts before it sets anything on a GPU
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file of what has to be undone
    file: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    // Whoever ends all processes of a job by a signal ends the supervisor too, and this one is needed then.
    let _caught =
        Interrupts::install().map_err(|error| Failure::new(exit::FAILED, format!("cannot catch signals: {error}")))?;
    engine::watch_settings(&args.file, std::io::stdin(), std::io::stdout())?;
    Ok(exit::YES)
}
