//! `ledger telemetry`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::living;
use super::output::{print, say};
use super::picture;
use super::recorded;
use crate::analysis::{self, Given, Thin};
use crate::host::terminal;
use crate::record::{Attempt, AttemptId, Axis, Run, Sealed, Series, Table, Value};
use crate::report::{self, Millimetres, Telemetry, TelemetryPart, TelemetryTable, table_of};
use crate::store::{Reader, Store, StoreError};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The prefixes of facts about the sampling, and of those about series that could not be read.
const FACTS: &str = "telemetry.";
const UNREAD: &str = "telemetry.unread.";

/// Show the hardware samples of an attempt: power, energy, clocks, memory, temperatures
///
/// Each series is one row with a small curve. Counters, such as energy, are shown as rates per second. Exit code 1
/// if there are no samples. With --from or --to, the energy of that time is shown, too.
///
/// Example: ledger telemetry latest --series 'gpu.*.power*' --plot power.svg
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run (its newest finished attempt) or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    #[arg(default_value = "latest")]
    id: String,

    /// Only these series: names, prefixes (`gpu.0`) or patterns (`gpu.*.power*`), also series over steps (`loss`)
    /// [default: all hardware samples]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    series: Vec<String>,

    /// Print every sample as CSV: series, unit, axis, position (seconds or steps), value
    #[arg(long, conflicts_with = "plot")]
    csv: bool,

    /// Begin here: seconds since the start of the attempt, or steps for series over steps
    #[arg(long, value_name = "X", conflicts_with = "plot", value_parser = position)]
    from: Option<f64>,

    /// End here
    #[arg(long, value_name = "X", conflicts_with = "plot", value_parser = position)]
    to: Option<f64>,

    /// With --json: the first, last, smallest and largest value of each of N columns, as a plot shows them. Counters
    /// are rates; phases are added
    #[arg(long, value_name = "N", conflicts_with = "plot", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    points: Option<u32>,

    /// Draw the curves and the phases into a file, which must not exist yet: `.svg`, `.png`, `.csv`; `term` draws on standard output
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long, requires = "plot")]
    force: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    args.check(context.json)?;
    let store = context.store();
    let (mut telemetry, recorded) = match living::unsealed(context, &args.id)? {
        Some((id, sealed)) => (of_running(id, sealed, args)?, None),
        None => {
            let (head, names) = store.read(|reader| match context::resolve_id(reader, &args.id)? {
                Err(failure) => Ok(Err(failure)),
                Ok(id) => head(reader, id, args),
            })??;
            (head, Some(names))
        }
    };
    let is_empty = recorded.as_ref().map_or(telemetry.series.is_empty(), Vec::is_empty);
    let recorded = Recorded { store, attempt: telemetry.attempt, names: recorded.unwrap_or_default(), args };
    if let Some(path) = &args.plot {
        recorded.thin(&mut telemetry)?;
        return plot(&telemetry, path, args.force, context);
    }
    if args.csv {
        for (name, reason) in &telemetry.unread {
            say(&format!("note: `{name}` could not be read: {reason}"));
        }
        print(report::CSV_HEADS)?;
        recorded.each(&telemetry.series, &mut |series| print(&report::csv_rows(series)))?;
    } else {
        let mut table = TelemetryTable::new(args.range(Axis::TimeNs, telemetry.wall_ns), terminal::columns());
        if context.json {
            let mut all = Vec::new();
            recorded.each(&telemetry.series, &mut |series| {
                all.push(series.clone());
                Ok(())
            })?;
            telemetry.series = all;
        } else {
            let series = &telemetry.series;
            recorded.each(series, &mut |one| {
                table.see(one);
                Ok(())
            })?;
            recorded.each(series, &mut |one| {
                table.add(one);
                Ok(())
            })?;
        }
        context.answer(|| table.text(&telemetry), || report::telemetry_value(&telemetry))?;
    }
    Ok(if is_empty { exit::NO } else { exit::YES })
}

/// Parses a position on an axis.
fn position(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.is_finite() && number >= 0.0 { Ok(number) } else { Err("not a number from 0 on".to_owned()) }
}

/// The selected series of a recorded attempt, read one after the other: all series of an attempt of days may not fit into memory.
struct Recorded<'a> {
    store: &'a Store,
    attempt: AttemptId,
    names: Vec<String>,
    args: &'a Args,
}

impl Recorded<'_> {
    /// Passes the requested range of these series in memory, then of the recorded series, to `then`.
    fn each(&self, first: &[Series], then: &mut dyn FnMut(&Series) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut then = |series: &Series| then(&self.args.part(series));
        first.iter().try_for_each(&mut then)?;
        for name in &self.names {
            let found = self.store.read(|reader| reader.series(self.attempt, name))?;
            then(&found.ok_or_else(|| missing(self.attempt))?)?;
        }
        Ok(())
    }

    /// Adds the thinned points of each series for a plot.
    fn thin(&self, telemetry: &mut Telemetry) -> Result<(), Failure> {
        let summaries = self.store.read(|reader| Ok(reader.attempt(self.attempt)?.map(|attempt| attempt.series)))?;
        let summaries = summaries.unwrap_or_default();
        for summary in summaries.iter().filter(|summary| self.names.contains(&summary.name)) {
            let mut thin = Thin::default();
            let visit = |reader: &Reader<'_>| {
                reader.visit_series(self.attempt, &summary.name, &mut |position, value| thin.push(position, value))
            };
            if !self.store.read(visit)? {
                return Err(missing(self.attempt));
            }
            let stretches = thin.stretches().map(|stretches| (summary.name.clone(), thin.points(), stretches));
            telemetry.thinned.extend(stretches);
            telemetry.series.push(thin.series(&summary.name, &summary.unit, summary.axis));
        }
        Ok(())
    }
}

