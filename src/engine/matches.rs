//! Finds metrics in a worker's standard output by a manifest's patterns. Matches become events, as if the worker had
//! reported them. If the worker reports a metric itself as an event, its value counts.

use super::kept::quoted;
use super::output::Lines;
use crate::manifest::{MetricPattern, PATTERNS};
use crate::record::{Attempt, Entry, Event, EventKind, Table};
use std::borrow::Cow;

/// The shortest interval between two events of a metric, so that one on every line does not fill the journal.
const EVERY_NS: u64 = 1_000_000_000;

/// The state of a cell's patterns.
pub(super) struct Matches {
    sought: Vec<Sought>,
    lines: Lines,
}

struct Sought {
    pattern: MetricPattern,
    matches: u64,
    last: Option<f64>,
    /// When the metric was last written as an event.
    told_ns: Option<u64>,
    is_due: bool,
    /// The first match that is not a number, and the number of such matches.
    not_numbers: Option<(String, u64)>,
    is_last_a_number: bool,
    /// A line after the last match that begins like one but does not match.
    near: Option<String>,
    /// Whether the worker reports the metric or its series as an event.
    is_reported: bool,
    /// The number of points of its series.
    points: u64,
    /// A line in which another number may be meant, and why.
    doubt: Option<(String, String)>,
}

impl Matches {
    /// The patterns in a cell's settings.
    pub(super) fn of(settings: &Table) -> Self {
        let sought = MetricPattern::of(settings).into_iter().map(Sought::of);
        Self { sought: sought.collect(), lines: Lines::default() }
    }

    /// The facts about the metrics' kinds.
    pub(super) fn facts(&self) -> Table {
        let stated = self.sought.iter().filter_map(|sought| {
            let kind = sought.pattern.kind?.name();
            Some((format!("{}{}", Attempt::METRIC_KIND, sought.pattern.name), kind.into()))
        });
        stated.collect()
    }

    /// Processes an event of the worker.
    pub(super) fn reported(&mut self, kind: &EventKind) {
        for one in &mut self.sought {
            one.is_reported |= match kind {
                EventKind::Metric { name, .. } => *name == one.pattern.name,
                EventKind::Step { values, .. } => {
                    one.pattern.is_series && values.iter().any(|(name, _)| *name == one.pattern.name)
                }
                _ => false,
            };
        }
    }

    /// Searches text of the standard output, and returns events.
    pub(super) fn push(&mut self, text: &str, t_ns: u64) -> Vec<Entry> {
        let Self { sought, lines } = self;
        let mut found = Vec::new();
        if !sought.is_empty() {
            lines.push(text, |line| sought.iter_mut().for_each(|one| one.look(line, t_ns, &mut found)));
        }
        found.extend(sought.iter_mut().filter_map(|one| one.tell(t_ns, EVERY_NS)));
        found
    }

    /// The last events at the end of the output, and warnings.
    pub(super) fn finish(&mut self, t_ns: u64) -> Vec<Entry> {
        let rest = self.lines.rest();
        let mut found = Vec::new();
        for one in &mut self.sought {
            one.look(&rest, t_ns, &mut found);
            found.extend(one.tell(t_ns, 0));
            found.extend(one.warning().into_iter().chain(one.doubted()).map(Entry::Warning));
        }
        found
    }
}

/// Removes the escape sequences of terminals, such as colours (ECMA-48, 5.4 and 8.3.89).
fn without_escapes(line: &str) -> Cow<'_, str> {
    const ESCAPE: char = '\u{1b}';
    let mut pieces = line.split(ESCAPE);
    let Some(first) = pieces.next().filter(|_| line.contains(ESCAPE)) else { return Cow::Borrowed(line) };
    let mut text = first.to_owned();
    for piece in pieces {
        let rest = match piece.strip_prefix('[') {
            // Parameters, then one final byte.
            Some(sequence) => {
                sequence.find(|c: char| ('@'..='~').contains(&c)).and_then(|end| sequence.get(end + 1..)).unwrap_or("")
            }
            None => piece.get(1..).unwrap_or(""),
        };
        text.push_str(rest);
    }
    Cow::Owned(text)
}

impl Sought {
    fn of(pattern: MetricPattern) -> Self {
        Self {
            pattern,
            matches: 0,
            last: None,
            told_ns: None,
            is_due: false,
            not_numbers: None,
            is_last_a_number: true,
            near: None,
            is_reported: false,
            points: 0,
            doubt: None,
        }
    }

