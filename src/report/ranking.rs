//! The answer to `best`.

use super::document::table_of;
use super::number::{count, duration, significant, within};
use super::table::columns;
use crate::record::{Direction, Run, Table, Value};
use std::collections::BTreeSet;

/// A group's place in an answer.
#[derive(Clone, Debug)]
pub struct Place {
    /// The short id of one of its runs.
    pub id: String,
    /// That run.
    pub run: Run,
    /// The mean of the metric over the group's attempts.
    pub mean: f64,
    /// How far the mean may be off, in its unit: half the width of a 95% interval. None where the metric has none.
    pub uncertainty: Option<f64>,
    /// How many attempts the mean is over.
    pub n: u32,
}

/// The fields that the places do not agree on.
fn differing(places: &[Place]) -> Vec<String> {
    let names: BTreeSet<&String> = places.iter().flat_map(|place| place.run.config().keys()).collect();
    let differs = |name: &&String| {
        let mut values: Vec<&Value> = places.iter().filter_map(|place| place.run.config().get(*name)).collect();
        values.dedup();
        // One that some lack and all others agree on follows from another.
        values.len() > 1
    };
    names.into_iter().filter(differs).cloned().collect()
}

/// The best configurations, first one first.
pub fn best_text(places: &[Place], metric: &str, unit: &str, direction: Direction) -> String {
    let Some(first) = places.first() else { return String::new() };
    let fields = differing(places);
    let value = |place: &Place| {
        let mean = if unit == "s" { duration(place.mean) } else { significant(place.mean) };
        within(mean, place.mean, place.uncertainty)
    };
    let metric_head = format!(">{metric}");
    let mut heads = vec![">#", "RUN", &metric_head, ">N", ">AGAINST #1"];
    heads.extend(fields.iter().map(|field| field.rsplit_once('.').map_or(field.as_str(), |(_, name)| name)));
    let rows = (1..).zip(places).map(|(rank, place): (u32, &Place)| {
        let share = (place.mean - first.mean) / first.mean.abs();
        let against = if rank == 1 || !share.is_finite() { "-".to_owned() } else { format!("{:+.2}%", share * 100.0) };
        let mut row = vec![rank.to_string(), place.id.clone(), value(place), place.n.to_string(), against];
        let config = place.run.config();
        row.extend(fields.iter().map(|field| config.get(field).map_or_else(|| "-".to_owned(), Value::to_string)));
        row
    });
    let mut text = columns(&heads, rows);
    let total: u32 = places.iter().map(|place| place.n).sum();
    let unit = if unit.is_empty() || unit == "s" { String::new() } else { format!(" {unit}") };
    text.push_str(&format!(
        "best: {} with {metric} {}{unit} ({}, mean over finished attempts; {} compared)\n",
        first.id,
        value(first),
        direction.name(),
        count(usize::try_from(total).unwrap_or(usize::MAX), "attempt"),
    ));
    text
}

/// The answer as a document's members.
pub fn best_value(places: &[Place], model: &str, metric: &str, unit: &str, direction: Direction) -> Table {
    let items = places.iter().map(|place| {
        let mut item = table_of([
            ("run", place.run.id.to_string().into()),
            ("mean", place.mean.into()),
            ("n", place.n.into()),
            ("config", place.run.parts.config.clone()),
        ]);
        if let Some(uncertainty) = place.uncertainty {
            item.insert("uncertainty".to_owned(), uncertainty.into());
        }
        Value::Table(item)
    });
    table_of([
        ("model", model.into()),
        ("metric", metric.into()),
        ("unit", unit.into()),
        ("direction", direction.name().into()),
        ("places", Value::List(items.collect())),
    ])
}
