//! Figures of records, for `ledger plot` and `ledger report`.
//!
//! Knows records and which of their contents to plot. Must not know how a figure is drawn.

mod curves;
mod distribution;
mod effects;
mod energy;
mod front;
mod heat;
mod readings;
mod scaling;

pub use curves::{Curved, Over, curves};
pub use distribution::distribution;
pub use effects::effects_figure;
pub use energy::{EnergyOf, energy_figure};
pub use front::front_figure;
pub use heat::{Heat, heat};
pub use readings::readings_figure;
pub use scaling::scaling;

use super::fields::{changing_together, short_names};
use super::left_out::left_out_text;
use super::number::significant;
use crate::analysis::{self, Asked, Configuration, Names, Ordering, Trial, count_left_out};
use crate::record::{Direction, Run, RunId, Value, Why};
use std::collections::BTreeSet;

/// The subject of a figure about many attempts.
pub struct Subject<'a, T = Trial> {
    /// The model.
    pub model: &'a str,
    /// The metric.
    pub metric: &'a str,
    /// Its unit.
    pub unit: &'a str,
    /// Direction of improvement; `None` if unknown.
    pub direction: Option<Direction>,
    /// The attempts.
    pub trials: &'a [T],
    /// Names of the attempts' fields and metrics.
    pub names: &'a Names,
    /// Kinds of attempts that count although they are left out by default.
    pub admitted: &'a BTreeSet<Why>,
}

/// A configuration's mean of the metric.
#[derive(Clone, Debug)]
struct Mean {
    mean: f64,
    half: Option<f64>,
    n: usize,
}

impl Mean {
    /// Returns the half-width of the interval to show. It is `None` for two values, whose range is in tables.
    fn bar(&self) -> Option<f64> {
        self.half.filter(|_| self.n != 2)
    }
}

impl<T: Asked> Subject<'_, T> {
    /// Returns the mean alone, without reading records.
    fn plain_mean(&self, one: &Configuration<'_, T>) -> Option<f64> {
        one.mean(self.metric, self.admitted)
    }

    fn mean(&self, one: &Configuration<'_, T>) -> Option<Mean> {
        let contender = one.contender(self.metric, self.admitted)?;
        let ordering = Ordering::of(self.metric, self.unit, self.direction.unwrap_or(Direction::Minimize));
        let placed = analysis::place(vec![contender], ordering).pop()?;
        Some(Mean { mean: placed.estimate.mean, half: placed.half_width, n: placed.estimate.units.len() })
    }

    /// Returns the run that names a configuration.
    fn run_of(&self, one: &Configuration<'_, T>) -> Option<RunId> {
        one.contender(self.metric, self.admitted).map(|contender| contender.run.id)
    }

    /// Returns the metric's name for an axis label.
    fn name(&self) -> String {
        format!("{}{}", self.metric, better(self.direction))
    }

    /// Returns a note on the attempts left out, with the reasons; `None` if there are none.
    fn left_out(&self) -> Option<String> {
        let left_out = count_left_out(self.trials, self.metric, self.admitted).1;
        let text = left_out_text(&left_out, self.metric);
        (!text.is_empty()).then(|| text.trim_end().to_owned())
    }

    fn empty(&self) -> super::figure::FigureError {
        super::figure::FigureError::Empty(format!(
            "no attempt of `{}` that counts has a finite `{}`",
            self.model, self.metric
        ))
    }
}

/// Returns the better direction as a suffix of an axis label; empty if unknown.
fn better(direction: Option<Direction>) -> &'static str {
    match direction {
        Some(Direction::Minimize) => " (lower is better)",
        Some(Direction::Maximize) => " (higher is better)",
        None => "",
    }
}

