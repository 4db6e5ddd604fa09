//! Plans and executes the missing attempts of many runs.

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

/// A run of a sweep and its missing attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The run.
    pub bound: Bound,
    /// The number of finished attempts in the ledger.
    pub sealed: usize,
    /// The number of missing attempts.
    pub missing: usize,
    /// The request that they follow from.
    pub cause: Cause,
    /// An attempt that ran out of GPU memory, if none finished. Another one would fail too and is not planned.
    pub out_of_memory: Option<AttemptId>,
}

impl Planned {
    /// Plans the run although it ran out of GPU memory before.
    pub fn try_again(&mut self) {
        if let (Some(_), Cause::Complete(wanted)) = (self.out_of_memory.take(), self.cause) {
            self.missing = wanted.saturating_sub(self.sealed);
        }
    }
}

/// The requested attempts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Attempts until this many have finished.
    Complete(usize),
    /// This many more attempts.
    Repeat(usize),
}

/// Determines the missing attempts. A run that appears twice is planned once, with the larger number of finished
/// attempts.
///
/// # Errors
/// If the ledger cannot be read. A missing ledger counts as empty.
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

/// Merges duplicate runs.
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

/// An attempt of a run that ran out of GPU memory.
fn out_of_memory(reader: &Reader<'_>, run: RunId) -> Result<Option<AttemptId>, StoreError> {
    for (id, is_finished) in reader.attempts_of(run)? {
        if !is_finished && reader.readable(id)?.is_some_and(|attempt| attempt.is_out_of_memory()) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// The largest number of attempts of a sweep, including those of its canary if it has one.
pub fn attempts(planned: &[Planned], with_canary: bool) -> usize {
    let missing: usize = planned.iter().map(|planned| planned.missing).sum();
    missing + if with_canary { canaries(planned) } else { 0 }
}

/// The number of extra attempts for the canary: first, last and in between. Sweeps of fewer than three attempts or of a
/// single run, whose attempts are all of the canary's cell, have none.
fn canaries(planned: &[Planned]) -> usize {
    let missing: usize = planned.iter().map(|planned| planned.missing).sum();
    match Order::of(planned.first().map(|planned| &planned.bound)).canary_every {
        0 => 0,
        _ if missing < 3 || planned.len() < 2 => 0,
        every => missing.div_ceil(every) + 1,
    }
}

/// The result of a sweep.
#[derive(Debug, Default)]
pub struct SweepReport {
    /// Every sealed attempt, in the order of their ends.
    pub executed: Vec<Executed>,
    /// Runs whose attempts could not be executed or stored.
    pub troubled: Vec<(RunId, EngineError)>,
    /// Runs that were not tried or not tried further, with the reason: missing privilege for a change of GPU settings,
    /// or changed data or programs.
    pub untried: Vec<(RunId, String)>,
    /// Runs that another process executed meanwhile.
    pub elsewhere: Vec<RunId>,
    /// Whether it was stopped early.
    pub interrupted: bool,
}

impl SweepReport {
    /// Whether any attempt of this sweep failed.
    pub fn any_failed(&self) -> bool {
        self.executed.iter().any(|executed| matches!(executed.attempt.outcome, Outcome::Failed { .. }))
    }
}

/// Everything that a sweep needs besides its runs.
pub struct Sweep<'a> {
    /// The ledger.
    pub store: &'a Store,
    /// The facts about the machine.
    pub facts: &'a Table,
    /// The program that starts workers.
    pub shim: &'a Shim,
    /// The observer.
    pub watch: &'a dyn Watch,
    /// The source of stop requests.
    pub stop: &'a dyn Stop,
    /// The number of concurrent attempts.
    pub jobs: usize,
    /// Whether the canary of the protocol is executed too. Not if a certain number of attempts was requested.
    pub canary: bool,
}

/// The polling interval of a thread without a task.
const LOOK_EVERY: Duration = Duration::from_millis(20);

struct Task {
    bound: Bound,
    wanted: Option<usize>,
    /// The number of missing attempts at the start.
    missing: usize,
    left: usize,
    is_canary: bool,
}

/// The remaining tasks, in rounds. Each round has every run once.
struct Rounds {
    order: Order,
    number: u64,
    /// The id of the sweep, which distinguishes its rounds from those of other sweeps.
    sweep: String,
    now: VecDeque<Task>,
    next: Vec<Task>,
    canary: Option<Bound>,
    since_canary: usize,
    /// Runs with an attempt in progress.
    in_flight: Vec<RunId>,
    /// Data that changed after run ids were computed, and how.
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

    /// Removes all tasks with such a run, and returns their runs.
    fn remove(&mut self, is_meant: impl Fn(&Bound) -> bool) -> Vec<RunId> {
        let tasks = self.now.iter().chain(&self.next).filter(|task| is_meant(&task.bound));
        let runs = tasks.map(|task| task.bound.run.id).collect();
        self.now.retain(|task| !is_meant(&task.bound));
        self.next.retain(|task| !is_meant(&task.bound));
        self.canary.take_if(|canary| is_meant(canary));
        runs
    }

    /// Removes all tasks with these data, and returns their runs. `None` if it was done before.
    fn give_up(&mut self, data: &Arc<DataFiles>, why: &str) -> Option<Vec<RunId>> {
        if self.changed.iter().any(|(changed, _)| changed == data) {
            return None;
        }
        self.changed.push((Arc::clone(data), why.to_owned()));
        Some(self.remove(|bound| bound.data.as_ref() == Some(data)))
    }

    /// Puts an unfinished task into the next round, when another process may have executed it. If its data changed,
    /// returns that as an error instead.
    fn put_back(&mut self, task: Task) -> Result<(), String> {
        let changed = |data| self.changed.iter().find(|(changed, _)| changed == data);
        if let Some((_, why)) = task.bound.data.as_ref().and_then(changed) {
            return Err(why.clone());
        }
        self.next.push(task);
        Ok(())
    }

    /// The next task whose run has no attempt in progress, if there is one.
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
                // The attempt also belongs to the first run, and to the round in which it is made.
                self.named(task, self.number)
            }
            None => {
                let at = self.now.iter().position(|task| !self.in_flight.contains(&task.bound.run.id))?;
                let task = self.now.remove(at)?;
                self.since_canary += 1;
                // Counted by the run's own attempts, because concurrent runs may be one round ahead.
                let round = task.missing - task.left + 1;
                self.named(task, round as u64)
            }
        };
        self.in_flight.push(task.bound.run.id);
        Some(task)
    }

    /// The canary, if it is due: at intervals, and after the last task.
    fn canary_if_due(&mut self) -> Option<Bound> {
        let run = self.canary.as_ref()?.run.id;
        if !self.now.is_empty() {
            let is_due = self.since_canary >= self.order.canary_every && !self.in_flight.contains(&run);
            return if is_due { self.canary.clone() } else { None };
        }
        // After the last execution the canary is not needed any more.
        if self.in_flight.is_empty() && self.since_canary > 0 { self.canary.take() } else { None }
    }

    /// Whether a task waits to be taken.
    fn is_left(&self) -> bool {
        !self.now.is_empty() || !self.next.is_empty()
    }

    /// Whether no task is left, and none can be put back.
    fn is_over(&self) -> bool {
        !self.is_left() && self.in_flight.is_empty()
    }

    /// Adds the round to the facts of a task.
    fn named(&self, mut task: Task, round: u64) -> Task {
        task.bound.facts.insert(Attempt::ROUND.to_owned(), format!("{}:{round}", self.sweep).into());
        task
    }
}

