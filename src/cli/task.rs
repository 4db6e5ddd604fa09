//! `ledger task`, hidden: the command that a script of `ledger submit` starts on a node.
//!
//! It executes the cells of one task of an array, one after the other, in its own ledger on the node's scratch space.
//! The results are written into the submission's folder; the submitting ledger is never opened.

mod scratch;

use self::scratch::Scratch;
use super::context::{self, Context};
use super::failure::{Failure, exit, with_causes};
use super::output::say;
use super::run::{facts, shim};
use super::trainer::trainer;
use super::watch::{AFTER_TERM, Interruption, Watcher};
use crate::cluster::{CellNote, CellState, ClusterError, Folder, Member, Note, Slurm, Spool, Spooler, TaskFile, left};
use crate::engine::{self, Bound, Cause, EngineError, Machine, Planned, Seen, Stop, Sweep, Watch, bind_anchored};
use crate::host::signals::Forewarning;
use crate::host::{clock, git, secrets, slurm};
use crate::manifest::Program;
use crate::record::{Digest, EventKind, RunId, Table, Value};
use crate::report::count;
use crate::store::Store;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The exit code with which a task asks its script to restart it.
const AGAIN: u8 = exit::BUSY;
/// The number of tries to write a shared file, and the pause between them.
const TRIES: u32 = 5;
const BETWEEN: Duration = Duration::from_secs(3);

/// Execute the cells of one Slurm task (started by a job script)
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The submission's folder
    folder: PathBuf,

    /// The script's array
    #[arg(long)]
    array: usize,
}

pub(super) fn run(args: &Args, _context: &Context) -> Result<u8, Failure> {
    let place = slurm::place().ok_or_else(|| {
        Failure::new(exit::USAGE, "this is not a Slurm job (scripts of `ledger submit` call this command)")
    })?;
    // This comes first, because the script forwards signals from now on.
    let stop = Arc::new(Stopping::install()?);
    // An earlier task of this user may have been killed on this node together with the process that restores its
    // settings. A failure was already reported.
    let _ = context::restore();
    let folder = Folder::at(&args.folder);
    let number = place.task.unwrap_or(0);
    let task = folder.task(args.array, number)?;
    let scratch = Scratch::make(&place, &folder)?;
    let note = Note {
        array: args.array,
        task: number,
        job: place.array_job.clone(),
        restarts: place.restarts,
        node: place.node.clone(),
        started_unix_ms: clock::unix_ms(),
        code: None,
        cells: task.members.iter().map(|member| CellNote::new(member.id)).collect(),
    };
    let spooler = Spooler::start(&folder, note, &scratch.store.journals())?;
    stop.know(task.grace_s);
    let mut run = Run { folder: &folder, task: &task, spooler: &spooler, stop: &stop, job: &place.job, executed: 0 };
    let script = std::fs::read_to_string(folder.script(args.array)).unwrap_or_default();
    let result = run.all(&scratch.store, &script);
    let code = match &result {
        Ok(code) => *code,
        Err(_) => exit::LEDGER,
    };
    let written = spooler.finish(code);
    let code = result?;
    written?;
    if code == exit::LEDGER {
        scratch.keep();
    } else {
        scratch.remove();
    }
    Ok(code)
}

/// The signals that tell the task to stop: Slurm's forewarning, or its signal to end.
struct Stopping {
    signals: Interruption,
    forewarning: Forewarning,
    /// The times when the forewarning and the other signals were first seen.
    forewarned: OnceLock<Instant>,
    ended: OnceLock<Instant>,
    grace_s: AtomicU32,
}

impl Stopping {
    fn install() -> Result<Self, Failure> {
        let forewarning = Forewarning::install()
            .map_err(|error| Failure::new(exit::FAILED, format!("cannot listen for SIGUSR1: {error}")))?;
        let signals = Interruption::install()?;
        let (forewarned, ended) = (OnceLock::new(), OnceLock::new());
        Ok(Self { signals, forewarning, forewarned, ended, grace_s: AtomicU32::new(0) })
    }

    fn know(&self, grace_s: u32) {
        self.grace_s.store(grace_s, Ordering::SeqCst);
    }

    /// Whether the task's time is nearly over, and it was not cancelled.
    fn is_forewarned(&self) -> bool {
        self.forewarning.came() && self.signals.asked() == 0
    }
}

impl Stop for Stopping {
    /// Slurm signals each process of a job, some more than once, so repeated signals do not mean urgency.
    fn asked(&self) -> u32 {
        if self.forewarning.came() {
            self.forewarned.get_or_init(Instant::now);
        }
        if self.signals.asked() > 0 {
            self.ended.get_or_init(Instant::now);
        }
        u32::from(self.forewarned.get().or(self.ended.get()).is_some())
    }

