//! Finalizes an attempt: makes its record from the entries of its journal. The same code serves attempts that ended
//! normally and those whose supervisor died.

mod folded;
mod invalid;
mod others;
mod points;
mod times;

pub use self::folded::Folded;

pub use self::invalid::IMPOSSIBLE;
use self::invalid::invalidate;
use self::others::Others;
use self::points::{Readings, Told, named};
use self::times::{after_the_end, and_more, disturb, longer_than_the_attempt};
use super::kept::{
    Dropped, MAX_FACT_BYTES, MAX_NAME_BYTES, MAX_NAMES, MAX_PHASES, MAX_POINTS, MAX_SERIES, MAX_STEPS, MAX_WARNINGS,
    Surplus, cut, fit_phases, fit_series, most_phases, quoted, weight,
};
use super::output::Output;
use super::said::{self, End};
use crate::analysis::{Bounds, Observed, Timed, gpus_of, lay_out, samples_of_a_pass, share_for_percent};
use crate::gpu::is_out_of_memory;
use crate::host::secrets::{cleaned, redacted, without_known};
use crate::journal::{SidePart, Spill};
use crate::record::{
    Attempt, Axis, Digest, Entry, Event, EventKind, Metric, Nonce, Outcome, Phase, PhaseEdge, Run, Sample, Stream,
    Table, Tail, Value, count, known_metric,
};
use crate::wire::{ChunkError, encode_phases, write_event};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::Path;

const TAIL_EVENTS: usize = 20;
const REJECTED_SHOWN: usize = 3;
/// The fact with the number of the worker's lines that are not events.
pub const REJECTED: &str = "events.rejected";
/// The fact with the first of these lines and the reason.
pub const FIRST_REJECTED: &str = "events.first_rejected";

/// The state folded from an attempt's entries so far. Entries are not kept: an attempt of several days has millions.
pub(super) struct Fold {
    run: Run,
    nonce: Nonce,
    settings: Table,
    facts: Table,
    started_unix_ms: i64,
    folding: Folding,
}

