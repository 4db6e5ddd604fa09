//! Seals what a supervisor left behind when it died.

use super::{EngineError, fold};
use crate::host::{clock, owner};
use crate::journal::{self, Gate};
use crate::record::{AttemptId, Entry, Owner, RunId};
use crate::store::{Added, Store};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The first entry alone is longer than this, and is durable before anything begins.
const MAY_HOLD_AN_ATTEMPT: u64 = 512;

/// A journal that was found, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// Its attempt was sealed.
    Sealed(AttemptId),
    /// It held nothing that began.
    Removed(PathBuf),
    /// It is of another host, where its owner may be alive.
    Elsewhere(PathBuf),
    /// It cannot be read by this ledger.
    Unreadable(PathBuf, String),
}

impl Recovered {
    /// Why a run cannot be executed here for as long as that journal lies there.
    pub(super) fn blocks(self, run: RunId) -> Option<EngineError> {
        let (Self::Elsewhere(journal) | Self::Unreadable(journal, _)) = self else { return None };
        let name = journal.file_name()?.to_string_lossy().into_owned();
        name.starts_with(&run.0.prefix(16)).then_some(EngineError::Blocked { journal })
    }
}

/// Seals every journal whose owner is gone.
///
/// # Errors
/// If the journals cannot be listed or locked, or the ledger cannot be written; what was sealed before stays sealed.
pub fn recover(store: &Store) -> Result<Vec<Recovered>, EngineError> {
    let dir = store.journals();
    if journal::list(&dir)?.is_empty() {
        return Ok(Vec::new());
    }
    let _gate = Gate::enter(&dir)?;
    let mut found = Vec::new();
    for path in journal::list(&dir)? {
        found.extend(recover_one(store, &path)?);
    }
    Ok(found)
}

/// Whether somebody writes that journal.
///
/// A supervisor that dies while it starts a worker leaves the lock to it for the moment until its program begins. A lock that stays is of a living supervisor whose process
/// cannot be seen from here, in a container perhaps.
fn is_held(path: &Path, owner: &Owner) -> Result<bool, EngineError> {
    const MOMENT: Duration = Duration::from_secs(2);
    let since = Instant::now();
    while journal::is_held(path)? {
        if owner::liveness(owner)? != owner::Liveness::Gone || since.elapsed() > MOMENT {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(false)
}

fn recover_one(store: &Store, path: &Path) -> Result<Option<Recovered>, EngineError> {
    let contents = match journal::read(path) {
        Ok(contents) => contents,
        // Its owner has just sealed and removed it.
        Err(journal::JournalError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Ok(Some(Recovered::Unreadable(path.to_owned(), error.to_string()))),
    };
    let Some(Entry::Opened { owner, .. }) = contents.entries.first() else {
        if contents.torn_bytes < MAY_HOLD_AN_ATTEMPT {
            journal::discard(path)?;
            return Ok(Some(Recovered::Removed(path.to_owned())));
        }
        let aside = journal::set_aside(path)?;
        let fault = "its first entry is damaged, and it is kept under this name".to_owned();
        return Ok(Some(Recovered::Unreadable(aside, fault)));
    };
    if is_held(path, owner)? {
        return Ok(None);
    }
    let lost = match owner::liveness(owner)? {
        owner::Liveness::Alive => return Ok(None),
        owner::Liveness::Elsewhere => return Ok(Some(Recovered::Elsewhere(path.to_owned()))),
        owner::Liveness::Gone => format!("its supervisor (pid {}) was gone", owner.pid),
    };
    let Some(sealed) = fold(&contents.entries, &lost, contents.torn_bytes) else { return Ok(None) };
    let added = store.write(|writer| writer.seal(&sealed, clock::unix_ms()))?;
    journal::discard(path)?;
    Ok(matches!(added, Added::New(_)).then_some(Recovered::Sealed(added.id())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Writer;
    use crate::record::{Nonce, Parts, Run, Table};

    #[test]
    fn a_lock_that_a_dead_supervisor_left_to_its_child_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path());
        std::fs::create_dir_all(store.journals()).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let none = || "none".into();
        let run = Run::new(Parts {
            config: Table::new().into(),
            program: none(),
            container: none(),
            cuda: none(),
            driver: none(),
            device: none(),
            seed: 1,
        });
        let nonce = Nonce([7; 16]);
        let opened = Entry::Opened {
            owner: Owner { pid, start_ticks: 0, ..owner::this_owner().unwrap() },
            nonce,
            run: Box::new(run.clone()),
            settings: Table::new(),
            facts: Table::new(),
            started_unix_ms: 3,
            started_ns: 4,
        };
        let writer = Writer::create(&store.journals(), run.id, nonce, &opened).unwrap();
        let child = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(writer);
        });
        let found = recover(&store).unwrap();
        assert!(matches!(found[..], [Recovered::Sealed(_)]), "{found:?}");
        child.join().unwrap();
        assert!(journal::list(&store.journals()).unwrap().is_empty());
    }
}
