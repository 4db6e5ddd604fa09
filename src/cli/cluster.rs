//! What the commands for clusters share: which submissions are meant, and what Slurm says of them.

use super::context::{Context, say};
use super::failure::Failure;
use crate::cluster::{ClusterError, Collected, Folder, Seen, Slurm, Spool, Standing, TaskId, collect, stand};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// For how long a journal must have been left alone before it is believed that nobody writes it any more.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The submissions of the ledger.
pub(super) fn spool(context: &Context, elsewhere: Option<&Path>) -> Spool {
    Spool::of(context.store_as_it_is().dir(), elsewhere)
}

/// What Slurm says of the tasks of submissions; none if it cannot be asked, and then that is said.
pub(super) fn ask(folders: &[Folder]) -> Result<Option<BTreeMap<TaskId, Seen>>, Failure> {
    let mut jobs = Vec::new();
    for folder in folders {
        jobs.extend(folder.jobs()?.into_iter().map(|submitted| submitted.job));
    }
    let jobs: Vec<&str> = jobs.iter().map(String::as_str).collect();
    match Slurm.tasks(&jobs) {
        Ok(tasks) => Ok(Some(tasks)),
        Err(error @ (ClusterError::Command(_) | ClusterError::Refused { .. })) => {
            say(&format!("warning: what lives on the cluster is not known: {error}"));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Brings home what there is of a submission, and says how far its cells are then.
pub(super) fn bring(
    context: &Context,
    folder: &Folder,
    tasks: Option<&BTreeMap<TaskId, Seen>>,
    patience: Duration,
) -> Result<(Collected, Standing), Failure> {
    let collected = collect(context.store_as_it_is(), folder, tasks, patience)?;
    for (path, fault) in &collected.faults {
        say(&format!("warning: `{}` is left where it is: {fault}", path.display()));
    }
    let standing = stand(folder, tasks)?;
    let over = standing.is_submitted() && standing.is_over();
    let done = over && collected.waiting == 0 && collected.faults.is_empty();
    if done && folder.packs()?.is_empty() {
        folder.close(true)?;
    }
    Ok((collected, standing))
}

/// The submission that is meant, else all of which something is still to come.
pub(super) fn meant(spool: &Spool, text: Option<&str>) -> Result<Vec<Folder>, ClusterError> {
    match text {
        Some(text) => Ok(vec![spool.find(text)?]),
        None => spool.open(),
    }
}