    fn time_left(&self) -> Option<Duration> {
        let since = |first: &OnceLock<Instant>| first.get().map(Instant::elapsed);
        time_left(since(&self.forewarned), since(&self.ended), self.grace_s.load(Ordering::SeqCst))
    }

    fn by(&self) -> String {
        if self.signals.asked() > 0 {
            "by Slurm: cancelled, preempted, requeued or out of time".to_owned()
        } else {
            "by Slurm's warning: its time limit was near".to_owned()
        }
    }
}

/// Returns the time that a worker has left to stop, from the times since the forewarning and since the signal to end.
/// It leaves time to export the results.
fn time_left(forewarned: Option<Duration>, ended: Option<Duration>, grace_s: u32) -> Option<Duration> {
    let half = Duration::from_secs(u64::from(grace_s)) / 2;
    let left = |whole: Duration, since: Option<Duration>| since.map(|since| whole.saturating_sub(since));
    [left(half, forewarned), left(AFTER_TERM, ended)].into_iter().flatten().min()
}

/// One start of a task.
struct Run<'a> {
    folder: &'a Folder,
    task: &'a TaskFile,
    spooler: &'a Spooler,
    stop: &'a Arc<Stopping>,
    job: &'a str,
    /// The number of attempts that were not interrupted.
    executed: usize,
}

/// Returns Git's state of the repository on this node, if it differs from that at the submission. The content of files
/// that the manifest does not name is not compared.
fn repository_since(member: &Member, submitted: &Table) -> Table {
    let directory = member.expected.cell().text("program.directory");
    let Some(directory) = directory.filter(|_| submitted.contains_key("git.commit")) else { return Table::new() };
    let now = git::facts(Path::new(directory));
    let [commit, patch] = ["git.commit", "git.patch"].map(|fact| now.get(fact));
    if commit == submitted.get("git.commit") && patch == submitted.get("git.patch") {
        return Table::new();
    }
    let nothing = || Value::from("git does not report it on the node");
    let mut since = Table::from([("slurm.git.commit".to_owned(), commit.cloned().unwrap_or_else(nothing))]);
    since.extend(patch.map(|patch| ("slurm.git.patch".to_owned(), patch.clone())));
    since
}

