//! Makes a submission: finds missing cells, groups them into arrays, and submits these to Slurm.

use super::folder::DIGITS;
use super::handover::{hand_over, handovers};
use super::spool::surroundings;
use super::{
    Array, ClusterError, Folder, Limits, Listed, Member, ProgramText, Request, RequestError, Script, Slurm, Spool,
    Standing, State, Submission, Submitted, TaskFile,
};
use crate::engine::{Cause, Expected, filled};
use crate::record::{Digest, RunId, Table};
use crate::store::{Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The ledger's finished attempts of a cell, and how many are missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Covered {
    /// Finished attempts by run, on any machine.
    pub sealed: BTreeMap<RunId, usize>,
    /// Number of attempts that are missing for the kind of machine that Slurm will choose.
    pub missing: usize,
}

/// Looks up what the ledger has of cells, each with the kind of machine that Slurm will choose for it.
///
/// A run's id depends on the machine. The machines of a kind are known from earlier tasks on them. Before the first
/// such task everything counts as missing. A task that then finds its run sealed does not execute it.
///
/// # Errors
/// If the ledger or the spool cannot be read. A ledger that does not exist yet is empty.
pub fn cover(store: &Store, spool: &Spool, cells: &[(&Expected, Cause, String)]) -> Result<Vec<Covered>, ClusterError> {
    let remembered = spool.remembered()?;
    let mut sealed: Vec<BTreeMap<RunId, usize>> = vec![BTreeMap::new(); cells.len()];
    let mut best = vec![0; cells.len()];
    let mut index: BTreeMap<(Digest, u64), Vec<usize>> = BTreeMap::new();
    for (at, (expected, ..)) in cells.iter().enumerate() {
        index.entry((expected.config(), expected.cell().seed)).or_default().push(at);
    }
    let looked = store.read(|reader| {
        reader.runs(|run| {
            for at in index.get(&(Expected::of_run(&run), run.parts.seed)).into_iter().flatten().copied() {
                let (expected, _, kind) = &cells[at];
                if expected.agrees(&run) {
                    let finished = filled(reader, &run)?;
                    sealed[at].insert(run.id, finished);
                    if remembered.contains(&surroundings(kind, &run)) {
                        best[at] = finished.max(best[at]);
                    }
                }
            }
            Ok(())
        })
    });
    match looked {
        Err(StoreError::Missing(_)) | Ok(()) => {}
        Err(error) => return Err(error.into()),
    }
    let covered = cells.iter().zip(sealed).zip(best).map(|(((_, cause, _), sealed), best)| {
        let missing = match cause {
            Cause::Complete(wanted) => wanted.saturating_sub(best),
            Cause::Repeat(times) => *times,
        };
        Covered { sealed, missing }
    });
    Ok(covered.collect())
}

/// Returns the cells that an earlier submission will still execute, by id and kind of machine.
pub fn under_way<'a>(standings: impl IntoIterator<Item = &'a Standing>) -> BTreeSet<(Digest, String)> {
    in_states(standings, State::is_under_way)
}

/// Returns the cells that an earlier submission has executed, but whose results have not all been imported, by id and
/// kind of machine.
///
/// # Errors
/// If the packs in a submission's folder cannot be listed.
pub fn waiting<'a>(
    standings: impl IntoIterator<Item = (&'a Folder, &'a Standing)>,
) -> Result<BTreeSet<(Digest, String)>, ClusterError> {
    let mut all = BTreeSet::new();
    for (folder, standing) in standings {
        let there: BTreeSet<String> = folder.packs()?.iter().filter_map(|pack| Folder::key_of(pack)).collect();
        let finished = in_states([standing], |state| state == State::Finished);
        all.extend(finished.into_iter().filter(|(cell, _)| there.contains(&cell.prefix(DIGITS))));
    }
    Ok(all)
}

