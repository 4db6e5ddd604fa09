//! Plots the effect of each axis of an experiment on a metric: the means of its levels, and every attempt behind them.

use super::super::contrast::p_value;
use super::super::effects::Effected;
use super::super::fields::short_names;
use super::super::figure::{Figure, FigureError, Mark, Point, Scale, Shape, Sheet, Style, axis, padded, panel};
use super::super::left_out::left_out_text;
use super::distribution::{JITTER, is_wide};
use super::{Mean, better, full, largest, optional, said, scaled, scatter, significant, thinned, thinning};
use crate::analysis::{ModelScale, Summary};
use crate::record::{MetricKind, count};

/// The plotted mean of a level; geometric on the log scale.
struct Shown {
    mean: f64,
    /// Ends of the 95% interval from the scatter of the values.
    ends: Option<(f64, f64)>,
    name: String,
}

/// Returns the arithmetic mean of a level's observations, and the plotted mean.
///
/// Observations that are not independent have no interval.
fn means(here: &[f64], is_independent: bool, scale: ModelScale, (unit, factor): (&str, f64)) -> Option<(Mean, Shown)> {
    let summary = Summary::of(here)?;
    let half = summary.half_width().filter(|_| is_independent);
    let mean = Mean { mean: summary.mean, half, n: summary.n };
    if scale == ModelScale::Linear {
        let ends = mean.bar().map(|half| (mean.mean - half, mean.mean + half));
        let shown = Shown { mean: mean.mean, ends, name: said(&mean, unit, factor) };
        return Some((mean, shown));
    }
    let logs = Summary::of(&here.iter().map(|value| value.ln()).collect::<Vec<_>>())?;
    let ends = logs
        .half_width()
        .filter(|_| mean.bar().is_some())
        .map(|half| ((logs.mean - half).exp(), (logs.mean + half).exp()));
    let interval = ends.map_or_else(String::new, |(low, high)| {
        format!(" ({} to {})", significant(low * factor), significant(high * factor))
    });
    let geometric = logs.mean.exp();
    let name = format!("geometric mean {} {unit}{interval}, n = {}", significant(geometric * factor), mean.n);
    Some((mean, Shown { mean: geometric, ends, name }))
}

/// Returns the common x axis of all panels; logarithmic for effects on the log scale.
fn x_scale(scale: ModelScale, ends: &[f64]) -> Scale {
    if scale == ModelScale::Log {
        let (low, high) = padded(ends.iter().map(|value| value.ln()), false);
        return Scale::Log(low.exp(), high.exp());
    }
    let from_zero = ends.iter().all(|value| *value >= 0.0) && is_wide(ends);
    let (low, high) = padded(ends.iter().copied(), from_zero);
    Scale::Linear(low, high)
}

