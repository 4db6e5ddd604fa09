//! Hardware samples of an attempt: a table with sparklines, CSV, and a document.

use super::document::table_of;
use super::figure::csv_field;
use super::number::{duration, quantity as in_unit, significant, took, wall_seconds};
use super::sparkline::sparkline;
use super::table::columns;
use super::units::shown;
use crate::analysis::{Curve, Energy, EnergyOfDevices, Figures, Kind, bit_shares, quantity};
use crate::record::{AttemptId, Axis, Phase, Quantity, RunId, Series, Table, Value};

/// Characters of a sparkline if there is room.
const WIDTH: usize = 40;
/// Least number of characters of a sparkline.
const LEAST_WIDTH: usize = 12;
/// Characters of the other columns that are never dropped.
const BESIDE: usize = 58;
/// Names of the bits of `nvmlClocksThrottleReasons`, lowest first.
const THROTTLE_REASONS: [&str; 9] = [
    "idle",
    "applications_clocks",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
    "display_clocks",
];

/// The samples of an attempt, and what is shown with them.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// Its run.
    pub run: RunId,
    /// The model of the run.
    pub model: String,
    /// The attempt.
    pub attempt: AttemptId,
    /// Duration of the attempt.
    pub wall_ns: u64,
    /// The selected series; long ones are reduced to extremes if they are plotted.
    pub series: Vec<Series>,
    /// The reduced series: name, number of recorded points, and number of intervals.
    /// Each interval keeps its minimum and maximum.
    pub thinned: Vec<(String, u64, usize)>,
    /// Series that could not be read, with the reasons.
    pub unread: Vec<(String, String)>,
    /// Recorded facts about the sampling.
    pub facts: Table,
    /// Phases of the attempt.
    pub phases: Vec<Phase>,
    /// The selected part of the attempt, if not all of it.
    pub part: Option<TelemetryPart>,
}

/// A time range of an attempt.
#[derive(Clone, Debug)]
pub struct TelemetryPart {
    /// Start and end, in nanoseconds since the attempt's start.
    pub range: (u64, u64),
    /// Energy in this range, or the reason why it is unknown.
    pub energy: Result<EnergyOfDevices, String>,
    /// Phases in this range, and whether neighbours were merged.
    pub phases: Option<(Vec<Phase>, bool)>,
}

impl TelemetryPart {
    fn text(&self) -> String {
        let (from, to) = self.range;
        let time = format!("{} to {}", duration(seconds(from)), duration(seconds(to)));
        let said = |energy: &Energy| {
            let (joules, off) = (in_unit(energy.joules, "J"), in_unit(energy.half_width(), "J"));
            format!("{joules} ± {off}, {}", in_unit(energy.watts(), "W"))
        };
        match &self.energy {
            Ok((devices, sum)) => {
                let each = devices.iter().map(|(source, energy)| format!("{source} {}", said(energy)));
                let each = if devices.len() > 1 {
                    format!(" ({})", each.collect::<Vec<_>>().join("; "))
                } else {
                    String::new()
                };
                format!("\nenergy from {time}: {}{each}\n", said(sum))
            }
            Err(reason) => format!("\nenergy from {time}: not known: {reason}\n"),
        }
    }

    fn members(&self) -> Table {
        let (from, to) = self.range;
        let mut members = table_of([("from_s", seconds(from).into()), ("to_s", seconds(to).into())]);
        match &self.energy {
            Ok((devices, sum)) => {
                let each = devices.iter().map(|(source, energy)| (source.to_string(), Value::Table(energy.to_table())));
                let all = ("all".to_owned(), Value::Table(sum.to_table()));
                members.insert("energy".to_owned(), Value::Table(each.chain([all]).collect()));
            }
            Err(reason) => drop(members.insert("energy_unknown".to_owned(), reason.as_str().into())),
        }
        if let Some((phases, is_joined)) = &self.phases {
            let phase = |phase: &Phase| {
                let mut table = table_of([
                    ("name", phase.name.as_str().into()),
                    ("index", phase.index.into()),
                    ("rank", phase.rank.into()),
                    ("start_s", seconds(phase.start_ns).into()),
                ]);
                table.extend(phase.stop_ns.map(|stop| ("stop_s".to_owned(), seconds(stop).into())));
                Value::Table(table)
            };
            members.insert("phases".to_owned(), Value::List(phases.iter().map(phase).collect()));
            members.insert("phases_merged".to_owned(), (*is_joined).into());
        }
        members
    }
}

impl Telemetry {
    /// Returns the shown range of an axis; time covers the whole attempt.
    pub(super) fn extent(&self, axis: Axis) -> (u64, u64) {
        let of_axis = || self.series.iter().filter(|series| series.axis == axis);
        let last = of_axis().filter_map(|series| series.positions.last()).max().copied().unwrap_or(0);
        match axis {
            Axis::TimeNs => (0, last.max(self.wall_ns)),
            Axis::Step => (of_axis().filter_map(|series| series.positions.first()).min().copied().unwrap_or(0), last),
        }
    }
}

