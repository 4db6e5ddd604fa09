//! Formatting of estimates and differences: value, uncertainty and sample.

use super::contrast::difference;
use super::document::table_of;
use super::number::{count, mean_within, significant};
use super::ranking::in_unit;
use crate::analysis::{Block, Comparison, Place, SampleModel, Scale, TestMethod};
use crate::record::{MetricKind, Value};
use std::collections::BTreeSet;

/// Relative half-width for which the number of missing replicates is estimated.
const WANTED: f64 = 0.05;

/// Describes a sample: `3 seeds`, `3 seeds, 8 attempts`, `8 attempts on 2 GPUs`, `9 attempts in 6 rounds on 1 GPU`.
pub fn sample_text(place: &Place) -> String {
    let estimate = &place.estimate;
    let attempts = count(estimate.attempts, "attempt");
    match estimate.kind {
        MetricKind::Outcome if estimate.seeds == 0 => attempts,
        MetricKind::Outcome if estimate.seeds == estimate.attempts => count(estimate.seeds, "seed"),
        MetricKind::Outcome => format!("{}, {attempts}", count(estimate.seeds, "seed")),
        MetricKind::Measured => {
            let rounds = match estimate.rounds {
                0 => String::new(),
                rounds => format!(" in {}", count(rounds, "round")),
            };
            match estimate.machines {
                0 => format!("{attempts}{rounds}"),
                machines => format!("{attempts}{rounds} on {}", count(machines, machine_word(place))),
            }
        }
    }
}

/// Returns the word for the hardware that a place's attempts were measured on.
pub(super) fn machine_word(place: &Place) -> &'static str {
    let is_gpu = |name: &String| name.starts_with("GPU-");
    let sensors = || place.contender.measured.iter().map(|one| &one.sensors);
    if !sensors().all(|all| !all.is_empty() && all.iter().all(is_gpu)) {
        "machine"
    } else if sensors().all(|all| all.len() == 1) {
        "GPU"
    } else {
        "GPU set"
    }
}

/// Returns the word for the independent units of a sample.
pub(super) fn unit_word(place: &Place) -> String {
    let estimate = &place.estimate;
    match estimate.kind {
        MetricKind::Outcome if estimate.seeds > 1 => "seeds".to_owned(),
        MetricKind::Measured if estimate.machines > 1 => format!("{}s", machine_word(place)),
        MetricKind::Measured if estimate.rounds > 1 => "rounds".to_owned(),
        _ => "attempts".to_owned(),
    }
}

/// Returns the number of repetitions needed for this many units.
/// A repetition executes each run once: it gives one round, or one attempt of each run.
pub(super) fn repeats_for(place: &Place, units: usize) -> usize {
    let runs: BTreeSet<_> = place.contender.measured.iter().map(|one| one.run).collect();
    units.div_ceil(if place.estimate.rounds > 1 { 1 } else { runs.len().max(1) })
}

/// Describes how to get more units: repeat, add seeds, or use more machines.
pub(super) fn more_of(place: &Place, repeats: usize) -> String {
    match place.estimate.kind {
        MetricKind::Outcome => "`seed = [...]` in the manifest".to_owned(),
        MetricKind::Measured if place.estimate.machines > 1 => format!("run on more {}s", machine_word(place)),
        MetricKind::Measured => format!("`ledger run MANIFEST --repeat {repeats}`"),
    }
}

/// Formats a mean with its interval, in percent of the mean; shares have it in their own unit. Two units have a range.
pub(super) fn estimate_text(place: &Place, unit: &str) -> String {
    let estimate = &place.estimate;
    if let Some((low, high)) = estimate.range().filter(|(low, high)| low < high) {
        let (low, high) = (in_unit(low, unit), in_unit(high, unit));
        return if low == high { format!("about {low}") } else { format!("{low} to {high}") };
    }
    match place.half_width {
        Some(half) if half > 0.0 && (place.scale == Scale::Points || unit == "%") => {
            format!("{} ± {}", in_unit(estimate.mean, unit), one_digit_more(half))
        }
        half => mean_within(|mean| in_unit(mean, unit), estimate.mean, half),
    }
}

