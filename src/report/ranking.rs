//! The output of `best`.

use super::document::table_of;
use super::fields::{field_of, field_text, short_names, shown_fields, version_field};
use super::left_out::{left_out_lines, left_out_text, left_out_value};
use super::limited::Limited;
use super::number::{count, duration, mean_within, significant};
use super::sample::{compared_text, compared_value, estimate_text, sample_text, sample_value};
use super::sureness::sureness;
use super::table::{axis_heads, columns};
use crate::analysis::{self, Comparison, Place, Saving, Scale};
use crate::record::{Direction, LeftOut, Run, Table, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The configuration that the best one is compared with.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// The short id of one of its runs.
    pub id: String,
    /// That run.
    pub run: Run,
    /// Description: `the fastest`, `the default`, or the name that was given.
    pub what: String,
    /// The time metric that is compared; `None` if the two have none in common.
    pub time: Option<String>,
    /// Relative differences to it; `None` if it is the best configuration itself.
    pub saving: Option<Saving>,
}

/// Ranked configurations and the data behind the ranking.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// The model.
    pub model: String,
    /// The metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Direction of improvement.
    pub direction: Direction,
    /// The configurations, best first.
    pub places: Vec<Place>,
    /// The short id of each configuration's run.
    pub ids: Vec<String>,
    /// Number of attempts that count.
    pub counted: u64,
    /// Number of attempts left out, by reason.
    pub left_out: BTreeMap<LeftOut, u64>,
    /// The metrics with a limit, and their values at all places.
    pub limited: Vec<Limited>,
    /// Limits that some configurations did not meet.
    pub unmet: Vec<Unmet>,
    /// Relative difference below which configurations count as equal.
    pub tolerance: Option<f64>,
    /// Configuration that the best one is compared with.
    pub baseline: Option<Baseline>,
    /// Fields that are always shown: those that were searched, or in which unlisted rows differ.
    pub searched: Vec<String>,
    /// Fields added to the grouping, so that each version of a program has its own rows.
    pub versions: Vec<String>,
}

/// Formats a number of unit `s` as a duration, and other numbers without unit.
pub(super) fn in_unit(value: f64, unit: &str) -> String {
    if unit == "s" { duration(value) } else { significant(value) }
}

/// Returns a column head with the unit: `energy [J]`. Durations contain their own unit.
pub(super) fn head_of(metric: &str, unit: &str) -> String {
    if unit.is_empty() || unit == "s" { metric.to_owned() } else { format!("{metric} [{unit}]") }
}

/// Formats a mean with its interval and unit: `95.4 ± 5.2% J`.
pub fn mean_text(mean: f64, half_width: Option<f64>, unit: &str) -> String {
    let shown_unit = if unit.is_empty() || unit == "s" { String::new() } else { format!(" {unit}") };
    // A remark in parentheses goes after the unit.
    match half_width {
        Some(0.0) => mean_within(|mean| format!("{}{shown_unit}", in_unit(mean, unit)), mean, half_width),
        _ => format!("{}{shown_unit}", mean_within(|mean| in_unit(mean, unit), mean, half_width)),
    }
}

/// Formats a p-value for a table: `0.031`, `<0.001`.
pub(super) fn probability(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

/// A limit that some configurations did not meet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unmet {
    /// The limit: `accuracy of at least 0.9`.
    pub limit: String,
    /// Number of configurations that did not meet it, including those without a value.
    pub configurations: usize,
    /// Number of them without a value.
    pub absent: usize,
}

