//! Executes one attempt: locks the run, supervises the worker, seals the record.

use super::attached::Attached;
use super::bound::{Bound, Launch};
use super::container;
use super::fold::{Fold, Folded};
use super::halt::Halt;
use super::hold::{Hold, Taken, is_busy, left_on};
use super::kernels::{InUse, KernelCache};
use super::libraries::Libraries;
use super::loaded::Loaded;
use super::matches::Matches;
use super::orphans::still_running;
use super::output::Overflow;
use super::protocol::cool_down;
use super::telemetry::{Sampler, Watched, facts as facts_of};
use super::until::filled;
use super::worker::{self, Ended, Shim, Worker};
use super::{EngineError, Seen, Stop, Watch};
use crate::host::clock::Moment;
use crate::host::user_key::UserKey;
use crate::host::{clock, files, owner, process};
use crate::journal::{self, Gate};
use crate::record::{Attempt, AttemptId, Entry, EventKind, Exit, Outcome, Run, RunId, SourceText, Table};
use crate::store::{Store, StoreError};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The journal is synced at this interval: no more of a worker's events is lost if the machine dies.
const SYNC_EVERY: Duration = Duration::from_millis(50);
/// How long to wait for entries before checking the worker, the clock and the signals.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a worker may live after it reported a failure. If its device died, its threads may wait forever.
const FAILURE_GRACE: Duration = Duration::from_secs(5);
/// How long the last sensor samples may take.
const TELEMETRY_GRACE: Duration = Duration::from_secs(10);
/// Phases that are too short for a sync of the journal at each start and stop.
const INNER_PHASES: [&str; 9] =
    ["step", "data", "forward", "backward", "wait", "all_reduce", "together", "optimizer", "inference"];
/// How long the checks after an attempt may still take after the first request to stop.
const LAST_LOOK: Duration = Duration::from_millis(500);
/// A larger difference between the durations of the wall clock and the monotonic clock is a jump.
const JUMP_MS: u64 = 2000;

/// A sealed attempt.
#[derive(Clone, Debug)]
pub struct Executed {
    /// The attempt's id.
    pub id: AttemptId,
    /// The run.
    pub run: Run,
    /// The record. Its series and phases are in the ledger.
    pub attempt: Attempt,
    /// The stored part of the worker's output.
    pub output: Option<SourceText>,
}

/// The result of a request to execute a run.
#[derive(Debug)]
pub enum Attempted {
    /// It was executed and sealed.
    Executed(Box<Executed>),
    /// Another living process is executing it.
    Elsewhere,
    /// The requested number of attempts has finished meanwhile.
    Complete,
    /// A request to stop came before the attempt began.
    Stopped,
}

