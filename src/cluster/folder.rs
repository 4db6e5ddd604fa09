//! The folder of a submission, which the submitting host and the nodes share.
//!
//! ```text
//! submission.json            the submission
//! manifest.toml              the manifest at the time of submission
//! array-N.sh                 the script of each array
//! tasks/ARRAY-TASK.json      the cells of each task, in full
//! handover-ARRAY-MOMENT.json   an array that is being submitted to Slurm, until its job is known
//! jobs/JOB.json              the Slurm job of an array, one file per submission to Slurm
//! calibrations/              the ledger's calibrations of GPU sensors, for the tasks' ledgers
//! logs/JOB_TASK.log          the output of a task
//! notes/ARRAY-TASK.JOB.RESTARTS.json   the progress of a task
//! journals/                  copies of the journals of attempts on nodes
//! closed                     marks that nothing more will arrive
//! out/                       attempts to import, and markers of those already imported
//! ```
//!
//! Every file is written whole under another name first and then renamed. Only one host writes a given file, and no two
//! processes write it at once.

use super::fields::{Fields, text_of};
use super::{ClusterError, Note, Submission, TaskFile, io_error};
use crate::host::files;
use crate::record::{Attempt, AttemptId, Digest, Nonce, Outcome, RunId, SourceText};
use crate::store::{Chunks, Store, StoreError};
use crate::wire::{PackError, ToPack, write_pack};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Number of digits of a digest in file names.
pub(super) const DIGITS: usize = 16;
/// The extension of a pack that cannot be read.
pub(super) const DAMAGED: &str = "damaged";
/// The file that marks that nothing more will arrive.
const CLOSED: &str = "closed";

/// Returns the names in a folder, sorted and without hidden files. A missing folder has none.
pub(super) fn names(dir: &Path) -> Result<Vec<String>, ClusterError> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(io_error("list", dir))?,
    };
    let mut names: Vec<String> =
        entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    Ok(names)
}

/// Removes a file. A missing one is no error: another command may have removed it.
pub(super) fn remove(path: &Path) -> Result<(), ClusterError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("remove", path)(error)),
        _ => Ok(()),
    }
}

/// An array that was submitted to Slurm: its job, and which of its tasks were submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The Slurm job id.
    pub job: String,
    /// The index of the array in the submission.
    pub array: usize,
    /// The submitted tasks.
    pub tasks: Vec<u32>,
    /// When it was submitted, in milliseconds since the Unix epoch.
    pub unix_ms: i64,
}

/// Counts of a cell's attempts that have come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Finished attempts.
    pub finished: usize,
    /// Failed ones.
    pub failed: usize,
    /// Interrupted ones.
    pub interrupted: usize,
    /// Attempts that the ledger already had, as found by the node.
    pub sealed: usize,
    /// Attempts whose file is damaged. They do not count as having come back.
    pub damaged: usize,
}

impl Tally {
    /// Returns how many attempts need not be executed. Failed ones count, because they would fail again.
    pub fn settled(self) -> usize {
        self.finished + self.failed + self.sealed
    }

    /// Returns how many attempts have finished, in this submission or before.
    pub fn good(self) -> usize {
        self.finished + self.sealed
    }
}

/// The folder of one submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    dir: PathBuf,
}

/// The subfolders of every submission.
pub(super) const PARTS: [&str; 6] = ["tasks", "jobs", "logs", "notes", "journals", "out"];

impl Folder {
    /// Returns the folder at that path.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Its path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The submission's name.
    pub fn name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The folder of the copied journals.
    pub fn journals(&self) -> PathBuf {
        self.dir.join("journals")
    }

    /// The path of an array's script.
    pub fn script(&self, array: usize) -> PathBuf {
        self.dir.join(super::Array::script(array))
    }

    /// The path of a task's log.
    pub fn log(&self, job: &str, task: u32) -> PathBuf {
        self.dir.join(format!("logs/{job}_{task}.log"))
    }

