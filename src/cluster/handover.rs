//! Submits an array to Slurm such that its job is found again if `submit` was killed before it recorded Slurm's answer.

use super::fields::{Fields, text_of};
use super::folder::{Submitted, names, remove};
use super::{ClusterError, Folder, Job, Slurm};
use crate::host::{clock, command::CommandError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The prefix of the file that records that an array is being submitted.
const PREFIX: &str = "handover-";
/// How long Slurm's answer may be outstanding: sbatch tries for a minute to reach a controller, even after its caller
/// has died.
const IN_FLIGHT_MS: i64 = 150_000;

/// An array that is being submitted to Slurm, or was when its `submit` ended. Its job id is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The index of the array in the submission.
    pub array: usize,
    /// Its tasks.
    pub tasks: Vec<u32>,
    /// When the submission began, in milliseconds since the Unix epoch.
    pub unix_ms: i64,
}

impl Handover {
    fn path(&self, folder: &Folder) -> PathBuf {
        folder.dir().join(format!("{PREFIX}{}-{}.json", self.array, self.unix_ms))
    }

    /// Whether Slurm may still accept it.
    pub fn is_in_flight(&self, now_ms: i64) -> bool {
        now_ms < self.unix_ms + IN_FLIGHT_MS
    }
}

/// Returns the arrays that were submitted without a recorded answer, oldest first.
///
/// # Errors
/// If the folder cannot be listed, or one of the files cannot be read.
pub fn handovers(folder: &Folder) -> Result<Vec<Handover>, ClusterError> {
    let mut found = Vec::new();
    for name in names(folder.dir())?.iter().filter(|name| name.starts_with(PREFIX)) {
        let fields = match Fields::read(&folder.dir().join(name)) {
            // Its answer was recorded just now.
            Err(ClusterError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => continue,
            fields => fields?,
        };
        let tasks = fields.list("tasks")?.iter().filter_map(|task| u32::try_from(task.as_int()?).ok()).collect();
        found.push(Handover { array: fields.number("array")?, tasks, unix_ms: fields.int("since_unix_ms")? });
    }
    found.sort_by_key(|handover| handover.unix_ms);
    Ok(found)
}

/// Submits an array, or the tasks of it that `range` names in sbatch's syntax, and records its job.
///
/// # Errors
/// If Slurm refuses, or a file cannot be written.
pub(super) fn hand_over(
    folder: &Folder,
    (array, tasks): (usize, Vec<u32>),
    range: Option<&str>,
    slurm: Slurm,
) -> Result<Submitted, ClusterError> {
    let handover = Handover { array, tasks, unix_ms: clock::unix_ms() };
    let members =
        [("array", array.into()), ("tasks", handover.tasks.clone().into()), ("since_unix_ms", handover.unix_ms.into())];
    let text = text_of(members);
    let name = handover.path(folder).file_name().unwrap_or_default().to_string_lossy().into_owned();
    folder.write(&name, text.as_bytes())?;
    match slurm.submit(&folder.script(array), range) {
        Ok(job) => answered(folder, &handover, job),
        // Slurm may have accepted it nevertheless.
        Err(error) if may_have_been_taken(&error) => Err(error),
        Err(error) => {
            remove(&handover.path(folder))?;
            Err(error)
        }
    }
}

fn may_have_been_taken(error: &ClusterError) -> bool {
    use CommandError::{Late, Unheard};
    matches!(error, ClusterError::Unanswered { .. } | ClusterError::Command(Late { .. } | Unheard { .. }))
}

fn answered(folder: &Folder, handover: &Handover, job: Job) -> Result<Submitted, ClusterError> {
    let Handover { array, tasks, unix_ms } = handover.clone();
    let submitted = Submitted { job, array, tasks, unix_ms };
    folder.add_job(&submitted)?;
    remove(&handover.path(folder))?;
    Ok(submitted)
}

/// Finds the jobs of arrays that were submitted without a recorded answer: by the tasks' notes, and by the scripts of
/// the jobs that Slurm knows. Records and returns the jobs found.
///
/// # Errors
/// If the folder cannot be read or written.
pub fn find_jobs(
    folder: &Folder,
    waiting: &[Handover],
    known: &BTreeMap<Job, (String, Vec<u32>)>,
) -> Result<Vec<Submitted>, ClusterError> {
    let named: BTreeSet<Job> = folder.jobs()?.into_iter().map(|submitted| submitted.job).collect();
    let mut unnamed: BTreeMap<Job, (usize, Vec<u32>)> = BTreeMap::new();
    for note in folder.notes()?.into_values().filter(|note| !named.contains(&note.job)) {
        unnamed.entry(note.job.clone()).or_insert((note.array, Vec::new())).1.push(note.task);
    }
    for (job, (script, tasks)) in known.iter().filter(|(job, _)| !named.contains(*job)) {
        let array = waiting.iter().find(|one| folder.script(one.array).display().to_string() == *script);
        if let Some(Handover { array, .. }) = array {
            unnamed.entry(job.clone()).or_insert((*array, Vec::new())).1.extend(tasks);
        }
    }
    let (mut found, mut waiting) = (Vec::new(), waiting.to_vec());
    for (job, (array, tasks)) in unnamed {
        // Slurm forgets ended tasks one by one, so `tasks` may be a part of them.
        let fits = |one: &Handover| one.array == array && tasks.iter().all(|task| one.tasks.contains(task));
        if let Some(place) = waiting.iter().position(fits) {
            found.push(answered(folder, &waiting.remove(place), job)?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Note, Spool};

    fn waiting(folder: &Folder, array: usize, tasks: &[u32], unix_ms: i64) -> Handover {
        let handover = Handover { array, tasks: tasks.to_vec(), unix_ms };
        let text =
            text_of([("array", array.into()), ("tasks", tasks.to_vec().into()), ("since_unix_ms", unix_ms.into())]);
        std::fs::write(handover.path(folder), text).unwrap();
        handover
    }

    #[test]
    fn an_unrecorded_job_is_found_by_its_script_or_its_tasks() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Spool::of(dir.path(), None).make("s").unwrap();
        let by_script = waiting(&folder, 0, &[0, 1], 5);
        let by_note = waiting(&folder, 1, &[0], 6);
        let again = waiting(&folder, 0, &[1], 7);
        let all = handovers(&folder).unwrap();
        assert_eq!(all, [by_script.clone(), by_note, again.clone()]);
        let script = |array: usize| folder.script(array).display().to_string();
        let of = |job: &str, script: String, tasks: &[u32]| (job.to_owned(), (script, tasks.to_vec()));
        let foreign = of("3", "/elsewhere/array-0.sh".to_owned(), &[0, 1]);
        assert_eq!(find_jobs(&folder, &all, &[foreign.clone()].into()).unwrap(), []);

        let note = Note {
            array: 1,
            task: 0,
            job: "8".to_owned(),
            restarts: 0,
            node: "n1".to_owned(),
            started_unix_ms: 9,
            code: None,
            cells: Vec::new(),
        };
        folder.keep_note(&note).unwrap();
        let known = [foreign, of("7", script(0), &[1])].into();
        let found = find_jobs(&folder, &all, &known).unwrap();
        let jobs: Vec<_> = found.iter().map(|found| (found.job.as_str(), found.array, found.tasks.clone())).collect();
        assert_eq!(jobs, [("7", 0, vec![0, 1]), ("8", 1, vec![0])], "its first task is forgotten already");
        assert_eq!(folder.jobs().unwrap(), found);
        assert_eq!(handovers(&folder).unwrap(), std::slice::from_ref(&again));
        assert_eq!(find_jobs(&folder, std::slice::from_ref(&again), &known).unwrap(), [], "nothing is found twice");
        assert!(again.is_in_flight(8) && !again.is_in_flight(8 + IN_FLIGHT_MS));
    }
}
