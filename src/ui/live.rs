//! What changes while a page is open: one stream of events for each page, from one look at the ledger for all of them.
//!
//! Looks at sizes and times of files alone until one of them changes, then asks the command again. Events hold the whole state, so that a page that
//! lost its connection needs none of those before.

use super::api::Api;
use super::kept;
use http_body_util::channel::Sender;
use hyper::body::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often files are looked at.
const LOOK: Duration = Duration::from_millis(300);
/// Journals of Slurm tasks lie elsewhere and are looked for so often, whether anything changed or not.
const ANYWAY: Duration = Duration::from_secs(5);
/// After so long without an event a page is told that the server is there.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// What all pages are shown.
#[derive(Clone, Debug, Default)]
struct State {
    /// Grows with every change.
    number: u64,
    /// The document of `watch`, on one line.
    running: String,
    /// How many attempts are sealed.
    sealed: Option<u64>,
}

/// The state, looked at while anybody listens.
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

    /// Looks at the ledger as long as the server lives.
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

    /// Sends events until the page goes away.
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

/// Sizes and times of the files that change when an attempt goes on or is sealed.
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

/// A JSON document without line breaks, which end an event's data. Within a JSON text there are none but between its parts.
fn one_line(json: &[u8]) -> String {
    String::from_utf8_lossy(json).lines().map(str::trim_start).collect()
}

/// The number of attempts in the document of `ls`.
fn total(json: &[u8]) -> Option<u64> {
    let value = crate::wire::from_json(std::str::from_utf8(json).ok()?).ok()?;
    value.as_table()?.get("total")?.as_int()?.try_into().ok()
}
