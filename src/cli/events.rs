//! `ledger events`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use crate::analysis;
use crate::report;

/// Show what each kind of phase of an attempt took, in time and in energy
///
/// Phases are joined with what was read of the hardware: for each kind of phase, rank and GPU, its time, mean power, energy
/// with its 95% interval, and utilization. What was too short for the readings is not shown but explained. Of a run, its newest
/// finished attempt is shown.
///
/// Example: ledger events latest
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// An attempt or a run: an id's prefix, a tag, `latest`, `latest~1`
    id: String,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let (id, sealed) = context.store().read(|reader| context::resolve_attempt(reader, &args.id))??;
    let rows = analysis::join(&sealed);
    context.answer(
        || report::events_text(id, &sealed.attempt, &rows),
        || report::events_value(id, &sealed.attempt, &rows),
    )?;
    Ok(exit::YES)
}
