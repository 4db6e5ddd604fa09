//! Recomputes ids, digests, indexes and the chain of the log, and compares them with the stored ones.
//!
//! All processors take part, each on one range of ids at a time. An attempt is dropped once it was compared, so that
//! memory does not grow with the ledger. A check can be interrupted between two pieces and continued in a later state
//! of the ledger. Attempts that the log has gained meanwhile are checked at the end.

mod answers;
mod compare;
mod log;
mod records;

use super::query::Reader;
use super::tables::{
    ATTEMPTS, BRIEFS, BY_MODEL, BY_RUN, CHUNKS, HIDDEN, Id, NONCES, NOTES, RECENT, RUNS, SOURCES, TAGS, UNMEASURED,
    VALUES,
};
use super::{StoreError, Verified};
use crate::record::{AttemptId, Digest, RunId, count};
use crate::wire::{decode_attempt, decode_run, decode_source};
use compare::{check_table, each_piece, guarded, of_table};
use log::{LogState, News};
use records::{Comparisons, Context, Part, Tables};
use redb::{ReadableTable, ReadableTableMetadata};
use std::collections::{BTreeMap, BTreeSet};

/// A damaged or inconsistent part of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The part: `attempt 1f2e…`, `series loss of attempt 1f2e…`, `log entry 7`.
    pub owner: String,
    /// The damage.
    pub fault: String,
}

/// The extent and the result of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Verification {
    /// Runs whose id was recomputed.
    pub runs: u64,
    /// Attempts whose id was recomputed.
    pub attempts: u64,
    /// Chunks whose digest was recomputed.
    pub chunks: u64,
    /// Sources, the texts that runs were made from, whose digest was recomputed.
    pub sources: u64,
    /// Log entries that were chained.
    pub log_entries: u64,
    /// Index entries that were compared with the records or the log.
    pub index_entries: u64,
    /// Every fault, in the order of discovery.
    pub faults: Vec<Fault>,
    /// Whether the checksum of every page was recomputed too.
    pub pages: bool,
    /// Parts that could not be checked but are not faulty.
    pub notes: Vec<String>,
    /// The part of the log up to which the ledger is verified, if there are no faults.
    pub verified: Option<Verified>,
}

impl Verification {
    pub(super) fn fault(&mut self, owner: impl Into<String>, fault: impl Into<String>) {
        self.faults.push(Fault { owner: owner.into(), fault: fault.into() });
    }
}

/// Ids are checked in pieces that share this many first bits.
const PIECE_BITS: u32 = if cfg!(test) { 6 } else { 12 };
const PIECES: usize = 1 << PIECE_BITS;
/// Attempts per piece, of those that are checked by id.
const NAMED: usize = 64;
/// A check that has restarted its attempts this often is not interrupted again.
const MOST_RESTARTS: u32 = 3;

/// The first and the last id of a piece.
fn bounds(piece: usize) -> (Id, Id) {
    const OTHERS: u32 = u16::BITS - PIECE_BITS;
    let first = u16::try_from(piece << OTHERS).unwrap_or(u16::MAX);
    let (mut from, mut to) = ([0; 32], [0xff; 32]);
    from[..2].copy_from_slice(&first.to_be_bytes());
    to[..2].copy_from_slice(&(first | ((1 << OTHERS) - 1)).to_be_bytes());
    (from, to)
}

fn piece_of(id: &Id) -> usize {
    usize::from(u16::from_be_bytes([id[0], id[1]]) >> (u16::BITS - PIECE_BITS))
}

/// A check in progress.
pub(super) struct Check {
    /// Whether the earlier part of the log, and its attempts, were verified before.
    is_partial: bool,
    log: LogState,
    log_unreadable: Option<String>,
    run_faults: Vec<Fault>,
    runs_unreadable: Option<String>,
    runs_done: usize,
    /// The length of the log when each piece of the attempts was checked.
    seen: Vec<u64>,
    to: Comparisons,
    part: Part,
    /// Attempts that came after their piece was checked; in a partial check all attempts.
    named: Vec<Id>,
    named_done: usize,
    restarts: u32,
    /// Whether the indexes were current in the last slice.
    was_current: Option<bool>,
}

