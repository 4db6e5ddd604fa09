//! Finalizes and seals the journals of supervisors that died.

use super::EngineError;
use super::left::Left;
use crate::host::{owner, process};
use crate::journal::{self, Gate};
use crate::record::{AttemptId, Entry, Owner, RunId};
use crate::store::{Added, Store};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A shorter journal has no attempt: the first entry is longer, and is durable before the attempt begins.
const MAY_HOLD_AN_ATTEMPT: u64 = 512;

/// How long a command waits, for all journals together, for locks of dead supervisors that their workers still have.
const MOMENT: Duration = Duration::from_millis(200);

/// The result for one journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// The attempt was sealed.
    Sealed(AttemptId),
    /// The journal had no attempt and was removed.
    Removed(PathBuf),
    /// The journal belongs to another host, where its owner may be alive.
    Elsewhere(PathBuf),
    /// This ledger cannot read the journal.
    Unreadable(PathBuf, String),
}

impl Recovered {
    /// The error if this journal locks the run, so that it cannot be executed here.
    pub(super) fn blocks(self, run: RunId) -> Option<EngineError> {
        let (Self::Elsewhere(journal) | Self::Unreadable(journal, _)) = self else { return None };
        let name = journal.file_name()?.to_string_lossy().into_owned();
        name.starts_with(&run.0.prefix(16)).then_some(EngineError::Blocked { journal })
    }
}

/// Seals every journal whose owner is gone.
///
/// # Errors
/// If the journals cannot be listed or locked, or the ledger cannot be written. What was sealed before stays sealed.
pub fn recover(store: &Store) -> Result<Vec<Recovered>, EngineError> {
    let dir = store.journals();
    if journal::list(&dir)?.is_empty() {
        return Ok(Vec::new());
    }
    recover_behind(&Gate::enter(&dir)?, store)
}

/// As [`recover`], but never waits: `None` if another process has the journals locked.
///
/// # Errors
/// As [`recover`].
pub fn try_recover(store: &Store) -> Result<Option<Vec<Recovered>>, EngineError> {
    let dir = store.journals();
    if journal::list(&dir)?.is_empty() {
        return Ok(Some(Vec::new()));
    }
    Gate::try_enter(&dir)?.map(|gate| recover_behind(&gate, store)).transpose()
}

fn recover_behind(_gate: &Gate, store: &Store) -> Result<Vec<Recovered>, EngineError> {
    let dir = store.journals();
    let (mut found, until) = (Vec::new(), Instant::now() + MOMENT);
    for path in journal::list(&dir)? {
        found.extend(recover_one(store, &path, false, until)?);
    }
    Ok(found)
}

/// Seals the journal with this name, even of another host: the caller states that its owner is gone. `None` if it is
/// being written or missing.
///
/// # Errors
/// As [`recover`].
pub fn recover_left(store: &Store, name: &OsStr) -> Result<Option<Recovered>, EngineError> {
    let dir = store.journals();
    let find = || Ok::<_, EngineError>(journal::list(&dir)?.into_iter().find(|path| path.file_name() == Some(name)));
    // Entering the gate would create the folder.
    if find()?.is_none() {
        return Ok(None);
    }
    let _gate = Gate::enter(&dir)?;
    find()?.map_or(Ok(None), |path| recover_one(store, &path, true, Instant::now() + MOMENT))
}

