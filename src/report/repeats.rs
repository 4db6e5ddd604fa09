//! How far the repetitions of runs came that ask for an interval.

use super::document::table_of;
use super::number::{mean_within, significant};
use super::table::columns;
use crate::analysis::Summary;
use crate::record::{LeftOut, RunId, Value};

/// The repetitions of a run and the interval that they were to reach.
#[derive(Clone, Debug, PartialEq)]
pub struct Repetition {
    /// The run.
    pub run: RunId,
    /// Its short id.
    pub id: String,
    /// The metric whose interval counts.
    pub metric: String,
    /// The values that count; none if none does.
    pub summary: Option<Summary>,
    /// Half the width of the interval that is asked for, as a share of the mean.
    pub share: f64,
    /// Whether it is reached.
    pub is_met: bool,
    /// How many attempts use up the budget.
    pub spent: usize,
    /// The budget.
    pub max: usize,
    /// Why one that does not count does not.
    pub left_out: Option<LeftOut>,
}

impl Repetition {
    /// Why there are no more of them, or that there should be.
    fn ended(&self) -> String {
        let share = significant(100.0 * self.share);
        let mut text = if self.is_met {
            format!("within {share}%")
        } else if self.spent >= self.max {
            format!("not within {share}%, ended by repeats.max = {}", self.max)
        } else {
            format!("not within {share}% yet")
        };
        let missing = self.spent.saturating_sub(self.summary.map_or(0, |summary| summary.n));
        if let Some(left) = self.left_out.as_ref().filter(|_| missing > 0 || self.summary.is_none()) {
            let reason = if left.reason.is_empty() { String::new() } else { format!(": {}", left.reason) };
            text.push_str(&format!("; {missing} without a value that counts ({}{reason})", left.why.name()));
        }
        text
    }
}

/// A table of them; empty where no run asks for an interval.
pub fn repetitions_text(all: &[Repetition]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let rows = all.iter().map(|one| {
        let mean = one.summary.map_or_else(
            || "-".to_owned(),
            |summary| mean_within(significant(summary.mean), summary.mean, summary.half_width()),
        );
        let n = one.summary.map_or(0, |summary| summary.n);
        vec![one.id.clone(), one.metric.clone(), n.to_string(), mean, one.ended()]
    });
    columns(&["REPEATED", "METRIC", ">N", ">MEAN", "INTERVAL"], rows)
}

/// The same as a document's value.
pub fn repetitions_value(all: &[Repetition]) -> Value {
    let item = |one: &Repetition| {
        let mut table = table_of([
            ("run", one.run.to_string().into()),
            ("metric", one.metric.as_str().into()),
            ("n", one.summary.map_or(0, |summary| summary.n).into()),
            ("until", one.share.into()),
            ("reached", one.is_met.into()),
            ("attempts", one.spent.into()),
            ("max", one.max.into()),
        ]);
        if let Some(summary) = one.summary {
            table.insert("mean".to_owned(), summary.mean.into());
            table.extend(summary.half_width().map(|half_width| ("half_width".to_owned(), half_width.into())));
        }
        if let Some(left) = &one.left_out {
            let text = if left.reason.is_empty() { left.why.name() } else { &left.reason };
            table.insert("left_out".to_owned(), text.into());
        }
        Value::Table(table)
    };
    Value::List(all.iter().map(item).collect())
}
