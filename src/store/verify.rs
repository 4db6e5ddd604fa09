//! Recomputes everything that the ledger claims: ids, digests, indexes and the chain.

mod answers;

use super::query::Reader;
use super::seal::{outcome_code, target_key};
use super::tables::{ATTEMPTS, BY_RUN, CHUNKS, GROUPS, Id, LOG, NONCES, NOTES, RECENT, RUNS, TAGS};
use super::{StoreError, index, leads_outside};
use crate::record::{AttemptId, Change, Digest, GroupId, Phase, Run, RunId, SourceText, count};
use crate::wire::{
    decode_attempt, decode_log_entry, decode_phases, decode_run, decode_series, decode_source, encode_row,
};
use answers::Measured;
use redb::{ReadableTable, ReadableTableMetadata};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Something in the ledger that is not what it says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Whose bytes are wrong: `attempt 1f2e…`, `series loss of attempt 1f2e…`, `log entry 7`.
    pub owner: String,
    /// What is wrong with them.
    pub fault: String,
}

/// What was checked, and what was found.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Verification {
    /// Runs whose id was recomputed.
    pub runs: u64,
    /// Attempts whose id was recomputed.
    pub attempts: u64,
    /// Chunks whose digest was recomputed.
    pub chunks: u64,
    /// Texts that runs were made from whose digest was recomputed.
    pub sources: u64,
    /// Log entries that were chained.
    pub log_entries: u64,
    /// Index entries that were compared with what they are derived from.
    pub index_entries: u64,
    /// Every fault, the first one first.
    pub faults: Vec<Fault>,
    /// Whether the checksum of every page was recomputed too.
    pub pages: bool,
    /// What could not be checked, though nothing is wrong with it.
    pub notes: Vec<String>,
}

impl Verification {
    pub(super) fn fault(&mut self, owner: impl Into<String>, fault: impl Into<String>) {
        self.faults.push(Fault { owner: owner.into(), fault: fault.into() });
    }
}

