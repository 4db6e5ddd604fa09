//! The context of every command: the ledger and the form of the answer.

use super::draft::{Draft, unwritten};
use super::failure::{Failure, exit};
use super::output::{self, say};
use crate::engine::{self, EngineError, Machine, Place, Recovered, Restored};
use crate::host::{environment, holders, ownership};
use crate::journal::{self, Gate};
use crate::record::{Attempt, AttemptId, Digest, Run, RunId, Sealed, Table, Target};
use crate::report::document;
use crate::store::{Reader, Store, StoreError};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The selected ledger and the form of the answer.
pub(super) struct Context {
    store: Store,
    pub(super) json: bool,
    /// Whether a long answer is shown by a pager.
    pages: bool,
    /// Whether `--ledger` names the ledger.
    pub(super) is_named: bool,
}

impl Context {
    /// # Errors
    /// If the ledger's path names a file. If the ledger was found by search, the command needs it, and it may belong to
    /// another user.
    pub(super) fn new(ledger: Option<PathBuf>, json: bool, needs_ledger: bool) -> Result<Self, Failure> {
        let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        let found = environment::find_ledger(ledger.as_deref(), &here);
        if found.exists() && !found.is_dir() {
            let by = match ledger {
                Some(_) => "--ledger: ",
                None if environment::var("LEDGER_DIR").is_some() => "LEDGER_DIR: ",
                None => "",
            };
            let text = format!("{by}`{}` is a file (name the folder that holds the ledger)", found.display());
            return Err(Failure::new(exit::USAGE, text));
        }
        let is_named = ledger.is_some() || environment::var("LEDGER_DIR").is_some();
        if needs_ledger && !is_named {
            ownership::check(&found).map_err(|dubious| Failure::new(exit::LEDGER, dubious))?;
        }
        // Workers run in other folders and find their pipe by this path.
        let dir = std::path::absolute(&found).unwrap_or(found);
        Ok(Self { store: Store::at(dir), json, pages: false, is_named: ledger.is_some() })
    }

    /// Sets whether a pager shows long answers.
    pub(super) fn paged(self, pages: bool) -> Self {
        Self { pages, ..self }
    }

    /// Returns the ledger, after sealing every attempt whose supervisor died.
    pub(super) fn store(&self) -> &Store {
        // A failure was already reported, and the command still answers.
        let _ = restore();
        let is_behind = self.store.is_behind();
        if matches!(is_behind, Err(StoreError::Busy { .. })) {
            // The time to wait is over; the command itself tries once more.
            self.store.stop_waiting();
        }
        if is_behind.unwrap_or(false) {
            say("the ledger's indexes have an older format and are rebuilt once");
            if let Err(error) = self.store.write_many(|_| Ok(())) {
                say(&format!(
                    "warning: the indexes could not be rebuilt, so attempts that are left out are unknown: {error}"
                ));
            }
        }
        match engine::try_recover(&self.store) {
            Ok(Some(found)) => found.iter().for_each(|found| self.tell_recovered(found)),
            Ok(None) => self.tell_locked(),
            // A read-only ledger can still answer.
            Err(error) => say(&format!("warning: {} could not be sealed: {error}", unsealed_attempts(&self.store))),
        }
        &self.store
    }

    /// Returns the ledger without sealing anything.
    pub(super) fn store_as_it_is(&self) -> &Store {
        &self.store
    }

    /// Reports the attempts that are missing from the answer because their records do not decode.
    pub(super) fn tell_passed_over(&self) {
        for id in self.store.passed_over() {
            say(&format!("warning: attempt {id} cannot be read and was skipped (`ledger verify` shows the fault)"));
        }
    }

    /// Reports which processes lock the ledger. A process that opens or seals an attempt holds the lock for
    /// milliseconds; a stopped process keeps it.
    fn tell_locked(&self) {
        let lock = Gate::lock_file(&self.store.journals());
        for holder in holders(&lock).iter().filter(|holder| holder.is_stopped) {
            let lock = lock.display();
            say(&format!("warning: abandoned attempts were not sealed: `{lock}` is held by {holder}"));
        }
    }

    fn tell_recovered(&self, found: &Recovered) {
        match found {
            Recovered::Sealed(id) => say(&format!("sealed {}, which its supervisor had abandoned", id.0.prefix(8))),
            Recovered::Removed(_) => {}
            Recovered::Elsewhere(path) => {
                say(&format!(
                    "note: `{}` belongs to another host (if its command is gone, `ledger doctor --seal` with this name seals its attempt)",
                    path.display()
                ));
            }
            Recovered::Unreadable(path, fault) => say(&format!("warning: `{}`: {fault}", path.display())),
        }
    }

    /// Prints the answer: the document with `--json`, else the text.
    pub(super) fn answer(&self, text: impl FnOnce() -> String, members: impl FnOnce() -> Table) -> Result<(), Failure> {
        if self.json { output::print(&document(members())) } else { output::answer(text, self.pages) }
    }
}

