//! The answer to `best`.

use super::document::table_of;
use super::number::{count, duration, mean_within, percent, significant};
use super::table::columns;
use crate::analysis::{self, Likeness, Place, Saving};
use crate::record::{Direction, LeftOut, Run, Table, Value, Why};
use std::collections::{BTreeMap, BTreeSet};

/// What the first configuration is held against.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// The short id of one of its runs.
    pub id: String,
    /// That run.
    pub run: Run,
    /// What it is: `the fastest`, `the default`, or the name that was given.
    pub what: String,
    /// The metric that is called its time; none where the two have none in common.
    pub time: Option<String>,
    /// The differences, as shares of it; none where it is the first configuration itself.
    pub saving: Option<Saving>,
}

/// Configurations in order, and all that has to be said of how they came there.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// The model.
    pub model: String,
    /// The metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Which way it is better.
    pub direction: Direction,
    /// The configurations, best first.
    pub places: Vec<Place>,
    /// The short id of each one's run.
    pub ids: Vec<String>,
    /// How many attempts count.
    pub counted: u64,
    /// How many do not, and why.
    pub left_out: BTreeMap<LeftOut, u64>,
    /// Limits that configurations had to meet, and how many did not: `accuracy of at least 0.9`.
    pub unmet: Vec<(String, usize)>,
    /// The difference that is of no account, as a share.
    pub tolerance: Option<f64>,
    /// What the first one is held against.
    pub baseline: Option<Baseline>,
    /// Fields that are told of each configuration, though all may agree on them: those that were searched.
    pub searched: Vec<String>,
}

/// The fields that the places do not agree on, or those by which they were put together.
pub(super) fn shown_fields(places: &[Place]) -> Vec<String> {
    if let Some(first) = places.first().filter(|first| !first.contender.agreed.is_empty()) {
        return first.contender.agreed.iter().map(|(name, _)| name.clone()).collect();
    }
    analysis::differing(&places.iter().map(|place| &place.contender.run).collect::<Vec<_>>())
}

/// The value of one of them.
pub(super) fn field_of(place: &Place, name: &str) -> Option<Value> {
    match place.contender.agreed.iter().find(|(agreed, _)| agreed == name) {
        Some((_, value)) => value.clone(),
        None => analysis::field(&place.contender.run, None, name),
    }
}

/// Names without what is plain: the last component, where no other one ends like it.
pub(super) fn short_names(names: &[String]) -> Vec<String> {
    let last = |name: &str| name.rsplit_once('.').map_or(name, |(_, last)| last).to_owned();
    let is_plain = |name: &str| names.iter().filter(|other| last(other) == last(name)).count() == 1;
    names.iter().map(|name| if is_plain(name) { last(name) } else { name.clone() }).collect()
}

/// A number with the unit `s` as a duration, others as they are.
pub(super) fn in_unit(value: f64, unit: &str) -> String {
    if unit == "s" { duration(value) } else { significant(value) }
}

/// A metric with the unit of the numbers below it: `energy [J]`. Durations have theirs beside them.
pub(super) fn head_of(metric: &str, unit: &str) -> String {
    if unit.is_empty() || unit == "s" { metric.to_owned() } else { format!("{metric} [{unit}]") }
}

/// A mean with its interval and its unit: `95.4 ± 5.2% J`.
pub fn mean_text(mean: f64, half_width: Option<f64>, unit: &str) -> String {
    let shown_unit = if unit.is_empty() || unit == "s" { String::new() } else { format!(" {unit}") };
    // A remark in brackets stands behind the unit.
    match half_width {
        Some(0.0) => mean_within(|mean| format!("{}{shown_unit}", in_unit(mean, unit)), mean, half_width),
        _ => format!("{}{shown_unit}", mean_within(|mean| in_unit(mean, unit), mean, half_width)),
    }
}