/// Executes a run once, unless another process executes it or `wanted` attempts of it have finished.
///
/// # Errors
/// If the data or the program changed after the run id was computed, or the journal cannot be opened. If the attempt
/// cannot be sealed, nothing is lost: the error names the journal.
pub fn execute(
    store: &Store,
    bound: &Bound,
    wanted: Option<usize>,
    facts: &Table,
    shim: &Shim,
    watch: &dyn Watch,
    stop: &dyn Stop,
) -> Result<Attempted, EngineError> {
    // Checked first, because queries to the hardware disturb another process's measurements.
    if is_claimed(&store.journals(), bound)? {
        return Ok(Attempted::Elsewhere);
    }
    let asked = bound.settings_to_make();
    let unneeded = || if asked.is_some() { unneeded(store, bound, wanted, shim) } else { Ok(None) };
    if let Some(came) = unneeded()? {
        return Ok(came);
    }
    match bound.image.as_ref().map(|image| image.check(&|| stop.asked() > 0)) {
        Some(Err(_)) if stop.asked() > 0 => return Ok(Attempted::Stopped),
        Some(checked) => checked?,
        None => {}
    }
    let kernels = match (bound.launch == Launch::Trainer && !bound.gpus.is_empty())
        .then(|| KernelCache::of(store.dir(), &bound.run).open(&bound.run, stop))
        .transpose()?
    {
        Some(None) => return Ok(Attempted::Stopped),
        kernels => kernels.flatten(),
    };
    // The data are compared before the run waits or changes settings, and again after the worker has read them.
    match bound.changed_data(&|| stop.asked() > 0) {
        Err(_) if stop.asked() > 0 => return Ok(Attempted::Stopped),
        // Another process may have completed the run before the data changed.
        Ok(Some(_)) | Err(_) if is_complete(store, bound, wanted)? => return Ok(Attempted::Complete),
        Err(error) => return Err(EngineError::Unseen(error)),
        Ok(Some(changed)) => return Err(EngineError::Data(changed)),
        Ok(None) => {}
    }
    // A changed program would be another run.
    if let Some(changed) = bound.changed_code(&|| stop.asked() > 0) {
        return if is_complete(store, bound, wanted)? {
            Ok(Attempted::Complete)
        } else {
            Err(EngineError::Program(changed))
        };
    }
    let cooled = cool_down(bound, watch, stop);
    if !cooled.is_empty() && stop.asked() > 0 {
        return Ok(Attempted::Stopped);
    }
    if let Some(came) = unneeded()? {
        return Ok(came);
    }
    if bound.image.is_some() && bound.launch == Launch::Trainer {
        shim.check_path()?;
    }
    // Settings first, then the sampler, then the lock of the run: the attempt's time begins with the lock.
    let hold = match asked.map(|asked| Hold::take(bound, asked, shim, stop)).transpose()? {
        None => None,
        Some(Taken::Held(hold)) => Some(*hold),
        Some(Taken::Elsewhere) => return Ok(Attempted::Elsewhere),
        Some(Taken::Stopped) => return Ok(Attempted::Stopped),
    };
    let watched = Watched {
        hz: bound.telemetry_hz(),
        gpus: bound.gpus.clone(),
        library: bound.nvml.clone(),
        ledger: Some(store.dir().to_owned()),
        is_single: bound.launch == Launch::Trainer,
    };
    let sampler = Sampler::start(watched, stop, &|| watch.see(Seen::Unread(bound)));
    let Some(mut supervision) = Supervision::claim(store, bound, facts, shim.key.as_ref())? else {
        return Ok(Attempted::Elsewhere);
    };
    if let Some(sampler) = &sampler {
        sampler.look();
    }
    // Asked with the run locked: an earlier executor has sealed its attempt by now, and no other one can begin.
    match is_complete(store, bound, wanted) {
        Ok(false) => {}
        Ok(true) => {
            supervision.journal.remove()?;
            return Ok(Attempted::Complete);
        }
        Err(error) => {
            // Nothing has begun, so no journal may stay.
            supervision.journal.remove()?;
            return Err(error.into());
        }
    }
    supervision.keep(kernels.as_ref().map(|kernels| facts_of(kernels.before.clone())).unwrap_or_default());
    supervision.keep(hold.as_ref().map(|hold| facts_of(hold.facts())).unwrap_or_default());
    supervision.hold = hold;
    supervision.keep(facts_of(cooled));
    supervision.keep_left(bound, shim);
    let no_gpu = bound.no_gpu.iter().map(|why| Entry::Warning(format!("it uses the CPU: {why}")));
    supervision.keep(no_gpu.collect());
    supervision.keep(bound.notes.iter().cloned().map(Entry::Warning).collect());
    watch.see(Seen::Begun(bound));
    supervision.run(bound, shim, watch, stop, sampler, kernels.as_ref());
    drop(kernels);
    supervision.seal(store)
}

/// Why an attempt that changes GPU settings is not executed, checked before it locks the run or changes anything. While
/// a GPU cooled, other processes may have executed the run.
fn unneeded(
    store: &Store,
    bound: &Bound,
    wanted: Option<usize>,
    shim: &Shim,
) -> Result<Option<Attempted>, EngineError> {
    if is_claimed(&store.journals(), bound)? || is_busy(&shim.restore, &bound.gpus)? {
        return Ok(Some(Attempted::Elsewhere));
    }
    Ok(is_complete(store, bound, wanted)?.then_some(Attempted::Complete))
}

