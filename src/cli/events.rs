//! `ledger events`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::living;
use super::recorded::Recorded;
use crate::analysis::{self, By, EVENT_QUANTITIES, Given};
use crate::record::{AttemptId, Sealed};
use crate::report;
use crate::store::{Reader, StoreError};
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
    #[arg(default_value = "latest")]
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
    let running = living::unsealed(context, &args.id)?;
    let is_running = running.is_some();
    let (id, mut sealed) = match running {
        Some(running) => running,
        None => store.read(|reader| phased(reader, &args.id))??,
    };
    let read = |name: &str| store.read(|reader| reader.readable_series(id, name));
    let is_cluster = sealed.attempt.facts.contains_key("cluster");
    let asked = args.by.is_some() || args.event.is_some() || args.join == How::Nearest;
    if !asked && !is_cluster {
        let recorded = Recorded::of(&sealed.attempt, &read);
        let telemetry: &dyn Given = if is_running { &sealed.series } else { &recorded };
        let rows = analysis::join(&sealed, telemetry);
        recorded.check()?;
        context.answer(
            || report::events_text(id, &sealed.attempt, &rows),
            || report::events_value(id, &sealed.attempt, &rows),
        )?;
        return Ok(exit::YES);
    }
    if !is_running {
        let is_used = |name: &str| EVENT_QUANTITIES.iter().any(|quantity| name.ends_with(quantity.name()));
        for summary in sealed.attempt.series.iter().filter(|summary| is_used(&summary.name)) {
            sealed.series.extend(read(&summary.name)?);
        }
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

/// Returns the attempt that the text names, without its series.
fn phased(reader: &Reader<'_>, text: &str) -> Result<Result<(AttemptId, Sealed), Failure>, StoreError> {
    match context::resolve_head(reader, text)? {
        Ok((id, run, attempt)) => Ok(Ok((id, Sealed { run, phases: reader.phases(id)?, attempt, series: Vec::new() }))),
        Err(failure) => Ok(Err(failure)),
    }
}