    /// Writes a file of the folder atomically.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), ClusterError> {
        Ok(files::write_whole(&self.dir.join(name), content)?)
    }

    /// Whether all results have been imported and nothing more will arrive.
    pub fn is_closed(&self) -> bool {
        self.dir.join(CLOSED).exists()
    }

    /// Whether the folder has packs or journals that no `collect` has imported yet.
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub fn has_arrivals(&self) -> Result<bool, ClusterError> {
        Ok(!self.packs()?.is_empty() || !names(&self.journals())?.is_empty())
    }

    /// Marks whether nothing more will arrive.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn close(&self, closed: bool) -> Result<(), ClusterError> {
        let path = self.dir.join(CLOSED);
        match closed {
            true if path.exists() => Ok(()),
            true => self.write(CLOSED, b""),
            false => remove(&path),
        }
    }

    /// Reads the submission's record.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn submission(&self) -> Result<Submission, ClusterError> {
        Submission::read(&self.dir.join("submission.json"))
    }

    /// Reads the cells of a task.
    ///
    /// # Errors
    /// If its file cannot be read.
    pub fn task(&self, array: usize, task: u32) -> Result<TaskFile, ClusterError> {
        TaskFile::read(&self.dir.join("tasks").join(TaskFile::name(array, task)))
    }

    /// Records the Slurm job of an array.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add_job(&self, submitted: &Submitted) -> Result<(), ClusterError> {
        let text = text_of([
            ("job", submitted.job.as_str().into()),
            ("array", submitted.array.into()),
            ("tasks", submitted.tasks.clone().into()),
            ("submitted_unix_ms", submitted.unix_ms.into()),
        ]);
        self.write(&format!("jobs/{}.json", submitted.job), text.as_bytes())
    }

    /// Reads the Slurm jobs of the arrays, in the order of submission.
    ///
    /// # Errors
    /// If one of the files cannot be read.
    pub fn jobs(&self) -> Result<Vec<Submitted>, ClusterError> {
        let dir = self.dir.join("jobs");
        let mut jobs = Vec::new();
        for name in names(&dir)? {
            let fields = Fields::read(&dir.join(name))?;
            let tasks = fields.list("tasks")?.iter().filter_map(|task| u32::try_from(task.as_int()?).ok()).collect();
            let (job, array) = (fields.text("job")?, fields.number("array")?);
            jobs.push(Submitted { job, array, tasks, unix_ms: fields.int("submitted_unix_ms")? });
        }
        jobs.sort_by(|a, b| (a.unix_ms, &a.job).cmp(&(b.unix_ms, &b.job)));
        Ok(jobs)
    }

    /// Writes a task's note about its progress.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep_note(&self, note: &Note) -> Result<(), ClusterError> {
        self.write(&format!("notes/{}", note.name()), note.text().as_bytes())
    }

    /// Reads the note of each task's newest start, by array and task. Damaged notes are skipped.
    ///
    /// # Errors
    /// If the notes cannot be listed.
    pub fn notes(&self) -> Result<BTreeMap<(usize, u32), Note>, ClusterError> {
        let dir = self.dir.join("notes");
        let mut newest: BTreeMap<(usize, u32), Note> = BTreeMap::new();
        for name in names(&dir)? {
            let Ok(note) = Note::read(&dir.join(name)) else { continue };
            let key = (note.array, note.task);
            let is_newer =
                |known: &Note| (note.started_unix_ms, note.restarts) > (known.started_unix_ms, known.restarts);
            if newest.get(&key).is_none_or(is_newer) {
                newest.insert(key, note);
            }
        }
        Ok(newest)
    }

    /// Writes an attempt of a ledger to where `collect` finds it, with its source texts.
    ///
    /// # Errors
    /// If the ledger cannot be read, or the file cannot be written.
    pub fn put(
        &self,
        cell: Digest,
        store: &Store,
        packed: &ToPack,
        sources: &[SourceText],
    ) -> Result<(), ClusterError> {
        let name = result_name(cell, packed.attempt.nonce, &packed.attempt.outcome);
        let (format, attempts) = (if sources.is_empty() { 1 } else { 2 }, std::slice::from_ref(packed));
        let mut chunks = Chunks::of(attempts, store);
        let mut fault = None;
        let written = files::write_whole_with(&self.dir.join(format!("out/{name}.ledger")), |file| {
            let written = write_pack(file, format, attempts, sources, &mut || chunks.next_chunk());
            written.map(drop).map_err(|error| match error {
                PackError::Unwritten(error) => error,
                error => std::io::Error::other(fault.insert(error).to_string()),
            })
        });
        match fault {
            // The ledger's own error, kept as such: the ledger may be busy.
            Some(PackError::Unread(error)) => Err(error
                .downcast::<StoreError>()
                .map_or_else(|error| PackError::Unread(error).into(), ClusterError::from)),
            Some(fault) => Err(fault.into()),
            None => Ok(written?),
        }
    }

    /// Records that the ledger already had finished attempts of a cell's run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put_sealed(&self, cell: Digest, run: RunId, attempts: usize) -> Result<(), ClusterError> {
        let name = format!("out/{}-{}.{attempts}.sealed", cell.prefix(DIGITS), run.0.prefix(DIGITS));
        self.write(&name, run.to_string().as_bytes())
    }

    /// Returns the packs that have not been collected yet.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn packs(&self) -> Result<Vec<PathBuf>, ClusterError> {
        let dir = self.dir.join("out");
        Ok(names(&dir)?.into_iter().filter(|name| name.ends_with(".ledger")).map(|name| dir.join(name)).collect())
    }

    /// Replaces a collected pack by a small file with the attempt's id.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn mark_collected(&self, pack: &Path, attempt: AttemptId) -> Result<(), ClusterError> {
        files::write_whole(&pack.with_extension("collected"), attempt.to_string().as_bytes())?;
        remove(pack)
    }

    /// Renames a file that the ledger cannot import: `superseded` if the ledger has the execution with another outcome,
    /// `damaged` if it cannot be read. Returns its new path.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn set_aside(&self, pack: &Path, why: &str) -> Result<PathBuf, ClusterError> {
        let kept = pack.with_extension(why);
        match std::fs::rename(pack, &kept) {
            // Another `collect` has renamed it.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("rename", pack)(error)),
            _ => Ok(kept),
        }
    }

    /// As [`mark_collected`](Self::mark_collected), for an attempt that was imported from a journal.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn mark_recovered(&self, cell: Digest, attempt: &Attempt, id: AttemptId) -> Result<(), ClusterError> {
        let name = result_name(cell, attempt.nonce, &attempt.outcome);
        self.write(&format!("out/{name}.collected"), id.to_string().as_bytes())
    }

    /// Returns the attempts that have been imported into the ledger, by [key](Self::key) of the cell.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn collected(&self) -> Result<BTreeMap<String, Vec<AttemptId>>, ClusterError> {
        let dir = self.dir.join("out");
        let mut found: BTreeMap<String, Vec<AttemptId>> = BTreeMap::new();
        for name in names(&dir)?.iter().filter(|name| name.ends_with(".collected")) {
            let id = std::fs::read_to_string(dir.join(name)).ok().and_then(|text| text.trim().parse().ok());
            if let (Some(id), Some((cell, _))) = (id, name.split_once('-')) {
                found.entry(cell.to_owned()).or_default().push(AttemptId(id));
            }
        }
        Ok(found)
    }

    /// Returns the counts of attempts that have come back, by [key](Self::key) of the cell.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn tallies(&self) -> Result<BTreeMap<String, Tally>, ClusterError> {
        let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for name in names(&self.dir.join("out"))? {
            let Some((cell, rest)) = name.split_once('-') else { continue };
            // For a moment there is both a pack and its marker of collection.
            if !seen.insert(name.trim_end_matches(".ledger").trim_end_matches(".collected").to_owned()) {
                continue;
            }
            let mut parts = rest.split('.');
            let (what, kind) = (parts.nth(1).unwrap_or_default(), parts.next().unwrap_or_default());
            let tally = tallies.entry(cell.to_owned()).or_default();
            match (kind, what) {
                ("sealed", count) => tally.sealed += count.parse::<usize>().unwrap_or(0),
                ("ledger" | "collected", "finished") => tally.finished += 1,
                ("ledger" | "collected", "failed") => tally.failed += 1,
                ("ledger" | "collected", "interrupted") => tally.interrupted += 1,
                (DAMAGED, _) => tally.damaged += 1,
                _ => {}
            }
        }
        Ok(tallies)
    }

    /// Whether an execution has come back, undamaged.
    ///
    /// # Errors
    /// If the results cannot be listed.
    pub fn has_come_back(&self, nonce: Nonce) -> Result<bool, ClusterError> {
        let nonce = nonce.to_string();
        let has_come = |name: &String| name.contains(&nonce) && !name.ends_with(&format!(".{DAMAGED}"));
        Ok(names(&self.dir.join("out"))?.iter().any(has_come))
    }

    /// Whether an execution has come back, but has not been imported yet.
    ///
    /// # Errors
    /// If the results cannot be listed.
    pub fn is_pending(&self, nonce: Nonce) -> Result<bool, ClusterError> {
        let nonce = nonce.to_string();
        let names = self.packs()?;
        Ok(names.iter().filter_map(|pack| pack.file_name()).any(|name| name.to_string_lossy().contains(&nonce)))
    }

    /// Returns the key that stands for a cell in file names.
    pub fn key(cell: Digest) -> String {
        cell.prefix(DIGITS)
    }

    /// Returns the [key](Self::key) of the cell of a file in `out`.
    pub(super) fn key_of(path: &Path) -> Option<String> {
        Some(path.file_name()?.to_str()?.split_once('-')?.0.to_owned())
    }
}

fn result_name(cell: Digest, nonce: Nonce, outcome: &Outcome) -> String {
    format!("{}-{nonce}.{}", cell.prefix(DIGITS), outcome.name())
}