/// A probability as people read it: `0.031`, `<0.001`.
pub(super) fn probability(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

/// The best configurations, first one first, and what is sure of it.
pub fn best_text(ranking: &Ranking) -> String {
    let Ranking { places, ids, metric, unit, .. } = ranking;
    let (Some(first), Some(first_id)) = (places.first(), ids.first()) else { return String::new() };
    let mut fields = shown_fields(places);
    let more: Vec<String> = ranking.searched.iter().filter(|field| !fields.contains(field)).cloned().collect();
    fields.extend(more);
    let names = short_names(&fields);
    let value = |place: &Place| mean_within(|mean| in_unit(mean, unit), place.summary.mean, place.half_width);
    let is_tested = places.iter().any(|place| place.against.is_some_and(|against| against.corrected.is_some()));
    let is_olympic = places.iter().any(|place| place.olympic_mean.is_some());
    let metric_head = format!(">{}", head_of(metric, unit));
    let mut heads = vec![">#", "RUN", &metric_head, ">N"];
    heads.extend(is_olympic.then_some(">OLYMPIC"));
    heads.push(">AGAINST #1");
    heads.extend(is_tested.then_some([">P", "DIFFERS"]).into_iter().flatten());
    heads.extend(names.iter().map(String::as_str));
    let rows = (1..).zip(places.iter().zip(ids)).map(|(rank, (place, id)): (u32, _)| {
        let mut row = vec![rank.to_string(), id.clone(), value(place), place.summary.n.to_string()];
        row.extend(is_olympic.then(|| place.olympic_mean.map_or_else(|| "-".to_owned(), |mean| in_unit(mean, unit))));
        let relative = place.against.and_then(|against| against.relative).filter(|share| share.is_finite());
        row.push(relative.map_or_else(|| "-".to_owned(), percent));
        if is_tested {
            let p = place.against.and_then(|against| against.corrected);
            row.push(p.map_or_else(|| "-".to_owned(), probability));
            row.push(place.against.map_or("-", |against| likeness(against.likeness)).to_owned());
        }
        row.extend(
            fields.iter().map(|field| field_of(place, field).map_or_else(|| "-".to_owned(), |field| field.to_string())),
        );
        row
    });
    let mut text = columns(&heads, rows);
    text.push_str(&format!(
        "best: {first_id} with {metric} {} ({}, mean over finished attempts; {} compared)\n",
        mean_text(first.summary.mean, first.half_width, unit),
        ranking.direction.name(),
        count(usize::try_from(ranking.counted).unwrap_or(usize::MAX), "attempt"),
    ));
    text.push_str(&sureness(ranking));
    text.push_str(&saving(ranking));
    text.push_str(&unequal_work(ranking));
    for (limit, below) in &ranking.unmet {
        text.push_str(&format!("without {limit}: {}\n", count(*below, "configuration")));
    }
    text.push_str(&left_out_text(&ranking.left_out, metric));
    text
}

/// Whether it differs, in a word.
pub(super) fn likeness(likeness: Likeness) -> &'static str {
    match likeness {
        Likeness::Differs(_) => "yes",
        Likeness::Alike(_) => "no",
        Likeness::Untested | Likeness::Still => "untested",
    }
}

/// What has to be said of the order and of what is not in it, a sentence each.
pub(super) fn best_lines(ranking: &Ranking) -> Vec<String> {
    let left_out = left_out_text(&ranking.left_out, &ranking.metric);
    let text = format!("{}{}{left_out}", sureness(ranking), unequal_work(ranking));
    text.lines().map(str::to_owned).collect()
}

/// Says which places cannot be told apart from the first one.
fn sureness(ranking: &Ranking) -> String {
    let which = |wanted: &dyn Fn(Likeness) -> bool| -> Vec<String> {
        let against = ranking.places.iter().map(|place| place.against.map(|against| against.likeness));
        (1u32..)
            .zip(against)
            .filter(|(_, likeness)| likeness.is_some_and(wanted))
            .map(|(rank, _)| format!("#{rank}"))
            .collect()
    };
    let alike = which(&|likeness| matches!(likeness, Likeness::Alike(_)));
    let apart = which(&|likeness| matches!(likeness, Likeness::Differs(_)));
    let untested = which(&|likeness| likeness == Likeness::Untested);
    let still = which(&|likeness| likeness == Likeness::Still);
    let mut text = String::new();
    let tests = "Welch's t-test, Holm's correction, 95%";
    if !alike.is_empty() {
        text.push_str(&format!("not told apart from #1: {} ({tests})\n", alike.join(" ")));
    } else if !apart.is_empty() && untested.is_empty() && still.is_empty() {
        text.push_str(&format!("#1 differs from all others that are shown ({tests})\n"));
    } else if !apart.is_empty() {
        text.push_str(&format!("#1 differs from {} ({tests})\n", apart.join(" ")));
    }
    if ranking.places.len() > 1 && untested.len() + 1 == ranking.places.len() {
        text.push_str("how sure the order is cannot be said: #1 or all others have one attempt alone (`ledger run --repeat N` adds some)\n");
    } else if !untested.is_empty() {
        text.push_str(&format!("untested, for want of a second attempt: {}\n", untested.join(" ")));
    }
    if !still.is_empty() {
        let which = still.join(" ");
        text.push_str(&format!(
            "untested, since neither #1 nor the other scatters and chance cannot be judged: {which}\n"
        ));
    }
    if let Some(tolerance) = ranking.tolerance {
        let is_within = |place: &Place| place.against.is_some_and(|against| against.is_within);
        let within = (1u32..).zip(&ranking.places).filter(|(_, place)| is_within(place));
        let within: Vec<String> = within.map(|(rank, _)| format!("#{rank}")).collect();
        let which = if within.is_empty() { "none".to_owned() } else { within.join(" ") };
        text.push_str(&format!("within {}% of #1: {which}\n", significant(tolerance * 100.0)));
    }
    text
}