impl Fold {
    /// Begins with the first entry of a journal. `None` if that is not [`Entry::Opened`].
    pub(super) fn open(opened: &Entry) -> Option<Self> {
        let Entry::Opened { nonce, run, settings, facts, started_unix_ms, started_ns, .. } = opened else {
            return None;
        };
        let mut folding = Folding { started_ns: *started_ns, last_ns: *started_ns, ..Folding::default() };
        folding.observed.gpus = gpus_of(run);
        folding.observed.bounds = Bounds::of(run.config(), settings);
        folding.observed.samples_of_a_pass = samples_of_a_pass(run);
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

    /// Stores the points of series in a file beside this journal once they are many.
    pub(super) fn spilling_beside(mut self, journal: &Path) -> Self {
        self.folding.spill = Spill::beside(journal);
        self
    }

    /// Adds the entries of the journal's side files.
    pub(super) fn take_side(&mut self, side: &[SidePart]) {
        for part in side {
            self.folding.output.had(part.before);
            part.entries.iter().for_each(|entry| self.take(entry));
        }
    }

    /// Adds the next entry.
    pub(super) fn take(&mut self, entry: &Entry) {
        self.folding.take(entry);
    }

    /// The nonce of the execution.
    pub(super) fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// The failure that the worker reported, if any.
    pub(super) fn failure(&self) -> Option<&str> {
        self.folding.failure.as_deref()
    }

    /// The worker's last message before a signal ended it, if any.
    pub(super) fn last_words(&self) -> Option<&str> {
        self.folding.facts.get("worker.last_words")?.as_str()
    }

    /// The last line of the worker's standard error, preceded by the exception if it ends with a Python traceback.
    pub(super) fn last_stderr_line(&self) -> Option<String> {
        let text = self.folding.stderr.text();
        // Rust programs print this note after the cause.
        let says = |line: &&str| !line.trim().is_empty() && !line.starts_with("note: run with `RUST_BACKTRACE");
        let last = text.lines().rev().find(says)?.trim();
        let told = match said::exception(&text) {
            Some(exception) if exception != last => format!("{exception} … {last}"),
            _ => last.to_owned(),
        };
        Some(told.chars().take(300).collect())
    }

    /// Makes the record. For a journal without [`Entry::Ended`], `lost` is the reason for the missing end. `torn_bytes` is the
    /// number of bytes after the last good entry.
    ///
    /// # Errors
    /// If points cannot be read from the file beside the journal.
    pub(super) fn seal(self, lost: &str, torn_bytes: u64) -> Result<Folded, ChunkError> {
        let Self { run, nonce, settings, mut facts, started_unix_ms, mut folding } = self;
        folding.hear_others();
        let started_ns = folding.started_ns;
        let Folding { mut observed, mut metrics, digests, mut warnings, rejected, rejected_count, mut spill, .. } =
            folding;
        let mut series = named(folding.series, &mut folding.dropped);
        if !observed.phases.iter().any(|phase| phase.name == "step") {
            lay_out(&mut folding.step_phases);
            observed.phases.append(&mut folding.step_phases);
            folding.step_phases = Vec::new();
        }
        observed.phases.sort_by_key(|phase| (phase.start_ns, phase.rank));
        warnings.extend(folding.dropped.warnings());
        observed.wall_ns = folding.ended_ns.unwrap_or(folding.last_ns).saturating_sub(started_ns);
        observed.ended = folding.ended_ns.is_some();
        facts.append(&mut folding.facts);
        // Removes secrets from all facts. Those of the worker were also checked by their names before.
        facts = facts.into_iter().map(|(name, value)| (name, cleaned(&value, &without_known))).collect();
        let output = folding.output.seal();
        facts.extend(output.iter().flat_map(|kept| kept.facts.to_facts()));
        let stated: BTreeSet<String> = metrics.keys().cloned().collect();
        let given = Readings::of(&folding.telemetry, &spill);
        observed.complete(&given, &mut metrics, &mut facts, &mut warnings);
        given.check()?;
        invalidate(&stated, &metrics, &mut facts, &mut warnings);
        warnings.extend(folding.units_in_doubt.into_values());
        if let Some((text, is_certain)) = longer_than_the_attempt(&observed) {
            if is_certain {
                disturb(&mut facts, "steps longer than the attempt");
            }
            warnings.push(text);
        }
        warnings.extend(after_the_end(&observed));
        warnings.extend(said::lost_events(&facts));
        if let Some((first, count)) = folding.backwards {
            let more = and_more(count - 1);
            warnings.push(format!(
                "phase {first}{more} was stopped before it was started, by its `t_ns`, and counts with length 0"
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
            let all = match rejected_count {
                1 => "1 line of the worker's events is not an event".to_owned(),
                many => format!("{many} lines of the worker's events are not events"),
            };
            warnings.push(format!("{all}: {}", rejected.join("; ")));
            facts.insert(REJECTED.to_owned(), rejected_count.into());
            facts.extend(rejected.into_iter().next().map(|first| (FIRST_REJECTED.to_owned(), first.into())));
        }
        if torn_bytes > 0 {
            warnings.push(format!("the end of the journal was torn, which lost {}", count(torn_bytes, "byte")));
        }
        let outcome = match (folding.outcome, folding.failure) {
            (Some(Outcome::Finished), Some(reason)) => Outcome::Failed { reason },
            (Some(outcome), _) => outcome,
            (None, _) => Outcome::Interrupted { reason: lost.to_owned() },
        };
        if let Outcome::Failed { reason } = &outcome
            && (is_out_of_memory(reason) || is_out_of_memory(&folding.stderr.text()))
        {
            facts.insert(Attempt::FAILURE.to_owned(), Attempt::OUT_OF_MEMORY.into());
        }
        let tail = if outcome == Outcome::Finished {
            Tail::default()
        } else {
            let events = folding.last_events.iter().map(|event| cut(without_known(&line_of(event)))).collect();
            Tail { stderr: folding.stderr.text(), stdout: folding.stdout.text(), events }
        };
        drop(observed.steps);
        for (name, readings) in folding.telemetry {
            if series.insert(name.clone(), readings).is_some() {
                warnings
                    .push(format!("the worker's series `{name}` has the name of a hardware series, and was dropped"));
            }
        }
        let (mut summaries, mut chunks) = (Vec::new(), BTreeMap::new());
        for (name, told) in series {
            let fitted = fit_series((&name, told.unit, told.axis), &spill.points(&told.points))?;
            drop(told);
            summaries.push(fitted.summary);
            warnings.extend(fitted.warning);
            chunks.insert(name, spill.keep(fitted.bytes));
        }
        warnings.extend(fit_phases(&mut observed.phases));
        chunks.insert(String::new(), spill.keep(encode_phases(&observed.phases)?));
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
            series: summaries,
            phases: Phase::digest_all(&observed.phases),
        };
        Ok(Folded { run, attempt, output: output.map(|kept| kept.source), chunks, spill })
    }
}

fn line_of(event: &Event) -> String {
    let mut line = Vec::new();
    write_event(event, &mut line);
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

#[derive(Default)]
struct Folding {
    started_ns: u64,
    last_ns: u64,
    ended_ns: Option<u64>,
    observed: Observed,
    /// The first phase that was stopped before it was started, and the number of such phases.
    backwards: Option<(String, usize)>,
    /// The indices of open phases, by rank, index and name. The last one is stopped first.
    open: HashMap<(u32, u64, String), Vec<usize>>,
    phase_names: BTreeSet<String>,
    step_phases: Vec<Phase>,
    facts: Table,
    metrics: BTreeMap<String, Metric>,
    /// Known metrics that are missing because they were stated in a unit of another quantity, with the reason.
    unfit: BTreeMap<String, Metric>,
    /// Warnings for known metrics whose values look as if they had another unit.
    units_in_doubt: BTreeMap<String, String>,
    digests: BTreeMap<String, Digest>,
    others: Others,
    /// The rank whose plan is kept.
    planner: Option<u32>,
    /// By rank, and by the name within the rank.
    series: BTreeMap<u32, BTreeMap<String, Told>>,
    /// Sensor samples by series name. Positions are nanoseconds since the attempt's start.
    telemetry: BTreeMap<String, Told>,
    spill: Spill,
    series_count: usize,
    point_count: usize,
    fact_count: usize,
    fact_bytes: usize,
    dropped: Dropped,
    warnings: Vec<String>,
    rejected: Vec<String>,
    rejected_count: usize,
    failure: Option<String>,
    outcome: Option<Outcome>,
    exit: Option<crate::record::Exit>,
    stderr: End,
    stdout: End,
    output: Output,
    last_events: VecDeque<Event>,
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
            Entry::Stderr(text) => {
                self.stderr.push(text);
                self.output.push(Stream::Stderr, text);
            }
            Entry::Stdout(text) => {
                self.stdout.push(text);
                self.output.push(Stream::Stdout, text);
            }
            Entry::Sample(sample) => self.sample(sample),
            Entry::Unread { source, quantity, reason } => {
                let name = format!("telemetry.unread.{}", source.series(*quantity));
                self.facts.insert(name, reason.as_str().into());
            }
            Entry::Fact { name, value } => {
                self.facts.insert(name.clone(), value.clone());
            }
            Entry::Warning(text) => self.warning(text),
            Entry::Ended { outcome, exit, ended_ns, cpu_ns } => {
                self.outcome = Some(outcome.clone());
                self.exit = *exit;
                self.ended_ns = Some(*ended_ns);
                self.observed.cpu_ns = *cpu_ns;
            }
        }
    }

    fn event(&mut self, event: &Event) {
        let event = said::clean(event).into_owned();
        self.last_ns = self.last_ns.max(event.t_ns);
        self.heed(&event);
        if self.last_events.len() == TAIL_EVENTS {
            self.last_events.pop_front();
        }
        self.last_events.push_back(event);
    }

    fn heed(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Plan { samples_per_step, .. } => {
                if self.planner.is_none_or(|rank| event.rank <= rank) {
                    self.planner = Some(event.rank);
                    self.observed.samples_per_step = Some(*samples_per_step);
                }
            }
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
                    self.step(event.t_ns, *step, *duration_ns);
                    self.observed.last_loss = loss.or(self.observed.last_loss);
                }
            }
            EventKind::Metric { name, value, unit } => {
                let stated = Metric::new(*value, unit.clone());
                if event.rank == 0 {
                    self.metric(name, stated);
                } else if self.is_short(name) && self.is_short(unit) {
                    self.others.metric(name, event.rank, stated, &mut self.dropped);
                }
            }
            EventKind::Digest { name, digest } => {
                if event.rank == 0 {
                    self.digest(name, *digest);
                } else if self.is_short(name) {
                    self.others.digest(name, event.rank, *digest, &mut self.dropped);
                }
            }
            EventKind::Fact { name, value } => {
                if event.rank == 0 {
                    self.fact(name, value);
                } else if self.is_short(name) {
                    self.others.fact(name, event.rank, value, &mut self.dropped);
                }
            }
            EventKind::Status { .. } => {}
            EventKind::Failure { message } => {
                self.failure.get_or_insert_with(|| message.clone());
            }
        }
    }

    /// Adds the metrics, digests and facts of other ranks, under their final names.
    fn hear_others(&mut self) {
        let (metrics, unfit, dropped) = (&self.metrics, &self.unfit, &mut self.dropped);
        let heard = self.others.metrics(|name| metrics.contains_key(name) || unfit.contains_key(name), dropped);
        heard.into_iter().for_each(|heard| self.metric(&heard.name, heard.value));
        let digests = &self.digests;
        let heard = self.others.digests(|name| digests.contains_key(name), &mut self.dropped);
        heard.into_iter().for_each(|heard| self.digest(&heard.name, heard.value));
        let facts = &self.facts;
        let heard = self.others.facts(|name| facts.contains_key(&format!("worker.{name}")), &mut self.dropped);
        heard.into_iter().for_each(|heard| self.fact(&heard.name, &heard.value));
    }

    /// Converts a known metric to its standard unit. If that is impossible, a measured value can take its place.
    fn metric(&mut self, name: &str, stated: Metric) {
        if !self.is_short(name) || !self.is_short(&stated.unit) {
            return;
        }
        let Some(known) = known_metric(name) else {
            if self.metrics.len() < MAX_NAMES || self.metrics.contains_key(name) {
                self.metrics.insert(name.to_owned(), stated);
            } else {
                self.dropped.count(Surplus::Metrics, || quoted(name));
            }
            return;
        };
        match share_for_percent(name, &stated) {
            Some(doubt) => self.units_in_doubt.insert(name.to_owned(), doubt),
            None => self.units_in_doubt.remove(name),
        };
        match known.standard(&stated) {
            Some(metric) => {
                self.unfit.remove(name);
                self.metrics.insert(name.to_owned(), metric);
            }
            None => {
                let own =
                    if known.unit.is_empty() { "a pure number".to_owned() } else { format!("in `{}`", known.unit) };
                // The value is recorded only here.
                let value = stated.value.unwrap_or(f64::NAN);
                let reason = format!("the worker states `{name}` as {value:?} `{}`, but it is {own}", stated.unit);
                self.metrics.remove(name);
                self.unfit.insert(name.to_owned(), Metric::missing(known.unit, reason));
            }
        }
    }

    /// Whether a name is short enough. Counts a longer one as dropped.
    fn is_short(&mut self, name: &str) -> bool {
        let is_short = name.len() <= MAX_NAME_BYTES;
        if !is_short {
            self.dropped.count(Surplus::LongNames, || quoted(name));
        }
        is_short
    }

    fn warning(&mut self, text: &str) {
        // The kept lines came before and were counted. This warning has the number of all.
        if let Some(count) = said::no_events_count(text) {
            self.rejected_count = self.rejected_count.max(count);
        } else if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(text.to_owned());
        } else {
            self.dropped.count(Surplus::Warnings, || quoted(text));
        }
    }

    fn digest(&mut self, name: &str, digest: Digest) {
        if !self.is_short(name) {
            return;
        }
        if self.digests.len() < MAX_NAMES || self.digests.contains_key(name) {
            self.digests.insert(name.to_owned(), digest);
        } else {
            self.dropped.count(Surplus::Digests, || quoted(name));
        }
    }

    /// Keeps the last fact of each name. If there is no room for it, no fact of this name is kept.
    fn fact(&mut self, name: &str, value: &Value) {
        if !self.is_short(name) {
            return;
        }
        let name = format!("worker.{name}");
        let taken = |value: &Value| name.len() + weight(value);
        if let Some(before) = self.facts.remove(&name) {
            self.fact_count = self.fact_count.saturating_sub(1);
            self.fact_bytes = self.fact_bytes.saturating_sub(taken(&before));
        }
        let bytes = self.fact_bytes + taken(value);
        if self.fact_count < MAX_NAMES && bytes <= MAX_FACT_BYTES {
            (self.fact_count, self.fact_bytes) = (self.fact_count + 1, bytes);
            self.facts.insert(name, value.clone());
        } else {
            self.dropped.count(Surplus::Facts, || quoted(&name));
        }
    }

    fn step(&mut self, t_ns: u64, step: u64, duration_ns: Option<u64>) {
        if self.observed.steps.len() < MAX_STEPS {
            let t_ns = t_ns.saturating_sub(self.started_ns);
            self.observed.steps.push(Timed { step, t_ns, duration_ns });
        } else {
            self.dropped.count(Surplus::Steps, || step.to_string());
        }
    }

    fn phase(&mut self, event: &Event, name: &str, index: u64, edge: PhaseEdge) {
        if !self.is_short(name) {
            return;
        }
        let at_ns = event.t_ns.saturating_sub(self.started_ns);
        let key = (event.rank, index, name.to_owned());
        if edge == PhaseEdge::Start {
            if self.has_room_for_phase(name, index) {
                let phases = &mut self.observed.phases;
                self.open.entry(key).or_default().push(phases.len());
                phases.push(Phase { name: name.to_owned(), index, rank: event.rank, start_ns: at_ns, stop_ns: None });
            }
            return;
        }
        let open = self.open.get_mut(&key);
        match open.and_then(|open| Some((open.pop()?, open.is_empty()))) {
            Some((at, is_last)) => {
                let phase = &mut self.observed.phases[at];
                phase.stop_ns = Some(at_ns.max(phase.start_ns));
                if at_ns < phase.start_ns {
                    let (_, count) = self.backwards.get_or_insert_with(|| (format!("`{name}` {index}"), 0));
                    *count += 1;
                }
                if is_last {
                    self.open.remove(&key);
                }
            }
            // This may be the stop of a dropped phase.
            None if self.dropped.has(Surplus::Phases) || self.dropped.has(Surplus::PhaseNames) => {}
            None => self.dropped.count(Surplus::Stops, || format!("{} {index}", quoted(name))),
        }
    }

    fn has_room_for_phase(&mut self, name: &str, index: u64) -> bool {
        let first = || format!("{} {index}", quoted(name));
        if self.observed.phases.len() >= most_phases(name) {
            self.dropped.count(Surplus::Phases, first);
            return false;
        }
        if !self.phase_names.contains(name) {
            if self.phase_names.len() >= MAX_NAMES {
                self.dropped.count(Surplus::PhaseNames, first);
                return false;
            }
            self.phase_names.insert(name.to_owned());
        }
        true
    }

    fn step_phase(&mut self, event: &Event, step: u64, duration_ns: u64) {
        if self.step_phases.len() < MAX_PHASES {
            let stop_ns = event.t_ns.saturating_sub(self.started_ns);
            let start_ns = stop_ns.saturating_sub(duration_ns);
            let stop_ns = Some(stop_ns);
            self.step_phases.push(Phase { name: "step".to_owned(), index: step, rank: event.rank, start_ns, stop_ns });
        } else {
            self.dropped.count(Surplus::StepPhases, || step.to_string());
        }
    }

    /// Drops samples from before the attempt's start: counters would include earlier consumption.
    fn sample(&mut self, sample: &Sample) {
        let started_ns = self.started_ns;
        let mut put = |name: String, unit: &'static str, t_ns: u64, value: f64| {
            let Some(position) = t_ns.checked_sub(started_ns) else { return };
            let readings = self.telemetry.entry(name).or_insert_with(|| Told::new(unit, Axis::TimeNs));
            self.spill.push(&mut readings.points, position, value);
        };
        for reading in &sample.readings {
            put(sample.source.series(reading.quantity), reading.quantity.unit(), reading.t_ns, reading.value);
        }
        #[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days")]
        put(sample.source.read_time_series(), "ns", sample.t_ns, sample.cost_ns as f64);
        self.last_ns = self.last_ns.max(sample.t_ns);
    }

    fn point(&mut self, name: &str, unit: &'static str, step: u64, value: f64, rank: u32) {
        // The empty name is that of the phases.
        if name.is_empty() && rank == 0 || !self.is_short(name) {
            return;
        }
        if self.point_count >= MAX_POINTS {
            self.dropped.count(Surplus::Points, || format!("{} at step {step}", quoted(name)));
            return;
        }
        if let Some(series) = self.series.get_mut(&rank).and_then(|of_rank| of_rank.get_mut(name)) {
            self.spill.push(&mut series.points, step, value);
        } else if self.series_count < MAX_SERIES {
            self.series_count += 1;
            let mut series = Told::new(unit, Axis::Step);
            self.spill.push(&mut series.points, step, value);
            self.series.entry(rank).or_default().insert(name.to_owned(), series);
        } else {
            self.dropped.count(Surplus::Series, || quoted(name));
            return;
        }
        self.point_count += 1;
    }
}

#[cfg(test)]
mod tests;
