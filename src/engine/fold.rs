//! Turns the entries of a journal into what is sealed. The one way there is, for attempts that ended well and for those whose
//! supervisor died.

use super::said::{self, End};
use crate::analysis::{Bounds, Observed, Timed, lay_out};
use crate::host::secrets::{cleaned, redacted, without_known};
use crate::record::{
    Attempt, Axis, Digest, Entry, Event, EventKind, Metric, Nonce, Outcome, Phase, PhaseEdge, Run, Sample, Sealed,
    Series, Table, Tail, Value, known_metric,
};
use crate::wire::write_event;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// More series than this one attempt does not have; a worker that names a new one at each step would.
const MAX_SERIES: usize = 1000;
/// A day of steps of a tenth of a second; beyond, steps are points of series and no phases.
const MAX_STEP_PHASES: usize = 1_000_000;
const TAIL_EVENTS: usize = 20;
const REJECTED_SHOWN: usize = 3;
/// By no more than this an event comes after the worker's end.
const STAMPED_LATER_NS: u64 = 1_000_000_000;

/// Folds the entries of an attempt. None if it was never opened.
///
/// `lost` says why nobody saw the end, for a journal that has no [`Entry::Ended`]; `torn_bytes` are those that followed its last
/// good entry.
pub fn fold(entries: &[Entry], lost: &str, torn_bytes: u64) -> Option<Sealed> {
    let (opened, rest) = entries.split_first()?;
    let mut fold = Fold::open(opened)?;
    rest.iter().for_each(|entry| fold.take(entry));
    Some(fold.seal(lost, torn_bytes))
}

/// What an attempt's entries came to so far: an attempt of days has millions, and none is kept.
pub(super) struct Fold {
    run: Run,
    nonce: Nonce,
    settings: Table,
    facts: Table,
    started_unix_ms: i64,
    folding: Folding,
}

impl Fold {
    /// Begins with the first entry of a journal. None if that is not [`Entry::Opened`].
    pub(super) fn open(opened: &Entry) -> Option<Self> {
        let Entry::Opened { nonce, run, settings, facts, started_unix_ms, started_ns, .. } = opened else {
            return None;
        };
        let mut folding = Folding { started_ns: *started_ns, last_ns: *started_ns, ..Folding::default() };
        folding.observed.gpus = run.config().get("hardware.gpus").and_then(Value::as_int).map_or(0, gpu_count);
        folding.observed.bounds = Bounds::of(run.config(), settings);
        folding.observed.telemetry_hz = settings.get("telemetry.hz").and_then(Value::as_float);
        Some(Self {
            run: (**run).clone(),
            nonce: *nonce,
            settings: settings.clone(),
            facts: facts.clone(),
            started_unix_ms: *started_unix_ms,
            folding,
        })
    }

    /// Takes the next entry.
    pub(super) fn take(&mut self, entry: &Entry) {
        self.folding.take(entry);
    }

    /// Why the worker said that it failed, if it did.
    pub(super) fn failure(&self) -> Option<&str> {
        self.folding.failure.as_deref()
    }

    /// What the worker said when a signal was about to end it.
    pub(super) fn last_words(&self) -> Option<&str> {
        self.folding.facts.get("worker.last_words")?.as_str()
    }

    /// The last line that the worker wrote to its standard error.
    pub(super) fn last_stderr_line(&self) -> Option<String> {
        let text = self.folding.stderr.text();
        // What Rust's programs say after the cause is no cause.
        let says = |line: &&str| !line.trim().is_empty() && !line.starts_with("note: run with `RUST_BACKTRACE");
        text.lines().rev().find(says).map(|line| line.trim().chars().take(300).collect())
    }