    fn look(&mut self, line: &str, t_ns: u64, into: &mut Vec<Entry>) {
        let line = &*without_escapes(line.trim_end_matches(['\n', '\r']));
        let Some(found) = self.pattern.find(line) else {
            if self.pattern.is_near(line) {
                self.near = Some(line.to_owned());
            }
            return;
        };
        self.near = None;
        // In a series all matches count, otherwise the last one.
        if !self.pattern.is_series || self.doubt.is_none() {
            self.doubt = found.doubt.map(|why| (line.to_owned(), why));
        }
        let value = match found.value {
            Ok(value) => value,
            Err(text) => {
                self.not_numbers.get_or_insert((text, 0)).1 += 1;
                self.is_last_a_number = false;
                // The last match counts, even if an earlier one was a number.
                (self.last, self.is_due) = (Some(f64::NAN), true);
                return;
            }
        };
        self.matches += 1;
        (self.last, self.is_due, self.is_last_a_number) = (Some(value), true, true);
        if self.pattern.is_series && !self.is_reported {
            let values = vec![(self.pattern.name.clone(), value)];
            let step = found.step.unwrap_or(self.matches);
            self.points += 1;
            into.push(event(t_ns, EventKind::Step { step, duration_ns: None, values }));
        }
    }

    fn tell(&mut self, t_ns: u64, every_ns: u64) -> Option<Entry> {
        let is_early = self.told_ns.is_some_and(|told_ns| t_ns.saturating_sub(told_ns) < every_ns);
        let value = self.last.filter(|_| self.is_due && !is_early && !self.is_reported)?;
        (self.told_ns, self.is_due) = (Some(t_ns), false);
        let (name, unit) = (self.pattern.name.clone(), self.pattern.unit.clone());
        Some(event(t_ns, EventKind::Metric { name, value, unit }))
    }

    fn doubted(&self) -> Option<String> {
        let (line, why) = self.doubt.as_ref().filter(|_| !self.is_reported)?;
        let MetricPattern { name, pattern, .. } = &self.pattern;
        Some(format!(
            "program.metrics.{name}: `{pattern}` in the line {}: {why} (make it say which number is meant)",
            quoted(line)
        ))
    }

    fn warning(&self) -> Option<String> {
        let MetricPattern { name, pattern, .. } = &self.pattern;
        if self.is_reported && self.last.is_some() {
            let series = if self.points > 0 { "; its series has the points of both" } else { "" };
            return Some(format!(
                "program.metrics.{name}: the program reports `{name}` as an event too, and the event counts{series} (remove one of them)"
            ));
        }
        match &self.not_numbers {
            Some((text, count)) => Some(format!(
                "program.metrics.{name}: {count} of the matches of `{pattern}` {} no number (the first: {}){}",
                if *count == 1 { "is" } else { "are" },
                quoted(text),
                if self.is_last_a_number { "" } else { "; the last match is among them, so the metric is NaN" }
            )),
            None if self.matches == 0 => {
                let near = self.near.as_ref().map(|line| format!(" (the nearest: {})", quoted(line)));
                let near = near.unwrap_or_default();
                Some(format!("program.metrics.{name}: no line of the standard output matches `{pattern}`{near}"))
            }
            None => self
                .near
                .as_ref()
                .map(|line| format!("{}the later line {} does not match `{pattern}`", stale(name), quoted(line))),
        }
    }
}

/// The beginning of the warning that a value after the last match was printed.
fn stale(metric: &str) -> String {
    format!("{PATTERNS}.{metric}: the value may be stale: ")
}

/// Whether a warning reports that the value of a metric may not be the last one that the program printed.
pub fn is_stale(warning: &str, metric: &str) -> bool {
    warning.starts_with(&stale(metric))
}