/// Returns the ranking as text: the configurations, the best first, and the certainty of the order.
pub fn best_text(ranking: &Ranking) -> String {
    let Ranking { places, ids, metric, unit, .. } = ranking;
    let Some(first) = places.first() else { return String::new() };
    let mut fields = shown_fields(places);
    let more: Vec<String> = ranking.searched.iter().filter(|field| !fields.contains(field)).cloned().collect();
    fields.extend(more);
    fields.extend(version_field(places).filter(|field| !fields.contains(field)));
    let names = axis_heads(&short_names(&fields));
    let is_tested = places.iter().any(|place| place.against.is_some_and(|against| against.corrected.is_some()));
    let is_sure = places.iter().any(|place| place.probability.is_some());
    let is_trimmed = places.iter().any(|place| place.olympic_mean.is_some());
    let samples: Vec<String> = places.iter().map(sample_text).collect();
    let is_one_sample = samples.iter().all(|sample| *sample == samples[0]);
    let metric_head = format!(">{}", head_of(metric, unit));
    let mut heads = vec![">#", "RUN", metric_head.as_str()];
    heads.extend((!is_one_sample).then_some("~~SAMPLE"));
    heads.extend(is_trimmed.then_some("~~~>TRIMMED"));
    heads.extend((places.len() > 1).then_some("VS BEST"));
    heads.extend(is_tested.then_some(">P"));
    heads.extend(is_sure.then_some("~>P(BEST)"));
    // The ranked metric has its own column, and a metric with two limits has only one.
    let mut seen = BTreeSet::from([metric]);
    let limited: Vec<&Limited> = ranking.limited.iter().filter(|one| seen.insert(&one.metric)).collect();
    let limited_heads: Vec<String> =
        limited.iter().map(|one| format!(">{}", head_of(&one.metric, &one.unit))).collect();
    heads.extend(limited_heads.iter().map(String::as_str));
    heads.extend(names.iter().map(String::as_str));
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rows = (1..).zip(places.iter().zip(ids).zip(&samples)).map(|(rank, ((place, id), sample)): (u32, _)| {
        let mut row = vec![rank.to_string(), id.clone(), estimate_text(place, unit)];
        row.extend((!is_one_sample).then(|| sample.clone()));
        row.extend(is_trimmed.then(|| or_none(place.olympic_mean.map(|mean| in_unit(mean, unit)))));
        row.extend((places.len() > 1).then(|| match place.against {
            None => "best".to_owned(),
            Some(against) => or_none(against.comparison.map(|comparison| compared_text(&comparison, unit))),
        }));
        row.extend(is_tested.then(|| or_none(place.against.and_then(|against| against.corrected).map(probability))));
        row.extend(is_sure.then(|| or_none(place.probability.map(|p| format!("{:.0}%", 100.0 * p)))));
        row.extend(limited.iter().map(|one| or_none(one.text(place))));
        row.extend(fields.iter().map(|field| field_text(field, field_of(place, field).as_ref())));
        row
    });
    let better = if ranking.direction == Direction::Maximize { "higher" } else { "lower" };
    let of = if first.estimate.attempts == 1 && is_one_sample {
        "one attempt each".to_owned()
    } else if is_one_sample {
        format!("mean of {} each", samples[0])
    } else {
        "means".to_owned()
    };
    let model = &ranking.model;
    let mut text = format!("{model} by {metric} ({better} is better), {of}\n{}", columns(&heads, rows));
    text.push_str(&sureness(ranking));
    text.push_str(&saving(ranking));
    text.push_str(&unequal_work(ranking));
    for one in &ranking.limited {
        text.push_str(&one.missed(places));
    }
    for Unmet { limit, configurations, absent } in &ranking.unmet {
        let absent = if *absent > 0 { format!(" ({absent} without a value)") } else { String::new() };
        text.push_str(&format!("without {limit}: {}{absent}\n", count(*configurations, "configuration")));
    }
    text.push_str(&left_out_lines(&ranking.left_out, metric, &ranking.model));
    text
}

/// Returns the certainty of the order and the omissions as sentences.
pub(super) fn best_lines(ranking: &Ranking) -> Vec<String> {
    let left_out = left_out_text(&ranking.left_out, &ranking.metric);
    let text = format!("{}{}{left_out}", sureness(ranking), unequal_work(ranking));
    text.lines().map(str::to_owned).collect()
}