/// Returns the name of a bit of the throttle reasons.
pub(super) fn throttle_reason(bit: i32) -> String {
    let known = usize::try_from(bit).ok().and_then(|bit| THROTTLE_REASONS.get(bit));
    known.map_or_else(|| format!("bit_{bit}"), |name| (*name).to_owned())
}

/// A table of an attempt's series. Each row is made while its series is in memory, because all series may not fit.
#[derive(Debug, Default)]
pub struct TelemetryTable {
    /// The shown time range, in nanoseconds.
    range: (u64, u64),
    /// Characters of a sparkline.
    width: usize,
    /// First and last position over time, and over steps.
    extents: [Option<(u64, u64)>; 2],
    rows: [Vec<Vec<String>>; 2],
    throttled: Vec<Vec<String>>,
    has_counter: bool,
}

impl TelemetryTable {
    /// Creates an empty table for a time range, fitted to a terminal of this width, if any.
    pub fn new(range: (u64, u64), terminal: Option<usize>) -> Self {
        let width = terminal.map_or(WIDTH, |columns| columns.saturating_sub(BESIDE).clamp(LEAST_WIDTH, WIDTH));
        Self { range, width, ..Self::default() }
    }

    /// Extends the range of the axis by a series. Call it for all series before the first [`Self::add`].
    pub fn see(&mut self, series: &Series) {
        let (Some(first), Some(last)) = (series.positions.first(), series.positions.last()) else { return };
        let extent = &mut self.extents[place(series.axis)];
        let (low, high) = extent.unwrap_or((*first, *last));
        *extent = Some((low.min(*first), high.max(*last)));
    }

    /// Returns the shown range of an axis; time covers the whole range of the table.
    fn extent(&self, axis: Axis) -> (u64, u64) {
        let (first, last) = self.extents[place(axis)].unwrap_or_default();
        if axis == Axis::TimeNs { (self.range.0, last.max(self.range.1)) } else { (first, last) }
    }

    /// Adds the row of a series.
    pub fn add(&mut self, series: &Series) {
        let extent = self.extent(series.axis);
        self.rows[place(series.axis)].push(row(series, extent, self.width));
        self.throttled.extend(held(series).map(|reasons| vec![format!("  {}", series.name), reasons]));
        self.has_counter |= Kind::of(&series.name) == Kind::Counter;
    }

    /// Returns the table, unreadable series and facts about the sampling as text.
    pub fn text(mut self, telemetry: &Telemetry) -> String {
        let Telemetry { run, model, attempt, unread, facts, .. } = telemetry;
        let took = took(telemetry.wall_ns);
        let mut text = format!("attempt {} of run {} ({model}), {took}\n", attempt.0.prefix(8), run.0.prefix(8));
        if self.rows.iter().all(Vec::is_empty) {
            text.push_str("no hardware samples (`--series` shows series over steps by their names)\n");
        }
        for axis in [Axis::TimeNs, Axis::Step] {
            let (from, to) = self.extent(axis);
            let over = match axis {
                Axis::TimeNs if from == 0 => format!("0 s TO {}", duration(seconds(to))),
                Axis::TimeNs => format!("{} TO {}", duration(seconds(from)), duration(seconds(to))),
                Axis::Step => format!("STEP {from} TO {to}"),
            };
            let rows = std::mem::take(&mut self.rows[place(axis)]);
            if !rows.is_empty() {
                text.push('\n');
                let heads =
                    ["SERIES", "AS", "UNIT", "~~~>READINGS", "~~>MIN", ">MEAN", ">MAX", "~~~~>LAST", over.as_str()];
                text.push_str(&columns(&heads, rows));
            }
            if axis == Axis::TimeNs && self.has_counter {
                text.push_str("rate: increase of a counter per second, over at least one second\n");
            }
        }
        if !self.throttled.is_empty() {
            text.push_str("\nwhy clocks were low, by share of the time\n");
            text.push_str(&columns(&["  SERIES", "REASONS"], self.throttled));
        }
        if let Some(part) = &telemetry.part {
            text.push_str(&part.text());
        }
        if !unread.is_empty() {
            text.push_str("\ncould not be read\n");
            let rows = unread.iter().map(|(name, reason)| vec![format!("  {name}"), reason.clone()]);
            text.push_str(&columns(&["  SERIES", "BECAUSE"], rows));
        }
        if !facts.is_empty() {
            text.push_str("\nrecorded about the sampling\n");
            let rows = facts.iter().map(|(name, value)| vec![format!("  {name}"), value.to_string()]);
            text.push_str(&columns(&["  FACT", "VALUE"], rows));
        }
        text
    }
}

fn place(axis: Axis) -> usize {
    usize::from(axis == Axis::Step)
}