    /// What is sealed. `lost` and `torn_bytes` as in [`fold`].
    pub(super) fn seal(self, lost: &str, torn_bytes: u64) -> Sealed {
        let Self { run, nonce, settings, mut facts, started_unix_ms, mut folding } = self;
        let started_ns = folding.started_ns;
        let Folding { mut observed, mut metrics, digests, series, mut warnings, rejected, rejected_count, .. } =
            folding;
        if !observed.phases.iter().any(|phase| phase.name == "step") {
            lay_out(&mut folding.step_phases);
            observed.phases.append(&mut folding.step_phases);
        }
        observed.phases.sort_by_key(|phase| (phase.start_ns, phase.rank));
        observed.wall_ns = folding.ended_ns.unwrap_or(folding.last_ns).saturating_sub(started_ns);
        observed.ended = folding.ended_ns.is_some();
        facts.append(&mut folding.facts);
        // Whoever told them, a token is in none; of what stands in a worker's words the names were heeded before.
        facts = facts.into_iter().map(|(name, value)| (name, cleaned(&value, &without_known))).collect();
        observed.complete(&mut metrics, &mut facts, &mut warnings);
        warnings.extend(longer_than_the_attempt(&observed));
        warnings.extend(after_the_end(&observed));
        if let Some((first, count)) = folding.backwards {
            let more = and_more(count - 1);
            warnings.push(format!(
                "phase {first}{more} was stopped before it was started, by its `t_ns`, and counts as of no length"
            ));
        }
        for (name, missing) in folding.unfit {
            let reason = missing.reason.as_deref().unwrap_or_default();
            warnings.push(format!("{reason} (state it so, or under a name of its own)"));
            if metrics.get(&name).is_none_or(|measured| measured.value.is_none()) {
                metrics.insert(name, missing);
            }
        }
        if rejected_count > 0 {
            warnings
                .push(format!("{rejected_count} lines of the worker's events are no events: {}", rejected.join("; ")));
        }
        if torn_bytes > 0 {
            warnings.push(format!("the last {torn_bytes} bytes of the journal were torn and are lost"));
        }
        let outcome = match (folding.outcome, folding.failure) {
            (Some(Outcome::Finished), Some(reason)) => Outcome::Failed { reason },
            (Some(outcome), _) => outcome,
            (None, _) => Outcome::Interrupted { reason: lost.to_owned() },
        };
        let tail = if outcome == Outcome::Finished {
            Tail::default()
        } else {
            let events = folding.last_events.iter().map(|line| without_known(line)).collect();
            Tail { stderr: folding.stderr.text(), stdout: folding.stdout.text(), events }
        };
        let mut series = series;
        for (name, readings) in observed.telemetry {
            if series.insert(name.clone(), readings).is_some() {
                warnings.push(format!(
                    "the worker's series `{name}` has the name of a reading of the hardware, and was dropped"
                ));
            }
        }
        let mut series: Vec<Series> = series.into_values().collect();
        series.iter_mut().for_each(in_order);
        let attempt = Attempt {
            run: run.id,
            nonce,
            started_unix_ms,
            wall_ns: observed.wall_ns,
            outcome,
            exit: folding.exit,
            metrics,
            digests,
            settings,
            facts,
            warnings,
            tail,
            series: series.iter().map(Series::summary).collect(),
            phases: Phase::digest_all(&observed.phases),
        };
        Sealed { run, attempt, series, phases: observed.phases }
    }
}

/// What to warn of where steps are stated to have taken longer than there was time for: most likely in another unit.
fn longer_than_the_attempt(observed: &Observed) -> Option<String> {
    let stated = observed.steps.iter().filter_map(|step| step.duration_ns).fold(0, u64::saturating_add);
    let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
    (stated > observed.wall_ns.saturating_add(observed.wall_ns / 100)).then(|| {
        format!(
            "the steps are stated to have taken {:.3} s together, and the attempt took {:.3} s: times and energies that follow from them are wrong (`duration_ns` is of one step, in nanoseconds)",
            seconds(stated),
            seconds(observed.wall_ns)
        )
    })
}

/// What to warn of where phases begin after the end that the supervisor saw. A line that has no time of its own is stamped a little later.
fn after_the_end(observed: &Observed) -> Option<String> {
    let end_ns = observed.wall_ns.saturating_add(STAMPED_LATER_NS);
    let mut late = observed.phases.iter().filter(|phase| phase.start_ns > end_ns);
    let first = late.next()?;
    let (name, index, more) = (&first.name, first.index, and_more(late.count()));
    Some(format!(
        "phase `{name}` {index}{more} began after the attempt's end (`t_ns` is of CLOCK_MONOTONIC, in nanoseconds)"
    ))
}

fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(", as {count} more,") }
}

