//! Metrics that a limit was set to, beside the configurations of a ranking.

use super::document::table_of;
use super::ranking::in_unit;
use crate::analysis::Place;
use crate::record::{AttemptId, Value};
use std::collections::BTreeSet;

/// A metric that a limit was set to.
#[derive(Clone, Debug, PartialEq)]
pub struct Limited {
    /// Its name.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// The limit: `accuracy of at least 0.9`.
    pub limit: String,
    /// Of the configurations that are ranked.
    pub of: Vec<Reached>,
}

/// A configuration whose mean meets the limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    /// Its attempts that are ranked.
    pub attempts: BTreeSet<AttemptId>,
    /// Its mean.
    pub mean: f64,
    /// How many of its attempts do not meet the limit by themselves.
    pub missed: usize,
    /// How many have a value.
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

    /// The places whose mean meets the limit, though not each attempt does.
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

    /// As a document's member: place by place the mean, and how many attempts do not meet the limit.
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