impl Check {
    /// A check of everything, or of what came after a verified part of the log.
    pub(super) fn new(since: Option<&Verified>) -> Self {
        let begin = Verified { entries: 0, head: Digest([0; 32]) };
        Self {
            is_partial: since.is_some(),
            log: LogState::after(since.unwrap_or(&begin)),
            log_unreadable: None,
            run_faults: Vec::new(),
            runs_unreadable: None,
            runs_done: 0,
            seen: Vec::new(),
            to: Comparisons::default(),
            part: Part::default(),
            named: Vec::new(),
            named_done: 0,
            restarts: 0,
            was_current: None,
        }
    }

    /// Continues in this state of the ledger. `None` if `is_wanted` made it stop early.
    pub(super) fn go_on(
        &mut self,
        reader: &Reader<'_>,
        is_wanted: &(dyn Fn() -> bool + Sync),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<Verification>, StoreError> {
        let stays = || false;
        let is_wanted: &(dyn Fn() -> bool + Sync) = if self.restarts < MOST_RESTARTS { is_wanted } else { &stays };
        self.read_log(reader)?;
        // A writer has rebuilt the indexes since the last slice, so earlier comparisons are void.
        if self.was_current.replace(reader.is_current()).is_some_and(|was| was != reader.is_current()) {
            self.compare_again();
        }
        if !self.is_partial && self.runs_unreadable.is_none() {
            self.check_runs(reader, is_wanted)?;
            if self.runs_done < PIECES && self.runs_unreadable.is_none() {
                return Ok(None);
            }
        }
        // With unreadable runs, every index would seem to have wrong entries.
        if self.runs_unreadable.is_none() && !self.check_attempts(reader, is_wanted, progress)? {
            return Ok(None);
        }
        self.finish(reader).map(Some)
    }

    fn read_log(&mut self, reader: &Reader<'_>) -> Result<(), StoreError> {
        let has_begun = !self.seen.is_empty() || self.named_done > 0;
        match guarded(|| self.log.read_on(reader))? {
            Err(fault) => self.log_unreadable = Some(fault),
            Ok(News { attempts, changes_hidden }) => {
                // Hiding changes the entries of the indexes.
                if changes_hidden && has_begun {
                    self.compare_again();
                }
                let is_late = |position: u64, id: &Id| match self.seen.get(piece_of(id)) {
                    Some(seen) => position >= *seen,
                    None => self.is_partial,
                };
                let late = attempts.into_iter().filter(|(position, id)| is_late(*position, id)).map(|(_, id)| id);
                self.named.extend(late);
            }
        }
        Ok(())
    }

    /// Restarts the comparison of the indexes from the first attempt.
    fn compare_again(&mut self) {
        self.restarts += 1;
        (self.to, self.part) = (Comparisons::default(), Part::default());
        self.seen.clear();
        self.named_done = 0;
        if !self.is_partial {
            self.named.clear();
        }
    }

    fn check_runs(&mut self, reader: &Reader<'_>, is_wanted: &(dyn Fn() -> bool + Sync)) -> Result<(), StoreError> {
        let piece = |piece: usize| {
            guarded(|| {
                let table = reader.txn().open_table(RUNS)?;
                let (low, high) = bounds(piece);
                let mut faults = Vec::new();
                for item in table.range(low..=high)? {
                    let (key, bytes) = item?;
                    let id = RunId(Digest(key.value()));
                    let fault = match decode_run(bytes.value()) {
                        Ok(run) if run.id == id => continue,
                        Ok(run) => format!("its parts hash to {}", run.id),
                        Err(error) => error.to_string(),
                    };
                    faults.push(Fault { owner: format!("run {id}"), fault });
                }
                Ok(faults)
            })
        };
        let mut checked = BTreeMap::new();
        self.runs_done = each_piece(self.runs_done, PIECES, is_wanted, &piece, &mut |at, result| {
            checked.insert(at, result);
        });
        for result in checked.into_values() {
            match result? {
                Ok(faults) => self.run_faults.extend(faults),
                Err(fault) => self.runs_unreadable = Some(fault),
            }
        }
        Ok(())
    }

    /// Checks attempts, and returns whether all are done.
    fn check_attempts(
        &mut self,
        reader: &Reader<'_>,
        is_wanted: &(dyn Fn() -> bool + Sync),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<bool, StoreError> {
        let tables = match guarded(|| Tables::open(reader, &self.to))? {
            Ok(tables) => tables,
            Err(fault) => {
                self.part.unreadable = Some(fault);
                return Ok(true);
            }
        };
        // A partial check does not read the earlier log, so hidden runs and attempts are known only from the table.
        let hidden = if self.is_partial { guarded(|| reader.hidden())?.unwrap_or_default() } else { BTreeSet::new() };
        let log = &self.log;
        let is_partial = self.is_partial;
        let is_hidden = |id: &Id| if is_partial { hidden.contains(&Digest(*id)) } else { log.is_hidden(id) };
        let is_logged = |id: &Id| log.sealed.contains(id);
        let context = Context {
            tables: &tables,
            to: &self.to,
            is_logged: &is_logged,
            is_hidden: &is_hidden,
            with_groups: is_partial,
        };
        let piece = |piece: usize| -> Result<Part, StoreError> {
            let mut part = Part::default();
            let (low, high) = bounds(piece);
            let checked = guarded(|| {
                tables.attempts.range(low..=high)?.try_for_each(|item| {
                    let (key, bytes) = item?;
                    context.check(key.value(), bytes.value(), &mut part)
                })
            })?;
            part.unreadable = checked.err();
            Ok(part)
        };
        let total =
            if is_partial { self.named.len() as u64 } else { guarded(|| Ok(tables.attempts.len()?))?.unwrap_or(0) };
        let mut failed = None;
        let mut done = self.part.attempts;
        let mut checked = BTreeMap::new();
        let mut take = |at: usize, result: Result<Part, StoreError>| match result {
            Ok(part) => {
                done += part.attempts;
                progress(done.min(total), total);
                checked.insert(at, part);
            }
            Err(error) => failed = Some(error),
        };
        let mut is_done = true;
        if !is_partial {
            let next = each_piece(self.seen.len(), PIECES, is_wanted, &piece, &mut take);
            self.seen.resize(next, log.end);
            is_done = next == PIECES;
        }
        if is_done {
            let named = |piece: usize| -> Result<Part, StoreError> {
                let mut part = Part::default();
                let ids = self.named.iter().skip(piece * NAMED).take(NAMED);
                let checked = guarded(|| {
                    for id in ids {
                        // `check_known` reports missing attempts.
                        if let Some(bytes) = tables.attempts.get(id)? {
                            context.check(*id, bytes.value(), &mut part)?;
                        }
                    }
                    Ok(())
                })?;
                part.unreadable = checked.err();
                Ok(part)
            };
            // A short last piece rounds up: it is done, and no attempts are added after it.
            let pieces = self.named.len().div_ceil(NAMED);
            let begin = self.named_done.div_ceil(NAMED);
            let next = each_piece(begin, pieces, is_wanted, &named, &mut |at, result| take(PIECES + at, result));
            is_done = next == pieces;
            self.named_done = (next * NAMED).min(self.named.len());
        }
        failed.map_or(Ok(()), Err)?;
        checked.into_values().for_each(|part| self.part.add(part));
        Ok(is_done)
    }

    /// Makes the comparisons that concern several attempts, in one state of the ledger.
    fn finish(&mut self, reader: &Reader<'_>) -> Result<Verification, StoreError> {
        let mut found = Verification { faults: std::mem::take(&mut self.run_faults), ..Verification::default() };
        let part = std::mem::take(&mut self.part);
        (found.attempts, found.chunks) = (part.attempts, part.chunks);
        if self.is_partial {
            found.runs = part.groups.iter().map(|(_, run)| run).collect::<BTreeSet<_>>().len() as u64;
        }
        if !self.is_partial
            && let Ok(runs) = guarded(|| Ok(reader.txn().open_table(RUNS)?.len()?))?
        {
            found.runs = runs;
        }
        if let Some(fault) = self.runs_unreadable.take() {
            found.fault("table `runs`", fault);
            return Ok(found);
        }
        found.faults.extend(part.faults.iter().cloned());
        if let Some(fault) = &part.unreadable {
            found.fault("table `attempts` or `chunks`", fault);
            return Ok(found);
        }
        if !self.is_partial {
            of_table("attempts` or `chunks", &mut found, |found| check_listed(reader, part.listed, found))?;
            if let Some(kept) = of_table("sources", &mut found, |found| check_sources(reader, found))? {
                note_missing(&part.named, &kept, &mut found);
            }
        }
        if let Some(fault) = self.log_unreadable.take() {
            found.fault("table `log`", fault);
            return Ok(found);
        }
        of_table("log", &mut found, |found| self.log.check_head(reader, found))?;
        self.check_known(reader, &part, &mut found)?;
        if self.is_partial {
            self.finish_partial(reader, &part, &mut found)?;
        } else {
            self.finish_all(reader, &part, &mut found)?;
        }
        if found.faults.is_empty() {
            found.verified = Some(Verified { entries: self.log.end, head: self.log.head });
        }
        Ok(found)
    }

    /// Compares the stored attempts with those in the log.
    fn check_known(&self, reader: &Reader<'_>, part: &Part, found: &mut Verification) -> Result<(), StoreError> {
        for id in part.unknown.iter().collect::<BTreeSet<_>>() {
            found.fault(format!("attempt {}", Digest(*id)), "the log does not know it");
        }
        if part.known == self.log.sealed.len() as u64 {
            return Ok(());
        }
        of_table("attempts", found, |found| {
            for id in &self.log.sealed {
                if reader.attempt(AttemptId(Digest(*id))).ok().flatten().is_none() {
                    found.fault(format!("attempt {}", Digest(*id)), "the log knows it, but it is missing");
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    fn finish_all(&self, reader: &Reader<'_>, part: &Part, found: &mut Verification) -> Result<(), StoreError> {
        let (txn, to) = (reader.txn(), &self.to);
        to.by_run.finish(Some(&|| Ok(txn.open_table(BY_RUN)?.len()?)), found)?;
        to.nonces.finish(Some(&|| Ok(txn.open_table(NONCES)?.len()?)), found)?;
        to.recent.finish(Some(&|| Ok(txn.open_table(RECENT)?.len()?)), found)?;
        let tags = self.log.tags.iter().filter_map(|(name, target)| Some((name.clone(), (*target)?))).collect();
        check_table("tags", &tags, found, || {
            let table = txn.open_table(TAGS)?;
            let entries = table.iter()?.map(|item| {
                let (name, target) = item?;
                Ok((name.value().to_owned(), target.value()))
            });
            entries.collect()
        })?;
        check_table("notes", &self.log.notes, found, || {
            let table = txn.open_table(NOTES)?;
            let entries = table.iter()?.map(|item| {
                let (key, text) = item?;
                Ok((key.value(), text.value().to_owned()))
            });
            entries.collect()
        })?;
        if let Some(hidden) = of_table("hidden", found, |_| reader.hidden())? {
            let expected = self.log.hidden.iter().filter(|(_, is_hidden)| **is_hidden).map(|(id, _)| *id);
            if !hidden.iter().map(|id| id.0).eq(expected) {
                found.fault("index `hidden`", "it differs from what the log says");
            }
            found.index_entries += hidden.len() as u64;
        }
        answers::check_groups(reader, found)?;
        if !reader.is_current() {
            found.notes.push(OLDER.to_owned());
            return Ok(());
        }
        to.measured.finish(Some(&|| Ok(txn.open_table(VALUES)?.len()?)), found)?;
        to.by_model.finish(Some(&|| Ok(txn.open_table(BY_MODEL)?.len()?)), found)?;
        to.unmeasured.finish(Some(&|| Ok(txn.open_table(UNMEASURED)?.len()?)), found)?;
        to.briefs.finish(Some(&|| Ok(txn.open_table(BRIEFS)?.len()?)), found)?;
        answers::check(reader, part, found)
    }

    /// Compares the index entries of the new log entries and the new attempts.
    fn finish_partial(&self, reader: &Reader<'_>, part: &Part, found: &mut Verification) -> Result<(), StoreError> {
        let (txn, to) = (reader.txn(), &self.to);
        for comparison in [&to.by_run, &to.nonces, &to.recent] {
            comparison.finish(None, found)?;
        }
        let wrong = |name: &str, wrong: usize, found: &mut Verification| {
            if wrong > 0 {
                found.fault(format!("index `{name}`"), format!("{} missing or wrong", count(wrong, "entry")));
            }
        };
        let log = &self.log;
        of_table("tags", found, |found| {
            let table = txn.open_table(TAGS)?;
            let mut differing = 0;
            for (name, target) in &log.tags {
                differing += usize::from(table.get(name.as_str())?.map(|found| found.value()) != *target);
            }
            wrong("tags", differing, found);
            Ok(())
        })?;
        of_table("notes", found, |found| {
            let table = txn.open_table(NOTES)?;
            let mut differing = 0;
            for (key, text) in &log.notes {
                differing += usize::from(table.get(*key)?.is_none_or(|found| found.value() != text));
            }
            wrong("notes", differing, found);
            Ok(())
        })?;
        of_table("hidden", found, |found| {
            let table = txn.open_table(HIDDEN)?;
            let mut differing = 0;
            for (id, is_hidden) in &log.hidden {
                differing += usize::from(table.get(*id)?.is_some() != *is_hidden);
            }
            wrong("hidden", differing, found);
            Ok(())
        })?;
        if !reader.is_current() {
            found.notes.push(OLDER.to_owned());
            return Ok(());
        }
        for comparison in [&to.measured, &to.by_model, &to.unmeasured, &to.briefs] {
            comparison.finish(None, found)?;
        }
        of_table("places", found, |found| {
            let mut differing = 0;
            for group in part.groups.iter().map(|(group, _)| *group).collect::<BTreeSet<_>>() {
                differing += answers::wrong_places(reader, group)?;
            }
            wrong("places", differing, found);
            Ok(())
        })?;
        Ok(())
    }
}

const OLDER: &str = "the indexes of measured metrics have an older format and were not compared (any command that can write the ledger rebuilds them)";

/// Reports chunks that no attempt lists, if there are more chunks than the attempts list.
fn check_listed(reader: &Reader<'_>, listed: u64, found: &mut Verification) -> Result<(), StoreError> {
    let chunks = reader.txn().open_table(CHUNKS)?;
    if chunks.len()? == listed {
        return Ok(());
    }
    let attempts = reader.txn().open_table(ATTEMPTS)?;
    let mut now: Option<(Id, Option<BTreeSet<String>>)> = None;
    for item in chunks.iter()? {
        let (key, _) = item?;
        let (id, name) = key.value();
        if now.as_ref().is_none_or(|(before, _)| *before != id) {
            let attempt = attempts.get(id)?.and_then(|bytes| decode_attempt(bytes.value()).ok());
            now = Some((id, attempt.map(|attempt| attempt.series.into_iter().map(|one| one.name).collect())));
        }
        let names = now.as_ref().and_then(|(_, names)| names.as_ref());
        if !names.is_some_and(|names| name.is_empty() || names.contains(name)) {
            found.fault(format!("chunk `{name}` of attempt {}", Digest(id)), "no attempt lists it");
        }
    }
    Ok(())
}

/// Checks the sources, and returns the keys of all of them, sound or not.
fn check_sources(reader: &Reader<'_>, found: &mut Verification) -> Result<BTreeSet<Digest>, StoreError> {
    let mut kept = BTreeSet::new();
    let Some(table) = reader.table(SOURCES)? else { return Ok(kept) };
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

/// Notes sources that attempts name but the ledger does not have. This is no fault: they may be too large, or never
/// imported.
fn note_missing(
    named: &BTreeSet<(&'static str, Digest, Vec<Digest>)>,
    kept: &BTreeSet<Digest>,
    found: &mut Verification,
) {
    let is_missing = |keys: &[Digest]| !keys.iter().any(|key| kept.contains(key));
    let missing: BTreeSet<(&str, Digest)> =
        named.iter().filter(|(.., keys)| is_missing(keys)).map(|(kind, digest, _)| (*kind, *digest)).collect();
    let Some((kind, digest)) = missing.last() else { return };
    found.notes.push(format!(
        "not in this ledger: {} of manifests, patches or outputs, such as {kind} {} (attempts can be imported without them, and texts of more than 4 MiB are not kept)",
        count(missing.len(), "text"),
        digest.prefix(8)
    ));
}
