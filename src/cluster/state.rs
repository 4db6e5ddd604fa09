//! Derives the state of each cell of a submission from Slurm's report, the task's note and the results.

use super::folder::Submitted;
use super::handover::{Handover, handovers};
use super::note::CellState;
use super::{Answer, ClusterError, Fate, Folder, Listed, Note, Seen, Submission, Tally};
use crate::host::clock;
use crate::record::RunId;

/// The state of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Its attempts have finished.
    Finished,
    /// Its task is executing it.
    Running,
    /// Its task is pending, or is executing another cell.
    Waiting,
    /// An attempt failed.
    Failed,
    /// Its task found that it would be another cell than was submitted, or that the node lacks what it needs.
    Refused,
    /// It was stopped by the time limit, a preemption or a person.
    Interrupted,
    /// Its task was cancelled before it began.
    Cancelled,
    /// Its task is over, and there is no result.
    Lost,
    /// Slurm could not be queried.
    Unknown,
}

impl State {
    /// Returns the name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }

    /// Whether another start of its task would help, because it neither finished nor failed.
    pub fn is_resumable(self) -> bool {
        matches!(self, Self::Interrupted | Self::Cancelled | Self::Lost)
    }

    /// Whether its task is executing it or will.
    pub fn is_under_way(self) -> bool {
        matches!(self, Self::Running | Self::Waiting | Self::Unknown)
    }
}

/// One cell of a submission and its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Stand {
    /// The cell.
    pub cell: Listed,
    /// Its state.
    pub state: State,
    /// Its array's newest job, if there is one.
    pub job: Option<String>,
    /// Its node, or empty if it never had one.
    pub node: String,
    /// Its run, once a node has determined it.
    pub run: Option<RunId>,
    /// The counts of its results.
    pub tally: Tally,
    /// The reason for its state.
    pub reason: Option<String>,
    /// The last reported step, and the number of steps.
    pub step: Option<(u64, u64)>,
    /// The last reported loss.
    pub loss: Option<f64>,
}

/// A submission and the state of its cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The record of the submission.
    pub submission: Submission,
    /// The Slurm jobs of its arrays.
    pub jobs: Vec<Submitted>,
    /// Its cells.
    pub cells: Vec<Stand>,
}

impl Standing {
    /// Whether `submit` has ended, so that no more arrays will be submitted. An array that Slurm refused is not
    /// submitted again automatically.
    pub fn is_submitted(&self, now_ms: i64) -> bool {
        now_ms > self.submission.created_unix_ms + AT_IT_MS || self.cells.iter().all(|cell| cell.job.is_some())
    }

    /// Whether no task will execute any more cells.
    pub fn is_over(&self) -> bool {
        !self.cells.iter().any(|cell| cell.state.is_under_way())
    }

    /// Marks the folder as closed, unless tasks were submitted since this state was read.
    ///
    /// # Errors
    /// If the folder cannot be read or written.
    pub fn close(&self, folder: &Folder) -> Result<(), ClusterError> {
        folder.close(true)?;
        // A concurrent submit writes its file first and opens the folder afterwards, so one of the two sees the other.
        let now_ms = clock::unix_ms();
        let is_handed_over = handovers(folder)?.iter().any(|handover| handover.is_in_flight(now_ms));
        if is_handed_over || folder.jobs()? != self.jobs { folder.close(false) } else { Ok(()) }
    }
}

/// The longest time that a `submit` takes to submit its arrays.
const AT_IT_MS: i64 = 15 * 60 * 1000;

