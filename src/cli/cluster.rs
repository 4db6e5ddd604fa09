//! Functions that the commands for clusters share: selecting submissions and asking Slurm for their state.

use super::context::Context;
use super::failure::{Failure, exit};
use super::output::say;
use crate::cluster::{
    Answer, ClusterError, Collected, Folder, Slurm, Spool, Standing, collect, find_jobs, handovers, stand,
};
use crate::host::clock;
use std::cell::OnceCell;
use std::path::Path;
use std::time::Duration;

/// Time since the last write after which a journal counts as abandoned.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the submissions of the ledger.
pub(super) fn spool(context: &Context, elsewhere: Option<&Path>) -> Spool {
    Spool::of(context.store_as_it_is().dir(), elsewhere)
}

/// Slurm's report on the tasks of submissions.
pub(super) struct Asked {
    tasks: Option<Answer>,
    /// Submissions to other clusters than this host's. Their job numbers may coincide with jobs of this cluster.
    elsewhere: Vec<Folder>,
}

impl Asked {
    /// Returns Slurm's report on a submission. Returns `None` if Slurm could not be asked about it.
    pub(super) fn of(&self, folder: &Folder) -> Option<&Answer> {
        self.tasks.as_ref().filter(|_| !self.elsewhere.contains(folder))
    }
}

/// Asks Slurm for the state of the tasks of submissions. Warns if it cannot be asked.
pub(super) fn ask(folders: &[Folder]) -> Result<Asked, Failure> {
    if !find_unanswered(folders)? {
        return Ok(Asked { tasks: None, elsewhere: Vec::new() });
    }
    let (mut jobs, mut elsewhere) = (Vec::new(), Vec::new());
    let here = OnceCell::new();
    for folder in folders {
        let submitted = folder.jobs()?;
        // A submitted array may have a job whose number was not recorded.
        if submitted.is_empty() && handovers(folder)?.is_empty() {
            continue;
        }
        let here: &Option<String> = here.get_or_init(|| Slurm.limits().ok().map(|limits| limits.cluster));
        let there = folder.submission()?.cluster().map(str::to_owned);
        match (here, there) {
            (Some(here), Some(there)) if *here != there => {
                say(&format!(
                    "warning: {} was submitted to the cluster `{there}`, but this host belongs to `{here}`: the state of its tasks is unknown here",
                    folder.name()
                ));
                elsewhere.push(folder.clone());
            }
            _ => jobs.extend(submitted.into_iter().map(|submitted| submitted.job)),
        }
    }
    let jobs: Vec<&str> = jobs.iter().map(String::as_str).collect();
    match Slurm.tasks(&jobs) {
        Ok(tasks) => Ok(Asked { tasks: Some(tasks), elsewhere }),
        Err(error @ (ClusterError::Command(_) | ClusterError::Refused { .. })) => {
            tell_not_known(&error);
            Ok(Asked { tasks: None, elsewhere })
        }
        Err(error) => Err(error.into()),
    }
}

fn tell_not_known(error: &ClusterError) {
    say(&format!("warning: the state of the cluster's tasks is unknown: {error}"));
}

/// Looks for the jobs of arrays whose `submit` ended before it received Slurm's answer. Returns false if Slurm could not be asked.
fn find_unanswered(folders: &[Folder]) -> Result<bool, Failure> {
    let mut known = None;
    for folder in folders {
        let waiting = handovers(folder)?;
        if waiting.is_empty() {
            continue;
        }
        let known = match &known {
            Some(known) => known,
            None => match Slurm.scripts() {
                Ok(scripts) => known.insert(scripts),
                Err(error) => {
                    tell_not_known(&error);
                    return Ok(false);
                }
            },
        };
        for found in find_jobs(folder, &waiting, known)? {
            let name = folder.name();
            say(&format!("found job {} of {name}, whose number was not recorded yet", found.job));
        }
    }
    Ok(true)
}

/// Returns the submissions that can be read, and the number of others. Unreadable submissions do not stop the collection of the others.
pub(super) fn readable(folders: Vec<Folder>) -> (Vec<Folder>, usize) {
    let all = folders.len();
    let is_readable = |folder: &Folder| read(folder).inspect_err(|error| leave_out(folder, error)).is_ok();
    let folders: Vec<Folder> = folders.into_iter().filter(is_readable).collect();
    let unreadable = all - folders.len();
    (folders, unreadable)
}

/// Like [`readable`], for a command that submits cells: only damaged submissions are left out. A submission that this
/// ledger cannot read, or not at this moment, may be executing those cells.
pub(super) fn readable_or_damaged(folders: Vec<Folder>) -> Result<Vec<Folder>, Failure> {
    let mut readable = Vec::new();
    for folder in folders {
        match read(&folder) {
            Ok(()) => readable.push(folder),
            Err(error @ ClusterError::Damaged { .. }) => leave_out(&folder, &error),
            Err(error @ ClusterError::Newer { .. }) => return Err(error.into()),
            Err(error) => {
                let hint = format!(
                    "the cells of this submission are unknown: try again, or cancel its jobs and move `{}` away",
                    folder.dir().display()
                );
                return Err(Failure::new(exit::LEDGER, error).with_hint(&hint));
            }
        }
    }
    Ok(readable)
}

fn read(folder: &Folder) -> Result<(), ClusterError> {
    folder.submission().and_then(|_| folder.jobs()).and_then(|_| handovers(folder)).map(|_| ())
}

fn leave_out(folder: &Folder, error: &ClusterError) {
    say(&format!(
        "warning: {error}; this submission is left out, and its cells count as missing (cancel its jobs and move `{}` away; `ledger import` reads the files in its `out`)",
        folder.dir().display()
    ));
}

/// Imports the available results of a submission. Returns what was imported and the state of its cells afterwards.
pub(super) fn bring(
    context: &Context,
    folder: &Folder,
    tasks: Option<&Answer>,
    patience: Duration,
) -> Result<(Collected, Standing), Failure> {
    let collected = collect(context.store_as_it_is(), folder, tasks, patience)?;
    for (path, fault) in &collected.faults {
        say(&format!("warning: `{}` stays where it is: {fault}", path.display()));
    }
    let standing = stand(folder, tasks)?;
    let over = standing.is_submitted(clock::unix_ms()) && standing.is_over();
    let done = over && collected.waiting == 0 && collected.faults.is_empty();
    if done && folder.packs()?.is_empty() {
        standing.close(folder)?;
    }
    Ok((collected, standing))
}

/// Returns the submission that `text` names, or all that are not complete.
pub(super) fn meant(spool: &Spool, text: Option<&str>) -> Result<Vec<Folder>, ClusterError> {
    match text {
        Some(text) => Ok(vec![spool.find(text)?]),
        None => spool.open(),
    }
}