/// What the indexes have to hold, derived from the records.
#[derive(Default)]
struct Expected {
    by_run: BTreeMap<(Id, Id), u8>,
    nonces: BTreeMap<[u8; 16], Id>,
    recent: BTreeMap<(i64, Id), Vec<u8>>,
    chunks: BTreeSet<(Id, String)>,
    groups: BTreeMap<Id, BTreeSet<Id>>,
    measured: Vec<Measured>,
    /// What attempts say that they were made from: what it is, its digest, and what it may be kept by.
    named: BTreeSet<(&'static str, Digest, Vec<Digest>)>,
}

pub(super) fn verify(reader: &Reader<'_>, progress: &mut dyn FnMut(u64, u64)) -> Result<Verification, StoreError> {
    let mut found = Verification::default();
    // What is derived from records that cannot be read would be missed in every index.
    let Some(runs) = of_table("runs", &mut found, |found| check_runs(reader, found))? else { return Ok(found) };
    let attempts = |found: &mut Verification| check_attempts(reader, &runs, found, progress);
    let Some(expected) = of_table("attempts` or `chunks", &mut found, attempts)? else { return Ok(found) };
    if let Some(kept) = of_table("sources", &mut found, |found| check_sources(reader, found))? {
        note_missing(&expected, &kept, &mut found);
    }
    let Some(log) = of_table("log", &mut found, |found| check_log(reader, found))? else { return Ok(found) };
    check_indexes(reader, &expected, &log, &mut found)?;
    Ok(found)
}

/// Looks at a table. What a damaged page makes the database refuse, or panic with, is a fault of the table in which it lies.
fn of_table<T>(
    table: &str,
    found: &mut Verification,
    look: impl FnOnce(&mut Verification) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let fault = match catch_unwind(AssertUnwindSafe(|| look(found))) {
        Ok(Ok(value)) => return Ok(Some(value)),
        Ok(Err(StoreError::Database(error))) if leads_outside(&error) => {
            "a page is said to lie behind the file's end".to_owned()
        }
        Ok(Err(StoreError::Database(error))) if !matches!(error, redb::Error::Io(_)) => error.to_string(),
        Ok(Err(error)) => return Err(error),
        Err(_) => "its pages make no sense".to_owned(),
    };
    found.fault(format!("table `{table}`"), fault);
    Ok(None)
}

/// Compares a table with what it has to be.
fn check_table<K: Ord, V: PartialEq>(
    name: &str,
    expected: &BTreeMap<K, V>,
    found: &mut Verification,
    read: impl FnOnce() -> Result<BTreeMap<K, V>, StoreError>,
) -> Result<(), StoreError> {
    if let Some(actual) = of_table(name, found, |_| read())? {
        compare(name, &actual, expected, found);
    }
    Ok(())
}

fn check_runs(reader: &Reader<'_>, found: &mut Verification) -> Result<BTreeMap<Id, Run>, StoreError> {
    let table = reader.txn().open_table(RUNS)?;
    let mut runs = BTreeMap::new();
    for item in table.iter()? {
        let (key, bytes) = item?;
        let id = RunId(Digest(key.value()));
        found.runs += 1;
        match decode_run(bytes.value()) {
            Ok(run) if run.id == id => {
                runs.insert(id.0.0, run);
            }
            Ok(run) => found.fault(format!("run {id}"), format!("its parts hash to {}", run.id)),
            Err(error) => found.fault(format!("run {id}"), error.to_string()),
        }
    }
    Ok(runs)
}

fn check_attempts(
    reader: &Reader<'_>,
    runs: &BTreeMap<Id, Run>,
    found: &mut Verification,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Expected, StoreError> {
    let table = reader.txn().open_table(ATTEMPTS)?;
    let chunks = reader.txn().open_table(CHUNKS)?;
    let total = table.len()?;
    let mut expected = Expected::default();
    for item in table.iter()? {
        let (key, bytes) = item?;
        let key = key.value();
        let owner = format!("attempt {}", Digest(key));
        progress(found.attempts, total);
        found.attempts += 1;
        let attempt = match decode_attempt(bytes.value()) {
            Ok(attempt) => attempt,
            Err(error) => {
                found.fault(owner, error.to_string());
                continue;
            }
        };
        if attempt.id().0.0 != key {
            found.fault(&owner, format!("its content hashes to {}", attempt.id()));
        }
        for (kind, digest) in SourceText::belonging_to(&attempt.settings, &attempt.facts) {
            expected.named.insert((kind, digest, SourceText::keys(digest, &attempt.facts).collect()));
        }
        for summary in &attempt.series {
            let owner = format!("series `{}` of {owner}", summary.name);
            expected.chunks.insert((key, summary.name.clone()));
            let Some(chunk) = chunks.get((key, summary.name.as_str()))? else {
                found.fault(owner, "it is missing");
                continue;
            };
            found.chunks += 1;
            match decode_series(chunk.value()) {
                Ok(series) if series.summary() == *summary => {}
                Ok(_) => found.fault(owner, "its points do not match its digest"),
                Err(error) => found.fault(owner, error.to_string()),
            }
        }
        expected.chunks.insert((key, String::new()));
        let phases = chunks.get((key, ""))?.map(|chunk| decode_phases(chunk.value()));
        found.chunks += 1;
        match phases {
            Some(Ok(phases)) if Phase::digest_all(&phases) == attempt.phases => {}
            Some(Ok(_)) => found.fault(format!("phases of {owner}"), "they do not match their digest"),
            Some(Err(error)) => found.fault(format!("phases of {owner}"), error.to_string()),
            None => found.fault(format!("phases of {owner}"), "they are missing"),
        }
        let Some(run) = runs.get(&attempt.run.0.0) else {
            found.fault(owner, format!("its run {} is missing or damaged", attempt.run));
            continue;
        };
        expected.by_run.insert((run.id.0.0, key), outcome_code(&attempt.outcome));
        // Ids ascend: of several that are one execution, the smallest stands for it.
        expected.nonces.entry(attempt.nonce.0).or_insert(key);
        let row = index::row(AttemptId(Digest(key)), run, &attempt);
        expected.recent.insert((attempt.started_unix_ms, key), encode_row(&row)?);
        expected.groups.entry(run.parts.group_id().0.0).or_default().insert(run.id.0.0);
        expected.measured.push(Measured::of(key, run, &attempt)?);
    }
    for item in chunks.iter()? {
        let (key, _) = item?;
        let (attempt, name) = key.value();
        if !expected.chunks.contains(&(attempt, name.to_owned())) {
            found.fault(format!("chunk `{name}` of attempt {}", Digest(attempt)), "no attempt lists it");
        }
    }
    Ok(expected)
}

/// Gives what there is, sound or not.
fn check_sources(reader: &Reader<'_>, found: &mut Verification) -> Result<BTreeSet<Digest>, StoreError> {
    let mut kept = BTreeSet::new();
    let Some(table) = reader.sources()? else { return Ok(kept) };
    for item in table.iter()? {
        let (key, bytes) = item?;
        let key = Digest(key.value());
        kept.insert(key);
        found.sources += 1;
        match decode_source(bytes.value()) {
            Ok(source) if source.key() == key => {}
            Ok(source) => found.fault(format!("source {key}"), format!("its content hashes to {}", source.key())),
            Err(error) => found.fault(format!("source {key}"), error.to_string()),
        }
    }
    Ok(kept)
}

/// What attempts name and nobody kept is no fault: some of it was too large, some never came here.
fn note_missing(expected: &Expected, kept: &BTreeSet<Digest>, found: &mut Verification) {
    let is_missing = |keys: &[Digest]| !keys.iter().any(|key| kept.contains(key));
    let missing: BTreeSet<(&str, Digest)> =
        expected.named.iter().filter(|(.., keys)| is_missing(keys)).map(|(kind, digest, _)| (*kind, *digest)).collect();
    let Some((kind, digest)) = missing.last() else { return };
    found.notes.push(format!(
        "not kept of what attempts name: {} of their manifests, patches and outputs, such as {kind} {} (more than 4 MiB are not kept, and some attempts came without)",
        missing.len(),
        digest.prefix(8)
    ));
}

/// What the log says of the names, notes and hidden things that there are.
#[derive(Default)]
struct LogState {
    sealed: BTreeSet<Id>,
    tags: BTreeMap<String, (u8, Id)>,
    notes: BTreeMap<(Id, u64), String>,
    hidden: BTreeSet<Id>,
}

fn check_log(reader: &Reader<'_>, found: &mut Verification) -> Result<LogState, StoreError> {
    let table = reader.txn().open_table(LOG)?;
    let mut head = Digest([0; 32]);
    let mut state = LogState::default();
    for (expected, item) in (0u64..).zip(table.iter()?) {
        let (position, bytes) = item?;
        let position = position.value();
        if position != expected {
            found.fault(format!("log entry {expected}"), "it is missing");
            return Ok(state);
        }
        found.log_entries += 1;
        let entry = match decode_log_entry(bytes.value()) {
            Ok(entry) => entry,
            Err(error) => {
                found.fault(format!("log entry {position}"), error.to_string());
                return Ok(state);
            }
        };
        head = entry.chain(head);
        match entry.change {
            Change::Sealed(id) | Change::Imported(id) => {
                state.sealed.insert(id.0.0);
            }
            Change::Tagged { name, target } => {
                state.tags.insert(name, target_key(target));
            }
            Change::Untagged { name } => {
                state.tags.remove(&name);
            }
            Change::Noted { target, text } => {
                state.notes.insert((target.digest().0, position), text);
            }
            Change::Hidden(target) => {
                state.hidden.insert(target.digest().0);
            }
            Change::Unhidden(target) => {
                state.hidden.remove(&target.digest().0);
            }
            Change::Verdict { .. } => {}
        }
    }
    let stored = reader.log_head()?;
    if stored != head {
        found.fault("log", format!("its entries chain to {head}, but its head is {stored}"));
    }
    Ok(state)
}

fn check_indexes(
    reader: &Reader<'_>,
    expected: &Expected,
    log: &LogState,
    found: &mut Verification,
) -> Result<(), StoreError> {
    let txn = reader.txn();
    let attempts: BTreeSet<Id> = expected.by_run.keys().map(|(_, attempt)| *attempt).collect();
    for id in attempts.difference(&log.sealed) {
        found.fault(format!("attempt {}", Digest(*id)), "the log does not know it");
    }
    of_table("attempts", found, |found| {
        for id in log.sealed.difference(&attempts) {
            if reader.attempt(AttemptId(Digest(*id))).ok().flatten().is_none() {
                found.fault(format!("attempt {}", Digest(*id)), "the log knows it, but it is missing");
            }
        }
        Ok(())
    })?;
    check_table("by_run", &expected.by_run, found, || {
        let table = txn.open_table(BY_RUN)?;
        let mut by_run = BTreeMap::new();
        for item in table.iter()? {
            let (key, code) = item?;
            by_run.insert(key.value(), code.value());
        }
        Ok(by_run)
    })?;
    check_table("nonces", &expected.nonces, found, || {
        let table = txn.open_table(NONCES)?;
        let mut nonces = BTreeMap::new();
        for item in table.iter()? {
            let (key, id) = item?;
            nonces.insert(key.value(), id.value());
        }
        Ok(nonces)
    })?;
    check_table("recent", &expected.recent, found, || {
        let table = txn.open_table(RECENT)?;
        let mut recent = BTreeMap::new();
        for item in table.iter()? {
            let (key, row) = item?;
            recent.insert(key.value(), row.value().to_vec());
        }
        Ok(recent)
    })?;
    check_table("tags", &log.tags, found, || {
        let table = txn.open_table(TAGS)?;
        let mut tags = BTreeMap::new();
        for item in table.iter()? {
            let (name, target) = item?;
            tags.insert(name.value().to_owned(), target.value());
        }
        Ok(tags)
    })?;
    check_table("notes", &log.notes, found, || {
        let table = txn.open_table(NOTES)?;
        let mut notes = BTreeMap::new();
        for item in table.iter()? {
            let (key, text) = item?;
            notes.insert(key.value(), text.value().to_owned());
        }
        Ok(notes)
    })?;
    let hidden = of_table("hidden", found, |_| reader.hidden())?;
    if let Some(hidden) = hidden {
        if !hidden.iter().map(|id| id.0).eq(log.hidden.iter().copied()) {
            found.fault("index `hidden`", "it differs from what the log says");
        }
        found.index_entries += hidden.len() as u64;
    }
    of_table("groups", found, |found| {
        for item in txn.open_table(GROUPS)?.iter()? {
            let (group, run) = item?;
            found.index_entries += 1;
            if !expected.groups.get(&group.value()).is_some_and(|runs| runs.contains(&run.value())) {
                found.fault(format!("group {}", GroupId(Digest(group.value()))), "its run does not belong to it");
            }
        }
        Ok(())
    })?;
    answers::check(reader, &expected.measured, &log.hidden, found)
}

fn compare<K: Ord, V: PartialEq>(
    name: &str,
    actual: &BTreeMap<K, V>,
    expected: &BTreeMap<K, V>,
    found: &mut Verification,
) {
    found.index_entries += actual.len() as u64;
    let missing = expected.keys().filter(|key| !actual.contains_key(key)).count();
    let extra = actual.keys().filter(|key| !expected.contains_key(key)).count();
    let wrong = actual.iter().filter(|(key, value)| expected.get(key).is_some_and(|other| other != *value)).count();
    if missing + extra + wrong > 0 {
        found.fault(
            format!("index `{name}`"),
            format!("{} missing, {extra} too many, {wrong} wrong", count(missing, "entry")),
        );
    }
}