fn is_complete(store: &Store, bound: &Bound, wanted: Option<usize>) -> Result<bool, StoreError> {
    let Some(wanted) = wanted else { return Ok(false) };
    Ok(store.if_there(|reader| filled(reader, &bound.run))?.unwrap_or(0) >= wanted)
}

/// Whether the run has a journal. Recovery has sealed those without an owner, so this one belongs to a living process.
fn is_claimed(journals: &Path, bound: &Bound) -> Result<bool, EngineError> {
    let prefix = bound.run.id.0.prefix(16);
    let is_same = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    Ok(journal::list(journals)?.iter().any(is_same))
}

/// The state of an attempt's supervisor.
struct Supervision {
    journal: journal::Writer,
    fold: Fold,
    run: RunId,
    started_ns: u64,
    started_unix_ms: i64,
    /// Why the journal can no longer be written, if so.
    broken: Option<String>,
    /// When the worker reported that it failed.
    failing: Option<Instant>,
    last_sync: Instant,
    overflow: Overflow,
    matches: Matches,
    /// The settings made on the GPUs. Dropping it undoes them.
    hold: Option<Hold>,
}

impl Supervision {
    fn claim(store: &Store, bound: &Bound, facts: &Table, key: Option<&UserKey>) -> Result<Option<Self>, EngineError> {
        let dir = store.journals();
        let gate = Gate::enter(&dir)?;
        if is_claimed(&dir, bound)? {
            return Ok(None);
        }
        let nonce = files::random_nonce()?;
        let (started_unix_ms, started_ns) = (clock::unix_ms(), clock::monotonic_ns());
        let mut known = container::surroundings(bound.image.as_ref(), facts);
        known.extend(bound.facts.clone());
        let mark = key.map(|key| key.mark(bound.run.id, &bound.cell.settings).to_string());
        known.extend(mark.map(|mark| (Attempt::EXECUTED_BY.to_owned(), mark.into())));
        let opened = Entry::Opened {
            owner: owner::this_owner()?,
            nonce,
            run: Box::new(bound.run.clone()),
            settings: bound.cell.settings.clone(),
            facts: known,
            started_unix_ms,
            started_ns,
        };
        let journal = journal::Writer::create(&dir, bound.run.id, nonce, &opened)?;
        drop(gate);
        let Some(fold) = Fold::open(&opened) else { return Ok(None) };
        let fold = fold.spilling_beside(journal.path());
        let overflow = Overflow::of(journal.path());
        Ok(Some(Self {
            journal,
            fold,
            run: bound.run.id,
            started_ns,
            started_unix_ms,
            broken: None,
            failing: None,
            last_sync: Instant::now(),
            overflow,
            matches: Matches::of(&bound.cell.settings),
            hold: None,
        }))
    }

    /// Adds entries to the fold and the journal. If the journal cannot be written, the attempt ends.
    fn keep(&mut self, entries: Vec<Entry>) {
        let border = entries.iter().any(|entry| match entry {
            Entry::Event(event) => match &event.kind {
                EventKind::Phase { name, .. } => !INNER_PHASES.contains(&name.as_str()),
                kind => matches!(kind, EventKind::Failure { .. }),
            },
            Entry::Ended { .. } => true,
            _ => false,
        });
        if self.broken.is_none() {
            let due = border || self.last_sync.elapsed() >= SYNC_EVERY;
            let (journal, overflow) = (&mut self.journal, &mut self.overflow);
            let written = entries
                .iter()
                .filter(|entry| !overflow.takes(entry))
                .try_for_each(|entry| journal.append(entry))
                .and_then(|()| if due { journal.sync() } else { journal.flush() });
            if due {
                self.last_sync = Instant::now();
            }
            if let Err(error) = written {
                self.broken = Some(format!("the journal cannot be written: {error}"));
            }
        }
        entries.iter().for_each(|entry| self.fold.take(entry));
    }

    /// Records whether others have changed settings of a GPU that this attempt leaves as it is.
    fn keep_left(&mut self, bound: &Bound, shim: &Shim) {
        let left = if bound.settings_to_make().is_none() { left_on(&shim.restore, &bound.gpus) } else { None };
        let fact = left.map(|left| ("hardware.left_set".to_owned(), left.display().to_string().into()));
        self.keep(facts_of(fact.into_iter().collect()));
    }