fn saving(ranking: &Ranking) -> String {
    let Some(baseline) = &ranking.baseline else { return String::new() };
    let Some(saving) = &baseline.saving else {
        if baseline.time.as_ref() == Some(&ranking.metric) {
            return String::new();
        }
        let is_compared = ranking.places.len() > 1;
        let text = match (named(baseline), &baseline.time) {
            ("the fastest", Some(time)) => format!("#1 is also the fastest (by {time}), by the mean\n"),
            ("default", _) => "#1 is the default\n".to_owned(),
            (name, _) => format!("#1 is {name}\n"),
        };
        return if is_compared { text } else { String::new() };
    };
    let Some(first) = ranking.places.first() else { return String::new() };
    let group = baseline.run.parts.group_id();
    let is_baseline = |place: &&Place| match place.contender.agreed.is_empty() {
        true => place.contender.run.parts.group_id() == group,
        false => place.contender.run.id == baseline.run.id,
    };
    let is_positive = first.estimate.mean > 0.0 && saving.baseline > 0.0;
    let scale = if first.scale == Scale::Ratio && !is_positive { Scale::Difference } else { first.scale };
    let listed_at = ranking.places.iter().position(|place| is_baseline(&place));
    let listed = listed_at.and_then(|at| ranking.places[at].against?.comparison);
    let difference =
        listed.map_or_else(|| Comparison::of_means(saving.baseline, first.estimate.mean, scale), Comparison::reversed);
    let time = match (saving.time, &baseline.time) {
        (Some(time), Some(name)) if *name != ranking.metric => {
            let ratio = Comparison::of_means(1.0, 1.0 + time, Scale::Ratio);
            format!(", {name} {}", compared_text(&ratio, ""))
        }
        _ => String::new(),
    };
    let named = named(baseline);
    let id = match listed_at {
        _ if named == baseline.id => String::new(),
        Some(at) => format!(", #{}", at + 1),
        None => format!(", {}", baseline.id),
    };
    let round = if difference.is_of_one_round { ", in the round that both have" } else { "" };
    format!("#1 against {named}{id}: {} {}{time}{round}\n", ranking.metric, compared_text(&difference, &ranking.unit))
}

/// Returns a compared metric whose configurations trained on unequal numbers of samples, with the least and the most.
/// Configurations that do not record the number are ignored.
fn unequal(ranking: &Ranking) -> Option<(&str, i64, i64)> {
    let runs = |shown: usize| {
        let shown = ranking.places.iter().take(shown).map(|place| &place.contender.run);
        shown.chain(ranking.baseline.iter().map(|baseline| &baseline.run))
    };
    // The time is compared only between the best configuration and the baseline.
    let time = ranking.baseline.as_ref().filter(|baseline| baseline.saving.is_some_and(|saving| saving.time.is_some()));
    let time = time.and_then(|baseline| Some((baseline.time.as_deref()?, 1)));
    let apart =
        |(metric, shown)| analysis::unequal_samples(metric, runs(shown)).map(|(least, most)| (metric, least, most));
    [(ranking.metric.as_str(), usize::MAX)].into_iter().chain(time).find_map(apart)
}

/// Returns a warning if runs with unequal work are compared.
fn unequal_work(ranking: &Ranking) -> String {
    // With a limit, the total over different amounts of work may well be the intended metric.
    let advises = ranking.unmet.is_empty();
    unequal(ranking).map_or_else(String::new, |(metric, least, most)| unequal_text(metric, (least, most), advises))
}

/// Formats the warning; with `advises` it names the metric per sample to compare instead.
pub(super) fn unequal_text(metric: &str, (least, most): (i64, i64), advises: bool) -> String {
    let instead = analysis::of_one_sample(metric).filter(|_| advises);
    let instead = instead.map_or_else(String::new, |instead| format!(" (compare `{instead}` instead)"));
    format!("not the same work: {metric} is of {least} to {most} samples{instead}\n")
}

/// Returns the name by which the baseline was given; an id is shortened.
fn named(baseline: &Baseline) -> &str {
    let is_id = baseline.run.id.to_string().starts_with(&baseline.what);
    if is_id || baseline.what.len() >= 64 { &baseline.id } else { &baseline.what }
}