/// Restores the GPU settings that terminated supervisors left changed, and reports it. Returns the result for each
/// file.
///
/// # Errors
/// If the changed settings cannot be determined; that is reported too.
pub(super) fn restore() -> Result<Vec<Restored>, EngineError> {
    let found = engine::restore(&Place::usual(), Machine::default().nvml().as_deref()).inspect_err(|error| {
        say(&format!("warning: GPU settings could not be restored: {error}"));
    })?;
    for one in &found {
        match one {
            Restored::Undone(what) => say(&format!("restored the settings of {what}")),
            Restored::Forgotten(_) | Restored::Unasked(_) | Restored::Held(_) => {}
            Restored::Elsewhere(path) => {
                let path = path.display();
                say(&format!("note: `{path}` names GPUs of another machine (a command there restores their settings)"));
            }
            Restored::Unreadable { why, is_old: true, .. } => say(&format!(
                "note: {why}; it is older than this machine's start, so its settings no longer apply here (remove it, unless it belongs to another machine)"
            )),
            Restored::Unreadable { why, .. } => say(&format!(
                "warning: {why}, and GPUs may still have its settings (check `nvidia-smi -q -d POWER,CLOCK`, reset with `nvidia-smi -pl`, `-rgc` and `-rmc`, and remove it, if no newer ledger is running)"
            )),
            Restored::Failed(path, why) => say(&format!(
                "warning: the settings in `{}` are still set on GPUs: {why} (`ledger doctor --restore` tries again)",
                path.display()
            )),
        }
    }
    Ok(found)
}

/// Returns the run or attempt that a text names.
pub(super) fn resolve(reader: &Reader<'_>, text: &str) -> Result<Result<Target, Failure>, StoreError> {
    Ok(reader.resolve(text)?.map_err(Failure::from))
}

/// Returns the tags of runs and attempts.
pub(super) fn tags(reader: &Reader<'_>) -> Result<BTreeMap<Digest, Vec<String>>, StoreError> {
    let mut found: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
    for (name, target) in reader.tags()? {
        found.entry(target.digest()).or_default().push(name);
    }
    Ok(found)
}

/// Returns the run that a text names, by its own id or by that of one of its attempts.
pub(super) fn resolve_run(reader: &Reader<'_>, text: &str) -> Result<Result<RunId, Failure>, StoreError> {
    Ok(match resolve(reader, text)? {
        Err(failure) => Err(failure),
        Ok(Target::Run(id)) => Ok(id),
        Ok(Target::Attempt(id)) => match reader.attempt(id)? {
            Some(attempt) => Ok(attempt.run),
            None => Err(Failure::new(exit::NO, format!("attempt {id} is not in the ledger"))),
        },
    })
}

/// Returns the attempt that a text names. For a run, it is the newest finished attempt, or the newest if none finished.
pub(super) fn resolve_attempt(
    reader: &Reader<'_>,
    text: &str,
) -> Result<Result<(AttemptId, Sealed), Failure>, StoreError> {
    let (id, run, attempt) = match resolve_head(reader, text)? {
        Ok(found) => found,
        Err(failure) => return Ok(Err(failure)),
    };
    let mut series = Vec::new();
    for summary in &attempt.series {
        series.extend(reader.series(id, &summary.name)?);
    }
    Ok(Ok((id, Sealed { run, phases: reader.phases(id)?, attempt, series })))
}

/// Returns the id of the attempt that a text names. For a run, it is the [`newest_attempt`].
pub(super) fn resolve_id(reader: &Reader<'_>, text: &str) -> Result<Result<AttemptId, Failure>, StoreError> {
    let id = match resolve(reader, text)? {
        Err(failure) => return Ok(Err(failure)),
        Ok(Target::Attempt(id)) => Some(id),
        Ok(Target::Run(run)) => newest_attempt(reader, run)?,
    };
    Ok(id.ok_or_else(|| no_attempt(text)))
}

pub(super) fn no_attempt(text: &str) -> Failure {
    Failure::new(exit::NO, format!("`{text}` has no attempt in the ledger"))
}

/// Like [`resolve_attempt`], without series and phases.
pub(super) fn resolve_head(
    reader: &Reader<'_>,
    text: &str,
) -> Result<Result<(AttemptId, Run, Attempt), Failure>, StoreError> {
    let id = match resolve_id(reader, text)? {
        Ok(id) => id,
        Err(failure) => return Ok(Err(failure)),
    };
    let Some(attempt) = reader.attempt(id)? else { return Ok(Err(no_attempt(text))) };
    Ok(reader.run(attempt.run)?.map(|run| (id, run, attempt)).ok_or_else(|| no_attempt(text)))
}

/// Returns the newest finished attempt of a run that is not hidden. Without one, it is the newest that finished, or
/// else the newest.
pub(super) fn newest_attempt(reader: &Reader<'_>, run: RunId) -> Result<Option<AttemptId>, StoreError> {
    let hidden = reader.hidden()?;
    let mut newest = None;
    for (id, finished) in reader.attempts_of(run)? {
        if let Some(attempt) = reader.readable(id)? {
            let counts = finished && !hidden.contains(&id.0);
            newest = newest.max(Some((counts, finished, attempt.started_unix_ms, id)));
        }
    }
    Ok(newest.map(|(.., id)| id))
}

/// Describes the attempts that ended and are not sealed.
fn unsealed_attempts(store: &Store) -> String {
    let journals = journal::list(&store.journals()).unwrap_or_default();
    let over = journals.iter().filter_map(|path| engine::Living::open(path)).filter(engine::Living::is_over);
    let ids: Vec<String> = over.map(|living| living.nonce.to_string()[..8].to_owned()).collect();
    match ids.as_slice() {
        [] => "abandoned attempts".to_owned(),
        [only] => format!("attempt {only}, which has ended,"),
        _ => format!("attempts {}, which have ended,", ids.join(", ")),
    }
}

/// Reads a file that was given to a command.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::new(exit::USAGE, format!("cannot read `{}`: {error}", path.display())))
}

/// Writes a file that must not exist yet, completely or not at all.
pub(super) fn write_new(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let write = || {
        let draft = Draft::file(path)?;
        let mut file = draft.held();
        file.write_all(content)?;
        file.sync_all()?;
        draft.finish()
    };
    write().map_err(|error| unwritten(path, &error, "choose another name with -o"))
}
