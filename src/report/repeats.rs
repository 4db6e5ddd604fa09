//! Progress of repetitions towards a required confidence interval.

use super::document::table_of;
use super::left_out::left_out_value;
use super::number::significant;
use super::ranking::mean_text;
use super::table::columns;
use crate::analysis::Estimate;
use crate::record::{LeftOut, RunId, Value, Why};
use std::collections::BTreeMap;

/// The repetitions of a run and the confidence interval that they should reach.
#[derive(Clone, Debug, PartialEq)]
pub struct Repetition {
    /// The run.
    pub run: RunId,
    /// Its short id.
    pub id: String,
    /// The metric whose interval is required.
    pub metric: String,
    /// Mean of the values that count; `None` if there are none.
    pub estimate: Option<Estimate>,
    /// Required half-width of the interval, relative to the mean.
    pub share: f64,
    /// Whether it is reached.
    pub is_met: bool,
    /// Number of attempts that use up the budget.
    pub spent: usize,
    /// The budget, `repeats.max`.
    pub max: usize,
    /// Number of these made as control runs (`canary`), which `max` does not limit.
    pub canaries: usize,
    /// The unit of the metric.
    pub unit: String,
    /// Number of attempts within the budget that do not count, by reason.
    pub left_out: BTreeMap<LeftOut, u64>,
    /// Number of attempts outside the budget that do not count, by reason.
    pub beside: BTreeMap<LeftOut, u64>,
}

impl Repetition {
    /// Describes whether the interval is reached, and why the repetitions ended.
    fn ended(&self) -> String {
        let share = significant(100.0 * self.share);
        let mut text = if self.is_met {
            format!("within {share}%")
        } else if self.spent >= self.max {
            format!("not within {share}%, ended by repeats.max = {}", self.max)
        } else {
            format!("not within {share}% yet")
        };
        if self.canaries > 0 {
            text.push_str(&format!("; {} made as canary", self.canaries));
        }
        let missing: u64 = self.left_out.values().sum();
        if missing > 0 {
            let kinds = kinds(&self.left_out);
            let count = |count: u64| if kinds.len() > 1 { format!("{count} ") } else { String::new() };
            let one = |(n, why, reason): &(u64, Why, &str)| {
                let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                format!("{}{}{reason}", count(*n), why.name())
            };
            let reasons = kinds.iter().map(one).collect::<Vec<_>>().join("; ");
            text.push_str(&format!("; {missing} without a value that counts ({reasons})"));
        }
        for (count, why, reason) in kinds(&self.beside) {
            let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
            text.push_str(&format!("; {count} {} beside these{reason}", why.name()));
        }
        text
    }
}

/// Returns for each kind of reason the number of attempts left out, and its most frequent reason.
fn kinds(all: &BTreeMap<LeftOut, u64>) -> Vec<(u64, Why, &str)> {
    let of = |why: Why| {
        let own = || all.iter().filter(move |(left, _)| left.why == why);
        let (most, _) = own().reduce(|most, next| if next.1 > most.1 { next } else { most })?;
        let count = own().map(|(_, count)| count).sum();
        Some((count, why, most.reason.lines().next().unwrap_or_default()))
    };
    Why::ALL.into_iter().filter_map(of).collect()
}

/// Returns a table of the repetitions; empty if no run requires an interval.
pub fn repetitions_text(all: &[Repetition]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let rows = all.iter().map(|one| {
        let mean = one
            .estimate
            .as_ref()
            .map_or_else(|| "-".to_owned(), |found| mean_text(found.mean, found.half_width(), &one.unit));
        let n = one.estimate.as_ref().map_or(0, |found| found.attempts);
        vec![one.id.clone(), one.metric.clone(), n.to_string(), mean, one.ended()]
    });
    columns(&["REPEATED", "METRIC", ">N", ">MEAN", "INTERVAL"], rows)
}

/// Returns the repetitions as a document's value.
pub fn repetitions_value(all: &[Repetition]) -> Value {
    let item = |one: &Repetition| {
        let mut table = table_of([
            ("run", one.run.to_string().into()),
            ("metric", one.metric.as_str().into()),
            ("n", one.estimate.as_ref().map_or(0, |found| found.attempts).into()),
            ("until", one.share.into()),
            ("reached", one.is_met.into()),
            ("attempts", one.spent.into()),
            ("max", one.max.into()),
            ("canaries", one.canaries.into()),
            ("unit", one.unit.as_str().into()),
            ("left_out", left_out_value(&one.left_out)),
            ("beside", left_out_value(&one.beside)),
        ]);
        if let Some(found) = &one.estimate {
            table.insert("mean".to_owned(), found.mean.into());
            table.extend(found.half_width().map(|half_width| ("half_width".to_owned(), half_width.into())));
        }
        Value::Table(table)
    };
    Value::List(all.iter().map(item).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Digest, MetricKind, Replicate};

    #[test]
    fn reasons_are_shown_separately_for_attempts_within_and_outside_the_budget() {
        let left = |why, reason: &str, count: u64| (LeftOut { why, reason: reason.to_owned() }, count);
        let other = |execution| Replicate { seed: 1, execution, machine: 7 };
        let mut one = Repetition {
            run: RunId(Digest([1; 32])),
            id: "0101".to_owned(),
            metric: "energy".to_owned(),
            estimate: Estimate::of(MetricKind::Measured, &[(other(1), 95.0), (other(2), 96.0)], &[]),
            share: 0.02,
            is_met: false,
            spent: 3,
            max: 3,
            canaries: 0,
            unit: "J".to_owned(),
            left_out: [left(Why::Tainted, "host overloaded: 95% busy", 1)].into(),
            beside: [left(Why::Interrupted, "it was stopped on request", 1)].into(),
        };
        assert_eq!(
            one.ended(),
            "not within 2%, ended by repeats.max = 3; 1 without a value that counts (tainted: host overloaded: 95% busy); 1 interrupted beside these (it was stopped on request)"
        );
        assert!(repetitions_text(std::slice::from_ref(&one)).contains("95.5 ± 6.7% J"), "{}", one.ended());
        one.canaries = 2;
        assert!(one.ended().starts_with("not within 2%, ended by repeats.max = 3; 2 made as canary; 1 without"));
        one.canaries = 0;
        one.left_out.clear();
        one.beside = [left(Why::Failed, "code 3", 4), left(Why::Failed, "code 4", 1)].into();
        (one.estimate, one.spent) = (None, 0);
        assert_eq!(one.ended(), "not within 2% yet; 5 failed beside these (code 3)");
    }
}
