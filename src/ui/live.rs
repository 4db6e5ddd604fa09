//! Live updates: a stream of events for each open page, from one shared observer of the ledger.
//!
//! The observer checks sizes and times of files, and runs the command only after a change.
//! Events contain the whole state, so that a page that reconnects needs no earlier events.

use super::api::Api;
use super::kept;
use http_body_util::channel::Sender;
use hyper::body::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Interval between checks of the files.
const LOOK: Duration = Duration::from_millis(300);
/// Largest interval between commands: journals of Slurm tasks are elsewhere, so their changes are not seen.
const ANYWAY: Duration = Duration::from_secs(5);
/// After this time without an event, a page gets a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The state that all pages show.
#[derive(Clone, Debug, Default)]
struct State {
    /// Increases with every change.
    number: u64,
    /// The JSON document of `watch`, in one line.
    running: String,
    /// Number of sealed attempts.
    sealed: Option<u64>,
}

/// The shared state, updated while a page is open.
pub(super) struct Live {
    state: watch::Sender<State>,
}

impl Live {
    pub(super) fn new() -> Self {
        Self { state: watch::Sender::new(State::default()) }
    }

    /// Whether a page is open.
    pub(super) fn has_listeners(&self) -> bool {
        self.state.receiver_count() > 0
    }

    /// Observes the ledger until the server ends.
    pub(super) async fn look(self: Arc<Self>, api: Arc<Api>) {
        let (mut before, mut asked): (Option<Stamp>, Option<Instant>) = (None, None);
        loop {
            tokio::time::sleep(LOOK).await;
            if !self.has_listeners() {
                before = None;
                continue;
            }
            let stamp = Stamp::of(api.ledger());
            if before.as_ref() == Some(&stamp) && asked.is_some_and(|at| at.elapsed() < ANYWAY) {
                continue;
            }
            let has_sealed = before.as_ref().is_none_or(|before| before.store != stamp.store);
            (before, asked) = (Some(stamp), Some(Instant::now()));
            self.ask(&api, has_sealed).await;
        }
    }

    async fn ask(&self, api: &Api, has_sealed: bool) {
        let answer = api.answer("watch", "").await;
        let running = one_line(&answer.body);
        let sealed = if has_sealed { total(&api.answer("ls", "limit=0").await.body) } else { None };
        self.state.send_if_modified(|state| {
            let sealed = sealed.or(state.sealed);
            let is_new = state.running != running || state.sealed != sealed;
            if is_new {
                *state = State { number: state.number + 1, running, sealed };
            }
            is_new
        });
    }

    /// Sends events until the page closes.
    pub(super) async fn tell(&self, mut to: Sender<Bytes>) {
        let mut state = self.state.subscribe();
        let mut told = State::default();
        loop {
            let now = state.borrow_and_update().clone();
            let mut text = String::new();
            if now.number > told.number {
                if now.running != told.running {
                    text.push_str(&format!("id: {}\nevent: running\ndata: {}\n\n", now.number, now.running));
                }
                if let Some(total) = now.sealed.filter(|_| now.sealed != told.sealed) {
                    text.push_str(&format!("id: {}\nevent: sealed\ndata: {{\"total\": {total}}}\n\n", now.number));
                }
                told = now;
            } else {
                text.push_str("event: here\ndata: 1\n\n");
            }
            if to.send_data(Bytes::from(text)).await.is_err() {
                return;
            }
            if matches!(tokio::time::timeout(HEARTBEAT, state.changed()).await, Ok(Err(_))) {
                return;
            }
        }
    }
}

/// Sizes and times of the files that change when an attempt makes progress or is sealed.
#[derive(Debug, PartialEq)]
struct Stamp {
    store: kept::Stamp,
    journals: Vec<(std::ffi::OsString, u64)>,
}

impl Stamp {
    fn of(ledger: &Path) -> Self {
        let entries = std::fs::read_dir(ledger.join("journal")).into_iter().flatten().flatten();
        let mut journals: Vec<_> =
            entries.filter_map(|entry| Some((entry.file_name(), entry.metadata().ok()?.len()))).collect();
        journals.sort();
        Self { store: kept::stamp(ledger), journals }
    }
}

/// Joins the lines of a JSON document, because a line break ends an event's data. JSON strings contain no line breaks.
fn one_line(json: &[u8]) -> String {
    String::from_utf8_lossy(json).lines().map(str::trim_start).collect()
}

/// Returns the number of attempts in the document of `ls`.
fn total(json: &[u8]) -> Option<u64> {
    let value = crate::wire::from_json(std::str::from_utf8(json).ok()?).ok()?;
    value.as_table()?.get("total")?.as_int()?.try_into().ok()
}