/// Plots one panel for each axis, the strongest first. `values` are the observations behind the effects.
///
/// # Errors
/// If there is no axis.
pub fn effects_figure(found: &Effected, values: &[f64]) -> Result<Figure, FigureError> {
    if found.effects.main.is_empty() {
        return Err(FigureError::Empty("the attempts differ in no axis".to_owned()));
    }
    let names = short_names(&found.factors.iter().map(|factor| factor.name.clone()).collect::<Vec<_>>());
    let scale = found.effects.scale;
    let (unit, factor) = scaled(&found.unit, largest(values.iter().copied()));
    let mut sheet = Sheet::new(&[
        "axis",
        "level",
        "mean",
        "half_width_95",
        "n",
        "unit",
        "share_of_variance",
        "p_corrected",
        "scale",
        "adjusted_mean",
        "geometric_mean",
        "geometric_low_95",
        "geometric_high_95",
    ]);
    let mut ends: Vec<f64> = values.iter().map(|value| value * factor).collect();
    let mut halves = Vec::new();
    let mut panels = Vec::new();
    for effect in &found.effects.main {
        let own = &found.factors[effect.factor];
        let (mut dots, mut points, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for (row, level) in own.levels.iter().enumerate() {
            let middle = f64::from(u16::try_from(row).unwrap_or(u16::MAX)) + 0.5;
            let here: Vec<f64> = own.of.iter().zip(values).filter(|(at, _)| **at == row).map(|(_, v)| *v).collect();
            let Some((mean, shown)) = means(&here, !own.is_of_machines, scale, (&unit, factor)) else { continue };
            let every = thinning(values.len());
            dots.extend(here.iter().enumerate().filter(|(at, _)| at.is_multiple_of(every)).map(|(at, value)| Point {
                at: (value * factor, middle + JITTER[at / every % JITTER.len()]),
                ..Point::default()
            }));
            let across = shown.ends.map(|(low, high)| (low * factor, high * factor));
            ends.extend(across.iter().flat_map(|(low, high)| [*low, *high]));
            halves.push(mean.bar());
            points.push(Point {
                at: (shown.mean * factor, middle),
                ends: across,
                name: format!("{} {level}: {}", own.name, shown.name),
                ..Point::default()
            });
            rows.push(format!("{level} (n = {})", mean.n));
            let cells = [own.name.clone(), level.to_string(), full(mean.mean), optional(mean.half), mean.n.to_string()];
            let judged = [found.unit.clone(), full(effect.share.eta_squared), optional(effect.share.corrected)];
            let adjusted = optional(effect.adjusted.as_ref().map(|adjusted| adjusted[row]));
            let geometric = Some(&shown).filter(|_| scale == ModelScale::Log);
            let interval = geometric.and_then(|shown| shown.ends);
            let geometric = [geometric.map(|shown| shown.mean), interval.map(|of| of.0), interval.map(|of| of.1)];
            let of_scale = [scale.name().to_owned(), adjusted].into_iter().chain(geometric.map(optional));
            sheet.rows.push(cells.into_iter().chain(judged).chain(of_scale).collect());
        }
        let tested = effect.share.corrected.map_or_else(|| "not tested".to_owned(), p_value);
        let best = effect.inner.as_ref().filter(|_| effect.share.is_significant() != Some(false));
        let best =
            best.map_or_else(String::new, |inner| format!(", {} at {}", inner.extreme.name(), own.levels[inner.level]));
        let name = &names[effect.factor];
        let title = match effect.contrast {
            Some(_) => format!("{name}: {:.1}% of the variance, {tested}{best}", 100.0 * effect.share.eta_squared),
            None => format!("{name}: {}", found.inseparable(&own.name)),
        };
        let x = axis(&format!("{}{}", found.metric, better(found.direction)), &unit, Scale::Linear(0.0, 1.0));
        let mut one = panel(&title, x, axis(name, "", Scale::Names(rows)));
        let mark = |label: &str, style, points| Mark { label: label.to_owned(), style, shape: Shape::Points(points) };
        let of_dots = match found.kind {
            MetricKind::Measured => "an attempt",
            MetricKind::Outcome => "a seed of a configuration",
        };
        let of_points = match scale {
            ModelScale::Linear => "mean of a level",
            ModelScale::Log => "geometric mean of a level",
        };
        one.marks = vec![mark(of_dots, Style::Faint, dots), mark(of_points, Style::Series(0), points)];
        panels.push(one);
    }
    panels.iter_mut().for_each(|panel| panel.x.scale = x_scale(scale, &ends));
    let strongest = found.strongest().unwrap_or_default();
    let mut notes = vec![
        format!("Means over all other axes, not adjusted for them; {}.", scatter(halves)),
        format!("Type II analysis of variance on the {} scale; p by Holm's correction.", scale.name()),
    ];
    notes.extend(thinned("points in each panel", values.len()));
    notes.extend(found.confounded_sentences().map(|sentence| format!("Confounded: {sentence}.")));
    notes.extend(found.notes.iter().cloned());
    let left_out = left_out_text(&found.left_out, &found.metric);
    notes.extend((!left_out.is_empty()).then(|| left_out.trim_end().to_owned()));
    Ok(Figure {
        title: format!("{}: what changes {}", found.model, found.metric),
        summary: format!(
            "{} by each axis ({} in all), {}. {strongest}.",
            found.metric,
            panels.len(),
            count(values.len(), "observation")
        ),
        notes,
        key: Vec::new(),
        across: 2,
        panels,
        sheet,
    })
}