impl Run<'_> {
    /// Executes the remaining cells, and returns the exit code of the task.
    fn all(&mut self, store: &Store, script: &str) -> Result<u8, Failure> {
        let program = match &self.task.program {
            None => None,
            Some(text) => Some(text.program().ok_or_else(|| Failure::new(exit::USAGE, "the command cannot be read"))?),
        };
        let mut facts = self.facts(script);
        let first = self.task.members.first();
        facts.extend(first.map(|member| repository_since(member, &self.task.facts)).unwrap_or_default());
        let stop: Arc<dyn Stop> = Arc::<Stopping>::clone(self.stop);
        let machine = Machine::heeding(stop);
        // The repository may change while tasks wait, and a node may lack git, so the state at the submission is used.
        let submitted = self.task.members.first().and_then(|member| member.expected.programs().get("program"));
        let machine = match submitted {
            Some(program) => machine.with_git_of(program),
            None => machine,
        };
        let (mut failed, mut troubled, mut open) = (false, false, 0);
        for member in &self.task.members {
            if self.stop.asked() > 0 {
                open += 1;
                continue;
            }
            match self.bind(member, program.as_ref(), &machine) {
                Ok(bound) => match self.cell(member, bound, store, &facts)? {
                    Came::Done => {}
                    Came::Failed => failed = true,
                    Came::Interrupted => open += 1,
                    Came::Troubled => troubled = true,
                },
                Err(_) if self.stop.asked() > 0 => open += 1,
                Err(reason) => {
                    failed = true;
                    say(&format!("{}: {reason}", member.label));
                    self.note(member.id, |told| (told.state, told.reason) = (CellState::Refused, Some(reason)));
                }
            }
        }
        Ok(if troubled {
            exit::LEDGER
        } else if open > 0 && self.task.requeue && self.executed > 0 && self.stop.is_forewarned() {
            say(&format!("left for another start: {}", count(open, "cell")));
            AGAIN
        } else if open > 0 {
            exit::INTERRUPTED
        } else if failed {
            exit::FAILED
        } else {
            exit::YES
        })
    }

    /// Returns the facts that each attempt of the task records.
    fn facts(&self, script: &str) -> Table {
        let mut all = facts();
        let mut put = |name: &str, value: Value| drop(all.insert(name.to_owned(), value));
        put("slurm.submission", self.task.submission.as_str().into());
        put("slurm.kind", self.task.kind.as_str().into());
        put("slurm.script", secrets::redacted(script).into());
        all.extend(self.task.facts.clone());
        all
    }

    /// Binds a cell to this node, and checks that it is still the submitted one.
    fn bind(&self, member: &Member, program: Option<&Program>, machine: &Machine) -> Result<Bound, String> {
        let mut cell = member.expected.cell().clone();
        // The data's content is read on this node.
        cell.config.remove("data.digest");
        machine.take_image(&cell);
        machine.take_submitted(member.expected.programs().get("program"));
        let bound = bind_anchored(cell, program, trainer().as_ref(), machine).map_err(|error| error.to_string())?;
        match member.expected.difference(&bound.run) {
            None => Ok(bound),
            Some(part) => {
                let changed = member.expected.changed_files(&bound.run);
                let named: Vec<String> = changed.iter().map(|file| format!("`{file}`")).collect();
                let is_told = part == "program" && !named.is_empty();
                let files = if is_told { format!(", by {}", named.join(", ")) } else { String::new() };
                Err(format!("its {part} changed after it was submitted{files} (submit it again)"))
            }
        }
    }

    fn cell(&mut self, member: &Member, bound: Bound, store: &Store, facts: &Table) -> Result<Came, Failure> {
        let run = bound.run.id;
        let tally = patiently(|| self.folder.tallies())?.get(&Folder::key(member.id)).copied().unwrap_or_default();
        let left = left(member, run, tally);
        if left.sealed > 0 && tally.sealed == 0 {
            patiently(|| self.folder.put_sealed(member.id, run, left.sealed))?;
        }
        // Later submissions of this type learn from it which runs its nodes make.
        patiently(|| Spool::around(self.folder).remember(&self.task.kind, &bound.run))?;
        let state = if left.attempts > 0 { CellState::Running } else { CellState::Done };
        self.note(member.id, |told| (told.run, told.state, told.reason) = (Some(run), state, None));
        if left.attempts == 0 {
            say(&format!("{} {}: nothing is left of it", run.0.prefix(8), member.label));
            return Ok(if tally.failed > 0 { Came::Failed } else { Came::Done });
        }
        let mut facts = facts.clone();
        facts.insert("slurm.cell".to_owned(), member.id.to_string().into());
        let watch = TaskWatch::new(store, self.spooler, member.id, self.job, left.attempts);
        let sweep =
            Sweep { store, facts: &facts, shim: &shim()?, watch: &watch, stop: &**self.stop, jobs: 1, canary: false };
        let cause = Cause::Repeat(left.attempts);
        let report =
            sweep.run(vec![Planned { bound, sealed: left.sealed, missing: left.attempts, cause, out_of_memory: None }]);
        watch.watcher.finish();
        let ended = report.executed.iter().filter(|executed| executed.attempt.outcome.name() != "interrupted");
        let ended = ended.count();
        self.executed += ended;
        // Settings that this node refuses and data that changed or cannot be read are not errors of the ledger.
        let is_refusal = |error: &EngineError| {
            matches!(
                error,
                EngineError::Hold(_) | EngineError::Data(_) | EngineError::Program(_) | EngineError::Unseen(_)
            )
        };
        let refused = report.troubled.iter().find(|(_, error)| is_refusal(error)).map(|(_, error)| with_causes(error));
        let came = if watch.lost.load(Ordering::SeqCst) || !report.troubled.iter().all(|(_, error)| is_refusal(error)) {
            Came::Troubled
        } else if refused.is_some() {
            self.note(member.id, |told| (told.state, told.reason) = (CellState::Refused, refused));
            return Ok(Came::Failed);
        } else if ended < left.attempts {
            Came::Interrupted
        } else if report.any_failed() || tally.failed > 0 {
            Came::Failed
        } else {
            Came::Done
        };
        if matches!(came, Came::Done | Came::Failed) {
            self.note(member.id, |told| told.state = CellState::Done);
        }
        Ok(came)
    }

    /// Reports the state of a cell. It is only for display.
    fn note(&self, cell: Digest, change: impl FnOnce(&mut CellNote)) {
        self.spooler.tell(cell, change);
        if let Err(error) = self.spooler.write() {
            say(&format!("warning: {error}"));
        }
    }
}