fn in_states<'a>(
    standings: impl IntoIterator<Item = &'a Standing>,
    wanted: impl Fn(State) -> bool,
) -> BTreeSet<(Digest, String)> {
    let of = |standing: &Standing| {
        let kinds: Vec<String> = standing.submission.arrays.iter().map(|array| array.kind.clone()).collect();
        let cells = standing.cells.iter().filter(|stand| wanted(stand.state));
        cells.filter_map(move |stand| Some((stand.cell.id, kinds.get(stand.cell.array)?.clone()))).collect::<Vec<_>>()
    };
    standings.into_iter().flat_map(of).collect()
}

/// The inputs of a submission.
#[derive(Debug)]
pub struct Draft<'a> {
    /// The experiment's name.
    pub experiment: &'a str,
    /// The manifest's path and the digest of its bytes.
    pub manifest: (&'a Path, Digest),
    /// The time of submission, in milliseconds since the Unix epoch and as text.
    pub when: (i64, &'a str),
    /// The request.
    pub request: &'a Request,
    /// The cluster.
    pub limits: &'a Limits,
    /// The path of ledger's executable on the nodes.
    pub ledger: &'a Path,
    /// The program of the cells; `None` for the built-in trainer.
    pub program: Option<ProgramText>,
    /// Facts about the submission that are recorded with each attempt.
    pub facts: Table,
    /// The cells.
    pub members: Vec<Member>,
}

/// A submission as it will be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Drafted {
    /// Its record.
    pub submission: Submission,
    /// The script of each array.
    pub scripts: Vec<String>,
    /// The tasks, by array and number.
    tasks: BTreeMap<(usize, u32), TaskFile>,
}

/// Groups cells with the same needs into arrays, and prepares all files of the folder.
///
/// # Errors
/// If a cell needs more GPUs than a task has, or sbatch would misread the folder's path.
pub fn draft(draft: &Draft<'_>, folder: &Folder) -> Result<Drafted, RequestError> {
    let name = folder.name();
    let is_plain = |c: char| c.is_alphanumeric() || "/._+-@,:=~".contains(c);
    if !folder.dir().to_str().is_some_and(|path| path.chars().all(is_plain)) {
        return Err(RequestError::Folder(folder.dir().to_owned()));
    }
    let mut groups: BTreeMap<u32, Vec<&Member>> = BTreeMap::new();
    for member in &draft.members {
        groups.entry(draft.request.gpus_of(member.expected.cell())?).or_default().push(member);
    }
    let longest = usize::try_from(draft.limits.tasks).unwrap_or(usize::MAX).max(1);
    let (mut arrays, mut scripts, mut tasks) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut places: BTreeMap<Digest, (usize, u32)> = BTreeMap::new();
    for (gpus, members) in groups {
        let given = draft.request.cells_per_task.and_then(|cells| usize::try_from(cells).ok());
        let each = given.unwrap_or_else(|| members.len().div_ceil(longest)).max(1);
        let kind = draft.request.kind(&draft.limits.cluster, gpus);
        let chunks: Vec<&[&Member]> = members.chunks(each).collect();
        for chunks in chunks.chunks(longest) {
            let array = arrays.len();
            for (task, cells) in (0..).zip(chunks) {
                let members: Vec<Member> = cells.iter().map(|member| (*member).clone()).collect();
                places.extend(members.iter().map(|member| (member.id, (array, task))));
                let file = TaskFile {
                    submission: name.clone(),
                    kind: kind.clone(),
                    requeue: draft.request.requeue,
                    grace_s: draft.request.grace_s,
                    program: draft.program.clone(),
                    facts: draft.facts.clone(),
                    members,
                };
                tasks.insert((array, task), file);
            }
            let script = Script {
                name: &name,
                experiment: draft.experiment,
                when: draft.when.1,
                folder: folder.dir(),
                array,
                tasks: chunks.len(),
                cells: chunks.iter().map(|cells| cells.len()).sum(),
                gpus,
                ledger: draft.ledger,
                request: draft.request,
            };
            scripts.push(script.text());
            arrays.push(Array { gpus, tasks: chunks.len(), kind: kind.clone() });
        }
    }
    let cells = draft.members.iter().filter_map(|member| {
        let (array, task) = *places.get(&member.id)?;
        // Sealed attempts of its run are counted when the node knows the run.
        let (Cause::Complete(attempts) | Cause::Repeat(attempts)) = member.cause;
        Some(Listed { id: member.id, label: member.label.clone(), array, task, attempts })
    });
    let submission = Submission {
        cells: cells.collect(),
        name,
        experiment: draft.experiment.to_owned(),
        manifest: draft.manifest.0.display().to_string(),
        manifest_digest: draft.manifest.1,
        created_unix_ms: draft.when.0,
        request: draft.request.table().clone(),
        arrays,
    };
    Ok(Drafted { submission, scripts, tasks })
}

