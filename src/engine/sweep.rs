//! Many runs: which are missing, and executing exactly those.

use super::attempt::{Attempted, Executed, execute};
use super::bound::Bound;
use super::protocol::{self, Order};
use super::until::{Until, filled};
use super::worker::Shim;
use super::{DataFiles, EngineError, HoldError, Recovered, Seen, Stop, Watch};
use crate::gpu::{Change, Settings};
use crate::host::clock;
use crate::record::{Attempt, AttemptId, Outcome, RunId, Table};
use crate::store::{Reader, Store, StoreError};
use std::collections::{HashMap, HashSet, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A run of a sweep and how often it has to be executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The run.
    pub bound: Bound,
    /// Finished attempts that the ledger holds.
    pub sealed: usize,
    /// Attempts that are missing.
    pub missing: usize,
    /// Why they are.
    pub cause: Cause,
    /// An attempt that failed for want of GPU memory, where none finished: another one would too, and is not missing.
    pub out_of_memory: Option<AttemptId>,
}

impl Planned {
    /// Plans a run again that failed for want of GPU memory.
    pub fn try_again(&mut self) {
        if let (Some(_), Cause::Complete(wanted)) = (self.out_of_memory.take(), self.cause) {
            self.missing = wanted.saturating_sub(self.sealed);
        }
    }
}

/// How many attempts a run needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// As many as to have this many finished ones.
    Complete(usize),
    /// This many, whatever there is.
    Repeat(usize),
}

/// Looks up which attempts are missing. Runs that appear twice are planned once, with the larger number of finished attempts.
///
/// # Errors
/// If the ledger cannot be read; one that does not exist yet is empty.
pub fn plan(store: &Store, bounds: Vec<(Bound, Cause)>) -> Result<Vec<Planned>, StoreError> {
    let bounds = once(bounds);
    type Held = (usize, Option<AttemptId>);
    let held = |reader: &Reader<'_>, run| Ok((filled(reader, run)?, out_of_memory(reader, run.id)?));
    let found: Option<Vec<Held>> =
        store.if_there(|reader| bounds.iter().map(|(bound, _)| held(reader, &bound.run)).collect())?;
    let found = found.unwrap_or_else(|| vec![(0, None); bounds.len()]);
    let planned = bounds.into_iter().zip(found).map(|((bound, cause), (sealed, failed))| {
        let until = Until::of(&bound);
        let out_of_memory = failed.filter(|_| sealed == 0 && matches!(cause, Cause::Complete(_)));
        let missing = match cause {
            Cause::Complete(_) if out_of_memory.is_some() => 0,
            Cause::Complete(wanted) if sealed < wanted => match until {
                Some(until) if until.is_met(store, &bound)? => 0,
                _ => wanted - sealed,
            },
            Cause::Complete(_) => 0,
            Cause::Repeat(times) => times,
        };
        Ok(Planned { bound, sealed, missing, cause, out_of_memory })
    });
    planned.collect()
}

/// Each run once.
fn once(bounds: Vec<(Bound, Cause)>) -> Vec<(Bound, Cause)> {
    let mut places: HashMap<RunId, usize> = HashMap::new();
    let mut found: Vec<(Bound, Cause)> = Vec::new();
    for (bound, cause) in bounds {
        match places.get(&bound.run.id).map(|at| &mut found[*at]) {
            Some(known) => {
                if let (Cause::Complete(wanted), Cause::Complete(before)) = (cause, known.1)
                    && wanted > before
                {
                    *known = (bound, cause);
                }
            }
            None => {
                places.insert(bound.run.id, found.len());
                found.push((bound, cause));
            }
        }
    }
    found
}

