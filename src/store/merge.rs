//! Merges another ledger into this one.
//!
//! Ids are hashes of the content, so two ledgers cannot disagree on an attempt or a run: a merge is a union of both. Of
//! tags and hidings, which can change, the newest entry wins, by the hosts' clocks and then by the entry's digest.
//! Notes and verdicts are a union. So the order of merges does not matter, and merging again changes nothing.
//!
//! A merge works in batches, several per transaction. After an interruption the next merge continues where it stopped.

use super::brief::{Kept, Shared};
use super::bulk::{Checked, Encoded, in_parallel};
use super::overruled::{Before, Overruled};
use super::seal::Writer;
use super::tables::{ATTEMPTS, CHUNKS, Id, LOG, RUNS, SOURCES};
use super::verify::Fault;
use super::{Reader, Store, StoreError};
use crate::record::{Attempt, Change, Digest, LogEntry, Phase, Target, tag_fault};
use crate::wire::{
    decode_attempt, decode_log_entry, decode_phases, decode_run, decode_series, decode_source, phases_memory,
    series_memory,
};
use redb::ReadableTable;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The largest batch, in attempts. Three batches are in memory: one is read and checked, one waits, and one is written.
const BATCH: usize = 5_000;
/// A batch ends once it has more bytes than this.
const BATCH_BYTES: usize = 12 << 20;
/// A batch of sources ends once it has more bytes than this. Tests use small batches.
const SOURCE_BYTES: usize = if cfg!(test) { 64 } else { 32 << 20 };

/// The result of a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Attempts that were new.
    pub new: u64,
    /// Attempts that this ledger had already.
    pub known: u64,
    /// Tags, notes, hidings and verdicts that were new.
    pub entries: u64,
    /// The tags and hidings of this ledger that a newer entry of the other one has changed.
    pub overruled: Vec<Overruled>,
    /// The damaged parts of the other ledger, which were not imported.
    pub faults: Vec<Fault>,
}

impl Store {
    /// Imports everything that another ledger has and this one lacks, after recomputing its ids and digests. Calls
    /// `progress` with the number of attempts that are done and their total.
    ///
    /// # Errors If either ledger cannot be read, the other one's log does not match its head, or this one cannot be
    /// written. What was imported before stays.
    pub fn merge(&self, other: &Self, unix_ms: i64, progress: &mut dyn FnMut(u64, u64)) -> Result<Merged, StoreError> {
        let Log { attempts: mut wanted, mut changes } = other.read(|reader| other.chained(reader))?;
        let mut merged = Merged::default();
        let theirs = wanted.len();
        let held = self.if_there(|reader| held(reader, &mut wanted, &changes))?.unwrap_or_default();
        merged.known = u64::try_from(theirs - wanted.len()).unwrap_or(u64::MAX);
        // Sources come before the attempts that name them, so that an interrupted merge leaves no attempt without its
        // texts.
        self.take_sources(other, &mut merged.faults)?;
        let total = u64::try_from(wanted.len()).unwrap_or(u64::MAX);
        let mut done = 0;
        progress(done, total);
        let (sender, receiver) = sync_channel(1);
        std::thread::scope(|scope| -> Result<(), StoreError> {
            let reader = scope.spawn(|| other.read_batches(wanted, sender));
            let mut importer = self.importer(unix_ms);
            while let Some(batch) = importer.next_of(&receiver)? {
                merged.faults.extend(batch.faults);
                let checked = u64::try_from(batch.checked.len()).unwrap_or(u64::MAX);
                let new = importer.add_checked(batch.checked)?;
                merged.new += new;
                // Another process has imported them meanwhile.
                merged.known += checked.saturating_sub(new);
                done += checked;
                progress(done, total);
            }
            importer.finish()?;
            reader.join().unwrap_or_else(|_| {
                Err(StoreError::Damaged { path: other.file(), fault: "its pages are inconsistent".to_owned() })
            })
        })?;
        changes.retain(|entry| {
            let Change::Tagged { name, .. } = &entry.change else { return true };
            let Some(fault) = tag_fault(name) else { return true };
            let owner = format!("tag `{}`", name.escape_debug());
            merged.faults.push(Fault { owner, fault: format!("it {fault}") });
            false
        });
        let ours = self.if_there(|reader| reader.changes())?;
        if ours.is_none_or(|ours| !missing(&ours, &changes).is_empty()) {
            (merged.entries, merged.overruled) = self.write(|writer| writer.take_in(&changes, &held))?;
        }
        Ok(merged)
    }

