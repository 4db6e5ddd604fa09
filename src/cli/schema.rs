//! `ledger schema`

use super::context::Context;
use super::failure::{Failure, exit};
use super::output::print;
use crate::manifest;
use crate::wire::{event_schema, to_json_text};

/// Print the JSON Schema of the manifest, or of a worker's events
///
/// Example: ledger schema > manifest.schema.json
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print the schema of a line of `$LEDGER_EVENTS` instead
    #[arg(long)]
    events: bool,
}

pub(super) fn run(args: &Args, _context: &Context) -> Result<u8, Failure> {
    print(&if args.events { event_schema() } else { to_json_text(&manifest::schema()) })?;
    Ok(exit::YES)
}
