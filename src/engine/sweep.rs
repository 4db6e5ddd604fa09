//! Many runs: which are missing, and executing exactly those.

use super::attempt::{Attempted, Executed, execute};
use super::bind::Bound;
use super::worker::Shim;
use super::{EngineError, HoldError, Seen, Stop, Watch};
use crate::record::{Outcome, RunId, Table};
use crate::store::{Store, StoreError};
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};
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
}

/// How many attempts a run needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// As many as to have this many finished ones.
    Complete(usize),
    /// This many, whatever there is.
    Repeat(usize),
}

/// Looks up which attempts are missing. Runs that appear twice are planned once.
///
/// # Errors
/// If the ledger cannot be read; one that does not exist yet is empty.
pub fn plan(store: &Store, bounds: Vec<(Bound, Cause)>) -> Result<Vec<Planned>, StoreError> {
    let mut seen = HashSet::new();
    let bounds: Vec<(Bound, Cause)> = bounds.into_iter().filter(|(bound, _)| seen.insert(bound.run.id)).collect();
    let counts: Option<Vec<usize>> =
        store.if_there(|reader| bounds.iter().map(|(bound, _)| reader.finished_count(bound.run.id)).collect())?;
    let counts = counts.unwrap_or_else(|| vec![0; bounds.len()]);
    let planned = bounds.into_iter().zip(counts).map(|((bound, cause), sealed)| {
        let missing = match cause {
            Cause::Complete(wanted) => wanted.saturating_sub(sealed),
            Cause::Repeat(times) => times,
        };
        Planned { bound, sealed, missing, cause }
    });
    Ok(planned.collect())
}

/// What became of a sweep.
#[derive(Debug, Default)]
pub struct SweepReport {
    /// Every attempt that was executed and sealed, in the order of their ends.
    pub executed: Vec<Executed>,
    /// Runs whose attempts could not be made or kept.
    pub troubled: Vec<(RunId, EngineError)>,
    /// Runs that another process executed meanwhile.
    pub elsewhere: Vec<RunId>,
    /// Whether it was stopped before all was done.
    pub interrupted: bool,
}

impl SweepReport {
    /// Whether any attempt of this sweep failed.
    pub fn any_failed(&self) -> bool {
        self.executed.iter().any(|executed| matches!(executed.sealed.attempt.outcome, Outcome::Failed { .. }))
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
}

struct Task {
    bound: Bound,
    wanted: Option<usize>,
    left: usize,
}

impl Sweep<'_> {
    /// Executes every missing attempt. One that fails does not keep the others from being executed.
    pub fn run(&self, planned: Vec<Planned>) -> SweepReport {
        let tasks = planned.into_iter().filter(|planned| planned.missing > 0);
        let tasks = tasks.map(|planned| {
            let wanted = if let Cause::Complete(wanted) = planned.cause { Some(wanted) } else { None };
            Task { bound: planned.bound, wanted, left: planned.missing }
        });
        let queue: Mutex<VecDeque<Task>> = Mutex::new(tasks.collect());
        let report = Mutex::new(SweepReport::default());
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| self.drain(&queue, &report));
            }
        });
        let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.interrupted |= self.stop.asked() > 0;
        report
    }

    fn drain(&self, queue: &Mutex<VecDeque<Task>>, report: &Mutex<SweepReport>) {
        let locked = || report.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waited: HashSet<RunId> = HashSet::new();
        let mut unprivileged = false;
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(mut task) = next else { return };
            if self.stop.asked() > 0 {
                locked().interrupted = true;
                return;
            }
            if unprivileged && task.bound.settings_to_make().is_some() {
                // The first one has said why.
                continue;
            }
            match execute(self.store, &task.bound, task.wanted, self.facts, self.shim, self.watch, self.stop) {
                Ok(Attempted::Executed(executed)) => {
                    self.watch.see(Seen::Ended(&task.bound, &executed));
                    locked().executed.push(*executed);
                    task.left -= 1;
                }
                Ok(Attempted::Complete) => {
                    locked().elsewhere.push(task.bound.run.id);
                    task.left = 0;
                }
                Ok(Attempted::Elsewhere) => {
                    if waited.insert(task.bound.run.id) {
                        self.watch.see(Seen::Elsewhere(&task.bound));
                    } else {
                        std::thread::sleep(Duration::from_millis(100));
                    }
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
                }
                Err(error) => {
                    unprivileged |= matches!(error, EngineError::Hold(HoldError::NoPrivilege { .. }));
                    self.watch.see(Seen::Troubled(&task.bound, &error));
                    locked().troubled.push((task.bound.run.id, error));
                    continue;
                }
            }
            if task.left > 0 {
                // To the end: what another process executes may be done by then.
                queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(task);
            }
        }
    }
}