    /// Imports the sources, the texts that runs were made from: one batch per transaction.
    fn take_sources(&self, other: &Self, faults: &mut Vec<Fault>) -> Result<(), StoreError> {
        let held: HashSet<Id> = self.if_there(held_sources)?.unwrap_or_default();
        let mut after: Option<Id> = None;
        loop {
            let batch = other.read(|reader| source_batch(reader, after, &held))?;
            faults.extend(batch.faults);
            if !batch.new.is_empty() {
                self.write(|writer| batch.new.iter().try_for_each(|(id, bytes)| writer.keep_encoded(*id, bytes)))?;
            }
            match batch.last {
                Some(last) => after = Some(last),
                None => return Ok(()),
            }
        }
    }

    /// Reads the log. Fails if it does not chain to the stored head.
    fn chained(&self, reader: &Reader<'_>) -> Result<Log, StoreError> {
        let mut log = Log { attempts: Vec::new(), changes: Vec::new() };
        let mut head = Digest([0; 32]);
        for item in reader.txn().open_table(LOG)?.iter()? {
            let entry = decode_log_entry(item?.1.value())?;
            head = entry.chain(head);
            match entry.change {
                Change::Sealed(id) | Change::Imported(id) => log.attempts.push(id.0.0),
                _ => log.changes.push(entry),
            }
        }
        log.attempts.sort_unstable();
        log.attempts.dedup();
        if head == reader.log_head()? {
            Ok(log)
        } else {
            let fault = "its log does not chain to its head".to_owned();
            Err(StoreError::Damaged { path: self.file(), fault })
        }
    }

