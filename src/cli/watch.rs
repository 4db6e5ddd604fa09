//! Shows the progress of a sweep, and handles Ctrl-C.

use super::failure::{Failure, exit, with_holders};
use crate::engine::{
    Bound, Executed, FIRST_REJECTED, IMPOSSIBLE, Launch, REJECTED, Seen, Stop, Watch, is_of_left_processes,
    is_of_program,
};
use crate::host::signals::Interrupts;
use crate::host::terminal;
use crate::manifest::PATTERNS;
use crate::record::{Attempt, EventKind, Outcome, RunId};
use crate::report::{self, Bar, Progress};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The line width in characters if the terminal does not report one.
const LONGEST_LINE: usize = 200;
/// The least width in characters for a reason. A narrower one is printed only at the end.
const LEAST_REASON: usize = 20;
/// The note on programs that report nothing.
const NO_EVENTS: &str = "note: the program wrote no events, so only its time, output and hardware are recorded (write to the file that $LEDGER_EVENTS names, or give [program.metrics])";
/// Turns the engine's events into progress bars and lines.
pub(super) struct Watcher {
    progress: Progress,
    /// The fields in which the runs differ.
    axes: Vec<String>,
    bars: Mutex<HashMap<RunId, Bar>>,
    /// Messages that are printed once at the end, with their runs. Texts that differ only in their numbers are one message.
    last: Mutex<BTreeMap<String, Vec<(RunId, String)>>>,
    /// Runs whose workers have written events so far.
    speaking: Mutex<HashSet<RunId>>,
    /// The number of attempts.
    attempts: usize,
    /// Set once an attempt lacked the objective.
    is_objective_missed: OnceLock<()>,
}

impl Watcher {
    /// Watches this number of attempts of runs that differ in these fields.
    pub(super) fn new(attempts: usize, axes: &[String]) -> Self {
        let progress = Progress::new(u64::try_from(attempts).unwrap_or(u64::MAX), terminal::stderr_columns());
        Self {
            progress,
            axes: axes.to_owned(),
            bars: Mutex::default(),
            last: Mutex::default(),
            speaking: Mutex::default(),
            attempts,
            is_objective_missed: OnceLock::new(),
        }
    }

    /// Like [`new`](Self::new), for a search, which has an objective of its own.
    pub(super) fn of_search(attempts: usize, axes: &[String]) -> Self {
        Self { is_objective_missed: OnceLock::from(()), ..Self::new(attempts, axes) }
    }

