//! Submits unfinished tasks again: selects them, and updates what the ledger has of their cells.

use super::handover::hand_over;
use super::slurm::ranges;
use super::{ClusterError, Folder, Placed, Slurm, Spool, Standing, TaskFile, cover};
use crate::engine::Cause;
use crate::record::{Digest, Outcome, RunId, Table, Value};
use crate::store::{Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};

/// The tasks to submit again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Again {
    /// The tasks, by array.
    pub tasks: BTreeMap<usize, Vec<u32>>,
    /// Number of cells that are skipped because the ledger now has their attempts.
    pub sealed: usize,
    /// Number of cells that are skipped because another submission will execute them.
    pub under_way: usize,
    /// The tasks' files, updated with what the ledger has now.
    files: Vec<(String, TaskFile)>,
}

/// Selects the unfinished tasks of a submission that have cells with missing attempts.
///
/// `busy` holds the cells that other submissions will execute: [`under_way`](super::under_way).
///
/// # Errors
/// If the folder or the ledger cannot be read.
pub fn again(
    standing: &Standing,
    folder: &Folder,
    (store, spool): (&Store, &Spool),
    busy: &BTreeSet<(Digest, String)>,
) -> Result<Again, ClusterError> {
    let mut open: BTreeMap<(usize, u32), BTreeSet<Digest>> = BTreeMap::new();
    for stand in standing.cells.iter().filter(|stand| stand.state.is_resumable()) {
        open.entry((stand.cell.array, stand.cell.task)).or_default().insert(stand.cell.id);
    }
    let mut again = Again::default();
    let mut files = open.keys().map(|(array, task)| folder.task(*array, *task)).collect::<Result<Vec<_>, _>>()?;
    let members = files.iter().flat_map(|file| file.members.iter().map(|member| (member, file.kind.clone())));
    let asked: Vec<_> = members.map(|(member, kind)| (&member.expected, member.cause, kind)).collect();
    let mut covered = cover(store, spool, &asked)?.into_iter();
    let own = finished_here(store, folder)?;
    for (((array, task), cells), file) in open.into_iter().zip(&mut files) {
        let mut needed = false;
        for (member, covered) in file.members.iter_mut().zip(&mut covered) {
            let is_open = cells.contains(&member.id);
            let is_repeat = matches!(member.cause, Cause::Repeat(_));
            if is_open && covered.missing == 0 {
                again.sealed += 1;
            } else if is_open && !is_repeat && busy.contains(&(member.id, file.kind.clone())) {
                again.under_way += 1;
            } else {
                needed |= is_open;
            }
            // The task itself counts the attempts that it has made.
            let others = |(run, count): (RunId, usize)| {
                let own = own.get(&(Folder::key(member.id), run)).copied().unwrap_or(0);
                (run, count.saturating_sub(own))
            };
            member.sealed = covered.sealed.into_iter().map(others).filter(|(_, count)| *count > 0).collect();
        }
        if needed {
            again.tasks.entry(array).or_default().push(task);
            again.files.push((format!("tasks/{}", TaskFile::name(array, task)), file.clone()));
        }
    }
    Ok(again)
}

/// Counts the finished attempts of a submission in the ledger, by the cell's [key](Folder::key) and the run.
fn finished_here(store: &Store, folder: &Folder) -> Result<BTreeMap<(String, RunId), usize>, ClusterError> {
    let collected = folder.collected()?;
    let mut found: BTreeMap<(String, RunId), usize> = BTreeMap::new();
    let looked = store.read(|reader| {
        for (cell, id) in collected.iter().flat_map(|(cell, ids)| ids.iter().map(move |id| (cell, *id))) {
            if let Some(attempt) = reader.readable(id)?.filter(|attempt| attempt.outcome == Outcome::Finished) {
                *found.entry((cell.clone(), attempt.run)).or_default() += 1;
            }
        }
        Ok(())
    });
    match looked {
        Err(StoreError::Missing(_)) | Ok(()) => Ok(found),
        Err(error) => Err(error.into()),
    }
}

/// Returns the limit of tasks that run at once. The scripts contain the rest of the request, which is not checked
/// again: today's rules may refuse it.
fn array_limit(request: &Table) -> Option<u32> {
    request.get("array_limit").and_then(Value::as_int).and_then(|limit| u32::try_from(limit).ok())
}

/// Submits these tasks again.
///
/// # Errors
/// If a file cannot be written, or Slurm refuses the first array.
pub fn resume(standing: &Standing, again: &Again, folder: &Folder, slurm: Slurm) -> Result<Placed, ClusterError> {
    let limit = array_limit(&standing.submission.request);
    for (name, file) in &again.files {
        folder.write(name, file.text().as_bytes())?;
    }
    let mut jobs = Vec::new();
    for (array, tasks) in &again.tasks {
        let limit = limit.map_or_else(String::new, |limit| format!("%{limit}"));
        let range = format!("{}{limit}", ranges(tasks));
        match hand_over(folder, (*array, tasks.clone()), Some(&range), slurm) {
            Ok(submitted) => jobs.push(submitted),
            Err(error) if jobs.is_empty() => return Err(error),
            Err(error) => return Ok(Placed { jobs, refused: Some(error) }),
        }
    }
    Ok(Placed { jobs, refused: None })
}

#[cfg(test)]
mod tests {
    use super::super::fields::table_of;
    use super::*;
    use crate::cluster::{Request, Submission};

    #[test]
    fn resume_does_not_check_the_recorded_request_again() {
        let request = table_of([("options", vec!["--error=e.log"].into()), ("array_limit", 3_i64.into())]);
        assert!(Request::merged(&[&request]).is_err());
        assert_eq!((array_limit(&request), array_limit(&Table::new())), (Some(3), None));
        let submission = Submission { request, ..Submission::empty() };
        let standing = Standing { submission, jobs: Vec::new(), cells: Vec::new() };
        let placed = resume(&standing, &Again::default(), &Folder::at("/nowhere"), Slurm).unwrap();
        assert!(placed.jobs.is_empty() && placed.refused.is_none());
    }
}