    /// Reads and checks attempts batch by batch. The file is closed between two batches.
    fn read_batches(&self, wanted: Vec<Id>, sender: SyncSender<Batch>) -> Result<(), StoreError> {
        let mut left = wanted.as_slice();
        while !left.is_empty() {
            let (batch, used) = self.read(|reader| read_batch(reader, left))?;
            left = left.get(used..).unwrap_or_default();
            // The receiver is gone if the ledger could not be written.
            if sender.send(check(batch)).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The log of another ledger, with attempts and other changes apart.
struct Log {
    /// The attempts, sorted by id.
    attempts: Vec<Id>,
    /// The other entries, oldest first.
    changes: Vec<LogEntry>,
}

/// A batch of another ledger's sources.
struct SourceBatch {
    /// The missing ones that match their digest.
    new: Vec<(Id, Vec<u8>)>,
    faults: Vec<Fault>,
    /// The last one that was read; `None` if there are no more.
    last: Option<Id>,
}

/// Reads the sources after an id, until a batch is full.
fn source_batch(reader: &Reader<'_>, after: Option<Id>, held: &HashSet<Id>) -> Result<SourceBatch, StoreError> {
    let mut batch = SourceBatch { new: Vec::new(), faults: Vec::new(), last: None };
    let Some(table) = reader.table(SOURCES)? else { return Ok(batch) };
    let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut bytes = 0;
    for item in table.range::<Id>((begin, Bound::Unbounded))? {
        let (key, content) = item?;
        let (id, content) = (key.value(), content.value());
        match decode_source(content) {
            Ok(source) if source.key().0 == id => {
                if !held.contains(&id) {
                    batch.new.push((id, content.to_vec()));
                }
            }
            _ => batch.faults.push(Fault {
                owner: format!("source {}", Digest(id)),
                fault: "it does not match its digest".to_owned(),
            }),
        }
        bytes += content.len();
        if bytes > SOURCE_BYTES {
            batch.last = Some(id);
            break;
        }
    }
    Ok(batch)
}

fn held_sources(reader: &Reader<'_>) -> Result<HashSet<Id>, StoreError> {
    let Some(table) = reader.table(SOURCES)? else { return Ok(HashSet::new()) };
    table.iter()?.map(|item| Ok(item?.0.value())).collect()
}

/// Removes known attempts from `wanted`. Returns the known runs and attempts that the changes hide or show.
fn held(reader: &Reader<'_>, wanted: &mut Vec<Id>, changes: &[LogEntry]) -> Result<HashSet<Digest>, StoreError> {
    let table = reader.txn().open_table(ATTEMPTS)?;
    let is_held = |id: Id| Ok::<_, StoreError>(table.get(id)?.is_some());
    let mut missing = Vec::with_capacity(wanted.len());
    for id in wanted.iter() {
        if !is_held(*id)? {
            missing.push(*id);
        }
    }
    *wanted = missing;
    let mut targets = HashSet::new();
    for entry in changes {
        let (Change::Hidden(target) | Change::Unhidden(target)) = &entry.change else { continue };
        let is_known = match target {
            Target::Attempt(id) => is_held(id.0.0)?,
            Target::Run(run) => !reader.attempts_of(*run)?.is_empty(),
        };
        if is_known {
            targets.insert(target.digest());
        }
    }
    Ok(targets)
}

struct Batch {
    checked: Vec<Checked<'static>>,
    faults: Vec<Fault>,
}

/// An attempt as it is stored in the other ledger, before any check.
struct Raw {
    id: Id,
    attempt: Option<Vec<u8>>,
    decoded: Option<Attempt>,
    run: Option<Vec<u8>>,
    chunks: Vec<(String, Vec<u8>)>,
}

/// Reads the first attempts of `wanted`, and returns them and their number.
fn read_batch(reader: &Reader<'_>, wanted: &[Id]) -> Result<(Vec<Raw>, usize), StoreError> {
    let txn = reader.txn();
    let (attempts, runs, chunks) = (txn.open_table(ATTEMPTS)?, txn.open_table(RUNS)?, txn.open_table(CHUNKS)?);
    let mut bytes = 0;
    let mut batch = Vec::new();
    for id in wanted.iter().take(BATCH) {
        if bytes > BATCH_BYTES {
            break;
        }
        let attempt = attempts.get(id)?.map(|bytes| bytes.value().to_vec());
        let decoded = attempt.as_deref().and_then(|bytes| decode_attempt(bytes).ok());
        let run = match &decoded {
            Some(attempt) => runs.get(attempt.run.0.0)?.map(|bytes| bytes.value().to_vec()),
            None => None,
        };
        let mut of_attempt = Vec::new();
        for item in chunks.range((*id, "")..)? {
            let (key, chunk) = item?;
            let (owner, name) = key.value();
            if owner != *id {
                break;
            }
            bytes += chunk.value().len();
            of_attempt.push((name.to_owned(), chunk.value().to_vec()));
        }
        bytes += attempt.as_ref().map_or(0, Vec::len) + run.as_ref().map_or(0, Vec::len);
        batch.push(Raw { id: *id, attempt, decoded, run, chunks: of_attempt });
    }
    let used = batch.len();
    Ok((batch, used))
}

/// Recomputes ids and digests.
fn check(batch: Vec<Raw>) -> Batch {
    let alone = Mutex::new(());
    let known = Shared::default();
    check_by(batch, &|raw| Ok(check_one(raw, &alone)?.sharing(&known)))
}

fn check_by(batch: Vec<Raw>, check_one: &(dyn Fn(Raw) -> Result<Checked<'static>, Fault> + Sync)) -> Batch {
    // A panic of a decoder becomes a fault of its attempt, so that none is left out silently.
    let check_one = |raw: Raw| {
        let owner = format!("attempt {}", Digest(raw.id));
        let fault = |_| Err(Fault { owner, fault: "its content is inconsistent".to_owned() });
        catch_unwind(AssertUnwindSafe(|| check_one(raw))).unwrap_or_else(fault)
    };
    let mut found = Batch { checked: Vec::new(), faults: Vec::new() };
    let results = in_parallel(batch, &check_one);
    for result in results {
        match result {
            Ok(checked) => found.checked.push(checked),
            Err(fault) => found.faults.push(fault),
        }
    }
    found
}

/// Recomputes the ids and digests of one attempt. Chunks that take much memory are decoded under the lock `alone`.
fn check_one(raw: Raw, alone: &Mutex<()>) -> Result<Checked<'static>, Fault> {
    let id = Digest(raw.id);
    let fault = |fault: String| Fault { owner: format!("attempt {id}"), fault };
    let attempt_bytes = raw.attempt.ok_or_else(|| fault("it is missing".to_owned()))?;
    let attempt = match raw.decoded {
        Some(attempt) => attempt,
        // Decoded again for the error.
        None => decode_attempt(&attempt_bytes).map_err(|error| fault(error.to_string()))?,
    };
    if attempt.id().0 != id {
        return Err(fault(format!("its content hashes to {}", attempt.id())));
    }
    let run_bytes = raw.run.ok_or_else(|| fault(format!("its run {} is missing", attempt.run)))?;
    let run = decode_run(&run_bytes).map_err(|error| fault(error.to_string()))?;
    if run.id != attempt.run {
        return Err(fault(format!("its run {} has parts that hash to {}", attempt.run, run.id)));
    }
    let mut chunks: BTreeMap<String, Vec<u8>> = raw.chunks.into_iter().collect();
    let mut kept = Vec::with_capacity(chunks.len());
    let phases = chunks.remove("").ok_or_else(|| fault("its phases are missing".to_owned()))?;
    {
        let _alone = hold(alone, phases_memory(&phases).map_err(|error| fault(error.to_string()))?);
        let decoded = decode_phases(&phases).map_err(|error| fault(error.to_string()))?;
        if Phase::digest_all(&decoded) != attempt.phases {
            return Err(fault("its phases do not match their digest".to_owned()));
        }
    }
    kept.push((String::new(), phases));
    for summary in &attempt.series {
        let name = &summary.name;
        let chunk = chunks.remove(name).ok_or_else(|| fault(format!("its series `{name}` is missing")))?;
        let _alone = hold(alone, series_memory(&chunk).map_err(|error| fault(error.to_string()))?);
        let series = decode_series(&chunk).map_err(|error| fault(error.to_string()))?;
        if series.summary() != *summary {
            return Err(fault(format!("its series `{name}` does not match its digest")));
        }
        kept.push((name.clone(), chunk));
    }
    let brief = Kept::of(&run, &attempt).map_err(|error| fault(error.to_string()))?;
    let encoded = Encoded { id: raw.id, attempt: attempt_bytes, run: run_bytes, chunks: kept, brief };
    Ok(Checked { attempt: Cow::Owned(attempt), run: Cow::Owned(run), encoded })
}

/// Chunks that need more memory than this are decoded one at a time.
const SMALL_BYTES: u64 = 64 << 20;

fn hold(alone: &Mutex<()>, memory: u64) -> Option<MutexGuard<'_, ()>> {
    (memory > SMALL_BYTES).then(|| alone.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A state that changes can replace. The newest change of each one wins.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    Tag(String),
    Hiding(Digest),
}

pub(super) fn standing(entry: &LogEntry) -> Option<Standing> {
    match &entry.change {
        Change::Tagged { name, .. } | Change::Untagged { name } => Some(Standing::Tag(name.clone())),
        Change::Hidden(target) | Change::Unhidden(target) => Some(Standing::Hiding(target.digest())),
        Change::Sealed(_) | Change::Imported(_) | Change::Noted { .. } | Change::Verdict { .. } => None,
    }
}

/// The changes that a log lacks, oldest first.
fn missing(ours: &[LogEntry], theirs: &[LogEntry]) -> Vec<(i64, Digest, LogEntry)> {
    if theirs.is_empty() {
        return Vec::new();
    }
    let mut known: HashSet<Digest> = ours.iter().map(LogEntry::digest).collect();
    let mut new: Vec<(i64, Digest, LogEntry)> = Vec::new();
    for entry in theirs {
        let digest = entry.digest();
        if known.insert(digest) {
            new.push((entry.unix_ms, digest, entry.clone()));
        }
    }
    new.sort_by_key(|(unix_ms, digest, _)| (*unix_ms, *digest));
    new
}

impl Writer<'_> {
    /// Writes the changes of another log that this one lacks. Of tags and hidings the newest entry wins.
    fn take_in(&mut self, theirs: &[LogEntry], held: &HashSet<Digest>) -> Result<(u64, Vec<Overruled>), StoreError> {
        let ours = self.changes()?;
        let new = missing(&ours, theirs);
        let before = Before::of(self, new.iter().map(|(.., entry)| entry), held)?;
        let touched: BTreeSet<Standing> = new.iter().filter_map(|(.., entry)| standing(entry)).collect();
        let mut newest: BTreeMap<Standing, (i64, Digest, LogEntry)> = BTreeMap::new();
        for entry in &ours {
            let Some(key) = standing(entry).filter(|key| touched.contains(key)) else { continue };
            let candidate = (entry.unix_ms, entry.digest(), entry.clone());
            match newest.get(&key) {
                Some(known) if (known.0, known.1) >= (candidate.0, candidate.1) => {}
                _ => drop(newest.insert(key, candidate)),
            }
        }
        let mut last: BTreeMap<Standing, (i64, Digest)> = BTreeMap::new();
        for (unix_ms, digest, entry) in &new {
            self.put(entry)?;
            if let Some(key) = standing(entry) {
                last.insert(key, (*unix_ms, *digest));
            }
        }
        for (key, (unix_ms, digest, entry)) in newest {
            // Repeats the winning entry, so that it is also the last one in the log.
            if last.get(&key).is_some_and(|last| *last < (unix_ms, digest)) {
                self.put(&entry)?;
            }
        }
        Ok((u64::try_from(new.len()).unwrap_or(u64::MAX), before.overruled(self)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_on_which_a_decoder_panics_is_reported() {
        let batch: Vec<Raw> = (0..9)
            .map(|number| Raw { id: [number; 32], attempt: None, decoded: None, run: None, chunks: Vec::new() })
            .collect();
        let found = check_by(batch, &|raw| {
            assert!(raw.id[0] != 4, "as a decoder that fails");
            check_one(raw, &Mutex::new(()))
        });
        let owners: Vec<String> = found.faults.iter().map(|fault| fault.owner.clone()).collect();
        let expected: Vec<String> = (0..9).map(|number| format!("attempt {}", Digest([number; 32]))).collect();
        assert_eq!((owners, found.checked.len()), (expected, 0));
        assert_eq!(found.faults[4].fault, "its content is inconsistent");
        assert_eq!(found.faults[5].fault, "it is missing");
    }
}