    /// Ends the attempt as failed, without a worker.
    fn refuse(&mut self, reason: String) {
        self.release();
        self.end(Outcome::Failed { reason }, None, None, Moment::now());
    }

    fn run(
        &mut self,
        bound: &Bound,
        shim: &Shim,
        watch: &dyn Watch,
        stop: &dyn Stop,
        sampler: Option<Sampler>,
        kernels: Option<&InUse>,
    ) {
        let fifo = self.journal.path().with_extension("events");
        let open = container::leaves_open(bound.image.as_ref(), bound.launch != Launch::Trainer);
        self.keep(facts_of([("container.leaves_open".to_owned(), open)].into()));
        let image = bound.image.as_ref();
        let contained = image.map(|image| worker::contain(image, shim, bound, kernels, &fifo));
        let facts = image.zip(contained.as_ref()).map(|(image, contained)| image.facts(contained));
        self.keep(facts_of(facts.unwrap_or_default()));
        let loaded = Loaded::prepare(bound, self.journal.path());
        let variables = loaded.as_ref().map(|loaded| loaded.variables(bound));
        let attached = Attached::of(bound);
        let worker = match &attached {
            Some(attached) => Worker::attach(attached.pid(), &fifo),
            None => Worker::start(shim, bound, kernels, contained.as_ref(), &fifo, variables.iter().flatten()),
        };
        let worker = match worker {
            Ok(worker) => worker,
            Err(error) => {
                let _ = std::fs::remove_file(&fifo);
                return self.refuse(format!("the worker could not be started: {error}"));
            }
        };
        if let Some(sampler) = &sampler {
            sampler.watch(worker.pid());
        }
        match attached {
            // Not recorded as a worker, because a command that finalizes this journal must not kill it.
            Some(_) => watch.see(Seen::Attached(self.run, &fifo)),
            None => self.keep(vec![Entry::Started { pid: worker.pid() }]),
        }
        self.keep(facts_of(self.matches.facts()));
        let deadline = bound.timeout_s().and_then(|limit| Duration::try_from_secs_f64(limit).ok());
        let started = Instant::now();
        let mut libraries = Libraries::new(image);
        let mut halt = Halt::default();
        let Ended { exit, at: ended } = loop {
            self.take(worker.receive(LOOK_EVERY), clock::monotonic_ns(), watch);
            let seen = sampler.as_ref().map(Sampler::receive).unwrap_or_default();
            if !seen.is_empty() {
                self.keep(seen);
            }
            let gone = || attached.as_ref().and_then(|attached| attached.ended(stop, self.broken.is_some()));
            if let Some(ended) = worker.ended().or_else(gone) {
                break ended;
            }
            if deadline.is_some_and(|deadline| started.elapsed() >= deadline) {
                let limit = bound.timeout_s().unwrap_or_default();
                halt.failed(format!("it took longer than `limits.timeout_s` = {limit} s"));
            }
            if attached.is_none() && self.failing.is_some_and(|since| since.elapsed() > FAILURE_GRACE) {
                let stated = self.fold.failure().unwrap_or_default();
                halt.failed(format!("{stated} (it did not end by itself, and was killed)"));
            }
            if let Some(reason) = &self.broken {
                halt.failed(reason.clone());
            }
            halt.heed(stop, &worker);
            libraries.look(worker.pid());
            if self.last_sync.elapsed() >= SYNC_EVERY {
                self.keep(Vec::new());
            }
        };
        // The container runtime reports a signal as a shell does, as an exit code.
        let exit = if image.is_some() { process::exit_of_shell_code(exit) } else { exit };
        // The CPU time of an attached process includes that before the attempt.
        let cpu_ns = if attached.is_some() { None } else { crate::host::cpu_time_ns(worker.pid()) };
        let rest = worker.finish();
        self.take(rest, ended.monotonic_ns, watch);
        let matched = self.matches.finish(ended.monotonic_ns);
        self.take(matched, ended.monotonic_ns, watch);
        let last = sampler.map(|sampler| sampler.finish(TELEMETRY_GRACE)).unwrap_or_default();
        self.keep(last);
        self.release();
        self.keep_left(bound, shim);
        if let Some(kernels) = kernels {
            // Only a finished run has chosen all its kernels.
            let chosen = kernels.chosen();
            let is_good = exit == Exit::Code(0) && chosen.is_none() && halt.failure.is_none();
            let remembered = if is_good { kernels.remember() } else { Ok(()) };
            if is_good && remembered.is_ok() {
                self.keep(facts_of(kernels.pinned()));
            }
            if let Some(chosen) = chosen {
                halt.failed(chosen);
            }
            self.keep(remembered.err().map(|error| Entry::Warning(error.to_string())).into_iter().collect());
            let after = kernels.cache.facts("after");
            self.keep(kernels.warning(&after).map(Entry::Warning).into_iter().collect());
            self.keep(facts_of(after));
        }
        self.keep(facts_of(libraries.facts(stop)));
        match image.map(|image| image.check(&|| stop.asked() > 0)) {
            // There was no time to check.
            Some(Err(changed)) if stop.asked() > 0 => self.keep(vec![Entry::Warning(changed.to_string())]),
            // The image that the worker ran in is unknown.
            Some(Err(changed)) => halt.failed(changed.to_string()),
            Some(Ok(())) | None => {}
        }
        let is_over = no_more_time(stop);
        if exit == Exit::Code(0) {
            let unknown = |why: &str| Entry::Warning(format!("whether its data changed is not known: {why}"));
            match bound.changed_data(&is_over) {
                Ok(changed) => changed.into_iter().for_each(|found| halt.failed(format!("{found} (start it again)"))),
                Err(_) if is_over() => self.keep(vec![unknown("there was no time to look")]),
                // That the data cannot be read now does not mean that the worker read other data.
                Err(error) => self.keep(vec![unknown(&error.to_string())]),
            }
        }
        self.keep(bound.changed_program(&is_over).map(Entry::Warning).into_iter().collect());
        let (loaded, read) = loaded.map(|loaded| loaded.finish(bound)).unwrap_or_default();
        self.keep(loaded.into_iter().map(Entry::Warning).collect());
        self.keep(facts_of(read));
        if matches!(bound.launch, Launch::Program { .. }) {
            self.keep(still_running(&fifo).map(Entry::Warning).into_iter().collect());
        }
        self.keep(facts_of(watch.last_facts(self.run)));
        halt.hear_late(stop, exit);
        let outcome = match &attached {
            Some(attached) => attached.outcome(exit, halt, stop),
            None => self.outcome(exit, halt, stop),
        };
        self.end(outcome, attached.is_none().then_some(exit), cpu_ns, ended);
    }