    /// Removes the bars, and prints messages that were too long for a line or apply to many attempts.
    pub(super) fn finish(&self) {
        self.progress.finish();
        let last = std::mem::take(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner));
        for of_runs in last.into_values() {
            let Some((run, text)) = of_runs.first() else { continue };
            let more = match of_runs.len() - 1 {
                0 => String::new(),
                more if of_runs.iter().all(|(_, other)| other == text) => format!(" and {more} more"),
                more => format!(" and {more} more, with other numbers"),
            };
            self.progress.say(&format!("{}{more}: {text}", run.0.prefix(8)));
        }
    }

    fn remember(&self, run: RunId, text: String) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.entry(without_numbers(&text)).or_default().push((run, text));
    }

    /// Returns a reason cut to the rest of its run's line. One that is too long is printed in full at the end.
    fn short(&self, run: RunId, reason: &str, before: usize) -> Option<String> {
        let room = self.progress.width().unwrap_or(LONGEST_LINE).saturating_sub(before);
        let line = report::plain(reason);
        if line.chars().count() <= room {
            return Some(reason.to_owned());
        }
        self.remember(run, reason.to_owned());
        (room >= LEAST_REASON).then(|| report::fitted(&line, Some(room)))
    }

    fn line(&self, bound: &Bound, text: &str) -> String {
        format!("{} {}: {text}", bound.run.id.0.prefix(8), self.label(bound))
    }

    /// Returns the run's label: the fields in which the runs differ, including the seed, or else its model and parameters.
    fn label(&self, bound: &Bound) -> String {
        // The id, the numbers and the bar need the other half.
        let room = self.progress.width().map(|width| (width / 2).saturating_sub(9));
        if self.axes.is_empty() {
            report::fitted(&label(bound), room)
        } else {
            report::axes_label(&bound.cell, &self.axes, room)
        }
    }

    /// Warns at the first attempt without the objective, because the sweep cannot be ranked.
    fn tell_objective(&self, bound: &Bound, attempt: &Attempt) {
        let Some(metric) = bound.cell.text("objective.metric").filter(|_| self.attempts > 1) else { return };
        let is_finished = attempt.outcome == Outcome::Finished;
        let fault = match attempt.metric(metric) {
            None => format!("no value of `{metric}`"),
            Some(value) if !value.is_finite() => format!("`{metric}` is {value}"),
            Some(_) => return,
        };
        if is_finished && self.is_objective_missed.set(()).is_ok() {
            let id = bound.run.id.0.prefix(8);
            let text = format!("{fault}, which is the objective; this may be so in other attempts");
            self.progress.say(&format!("warning: {id}: {text} (`ledger show {id}` lists its metrics)"));
        }
    }

    /// Collects notes on an attempt. Each is printed once for all attempts that it applies to.
    fn note(&self, bound: &Bound, attempt: &Attempt) {
        let run = bound.run.id;
        let is_silent = !self.speaking.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
        if is_silent
            && !attempt.facts.contains_key(REJECTED)
            && bound.launch != Launch::Trainer
            && !bound.cell.settings.contains_key(PATTERNS)
            && attempt.outcome == Outcome::Finished
        {
            self.remember(run, NO_EVENTS.to_owned());
        }
        if let (Some(count), Some(first)) = (attempt.facts.get(REJECTED), attempt.facts.get(FIRST_REJECTED)) {
            let lines = if count.as_int() == Some(1) { "line is not an event" } else { "lines are not events" };
            self.remember(run, format!("warning: {count} {lines}; the first: {first}"));
        }
        let is_told = |warning: &&String| {
            [PATTERNS, IMPOSSIBLE].iter().any(|begin| warning.starts_with(begin))
                || is_of_program(warning)
                || is_of_left_processes(warning)
        };
        // In a failed attempt, the reason covers its warnings.
        let warnings = attempt.warnings.iter().filter(|_| attempt.outcome == Outcome::Finished);
        for warning in warnings.filter(is_told) {
            self.remember(run, format!("warning: {warning}"));
        }
    }

    fn say(&self, bound: &Bound, text: &str) {
        self.progress.say(&self.line(bound, text));
    }

    fn end(&self, bound: &Bound, text: &str) {
        self.progress.end(self.take_bar(bound.run.id).as_ref(), &self.line(bound, text));
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

/// Replaces each number by one mark.
fn without_numbers(text: &str) -> String {
    let mut masked = String::new();
    for c in text.chars() {
        if !c.is_ascii_digit() {
            masked.push(c);
        } else if !masked.ends_with('#') {
            masked.push('#');
        }
    }
    masked
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

fn result_line(bound: &Bound, executed: &Executed, short: impl Fn(&str, usize) -> Option<String>) -> String {
    let attempt = &executed.attempt;
    let mut words = vec![attempt.outcome.name().to_owned()];
    let usual = ["accuracy", "mean_return", "perplexity", "loss"];
    let deciding = bound.cell.text("objective.metric").filter(|name| !usual.contains(name));
    let own = report::own_metrics(&bound.cell, attempt).filter(|name| deciding != Some(*name));
    for name in deciding.into_iter().chain(usual).chain(own) {
        if let Some(metric) = attempt.metrics.get(name)
            && let Some(value) = metric.value
        {
            words.push(format!("{name} {}", report::mean_text(value, None, &metric.unit)));
        }
    }
    if let Some(seconds) = attempt.metric("wall_time") {
        words.push(format!("in {}", report::duration(seconds)));
    }
    let before = words.join(" ").chars().count();
    let disturbed = attempt.disturbances();
    if let Some(reason) = attempt.outcome.reason() {
        words.extend(short(reason, before).map(|reason| format!("({reason})")));
    } else if attempt.outcome == Outcome::Finished && !disturbed.is_empty() {
        let tainted = format!("times and energies are tainted: {}", disturbed.join("; "));
        words.push(format!("({})", short(&tainted, before).unwrap_or_else(|| "tainted".to_owned())));
    }
    words.join(" ")
}

impl Watch for Watcher {
    fn see(&self, seen: Seen<'_>) {
        match seen {
            Seen::Begun(bound) => {
                let bar = self.progress.begin(&bound.run.id.0.prefix(8), &self.label(bound));
                self.bars.lock().unwrap_or_else(PoisonError::into_inner).insert(bound.run.id, bar);
            }
            Seen::Event(run, event) => {
                self.speaking.lock().unwrap_or_else(PoisonError::into_inner).insert(run);
                self.with_bar(run, |bar| match &event.kind {
                    EventKind::Plan { steps, .. } => bar.plan(*steps),
                    EventKind::Step { step, values, .. } => {
                        let loss = values.iter().find(|(name, _)| name == "loss").map(|(_, value)| *value);
                        bar.step(*step, loss);
                    }
                    EventKind::Status { message } => bar.message(message),
                    _ => {}
                });
            }
            Seen::Output(..) | Seen::Attached(..) => {}
            Seen::Ended(bound, executed) => {
                let run = bound.run.id;
                // The id and the label precede it.
                let head = self.line(bound, "").chars().count() + 3;
                let text = result_line(bound, executed, |reason, before| self.short(run, reason, head + before));
                self.end(bound, &text);
                self.tell_objective(bound, &executed.attempt);
                self.note(bound, &executed.attempt);
            }
            Seen::Troubled(bound, error) => self.end(bound, &with_holders(error)),
            Seen::Elsewhere(bound) => {
                let or_gpu = if bound.gpus.is_empty() { "" } else { ", or has changed its GPU's settings" };
                self.say(bound, &format!("another process executes it{or_gpu}; waiting"));
            }
            Seen::Cooling(bound, hottest) => self.say(bound, &format!("waits for a GPU of {hottest} °C to cool")),
            Seen::Unread(bound) => {
                let whose = if bound.gpus.is_empty() { "the machine" } else { "NVML" };
                self.say(bound, &format!("still waits for the first samples of {whose}"));
            }
            Seen::Recovered(id) => self.progress.say(&format!("sealed {}, which was abandoned", id.0.prefix(8))),
        }
    }
}

/// The time that a worker has to stop after SIGTERM. Its senders kill soon after: Slurm by default after 30 s.
pub(super) const AFTER_TERM: Duration = Duration::from_secs(20);

/// Ctrl-C and SIGTERM.
pub(super) struct Interruption {
    signals: Mutex<Interrupts>,
    /// When SIGTERM was first seen.
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