fn place_value(place: &Place, first: Option<f64>) -> Value {
    let mut item = table_of([
        ("run", place.contender.run.id.to_string().into()),
        ("mean", place.estimate.mean.into()),
        ("n", place.estimate.attempts.into()),
        ("sample", sample_value(place)),
        ("values", place.contender.values().into()),
        ("attempts", place.contender.measured.iter().map(|one| one.attempt.to_string()).collect::<Vec<_>>().into()),
        ("config", place.contender.run.parts.config.clone()),
    ]);
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            item.insert(name.to_owned(), value.into());
        }
    };
    put("uncertainty", place.sensor_half_width);
    put("half_width", place.half_width);
    put("deviation", analysis::Summary::of(&place.estimate.units).and_then(|units| units.deviation()));
    put("p_best", place.probability);
    put("olympic_mean", place.olympic_mean);
    if let Some(against) = place.against {
        put("relative", against.relative);
        put("p_corrected", against.corrected);
        if let Some(comparison) = &against.comparison {
            put("difference", Some(place.estimate.mean).zip(first).map(|(own, first)| own - first));
            item.insert("comparison".to_owned(), compared_value(comparison));
        }
        let differs = against.differs().map_or("untested", |differs| if differs { "yes" } else { "no" });
        item.insert("differs".to_owned(), differs.into());
        item.insert("is_within_tolerance".to_owned(), against.is_within.into());
    }
    item.extend(group_value(place));
    Value::Table(item)
}

/// Returns the fields by which a row was grouped, if it was.
pub(super) fn group_value(place: &Place) -> Option<(String, Value)> {
    let agreed = &place.contender.agreed;
    let known = agreed.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
    (!agreed.is_empty()).then(|| ("group".to_owned(), Value::Table(known.collect())))
}

/// Returns the ranking as a document's members.
pub fn best_value(ranking: &Ranking) -> Table {
    let first = ranking.places.first().map(|first| first.estimate.mean);
    let mut members = table_of([
        ("model", ranking.model.as_str().into()),
        ("metric", ranking.metric.as_str().into()),
        ("unit", ranking.unit.as_str().into()),
        ("direction", ranking.direction.name().into()),
        ("counted", ranking.counted.into()),
        ("left_out", left_out_value(&ranking.left_out)),
        ("places", Value::List(ranking.places.iter().map(|place| place_value(place, first)).collect())),
    ]);
    if ranking.places.iter().any(|place| place.dropped > 0) {
        members.insert("common_units_only".to_owned(), true.into());
    }
    if let Some((metric, least, most)) = unequal(ranking) {
        let work = table_of([("metric", metric.into()), ("least", least.into()), ("most", most.into())]);
        members.insert("unequal_samples".to_owned(), Value::Table(work));
    }
    if !ranking.limited.is_empty() {
        let limited = ranking.limited.iter().map(|one| one.value(&ranking.places));
        members.insert("limited".to_owned(), Value::List(limited.collect()));
    }
    let unmet: BTreeSet<&Unmet> = ranking.unmet.iter().collect();
    if !unmet.is_empty() {
        let item = |one: &Unmet| {
            Value::Table(table_of([
                ("limit", one.limit.as_str().into()),
                ("configurations", one.configurations.into()),
                ("without_value", one.absent.into()),
            ]))
        };
        members.insert("unmet".to_owned(), Value::List(unmet.into_iter().map(item).collect()));
    }
    if let Some(baseline) = &ranking.baseline {
        let mut item = table_of([
            ("run", baseline.run.id.to_string().into()),
            ("what", baseline.what.as_str().into()),
            ("is_best", baseline.saving.is_none().into()),
        ]);
        item.extend(baseline.time.as_ref().map(|time| ("time_metric".to_owned(), time.as_str().into())));
        if let Some(saving) = &baseline.saving {
            item.insert("metric".to_owned(), saving.metric.into());
            item.extend(saving.time.map(|time| ("time".to_owned(), time.into())));
        }
        members.insert("against".to_owned(), Value::Table(item));
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_near_zero_has_an_absolute_interval() {
        assert_eq!(mean_text(0.012_55, Some(38.79), "J"), "0.01255 ± 38.79 J");
        assert_eq!(mean_text(0.002, Some(0.1), "s"), "2 ms ± 100 ms");
        assert_eq!(mean_text(95.4, Some(5.0), "J"), "95.4 ± 5.2% J");
        assert_eq!(mean_text(95.4, Some(0.0), "J"), "95.4 J (no scatter)");
    }
}
