//! Pins the kernel selection of deterministic runs: it is made once and used by all later attempts with the same
//! shapes.
//!
//! Tuning selects kernels by their times, so two tunings may select kernels that round differently. A pin names one
//! tuning. It was made while no other run used the kernels, its selections never change, and it moves with the kernels
//! from one ledger to another.

use super::{KernelCache, KernelCacheError, io_error};
use crate::host::files;
use crate::record::{Run, Table, Value, count};
use crate::wire::{Choice, parse_choice};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The fact with the pin of an attempt.
pub(super) const FACT: &str = "kernel_cache.pin";
const FOLDER: &str = ".pinned-";
/// The number of choices that an error names.
const NAMED: usize = 3;

/// Whether a run is deterministic, with a pinned kernel selection.
pub(super) fn is_deterministic(run: &Run) -> bool {
    run.config().get("training.deterministic") == Some(&Value::Bool(true))
}

/// The pin in a file of tuned shapes. `None` if there is no file, or a run that is not deterministic wrote it.
pub(super) fn read(mark: &Path) -> Option<String> {
    let text = fs::read_to_string(mark).ok()?;
    (!text.trim().is_empty()).then(|| text.trim().to_owned())
}

/// The pin of a running deterministic run.
#[derive(Debug)]
pub(super) struct Pinning {
    pub(super) pin: String,
    /// Whether the choices were made by an earlier attempt.
    is_made: bool,
    /// The worker's working directory, in which its choices are recorded.
    folder: PathBuf,
    /// The file in which the worker's runtime records each choice as a line of JSON.
    pub(super) record: PathBuf,
}

impl Pinning {
    /// The first run with its shapes makes the pin, and must be the only user of the kernels.
    pub(super) fn new(kernels: &Path, mark: &Path) -> Result<Self, KernelCacheError> {
        let nonce = || files::random_nonce().map_err(io::Error::other).map_err(io_error("make", kernels));
        let made = read(mark);
        if made.is_none() {
            // Folders that killed supervisors have left.
            for (_, folder) in files::beginning(kernels, FOLDER, "").unwrap_or_default() {
                let _ = fs::remove_dir_all(folder);
            }
        }
        let folder = kernels.join(format!("{FOLDER}{}", nonce()?));
        let is_made = made.is_some();
        let pin = made.map_or_else(|| nonce().map(|nonce| nonce.to_string()), Ok)?;
        Ok(Self { pin, is_made, record: folder.join("chosen.jsonl"), folder })
    }

    /// The name of the working directory, relative to the kernels' folder.
    pub(super) fn folder(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// An error if the worker made choices although all had been made.
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
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The selected kernel and its operation, from a line of the runtime's record.
fn choice(line: &str) -> String {
    let shown = |text: &str| text.chars().take(120).collect::<String>();
    parse_choice(line).map_or_else(|| shown(line), |Choice { kernel, key }| format!("{kernel} for {}", shown(&key)))
}

/// A deterministic run would use another kernel selection than the recorded attempt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its kernels were selected by pin {recorded}, and here {} (`ledger cache export` there and `ledger cache import FILE` here copy the kernels; --on-current executes it with this machine's selection)",
        .here.as_ref().map_or("none are selected for it".to_owned(), |here| format!("they are selected by pin {here}")))]
pub struct UnpinnedError {
    /// The pin of the recorded attempt.
    pub recorded: String,
    /// The pin of the kernels beside this ledger.
    pub here: Option<String>,
}

impl KernelCache {
    /// Checks that an attempt with these facts can be repeated here with the same kernel selection. Passes if nothing
    /// was pinned.
    ///
    /// # Errors
    /// If the kernels beside this ledger have another pin or none.
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
