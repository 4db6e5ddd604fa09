//! What each axis of an experiment does to a metric: its levels' means, and every attempt behind them.

use super::super::effects::Effected;
use super::super::figure::{Figure, FigureError, Mark, Point, Scale, Shape, Sheet, Style, axis, padded, panel};
use super::super::ranking::{left_out_text, probability, short_names};
use super::distribution::is_wide;
use super::{Mean, full, largest, optional, said, scaled, scatter, thinned, thinning};
use crate::analysis::Summary;
use crate::record::{Direction, count};

/// Beside each other, so that equal values are seen.
const JITTER: [f64; 5] = [0.0, -0.12, 0.12, -0.22, 0.22];

/// A panel for each axis, the strongest first; `values` are the observations that the effects were found from.
///
/// # Errors
/// If there is no axis.
pub fn effects_figure(found: &Effected, values: &[f64]) -> Result<Figure, FigureError> {
    if found.effects.main.is_empty() {
        return Err(FigureError::Empty("the attempts differ in no axis".to_owned()));
    }
    let names = short_names(&found.factors.iter().map(|factor| factor.name.clone()).collect::<Vec<_>>());
    let (unit, factor) = scaled(&found.unit, largest(values.iter().copied()));
    let mut sheet =
        Sheet::new(&["axis", "level", "mean", "half_width_95", "n", "unit", "share_of_variance", "p_corrected"]);
    let shown: Vec<f64> = values.iter().map(|value| value * factor).collect();
    let mut ends = shown.clone();
    let mut halves = Vec::new();
    let mut panels = Vec::new();
    for effect in &found.effects.main {
        let own = &found.factors[effect.factor];
        let (mut dots, mut means, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for (row, level) in own.levels.iter().enumerate() {
            let middle = f64::from(u16::try_from(row).unwrap_or(u16::MAX)) + 0.5;
            let here: Vec<f64> = own.of.iter().zip(values).filter(|(at, _)| **at == row).map(|(_, v)| *v).collect();
            let Some(summary) = Summary::of(&here) else { continue };
            let mean = Mean { mean: summary.mean, half: summary.half_width(), n: summary.n };
            let every = thinning(values.len());
            dots.extend(here.iter().enumerate().filter(|(at, _)| at.is_multiple_of(every)).map(|(at, value)| Point {
                at: (value * factor, middle + JITTER[at / every % JITTER.len()]),
                ..Point::default()
            }));
            let half = mean.half.unwrap_or(0.0);
            ends.extend([mean.mean - half, mean.mean + half].map(|value| value * factor));
            halves.push(mean.half);
            means.push(Point {
                at: (mean.mean * factor, middle),
                half: (mean.half.map(|half| half * factor), None),
                name: format!("{} {level}: {}", own.name, said(&mean, &unit, factor)),
                ..Point::default()
            });
            rows.push(format!("{level} (n = {})", mean.n));
            let cells = [own.name.clone(), level.to_string(), full(mean.mean), optional(mean.half), mean.n.to_string()];
            let judged = [found.unit.clone(), full(effect.share.eta_squared), optional(effect.share.corrected)];
            sheet.rows.push(cells.into_iter().chain(judged).collect());
        }
        let p = match effect.share.corrected {
            Some(p) if p < 0.001 => format!(", p {}", probability(p)),
            Some(p) => format!(", p = {}", probability(p)),
            None => ", not tested".to_owned(),
        };
        let name = &names[effect.factor];
        let title = format!("{name}: {:.1}% of the variance{p}", 100.0 * effect.share.eta_squared);
        let better = match found.direction {
            Some(Direction::Minimize) => " (lower is better)",
            Some(Direction::Maximize) => " (higher is better)",
            None => "",
        };
        let x = axis(&format!("{}{better}", found.metric), &unit, Scale::Linear(0.0, 1.0));
        let mut one = panel(&title, x, axis(name, "", Scale::Names(rows)));
        let mark = |label: &str, style, points| Mark { label: label.to_owned(), style, shape: Shape::Points(points) };
        one.marks = vec![mark("an attempt", Style::Faint, dots), mark("mean of a level", Style::Series(0), means)];
        panels.push(one);
    }
    let from_zero = ends.iter().all(|value| *value >= 0.0) && is_wide(&ends);
    let (low, high) = padded(ends, from_zero);
    panels.iter_mut().for_each(|panel| panel.x.scale = Scale::Linear(low, high));
    let strongest = found.effects.main.first().map_or_else(String::new, |effect| {
        format!("{} explains most: {:.1}% of the variance", names[effect.factor], 100.0 * effect.share.eta_squared)
    });
    let mut notes = vec![
        format!("Means over all other axes, not adjusted for them; {}.", scatter(halves)),
        "Shares of the variance: analysis of variance, type II; p after Holm's correction.".to_owned(),
    ];
    notes.extend(thinned("attempts in each panel", values.len()));
    notes.extend(found.notes.iter().cloned());
    let left_out = left_out_text(&found.left_out, &found.metric);
    notes.extend((!left_out.is_empty()).then(|| left_out.trim_end().to_owned()));
    Ok(Figure {
        title: format!("{}: what changes {}", found.model, found.metric),
        summary: format!(
            "{} by each axis ({} in all), {}. {strongest}.",
            found.metric,
            panels.len(),
            count(values.len(), "attempt")
        ),
        notes,
        key: Vec::new(),
        across: 2,
        panels,
        sheet,
    })
}