/// An attempt of a run that failed for want of GPU memory.
fn out_of_memory(reader: &Reader<'_>, run: RunId) -> Result<Option<AttemptId>, StoreError> {
    for (id, is_finished) in reader.attempts_of(run)? {
        if !is_finished && reader.readable(id)?.is_some_and(|attempt| attempt.is_out_of_memory()) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// How many attempts a sweep makes at most, those of its canary among them if it is to have one.
pub fn attempts(planned: &[Planned], with_canary: bool) -> usize {
    let missing: usize = planned.iter().map(|planned| planned.missing).sum();
    missing + if with_canary { canaries(planned) } else { 0 }
}

/// How often the canary is executed beside what is missing: first, last, and in between. Fewer than three attempts have none, nor have
/// those of a single run: they are all of its own cell.
fn canaries(planned: &[Planned]) -> usize {
    let missing: usize = planned.iter().map(|planned| planned.missing).sum();
    match Order::of(planned.first().map(|planned| &planned.bound)).canary_every {
        0 => 0,
        _ if missing < 3 || planned.len() < 2 => 0,
        every => missing.div_ceil(every) + 1,
    }
}

/// What became of a sweep.
#[derive(Debug, Default)]
pub struct SweepReport {
    /// Every attempt that was executed and sealed, in the order of their ends.
    pub executed: Vec<Executed>,
    /// Runs whose attempts could not be made or kept.
    pub troubled: Vec<(RunId, EngineError)>,
    /// Runs that were not tried, or not any more: a change of the GPUs that they ask for too was refused for want of privilege, or their data changed; and that reason.
    pub untried: Vec<(RunId, String)>,
    /// Runs that another process executed meanwhile.
    pub elsewhere: Vec<RunId>,
    /// Whether it was stopped before all was done.
    pub interrupted: bool,
}

impl SweepReport {
    /// Whether any attempt of this sweep failed.
    pub fn any_failed(&self) -> bool {
        self.executed.iter().any(|executed| matches!(executed.attempt.outcome, Outcome::Failed { .. }))
    }
}

/// What a sweep needs besides its runs.
pub struct Sweep<'a> {
    /// Where attempts are kept.
    pub store: &'a Store,
    /// What was seen of the machine.
    pub facts: &'a Table,
    /// What starts workers.
    pub shim: &'a Shim,
    /// Who watches.
    pub watch: &'a dyn Watch,
    /// Who may stop it.
    pub stop: &'a dyn Stop,
    /// How many attempts are executed at once.
    pub jobs: usize,
    /// Whether the canary of the protocol is executed too. Whoever wants a certain number of attempts wants no more of them.
    pub canary: bool,
}

/// How long a thread without a task waits before it asks again.
const LOOK_EVERY: Duration = Duration::from_millis(20);

struct Task {
    bound: Bound,
    wanted: Option<usize>,
    /// How many attempts were missing at first.
    missing: usize,
    left: usize,
    is_canary: bool,
}

/// What is still to be executed, round by round: in each, every run once.
struct Rounds {
    order: Order,
    number: u64,
    /// Names the sweep, so that rounds of two sweeps are told apart.
    sweep: String,
    now: VecDeque<Task>,
    next: Vec<Task>,
    canary: Option<Bound>,
    since_canary: usize,
    /// The runs of which an attempt is being executed.
    in_flight: Vec<RunId>,
    /// Data that changed since runs were named by them, and how.
    changed: Vec<(Arc<DataFiles>, String)>,
}

impl Rounds {
    fn new(planned: Vec<Planned>, with_canary: bool) -> Self {
        let first = planned.first().map(|planned| &planned.bound);
        let order = Order::of(first);
        let canary = if with_canary && canaries(&planned) > 0 { first.map(protocol::canary) } else { None };
        let tasks = planned.into_iter().filter(|planned| planned.missing > 0).map(|planned| {
            let wanted = if let Cause::Complete(wanted) = planned.cause { Some(wanted) } else { None };
            Task { bound: planned.bound, wanted, missing: planned.missing, left: planned.missing, is_canary: false }
        });
        let (now, next, changed) = (VecDeque::new(), tasks.collect(), Vec::new());
        let sweep = format!("{}-{}", clock::unix_ms(), std::process::id());
        Self {
            order,
            number: 0,
            sweep,
            now,
            next,
            canary,
            since_canary: order.canary_every,
            in_flight: Vec::new(),
            changed,
        }
    }

    /// Takes out what has the same program; gives the runs.
    fn give_up_program(&mut self, of: &Bound) -> Vec<RunId> {
        let has = |bound: &Bound| bound.program_files == of.program_files;
        let tasks = self.now.iter().chain(&self.next).filter(|task| has(&task.bound));
        let runs = tasks.map(|task| task.bound.run.id).collect();
        self.now.retain(|task| !has(&task.bound));
        self.next.retain(|task| !has(&task.bound));
        self.canary.take_if(|canary| has(canary));
        runs
    }

    /// Takes out what reads these data; gives the runs, or none where that is no news.
    fn give_up(&mut self, data: &Arc<DataFiles>, why: &str) -> Option<Vec<RunId>> {
        if self.changed.iter().any(|(changed, _)| changed == data) {
            return None;
        }
        let reads = |bound: &Bound| bound.data.as_ref() == Some(data);
        let tasks = self.now.iter().chain(&self.next).filter(|task| reads(&task.bound));
        let runs = tasks.map(|task| task.bound.run.id).collect();
        self.now.retain(|task| !reads(&task.bound));
        self.next.retain(|task| !reads(&task.bound));
        self.canary.take_if(|canary| reads(canary));
        self.changed.push((Arc::clone(data), why.to_owned()));
        Some(runs)
    }

    /// Puts a task of which something is left into the next round: what another process executes may be done by then. Why not, where its data changed.
    fn put_back(&mut self, task: Task) -> Result<(), String> {
        let changed = |data| self.changed.iter().find(|(changed, _)| changed == data);
        if let Some((_, why)) = task.bound.data.as_ref().and_then(changed) {
            return Err(why.clone());
        }
        self.next.push(task);
        Ok(())
    }

    /// The next task, whose run has no attempt in flight; none if there is none now.
    fn take(&mut self) -> Option<Task> {
        if self.now.is_empty() && !self.next.is_empty() {
            let seeds = self.next.iter().fold(0, |sum: u64, task| sum.wrapping_add(task.bound.run.parts.seed));
            self.order.arrange(self.number, seeds, &mut self.next);
            self.number += 1;
            self.now.extend(self.next.drain(..));
        }
        let task = match self.canary_if_due() {
            Some(bound) => {
                self.since_canary = 0;
                let task = Task { bound, wanted: None, missing: 1, left: 1, is_canary: true };
                // The attempt belongs to the first run too, and to the round in which it is made.
                self.named(task, self.number)
            }
            None => {
                let at = self.now.iter().position(|task| !self.in_flight.contains(&task.bound.run.id))?;
                let task = self.now.remove(at)?;
                self.since_canary += 1;
                // By the run's own attempts: of several at once, one may be a round ahead of the others.
                let round = task.missing - task.left + 1;
                self.named(task, round as u64)
            }
        };
        self.in_flight.push(task.bound.run.id);
        Some(task)
    }

    /// The canary, where it is to be executed now: after the last task, or after so many.
    fn canary_if_due(&mut self) -> Option<Bound> {
        let run = self.canary.as_ref()?.run.id;
        if !self.now.is_empty() {
            let is_due = self.since_canary >= self.order.canary_every && !self.in_flight.contains(&run);
            return if is_due { self.canary.clone() } else { None };
        }
        // After the last one there is nothing more to watch.
        if self.in_flight.is_empty() && self.since_canary > 0 { self.canary.take() } else { None }
    }

    /// Whether a task waits to be taken.
    fn is_left(&self) -> bool {
        !self.now.is_empty() || !self.next.is_empty()
    }

    /// Whether no task is left, nor may be put back.
    fn is_over(&self) -> bool {
        !self.is_left() && self.in_flight.is_empty()
    }

    /// A task whose attempt will name its round.
    fn named(&self, mut task: Task, round: u64) -> Task {
        task.bound.facts.insert(Attempt::ROUND.to_owned(), format!("{}:{round}", self.sweep).into());
        task
    }
}

/// A task that a thread executes. Dropping it ends the task, also in a panic: other threads wait for it.
struct InFlight<'a> {
    rounds: &'a Mutex<Rounds>,
    run: RunId,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.in_flight.retain(|other| *other != self.run);
    }
}

