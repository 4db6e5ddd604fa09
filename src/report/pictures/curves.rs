//! Plots of an attempt's curves over steps or time, with the phases behind them.

use super::super::figure::{
    AxisOf, Figure, FigureError, Key, Mark, Panel, Scale, Shape, Sheet, Style, Tint, axis, padded, panel,
};
use super::super::number::significant;
use super::super::panels::{Band, phase_bands};
use super::super::telemetry::{csv_axis, csv_position};
use super::super::units::shown;
use super::{full, labels, state_text};
use crate::analysis::{Curve, Kind, quartiles};
use crate::record::{AttemptId, Axis, Phase, Run, Series};
use std::collections::BTreeMap;

/// Most attempts in one plot; each has its own colour and dash.
const MOST: usize = 8;
/// Horizontal resolution to which a curve is thinned; paper shows no more.
const COLUMNS: usize = 500;
/// Epochs narrower than this share of the axis are shaded together.
const NARROW: f64 = 120.0;
/// Larger values are not drawn.
const DRAWABLE: f64 = 1e100;

/// The x axis of a plot of curves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The series' own axis: steps or time.
    Own,
    /// Time since the attempt's start, for all series.
    Time,
}

/// An attempt with its curves.
#[derive(Clone, Debug)]
pub struct Curved {
    /// Its run.
    pub run: Run,
    /// The attempt.
    pub attempt: AttemptId,
    /// Reason why queries leave it out, such as `failed` or `tainted`; `None` if it counts.
    pub state: Option<&'static str>,
    /// Duration of the attempt.
    pub wall_ns: u64,
    /// Its curves; long ones are reduced to extremes.
    pub series: Vec<Series>,
    /// The reduced series: name, number of recorded points, and number of intervals.
    /// Each interval keeps its minimum and maximum.
    pub thinned: Vec<(String, u64, usize)>,
    /// Its phases.
    pub phases: Vec<Phase>,
}

