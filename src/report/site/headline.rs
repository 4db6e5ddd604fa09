//! Headlines of a report: the best configuration by each metric, and its distance to the last one.

use super::super::fields::{field_of, short_names, shown_fields};
use super::super::ranking::{Ranking, in_unit};
use super::super::sample::{compared_text, estimate_text, sample_text};
use super::ModelOf;
use super::html::{Field, table};
use crate::analysis::Place;
use crate::record::{Direction, MetricKind, known_metric};

/// Returns the introductory sentences of a model's section. All numbers come from its rankings.
pub(super) fn lead(model: &ModelOf) -> Vec<String> {
    let rankings = || model.rankings.iter().map(|(ranking, _)| ranking);
    let single = |ranking: &Ranking| match ranking.places.as_slice() {
        [one] => Some(format!("{} {}", ranking.metric, value(ranking, one))),
        _ => None,
    };
    let alone: Vec<String> = rankings().filter_map(single).collect();
    let mut said: Vec<String> = rankings().filter_map(compared).collect();
    let is_measured =
        |one: &Ranking| known_metric(&one.metric).is_some_and(|known| known.kind() == MetricKind::Measured);
    if rankings().any(|one| one.places.len() > 1 && is_measured(one)) {
        said.push("Times and energies say nothing of what was learned.".to_owned());
    }
    if !alone.is_empty() {
        said.push(format!("One configuration, so nothing is compared: {}.", alone.join("; ")));
    }
    said
}

/// Compares the best and the last configuration of a ranking in a sentence.
fn compared(ranking: &Ranking) -> Option<String> {
    let [best, .., last] = ranking.places.as_slice() else { return None };
    let (first, other) = match ranking.direction {
        Direction::Minimize => ("Lowest", "highest"),
        Direction::Maximize => ("Highest", "lowest"),
    };
    let mut text = format!("{first} {}: {} with {}", ranking.metric, name(ranking, best), value(ranking, best));
    if let Some(probability) = best.probability {
        text.push_str(&format!(", the best with a probability of {}", share(probability)));
    }
    let (n, mean) = (ranking.places.len(), in_unit(last.estimate.mean, &ranking.unit));
    text.push_str(&format!(". The {other} of {n}: {} with {mean}{}", name(ranking, last), unit(ranking)));
    let comparison = last.against.and_then(|against| against.comparison);
    let text_of = |comparison| format!(", {} against the best", compared_text(&comparison, &ranking.unit));
    text.push_str(&comparison.map(text_of).unwrap_or_default());
    text.push('.');
    Some(text)
}

/// Returns a table with the best configuration of each model by each metric.
pub(super) fn summary(models: &[ModelOf]) -> String {
    let heads = ["model", "metric", "best", "mean", "sample", ">P(best)"].map(str::to_owned);
    let row = |at: usize, model: &ModelOf, ranking: &Ranking| {
        let best = ranking.places.first()?;
        let chance = best.probability.map_or_else(|| Field::text("–"), |p| Field::number(share(p), p));
        let mean = format!("{}{}", estimate_text(best, &ranking.unit), unit(ranking));
        let linked = Field { target: Some(format!("#m{at}")), ..Field::text(model.model.clone()) };
        let texts = [ranking.metric.clone(), name(ranking, best), mean, sample_text(best)].map(Field::text);
        Some([vec![linked], texts.to_vec(), vec![chance]].concat())
    };
    let all =
        models.iter().enumerate().flat_map(|(at, model)| model.rankings.iter().map(move |(one, _)| (at, model, one)));
    let rows: Vec<Vec<Field>> = all.filter_map(|(at, model, ranking)| row(at, model, ranking)).collect();
    if rows.is_empty() { String::new() } else { table("summary", "The best of each model", &heads, &rows, true) }
}

/// Describes a configuration by the fields that distinguish it in its ranking, or by its run's id.
fn name(ranking: &Ranking, place: &Place) -> String {
    let fields = shown_fields(&ranking.places);
    let values = short_names(&fields).into_iter().zip(fields.iter().map(|field| field_of(place, field)));
    let told: Vec<String> = values.filter_map(|(name, value)| Some(format!("{name} {}", value?))).collect();
    if told.is_empty() { place.contender.run.id.0.prefix(8) } else { told.join(", ") }
}

fn value(ranking: &Ranking, place: &Place) -> String {
    let mean = format!("{}{}", estimate_text(place, &ranking.unit), unit(ranking));
    match mean.strip_suffix(')') {
        Some(noted) => format!("{noted}; {})", sample_text(place)),
        None => format!("{mean} ({})", sample_text(place)),
    }
}

/// Returns the unit as a suffix; empty for durations, which contain their own.
fn unit(ranking: &Ranking) -> String {
    if ranking.unit.is_empty() || ranking.unit == "s" { String::new() } else { format!(" {}", ranking.unit) }
}

fn share(probability: f64) -> String {
    format!("{:.0}%", 100.0 * probability)
}
