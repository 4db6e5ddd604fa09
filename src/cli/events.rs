//! `ledger events`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::living;
use crate::analysis::{self, By};
use crate::report;
use clap::ValueEnum;

/// Show the time and the energy of an attempt by phase
///
/// Phases are joined with the hardware samples. Each phase name, rank and GPU has its time, mean power, energy with
/// its 95% interval, and utilization. If a phase is too short for the sampling interval, the reason is shown
/// instead. For a run, its newest finished attempt is shown; for a running attempt, its phases so far.
///
/// With --by, phases are grouped. Each group has the mean power, temperature and utilization of the samples between
/// start and stop of its phases. It also has the number of phases with samples. Imported clusters are shown this way.
///
/// Example: ledger events latest
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// An attempt or a run: an id's prefix, a tag, `latest`, `latest~1`
    id: String,

    /// Group the phases [default for an imported cluster: name]
    #[arg(long, value_name = "KEY")]
    by: Option<Key>,

    /// `nearest` also shows the naive join with the two samples nearest to start and stop
    #[arg(long, value_name = "HOW", default_value = "interval")]
    join: How,

    /// Only phases with this name [default by name: all; else those that take the most time]
    #[arg(long, value_name = "NAME")]
    event: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Key {
    Name,
    Level,
    Host,
    Gpu,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum How {
    Interval,
    Nearest,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    let (id, sealed) = match living::unsealed(context, &args.id)? {
        Some(running) => running,
        None => store.read(|reader| context::resolve_attempt(reader, &args.id))??,
    };
    let is_cluster = sealed.attempt.facts.contains_key("cluster");
    let asked = args.by.is_some() || args.event.is_some() || args.join == How::Nearest;
    if !asked && !is_cluster {
        let rows = analysis::join(&sealed);
        context.answer(
            || report::events_text(id, &sealed.attempt, &rows),
            || report::events_value(id, &sealed.attempt, &rows),
        )?;
        return Ok(exit::YES);
    }
    let by = match args.by {
        None | Some(Key::Name) => By::Name,
        Some(Key::Level) => By::Level,
        Some(Key::Host) => By::Host,
        Some(Key::Gpu) => By::Gpu,
    };
    let events =
        analysis::events_by(&sealed, by, args.event.as_deref()).map_err(|fault| Failure::new(exit::USAGE, fault))?;
    let chosen = args.event.is_none();
    context.answer(
        || report::grouped_text(id, &events, args.join == How::Nearest, chosen),
        || report::grouped_value(id, &events),
    )?;
    Ok(if events.rows.is_empty() { exit::NO } else { exit::YES })
}