/// Formats a half-width with two significant digits.
fn one_digit_more(half: f64) -> String {
    let digits = if half > 0.0 { (1.0 - half.log10().floor()).clamp(0.0, 9.0) } else { 0.0 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 9")]
    let digits = digits as usize;
    format!("{half:.digits$}")
}

/// Formats a mean with its interval and unit: `95.4 ± 5.2% J`.
pub fn place_text(place: &Place, unit: &str) -> String {
    let shown_unit = if unit.is_empty() || unit == "s" { String::new() } else { format!(" {unit}") };
    let text = estimate_text(place, unit);
    // A remark in parentheses goes after the unit.
    match text.split_once(" (") {
        Some((value, remark)) => format!("{value}{shown_unit} ({remark}"),
        None => format!("{text}{shown_unit}"),
    }
}

/// Formats a comparison with its interval: `1.11× (1.06 to 1.16)`, `-2.7 points (-3.9 to -1.4)`.
pub fn compared_text(comparison: &Comparison, unit: &str) -> String {
    let Comparison { scale, estimate, interval, .. } = comparison;
    let (one, both) = match scale {
        Scale::Ratio => {
            let widest = interval.map_or((estimate - 1.0).abs(), |(low, high)| high - low);
            // The digits distinguish the ends of the interval, and its lower end from 0. Equal values get four.
            let least = interval.map_or(*estimate, |(low, _)| low);
            let needed = widest.min(10.0 * least);
            let digits = (2..9).find(|digits| needed >= 20.0 * 0.1_f64.powi(*digits)).unwrap_or(4);
            let digits = usize::try_from(digits).unwrap_or(4);
            let show = move |ratio: f64| if ratio < 1000.0 { format!("{ratio:.digits$}") } else { significant(ratio) };
            (format!("{}×", show(*estimate)), interval.map(|(low, high)| (show(low), show(high))))
        }
        Scale::Points => {
            // Avoids a negative zero.
            let show = |points: f64| {
                let points = if points.abs() < 0.005 { 0.0 } else { points };
                format!("{points:.*}", if points.abs() < 0.1 { 2 } else { 1 })
            };
            (format!("{} points", show(*estimate)), interval.map(|(low, high)| (show(low), show(high))))
        }
        Scale::Difference => return difference(*estimate, *interval, if unit == "%" { "points" } else { unit }),
    };
    both.map_or(one.clone(), |(low, high)| format!("{one} ({low} to {high})"))
}

/// Describes how many more units would turn ranges of two values into intervals.
pub(super) fn needed_text(places: &[Place]) -> String {
    let ranges: Vec<&Place> = places.iter().filter(|place| place.estimate.range().is_some()).collect();
    let Some(first) = ranges.first() else { return String::new() };
    let units = unit_word(first);
    let alike = ranges.iter().copied().filter(|place| unit_word(place) == units);
    // A range that contains 0 has no relative width.
    let needed: Option<Vec<(usize, &Place)>> =
        alike.map(|place| Some((place.estimate.units_for(WANTED)?, place))).collect();
    let repeats = |all: &[(usize, &Place)]| all.iter().map(|(more, place)| repeats_for(place, *more)).max();
    let needed = needed.and_then(|all| Some((all.iter().map(|(more, _)| *more).max()?, repeats(&all)?)));
    let rough = if places.iter().any(|place| place.probability.is_some()) { ", and a rough P(BEST)" } else { "" };
    let aside = if first.sensor_half_width.is_some_and(|half| half > 0.0) { ", sensors aside" } else { "" };
    match needed {
        Some((more, repeats)) => format!(
            "two {units} give a range, not an interval{rough}: about {more} more would give ±{}%{aside} ({})\n",
            significant(100.0 * WANTED),
            more_of(first, repeats),
        ),
        None => format!("two {units} give a range, not an interval{rough}\n"),
    }
}

/// Returns the sample of a mean as a document's value.
pub fn sample_value(place: &Place) -> Value {
    let estimate = &place.estimate;
    let mut table = table_of([
        ("kind", estimate.kind.name().into()),
        ("model", estimate.model.name().into()),
        ("units", estimate.units.clone().into()),
        ("seeds", estimate.seeds.into()),
        ("attempts", estimate.attempts.into()),
        ("machines", estimate.machines.into()),
        ("rounds", estimate.rounds.into()),
        ("text", sample_text(place).into()),
    ]);
    if estimate.model != SampleModel::Single {
        table.insert("degrees".to_owned(), estimate.degrees.into());
    }
    table.extend(estimate.covers().map(|covers| ("covers".to_owned(), covers.into())));
    table.extend(estimate.range().map(|(low, high)| ("range".to_owned(), vec![low, high].into())));
    table.into()
}

/// Returns a comparison as a document's value.
pub fn compared_value(comparison: &Comparison) -> Value {
    let mut table = table_of([("scale", comparison.scale.name().into()), ("estimate", comparison.estimate.into())]);
    if let Some((low, high)) = comparison.interval {
        table.extend(table_of([("low", low.into()), ("high", high.into())]));
    }
    table
        .extend(comparison.degrees.filter(|degrees| degrees.is_finite()).map(|one| ("degrees".to_owned(), one.into())));
    table.extend(comparison.is_of_one_round.then(|| ("of_one_round".to_owned(), true.into())));
    match comparison.test {
        Ok((p, method)) => {
            let name = match method {
                TestMethod::Welch => "welch",
                TestMethod::Paired(..) => "paired",
                TestMethod::Within(Block::Round, _) => "within_rounds",
                TestMethod::Within(..) => "within_machines",
                TestMethod::Permutation => "permutation",
            };
            table.extend(table_of([("p", p.into()), ("test", name.into())]));
            if let TestMethod::Paired(block, pairs) = method {
                table.extend(table_of([("paired_by", block.name().into()), ("pairs", pairs.into())]));
            }
        }
        Err(why) => {
            table.insert("untested".to_owned(), why.name().into());
        }
    }
    table.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_distinguish_ratios_from_one_and_from_zero() {
        let text = |estimate: f64, interval| {
            compared_text(&Comparison { interval, ..Comparison::of_means(1.0, estimate, Scale::Ratio) }, "")
        };
        assert_eq!(text(2.95, None), "2.95×");
        assert_eq!(text(0.001, None), "0.0010×");
        assert_eq!(text(0.04, Some((0.0004, 4.0))), "0.0400× (0.0004 to 4.0000)");
        assert_eq!(text(1.000_025, Some((1.000_01, 1.000_04))), "1.000025× (1.000010 to 1.000040)");
        assert_eq!(text(1.0 + f64::EPSILON, None), "1.0000×", "rounding is no difference");
    }
}
