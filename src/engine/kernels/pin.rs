//! The choice of kernels of a deterministic run: made once, and taken by all later attempts of the same shapes.
//!
//! Which of several kernels computes an operation is decided by their times, so that two tunings may decide otherwise, and round otherwise. A pin names one
//! tuning. It was made alone, nothing that it decided is ever decided anew, and it moves with the kernels from one ledger to another.

use super::{KernelCache, KernelCacheError, io_error};
use crate::host::files;
use crate::record::{Run, Table, Value, count};
use crate::wire::{Choice, parse_choice};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The fact of an attempt that names the choices.
pub(super) const FACT: &str = "kernel_cache.pin";
const FOLDER: &str = ".pinned-";
/// How many choices are named.
const NAMED: usize = 3;

/// Whether a run's kernels are chosen once: its manifest says so, and it has any.
pub(super) fn is_deterministic(run: &Run) -> bool {
    run.config().get("training.deterministic") == Some(&Value::Bool(true))
}

/// The pin in a file of tuned shapes; none where there is no such file, or it was written by a run that is not deterministic.
pub(super) fn read(mark: &Path) -> Option<String> {
    let text = fs::read_to_string(mark).ok()?;
    (!text.trim().is_empty()).then(|| text.trim().to_owned())
}

/// What holds a deterministic run to the choices that were made before.
#[derive(Debug)]
pub(super) struct Pinning {
    pin: String,
    /// Whether the choices were made by an earlier attempt.
    is_made: bool,
    /// Where its worker is started: what it chooses is written down there.
    folder: PathBuf,
    record: PathBuf,
}

impl Pinning {
    /// Whoever is the first for its shapes is alone.
    pub(super) fn new(kernels: &Path, mark: &Path) -> Result<Self, KernelCacheError> {
        let nonce = || files::random_nonce().map_err(io::Error::other).map_err(io_error("make", kernels));
        let made = read(mark);
        if made.is_none() {
            // What a supervisor left that was killed.
            for (_, folder) in files::beginning(kernels, FOLDER, "").unwrap_or_default() {
                let _ = fs::remove_dir_all(folder);
            }
        }
        let folder = kernels.join(format!("{FOLDER}{}", nonce()?));
        let is_made = made.is_some();
        let pin = made.map_or_else(|| nonce().map(|nonce| nonce.to_string()), Ok)?;
        Ok(Self { pin, is_made, record: folder.join("chosen.jsonl"), folder })
    }

    pub(super) fn pin(&self) -> &str {
        &self.pin
    }

    /// The folder's name, from the kernels' folder on.
    pub(super) fn folder(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The file in which the worker's runtime writes each choice as a line of JSON.
    pub(super) fn record(&self) -> &Path {
        &self.record
    }

    /// What was chosen although all choices had been made.
    pub(super) fn chosen(&self) -> Option<String> {
        let text = fs::read_to_string(&self.record).ok().filter(|_| self.is_made)?;
        let chosen: Vec<String> = text.lines().map(choice).collect();
        let more = chosen.len().checked_sub(NAMED).filter(|more| *more > 0);
        let more = more.map_or(String::new(), |more| format!(" and {more} more"));
        (!chosen.is_empty()).then(|| {
            format!(
                "training.deterministic: {} chosen by time, though pin {} had made all choices: {}{more} (they are made now: run it again)",
                count(chosen.len(), "kernel"),
                self.pin,
                chosen[..chosen.len().min(NAMED)].join("; ")
            )
        })
    }
}

impl Drop for Pinning {
    fn drop(&mut self) {
        // Of no use to anybody.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The kernel that won, and for what, of a line of the runtime's record.
fn choice(line: &str) -> String {
    let shown = |text: &str| text.chars().take(120).collect::<String>();
    parse_choice(line).map_or_else(|| shown(line), |Choice { kernel, key }| format!("{kernel} for {}", shown(&key)))
}

/// The choices that a deterministic run was recorded with are not those that it would be executed with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its kernels were selected by pin {recorded}, and here {} (`ledger cache export` there and `ledger cache import FILE` here copy the kernels; --on-current executes it with this machine's selection)",
        .here.as_ref().map_or("none are selected for it".to_owned(), |here| format!("they are selected by pin {here}")))]
pub struct UnpinnedError {
    /// The pin of the recorded attempt.
    pub recorded: String,
    /// That of the kernels beside this ledger.
    pub here: Option<String>,
}

impl KernelCache {
    /// Whether an attempt of a run that is recorded with these facts could take the same choices here; it can where nothing was pinned.
    ///
    /// # Errors
    /// If the kernels beside this ledger are of another pin, or of none.
    pub fn has_pin(ledger: &Path, run: &Run, facts: &Table) -> Result<(), UnpinnedError> {
        let Some(recorded) = facts.get(FACT).and_then(Value::as_str) else { return Ok(()) };
        let here = read(&Self::of(ledger, run).mark(run));
        if here.as_deref() == Some(recorded) {
            return Ok(());
        }
        Err(UnpinnedError { recorded: recorded.to_owned(), here })
    }
}

#[cfg(test)]
mod tests;