fn saving(ranking: &Ranking) -> String {
    let Some(baseline) = &ranking.baseline else { return String::new() };
    let Some(saving) = &baseline.saving else {
        let by = baseline.time.as_ref().map_or_else(String::new, |time| format!(" (by {time})"));
        return format!("#1 is {} as well{by}\n", named(baseline));
    };
    let time = match (saving.time, &baseline.time) {
        (Some(time), Some(name)) if *name != ranking.metric => format!(" at {} {name}", percent(time)),
        _ => String::new(),
    };
    let named = named(baseline);
    let id = if named == baseline.id { String::new() } else { format!(", {}", baseline.id) };
    format!("against {named}{id}: {} {}{time}\n", percent(saving.metric), ranking.metric)
}

/// A metric that is told of configurations that did not do the same work, and the least and the most samples that it is of. None where all have as many, or one does not say.
fn unequal(ranking: &Ranking) -> Option<(&str, i64, i64)> {
    if ranking.places.iter().any(|place| !place.contender.agreed.is_empty()) {
        return None;
    }
    let runs = |shown: usize| {
        let shown = ranking.places.iter().take(shown).map(|place| &place.contender.run);
        shown.chain(ranking.baseline.iter().map(|baseline| &baseline.run))
    };
    // A time is told of the first one and of what it is held against.
    let time = ranking.baseline.as_ref().filter(|baseline| baseline.saving.is_some_and(|saving| saving.time.is_some()));
    let time = time.and_then(|baseline| Some((baseline.time.as_deref()?, 1)));
    let apart = |(metric, shown)| {
        let samples: Option<Vec<i64>> = runs(shown).map(|run| analysis::samples_behind(metric, run)).collect();
        let samples = samples?;
        let (least, most) = (samples.iter().min()?, samples.iter().max()?);
        (least < most).then_some((metric, *least, *most))
    };
    [(ranking.metric.as_str(), usize::MAX)].into_iter().chain(time).find_map(apart)
}

/// Warns of a comparison of runs that did not do the same.
fn unequal_work(ranking: &Ranking) -> String {
    let Some((metric, least, most)) = unequal(ranking) else { return String::new() };
    let instead = analysis::of_one_sample(metric)
        .map_or_else(String::new, |instead| format!(" (`--metric {instead}` compares what one takes)"));
    format!("not the same work: {metric} is of {least} to {most} samples{instead}\n")
}

/// The name by which it was given; of an id, be it a whole one, as much as tells it from others.
fn named(baseline: &Baseline) -> &str {
    let is_id = baseline.run.id.to_string().starts_with(&baseline.what);
    if is_id || baseline.what.len() >= 64 { &baseline.id } else { &baseline.what }
}