/// Returns a unit in which numbers are short, and the factor to it.
fn scaled(unit: &str, largest: f64) -> (String, f64) {
    let prefixes: &[(f64, &str)] = match unit {
        "J" | "W" => &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ")],
        "s" => &[(1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")],
        "B" => {
            let shown = super::units::shown("B", analysis::Kind::Level, largest);
            return (shown.unit, shown.factor);
        }
        _ => return (unit.to_owned(), 1.0),
    };
    let fits = prefixes.iter().find(|(size, _)| largest.abs() >= *size).copied().unwrap_or((1.0, ""));
    (format!("{}{unit}", fits.1), 1.0 / fits.0)
}

/// Returns the largest magnitude of the finite values.
fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().filter(|value| value.is_finite()).fold(0.0, |largest, value| f64::max(largest, value.abs()))
}

/// Returns labels that distinguish runs by the fields in which they differ.
fn labels(runs: &[&Run], without: &[&str]) -> Vec<String> {
    labels_by(analysis::differing(runs), without, runs, &|run, name| analysis::field(run, None, name))
}

/// Returns labels that distinguish attempts, whose runs have at least fields of these names.
fn labels_among<T: Asked>(trials: &[&T], names: &Names, without: &[&str]) -> Vec<String> {
    labels_by(analysis::differing_among(trials, names), without, trials, &|trial, name| trial.field(name))
}

fn labels_by<T>(
    differing: Vec<String>,
    without: &[&str],
    of: &[&T],
    value: &dyn Fn(&T, &str) -> Option<Value>,
) -> Vec<String> {
    let fields: Vec<String> = differing.into_iter().filter(|field| !without.contains(&field.as_str())).collect();
    let text = |one: &T, field: &String| value(one, field).map_or_else(String::new, |value| value.to_string());
    let cells: Vec<Vec<String>> = fields.iter().map(|field| of.iter().map(|one| text(one, field)).collect()).collect();
    // A field that changes together with another one adds no information.
    let fields: Vec<String> = changing_together(&cells).into_iter().map(|(first, _)| fields[first].clone()).collect();
    let names = short_names(&fields);
    let label = |one: &&T| {
        let pairs = fields.iter().zip(&names);
        // Words come first and minor fields last, because a narrow legend truncates the end.
        let placed = |(field, name): (&String, &String)| {
            let (text, is_word) = word(name, &value(one, field)?);
            let is_minor = ["data.", "inference."].iter().any(|room| field.starts_with(room));
            Some((u8::from(!is_word) + u8::from(is_minor), text))
        };
        let mut pairs: Vec<(u8, String)> = pairs.filter_map(placed).collect();
        pairs.sort_by_key(|(place, _)| *place);
        let pairs: Vec<String> = pairs.into_iter().map(|(_, text)| text).collect();
        if pairs.is_empty() {
            let model = value(one, "model.name");
            return model.as_ref().and_then(Value::as_str).unwrap_or("program").to_owned();
        }
        pairs.join(", ")
    };
    of.iter().map(label).collect()
}

/// Formats a value with its short name: `adam`, `lr 0.1`, `batch 64`. The flag is true for a value without a name.
fn word(name: &str, value: &Value) -> (String, bool) {
    let name = match name {
        "learning_rate" => "lr",
        "batch_size" => "batch",
        other => other,
    };
    match value {
        Value::Str(text) => (text.clone(), true),
        value => (format!("{name} {value}"), false),
    }
}

/// Returns a sort key in natural order: `batch 8` before `batch 16`.
fn natural(text: &str) -> Vec<(String, u64)> {
    let mut parts = vec![(String::new(), 0u64)];
    for c in text.chars() {
        let last = parts.len() - 1;
        match c.to_digit(10) {
            Some(digit) => parts[last].1 = parts[last].1.saturating_mul(10).saturating_add(u64::from(digit)),
            None if parts[last].1 > 0 => parts.push((c.to_string(), 0)),
            None => parts[last].0.push(c),
        }
    }
    parts
}

/// Returns a group's label from its agreed fields; `None` if there are none.
fn agreed_label<T>(one: &Configuration<'_, T>) -> Option<String> {
    if one.agreed.is_empty() {
        return None;
    }
    let names = short_names(&one.agreed.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    let pair = |(name, (_, value)): (&String, &(String, Option<Value>))| match value {
        Some(value) => format!("{name} {value}"),
        None => format!("without {name}"),
    };
    Some(names.iter().zip(&one.agreed).map(pair).collect::<Vec<_>>().join(", "))
}

/// Most grey points in a panel; more would cover each other and make files large.
const FAINT_POINTS: usize = 500;

/// Returns n, where every n-th grey point is drawn.
fn thinning(points: usize) -> usize {
    points.div_ceil(FAINT_POINTS).max(1)
}

/// Returns a note about thinned points, if they are thinned.
fn thinned(what: &str, points: usize) -> Option<String> {
    let every = thinning(points);
    (every > 1).then(|| format!("Of {points} {what} one in {every} is drawn."))
}

/// Formats a number for CSV with all its digits.
fn full(value: f64) -> String {
    format!("{value:?}")
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, full)
}

/// Returns the suffix of the id of an attempt that does not count: ` (failed)`.
fn state_text(state: Option<&str>) -> String {
    state.map_or_else(String::new, |state| format!(" ({state})"))
}

/// Formats a mean: `12.3 ± 0.4 kJ, n = 3`.
fn said(mean: &Mean, unit: &str, factor: f64) -> String {
    let half = match mean.bar() {
        None => String::new(),
        Some(0.0) => " (no scatter)".to_owned(),
        Some(half) => format!(" ± {}", significant(half * factor)),
    };
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    format!("{}{half}{unit}, n = {}", significant(mean.mean * factor), mean.n)
}

/// Formats sample sizes: `n = 3 each`, or their range.
fn counts(numbers: impl IntoIterator<Item = usize>) -> String {
    let (least, most) = numbers.into_iter().fold((usize::MAX, 0), |(least, most), n| (least.min(n), most.max(n)));
    match (least, most) {
        (_, 0) => "n = 0".to_owned(),
        (least, most) if least == most => format!("n = {most} each"),
        (least, most) => format!("n = {least} to {most}"),
    }
}

/// Describes error bars that show scatter only.
fn scatter(halves: impl IntoIterator<Item = Option<f64>>) -> &'static str {
    let halves: Vec<Option<f64>> = halves.into_iter().collect();
    match halves.iter().flatten().count() {
        0 => "no interval is known: each mean has one value or two",
        known if known == halves.len() => {
            "bars are 95% intervals of the means from scatter alone, without sensor uncertainty"
        }
        _ => "bars are 95% intervals of the means of at least three, from scatter alone, without sensor uncertainty",
    }
}

/// Describes error bars that show scatter and sensor uncertainty.
fn intervals(halves: impl IntoIterator<Item = Option<f64>>) -> &'static str {
    let (mut known, mut all) = (0usize, 0usize);
    for half in halves {
        all += 1;
        known += usize::from(half.is_some());
    }
    match (known, all) {
        (0, _) => "no interval is known: two values make none, nor does one attempt whose sensors state no error",
        (known, all) if known == all => "bars are 95% intervals of the means (scatter and sensors)",
        _ => "bars are 95% intervals of the means (scatter and sensors), where they are known (two values make none)",
    }
}

#[cfg(test)]
mod tests;