/// Determines the state of a submission's cells. `tasks` is Slurm's answer, or `None` if it cannot be queried.
///
/// # Errors
/// If the submission's folder cannot be read.
pub fn stand(folder: &Folder, tasks: Option<&Answer>) -> Result<Standing, ClusterError> {
    let submission = folder.submission()?;
    // Read first: an array whose job becomes known meanwhile is then among the jobs.
    let (waiting, now_ms) = (handovers(folder)?, clock::unix_ms());
    let (jobs, notes, tallies) = (folder.jobs()?, folder.notes()?, folder.tallies()?);
    let cells = submission.cells.iter().map(|cell| {
        let tally = tallies.get(&Folder::key(cell.id)).copied().unwrap_or_default();
        let is_of = |submitted: &&Submitted| submitted.array == cell.array && submitted.tasks.contains(&cell.task);
        let job = jobs.iter().rev().find(is_of).map(|submitted| submitted.job.clone());
        let note = notes.get(&(cell.array, cell.task));
        let seen = job.as_ref().zip(tasks).and_then(|(job, tasks)| tasks.of(job, cell.task));
        let stand = one(cell, tally, job, note, seen);
        let is_of = |one: &&Handover| one.array == cell.array && one.tasks.contains(&cell.task);
        match waiting.iter().rev().find(is_of) {
            Some(handover) if stand.state.is_resumable() => {
                unanswered(stand, tasks.is_none() || handover.is_in_flight(now_ms))
            }
            _ => stand,
        }
    });
    let cells = cells.collect();
    Ok(Standing { jobs, cells, submission })
}

/// The state of a cell whose array was submitted without a known job. `may_come` is whether the job may still appear.
fn unanswered(stand: Stand, may_come: bool) -> Stand {
    if may_come {
        let reason = "its array is being submitted to Slurm, or its `submit` was ended meanwhile";
        return Stand { state: State::Unknown, reason: Some(reason.to_owned()), ..stand };
    }
    let reason =
        "it is unknown whether its array was submitted: its `submit` was ended meanwhile, and Slurm has no such job";
    let own = stand.reason.clone().filter(|_| stand.job.is_some());
    Stand { reason: own.or(Some(reason.to_owned())), ..stand }
}

/// The state of one cell. `seen` is `None` if Slurm was not queried, and `Some(None)` if it has forgotten the task.
fn one(cell: &Listed, tally: Tally, job: Option<String>, note: Option<&Note>, seen: Option<Option<&Seen>>) -> Stand {
    let told = note.and_then(|note| note.cells.iter().find(|told| told.id == cell.id));
    let told_state = told.map_or(CellState::Waiting, |told| told.state);
    let said = |told: Option<String>| told.filter(|text| !text.is_empty());
    let by_slurm = seen.flatten();
    let (state, reason) = if tally.good() >= cell.attempts {
        (State::Finished, None)
    } else if tally.settled() >= cell.attempts || told_state == CellState::Done && tally.damaged == 0 {
        (if tally.failed > 0 { State::Failed } else { State::Finished }, None)
    } else if job.is_none() {
        (State::Lost, Some("its array was not submitted".to_owned()))
    } else {
        match (seen, by_slurm.map_or(Fate::Over, |seen| seen.fate)) {
            (None, _) => (State::Unknown, None),
            (_, Fate::Waiting) => (State::Waiting, said(by_slurm.map(|seen| seen.reason.clone()))),
            (_, Fate::Running) => match told_state {
                CellState::Running => (State::Running, None),
                CellState::Refused => (State::Refused, told.and_then(|told| told.reason.clone())),
                _ => (State::Waiting, None),
            },
            (_, Fate::Over) => {
                let stopped = note.and_then(|note| note.code).is_some_and(|code| STOPPED.contains(&code));
                over(tally, (told_state, stopped), told.and_then(|told| told.reason.clone()), by_slurm)
            }
        }
    };
    let node = by_slurm.map(|seen| seen.node.clone()).filter(|node| !node.is_empty());
    Stand {
        cell: cell.clone(),
        state,
        job,
        node: node.or_else(|| note.map(|note| note.node.clone())).unwrap_or_default(),
        run: told.and_then(|told| told.run),
        tally,
        reason,
        step: told.and_then(|told| told.step),
        loss: told.and_then(|told| told.loss),
    }
}

/// The exit codes of a task that was signalled to stop.
const STOPPED: [i64; 2] = [75, 130];

