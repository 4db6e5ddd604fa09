//! Shows a sweep while it runs, and hears Ctrl-C.

use super::failure::{Failure, exit, with_holders};
use crate::engine::{Bound, Executed, Seen, Stop, Watch};
use crate::host::signals::Interrupts;
use crate::record::{EventKind, Outcome, RunId};
use crate::report::{self, Bar, Progress};
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Turns what an engine sees into progress bars and lines.
pub(super) struct Watcher {
    progress: Progress,
    bars: Mutex<HashMap<RunId, Bar>>,
}

impl Watcher {
    pub(super) fn new(attempts: usize) -> Self {
        let progress = Progress::new(u64::try_from(attempts).unwrap_or(u64::MAX));
        Self { progress, bars: Mutex::default() }
    }

    pub(super) fn finish(&self) {
        self.progress.finish();
    }

    fn say(&self, bound: &Bound, text: &str) {
        self.progress.say(&line(bound, text));
    }

    fn end(&self, bound: &Bound, text: &str) {
        self.progress.end(self.take_bar(bound.run.id).as_ref(), &line(bound, text));
    }

    fn with_bar(&self, run: RunId, show: impl FnOnce(&Bar)) {
        if let Some(bar) = self.bars.lock().unwrap_or_else(PoisonError::into_inner).get(&run) {
            show(bar);
        }
    }

    fn take_bar(&self, run: RunId) -> Option<Bar> {
        self.bars.lock().unwrap_or_else(PoisonError::into_inner).remove(&run)
    }
}

fn line(bound: &Bound, text: &str) -> String {
    format!("{} {}: {text}", bound.run.id.0.prefix(8), label(bound))
}

fn label(bound: &Bound) -> String {
    let field = |name: &str| bound.cell.get(name).map(ToString::to_string);
    let words = [
        Some(bound.run.model().to_owned()),
        field("training.optimizer"),
        field("training.learning_rate").map(|rate| format!("lr {rate}")),
    ];
    let params = bound.cell.config.iter().filter_map(|(key, value)| Some((key.strip_prefix("params.")?, value)));
    let params = params.map(|(key, value)| format!("{key} {value}"));
    words.into_iter().flatten().chain(params).collect::<Vec<_>>().join(" ")
}

fn result_line(bound: &Bound, executed: &Executed) -> String {
    let attempt = &executed.sealed.attempt;
    let mut words = vec![attempt.outcome.name().to_owned()];
    let usual = ["accuracy", "mean_return", "perplexity", "loss"];
    let deciding = bound.cell.text("objective.metric").filter(|name| !usual.contains(name));
    for name in deciding.into_iter().chain(usual) {
        if let Some(metric) = attempt.metrics.get(name)
            && let Some(value) = metric.value
        {
            words.push(format!("{name} {}", report::mean_text(value, None, &metric.unit)));
        }
    }
    if let Some(seconds) = attempt.metric("wall_time") {
        words.push(format!("in {}", report::duration(seconds)));
    }
    if let Some(reason) = attempt.outcome.reason() {
        words.push(format!("({reason})"));
    }
    let disturbed = attempt.disturbances();
    if attempt.outcome == Outcome::Finished && !disturbed.is_empty() {
        words.push(format!("(times and energies are tainted: {})", disturbed.join("; ")));
    }
    words.join(" ")
}

impl Watch for Watcher {
    fn see(&self, seen: Seen<'_>) {
        match seen {
            Seen::Begun(bound) => {
                let bar = self.progress.begin(&bound.run.id.0.prefix(8), &label(bound));
                self.bars.lock().unwrap_or_else(PoisonError::into_inner).insert(bound.run.id, bar);
            }
            Seen::Event(run, event) => self.with_bar(run, |bar| match &event.kind {
                EventKind::Plan { steps, .. } => bar.plan(*steps),
                EventKind::Step { step, values, .. } => {
                    let loss = values.iter().find(|(name, _)| name == "loss").map(|(_, value)| *value);
                    bar.step(*step, loss);
                }
                EventKind::Status { message } => bar.message(message),
                _ => {}
            }),
            Seen::Output(..) => {}
            Seen::Ended(bound, executed) => self.end(bound, &result_line(bound, executed)),
            Seen::Troubled(bound, error) => self.end(bound, &with_holders(error)),
            Seen::Elsewhere(bound) => {
                self.say(bound, "another process executes it, or has set its GPU; waiting");
            }
            Seen::Cooling(bound, hottest) => self.say(bound, &format!("waits for a GPU of {hottest} °C to cool")),
            Seen::Unread(bound) => {
                let whose = if bound.gpus.is_empty() { "the machine" } else { "NVML" };
                self.say(bound, &format!("still waits for {whose}'s first readings"));
            }
            Seen::Recovered(id) => self.progress.say(&format!("sealed {}, which was left behind", id.0.prefix(8))),
        }
    }
}

/// How long a worker may take to stop after SIGTERM: whoever sends that kills soon, Slurm after 30 s where a site says nothing else.
pub(super) const AFTER_TERM: Duration = Duration::from_secs(20);

/// Ctrl-C and SIGTERM.
pub(super) struct Interruption {
    signals: Mutex<Interrupts>,
    /// When SIGTERM was seen first.
    terminated: OnceLock<Instant>,
}

impl Interruption {
    pub(super) fn install() -> Result<Self, Failure> {
        let signals = Interrupts::install()
            .map_err(|error| Failure::new(exit::FAILED, format!("cannot listen for Ctrl-C: {error}")))?;
        Ok(Self { signals: Mutex::new(signals), terminated: OnceLock::new() })
    }
}

impl Stop for Interruption {
    fn asked(&self) -> u32 {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner).count()
    }

    fn time_left(&self) -> Option<Duration> {
        let terminated = self.signals.lock().unwrap_or_else(PoisonError::into_inner).terminated();
        terminated.then(|| AFTER_TERM.saturating_sub(self.terminated.get_or_init(Instant::now).elapsed()))
    }
}
