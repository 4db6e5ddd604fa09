//! Changes to the ledger. Each is one transaction and one or more entries of the log.

use super::merge::{Standing, standing};
use super::query::changes;
use super::tables::{
    ATTEMPTS, BRIEFS, BY_MODEL, BY_RUN, CHUNKS, GROUPS, HIDDEN, Id, LOG, META, NONCES, NOTES, RANKING, RECENT, RUNS,
    SHAPES, SOURCES, TAGS, TOTALS, UNITS, UNMEASURED, VALUES,
};
use super::{StoreError, index, rank};
use crate::record::{Attempt, AttemptId, Change, Digest, LogEntry, Outcome, Phase, Run, Sealed, SourceText, Target};
use crate::wire::{
    ChunkError, PackedAttempt, decode_attempt, decode_phases, decode_run, encode_attempt, encode_log_entry,
    encode_phases, encode_row, encode_run, encode_series, encode_source, summarize_series,
};
use redb::{ReadableTable, ReadableTableMetadata, WriteTransaction};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Returns the chunk of a series by its index and name. The phases have the index after the last series and the empty
/// name.
type ChunkOf<'c> = dyn Fn(usize, &str) -> Result<Cow<'c, [u8]>, ChunkError> + 'c;

/// The chunks of an attempt in memory.
fn chunks_of<'s>(sealed: &'s Sealed) -> impl Fn(usize, &str) -> Result<Cow<'s, [u8]>, ChunkError> + 's {
    |at, _| match sealed.series.get(at) {
        Some(series) => encode_series(series).map(Cow::Owned),
        None => encode_phases(&sealed.phases).map(Cow::Owned),
    }
}

/// Whether an attempt was new to the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It was added.
    New(AttemptId),
    /// The ledger had it already. This may be another attempt of the same execution.
    Known(AttemptId),
    /// It was in the ledger, but damaged. It was replaced.
    Restored(AttemptId),
}

impl Added {
    /// The attempt's id.
    pub fn id(self) -> AttemptId {
        match self {
            Self::New(id) | Self::Known(id) | Self::Restored(id) => id,
        }
    }
}

/// One change to the ledger in progress.
pub struct Writer<'txn> {
    pub(super) txn: &'txn WriteTransaction,
    head: Digest,
    log_len: u64,
    /// The time of the newest entry for each tag and hiding. Read when it is first needed.
    newest: Option<BTreeMap<Standing, i64>>,
    /// Whether a damaged record was replaced. Then the metric indexes are rebuilt at the end.
    has_restored: bool,
}

pub(super) fn outcome_code(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Finished => 0,
        Outcome::Failed { .. } => 1,
        Outcome::Interrupted { .. } => 2,
    }
}

pub(super) fn target_key(target: Target) -> (u8, Id) {
    match target {
        Target::Run(id) => (0, id.0.0),
        Target::Attempt(id) => (1, id.0.0),
    }
}

impl<'txn> Writer<'txn> {
    pub(super) fn new(txn: &'txn WriteTransaction) -> Result<Self, StoreError> {
        // Readers need every table to exist.
        txn.open_table(RUNS)?;
        txn.open_table(ATTEMPTS)?;
        txn.open_table(CHUNKS)?;
        txn.open_table(BY_RUN)?;
        txn.open_table(NONCES)?;
        txn.open_table(RECENT)?;
        txn.open_table(VALUES)?;
        txn.open_table(RANKING)?;
        txn.open_table(GROUPS)?;
        txn.open_table(BY_MODEL)?;
        txn.open_table(UNMEASURED)?;
        txn.open_table(TOTALS)?;
        txn.open_table(BRIEFS)?;
        txn.open_table(SHAPES)?;
        txn.open_table(UNITS)?;
        txn.open_table(TAGS)?;
        txn.open_table(NOTES)?;
        txn.open_table(HIDDEN)?;
        txn.open_table(SOURCES)?;
        let log_len = txn.open_table(LOG)?.len()?;
        let meta = txn.open_table(META)?;
        let head = meta.get("log_head")?.and_then(|bytes| bytes.value().try_into().ok()).map(Digest);
        Ok(Self { txn, head: head.unwrap_or(Digest([0; 32])), log_len, newest: None, has_restored: false })
    }