impl Sweep<'_> {
    /// Executes every missing attempt. One that fails does not keep the others from being executed.
    pub fn run(&self, planned: Vec<Planned>) -> SweepReport {
        let queue = Mutex::new(Rounds::new(planned, self.canary));
        let report = Mutex::new(SweepReport::default());
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| self.drain(&queue, &report));
            }
        });
        self.seal_waiting(&report);
        let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Of a request that comes when all is done, nothing is to be told.
        let is_left = queue.into_inner().unwrap_or_else(PoisonError::into_inner).is_left();
        let is_cut = |executed: &Executed| matches!(executed.attempt.outcome, Outcome::Interrupted { .. });
        report.interrupted |= self.stop.asked() > 0 && (is_left || report.executed.iter().any(is_cut));
        report
    }

    /// Whether the interval of a run is as narrow as its cell asks. A ledger that cannot be read now is heard of at the next attempt.
    fn is_enough(&self, bound: &Bound) -> bool {
        Until::of(bound).is_some_and(|until| until.is_met(self.store, bound).unwrap_or(false))
    }

    /// Seals attempts that could not be sealed when they were over: what kept the ledger from being written may have passed.
    pub(super) fn seal_waiting(&self, report: &Mutex<SweepReport>) {
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        if !report.troubled.iter().any(|(_, error)| matches!(error, EngineError::Unsealed { .. })) {
            return;
        }
        // One that cannot be sealed now either is tried again later.
        for found in super::recover(self.store).unwrap_or_default() {
            if let Recovered::Sealed(id) = found {
                self.watch.see(Seen::Recovered(id));
            }
        }
        let mut sealed = Vec::new();
        report.troubled.retain(|(_, error)| self.sealed_meanwhile(error).map(|one| sealed.push(one)).is_none());
        report.executed.extend(sealed);
    }

    /// The attempt that could not be sealed when it was over, by whomever it was sealed since.
    fn sealed_meanwhile(&self, error: &EngineError) -> Option<Executed> {
        let EngineError::Unsealed { journal, nonce, .. } = error else { return None };
        if journal.exists() {
            return None;
        }
        let found = self.store.read(|reader| {
            let Some((id, sealed)) = reader.sealed_as(*nonce)? else { return Ok(None) };
            let output = reader.output(&sealed.attempt.facts)?;
            let crate::record::Sealed { run, attempt, .. } = sealed;
            Ok(Some(Executed { id, run, attempt, output }))
        });
        found.ok()?
    }

    fn drain(&self, queue: &Mutex<Rounds>, report: &Mutex<SweepReport>) {
        let locked = || report.lock().unwrap_or_else(PoisonError::into_inner);
        let rounds = || queue.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waited: HashSet<RunId> = HashSet::new();
        // The kinds of changes that nobody here may make: one may be allowed where another is not.
        let mut forbidden: Vec<(Discriminant<Change>, String)> = Vec::new();
        loop {
            let next = rounds().take();
            let Some(mut task) = next else {
                if self.stop.asked() > 0 || rounds().is_over() {
                    return;
                }
                // What is left waits for attempts of the same runs, which other threads execute.
                std::thread::sleep(LOOK_EVERY);
                continue;
            };
            let _in_flight = InFlight { rounds: queue, run: task.bound.run.id };
            if self.stop.asked() > 0 {
                locked().interrupted = true;
                return;
            }
            self.seal_waiting(report);
            let changes = task.bound.settings_to_make().map(Settings::changes).unwrap_or_default();
            let is_asked = |kind: &Discriminant<Change>| changes.iter().any(|change| discriminant(change) == *kind);
            if let Some((_, why)) = forbidden.iter().find(|(kind, _)| is_asked(kind)) {
                locked().untried.push((task.bound.run.id, why.clone()));
                continue;
            }
            // The canary's attempts are the first cell's too, and another process may have made some.
            if !task.is_canary && task.wanted.is_some() && self.is_enough(&task.bound) {
                continue;
            }
            match execute(self.store, &task.bound, task.wanted, self.facts, self.shim, self.watch, self.stop) {
                Ok(Attempted::Executed(executed)) => {
                    self.watch.see(Seen::Ended(&task.bound, &executed));
                    let is_out_of_memory = executed.attempt.is_out_of_memory();
                    locked().executed.push(*executed);
                    task.left -= 1;
                    if is_out_of_memory && task.wanted.is_some() {
                        task.left = 0;
                    }
                    if task.left > 0 && task.wanted.is_some() && self.is_enough(&task.bound) {
                        task.left = 0;
                    }
                }
                Ok(Attempted::Stopped) => {}
                // Whoever executes it watches the machine as well.
                Ok(Attempted::Elsewhere) if task.is_canary => continue,
                Ok(Attempted::Complete) => {
                    locked().elsewhere.push(task.bound.run.id);
                    task.left = 0;
                }
                Ok(Attempted::Elsewhere) => {
                    // The other process may die meanwhile; what it leaves behind must not block the run for good.
                    let blocked = match super::recover(self.store) {
                        Ok(found) => found.into_iter().find_map(|found| found.blocks(task.bound.run.id)),
                        Err(error) => Some(error),
                    };
                    if let Some(error) = blocked {
                        self.watch.see(Seen::Troubled(&task.bound, &error));
                        locked().troubled.push((task.bound.run.id, error));
                        continue;
                    }
                    if waited.insert(task.bound.run.id) {
                        self.watch.see(Seen::Elsewhere(&task.bound));
                    } else {
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
                Err(error) => {
                    if let (EngineError::Data(why), Some(data)) = (&error, &task.bound.data) {
                        let given_up = rounds().give_up(data, why);
                        // It is told once.
                        let is_news = given_up.is_some();
                        let runs = given_up.unwrap_or_else(|| vec![task.bound.run.id]);
                        locked().untried.extend(runs.into_iter().map(|run| (run, why.clone())));
                        if !is_news {
                            continue;
                        }
                    }
                    if let EngineError::Program(why) = &error {
                        let runs = rounds().give_up_program(&task.bound);
                        locked().untried.extend(runs.into_iter().map(|run| (run, why.clone())));
                    }
                    if let EngineError::Hold(HoldError::NoPrivilege { change, .. }) = &error {
                        forbidden.push((discriminant(change), error.to_string()));
                    }
                    let is_over = matches!(error, EngineError::Unsealed { .. });
                    self.watch.see(Seen::Troubled(&task.bound, &error));
                    locked().troubled.push((task.bound.run.id, error));
                    if !is_over {
                        continue;
                    }
                    // It waits in its journal; what is missing beside it is still to be done.
                    task.left -= 1;
                }
            }
            if task.left > 0 {
                let run = task.bound.run.id;
                if let Err(why) = rounds().put_back(task) {
                    locked().untried.push((run, why));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Digest;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_task_whose_thread_panics_keeps_no_other_thread_waiting() {
        let rounds = Mutex::new(Rounds::new(Vec::new(), false));
        let run = RunId(Digest([1; 32]));
        rounds.lock().unwrap().in_flight.push(run);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _in_flight = InFlight { rounds: &rounds, run };
            panic!("a fault");
        }));
        assert!(ended.is_err() && rounds.lock().unwrap().is_over());
    }
}