/// Retries work that may fail temporarily on a shared file system.
fn patiently<T>(work: impl Fn() -> Result<T, ClusterError>) -> Result<T, ClusterError> {
    for _ in 1..TRIES {
        if let Ok(value) = work() {
            return Ok(value);
        }
        std::thread::sleep(BETWEEN);
    }
    work()
}

/// The result of a cell.
enum Came {
    Done,
    Failed,
    Interrupted,
    /// It could not be executed or exported.
    Troubled,
}

/// The value of an unknown counter.
const UNKNOWN: i64 = -1;

/// Returns the joules between two counter readings, if both are known and the counter was not reset in between.
fn spent_j(before: i64, now: Option<i64>) -> Option<i64> {
    now.filter(|_| before >= 0).map(|now| now - before).filter(|joules| *joules >= 0)
}

/// Reports the engine's events to the spooler.
struct TaskWatch<'a> {
    watcher: Watcher,
    store: &'a Store,
    spooler: &'a Spooler,
    cell: Digest,
    job: &'a str,
    /// Slurm's energy counter in J at the start of the attempt, or at the end of the one before; [`UNKNOWN`] if it did not answer.
    energy_j: AtomicI64,
    steps: AtomicI64,
    /// Whether an attempt could not be exported.
    lost: AtomicBool,
}

impl<'a> TaskWatch<'a> {
    fn new(store: &'a Store, spooler: &'a Spooler, cell: Digest, job: &'a str, attempts: usize) -> Self {
        let energy_j = AtomicI64::new(Slurm.energy_j(job).unwrap_or(UNKNOWN));
        let (watcher, steps, lost) = (Watcher::new(attempts, &[]), AtomicI64::new(0), AtomicBool::new(false));
        Self { watcher, store, spooler, cell, job, energy_j, steps, lost }
    }

    fn bring(&self, executed: &engine::Executed) {
        let bring = || self.spooler.bring(self.cell, self.store, executed.id, executed.output.as_slice());
        if let Err(error) = patiently(bring) {
            self.lost.store(true, Ordering::SeqCst);
            say(&format!("error: attempt {} stays on the node: {error}", executed.id.0.prefix(8)));
        }
    }
}

impl Watch for TaskWatch<'_> {
    fn see(&self, seen: Seen<'_>) {
        match &seen {
            Seen::Event(_, event) => match &event.kind {
                EventKind::Plan { steps, .. } => {
                    self.steps.store(i64::try_from(*steps).unwrap_or(0), Ordering::SeqCst);
                }
                EventKind::Step { step, values, .. } if event.rank == 0 => {
                    let steps = u64::try_from(self.steps.load(Ordering::SeqCst)).unwrap_or(0);
                    let loss = values.iter().find(|(name, _)| name == "loss").map(|(_, loss)| *loss);
                    self.spooler.tell(self.cell, |told| {
                        told.step = Some((*step, steps));
                        told.loss = loss.or(told.loss);
                    });
                }
                _ => {}
            },
            Seen::Ended(_, executed) => self.bring(executed),
            _ => {}
        }
        self.watcher.see(seen);
    }

    /// Returns the node's energy during the attempt by Slurm's own counter.
    fn last_facts(&self, _run: RunId) -> Table {
        let now = Slurm.energy_j(self.job);
        let before = self.energy_j.swap(now.unwrap_or(UNKNOWN), Ordering::SeqCst);
        spent_j(before, now).map(|joules| ("slurm.energy_j".to_owned(), joules.into())).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_half_of_the_grace_period_to_stop() {
        let s = |seconds: u64| Some(Duration::from_secs(seconds));
        assert_eq!(time_left(None, None, 15), None);
        assert_eq!(time_left(s(0), None, 15), Some(Duration::from_millis(7_500)));
        assert_eq!(time_left(s(8), None, 15), s(0), "its time would be over before 20 s are");
        assert_eq!(time_left(s(30), None, 120), s(30));
        assert_eq!((time_left(None, s(5), 120), time_left(None, s(21), 120)), (s(15), s(0)));
        assert_eq!(time_left(s(30), s(5), 120), s(15), "who forewarned ends it now");
        assert_eq!(time_left(s(59), s(5), 120), s(1));
    }

    #[test]
    fn energy_is_reported_only_between_two_known_readings() {
        assert_eq!(spent_j(100, Some(150)), Some(50));
        assert_eq!(spent_j(UNKNOWN, Some(150)), None, "150 is what all earlier cells took, too");
        assert_eq!(spent_j(100, None), None);
        assert_eq!(spent_j(100, Some(20)), None, "the job was started again");
    }
}
