//! The folder of a submission, which the submitting host and the nodes share.
//!
//! ```text
//! submission.json            what was submitted
//! manifest.toml              the manifest as it was then
//! array-N.sh                 the script of each array
//! tasks/ARRAY-TASK.json      the cells of each task, in full
//! handover-ARRAY-MOMENT.json   an array that is being handed to Slurm, until its job is known
//! jobs/JOB.json              what Slurm called it, a file for each time that something was submitted
//! calibrations/              what the ledger knows of GPUs' sensors, for the tasks' ledgers
//! logs/JOB_TASK.log          what a task printed
//! notes/ARRAY-TASK.JOB.RESTARTS.json   how far it is
//! journals/                  copies of the journals of attempts that live on nodes
//! closed                     nothing more is to come
//! out/                       attempts that are over, on their way into the ledger, and what is left of those that are in it
//! ```
//!
//! Every file is written whole under another name first, by one host alone, and never opened by two at once.

use super::fields::{Fields, text_of};
use super::{ClusterError, Note, Submission, TaskFile, io_error};
use crate::host::files;
use crate::record::{Attempt, AttemptId, Digest, Nonce, Outcome, RunId, SourceText};
use crate::store::{Chunks, Store, StoreError};
use crate::wire::{PackError, ToPack, write_pack};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How many digits of a name stand in the names of files.
pub(super) const DIGITS: usize = 16;
/// How the name of a result ends that cannot be read.
pub(super) const DAMAGED: &str = "damaged";
/// The file that says that nothing more is to come.
const CLOSED: &str = "closed";

/// The names in a folder, sorted; none where there is no folder.
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

/// What Slurm called an array when it was submitted, and which of its tasks were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The job's number.
    pub job: String,
    /// The array of the submission.
    pub array: usize,
    /// Its tasks.
    pub tasks: Vec<u32>,
    /// When, in milliseconds since the Unix epoch.
    pub unix_ms: i64,
}

/// What has come back of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Finished attempts.
    pub finished: usize,
    /// Failed ones.
    pub failed: usize,
    /// Interrupted ones.
    pub interrupted: usize,
    /// Those that the ledger held before, as the node found.
    pub sealed: usize,
    /// Those whose file cannot be read: nothing has come back of them.
    pub damaged: usize,
}

impl Tally {
    /// Attempts that need not be executed: a failed one would fail again.
    pub fn settled(self) -> usize {
        self.finished + self.failed + self.sealed
    }

    /// Finished ones, here or before.
    pub fn good(self) -> usize {
        self.finished + self.sealed
    }
}

/// The folder of one submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    dir: PathBuf,
}

/// What every submission's folder has.
pub(super) const PARTS: [&str; 6] = ["tasks", "jobs", "logs", "notes", "journals", "out"];

impl Folder {
    /// The folder at that path.
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

    /// Where living journals are copied to.
    pub fn journals(&self) -> PathBuf {
        self.dir.join("journals")
    }

    /// The script of an array.
    pub fn script(&self, array: usize) -> PathBuf {
        self.dir.join(super::Array::script(array))
    }

    /// What a task printed.
    pub fn log(&self, job: &str, task: u32) -> PathBuf {
        self.dir.join(format!("logs/{job}_{task}.log"))
    }