    pub(super) fn finish(self) -> Result<(), StoreError> {
        if self.has_restored {
            self.reindex()?;
        }
        self.txn.open_table(META)?.insert("log_head", self.head.0.as_slice())?;
        Ok(())
    }

    pub(super) fn log(&mut self, entries: impl IntoIterator<Item = LogEntry>) -> Result<(), StoreError> {
        let mut log = self.txn.open_table(LOG)?;
        for entry in entries {
            log.insert(self.log_len, encode_log_entry(&entry)?.as_slice())?;
            self.head = entry.chain(self.head);
            self.log_len += 1;
        }
        Ok(())
    }

    /// Seals an attempt that was executed here. An execution is sealed once, even if two processes finalize its journal
    /// differently.
    pub fn seal(&mut self, sealed: &Sealed, unix_ms: i64) -> Result<Added, StoreError> {
        sealed.check()?;
        self.put_once((&sealed.run, &sealed.attempt), &chunks_of(sealed), unix_ms, Change::Sealed)
    }

    /// Imports an attempt that was executed elsewhere for this ledger. As in [`seal`](Self::seal), an execution is
    /// added once.
    pub fn import(&mut self, sealed: &Sealed, unix_ms: i64) -> Result<Added, StoreError> {
        sealed.check()?;
        self.put_once((&sealed.run, &sealed.attempt), &chunks_of(sealed), unix_ms, Change::Imported)
    }

    /// As [`import`](Self::import), for an attempt in a pack, which was checked when it was read.
    pub fn import_packed(&mut self, packed: &PackedAttempt, unix_ms: i64) -> Result<Added, StoreError> {
        let chunk = |at: usize, _: &str| Ok(Cow::Owned(packed.chunk(at)?));
        self.put_once((&packed.sealed.run, &packed.sealed.attempt), &chunk, unix_ms, Change::Imported)
    }

    /// As [`unite_packed`](Self::unite_packed), for an attempt in memory.
    #[cfg(test)]
    pub fn unite(&mut self, sealed: &Sealed, unix_ms: i64) -> Result<Added, StoreError> {
        sealed.check()?;
        self.put_whole((&sealed.run, &sealed.attempt), &chunks_of(sealed), unix_ms)
    }

    /// Imports an attempt of another ledger from a pack, which was checked when it was read. Replaces one that is
    /// damaged here. If both ledgers have sealed the same execution differently, both attempts stay, so that the order
    /// of imports does not matter.
    pub fn unite_packed(&mut self, packed: &PackedAttempt, unix_ms: i64) -> Result<Added, StoreError> {
        let chunk = |at: usize, _: &str| Ok(Cow::Owned(packed.chunk(at)?));
        self.put_whole((&packed.sealed.run, &packed.sealed.attempt), &chunk, unix_ms)
    }

    /// Adds an attempt, or replaces it if it is damaged here.
    fn put_whole(
        &mut self,
        (run, attempt): (&Run, &Attempt),
        chunk: &ChunkOf<'_>,
        unix_ms: i64,
    ) -> Result<Added, StoreError> {
        let id = attempt.id();
        if self.txn.open_table(BY_RUN)?.get((run.id.0.0, id.0.0))?.is_none() {
            return self.put_new((run, attempt), chunk, unix_ms, Change::Imported);
        }
        let holds_records = self.holds_records(attempt)?;
        if holds_records && self.holds_chunks(attempt, chunk)? {
            return Ok(Added::Known(id));
        }
        // The log has it already.
        self.txn.open_table(RUNS)?.remove(run.id.0.0)?;
        self.put_record((run, attempt), chunk)?;
        self.has_restored |= !holds_records;
        Ok(Added::Restored(id))
    }

    /// Whether an attempt and its run decode and match their ids.
    fn holds_records(&self, attempt: &Attempt) -> Result<bool, StoreError> {
        let key = attempt.id().0.0;
        let (attempts, runs) = (self.txn.open_table(ATTEMPTS)?, self.txn.open_table(RUNS)?);
        let kept = attempts.get(key)?.and_then(|bytes| decode_attempt(bytes.value()).ok());
        let run = runs.get(attempt.run.0.0)?.and_then(|bytes| decode_run(bytes.value()).ok());
        Ok(kept.is_some_and(|kept| kept.id().0.0 == key) && run.is_some_and(|run| run.id == attempt.run))
    }

