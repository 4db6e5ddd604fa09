//! Caches responses about sealed attempts until the ledger's file changes.

use super::api::Answer;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Commands whose response depends only on the ledger's file.
const COMMANDS: [&str; 6] = ["names", "best", "pareto", "effects", "diff", "why"];
/// The command whose response also has running attempts and what Slurm's tasks left.
const LISTING: &str = "ls";
/// Most bytes of all cached responses together.
const MOST_BYTES: usize = 32 << 20;
/// A file that changed more recently may change again within the resolution of its time.
const SETTLED: Duration = Duration::from_secs(2);

/// Length and modification time of the ledger's file; `None` if they cannot be read.
pub(super) type Stamp = Option<(u64, SystemTime)>;

/// Returns the current length and time of the ledger's file.
pub(super) fn stamp(ledger: &Path) -> Stamp {
    let file = ledger.join("ledger.redb").metadata().ok()?;
    Some((file.len(), file.modified().ok()?))
}

/// Whether the response to a command depends only on the ledger's file now.
pub(super) fn is_kept(arguments: &[String], ledger: &Path) -> bool {
    let command = arguments.first().map(String::as_str).unwrap_or_default();
    COMMANDS.contains(&command) || command == LISTING && is_quiet(ledger)
}

/// Whether there is no journal of an attempt, and nothing was ever submitted to Slurm.
fn is_quiet(ledger: &Path) -> bool {
    let journals = std::fs::read_dir(ledger.join("journal")).into_iter().flatten().flatten();
    let mut journals = journals.filter(|entry| entry.path().extension().is_some_and(|end| end == "journal"));
    journals.next().is_none() && !ledger.join("slurm").exists()
}

/// Cached responses by their arguments.
#[derive(Default)]
pub(super) struct Kept(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    of: Stamp,
    by: HashMap<Vec<String>, Answer>,
    bytes: usize,
}

impl Kept {
    /// Returns a cached response for the same state of the file.
    pub(super) fn find(&self, arguments: &[String], now: Stamp) -> Option<Answer> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.by.get(arguments).filter(|_| now.is_some() && answers.of == now).cloned()
    }

    /// Caches a response. `before` is the state of the file before the command ran.
    pub(super) fn keep(&self, arguments: &[String], answer: &Answer, before: Stamp) {
        let is_settled = before.and_then(|(_, changed)| changed.elapsed().ok()).is_some_and(|age| age >= SETTLED);
        if !is_settled || !answer.status.is_success() {
            return;
        }
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.of != before || answers.bytes + answer.body.len() > MOST_BYTES {
            *answers = Answers { of: before, ..Answers::default() };
        }
        if answer.body.len() <= MOST_BYTES && answers.by.insert(arguments.to_vec(), answer.clone()).is_none() {
            answers.bytes += answer.body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;

    #[test]
    fn a_cached_response_is_valid_until_the_file_changes() {
        let answer = |size: usize| Answer {
            status: StatusCode::OK,
            body: vec![b'x'; size],
            command: String::new(),
            notes: String::new(),
        };
        let ask = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let at = |len: u64, age_s: u64| Some((len, SystemTime::now() - Duration::from_secs(age_s)));
        let (old, new) = (at(1, 60), at(2, 30));
        let kept = Kept::default();
        let size = |question: &str, now: Stamp| kept.find(&ask(question), now).map(|answer| answer.body.len());
        kept.keep(&ask("best --model=a"), &answer(3), old);
        assert_eq!((size("best --model=a", old), size("best --model=b", old)), (Some(3), None));
        assert_eq!((size("best --model=a", new), size("best --model=a", None)), (None, None));
        kept.keep(&ask("effects"), &answer(4), new);
        assert_eq!((size("best --model=a", new), size("effects", new)), (None, Some(4)), "the file is another one");
        // Not cached: a file that may change within its time's resolution, and a refusal.
        kept.keep(&ask("names"), &answer(5), at(2, 0));
        kept.keep(&ask("why"), &Answer::refused(StatusCode::BAD_REQUEST, "no"), new);
        assert_eq!((size("names", new), size("why", new)), (None, None));
        kept.keep(&ask("pareto"), &answer(MOST_BYTES - 2), new);
        assert_eq!(
            (size("effects", new), size("pareto", new)),
            (None, Some(MOST_BYTES - 2)),
            "there is no room for both"
        );
    }

    #[test]
    fn a_listing_is_cached_while_nothing_runs_and_nothing_waits() {
        let ledger = tempfile::tempdir().unwrap();
        let is_kept = |command: &str| is_kept(&[command.to_owned()], ledger.path());
        assert_eq!(["ls", "best", "watch", "show"].map(is_kept), [true, true, false, false]);
        std::fs::create_dir(ledger.path().join("journal")).unwrap();
        std::fs::write(ledger.path().join("journal/.lock"), "").unwrap();
        assert!(is_kept("ls"));
        std::fs::write(ledger.path().join("journal/1.journal"), "").unwrap();
        assert_eq!(["ls", "best"].map(is_kept), [false, true]);
        std::fs::remove_file(ledger.path().join("journal/1.journal")).unwrap();
        std::fs::create_dir(ledger.path().join("slurm")).unwrap();
        assert!(!is_kept("ls"));
    }
}