    /// Writes a file of it, whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), ClusterError> {
        Ok(files::write_whole(&self.dir.join(name), content)?)
    }

    /// Whether all has come home, and nothing more is to come.
    pub fn is_closed(&self) -> bool {
        self.dir.join(CLOSED).exists()
    }

    /// Whether something lies there that no `collect` has taken yet.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn has_arrivals(&self) -> Result<bool, ClusterError> {
        Ok(!self.packs()?.is_empty() || !names(&self.journals())?.is_empty())
    }

    /// Says that nothing more is to come, or that there is again.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn close(&self, closed: bool) -> Result<(), ClusterError> {
        let path = self.dir.join(CLOSED);
        match closed {
            true if path.exists() => Ok(()),
            true => self.write(CLOSED, b""),
            false => match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("remove", &path)(error)),
                _ => Ok(()),
            },
        }
    }

    /// What was submitted.
    ///
    /// # Errors
    /// If its record cannot be read.
    pub fn submission(&self) -> Result<Submission, ClusterError> {
        Submission::read(&self.dir.join("submission.json"))
    }

    /// The cells of a task.
    ///
    /// # Errors
    /// If its file cannot be read.
    pub fn task(&self, array: usize, task: u32) -> Result<TaskFile, ClusterError> {
        TaskFile::read(&self.dir.join("tasks").join(TaskFile::name(array, task)))
    }

    /// Remembers what Slurm called an array.
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

    /// What Slurm called its arrays, in the order in which they were submitted.
    ///
    /// # Errors
    /// If a file of them cannot be read.
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

    /// Writes what a task says of itself.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep_note(&self, note: &Note) -> Result<(), ClusterError> {
        self.write(&format!("notes/{}", note.name()), note.text().as_bytes())
    }

    /// What the newest start of each task says of itself, by array and task.
    ///
    /// # Errors
    /// If the notes cannot be listed. One that is damaged says nothing.
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

    /// Puts an attempt of a ledger where `collect` finds it, with the texts that go with it.
    ///
    /// # Errors
    /// If the ledger cannot be read, or the file not be written.
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
            // What the ledger says, as itself: it may be busy.
            Some(PackError::Unread(error)) => Err(error
                .downcast::<StoreError>()
                .map_or_else(|error| PackError::Unread(error).into(), ClusterError::from)),
            Some(fault) => Err(fault.into()),
            None => Ok(written?),
        }
    }

    /// Remembers that finished attempts of a cell's run were in the ledger before.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put_sealed(&self, cell: Digest, run: RunId, attempts: usize) -> Result<(), ClusterError> {
        let name = format!("out/{}-{}.{attempts}.sealed", cell.prefix(DIGITS), run.0.prefix(DIGITS));
        self.write(&name, run.to_string().as_bytes())
    }

    /// The attempts that wait to be collected.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn packs(&self) -> Result<Vec<PathBuf>, ClusterError> {
        let dir = self.dir.join("out");
        Ok(names(&dir)?.into_iter().filter(|name| name.ends_with(".ledger")).map(|name| dir.join(name)).collect())
    }

    /// Takes a collected attempt's file away, and leaves its id in the place.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn mark_collected(&self, pack: &Path, attempt: AttemptId) -> Result<(), ClusterError> {
        files::write_whole(&pack.with_extension("collected"), attempt.to_string().as_bytes())?;
        match std::fs::remove_file(pack) {
            // Another `collect` was faster.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("remove", pack)(error)),
            _ => Ok(()),
        }
    }

    /// Puts a file away that the ledger cannot take, `superseded` if it holds an execution with another end than the ledger does, `damaged`
    /// if it cannot be read. Returns where it is kept.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn set_aside(&self, pack: &Path, why: &str) -> Result<PathBuf, ClusterError> {
        let kept = pack.with_extension(why);
        match std::fs::rename(pack, &kept) {
            // Another `collect` was faster.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("rename", pack)(error)),
            _ => Ok(kept),
        }
    }

    /// As [`mark_collected`](Self::mark_collected), of an attempt that came as a journal.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn mark_recovered(&self, cell: Digest, attempt: &Attempt, id: AttemptId) -> Result<(), ClusterError> {
        let name = result_name(cell, attempt.nonce, &attempt.outcome);
        self.write(&format!("out/{name}.collected"), id.to_string().as_bytes())
    }

    /// The attempts of a cell that are in the ledger, by how they ended.
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

    /// What has come back, by the beginning of the cell's name (see [`Folder::key`]).
    ///
    /// # Errors
    /// If it cannot be listed.
    pub fn tallies(&self) -> Result<BTreeMap<String, Tally>, ClusterError> {
        let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for name in names(&self.dir.join("out"))? {
            let Some((cell, rest)) = name.split_once('-') else { continue };
            // Both forms are there for a moment.
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

    /// Whether an execution has come back.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub fn has_come_back(&self, nonce: Nonce) -> Result<bool, ClusterError> {
        let nonce = nonce.to_string();
        let has_come = |name: &String| name.contains(&nonce) && !name.ends_with(&format!(".{DAMAGED}"));
        Ok(names(&self.dir.join("out"))?.iter().any(has_come))
    }

    /// Whether an execution has come back, and no `collect` has taken it yet.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub fn is_pending(&self, nonce: Nonce) -> Result<bool, ClusterError> {
        let nonce = nonce.to_string();
        let names = self.packs()?;
        Ok(names.iter().filter_map(|pack| pack.file_name()).any(|name| name.to_string_lossy().contains(&nonce)))
    }

    /// By what a cell is known in the names of files.
    pub fn key(cell: Digest) -> String {
        cell.prefix(DIGITS)
    }

    /// The [key](Self::key) of the cell of a file in `out`.
    pub(super) fn key_of(path: &Path) -> Option<String> {
        Some(path.file_name()?.to_str()?.split_once('-')?.0.to_owned())
    }
}

fn result_name(cell: Digest, nonce: Nonce, outcome: &Outcome) -> String {
    format!("{}-{nonce}.{}", cell.prefix(DIGITS), outcome.name())
}
