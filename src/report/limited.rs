//! Metrics with a limit, shown next to the configurations of a ranking.

use super::document::table_of;
use super::ranking::in_unit;
use crate::analysis::Place;
use crate::record::{AttemptId, Value};
use std::collections::BTreeSet;

/// A metric with a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limited {
    /// Its name.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// The limit in words: `accuracy of at least 0.9`.
    pub limit: String,
    /// The ranked configurations that meet it.
    pub of: Vec<Reached>,
}

/// A configuration whose mean meets the limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    /// Its ranked attempts.
    pub attempts: BTreeSet<AttemptId>,
    /// Its mean of the metric.
    pub mean: f64,
    /// Number of its attempts that do not meet the limit individually.
    pub missed: usize,
    /// Number of its attempts that have a value.
    pub values: usize,
}

impl Limited {
    fn of(&self, place: &Place) -> Option<&Reached> {
        let first = place.contender.measured.first()?.attempt;
        self.of.iter().find(|one| one.attempts.contains(&first))
    }

    pub(super) fn text(&self, place: &Place) -> Option<String> {
        self.of(place).map(|one| in_unit(one.mean, &self.unit))
    }

    /// Returns a line with the places whose mean meets the limit although some attempts do not.
    pub(super) fn missed(&self, places: &[Place]) -> String {
        let missed = |(rank, place): (u32, &Place)| {
            let Reached { missed, values, .. } = self.of(place)?;
            (*missed > 0).then(|| format!("#{rank} ({missed} of {values})"))
        };
        let missed: Vec<String> = (1..).zip(places).filter_map(missed).collect();
        if missed.is_empty() {
            return String::new();
        }
        format!("the mean meets {}, some attempts do not: {}\n", self.limit, missed.join(", "))
    }

    /// Returns a document's member: for each place its mean, and how many attempts miss the limit.
    pub(super) fn value(&self, places: &[Place]) -> Value {
        let of = |place: &Place| {
            let one = self.of(place)?;
            let members = [("mean", one.mean.into()), ("missed", one.missed.into()), ("values", one.values.into())];
            Some(Value::Table(table_of(members)))
        };
        Value::Table(table_of([
            ("metric", self.metric.as_str().into()),
            ("limit", self.limit.as_str().into()),
            ("places", Value::List(places.iter().filter_map(of).collect())),
        ]))
    }
}