/// The result of submitting arrays to Slurm.
#[derive(Debug)]
pub struct Placed {
    /// The jobs of the arrays that Slurm accepted.
    pub jobs: Vec<Submitted>,
    /// Why not all arrays were submitted.
    pub refused: Option<ClusterError>,
}

/// Writes a submission into its folder, and submits its arrays to Slurm. If Slurm refuses a later array, the folder
/// stays, and the rest can be resumed.
///
/// # Errors
/// If a file cannot be written, or Slurm refuses the first array. The folder is then removed, unless Slurm may have
/// accepted the array.
pub fn place(drafted: &Drafted, manifest: &[u8], folder: &Folder, slurm: Slurm) -> Result<Placed, ClusterError> {
    let mut jobs = Vec::new();
    let placed = write(drafted, manifest, folder).and_then(|()| hand_over_all(drafted, folder, slurm, &mut jobs));
    match placed {
        Err(error) if jobs.is_empty() => {
            if handovers(folder).is_ok_and(|waiting| waiting.is_empty()) {
                // Nothing refers to the folder yet.
                let _ = std::fs::remove_dir_all(folder.dir());
            }
            Err(error)
        }
        result => Ok(Placed { jobs, refused: result.err() }),
    }
}

fn write(drafted: &Drafted, manifest: &[u8], folder: &Folder) -> Result<(), ClusterError> {
    for ((array, task), file) in &drafted.tasks {
        folder.write(&format!("tasks/{}", TaskFile::name(*array, *task)), file.text().as_bytes())?;
    }
    for (array, script) in drafted.scripts.iter().enumerate() {
        folder.write(&Array::script(array), script.as_bytes())?;
    }
    folder.write("manifest.toml", manifest)?;
    // Written last: a folder without it is not a submission.
    folder.write("submission.json", drafted.submission.text().as_bytes())
}

fn hand_over_all(
    drafted: &Drafted,
    folder: &Folder,
    slurm: Slurm,
    jobs: &mut Vec<Submitted>,
) -> Result<(), ClusterError> {
    for (number, array) in drafted.submission.arrays.iter().enumerate() {
        let tasks = (0..u32::try_from(array.tasks).unwrap_or(u32::MAX)).collect();
        jobs.push(hand_over(folder, (number, tasks), None, slurm)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fields::table_of;
    use super::*;
    use crate::record::Cell;

    #[test]
    fn a_cell_needs_all_its_attempts_whatever_is_sealed() {
        let member = |seed: u64, cause: Cause| {
            let cell = Cell { config: table_of([("hardware.device", "cpu".into())]), settings: Table::new(), seed };
            let expected = Expected::recorded(cell, Table::new());
            let sealed = [(RunId(Digest::of(b"run")), 1)].into();
            Member { id: expected.id(), label: String::new(), expected, cause, sealed }
        };
        let draft_of = Draft {
            experiment: "e",
            manifest: (Path::new("m.toml"), Digest::of(b"m")),
            when: (0, "now"),
            request: &Request::merged(&[]).unwrap(),
            limits: &Limits::usual(),
            ledger: Path::new("/l"),
            program: None,
            facts: Table::new(),
            members: vec![member(1, Cause::Complete(3)), member(2, Cause::Repeat(2))],
        };
        let drafted = draft(&draft_of, &Folder::at(Path::new("/spool/n"))).unwrap();
        let attempts: Vec<usize> = drafted.submission.cells.iter().map(|cell| cell.attempts).collect();
        assert_eq!(attempts, [3, 2]);
    }
}