    /// Undoes the GPU settings and records failures as warnings.
    fn release(&mut self) {
        let released = self.hold.take().map(Hold::release).unwrap_or_default();
        self.keep(released);
    }

    /// Processes entries of the worker, and metrics that are found in its standard output.
    fn take(&mut self, mut entries: Vec<Entry>, at_ns: u64, watch: &dyn Watch) {
        let reported =
            entries.iter().filter_map(|entry| if let Entry::Event(event) = entry { Some(event) } else { None });
        reported.for_each(|event| self.matches.reported(&event.kind));
        let mut matched = Vec::new();
        for entry in &entries {
            if let Entry::Stdout(text) = entry {
                matched.extend(self.matches.push(text, at_ns));
            }
        }
        entries.append(&mut matched);
        for entry in &entries {
            match entry {
                Entry::Event(event) => {
                    if matches!(event.kind, EventKind::Failure { .. }) {
                        self.failing.get_or_insert_with(Instant::now);
                    }
                    watch.see(Seen::Event(self.run, event));
                }
                Entry::Stdout(text) | Entry::Stderr(text) => watch.see(Seen::Output(self.run, text)),
                _ => {}
            }
        }
        if !entries.is_empty() {
            self.keep(entries);
        }
    }

    fn outcome(&self, exit: Exit, halt: Halt, stop: &dyn Stop) -> Outcome {
        if let Some(reason) = halt.failure {
            return Outcome::Failed { reason };
        }
        match exit {
            Exit::Code(0) => Outcome::Finished,
            _ if halt.asked > 0 => {
                let how = if halt.killed { "killed" } else { "stopped" };
                Outcome::Interrupted { reason: format!("it was {how} {}", stop.by()) }
            }
            Exit::Code(code) => {
                let reason = match self.fold.last_stderr_line() {
                    Some(line) => format!("the worker exited with code {code}: {line}"),
                    None => format!("the worker exited with code {code}"),
                };
                Outcome::Failed { reason: self.fold.failure().map_or(reason, str::to_owned) }
            }
            // The worker reported a failure before the signal ended it.
            Exit::Signal(_) if self.fold.failure().is_some() => {
                Outcome::Failed { reason: self.fold.failure().unwrap_or_default().to_owned() }
            }
            Exit::Signal(_) if self.fold.last_words().is_some() => {
                Outcome::Failed { reason: self.fold.last_words().unwrap_or_default().to_owned() }
            }
            Exit::Signal(signal) => {
                let name = process::signal_name(signal);
                let hint = if signal == process::Signal::Kill.number() {
                    " (it was killed; the kernel does so when memory runs out: see `dmesg`)"
                } else {
                    ""
                };
                Outcome::Failed { reason: format!("the worker was ended by {name}{hint}") }
            }
        }
    }