fn gpu_count(gpus: i64) -> u32 {
    u32::try_from(gpus).unwrap_or(0)
}

#[derive(Default)]
struct Folding {
    started_ns: u64,
    last_ns: u64,
    ended_ns: Option<u64>,
    observed: Observed,
    open: Vec<usize>,
    /// The first phase that was stopped before it was started, and how many were.
    backwards: Option<(String, usize)>,
    step_phases: Vec<Phase>,
    facts: Table,
    metrics: BTreeMap<String, Metric>,
    /// Why known metrics are missing that were stated in a unit of something else.
    unfit: BTreeMap<String, Metric>,
    digests: BTreeMap<String, Digest>,
    series: BTreeMap<String, Series>,
    warnings: Vec<String>,
    rejected: Vec<String>,
    rejected_count: usize,
    failure: Option<String>,
    outcome: Option<Outcome>,
    exit: Option<crate::record::Exit>,
    stderr: End,
    stdout: End,
    last_events: VecDeque<String>,
}

impl Folding {
    fn take(&mut self, entry: &Entry) {
        match entry {
            Entry::Opened { .. } | Entry::Started { .. } => {}
            Entry::Event(event) => self.event(event),
            Entry::Rejected { line, reason } => {
                self.rejected_count += 1;
                if self.rejected.len() < REJECTED_SHOWN {
                    self.rejected.push(redacted(&format!("`{line}` ({reason})")));
                }
            }
            Entry::Stderr(text) => self.stderr.push(text),
            Entry::Stdout(text) => self.stdout.push(text),
            Entry::Sample(sample) => self.sample(sample),
            Entry::Unread { source, quantity, reason } => {
                let name = format!("telemetry.unread.{}", source.series(*quantity));
                self.facts.insert(name, reason.as_str().into());
            }
            Entry::Fact { name, value } => {
                self.facts.insert(name.clone(), value.clone());
            }
            Entry::Warning(text) => self.warnings.push(text.clone()),
            Entry::Ended { outcome, exit, ended_ns, cpu_ns } => {
                self.outcome = Some(outcome.clone());
                self.exit = *exit;
                self.ended_ns = Some(*ended_ns);
                self.observed.cpu_ns = *cpu_ns;
            }
        }
    }

    fn event(&mut self, event: &Event) {
        let event = &*said::clean(event);
        self.last_ns = self.last_ns.max(event.t_ns);
        if self.last_events.len() == TAIL_EVENTS {
            self.last_events.pop_front();
        }
        let mut line = Vec::new();
        write_event(event, &mut line);
        self.last_events.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
        match &event.kind {
            EventKind::Plan { samples_per_step, .. } => self.observed.samples_per_step = Some(*samples_per_step),
            EventKind::Phase { name, index, edge } => self.phase(event, name, *index, *edge),
            EventKind::Step { step, duration_ns, values } => {
                for (name, value) in values {
                    self.point(name, "", *step, *value, event.rank);
                }
                if let Some(duration_ns) = duration_ns {
                    #[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days")]
                    self.point("step_duration", "ns", *step, *duration_ns as f64, event.rank);
                    self.step_phase(event, *step, *duration_ns);
                }
                let loss = values.iter().find(|(name, _)| name == "loss").map(|(_, loss)| *loss);
                if event.rank == 0 && (duration_ns.is_some() || loss.is_some()) {
                    let t_ns = event.t_ns.saturating_sub(self.started_ns);
                    self.observed.steps.push(Timed { step: *step, t_ns, duration_ns: *duration_ns });
                    self.observed.last_loss = loss.or(self.observed.last_loss);
                }
            }
            EventKind::Metric { name, value, unit } => self.metric(name, Metric::new(*value, unit.clone())),
            EventKind::Digest { name, digest } => {
                self.digests.insert(name.clone(), *digest);
            }
            EventKind::Fact { name, value } => {
                self.facts.insert(format!("worker.{name}"), value.clone());
            }
            EventKind::Status { .. } => {}
            EventKind::Failure { message } => {
                self.failure.get_or_insert_with(|| message.clone());
            }
        }
    }

