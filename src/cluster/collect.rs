//! Imports the results of tasks into the ledger: finished packs, and journals whose task has ended.

use super::folder::{DAMAGED, Submitted};
use super::mirror::origin;
use super::{Answer, ClusterError, Fate, Folder, Note};
use crate::engine::Left;
use crate::host::{clock, files};
use crate::journal;
use crate::record::{Attempt, AttemptId, Digest, RunId, SourceText};
use crate::store::{Added, Store};
use crate::wire::{PackError, PackFile, PackedAttempt};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Packs per transaction, which holds its changes in memory until it is committed.
const AT_ONCE: usize = 32;

/// An imported attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brought {
    /// Its run.
    pub run: RunId,
    /// Its id.
    pub attempt: AttemptId,
    /// Its outcome: `finished`, `failed` or `interrupted`.
    pub outcome: String,
    /// Whether the ledger did not have it before.
    pub new: bool,
}

/// The results imported from a submission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The imported attempts.
    pub brought: Vec<Brought>,
    /// Number of files that stay: their task is alive, or may have written more than is visible from this host.
    pub waiting: usize,
    /// The cells of these files as [keys](Folder::key), if known.
    pub waiting_for: BTreeSet<String>,
    /// Files that cannot be imported, each with the reason.
    pub faults: Vec<(PathBuf, String)>,
}

/// Imports everything that a submission has delivered. It may be called at any time and repeatedly.
///
/// `tasks` is Slurm's answer, or `None` if Slurm cannot be queried: then journals stay. A journal without an end is
/// sealed as interrupted when its task is over and nothing has written to it for `patience`: a node's last files become
/// visible here with a delay.
///
/// # Errors
/// If the folder cannot be read or the ledger cannot be written. Attempts imported before that stay in the ledger.
pub fn collect(
    store: &Store,
    folder: &Folder,
    tasks: Option<&Answer>,
    patience: Duration,
) -> Result<Collected, ClusterError> {
    let mut collected = Collected::default();
    for paths in folder.packs()?.chunks(AT_ONCE) {
        bring_packs(store, folder, paths, patience, &mut collected)?;
    }
    let journals = journal::list(&folder.journals())?;
    if !journals.is_empty() {
        let (jobs, notes) = (folder.jobs()?, folder.notes()?);
        for path in journals {
            let gone = tasks.and_then(|tasks| gone(&path, tasks, &jobs, &notes));
            bring_journal(store, folder, &path, gone, patience, &mut collected)?;
        }
    }
    Ok(collected)
}

/// When packs of this size have been read, they are imported in one transaction.
const AT_ONCE_BYTES: u64 = 64 << 20;

/// A pack that a task has delivered.
struct Arrived<'a> {
    path: &'a PathBuf,
    packed: PackedAttempt,
    sources: Vec<SourceText>,
}

/// Reads a pack that a task has delivered, and checks every digest in it. The series are copied to a private temporary
/// file as they are checked, because the folder is shared.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub fn read_result(path: &Path) -> Result<(PackedAttempt, Vec<SourceText>), PackError> {
    // Falls back to the pack's own folder if the usual place cannot be written.
    let beside = path.parent().unwrap_or(Path::new("."));
    let spool = || files::nameless_in(&files::folder_for_large()).or_else(|_| files::nameless_in(beside));
    PackFile::read_own(File::open(path).map_err(PackError::Unread)?, &spool)
}