    /// Whether the series and phases of an attempt match their digests.
    fn holds_chunks(&self, attempt: &Attempt, chunk: &ChunkOf<'_>) -> Result<bool, StoreError> {
        let key = attempt.id().0.0;
        let table = self.txn.open_table(CHUNKS)?;
        for (at, series) in attempt.series.iter().map(Some).chain([None]).enumerate() {
            let name = series.map_or("", |series| series.name.as_str());
            let Some(kept) = table.get((key, name))? else { return Ok(false) };
            // Bytes equal to those of the pack need no digest, because the pack was checked.
            let is_whole = *chunk(at, name)? == *kept.value()
                || match series {
                    Some(series) => summarize_series(kept.value()).is_ok_and(|found| found == *series),
                    None => decode_phases(kept.value()).is_ok_and(|found| Phase::digest_all(&found) == attempt.phases),
                };
            if !is_whole {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// As [`seal`](Self::seal), for an attempt with encoded chunks: `chunk` returns that of a series by its name, and
    /// that of the phases by the empty name.
    pub fn seal_encoded(
        &mut self,
        (run, attempt): (&Run, &Attempt),
        chunk: &ChunkOf<'_>,
        unix_ms: i64,
    ) -> Result<Added, StoreError> {
        self.put_once((run, attempt), chunk, unix_ms, Change::Sealed)
    }

    fn put_once(
        &mut self,
        (run, attempt): (&Run, &Attempt),
        chunk: &ChunkOf<'_>,
        unix_ms: i64,
        change: impl FnOnce(AttemptId) -> Change,
    ) -> Result<Added, StoreError> {
        let id = attempt.id();
        if self.txn.open_table(ATTEMPTS)?.get(id.0.0)?.is_none()
            && let Some(known) = self.sealed_as(attempt.nonce)?
        {
            return Ok(Added::Known(known));
        }
        self.put_new((run, attempt), chunk, unix_ms, change)
    }

    fn put_new(
        &mut self,
        (run, attempt): (&Run, &Attempt),
        chunk: &ChunkOf<'_>,
        unix_ms: i64,
        change: impl FnOnce(AttemptId) -> Change,
    ) -> Result<Added, StoreError> {
        let id = attempt.id();
        let key = id.0.0;
        if self.txn.open_table(ATTEMPTS)?.get(key)?.is_some() {
            return Ok(Added::Known(id));
        }
        self.put_record((run, attempt), chunk)?;
        rank::insert(self.txn, run, key, attempt)?;
        self.log([LogEntry { unix_ms, change: change(id) }])?;
        Ok(Added::New(id))
    }

    /// Writes an attempt and its indexes, except the metric indexes.
    fn put_record(&self, (run, attempt): (&Run, &Attempt), chunk: &ChunkOf<'_>) -> Result<(), StoreError> {
        let id = attempt.id();
        let key = id.0.0;
        if self.txn.open_table(RUNS)?.get(run.id.0.0)?.is_none() {
            self.txn.open_table(RUNS)?.insert(run.id.0.0, encode_run(run)?.as_slice())?;
        }
        self.txn.open_table(ATTEMPTS)?.insert(key, encode_attempt(attempt)?.as_slice())?;
        {
            let mut chunks = self.txn.open_table(CHUNKS)?;
            for (at, name) in attempt.series.iter().map(|series| series.name.as_str()).chain([""]).enumerate() {
                chunks.insert((key, name), chunk(at, name)?.as_ref())?;
            }
        }
        self.txn.open_table(BY_RUN)?.insert((run.id.0.0, key), outcome_code(&attempt.outcome))?;
        // If an execution has several attempts, its entry is the smallest id.
        let known = self.sealed_as(attempt.nonce)?.map(|known| known.0.0);
        self.txn.open_table(NONCES)?.insert(attempt.nonce.0, known.map_or(key, |known| known.min(key)))?;
        let row = encode_row(&index::row(id, run, attempt))?;
        self.txn.open_table(RECENT)?.insert((attempt.started_unix_ms, key), row.as_slice())?;
        Ok(())
    }

    /// Stores a text that runs were made from, if it is not too large.
    pub fn keep(&mut self, source: &SourceText) -> Result<(), StoreError> {
        if source.kept.len() <= SourceText::MOST_BYTES {
            self.keep_encoded(source.key().0, &encode_source(source)?)?;
        }
        Ok(())
    }

    pub(super) fn keep_encoded(&mut self, key: Id, bytes: &[u8]) -> Result<(), StoreError> {
        let mut table = self.txn.open_table(SOURCES)?;
        // The key is a digest of the content.
        if table.get(key)?.is_none() {
            table.insert(key, bytes)?;
        }
        Ok(())
    }

    /// Writes an entry about an attempt or a run: a tag, a note, a hiding or a verdict.
    ///
    /// In a merge the newest tag or hiding wins. So an entry is always dated after the one that it replaces, even if
    /// the clock was set back.
    pub fn note(&mut self, entry: &LogEntry) -> Result<(), StoreError> {
        let Some(key) = standing(entry) else { return self.put(entry) };
        if self.newest.is_none() {
            let mut newest = BTreeMap::new();
            for entry in self.changes()? {
                if let Some(key) = standing(&entry) {
                    let at: &mut i64 = newest.entry(key).or_insert(entry.unix_ms);
                    *at = entry.unix_ms.max(*at);
                }
            }
            self.newest = Some(newest);
        }
        let newest = self.newest.get_or_insert_default();
        let after = newest.get(&key).map_or(i64::MIN, |newest| newest.saturating_add(1));
        let entry = LogEntry { unix_ms: entry.unix_ms.max(after), change: entry.change.clone() };
        newest.insert(key, entry.unix_ms);
        self.put(&entry)
    }

    /// Writes an entry without changing its time.
    pub(super) fn put(&mut self, entry: &LogEntry) -> Result<(), StoreError> {
        match &entry.change {
            Change::Sealed(_) | Change::Imported(_) => {
                // Only stored attempts have such entries, and `put_new` writes them.
                return Ok(());
            }
            Change::Tagged { name, target } => {
                self.txn.open_table(TAGS)?.insert(name.as_str(), target_key(*target))?;
            }
            Change::Untagged { name } => {
                self.txn.open_table(TAGS)?.remove(name.as_str())?;
            }
            Change::Noted { target, text } => {
                self.txn.open_table(NOTES)?.insert((target.digest().0, self.log_len), text.as_str())?;
            }
            Change::Hidden(target) => {
                let was = self.txn.open_table(HIDDEN)?.insert(target.digest().0, ())?.is_some();
                if !was {
                    self.refresh(*target)?;
                }
            }
            Change::Unhidden(target) => {
                let was = self.txn.open_table(HIDDEN)?.remove(target.digest().0)?.is_some();
                if was {
                    self.refresh(*target)?;
                }
            }
            Change::Verdict { .. } => {}
        }
        self.log([entry.clone()])
    }

    /// Updates the indexes after a target was hidden or shown.
    fn refresh(&self, target: Target) -> Result<(), StoreError> {
        // The old entries of a damaged attempt are unknown, so the indexes are rebuilt from the readable records.
        if rank::refresh(self.txn, target)? { Ok(()) } else { self.reindex() }
    }

    /// The entries of the log that do not add attempts, oldest first.
    pub(super) fn changes(&self) -> Result<Vec<LogEntry>, StoreError> {
        changes(&self.txn.open_table(LOG)?)
    }

    /// The sealed attempt of an execution, if there is one.
    pub fn sealed_as(&self, nonce: crate::record::Nonce) -> Result<Option<AttemptId>, StoreError> {
        Ok(self.txn.open_table(NONCES)?.get(nonce.0)?.map(|id| AttemptId(Digest(id.value()))))
    }

    /// Whether the ledger has this attempt and it decodes.
    pub fn holds(&self, id: AttemptId) -> Result<bool, StoreError> {
        let table = self.txn.open_table(ATTEMPTS)?;
        match table.get(id.0.0)? {
            Some(bytes) => Ok(decode_attempt(bytes.value()).is_ok()),
            None => Ok(false),
        }
    }
}