    /// A known metric is kept in its own unit. One that does not fit is left to what is measured.
    fn metric(&mut self, name: &str, stated: Metric) {
        let Some(known) = known_metric(name) else {
            self.metrics.insert(name.to_owned(), stated);
            return;
        };
        match known.standard(&stated) {
            Some(metric) => {
                self.unfit.remove(name);
                self.metrics.insert(name.to_owned(), metric);
            }
            None => {
                let own =
                    if known.unit.is_empty() { "a pure number".to_owned() } else { format!("in `{}`", known.unit) };
                // It stands nowhere else.
                let value = stated.value.unwrap_or(f64::NAN);
                let reason = format!("the worker states `{name}` as {value:?} `{}`, and it is {own}", stated.unit);
                self.metrics.remove(name);
                self.unfit.insert(name.to_owned(), Metric::missing(known.unit, reason));
            }
        }
    }

    fn phase(&mut self, event: &Event, name: &str, index: u64, edge: PhaseEdge) {
        let at_ns = event.t_ns.saturating_sub(self.started_ns);
        let phases = &mut self.observed.phases;
        if edge == PhaseEdge::Start {
            self.open.push(phases.len());
            let name = name.to_owned();
            phases.push(Phase { name, index, rank: event.rank, start_ns: at_ns, stop_ns: None });
            return;
        }
        let is_this = |at: &&usize| {
            let phase = &phases[**at];
            phase.name == name && phase.index == index && phase.rank == event.rank
        };
        match self.open.iter().rev().find(is_this).copied() {
            Some(at) => {
                phases[at].stop_ns = Some(at_ns);
                if at_ns < phases[at].start_ns {
                    let (_, count) = self.backwards.get_or_insert_with(|| (format!("`{name}` {index}"), 0));
                    *count += 1;
                }
                self.open.retain(|open| *open != at);
            }
            None => self.warnings.push(format!("phase `{name}` {index} was stopped but never started")),
        }
    }

    fn step_phase(&mut self, event: &Event, step: u64, duration_ns: u64) {
        if self.step_phases.len() < MAX_STEP_PHASES {
            let stop_ns = event.t_ns.saturating_sub(self.started_ns);
            let start_ns = stop_ns.saturating_sub(duration_ns);
            let stop_ns = Some(stop_ns);
            self.step_phases.push(Phase { name: "step".to_owned(), index: step, rank: event.rank, start_ns, stop_ns });
        }
    }

    /// Readings from before the attempt began are of no window of it: what they counted would be its own.
    fn sample(&mut self, sample: &Sample) {
        let started_ns = self.started_ns;
        let mut put = |name: String, unit: &str, t_ns: u64, value: f64| {
            let Some(position) = t_ns.checked_sub(started_ns) else { return };
            let telemetry = &mut self.observed.telemetry;
            let series =
                telemetry.entry(name).or_insert_with_key(|name| Series::new(name.as_str(), unit, Axis::TimeNs));
            series.push(position, value);
        };
        for reading in &sample.readings {
            put(sample.source.series(reading.quantity), reading.quantity.unit(), reading.t_ns, reading.value);
        }
        #[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days")]
        put(sample.source.read_time_series(), "ns", sample.t_ns, sample.cost_ns as f64);
        self.last_ns = self.last_ns.max(sample.t_ns);
    }

    fn point(&mut self, name: &str, unit: &str, step: u64, value: f64, rank: u32) {
        let name = if rank == 0 { name.to_owned() } else { format!("{name}.{rank}") };
        if name.is_empty() {
            return;
        }
        if self.series.len() >= MAX_SERIES && !self.series.contains_key(&name) {
            let warning = format!("the worker names more than {MAX_SERIES} series; further ones are dropped");
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
            return;
        }
        let series = self.series.entry(name).or_insert_with_key(|name| Series::new(name.as_str(), unit, Axis::Step));
        series.push(step, value);
    }
}

/// Workers report in order; one that does not gets its points sorted.
fn in_order(series: &mut Series) {
    if series.positions.is_sorted() {
        return;
    }
    let mut points: Vec<(u64, f64)> = series.positions.drain(..).zip(series.values.drain(..)).collect();
    points.sort_by_key(|(position, _)| *position);
    points.into_iter().for_each(|(position, value)| series.push(position, value));
}
