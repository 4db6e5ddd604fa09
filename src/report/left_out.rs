//! The attempts that an answer leaves out, and the reasons.

use super::document::table_of;
use super::plain::plain;
use crate::record::{LeftOut, Value, Why};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the numbers of attempts left out, with reasons, in one line; the most frequent reason of each kind first.
pub fn left_out_text(left_out: &BTreeMap<LeftOut, u64>, metric: &str) -> String {
    /// Most reasons shown per kind.
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
        // Reasons that differ only in their numbers are shown once.
        let mut shapes = BTreeSet::new();
        of_kind.retain(|(reason, _)| shapes.insert(reason.replace(|c: char| c.is_ascii_digit() || c == '.', "")));
        let said = match why {
            Why::Missing => format!("{total} whose {metric} has no value to compare"),
            Why::NotFinite => format!("{total} without a finite {metric}, and their configurations"),
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

/// Returns [`left_out_text`] with the option that counts these attempts, and the command that lists the failed ones.
pub(super) fn left_out_lines(left_out: &BTreeMap<LeftOut, u64>, metric: &str, model: &str) -> String {
    let is_left = |why: &Why| left_out.keys().any(|left| left.why == *why);
    let kinds: Vec<&str> =
        [Why::Tainted, Why::Hidden].iter().filter(|why| is_left(why)).map(|why| why.name()).collect();
    let mut text = left_out_text(left_out, metric);
    if !kinds.is_empty() {
        text = format!("{} (--include {} counts them)\n", text.trim_end(), kinds.join(","));
    }
    if is_left(&Why::Failed) {
        text.push_str(&format!("list the failed attempts: `ledger ls --model {} --outcome failed`\n", plain(model)));
    }
    text
}

/// Returns the reasons and numbers of attempts as a list.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_only_in_numbers_are_shown_once() {
        let tainted = |reason: &str| LeftOut { why: Why::Tainted, reason: reason.to_owned() };
        let busy = ["97.5", "100"].map(|share| (tainted(&format!("processors {share}% busy")), 1));
        let left_out = busy.into_iter().chain([(tainted("throttled"), 3)]).collect();
        assert_eq!(left_out_text(&left_out, "energy"), "left out: 5 tainted (throttled; processors 100% busy)\n");
        let line = left_out_lines(&left_out, "energy", "m");
        assert!(line.ends_with("busy) (--include tainted counts them)\n"), "{line}");
    }

    #[test]
    fn a_command_lists_the_attempts_that_failed() {
        let failed = [(LeftOut { why: Why::Failed, reason: String::new() }, 2)].into();
        let lines = left_out_lines(&failed, "energy", "m");
        assert_eq!(lines, "left out: 2 failed\nlist the failed attempts: `ledger ls --model m --outcome failed`\n");
    }
}