fn bring_packs(
    store: &Store,
    folder: &Folder,
    paths: &[PathBuf],
    patience: Duration,
    collected: &mut Collected,
) -> Result<(), ClusterError> {
    let (mut packs, mut bytes_read): (Vec<Arrived<'_>>, u64) = (Vec::new(), 0);
    for path in paths {
        if bytes_read > AT_ONCE_BYTES {
            take_in(store, folder, &std::mem::take(&mut packs), collected)?;
            bytes_read = 0;
        }
        match read_result(path) {
            Ok((packed, sources)) => {
                bytes_read += std::fs::metadata(path).map_or(0, |metadata| metadata.len());
                packs.push(Arrived { path, packed, sources });
            }
            // A node's last writes may become visible later.
            Err(PackError::Damaged | PackError::NoPack) if !rests(path, patience) => {
                collected.waiting += 1;
                collected.waiting_for.extend(Folder::key_of(path));
            }
            Err(error @ (PackError::Damaged | PackError::NoPack)) => {
                let kept = folder.set_aside(path, DAMAGED)?;
                let name = folder.name();
                let remedy = format!("it counts as lost: `ledger submit --resume {name}` executes it again");
                collected.faults.push((kept, format!("{} ({remedy})", without_remedy(&error.to_string()))));
            }
            // Another `collect` has imported it.
            Err(PackError::Unread(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            // The pack itself is intact, so it stays: another ledger may import it.
            Err(error) => collected.faults.push((path.clone(), error.to_string())),
        }
    }
    take_in(store, folder, &packs, collected)
}

fn take_in(
    store: &Store,
    folder: &Folder,
    packs: &[Arrived<'_>],
    collected: &mut Collected,
) -> Result<(), ClusterError> {
    if packs.is_empty() {
        return Ok(());
    }
    let added = store.write(|writer| {
        packs.iter().flat_map(|arrived| &arrived.sources).try_for_each(|source| writer.keep(source))?;
        let import = |arrived: &Arrived<'_>| writer.import_packed(&arrived.packed, clock::unix_ms());
        packs.iter().map(import).collect::<Result<Vec<_>, _>>()
    })?;
    for (Arrived { path, packed, .. }, added) in packs.iter().zip(added) {
        let attempt = &packed.sealed.attempt;
        if added.id() == attempt.id() {
            folder.mark_collected(path, added.id())?;
            collected.brought.push(brought(attempt, added));
        } else {
            // The node seemed dead when its journal was sealed, but was alive.
            let fault =
                format!("its execution was sealed as {} when its task seemed to be gone", added.id().0.prefix(8));
            collected.faults.push((folder.set_aside(path, "superseded")?, fault));
        }
    }
    Ok(())
}

/// Returns an error message without its suggested fix in parentheses, which does not apply here.
fn without_remedy(said: &str) -> &str {
    said.split_once(" (").map_or(said, |(said, _)| said)
}

fn brought(attempt: &Attempt, added: Added) -> Brought {
    Brought {
        run: attempt.run,
        attempt: added.id(),
        outcome: attempt.outcome.name().to_owned(),
        new: matches!(added, Added::New(_)),
    }
}

/// Returns why no process writes a journal any more, or `None` if its task may be alive.
fn gone(path: &Path, tasks: &Answer, jobs: &[Submitted], notes: &BTreeMap<(usize, u32), Note>) -> Option<String> {
    let (job, task, restarts) = origin(path)?;
    let submitted = jobs.iter().find(|submitted| submitted.job == job)?;
    let newer = notes.get(&(submitted.array, task)).filter(|note| note.job == job && note.restarts > restarts);
    if newer.is_some() {
        return Some("its task was ended, and started again by Slurm".to_owned());
    }
    match tasks.of(&job, task)? {
        Some(seen) if seen.fate == Fate::Over => {
            // A task that was cancelled while it was pending has no node.
            let on = if seen.node.is_empty() { String::new() } else { format!(" on {}", seen.node) };
            Some(format!("its task was ended (Slurm says {}{on})", seen.state))
        }
        Some(_) => None,
        None => Some("its task was gone, and Slurm has no record of it".to_owned()),
    }
}

fn bring_journal(
    store: &Store,
    folder: &Folder,
    path: &Path,
    gone: Option<String>,
    patience: Duration,
    collected: &mut Collected,
) -> Result<(), ClusterError> {
    let left = match Left::read(path) {
        Ok(left) => left.ok(),
        Err(journal::JournalError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            collected.faults.push((path.to_owned(), error.to_string()));
            return Ok(());
        }
    };
    let Some((left, cell)) = left.and_then(|left| cell_of(&left).map(|cell| (left, cell))) else {
        // Its first entry has not arrived. It never will if the task has ended.
        if gone.is_some() && rests(path, patience) {
            journal::discard(path)?
        } else {
            collected.waiting += 1
        }
        return Ok(());
    };
    let nonce = left.nonce;
    if folder.has_come_back(nonce)? {
        // A pack that has not been imported yet may turn out to be damaged.
        if !folder.is_pending(nonce)? {
            journal::discard(path)?;
        }
        return Ok(());
    }
    let lost = match gone {
        Some(lost) if left.has_ended || rests(path, patience) => lost,
        _ => {
            collected.waiting += 1;
            collected.waiting_for.insert(Folder::key(cell));
            return Ok(());
        }
    };
    let folded = left.fold(&lost)?;
    let added = folded.seal(store)?;
    folder.mark_recovered(cell, &folded.attempt, added.id())?;
    journal::discard(path)?;
    collected.brought.push(brought(&folded.attempt, added));
    Ok(())
}

/// Returns the cell of a journal.
fn cell_of(left: &Left) -> Option<Digest> {
    left.facts.get("slurm.cell")?.as_str()?.parse().ok()
}

/// Whether a file has not been written for `patience`.
fn rests(path: &Path, patience: Duration) -> bool {
    let written = std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let written_ms = written.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |since| since.as_millis());
    u128::try_from(clock::unix_ms()).unwrap_or(0) >= written_ms + patience.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::mirror::prefix;
    use crate::cluster::{Seen, Spool, Submitted};
    use crate::record::Entry;
    use crate::record::{Event, EventKind, Nonce, Outcome, Owner, Parts, Run, Sealed, Table};

    fn run(name: &str) -> Run {
        let config: Table = [("name".to_owned(), name.into())].into();
        Run::new(Parts { config: config.into(), ..Parts::sample() })
    }

    /// Returns the journal entries of a cell's attempt, with its end or without.
    fn entries(name: &str, nonce: u8, whole: bool) -> Vec<Entry> {
        let owner = Owner { host: "n1".to_owned(), boot_id: "b".to_owned(), pid: 1, start_ticks: 1 };
        let cell = Digest::of(name.as_bytes());
        let mut entries = vec![Entry::Opened {
            owner,
            nonce: Nonce([nonce; 16]),
            run: Box::new(run(name)),
            settings: Table::new(),
            facts: [("slurm.cell".to_owned(), cell.to_string().into())].into(),
            started_unix_ms: 1,
            started_ns: 1,
        }];
        let kind = EventKind::Step { step: 1, duration_ns: None, values: vec![("loss".to_owned(), 2.0)] };
        entries.push(Entry::Event(Event { t_ns: 5, rank: 0, kind }));
        if whole {
            entries.push(Entry::Ended { outcome: Outcome::Finished, exit: None, ended_ns: 9, cpu_ns: None });
        }
        entries
    }

    fn sealed(name: &str, nonce: u8, whole: bool) -> Sealed {
        let dir = tempfile::tempdir().unwrap();
        let entries = entries(name, nonce, whole);
        let mut writer = journal::Writer::create(dir.path(), run(name).id, Nonce([nonce; 16]), &entries[0]).unwrap();
        entries[1..].iter().for_each(|entry| writer.append(entry).unwrap());
        writer.sync().unwrap();
        Left::read(writer.path()).unwrap().unwrap_or_else(|_| panic!()).fold("").unwrap().sealed().unwrap()
    }

    struct Place {
        _dir: tempfile::TempDir,
        store: Store,
        folder: Folder,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let folder = Spool::of(dir.path(), None).make("s").unwrap();
        let job = Submitted { job: "7".to_owned(), array: 0, tasks: vec![0, 1], unix_ms: 1 };
        folder.add_job(&job).unwrap();
        Place { store: Store::at(dir.path().join("ledger")), folder, _dir: dir }
    }

    impl Place {
        /// Delivers an attempt of a cell, as a task does.
        fn put(&self, cell: &str, sealed: &Sealed) {
            let scratch = tempfile::tempdir().unwrap();
            let store = Store::at(scratch.path().join("ledger"));
            let id = store.write(|writer| writer.seal(sealed, 0)).unwrap().id();
            let packed = store.read(|reader| reader.to_pack(id)).unwrap().unwrap();
            self.folder.put(Digest::of(cell.as_bytes()), &store, &packed, &[]).unwrap();
        }

        /// Writes the copy of a task's journal.
        fn copy(&self, name: &str, nonce: u8, task: u32, whole: bool) -> PathBuf {
            let apart = tempfile::tempdir().unwrap();
            let entries = entries(name, nonce, whole);
            let id = run(name).id;
            let mut writer = journal::Writer::create(apart.path(), id, Nonce([nonce; 16]), &entries[0]).unwrap();
            entries[1..].iter().for_each(|entry| writer.append(entry).unwrap());
            writer.sync().unwrap();
            let file = writer.path().file_name().unwrap().to_string_lossy().into_owned();
            let copy = self.folder.journals().join(format!("{}{file}", prefix("7", task, 0)));
            std::fs::copy(writer.path(), &copy).unwrap();
            copy
        }

        fn collect(&self, tasks: Option<&[(u32, Fate)]>, patience_s: u64) -> Collected {
            let seen = |(task, fate): &(u32, Fate)| {
                let (state, node) = ("NODE_FAIL".to_owned(), "n1".to_owned());
                (("7".to_owned(), *task), Seen { fate: *fate, state, node, reason: String::new() })
            };
            let tasks = tasks.map(|tasks| Answer::new(["7".to_owned()], tasks.iter().map(seen).collect()));
            collect(&self.store, &self.folder, tasks.as_ref(), Duration::from_secs(patience_s)).unwrap()
        }

        fn outcomes(&self) -> Vec<String> {
            let rows = self.store.read(|reader| reader.recent(0, 99, true)).unwrap();
            rows.into_iter().map(|row| row.outcome).collect()
        }
    }

    #[test]
    fn an_ended_attempt_is_imported_once() {
        let place = place();
        let sealed = sealed("a", 1, true);
        place.put("a", &sealed);
        let copy = place.copy("a", 1, 0, false);
        let first = place.collect(None, 0);
        assert_eq!((first.brought.len(), first.brought[0].new), (1, true));
        assert!(!copy.exists(), "the copy of its journal is of no use any more");
        assert!(place.collect(None, 0).brought.is_empty());
        assert_eq!(place.outcomes(), ["finished"]);
        let tally = place.folder.tallies().unwrap()[&Folder::key(Digest::of(b"a"))];
        assert_eq!((tally.finished, tally.interrupted), (1, 0));
        assert_eq!(place.folder.collected().unwrap()[&Folder::key(Digest::of(b"a"))], [sealed.attempt.id()]);
        // A `collect` that was killed before it removed the file.
        place.put("a", &sealed);
        assert!(!place.collect(None, 0).brought[0].new);
        assert_eq!(place.outcomes(), ["finished"]);
    }

    #[test]
    fn a_journal_is_sealed_once_its_task_is_gone_and_its_files_rest() {
        let place = place();
        place.copy("b", 2, 1, false);
        assert_eq!(place.collect(None, 0).waiting, 1, "Slurm was not asked");
        assert_eq!(place.collect(Some(&[(1, Fate::Running)]), 0).waiting, 1);
        assert_eq!(place.collect(Some(&[(1, Fate::Over)]), 3600).waiting, 1, "its last files may not be visible yet");
        let brought = place.collect(Some(&[(1, Fate::Over)]), 0).brought;
        assert_eq!((brought.len(), brought[0].outcome.as_str()), (1, "interrupted"));
        let attempt = place.store.read(|reader| reader.attempt(brought[0].attempt)).unwrap().unwrap();
        assert_eq!(attempt.outcome.reason(), Some("its task was ended (Slurm says NODE_FAIL on n1)"));
        assert_eq!(attempt.series[0].name, "loss");
        assert_eq!(place.folder.tallies().unwrap()[&Folder::key(Digest::of(b"b"))].interrupted, 1);
        assert_eq!(place.collect(Some(&[]), 0), Collected::default());
    }

    /// Simulates visibility over NFS: the changes of one file appear in order, those of different files in any order, a
    /// pack's first half before its second, and Slurm's answer before all of them.
    #[test]
    fn an_attempt_is_imported_once_and_whole_in_any_order_of_visibility() {
        let sealed = sealed("g", 7, true);
        for order in (0..1u32 << 5).filter(|order| order.count_ones() == 2) {
            let place = place();
            place.put("g", &sealed);
            let pack = place.folder.packs().unwrap().remove(0);
            let bytes = std::fs::read(&pack).unwrap();
            std::fs::remove_file(&pack).unwrap();
            let (mut of_journal, mut of_pack) = (0, 0);
            for step in 0..5 {
                if order >> step & 1 == 1 {
                    of_pack += 1;
                    std::fs::write(&pack, &bytes[..bytes.len() * of_pack / 2]).unwrap();
                } else {
                    of_journal += 1;
                    match of_journal {
                        1 | 2 => drop(place.copy("g", 7, 0, of_journal == 2)),
                        _ => journal::list(&place.folder.journals()).unwrap().iter().for_each(|path| {
                            std::fs::remove_file(path).unwrap();
                        }),
                    }
                }
                let collected = place.collect(Some(&[(0, Fate::Over)]), 3600);
                assert_eq!(collected.faults, [], "order {order:05b}, step {step}");
            }
            assert_eq!(place.collect(Some(&[(0, Fate::Over)]), 0).faults, [], "order {order:05b}");
            assert_eq!(place.outcomes(), ["finished"], "order {order:05b}");
            let left = place.folder.packs().unwrap().len() + journal::list(&place.folder.journals()).unwrap().len();
            assert_eq!(left, 0, "order {order:05b}");
        }
    }

    #[test]
    fn reasons_name_the_node_if_slurm_reports_one() {
        let jobs = [Submitted { job: "7".to_owned(), array: 0, tasks: vec![1], unix_ms: 1 }];
        let said = |node: &str| {
            let (state, node) = ("CANCELLED".to_owned(), node.to_owned());
            let seen = Seen { fate: Fate::Over, state, node, reason: String::new() };
            let tasks = Answer::new(["7".to_owned()], [(("7".to_owned(), 1), seen)].into());
            let path = format!("{}r-00.journal", prefix("7", 1, 0));
            gone(Path::new(&path), &tasks, &jobs, &BTreeMap::new())
        };
        assert_eq!(said("n1").unwrap(), "its task was ended (Slurm says CANCELLED on n1)");
        assert_eq!(said("").unwrap(), "its task was ended (Slurm says CANCELLED)");
    }

    #[test]
    fn a_complete_journal_is_imported_as_the_whole_attempt() {
        let place = place();
        place.copy("c", 3, 0, true);
        assert_eq!(place.collect(Some(&[(0, Fate::Over)]), 3600).brought[0].outcome, "finished");
        place.copy("d", 4, 0, false);
        let brought = place.collect(Some(&[]), 0).brought;
        assert_eq!(brought.len(), 1, "a task that Slurm has forgotten does not live");
        place.copy("e", 5, 0, false);
        let unasked = collect(&place.store, &place.folder, Some(&Answer::default()), Duration::ZERO).unwrap();
        assert_eq!((unasked.brought.len(), unasked.waiting), (0, 1), "Slurm was asked before there was the job");
    }

    #[test]
    fn a_late_result_does_not_change_a_sealed_attempt() {
        let place = place();
        place.copy("f", 6, 0, false);
        assert_eq!(place.collect(Some(&[(0, Fate::Over)]), 0).brought[0].outcome, "interrupted");
        let sealed = sealed("f", 6, true);
        place.put("f", &sealed);
        let collected = place.collect(None, 0);
        assert_eq!((collected.brought.len(), collected.faults.len()), (0, 1));
        let (kept, fault) = &collected.faults[0];
        assert!(kept.exists() && fault.contains("when its task seemed to be gone"), "{fault}");
        assert_eq!(place.collect(None, 0), Collected::default(), "it is told once");
        assert_eq!(place.outcomes(), ["interrupted"]);
        let tally = place.folder.tallies().unwrap()[&Folder::key(Digest::of(b"f"))];
        assert_eq!((tally.finished, tally.interrupted), (0, 1));
    }

    #[test]
    fn an_unreadable_pack_is_reported_and_left() {
        let place = place();
        let sealed = sealed("e", 5, true);
        place.put("e", &sealed);
        let pack = place.folder.packs().unwrap().remove(0);
        std::fs::remove_file(&pack).unwrap();
        // A folder cannot be read as a file.
        std::fs::create_dir(&pack).unwrap();
        let torn = place.folder.journals().join(format!("{}0-0.journal", prefix("7", 0, 0)));
        std::fs::write(&torn, "led").unwrap();
        let collected = place.collect(Some(&[(0, Fate::Over)]), 0);
        assert_eq!((collected.brought.len(), collected.faults.len()), (0, 1));
        assert!(pack.exists() && !torn.exists());
    }

    #[test]
    fn an_intact_pack_that_this_ledger_cannot_import_is_left_unchanged() {
        let place = place();
        let sealed = sealed("i", 10, true);
        place.put("i", &sealed);
        let pack = place.folder.packs().unwrap().remove(0);
        let body = b"of another make";
        let bytes = [crate::wire::PACK_MAGIC.as_slice(), Digest::of(body).0.as_slice(), body].concat();
        std::fs::write(&pack, &bytes).unwrap();
        let said = read_result(&pack).unwrap_err().to_string();
        for patience_s in [3600, 0, 0] {
            let collected = place.collect(None, patience_s);
            assert_eq!((collected.waiting, collected.faults), (0, vec![(pack.clone(), said.clone())]));
        }
        assert_eq!(std::fs::read(&pack).unwrap(), bytes);
        let tally = place.folder.tallies().unwrap()[&Folder::key(Digest::of(b"i"))];
        assert_eq!((tally.finished, tally.damaged), (1, 0));
    }

    #[test]
    fn a_journal_stays_until_the_result_is_in_the_ledger() {
        let place = place();
        let sealed = sealed("h", 9, true);
        place.put("h", &sealed);
        let pack = place.folder.packs().unwrap().remove(0);
        let bytes = std::fs::read(&pack).unwrap();
        std::fs::write(&pack, &bytes[..bytes.len() / 2]).unwrap();
        let journal = place.copy("h", 9, 0, true);
        let young = place.collect(Some(&[(0, Fate::Over)]), 3600);
        assert!(young.brought.is_empty() && journal.exists());
        assert_eq!(young.waiting_for, [Folder::key(Digest::of(b"h"))].into());
        let collected = place.collect(Some(&[(0, Fate::Over)]), 0);
        assert_eq!((collected.brought.len(), collected.faults.len()), (1, 1));
        assert_eq!(place.outcomes(), ["finished"]);
        assert!(!journal.exists());
    }

    #[test]
    fn a_damaged_pack_does_not_count_as_a_result() {
        let place = place();
        let sealed = sealed("g", 8, true);
        place.put("g", &sealed);
        let pack = place.folder.packs().unwrap().remove(0);
        let mut bytes = std::fs::read(&pack).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&pack, &bytes).unwrap();
        let young = place.collect(None, 3600);
        assert_eq!((young.waiting, young.faults.len()), (1, 0), "its last bytes may be seen later");
        let collected = place.collect(None, 0);
        let (kept, fault) = &collected.faults[0];
        assert!(kept.to_string_lossy().ends_with(".finished.damaged") && kept.exists(), "{}", kept.display());
        let expected =
            "its content does not match its digest (it counts as lost: `ledger submit --resume s` executes it again)";
        assert_eq!(fault, expected);
        let tally = place.folder.tallies().unwrap()[&Folder::key(Digest::of(b"g"))];
        assert_eq!((tally.finished, tally.damaged, tally.settled()), (0, 1, 0));
        assert_eq!(place.collect(None, 0), Collected::default(), "it is told once");
        place.copy("g", 8, 0, true);
        assert_eq!(place.collect(Some(&[(0, Fate::Over)]), 0).brought.len(), 1, "its journal is as good");
        std::fs::write(&pack, b"ledger\0\x63").unwrap();
        let journal = place.copy("g", 8, 0, true);
        let newer = place.collect(Some(&[(0, Fate::Over)]), 0);
        assert!(journal.exists() && newer.brought.is_empty());
        assert!(newer.faults[0].1.contains("use a newer ledger") && pack.exists(), "{:?}", newer.faults);
    }
}