/// Plots one panel for each quantity, with a line for each attempt.
///
/// # Errors
/// If no curve has a finite value, or there are too many attempts.
pub fn curves(attempts: &[Curved], over: Over) -> Result<Figure, FigureError> {
    if attempts.len() > MOST {
        return Err(FigureError::Asked(format!("a plot shows at most {MOST} attempts")));
    }
    let runs: Vec<&Run> = attempts.iter().map(|one| &one.run).collect();
    let told = labels(&runs, &[]);
    let label = |at: usize| {
        let state = state_text(attempts[at].state);
        format!("{}{state} {}", attempts[at].attempt.0.prefix(8), told[at])
    };
    let mut quantities: BTreeMap<(Axis, &str), Vec<(usize, &Series)>> = BTreeMap::new();
    for (at, one) in attempts.iter().enumerate() {
        for series in &one.series {
            quantities.entry((series.axis, &series.name)).or_default().push((at, series));
        }
    }
    let mut sheet = Sheet::new(&["attempt", "run", "series", "unit", "axis", "position", "value"]);
    let mut panels: Vec<Panel> = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    for ((own, name), series) in &quantities {
        let is_timed = *own == Axis::TimeNs || over == Over::Time;
        let mut lines = Vec::new();
        let mut missed = |at: usize, name: &str, why: &str| {
            notes.push(format!("Not drawn: `{name}` of attempt {} ({why}).", attempts[at].attempt.0.prefix(8)));
        };
        for (at, one) in series {
            let one = if is_timed { over_time(one, &attempts[*at].phases) } else { Some((*one).clone()) };
            let Some(one) = one else {
                missed(*at, name, "the times of its steps are not recorded");
                continue;
            };
            lines.push((*at, Curve::of(&one), one));
        }
        lines.retain(|(at, curve, _)| {
            let is_drawn = curve.range().is_some_and(|(a, b)| a.abs() < DRAWABLE && b.abs() < DRAWABLE);
            if !is_drawn {
                missed(*at, name, "no finite value, or one too large to be drawn");
            }
            is_drawn
        });
        let Some((_, _, first)) = lines.first() else { continue };
        let ends: Vec<f64> = lines.iter().filter_map(|(_, curve, _)| curve.range()).flat_map(|(a, b)| [a, b]).collect();
        let unit = shown(&first.unit, Kind::of(name), ends.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        let position = |at: u64| if is_timed { real(at) / 1e9 } else { real(at) };
        // Panels next to each other show the same range.
        let (start, last) = extent(attempts, *own, is_timed);
        let low_high = (position(start), position(last).max(position(start) + if is_timed { 1e-9 } else { 1.0 }));
        let x = axis(
            if is_timed { "time since the start" } else { "step" },
            if is_timed { "s" } else { "" },
            Scale::Linear(low_high.0, low_high.1),
        );
        let all: Vec<f64> = lines
            .iter()
            .flat_map(|(_, curve, _)| curve.pieces().iter().flatten().map(|(_, v)| v * unit.factor))
            .collect();
        let scaled: Vec<f64> = ends.iter().map(|end| end * unit.factor).collect();
        let mut one = panel("", x, y_axis(name, &unit.unit, &scaled, &all));
        one.height = 0.8;
        for (at, curve, raw) in &lines {
            let thin = curve.thinned(start, last, COLUMNS);
            let pieces = thin
                .pieces()
                .iter()
                .map(|piece| piece.iter().map(|(at, value)| (position(*at), value * unit.factor)).collect());
            let name = if attempts.len() > 1 { label(*at) } else { String::new() };
            one.marks.push(Mark { label: name, style: Style::Series(*at), shape: Shape::Line(pieces.collect()) });
            rows(&mut sheet, &attempts[*at], raw);
        }
        if let [alone] = attempts {
            one.bands = if is_timed { in_time(alone, last) } else { in_steps(alone, start, last) };
        }
        panels.push(one);
    }
    if panels.is_empty() {
        return Err(FigureError::Empty("no selected curve has a finite value".to_owned()));
    }
    for one in attempts {
        notes.extend(one.thinned.iter().map(|thinned| thinned_note(one.attempt, thinned)));
    }
    let mut key = Vec::new();
    let is_shaded =
        |timed: bool| panels.iter().any(|panel| !panel.bands.is_empty() && panel.x.label.starts_with("time") == timed);
    if is_shaded(true) {
        key.push(Key::new("Shaded over time: phases of the first rank.", ""));
    }
    if is_shaded(false) {
        key.push(Key::new("Shaded over steps: epochs of the first rank, by the steps in them.", ""));
    }
    let model = attempts.first().map_or("", |one| one.run.model());
    let title = match attempts {
        [one] => {
            let ids = (one.run.id.0.prefix(8), one.attempt.0.prefix(8), state_text(one.state));
            format!("{model}: run {}, attempt {}{}", ids.0, ids.1, ids.2)
        }
        many => format!(
            "{} attempts{}",
            many.len(),
            if many.iter().all(|one| one.run.model() == model) { format!(" of {model}") } else { String::new() }
        ),
    };
    Ok(Figure {
        title,
        summary: format!(
            "Curves of {}. Last values: {}.",
            quantities.keys().map(|(_, name)| *name).collect::<Vec<_>>().join(", "),
            sheet_finals(attempts).join("; ")
        ),
        notes,
        key,
        across: 2,
        panels,
        sheet,
    })
}

/// Describes how a long series (name, points, intervals) is reduced.
pub(super) fn thinned_note(attempt: AttemptId, (name, points, stretches): &(String, u64, usize)) -> String {
    let attempt = attempt.0.prefix(8);
    format!(
        "`{name}` of attempt {attempt}: minimum and maximum of each of {stretches} stretches, from {points} points (`ledger export {attempt} --to csv --table points` has all)."
    )
}

/// Lists the last value of each curve of each attempt.
fn sheet_finals(attempts: &[Curved]) -> Vec<String> {
    let of = |one: &Curved| {
        let last = |series: &Series| {
            Some(
                format!("{} {} {}", series.name, significant(*series.values.last()?), series.unit)
                    .trim_end()
                    .to_owned(),
            )
        };
        let all: Vec<String> = one.series.iter().filter_map(last).collect();
        format!("{} {}", one.attempt.0.prefix(8), all.join(", "))
    };
    attempts.iter().map(of).collect()
}

/// Chooses the y axis; it is logarithmic if most values would otherwise lie at the bottom.
fn y_axis(name: &str, unit: &str, ends: &[f64], all: &[f64]) -> AxisOf {
    let (low, high) = ends.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(*v), high.max(*v)));
    let middle = quartiles(all).map_or(high, |(_, median, _)| median);
    if low > 0.0 && middle < high / 30.0 {
        let floor = low.max(high * 1e-9);
        return axis(&format!("{name} (log scale)"), unit, Scale::Log(floor / 1.2, high * 1.2));
    }
    let from_zero = ends.iter().all(|end| *end >= 0.0) && super::distribution::is_wide(ends);
    let (low, high) = padded(ends.iter().copied(), from_zero);
    axis(name, unit, Scale::Linear(low, high))
}