fn missing(id: AttemptId) -> Failure {
    Failure::new(exit::LEDGER, format!("the record of attempt {id} is missing (run `ledger verify`)"))
}

/// Returns the head of an attempt before its series are read, and the names of the selected series.
fn head(
    reader: &Reader<'_>,
    id: AttemptId,
    args: &Args,
) -> Result<Result<(Telemetry, Vec<String>), Failure>, StoreError> {
    let Some(attempt) = reader.attempt(id)? else { return Ok(Err(missing(id))) };
    let Some(run) = reader.run(attempt.run)? else { return Ok(Err(missing(id))) };
    let (wanted, unread, facts) = match args.wanted(&attempt) {
        Ok(wanted) => wanted,
        Err(failure) => return Ok(Err(failure)),
    };
    let needs_phases = args.plot.is_some() || args.points.is_some();
    let phases = if needs_phases { reader.phases(id)? } else { Vec::new() };
    let read = |name: &str| reader.readable_series(id, name);
    let telemetry = recorded::Recorded::of(&attempt, &read);
    let part = args.part_of((&run, &attempt), &phases, &telemetry);
    telemetry.check()?;
    let (model, wall_ns) = (run.model().to_owned(), attempt.wall_ns);
    let (series, thinned) = (Vec::new(), Vec::new());
    let head = Telemetry { run: run.id, model, attempt: id, wall_ns, series, thinned, unread, facts, phases, part };
    Ok(Ok((head, wanted)))
}

/// Like [`head`], for a running attempt.
fn of_running(id: AttemptId, sealed: Sealed, args: &Args) -> Result<Telemetry, Failure> {
    let (wanted, unread, facts) = args.wanted(&sealed.attempt)?;
    let part = args.part_of((&sealed.run, &sealed.attempt), &sealed.phases, &sealed.series);
    let Sealed { run, attempt, series, phases } = sealed;
    let series = series.into_iter().filter(|series| wanted.contains(&series.name)).collect();
    let (model, wall_ns, thinned) = (run.model().to_owned(), attempt.wall_ns, Vec::new());
    Ok(Telemetry { run: run.id, model, attempt: id, wall_ns, series, thinned, unread, facts, phases, part })
}

/// Names of series, names of unreadable series with the reasons, and facts about the sampling.
type Wanted = (Vec<String>, Vec<(String, String)>, Table);

impl Args {
    fn check(&self, json: bool) -> Result<(), Failure> {
        let wrong = match (self.from, self.to) {
            _ if self.csv && json => "`--csv` and `--json` are two forms of one answer (give one of them)",
            _ if self.points.is_some() && !json => "`--points` needs `--json` (`--plot FILE` draws)",
            (from, Some(to)) if from.unwrap_or(0.0) >= to => "`--to` must be larger than `--from`",
            _ => return Ok(()),
        };
        Err(Failure::new(exit::USAGE, wrong))
    }

    /// Returns the requested range of positions on an axis; `last` is the default of its end.
    fn range(&self, axis: Axis, last: u64) -> (u64, u64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "`as` saturates, and below 0 is none"
        )]
        let place = |x: f64| if axis == Axis::TimeNs { (x * 1e9).round() as u64 } else { x.round() as u64 };
        (self.from.map_or(0, place), self.to.map_or(last, place))
    }

    /// The requested range of a series, thinned with `--points`.
    fn part<'s>(&self, series: &'s Series) -> Cow<'s, Series> {
        let last = series.positions.last().copied().unwrap_or(0);
        let (from, to) = self.range(series.axis, last);
        if let Some(columns) = self.points {
            let first = series.positions.first().copied().unwrap_or(0);
            let columns = usize::try_from(columns).unwrap_or(usize::MAX);
            return Cow::Owned(analysis::excerpt(series, (from.max(first), to.min(last)), columns));
        }
        if self.from.is_none() && self.to.is_none() {
            return Cow::Borrowed(series);
        }
        let mut part = Series::new(series.name.as_str(), series.unit.as_str(), series.axis);
        let points = series.positions.iter().zip(&series.values);
        points.filter(|(at, _)| (from..=to).contains(*at)).for_each(|(at, value)| part.push(*at, *value));
        Cow::Owned(part)
    }

    /// Energy and phases of the requested time.
    fn part_of(
        &self,
        (run, attempt): (&Run, &Attempt),
        phases: &[crate::record::Phase],
        telemetry: &dyn Given,
    ) -> Option<TelemetryPart> {
        if self.from.is_none() && self.to.is_none() && self.points.is_none() {
            return None;
        }
        let range = self.range(Axis::TimeNs, attempt.wall_ns);
        let energy = analysis::energy_between(run, attempt, telemetry, range);
        let columns = self.points.and_then(|columns| usize::try_from(columns).ok());
        let phases = columns.map(|columns| analysis::phases_between(phases, attempt.wall_ns, range, columns));
        Some(TelemetryPart { range, energy, phases })
    }

    /// Returns the names of the selected series in the attempt's order, the unreadable ones, and the facts about the sampling.
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

/// Splits the facts about the sampling into unreadable series with the reasons, and others.
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
