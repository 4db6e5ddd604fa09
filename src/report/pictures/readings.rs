//! Plots hardware samples over time: a panel for each unit, a line for each series, and phases behind them.

use super::super::figure::{Figure, FigureError, Mark, Scale, Shape, Sheet, Style, axis, panel};
use super::super::panels::{panels, phase_bands};
use super::super::telemetry::{Telemetry, csv_axis, csv_position};
use super::curves::{real, thinned_note, tint};
use super::full;
use crate::record::Axis;

/// Horizontal resolution to which a curve is thinned.
const COLUMNS: usize = 900;
/// Phases narrower than this fraction of the time are merged.
const NARROWEST: u64 = 400;

/// Plots the samples.
///
/// # Errors
/// If nothing can be drawn.
pub fn readings_figure(telemetry: &Telemetry) -> Result<Figure, FigureError> {
    let found = panels(telemetry, COLUMNS);
    if found.is_empty() {
        return Err(FigureError::Empty("no selected series has a finite value".to_owned()));
    }
    let end = telemetry.extent(Axis::TimeNs).1.max(1);
    let phases = phase_bands(&telemetry.phases, end, end / NARROWEST);
    let last = found.len() - 1;
    let mut drawn = Vec::new();
    for (at, source) in found.iter().enumerate() {
        let is_timed = source.axis == Axis::TimeNs;
        let (from, to) = telemetry.extent(source.axis);
        let (from, to) = if is_timed { (0.0, real(end) / 1e9) } else { (real(from), real(to)) };
        let to = to.max(from + (from * 1e-6).max(if is_timed { 1e-9 } else { 1.0 }));
        let x = if is_timed {
            axis("seconds since the start", "", Scale::Linear(from, to))
        } else {
            axis("step", "", Scale::Linear(from, to))
        };
        let (low, high) = source.range;
        let y = match &source.unit {
            Some(unit) => axis(unit, "", Scale::Linear(low, high)),
            None => axis("", "", Scale::Bare(low, high)),
        };
        let title = match source.unit.as_deref() {
            Some(unit) if !unit.is_empty() && unit != source.title => format!("{}, {unit}", source.title),
            _ => source.title.clone(),
        };
        let mut one = panel(&title, x, y);
        one.height = 0.55;
        // Panels over time are stacked and share the axis below the last one.
        one.has_x = !is_timed || at == last || found[at + 1].axis == Axis::Step;
        if is_timed {
            one.bands =
                phases.iter().map(|band| tint(band, (real(band.start_ns) / 1e9, real(band.stop_ns) / 1e9))).collect();
        }
        for (series, line) in source.lines.iter().enumerate() {
            let place = |(at, value): &(u64, f64)| (if is_timed { real(*at) / 1e9 } else { real(*at) }, *value);
            let pieces = line.pieces.iter().map(|piece| piece.iter().map(place).collect()).collect();
            one.marks.push(Mark {
                label: line.label.clone(),
                style: Style::Series(series),
                shape: Shape::Line(pieces),
            });
        }
        drawn.push(one);
    }
    let mut sheet = Sheet::new(&["series", "unit", "axis", "position", "value"]);
    for series in &telemetry.series {
        for (position, value) in series.positions.iter().zip(&series.values) {
            let (axis, position) = (csv_axis(series.axis).to_owned(), csv_position(*position, series.axis));
            sheet.rows.push(vec![series.name.clone(), series.unit.clone(), axis, position, full(*value)]);
        }
    }
    let titles: Vec<&str> = drawn.iter().map(|panel| panel.title.as_str()).collect();
    let ids = format!("run {}, attempt {}", telemetry.run.0.prefix(8), telemetry.attempt.0.prefix(8));
    Ok(Figure {
        title: format!("{}: {ids}", super::super::figure::plain(&telemetry.model, 60)),
        summary: format!("Hardware samples: {}.", titles.join("; ")),
        notes: telemetry.thinned.iter().map(|thinned| thinned_note(telemetry.attempt, thinned)).collect(),
        key: Vec::new(),
        across: 1,
        panels: drawn,
        sheet,
    })
}