/// Whether a process writes the journal.
///
/// The lock decides, not the pid, because a supervisor in another PID namespace is not visible here. But a supervisor
/// that dies while it starts a worker leaves the lock to it until the worker's `exec`. If the pid is gone, this waits
/// for that, no longer than `until`.
fn is_held(path: &Path, owner: &Owner, until: Instant) -> Result<bool, EngineError> {
    while journal::is_held(path)? {
        let is_hidden = owner.host != owner::host_name();
        if is_hidden || owner::liveness(owner)? != owner::Liveness::Gone || Instant::now() > until {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(false)
}

/// Handles one journal. With `is_left`, an owner on another host counts as gone. Waits for locks no longer than
/// `until`.
fn recover_one(store: &Store, path: &Path, is_left: bool, until: Instant) -> Result<Option<Recovered>, EngineError> {
    let unread = |error| match error {
        // The owner has just sealed and removed it.
        journal::JournalError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        error => Ok(Some(Recovered::Unreadable(path.to_owned(), error.to_string()))),
    };
    // Only the first entry of a journal that is being written is read: it may have millions.
    let first = match journal::first(path) {
        Ok(first) => first,
        Err(error) => return unread(error),
    };
    if let Some(Entry::Opened { owner, .. }) = &first {
        if is_held(path, owner, until)? {
            return Ok(None);
        }
        if !is_left && owner::liveness(owner)? == owner::Liveness::Elsewhere {
            return Ok(Some(Recovered::Elsewhere(path.to_owned())));
        }
    }
    let left = match Left::read(path) {
        Ok(Ok(left)) => left,
        Ok(Err(torn_bytes)) if torn_bytes < MAY_HOLD_AN_ATTEMPT => {
            journal::discard(path)?;
            return Ok(Some(Recovered::Removed(path.to_owned())));
        }
        Ok(Err(_)) => {
            let aside = journal::set_aside(path)?;
            let fault = "its first entry is damaged, and it is kept under this name".to_owned();
            return Ok(Some(Recovered::Unreadable(aside, fault)));
        }
        Err(error) => return unread(error),
    };
    let owner = &left.owner;
    let lost = match owner::liveness(owner)? {
        // The lock is not visible in a copy of the folder or through another mount.
        owner::Liveness::Alive if !left.has_ended && !journal::is_given_up(path) => return Ok(None),
        // Given up, because it could not be sealed or even its end could not be written.
        owner::Liveness::Alive => format!("its supervisor (pid {}) could not write how it ended", owner.pid),
        owner::Liveness::Elsewhere => {
            format!("its supervisor (pid {} on {}) was said to be gone", owner.pid, owner.host)
        }
        owner::Liveness::Gone => {
            end_left(path, left.worker);
            format!("its supervisor (pid {}) was gone", owner.pid)
        }
    };
    let added = left.fold(&lost)?.seal(store)?;
    journal::discard(path)?;
    Ok(matches!(added, Added::New(_)).then_some(Recovered::Sealed(added.id())))
}

/// Ends the processes that a worker had started. The kernel has ended only the worker with its supervisor.
fn end_left(journal: &Path, worker: Option<u32>) {
    let pipe = journal.with_extension("events");
    if let Some(leader) = worker {
        // Errors are ignored: the attempt is sealed in any case.
        let _ =
            process::end_left_group(leader, "LEDGER_EVENTS", |path| Path::new(path).file_name() == pipe.file_name());
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Place, Seen, Shim, Sweep, SweepReport, Watch};
    use super::*;
    use crate::journal::Writer;
    use crate::record::{Nonce, Outcome, Parts, Run, Table};
    use crate::store::StoreError;
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;
    use std::sync::Mutex;

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path());
        std::fs::create_dir_all(store.journals()).unwrap();
        (dir, store)
    }

    fn begun(store: &Store, owner: Owner) -> Writer {
        begun_as(store, owner, Nonce([7; 16]))
    }

    fn begun_as(store: &Store, owner: Owner, nonce: Nonce) -> Writer {
        let run = Run::new(Parts::sample());
        let opened = Entry::Opened {
            owner,
            nonce,
            run: Box::new(run.clone()),
            settings: Table::new(),
            facts: Table::new(),
            started_unix_ms: 3,
            started_ns: 4,
        };
        Writer::create(&store.journals(), run.id, nonce, &opened).unwrap()
    }

    fn dead() -> Owner {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        Owner { pid, start_ticks: 0, ..owner::this_owner().unwrap() }
    }

    fn is_sealed(store: &Store) -> bool {
        matches!(recover(store).unwrap()[..], [Recovered::Sealed(_)])
            && journal::list(&store.journals()).unwrap().is_empty()
    }

    #[test]
    fn a_lock_that_a_dead_supervisor_left_to_its_child_is_waited_for() {
        let (_dir, store) = store();
        let writer = begun(&store, dead());
        let child = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(writer);
        });
        assert!(is_sealed(&store));
        child.join().unwrap();
    }

    #[test]
    fn journals_of_supervisors_in_another_namespace_are_skipped_without_waiting() {
        let (_dir, store) = store();
        // With this host's name and boot id, and pids that no process here has.
        let writers: Vec<Writer> = (0..20).map(|number| begun_as(&store, dead(), Nonce([number; 16]))).collect();
        let since = Instant::now();
        assert_eq!(recover(&store).unwrap(), [], "their locks say that they live");
        assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
        drop(writers);
        assert_eq!(recover(&store).unwrap().len(), 20);
    }

    #[test]
    fn the_journal_of_a_killed_container_is_sealed_by_the_next_one() {
        let (_dir, store) = store();
        let writer = begun(&store, Owner { host: "1f0c3a9d2b7e".to_owned(), ..dead() });
        let since = Instant::now();
        assert_eq!(recover(&store).unwrap(), [], "its lock says that it lives");
        assert!(since.elapsed() < Duration::from_secs(2));
        drop(writer);
        assert!(is_sealed(&store));
    }

    #[test]
    fn an_attempt_of_another_host_is_sealed_on_request() {
        let (_dir, store) = store();
        let owner = Owner { host: "elsewhere".to_owned(), boot_id: "another".to_owned(), ..dead() };
        let writer = begun(&store, owner);
        let path = writer.path().to_owned();
        let name = path.file_name().unwrap();
        assert_eq!(recover_left(&store, name).unwrap(), None, "its lock says that it lives");
        drop(writer);
        assert_eq!(recover(&store).unwrap(), [Recovered::Elsewhere(path.clone())]);
        assert_eq!(recover_left(&store, "other.journal".as_ref()).unwrap(), None);
        let Some(Recovered::Sealed(id)) = recover_left(&store, name).unwrap() else { panic!("not sealed") };
        let sealed = store.read(|reader| reader.sealed(id)).unwrap().unwrap();
        assert!(sealed.attempt.outcome.reason().unwrap().contains("on elsewhere) was said to be gone"));
        assert!(journal::list(&store.journals()).unwrap().is_empty());
    }

    #[test]
    fn an_attempt_that_its_living_supervisor_could_not_seal_is_sealed_by_the_next_command() {
        let (_dir, store) = store();
        let mut writer = begun(&store, owner::this_owner().unwrap());
        let ended = Entry::Ended { outcome: Outcome::Finished, exit: None, ended_ns: 9, cpu_ns: None };
        drop(writer.append(&ended).and_then(|()| writer.sync()));
        assert_eq!(recover(&store).unwrap(), [], "it is being sealed");
        drop(writer);
        assert!(is_sealed(&store));
    }

    #[test]
    fn an_attempt_whose_end_could_not_be_written_is_sealed_as_interrupted() {
        let (_dir, store) = store();
        drop(begun(&store, owner::this_owner().unwrap()));
        let [Recovered::Sealed(id)] = recover(&store).unwrap()[..] else { panic!("not sealed") };
        let sealed = store.read(|reader| reader.sealed(id)).unwrap().unwrap();
        assert!(sealed.attempt.outcome.reason().unwrap().ends_with("could not write how it ended"));
        assert!(journal::list(&store.journals()).unwrap().is_empty());
    }

    #[test]
    fn a_copy_of_a_journal_that_is_being_written_is_not_sealed() {
        let ((_dir, store), (_copied, copy)) = (store(), store());
        let writer = begun(&store, owner::this_owner().unwrap());
        for extension in ["journal", "reserve"] {
            let from = writer.path().with_extension(extension);
            std::fs::copy(&from, copy.journals().join(from.file_name().unwrap())).unwrap();
        }
        assert_eq!(recover(&copy).unwrap(), []);
        assert_eq!(journal::list(&copy.journals()).unwrap().len(), 1);
    }

    #[test]
    fn only_the_first_entry_of_a_journal_being_written_is_read() {
        let (_dir, store) = store();
        let writer = begun(&store, owner::this_owner().unwrap());
        // A sparse file, larger than any memory.
        let file = std::fs::OpenOptions::new().write(true).open(writer.path()).unwrap();
        file.set_len(1 << 40).unwrap();
        assert_eq!(recover(&store).unwrap(), []);
    }

    struct Nobody;

    impl Watch for Nobody {
        fn see(&self, _seen: Seen<'_>) {}
    }

    #[test]
    fn a_sweep_that_is_done_is_not_interrupted_by_a_late_request() {
        let (_dir, store) = store();
        let shim = Shim { executable: "ledger".into(), restore: Place::at(store.dir().join("restore")), key: None };
        let (facts, jobs, canary) = (Table::new(), 1, false);
        let sweep = Sweep { store: &store, facts: &facts, shim: &shim, watch: &Nobody, stop: &1_u32, jobs, canary };
        assert!(!sweep.run(Vec::new()).interrupted);
    }

    #[test]
    fn attempts_that_were_sealed_later_belong_to_their_sweep() {
        let (_dir, store) = store();
        let waiting: Vec<(RunId, EngineError)> = (7..10u8)
            .map(|number| {
                let nonce = Nonce([number; 16]);
                let writer = begun_as(&store, dead(), nonce);
                let contents = journal::read(writer.path()).unwrap();
                let Some(Entry::Opened { run, .. }) = contents.entries.first() else { panic!("not opened") };
                let source = Box::new(StoreError::Missing(store.dir().to_owned()));
                (run.id, EngineError::Unsealed { journal: writer.path().to_owned(), nonce, source })
            })
            .collect();
        let journals = journal::list(&store.journals()).unwrap();
        // Another command seals the first one. The third can be sealed, but a file beside it cannot be removed.
        recover_left(&store, journals[0].file_name().unwrap()).unwrap();
        let beside = journals[2].with_extension("reserve");
        // The writer has removed its reserve.
        std::fs::create_dir(&beside).unwrap();
        let shim = Shim { executable: "ledger".into(), restore: Place::at(store.dir().join("restore")), key: None };
        let (facts, jobs, canary) = (Table::new(), 1, false);
        let sweep = Sweep { store: &store, facts: &facts, shim: &shim, watch: &Nobody, stop: &0_u32, jobs, canary };
        let report = Mutex::new(SweepReport { troubled: waiting, ..SweepReport::default() });
        sweep.seal_waiting(&report);
        let report = report.into_inner().unwrap();
        let executed: Vec<Nonce> = report.executed.iter().map(|one| one.attempt.nonce).collect();
        assert_eq!(executed, [Nonce([7; 16]), Nonce([8; 16])]);
        let [(_, EngineError::Unsealed { nonce, .. })] = report.troubled.as_slice() else { panic!("{report:?}") };
        assert_eq!(*nonce, Nonce([9; 16]));
    }

    #[test]
    fn processes_left_by_a_dead_supervisors_worker_are_killed() {
        let (_dir, store) = store();
        let mut writer = begun(&store, dead());
        let mut worker = std::process::Command::new("sh");
        worker.args(["-c", "sleep 1000 & echo $!"]).env("LEDGER_EVENTS", writer.path().with_extension("events"));
        let mut worker = worker.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let pid = worker.id();
        let mut left = String::new();
        let mut output = worker.stdout.take().unwrap();
        worker.wait().unwrap();
        while !left.ends_with('\n') {
            let mut byte = [0];
            output.read_exact(&mut byte).unwrap();
            left.push(char::from(byte[0]));
        }
        writer.append(&Entry::Started { pid }).unwrap();
        writer.sync().unwrap();
        drop(writer);
        assert!(is_sealed(&store));
        // The pipe is closed once the process has ended.
        assert_eq!(output.read(&mut [0]).unwrap(), 0, "{left}");
    }
}