/// How many attempts are left out, and why, in one line; the reasons of each kind in the order of their number.
pub(super) fn left_out_text(left_out: &BTreeMap<LeftOut, u64>, metric: &str) -> String {
    /// Reasons beyond are counted only.
    const REASONS: usize = 3;
    let mut kinds = Vec::new();
    for why in Why::ALL {
        let mut of_kind: Vec<(&str, u64)> =
            left_out.iter().filter(|(left, _)| left.why == why).map(|(left, n)| (left.reason.as_str(), *n)).collect();
        let total: u64 = of_kind.iter().map(|(_, n)| n).sum();
        if total == 0 {
            continue;
        }
        of_kind.retain(|(reason, _)| !reason.is_empty());
        of_kind.sort_by_key(|(reason, n)| (std::cmp::Reverse(*n), *reason));
        let said = match why {
            Why::Missing => format!("{total} whose {metric} has no value to compare"),
            Why::NotFinite => format!("{total} whose {metric} is no finite number, and their configurations"),
            Why::Absent => format!("{total} without {metric}"),
            kind => format!("{total} {}", kind.name()),
        };
        let mut reasons: Vec<&str> =
            of_kind.iter().take(REASONS).map(|(reason, _)| reason.lines().next().unwrap_or("")).collect();
        if of_kind.len() > REASONS {
            reasons.push("…");
        }
        kinds.push(if reasons.is_empty() { said } else { format!("{said} ({})", reasons.join("; ")) });
    }
    if kinds.is_empty() { String::new() } else { format!("left out: {}\n", kinds.join(", ")) }
}

/// What is left out, as a list.
pub(super) fn left_out_value(left_out: &BTreeMap<LeftOut, u64>) -> Value {
    let item = |(left, n): (&LeftOut, &u64)| {
        Value::Table(table_of([
            ("why", left.why.name().into()),
            ("reason", left.reason.as_str().into()),
            ("attempts", (*n).into()),
        ]))
    };
    Value::List(left_out.iter().map(item).collect())
}

fn place_value(place: &Place) -> Value {
    let summary = &place.summary;
    let mut item = table_of([
        ("run", place.contender.run.id.to_string().into()),
        ("mean", summary.mean.into()),
        ("n", summary.n.into()),
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
    put("deviation", summary.deviation());
    put("olympic_mean", place.olympic_mean);
    if let Some(against) = place.against {
        put("relative", against.relative);
        put("p_corrected", against.corrected);
        if let Likeness::Differs(test) | Likeness::Alike(test) = against.likeness {
            put("difference", Some(test.difference));
            put("difference_half_width", Some(test.half_width));
            put("p", Some(test.p));
            put("degrees", Some(test.degrees).filter(|degrees| degrees.is_finite()));
        }
        item.insert("differs".to_owned(), likeness(against.likeness).into());
        item.insert("is_within_tolerance".to_owned(), against.is_within.into());
    }
    if !place.contender.agreed.is_empty() {
        let known = place.contender.agreed.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
        item.insert("group".to_owned(), Value::Table(known.collect()));
    }
    Value::Table(item)
}

/// The answer as a document's members.
pub fn best_value(ranking: &Ranking) -> Table {
    let mut members = table_of([
        ("model", ranking.model.as_str().into()),
        ("metric", ranking.metric.as_str().into()),
        ("unit", ranking.unit.as_str().into()),
        ("direction", ranking.direction.name().into()),
        ("counted", ranking.counted.into()),
        ("left_out", left_out_value(&ranking.left_out)),
        ("places", Value::List(ranking.places.iter().map(place_value).collect())),
    ]);
    if let Some((metric, least, most)) = unequal(ranking) {
        let work = table_of([("metric", metric.into()), ("least", least.into()), ("most", most.into())]);
        members.insert("unequal_samples".to_owned(), Value::Table(work));
    }
    let unmet: BTreeSet<(&str, usize)> = ranking.unmet.iter().map(|(limit, below)| (limit.as_str(), *below)).collect();
    if !unmet.is_empty() {
        let item = |(limit, below): (&str, usize)| {
            Value::Table(table_of([("limit", limit.into()), ("configurations", below.into())]))
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
    fn a_mean_near_nothing_has_its_interval_in_the_unit() {
        assert_eq!(mean_text(0.012_55, Some(38.79), "J"), "0.01255 ± 38.79 J");
        assert_eq!(mean_text(0.002, Some(0.1), "s"), "2 ms ± 100 ms");
        assert_eq!(mean_text(95.4, Some(5.0), "J"), "95.4 ± 5.2% J");
        assert_eq!(mean_text(95.4, Some(0.0), "J"), "95.4 J (no scatter)");
    }
}
