//! Texts of a worker for a record: messages without secrets, and the end of its output.
//!
//! Secrets are removed line by line before anything is cut off, because half a token is not recognised.

use super::output::{LONGEST_LINE, Lines};
use crate::host::secrets::{self, Redactor};
use crate::record::{Event, EventKind, Table, count};
use std::borrow::Cow;

const TAIL_BYTES: usize = 8 << 10;

/// The event without secrets. Numbers and names have none.
pub(super) fn clean(event: &Event) -> Cow<'_, Event> {
    let kind = match &event.kind {
        EventKind::Fact { name, value } => {
            EventKind::Fact { name: name.clone(), value: secrets::without_secret(name, value) }
        }
        EventKind::Status { message } => EventKind::Status { message: secrets::redacted(message) },
        EventKind::Failure { message } => EventKind::Failure { message: secrets::redacted(message) },
        _ => return Cow::Borrowed(event),
    };
    Cow::Owned(Event { kind, ..event.clone() })
}

/// The warning about a worker that wrote more invalid lines than are kept.
pub(super) fn no_events(count: usize) -> String {
    format!("{count}{NO_EVENTS}")
}

/// The number of lines in that warning.
pub(super) fn no_events_count(warning: &str) -> Option<usize> {
    let (count, rest) = warning.split_once(' ')?;
    if rest.starts_with(NO_EVENTS.trim_start()) { count.parse().ok() } else { None }
}

/// In older journals the number of kept lines follows.
const NO_EVENTS: &str = " lines are not events";

/// A warning if the worker dropped events, according to the facts in which the ranks count them.
pub(super) fn lost_events(facts: &Table) -> Option<String> {
    let of_rank = |name: &str| name.strip_prefix(DROPPED).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let counts = facts.iter().filter(|(name, _)| of_rank(name)).filter_map(|(_, count)| count.as_int());
    let lost = counts.fold(0, i64::saturating_add);
    (lost > 0).then(|| format!("the worker dropped {} (its queue was full: log less often)", count(lost, "event")))
}

/// The fact with the number of dropped events.
const DROPPED: &str = "worker.dropped_events";

/// The end of an output. Secrets are removed when it is read.
#[derive(Default)]
pub(super) struct End {
    kept: String,
    /// Whether earlier text was dropped.
    is_cut: bool,
}

impl End {
    pub(super) fn push(&mut self, text: &str) {
        self.kept.push_str(text);
        if self.kept.len() <= 4 * LONGEST_LINE {
            return;
        }
        // Cuts at the beginning of a line if possible, because half a token is not recognised.
        let least = self.kept.ceil_char_boundary(self.kept.len() - 2 * LONGEST_LINE);
        let after = self.kept[least..].find(['\n', '\r']).map_or(0, |at| at + 1);
        let from = if least + after == self.kept.len() { least } else { least + after };
        self.kept.drain(..from);
        self.is_cut = true;
    }

    pub(super) fn text(&self) -> String {
        let mut redactor = if self.is_cut { Redactor::amid([self.kept.as_str()]) } else { Redactor::default() };
        let (mut assembled, mut clean) = (Lines::default(), String::new());
        assembled.push(&self.kept, |line| clean.push_str(&redactor.line(line)));
        let rest = assembled.rest();
        if !rest.is_empty() {
            clean.push_str(&redactor.line(&rest));
        }
        end_of(&clean)
    }
}

fn end_of(text: &str) -> String {
    text[text.ceil_char_boundary(text.len().saturating_sub(TAIL_BYTES))..].to_owned()
}

/// The line with the exception of the last Python traceback: its first line that is not indented. Launchers may prefix
/// each line.
pub(super) fn exception(text: &str) -> Option<&str> {
    let (before, below) = text.rsplit_once("Traceback (most recent call last):")?;
    let prefix = before.rsplit('\n').next().unwrap_or_default();
    let lines = below.lines().skip(1).map(|line| line.strip_prefix(prefix).unwrap_or(line));
    lines.filter(|line| !line.trim().is_empty()).find(|line| !line.starts_with([' ', '\t'])).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(pieces: &[&str]) -> String {
        let mut end = End::default();
        pieces.iter().for_each(|piece| end.push(piece));
        end.text()
    }

    #[test]
    fn secrets_are_removed_independent_of_the_borders_of_pieces() {
        let text = "login ghp_0123456789abcdef0123\nPASSWORD=hunter2\n-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\nstep 3: no memory";
        let clean = "login (redacted)\nPASSWORD=(redacted)\n-----BEGIN PRIVATE KEY-----\n(redacted)\n-----END PRIVATE KEY-----\nstep 3: no memory";
        for at in 0..text.len() {
            assert_eq!(end(&[&text[..at], &text[at..]]), clean, "{at}");
        }
        assert_eq!(end(&["\rloss 1\rloss 2\r\nä", "ö"]), "\rloss 1\rloss 2\r\näö");
    }

    #[test]
    fn the_end_of_a_long_output_is_kept_without_parts_of_secrets() {
        let secret = format!("ghp_{}\n", "0123456789abcdef".repeat(8));
        let all = end(&[&secret.repeat(1000), "done"]);
        assert!(all.len() <= TAIL_BYTES && all.ends_with("(redacted)\ndone") && !all.contains("0123"), "{all}");
        let endless = "x".repeat(16 << 10);
        assert_eq!(end(&[endless.as_str(); 9]), endless[..TAIL_BYTES]);
    }

    #[test]
    fn the_texts_of_events_are_redacted() {
        let event = |kind| Event { t_ns: 1, rank: 0, kind };
        let fact = event(EventKind::Fact { name: "hub_password".to_owned(), value: "hunter2".into() });
        let EventKind::Fact { value, .. } = &clean(&fact).kind else { panic!("{fact:?}") };
        assert_eq!(*value, "(redacted)".into());
        for make in [|message| EventKind::Failure { message }, |message| EventKind::Status { message }] {
            let said = event(make("401 for https://me:pw@host/x".to_owned()));
            assert!(format!("{:?}", clean(&said)).contains("https://(redacted)@host/x"));
        }
    }
}
