//! Warnings about impossible times.

use crate::analysis::Observed;
use crate::record::{Attempt, Table, Value};
use std::time::Duration;

/// The largest time by which an event can be stamped after the worker's end.
const STAMPED_LATER_NS: u64 = 1_000_000_000;

/// If the stated steps took longer than the attempt by more than this, they certainly have another unit. Less may be
/// rounding.
const CERTAIN_NS: u64 = 1_000_000_000;

/// A warning if the stated steps took longer than the attempt, most likely because of a wrong unit, and whether that is
/// certain.
pub(super) fn longer_than_the_attempt(observed: &Observed) -> Option<(String, bool)> {
    let stated = observed.steps.iter().filter_map(|step| step.duration_ns).fold(0, u64::saturating_add);
    let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
    (stated > observed.wall_ns.saturating_add(observed.wall_ns / 100)).then(|| {
        let text = format!(
            "the steps report {:.3} s in total, but the attempt took {:.3} s: times and energies from them are wrong (`duration_ns` is the time of one step, in nanoseconds)",
            seconds(stated),
            seconds(observed.wall_ns)
        );
        (text, stated > observed.wall_ns.saturating_add(CERTAIN_NS))
    })
}

/// Adds a reason why no time, power or energy of the attempt counts.
pub(super) fn disturb(facts: &mut Table, reason: &str) {
    facts.insert(Attempt::VALIDITY.to_owned(), "tainted".into());
    match facts.get_mut(Attempt::DISTURBED) {
        Some(Value::List(reasons)) => reasons.push(reason.into()),
        _ => drop(facts.insert(Attempt::DISTURBED.to_owned(), vec![reason].into())),
    }
}

/// A warning if phases begin after the end that the supervisor observed. Lines without a time of their own are stamped
/// a little later.
pub(super) fn after_the_end(observed: &Observed) -> Option<String> {
    let end_ns = observed.wall_ns.saturating_add(STAMPED_LATER_NS);
    let mut late = observed.phases.iter().filter(|phase| phase.start_ns > end_ns);
    let first = late.next()?;
    let (name, index, more) = (&first.name, first.index, and_more(late.count()));
    Some(format!(
        "phase `{name}` {index}{more} began after the attempt's end (`t_ns` is of CLOCK_MONOTONIC, in nanoseconds)"
    ))
}

pub(super) fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(", as {count} more,") }
}