    fn end(&mut self, outcome: Outcome, exit: Option<Exit>, cpu_ns: Option<u64>, at: Moment) {
        let ended_ns = at.monotonic_ns;
        let mut last = Vec::new();
        let passed_ns = ended_ns.saturating_sub(self.started_ns);
        last.extend(clock_jump(at.unix_ms - self.started_unix_ms, passed_ns).map(Entry::Warning));
        let ended = Entry::Ended { outcome, exit, ended_ns, cpu_ns };
        last.push(ended.clone());
        self.keep(last);
        if self.broken.is_some() && self.journal.end_after_fault(&ended).is_ok() {
            self.broken = None;
        }
    }

    fn seal(self, store: &Store) -> Result<Attempted, EngineError> {
        let journal = self.journal.path().to_owned();
        let nonce = self.fold.nonce();
        let sealed =
            self.fold.seal("", 0).map_err(StoreError::from).and_then(|folded| Ok((folded.seal(store)?, folded)));
        match sealed {
            Ok((added, Folded { run, attempt, output, .. })) => {
                self.journal.remove()?;
                Ok(Attempted::Executed(Box::new(Executed { id: added.id(), run, attempt, output })))
            }
            Err(source) => Err(EngineError::Unsealed { journal, nonce, source: Box::new(source) }),
        }
    }
}

/// Whether a check of files should end early: some time after the first request to stop, at once after the second.
fn no_more_time(stop: &dyn Stop) -> impl Fn() -> bool + Sync {
    let first = OnceLock::new();
    move || match stop.asked() {
        0 => false,
        1 => first.get_or_init(Instant::now).elapsed() > LAST_LOOK,
        _ => true,
    }
}

/// A warning if the host's clock and the monotonic clock differ in how long the attempt took.
fn clock_jump(by_host_ms: i64, by_monotonic_ns: u64) -> Option<String> {
    let passed_ms = i64::try_from(by_monotonic_ns / 1_000_000).unwrap_or(i64::MAX);
    let jump_ms = by_host_ms.saturating_sub(passed_ms);
    (jump_ms.unsigned_abs() > JUMP_MS).then(|| {
        format!("the host's clock jumped by {jump_ms} ms meanwhile (durations use the monotonic clock and are correct)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_jumps_is_noticed_in_both_directions() {
        assert_eq!(clock_jump(10_500, 10_000_000_000), None);
        assert!(clock_jump(-3_600_000, 1_000_000_000).is_some_and(|text| text.contains("by -3601000 ms")));
        assert!(clock_jump(86_400_000, 1_000_000_000).is_some_and(|text| text.contains("by 86399000 ms")));
        assert!(clock_jump(i64::MIN, u64::MAX).is_some());
    }
}
