//! `ledger telemetry`

use super::context::{self, Context, print, say};
use super::failure::{Failure, exit};
use super::living;
use super::picture;
use crate::analysis;
use crate::record::{Attempt, AttemptId, Axis, Sealed, Table, Target, Value};
use crate::report::{self, Millimetres, Telemetry, table_of};
use crate::store::{Reader, StoreError};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What the facts of the reading begin with, and those of what could not be read.
const FACTS: &str = "telemetry.";
const UNREAD: &str = "telemetry.unread.";

/// Show the hardware samples of an attempt: power, energy, clocks, memory, temperatures
///
/// Each series is one row with a small curve. Counters, such as energy, are shown as rates per second. Exit code 1
/// if there are no samples.
///
/// Example: ledger telemetry latest --series 'gpu.*.power*' --plot power.svg
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run (its newest finished attempt) or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    id: String,

    /// Only these series: names, prefixes (`gpu.0`) or patterns (`gpu.*.power*`), also series over steps (`loss`)
    /// [default: all hardware samples]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    series: Vec<String>,

    /// Print every sample as CSV: series, unit, axis, position (seconds or steps), value
    #[arg(long, conflicts_with = "plot")]
    csv: bool,

    /// Draw the curves and the phases into a file, which must not exist yet: `.svg`, `.png`, `.csv`; `term` draws on standard output
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long, requires = "plot")]
    force: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if args.csv && context.json {
        return Err(Failure::new(exit::USAGE, "`--csv` and `--json` are two forms of one answer (give one of them)"));
    }
    let store = context.store();
    let telemetry = match living::unsealed(context, &args.id)? {
        Some((id, sealed)) => of_running(id, sealed, args)?,
        None => store.read(|reader| match find(reader, &args.id)? {
            Err(failure) => Ok(Err(failure)),
            Ok(id) => read(reader, id, args),
        })??,
    };
    if let Some(path) = &args.plot {
        return plot(&telemetry, path, args.force, context);
    }
    if args.csv {
        for (name, reason) in &telemetry.unread {
            say(&format!("note: `{name}` could not be read: {reason}"));
        }
        print(report::CSV_HEADS)?;
        for series in &telemetry.series {
            print(&report::csv_rows(series))?;
        }
    } else {
        context.answer(|| report::telemetry_text(&telemetry), || report::telemetry_value(&telemetry))?;
    }
    Ok(if telemetry.series.is_empty() { exit::NO } else { exit::YES })
}

fn find(reader: &Reader<'_>, text: &str) -> Result<Result<AttemptId, Failure>, StoreError> {
    let id = match context::resolve(reader, text)? {
        Err(failure) => return Ok(Err(failure)),
        Ok(Target::Attempt(id)) => Some(id),
        Ok(Target::Run(run)) => context::newest_attempt(reader, run)?,
    };
    Ok(id.ok_or_else(|| Failure::new(exit::NO, format!("`{text}` has no attempt in the ledger"))))
}

/// Reads the series that are wanted and no others.
fn read(reader: &Reader<'_>, id: AttemptId, args: &Args) -> Result<Result<Telemetry, Failure>, StoreError> {
    let missing = || Failure::new(exit::LEDGER, format!("the record of attempt {id} is missing (run `ledger verify`)"));
    let Some(attempt) = reader.attempt(id)? else { return Ok(Err(missing())) };
    let Some(run) = reader.run(attempt.run)? else { return Ok(Err(missing())) };
    let (wanted, unread, facts) = match args.wanted(&attempt) {
        Ok(wanted) => wanted,
        Err(failure) => return Ok(Err(failure)),
    };
    let mut series = Vec::new();
    for name in wanted {
        match reader.series(id, &name)? {
            Some(found) => series.push(found),
            None => return Ok(Err(missing())),
        }
    }
    let phases = if args.plot.is_some() { reader.phases(id)? } else { Vec::new() };
    let (model, wall_ns) = (run.model().to_owned(), attempt.wall_ns);
    Ok(Ok(Telemetry { run: run.id, model, attempt: id, wall_ns, series, unread, facts, phases }))
}

/// The same of an attempt that is running.
fn of_running(id: AttemptId, sealed: Sealed, args: &Args) -> Result<Telemetry, Failure> {
    let (wanted, unread, facts) = args.wanted(&sealed.attempt)?;
    let Sealed { run, attempt, series, phases } = sealed;
    let series = series.into_iter().filter(|series| wanted.contains(&series.name)).collect();
    let (model, wall_ns) = (run.model().to_owned(), attempt.wall_ns);
    Ok(Telemetry { run: run.id, model, attempt: id, wall_ns, series, unread, facts, phases })
}

/// Names of series, names of series that could not be read with the reasons, and facts of the reading.
type Wanted = (Vec<String>, Vec<(String, String)>, Table);

impl Args {
    /// The names of the series that are wanted in the attempt's order, what could not be read of them, and what was recorded of the reading.
    fn wanted(&self, attempt: &Attempt) -> Result<Wanted, Failure> {
        let (mut unread, facts) = facts_of(&attempt.facts);
        let timed = attempt.series.iter().filter(|series| series.axis == Axis::TimeNs);
        let mut wanted: BTreeSet<&str> = timed.map(|series| series.name.as_str()).collect();
        if !self.series.is_empty() {
            let all = attempt.series.iter().map(|series| &series.name).chain(unread.iter().map(|(name, _)| name));
            let all = all.map(String::as_str).collect();
            wanted = analysis::select(&self.series, &all).map_err(|unmatched| Failure::new(exit::USAGE, unmatched))?;
        }
        let wanted: BTreeSet<String> = wanted.into_iter().map(str::to_owned).collect();
        if !self.series.is_empty() {
            unread.retain(|(name, _)| wanted.contains(name));
        }
        let names = attempt.series.iter().map(|series| series.name.clone());
        Ok((names.filter(|name| wanted.contains(name)).collect(), unread, facts))
    }
}

/// What could not be read, with the reasons, and what else was recorded of the reading.
fn facts_of(facts: &Table) -> (Vec<(String, String)>, Table) {
    let (mut unread, mut others) = (Vec::new(), Table::new());
    for (name, value) in Value::Table(facts.clone()).flatten() {
        if let Some(series) = name.strip_prefix(UNREAD) {
            unread.push((series.to_owned(), value.to_string()));
        } else if name.starts_with(FACTS) {
            others.insert(name, value);
        }
    }
    (unread, others)
}

fn plot(telemetry: &Telemetry, path: &Path, force: bool, context: &Context) -> Result<u8, Failure> {
    let figure = report::readings_figure(telemetry).map_err(picture::failed)?;
    let ids = table_of([("attempt", telemetry.attempt.to_string().into()), ("run", telemetry.run.to_string().into())]);
    picture::put(&figure, path, Millimetres(250.0), force, context, ids)
}