/// The state of a cell whose task has ended before the cell did. `stopped` is whether the task ended on a stop signal.
fn over(
    tally: Tally,
    (told, stopped): (CellState, bool),
    reason: Option<String>,
    seen: Option<&Seen>,
) -> (State, Option<String>) {
    let ended = match seen {
        Some(seen) if seen.node.is_empty() => format!("Slurm says {} of its task", seen.state),
        Some(seen) => format!("Slurm says {} of its task on {}", seen.state, seen.node),
        None => "its task has ended, and Slurm has no record of how".to_owned(),
    };
    match (told, seen.map(|seen| seen.state.as_str())) {
        (CellState::Refused, _) => (State::Refused, reason),
        (CellState::Done, _) if tally.damaged > 0 => {
            (State::Lost, Some("its results are damaged (out/*.damaged in the submission's folder)".to_owned()))
        }
        _ if tally.failed > 0 => (State::Failed, None),
        (CellState::Interrupted, _) => (State::Interrupted, reason.or(Some(ended))),
        _ if tally.interrupted > 0 => (State::Interrupted, Some(ended)),
        (CellState::Waiting, Some("CANCELLED")) => (State::Cancelled, Some(ended)),
        (CellState::Waiting, _) if stopped => (State::Interrupted, Some("its task was stopped before it".to_owned())),
        _ => (State::Lost, Some(ended)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::CellNote;
    use crate::record::Digest;
    use std::collections::BTreeMap;

    fn cell() -> Listed {
        Listed { id: Digest::of(b"c"), label: String::new(), array: 0, task: 0, attempts: 2 }
    }

    fn note(state: CellState, reason: Option<&str>) -> Note {
        let told = CellNote { state, reason: reason.map(str::to_owned), ..CellNote::new(cell().id) };
        let (job, node) = ("1".to_owned(), "n1".to_owned());
        Note { array: 0, task: 0, job, restarts: 0, node, started_unix_ms: 0, code: None, cells: vec![told] }
    }

    fn seen(fate: Fate, state: &str, reason: &str) -> Seen {
        Seen { fate, state: state.to_owned(), node: "n2".to_owned(), reason: reason.to_owned() }
    }

    fn tally(finished: usize, failed: usize, interrupted: usize, sealed: usize) -> Tally {
        Tally { finished, failed, interrupted, sealed, damaged: 0 }
    }

    /// Returns state and reason of a cell of job 1.
    fn of(tally: Tally, note: Option<&Note>, seen: Option<&Seen>) -> (State, String) {
        let stand = one(&cell(), tally, Some("1".to_owned()), note, Some(seen));
        (stand.state, stand.reason.unwrap_or_default())
    }

    #[test]
    fn results_take_precedence_over_slurms_report() {
        let running = seen(Fate::Running, "RUNNING", "");
        assert_eq!(of(tally(2, 0, 0, 0), None, Some(&running)).0, State::Finished);
        assert_eq!(of(tally(1, 0, 0, 1), None, None).0, State::Finished);
        assert_eq!(of(tally(1, 1, 0, 0), None, Some(&running)).0, State::Failed);
        let at_it = note(CellState::Running, None);
        assert_eq!(
            of(tally(0, 0, 0, 1), Some(&at_it), Some(&running)).0,
            State::Running,
            "one of two was sealed before"
        );
        let done = note(CellState::Done, None);
        let damaged = Tally { damaged: 1, ..tally(1, 0, 0, 0) };
        let (state, reason) = of(damaged, Some(&done), None);
        assert!(state == State::Lost && reason.starts_with("its results are damaged"), "{reason}");
        assert_eq!(of(tally(1, 0, 0, 0), Some(&done), None).0, State::Finished, "fewer were left than was thought");
    }

    #[test]
    fn a_submission_in_progress_is_not_over() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::at(dir.path());
        let submission = Submission { cells: vec![cell()], ..Submission::empty() };
        std::fs::create_dir(dir.path().join("jobs")).unwrap();
        folder.write("submission.json", submission.text().as_bytes()).unwrap();
        let known = Answer::default();
        let standing = || stand(&folder, Some(&known)).unwrap();
        assert!(!standing().is_submitted(AT_IT_MS) && standing().is_submitted(AT_IT_MS + 1));
        let state = || standing().cells.remove(0);
        assert_eq!(state().reason.as_deref(), Some("its array was not submitted"));
        let hand_over = |since: i64| {
            let text = format!("{{\"format\": 1, \"array\": 0, \"tasks\": [0], \"since_unix_ms\": {since}}}");
            folder.write(&format!("handover-0-{since}.json"), text.as_bytes()).unwrap();
        };
        hand_over(1);
        assert!(state().reason.unwrap().starts_with("it is unknown whether its array was submitted"));
        assert_eq!(state().state, State::Lost);
        let unasked = stand(&folder, None).unwrap();
        assert_eq!(unasked.cells[0].state, State::Unknown, "only Slurm can say that it has no such job");
        assert!(!unasked.is_over());
        let now_ms = clock::unix_ms();
        hand_over(now_ms);
        assert_eq!(
            state().state,
            State::Unknown,
            "Slurm's answer may be on its way: nobody else executes it meanwhile"
        );
        std::fs::remove_file(dir.path().join(format!("handover-0-{now_ms}.json"))).unwrap();
        let job = Submitted { job: "1".to_owned(), array: 0, tasks: vec![0], unix_ms: 0 };
        let before = standing();
        folder.add_job(&job).unwrap();
        assert!(standing().is_submitted(0));
        assert_eq!(state().state, State::Unknown, "Slurm was asked before there was the job");
        before.close(&folder).unwrap();
        assert!(!folder.is_closed(), "it is not what was looked at");
        let known = Answer::new(["1".to_owned()], BTreeMap::new());
        let standing = stand(&folder, Some(&known)).unwrap();
        assert_eq!(standing.cells[0].state, State::Lost);
        hand_over(now_ms);
        standing.close(&folder).unwrap();
        assert!(!folder.is_closed(), "more is to come");
        std::fs::remove_file(dir.path().join(format!("handover-0-{now_ms}.json"))).unwrap();
        standing.close(&folder).unwrap();
        assert!(folder.is_closed());
    }

    #[test]
    fn the_note_of_a_running_task_determines_the_state() {
        let (none, running) = (tally(0, 0, 0, 0), seen(Fate::Running, "RUNNING", ""));
        let waiting = seen(Fate::Waiting, "PENDING", "Priority");
        assert_eq!(of(none, None, Some(&waiting)), (State::Waiting, "Priority".to_owned()));
        assert_eq!(of(none, None, Some(&running)).0, State::Waiting);
        assert_eq!(of(none, Some(&note(CellState::Running, None)), Some(&running)).0, State::Running);
        let requeued = note(CellState::Interrupted, Some("preempted"));
        assert_eq!(of(tally(0, 0, 1, 0), Some(&requeued), Some(&waiting)).0, State::Waiting);
        let refused = note(CellState::Refused, Some("other data"));
        assert_eq!(of(none, Some(&refused), Some(&running)), (State::Refused, "other data".to_owned()));
    }

    #[test]
    fn a_cell_without_a_result_has_a_reason_after_its_task() {
        let none = tally(0, 0, 0, 0);
        let dead = seen(Fate::Over, "NODE_FAIL", "");
        let running = note(CellState::Running, None);
        let lost = (State::Lost, "Slurm says NODE_FAIL of its task on n2".to_owned());
        assert_eq!(of(none, Some(&running), Some(&dead)), lost);
        assert_eq!(of(none, None, None).1, "its task has ended, and Slurm has no record of how");
        let cancelled = seen(Fate::Over, "CANCELLED", "");
        assert_eq!(of(none, None, Some(&cancelled)).0, State::Cancelled);
        let stopped = note(CellState::Interrupted, Some("it was stopped"));
        assert_eq!(of(none, Some(&stopped), Some(&cancelled)), (State::Interrupted, "it was stopped".to_owned()));
        assert_eq!(of(tally(0, 0, 1, 0), Some(&running), Some(&dead)).0, State::Interrupted, "from its journal");
        let before = (State::Interrupted, "its task was stopped before it".to_owned());
        let failed = seen(Fate::Over, "FAILED", "");
        let ended = |code| Note { code: Some(code), ..note(CellState::Waiting, None) };
        assert_eq!(of(none, Some(&ended(130)), Some(&failed)), before);
        assert_eq!(of(none, Some(&ended(3)), Some(&failed)).0, State::Lost);
        assert_eq!(one(&cell(), none, None, None, None).state, State::Lost);
        assert_eq!(one(&cell(), none, Some("1".to_owned()), None, None).state, State::Unknown);
    }
}