fn rows(sheet: &mut Sheet, one: &Curved, series: &Series) {
    let (attempt, run) = (one.attempt.to_string(), one.run.id.to_string());
    for (position, value) in series.positions.iter().zip(&series.values) {
        sheet.rows.push(vec![
            attempt.clone(),
            run.clone(),
            series.name.clone(),
            series.unit.clone(),
            csv_axis(series.axis).to_owned(),
            csv_position(*position, series.axis),
            full(*value),
        ]);
    }
}

/// Returns the end time of each step of rank 0.
fn ends_of_steps(phases: &[Phase]) -> BTreeMap<u64, u64> {
    let steps = phases.iter().filter(|phase| phase.name == "step" && phase.rank == 0);
    steps.filter_map(|phase| Some((phase.index, phase.stop_ns?))).collect()
}

/// Converts a series over steps to one over time; `None` if the times of its steps are not recorded.
fn over_time(series: &Series, phases: &[Phase]) -> Option<Series> {
    if series.axis == Axis::TimeNs {
        return Some(series.clone());
    }
    let ends = ends_of_steps(phases);
    let mut timed = Series::new(series.name.clone(), series.unit.clone(), Axis::TimeNs);
    let points = series.positions.iter().zip(&series.values);
    let mut points: Vec<(u64, f64)> = points.filter_map(|(step, value)| Some((*ends.get(step)?, *value))).collect();
    points.sort_by_key(|(at, _)| *at);
    points.into_iter().for_each(|(at, value)| timed.push(at, value));
    (!timed.values.is_empty()).then_some(timed)
}

fn in_time(one: &Curved, end: u64) -> Vec<Tint> {
    let end = end.max(1);
    let bands = phase_bands(&one.phases, end, end / 400);
    bands.iter().map(|band| tint(band, (real(band.start_ns) / 1e9, real(band.stop_ns) / 1e9))).collect()
}

/// Returns the epochs as bands over steps. Phases between two steps have no width there.
fn in_steps(one: &Curved, start: u64, last: u64) -> Vec<Tint> {
    let mut by_end: Vec<(u64, u64)> = ends_of_steps(&one.phases).into_iter().map(|(step, end)| (end, step)).collect();
    by_end.sort_unstable();
    let before = |moment: u64| {
        let earlier = by_end.partition_point(|(end, _)| *end <= moment);
        earlier.checked_sub(1).map_or(0, |at| by_end[at].1)
    };
    let narrow = real(last.saturating_sub(start)) / NARROW;
    let mut stretches: Vec<(Band, (f64, f64))> = Vec::new();
    for band in phase_bands(&one.phases, u64::MAX, 0).into_iter().filter(|band| band.name == "epoch") {
        // Adds one half, so that the borders of epochs fall between two steps.
        let span = (real(before(band.start_ns)) + 0.5, real(before(band.stop_ns)) + 0.5);
        match stretches.last_mut() {
            Some((there, wide)) if span.1 - wide.0 < narrow => {
                wide.1 = span.1;
                there.last = band.last;
            }
            _ if span.1 > span.0 => stretches.push((band, span)),
            _ => {}
        }
    }
    let odd = |at: usize| at.is_multiple_of(2);
    stretches.iter().enumerate().map(|(at, (band, span))| Tint { is_odd: odd(at), ..tint(band, *span) }).collect()
}

/// Returns the common range of all curves over one axis.
fn extent(attempts: &[Curved], own: Axis, is_timed: bool) -> (u64, u64) {
    if is_timed {
        return (0, attempts.iter().map(|one| one.wall_ns).max().unwrap_or(0));
    }
    let all = || attempts.iter().flat_map(|one| &one.series).filter(|series| series.axis == own);
    let first = all().filter_map(|series| series.positions.first()).min().copied().unwrap_or(0);
    (first, all().filter_map(|series| series.positions.last()).max().copied().unwrap_or(0))
}

pub(super) fn tint(band: &Band, span: (f64, f64)) -> Tint {
    Tint { span, kind: band.name.to_owned(), labels: band.labels(), is_odd: !band.first.is_multiple_of(2) }
}

#[expect(clippy::cast_precision_loss, reason = "a point on paper is wider")]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}