/// A task in progress. Dropping it ends the task, also in a panic, so that other threads do not wait forever.
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
    /// Executes every missing attempt. A failed attempt does not stop the others.
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
        // A request that comes when everything is done did not interrupt the sweep.
        let is_left = queue.into_inner().unwrap_or_else(PoisonError::into_inner).is_left();
        let is_cut = |executed: &Executed| matches!(executed.attempt.outcome, Outcome::Interrupted { .. });
        report.interrupted |= self.stop.asked() > 0 && (is_left || report.executed.iter().any(is_cut));
        report
    }

    /// Whether the confidence interval of a run is as narrow as its cell asks. If the ledger cannot be read, the next
    /// attempt reports it.
    fn is_enough(&self, bound: &Bound) -> bool {
        Until::of(bound).is_some_and(|until| until.is_met(self.store, bound).unwrap_or(false))
    }

    /// Tries again to seal attempts that could not be sealed when they ended.
    pub(super) fn seal_waiting(&self, report: &Mutex<SweepReport>) {
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        if !report.troubled.iter().any(|(_, error)| matches!(error, EngineError::Unsealed { .. })) {
            return;
        }
        // An attempt that still cannot be sealed is tried again later.
        for found in super::recover(self.store).unwrap_or_default() {
            if let Recovered::Sealed(id) = found {
                self.watch.see(Seen::Recovered(id));
            }
        }
        let mut sealed = Vec::new();
        report.troubled.retain(|(_, error)| self.sealed_meanwhile(error).map(|one| sealed.push(one)).is_none());
        report.executed.extend(sealed);
    }

    /// The attempt of an [`EngineError::Unsealed`], if any process has sealed it since.
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
        // The kinds of changes that this user has no privilege for. Others may be allowed.
        let mut forbidden: Vec<(Discriminant<Change>, String)> = Vec::new();
        loop {
            let next = rounds().take();
            let Some(mut task) = next else {
                if self.stop.asked() > 0 || rounds().is_over() {
                    return;
                }
                // The remaining tasks wait for attempts of the same runs in other threads.
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
            // Attempts of the canary or of other processes may have made the interval narrow enough.
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
                // The other process's attempt serves as the canary too.
                Ok(Attempted::Elsewhere) if task.is_canary => continue,
                Ok(Attempted::Complete) => {
                    locked().elsewhere.push(task.bound.run.id);
                    task.left = 0;
                }
                Ok(Attempted::Elsewhere) => {
                    // The other process may die. Its journal must not lock the run forever.
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
                        // Changed data are reported once.
                        let is_news = given_up.is_some();
                        let runs = given_up.unwrap_or_else(|| vec![task.bound.run.id]);
                        locked().untried.extend(runs.into_iter().map(|run| (run, why.clone())));
                        if !is_news {
                            continue;
                        }
                    }
                    if let EngineError::Program(why) = &error {
                        let runs = rounds().remove(|bound| bound.program_files == task.bound.program_files);
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
                    // The attempt waits in its journal. Further missing attempts are still executed.
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
    fn a_panic_in_a_task_does_not_block_other_threads() {
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