fn event(t_ns: u64, kind: EventKind) -> Entry {
    Entry::Event(Event { t_ns, rank: 0, kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Value;

    fn matches(patterns: &[(&str, Value)]) -> Matches {
        let patterns: Table = patterns.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Matches::of(&Table::from([(PATTERNS.to_owned(), patterns.into())]))
    }

    fn metrics(entries: &[Entry]) -> Vec<(u64, f64)> {
        let metric = |entry: &Entry| match entry {
            Entry::Event(Event { t_ns, kind: EventKind::Metric { value, .. }, .. }) => Some((*t_ns, *value)),
            _ => None,
        };
        entries.iter().filter_map(metric).collect()
    }

    #[test]
    fn the_last_match_is_the_metric_however_often_it_is_printed() {
        let mut found = matches(&[("accuracy", r"acc (\S+)".into())]);
        let mut told = found.push("acc 0.1\nacc 0.", 1);
        told.extend((0..1000).flat_map(|at| found.push("3\nacc 0.", 2 + at)));
        told.extend(found.push("5\nother\n", 2 * EVERY_NS));
        told.extend(found.push("acc 0.75", 2 * EVERY_NS + 1));
        told.extend(found.finish(2 * EVERY_NS + 2));
        assert_eq!(metrics(&told), [(1, 0.1), (2 * EVERY_NS, 0.5), (2 * EVERY_NS + 2, 0.75)]);
    }

    #[test]
    fn terminal_escapes_are_removed_from_lines() {
        let mut found = matches(&[("loss", r"^loss (\S+)$".into())]);
        assert_eq!(metrics(&found.push("\u{1b}[1;31mloss 0.5\u{1b}[0m\n", 1)), [(1, 0.5)]);
        for (line, plain) in
            [("a\u{1b}[Kb", "ab"), ("a\u{1b}cb", "ab"), ("a\u{1b}", "a"), ("a\u{1b}[3", "a"), ("a", "a")]
        {
            assert_eq!(without_escapes(line), plain);
        }
    }

    #[test]
    fn the_end_anchor_matches_before_the_line_break() {
        let mut found = matches(&[("loss", r"^loss (\S+)$".into())]);
        let told = found.push("loss 0.5\r\nloss 0.25\n", 1);
        assert_eq!(metrics(&told), [(1, 0.25)]);
    }

    #[test]
    fn an_event_of_the_worker_takes_precedence_over_matches() {
        let mut found = matches(&[("acc", r"acc (\S+)".into())]);
        assert_eq!(metrics(&found.push("acc 0.1\n", 1)), [(1, 0.1)], "before the event");
        found.reported(&EventKind::Metric { name: "acc".into(), value: 0.9, unit: String::new() });
        let mut told = found.push("acc 0.2\n", 3 * EVERY_NS);
        told.extend(found.finish(4 * EVERY_NS));
        assert_eq!(metrics(&told), []);
        let [Entry::Warning(text)] = &told[..] else { panic!("{told:?}") };
        assert!(text.contains("`acc` as an event too"), "{text}");
    }

    #[test]
    fn a_series_has_every_match_with_its_step_or_index() {
        let series = |pattern: &str| {
            Table::from([
                ("pattern".to_owned(), pattern.into()),
                ("series".to_owned(), true.into()),
                ("kind".to_owned(), "measured".into()),
            ])
        };
        let mut found =
            matches(&[("a", series(r"a (\S+)").into()), ("b", series(r"(?<step>\d+) b (?<value>\S+)").into())]);
        assert_eq!(
            found.facts(),
            Table::from(["a", "b"].map(|name| (format!("metric_kind.{name}"), "measured".into())))
        );
        let told = found.push("a 5\n70 b 7\na 6\n80 b 8\n", 1);
        let steps: Vec<(u64, String, f64)> = told
            .iter()
            .filter_map(|entry| match entry {
                Entry::Event(Event { kind: EventKind::Step { step, values, .. }, .. }) => {
                    Some((*step, values[0].0.clone(), values[0].1))
                }
                _ => None,
            })
            .collect();
        let expected = [(1, "a", 5.0), (70, "b", 7.0), (2, "a", 6.0), (80, "b", 8.0)];
        assert_eq!(steps, expected.map(|(step, name, value)| (step, name.to_owned(), value)));
        assert_eq!(metrics(&told), [(1, 6.0), (1, 8.0)]);
    }

    #[test]
    fn a_last_match_that_is_not_a_number_gives_nan() {
        let mut found = matches(&[("acc", r"acc (\S+)".into())]);
        let told = found.push("acc 0.5\nacc failed\n", 1);
        assert!(matches!(metrics(&told)[..], [(1, value)] if value.is_nan()), "{told:?}");
        let [Entry::Warning(warning)] = &found.finish(2)[..] else { panic!("one warning") };
        assert!(
            warning.ends_with("(the first: `failed`); the last match is among them, so the metric is NaN"),
            "{warning}"
        );
        // A later number decides again.
        let mut found = matches(&[("acc", r"acc (\S+)".into())]);
        let mut told = found.push("acc 0.5\nacc failed\n", 1);
        told.extend(found.push("acc 0.6\n", 1 + EVERY_NS));
        assert_eq!(metrics(&told)[1], (1 + EVERY_NS, 0.6));
    }

    #[test]
    fn a_later_line_that_begins_like_a_match_makes_the_value_stale() {
        let mut found = matches(&[("acc", r"acc (\d\.\d+)".into())]);
        found.push("acc 0.5\nacc nan\nacc 0.6\nthe end\n", 1);
        assert_eq!(found.finish(2), []);
        let mut found = matches(&[("acc", r"acc (\d\.\d+)".into())]);
        found.push("acc 0.5\nacc nan\nthe end\n", 1);
        let [Entry::Warning(warning)] = &found.finish(2)[..] else { panic!("one warning") };
        assert_eq!(
            warning,
            r"program.metrics.acc: the value may be stale: the later line `acc nan` does not match `acc (\d\.\d+)`"
        );
        assert!(is_stale(warning, "acc") && !is_stale(warning, "accuracy"));
    }

    #[test]
    fn missing_matches_and_non_numbers_give_warnings_at_the_end() {
        let mut found = matches(&[("loss", r"loss (\S+)".into()), ("top1", r"top1 (\S+)".into())]);
        let told = found.push("loss high\nloss low\n", 1);
        assert!(matches!(metrics(&told)[..], [(1, value)] if value.is_nan()), "{told:?}");
        let warning = |text: &str| Entry::Warning(text.to_owned());
        assert_eq!(
            found.finish(2),
            [
                warning(
                    r"program.metrics.loss: 2 of the matches of `loss (\S+)` are no number (the first: `high`); the last match is among them, so the metric is NaN"
                ),
                warning(r"program.metrics.top1: no line of the standard output matches `top1 (\S+)`"),
            ]
        );
    }
}