fn row(series: &Series, (from, to): (u64, u64), width: usize) -> Vec<String> {
    let (kind, curve) = (Kind::of(&series.name), Curve::of(series));
    let figures = Figures::of(series, &curve);
    let (min, max) = figures.range.unzip();
    let unit = shown(&series.unit, kind, max.unwrap_or(0.0));
    let number = |value: Option<f64>| match value {
        Some(value) if kind != Kind::Flags => significant(value * unit.factor),
        _ => "-".to_owned(),
    };
    let shown_as = if kind == Kind::Counter { "rate" } else { kind.name() };
    let unit = if unit.unit.is_empty() { "-".to_owned() } else { unit.unit.clone() };
    let mut row = vec![series.name.clone(), shown_as.to_owned(), unit, series.values.len().to_string()];
    row.extend([min, figures.mean, max, figures.last].map(number));
    let scale = (kind == Kind::Flags).then_some((0.0, 1.0));
    row.push(sparkline(&curve.buckets(from, to, width), scale));
    row
}

/// Returns the throttle reasons in a series of them, with their shares of the time.
fn held(series: &Series) -> Option<String> {
    if quantity(&series.name) != Some(Quantity::ThrottleReasons) {
        return None;
    }
    let (bits, none) = bit_shares(series);
    let share = |name: &str, share: f64| format!("{name} {}%", significant(share * 100.0));
    let none = none.filter(|share| *share > 0.0).map(|part| share("none", part));
    let shares: Vec<String> =
        bits.into_iter().map(|(bit, part)| share(&throttle_reason(bit), part)).chain(none).collect();
    Some(if shares.is_empty() { "-".to_owned() } else { shares.join(", ") })
}

/// Head line of the CSV.
pub const CSV_HEADS: &str = "series,unit,axis,position,value\n";

/// Returns the points of a series as CSV lines. Positions are in seconds or steps; values are written with all digits.
pub fn csv_rows(series: &Series) -> String {
    let start = format!("{},{},{},", csv_field(&series.name), csv_field(&series.unit), csv_axis(series.axis));
    let mut rows = String::with_capacity(series.values.len() * (start.len() + 32));
    for (position, value) in series.positions.iter().zip(&series.values) {
        rows.push_str(&format!("{start}{},{value:?}\n", csv_position(*position, series.axis)));
    }
    rows
}

/// Returns the name of an axis in CSV.
pub(super) fn csv_axis(axis: Axis) -> &'static str {
    if axis == Axis::TimeNs { "time_s" } else { "step" }
}

/// Formats a position for CSV: seconds with nine decimals, or a step.
pub(super) fn csv_position(position: u64, axis: Axis) -> String {
    match axis {
        Axis::TimeNs => format!("{}.{:09}", position / 1_000_000_000, position % 1_000_000_000),
        Axis::Step => position.to_string(),
    }
}

/// Returns the samples as a document's members.
pub fn telemetry_value(telemetry: &Telemetry) -> Table {
    let unread = telemetry.unread.iter().map(|(name, reason)| (name.clone(), reason.as_str().into()));
    let is_drawn = telemetry.part.as_ref().is_some_and(|part| part.phases.is_some());
    let of_series = if is_drawn { drawn_value } else { series_value };
    let mut members = table_of([
        ("run", telemetry.run.to_string().into()),
        ("attempt", telemetry.attempt.to_string().into()),
        ("model", telemetry.model.as_str().into()),
        ("series", Value::List(telemetry.series.iter().map(of_series).collect())),
        ("unread", Value::Table(unread.collect())),
        ("facts", telemetry.facts.clone().into()),
    ]);
    members.extend(wall_seconds(telemetry.wall_ns).map(|wall| ("wall_time_s".to_owned(), wall.into())));
    members.extend(telemetry.part.iter().flat_map(TelemetryPart::members));
    members
}

/// Returns a series as plotted, with rates for a counter.
fn drawn_value(series: &Series) -> Value {
    let kind = Kind::of(&series.name);
    let mut table = series_members(series, if kind == Kind::Counter { "rate" } else { kind.name() });
    if kind == Kind::Flags {
        table.insert("shares".to_owned(), shares(series));
    }
    Value::Table(table)
}

/// Returns the share of the time in which each throttle reason was active.
fn shares(series: &Series) -> Value {
    let shares = bit_shares(series).0.into_iter().map(|(bit, share)| (throttle_reason(bit), share.into()));
    Value::Table(shares.collect())
}

fn series_members(series: &Series, kind: &str) -> Table {
    table_of([
        ("name", series.name.as_str().into()),
        ("unit", series.unit.as_str().into()),
        ("kind", kind.into()),
        ("axis", series.axis.name().into()),
        ("positions", series.positions.clone().into()),
        ("values", series.values.clone().into()),
    ])
}

fn series_value(series: &Series) -> Value {
    let kind = Kind::of(&series.name);
    let figures = Figures::of(series, &Curve::of(series));
    let mut table = series_members(series, kind.name());
    let (min, max) = figures.range.unzip();
    // These are rates per second for a counter, and meaningless for flags.
    let figures = [("min", min), ("mean", figures.mean), ("max", max), ("last", figures.last)];
    let figures: Table =
        figures.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect();
    match kind {
        Kind::Level => table.insert("figures".to_owned(), figures.into()),
        Kind::Counter => table.insert("rate_figures".to_owned(), figures.into()),
        Kind::Flags => table.insert("shares".to_owned(), shares(series)),
    };
    Value::Table(table)
}

#[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
pub(super) mod tests;
