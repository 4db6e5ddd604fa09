//! Queries on one consistent state of the ledger.

use super::tables::{ATTEMPTS, BY_RUN, CHUNKS, HIDDEN, Id, LOG, META, NONCES, NOTES, RUNS, SOURCES, TAGS};
use super::{Briefs, INDEXES, PassedOver, StoreError, brief, index_version, verify};
use crate::record::{
    Attempt, AttemptId, Change, Digest, LogEntry, Names, Nonce, OutputFacts, Phase, Run, RunId, Sealed, Series,
    SourceText, Table, Target, check_pieces, count,
};
use crate::wire::{
    ChunkError, ToPack, decode_attempt, decode_log_entry, decode_phases, decode_run, decode_series, decode_source,
    summarize_series, visit_series,
};
use redb::{
    Key, ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata, TableDefinition, TableError, Value,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

/// Ids are shown with at least this many hex digits.
pub(super) const SHOWN_DIGITS: usize = 8;
/// Ids are accepted with at least this many hex digits.
const ACCEPTED_DIGITS: usize = 4;

/// A text that matches nothing, or several things.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The text matches nothing.
    #[error("no run, attempt or tag matches `{text}`{hint}")]
    Unknown {
        /// The text.
        text: String,
        /// A hint at what there is instead.
        hint: String,
    },
    /// The text matches several things.
    #[error("`{text}` is ambiguous: {} (give more digits)", candidates.join(", "))]
    Ambiguous {
        /// The text.
        text: String,
        /// The matches, by shortest unique prefixes.
        candidates: Vec<String>,
    },
}

/// The entries of a log that do not add attempts, oldest first.
pub(super) fn changes(log: &impl ReadableTable<u64, &'static [u8]>) -> Result<Vec<LogEntry>, StoreError> {
    let mut found = Vec::new();
    for item in log.iter()? {
        let entry = decode_log_entry(item?.1.value())?;
        if !matches!(entry.change, Change::Sealed(_) | Change::Imported(_)) {
            found.push(entry);
        }
    }
    Ok(found)
}

/// One consistent state of the ledger.
pub struct Reader<'a> {
    txn: &'a ReadTransaction,
    runs: ReadOnlyTable<Id, &'static [u8]>,
    attempts: ReadOnlyTable<Id, &'static [u8]>,
    current: bool,
    passed_over: &'a PassedOver,
}

impl<'a> Reader<'a> {
    pub(super) fn new(txn: &'a ReadTransaction, passed_over: &'a PassedOver) -> Result<Self, StoreError> {
        let current = index_version(&txn.open_table(META)?)? == INDEXES;
        Ok(Self { txn, runs: txn.open_table(RUNS)?, attempts: txn.open_table(ATTEMPTS)?, current, passed_over })
    }

    /// Whether the indexes are current. If not, queries for what is left out return nothing.
    pub fn is_current(&self) -> bool {
        self.current
    }

    pub(super) fn txn(&self) -> &'a ReadTransaction {
        self.txn
    }

    /// Opens a table. `None` if it does not exist, as in a ledger that was last changed by an older program.
    pub(super) fn table<K: Key + 'static, V: Value + 'static>(
        &self,
        table: TableDefinition<'_, K, V>,
    ) -> Result<Option<ReadOnlyTable<K, V>>, StoreError> {
        match self.txn.open_table(table) {
            Ok(table) => Ok(Some(table)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The number of attempts.
    pub fn attempt_count(&self) -> Result<u64, StoreError> {
        Ok(self.attempts.len()?)
    }

    /// The number of runs.
    pub fn run_count(&self) -> Result<u64, StoreError> {
        Ok(self.runs.len()?)
    }

    /// The run with this id.
    pub fn run(&self, id: RunId) -> Result<Option<Run>, StoreError> {
        Ok(self.runs.get(id.0.0)?.map(|bytes| decode_run(bytes.value())).transpose()?)
    }

    /// Calls `each` for every run, in the order of the ids.
    pub fn runs(&self, mut each: impl FnMut(Run) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.runs.iter()?.try_for_each(|item| each(decode_run(item?.1.value())?))
    }

    /// The attempt with this id.
    ///
    /// # Errors
    /// If it does not decode, or the ledger cannot be read.
    pub fn attempt(&self, id: AttemptId) -> Result<Option<Attempt>, StoreError> {
        let found = self.attempts.get(id.0.0)?.map(|bytes| decode_attempt(bytes.value())).transpose();
        found.map_err(|error| damaged(id, error))
    }

    /// As [`attempt`](Self::attempt), for one of many attempts. One that does not decode is skipped, and
    /// [`Store::passed_over`](super::Store::passed_over) lists it.
    pub fn readable(&self, id: AttemptId) -> Result<Option<Attempt>, StoreError> {
        self.pass_over(self.attempt(id))
    }

    /// As [`sealed`](Self::sealed), for one of many attempts: see [`readable`](Self::readable).
    pub fn readable_sealed(&self, id: AttemptId) -> Result<Option<Sealed>, StoreError> {
        self.pass_over(self.sealed(id))
    }

    /// As [`readable_sealed`](Self::readable_sealed), without series.
    pub fn phased(&self, id: AttemptId) -> Result<Option<Sealed>, StoreError> {
        self.pass_over(self.sealed_with(id, false))
    }

    /// As [`series`](Self::series), for one of many attempts: see [`readable`](Self::readable).
    pub fn readable_series(&self, id: AttemptId, name: &str) -> Result<Option<Series>, StoreError> {
        self.pass_over(self.series(id, name))
    }

    fn pass_over<T>(&self, found: Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
        match found {
            Err(StoreError::Attempt { id, .. }) => {
                self.passed_over.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
                Ok(None)
            }
            found => found,
        }
    }

    /// The sealed attempt of an execution, with its series and phases. `None` if it was not sealed.
    pub fn sealed_as(&self, nonce: Nonce) -> Result<Option<(AttemptId, Sealed)>, StoreError> {
        let id = self.txn.open_table(NONCES)?.get(nonce.0)?.map(|id| AttemptId(Digest(id.value())));
        let Some(id) = id else { return Ok(None) };
        Ok(self.sealed(id)?.map(|sealed| (id, sealed)))
    }

    /// The attempts of a run and whether each finished, in the order of the ids.
    pub fn attempts_of(&self, run: RunId) -> Result<Vec<(AttemptId, bool)>, StoreError> {
        let table = self.txn.open_table(BY_RUN)?;
        let range = table.range((run.0.0, [0; 32])..=(run.0.0, [0xff; 32]))?;
        range
            .map(|item| {
                let (key, outcome) = item?;
                Ok((AttemptId(Digest(key.value().1)), outcome.value() == 0))
            })
            .collect()
    }

    /// The number of finished attempts of a run.
    pub fn finished_count(&self, run: RunId) -> Result<usize, StoreError> {
        Ok(self.attempts_of(run)?.into_iter().filter(|(_, finished)| *finished).count())
    }

    /// One series of an attempt.
    pub fn series(&self, id: AttemptId, name: &str) -> Result<Option<Series>, StoreError> {
        let table = self.txn.open_table(CHUNKS)?;
        let found = table.get((id.0.0, name))?.map(|bytes| decode_series(bytes.value())).transpose();
        found.map_err(|error| damaged(id, error))
    }

    /// Calls `visit` for each point of a series, and returns whether there is such a series. Memory does not grow with
    /// its length.
    pub fn visit_series(&self, id: AttemptId, name: &str, visit: &mut dyn FnMut(u64, f64)) -> Result<bool, StoreError> {
        let table = self.txn.open_table(CHUNKS)?;
        let Some(bytes) = table.get((id.0.0, name))? else { return Ok(false) };
        visit_series(bytes.value(), visit).map_err(|error| damaged(id, error))?;
        Ok(true)
    }

    /// The encoded bytes of a series, which take less memory than its points. The series is known to decode by
    /// [`visit_series`](crate::wire::visit_series). One that does not decode is skipped: see
    /// [`readable`](Self::readable).
    pub fn readable_chunk(&self, id: AttemptId, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let found = || {
            if !self.visit_series(id, name, &mut |_, _| {})? {
                return Ok(None);
            }
            Ok(self.txn.open_table(CHUNKS)?.get((id.0.0, name))?.map(|bytes| bytes.value().to_vec()))
        };
        self.pass_over(found())
    }

    /// The phases of an attempt.
    pub fn phases(&self, id: AttemptId) -> Result<Vec<Phase>, StoreError> {
        let table = self.txn.open_table(CHUNKS)?;
        let found = table.get((id.0.0, ""))?.map(|bytes| decode_phases(bytes.value())).transpose();
        Ok(found.map_err(|error| damaged(id, error))?.unwrap_or_default())
    }

    /// An attempt with its run, series and phases.
    pub fn sealed(&self, id: AttemptId) -> Result<Option<Sealed>, StoreError> {
        self.sealed_with(id, true)
    }

    fn sealed_with(&self, id: AttemptId, with_series: bool) -> Result<Option<Sealed>, StoreError> {
        let Some(attempt) = self.attempt(id)? else { return Ok(None) };
        let Some(run) = self.run(attempt.run)? else { return Ok(None) };
        let mut series = Vec::new();
        for summary in attempt.series.iter().filter(|_| with_series) {
            series.extend(self.series(id, &summary.name)?);
        }
        Ok(Some(Sealed { run, phases: self.phases(id)?, attempt, series }))
    }

    /// Checks an attempt for a pack, and returns everything but its chunks.
    pub fn to_pack(&self, id: AttemptId) -> Result<Option<ToPack>, StoreError> {
        let Some(attempt) = self.attempt(id)? else { return Ok(None) };
        let missing = |what| damaged(id, std::io::Error::new(std::io::ErrorKind::NotFound, what));
        let run = self.run(attempt.run).map_err(|error| match error {
            StoreError::Wire(error) => damaged(id, error),
            error => error,
        })?;
        let run = run.ok_or_else(|| missing("its run is missing"))?;
        let table = self.txn.open_table(CHUNKS)?;
        let (mut chunk_lengths, mut found) = (Vec::new(), Vec::new());
        for summary in &attempt.series {
            if let Some(bytes) = table.get((id.0.0, summary.name.as_str()))? {
                found.push(summarize_series(bytes.value()).map_err(|error| damaged(id, error))?);
                chunk_lengths.push(bytes.value().len());
            }
        }
        check_pieces(&run, &attempt, &found, &self.phases(id)?).map_err(|error| damaged(id, error))?;
        let phases = table.get((id.0.0, ""))?.map(|bytes| bytes.value().len());
        chunk_lengths.push(phases.ok_or_else(|| missing("its phases are missing"))?);
        Ok(Some(ToPack { run, attempt, chunk_lengths }))
    }

    /// As [`to_pack`](Self::to_pack), for one of many attempts: see [`readable`](Self::readable).
    pub fn readable_to_pack(&self, id: AttemptId) -> Result<Option<ToPack>, StoreError> {
        self.pass_over(self.to_pack(id))
    }

    /// The encoded bytes of a series by its name, or of the phases by the empty name.
    pub fn chunk(&self, id: AttemptId, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.txn.open_table(CHUNKS)?.get((id.0.0, name))?.map(|bytes| bytes.value().to_vec()))
    }

    /// The names of all attempts. `None` if the indexes are outdated or an attempt has more names than they keep.
    pub fn names(&self) -> Result<Option<Names>, StoreError> {
        if self.current { brief::names(self.txn) } else { Ok(None) }
    }

    /// The hidden runs and attempts.
    pub fn hidden(&self) -> Result<BTreeSet<Digest>, StoreError> {
        let table = self.txn.open_table(HIDDEN)?;
        table.iter()?.map(|item| Ok(Digest(item?.0.value()))).collect()
    }

    /// The attempts that are hidden or whose runs are hidden.
    pub fn hidden_attempts(&self) -> Result<BTreeSet<AttemptId>, StoreError> {
        let mut attempts = BTreeSet::new();
        for id in self.hidden()? {
            attempts.extend(self.attempts_of(RunId(id))?.into_iter().map(|(attempt, _)| attempt));
            if self.attempts.get(id.0)?.is_some() {
                attempts.insert(AttemptId(id));
            }
        }
        Ok(attempts)
    }

    /// The index rows of a model's attempts, to evaluate conditions without reading records. `None` if the indexes are
    /// outdated or an attempt has more names than they keep.
    pub fn briefs(&self, model: &str) -> Result<Option<Briefs>, StoreError> {
        if self.current { Briefs::open(self.txn, model) } else { Ok(None) }
    }

    /// Every tag.
    pub fn tags(&self) -> Result<BTreeMap<String, Target>, StoreError> {
        let table = self.txn.open_table(TAGS)?;
        table
            .iter()?
            .map(|item| {
                let (name, target) = item?;
                Ok((name.value().to_owned(), read_target(target.value())))
            })
            .collect()
    }

    /// The notes on a run or an attempt, oldest first.
    pub fn notes(&self, target: Digest) -> Result<Vec<String>, StoreError> {
        let table = self.txn.open_table(NOTES)?;
        let log = self.txn.open_table(LOG)?;
        let mut notes = Vec::new();
        for item in table.range((target.0, 0)..=(target.0, u64::MAX))? {
            let (key, text) = item?;
            // Notes are sorted by time, whatever the order of merges.
            let entry = log.get(key.value().1)?.map(|bytes| decode_log_entry(bytes.value())).transpose()?;
            notes.push((entry.as_ref().map(|entry| (entry.unix_ms, entry.digest())), text.value().to_owned()));
        }
        notes.sort();
        Ok(notes.into_iter().map(|(_, text)| text).collect())
    }

    /// The head of the log.
    pub fn log_head(&self) -> Result<Digest, StoreError> {
        let meta = self.txn.open_table(META)?;
        let head = meta.get("log_head")?.and_then(|bytes| bytes.value().try_into().ok()).map(Digest);
        Ok(head.unwrap_or(Digest([0; 32])))
    }

    /// The number of entries of the log.
    pub fn log_len(&self) -> Result<u64, StoreError> {
        Ok(self.txn.open_table(LOG)?.len()?)
    }

    /// The head of the log after its first `entries` entries, computed from them. `None` if there are fewer.
    pub fn head_after(&self, entries: u64) -> Result<Option<Digest>, StoreError> {
        let table = self.txn.open_table(LOG)?;
        if table.len()? < entries {
            return Ok(None);
        }
        let mut head = Digest([0; 32]);
        for item in table.range(..entries)? {
            head = decode_log_entry(item?.1.value())?.chain(head);
        }
        Ok(Some(head))
    }

    /// The log, oldest entry first.
    pub fn log(&self) -> Result<Vec<LogEntry>, StoreError> {
        let table = self.txn.open_table(LOG)?;
        table.iter()?.map(|item| Ok(decode_log_entry(item?.1.value())?)).collect()
    }

    /// The few entries of the log that do not add attempts, oldest first.
    pub fn changes(&self) -> Result<Vec<LogEntry>, StoreError> {
        changes(&self.txn.open_table(LOG)?)
    }

    /// The stored text that an attempt with these facts was made from, by the digest of the original text.
    pub fn source(&self, original: Digest, facts: &Table) -> Result<Option<SourceText>, StoreError> {
        let Some(table) = self.table(SOURCES)? else { return Ok(None) };
        for key in SourceText::keys(original, facts) {
            if let Some(bytes) = table.get(key.0)? {
                return Ok(Some(decode_source(bytes.value())?));
            }
        }
        Ok(None)
    }

    /// The worker's output of an attempt with these facts. `None` if it wrote nothing, or the ledger does not have it.
    pub fn output(&self, facts: &Table) -> Result<Option<SourceText>, StoreError> {
        OutputFacts::digest_in(facts).map_or(Ok(None), |digest| self.source(digest, facts))
    }

    /// Recomputes every id, digest, index and the chain.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<verify::Verification, StoreError> {
        Ok(verify::Check::new(None).go_on(self, &|| false, progress)?.unwrap_or_default())
    }

    /// The shortest unique prefix of an id, of at least 8 digits.
    pub fn short(&self, id: Digest) -> Result<String, StoreError> {
        let mut digits = SHOWN_DIGITS;
        for table in [&self.runs, &self.attempts] {
            let below = table.range(..id.0)?.next_back().transpose()?.map(|(key, _)| key.value());
            let above = table.range(id.0..)?.map(|item| item.map(|(key, _)| key.value())).find(|key| match key {
                Ok(key) => *key != id.0,
                Err(_) => true,
            });
            for neighbour in [below, above.transpose()?].into_iter().flatten() {
                digits = digits.max(common_digits(&id, &Digest(neighbour)) + 1);
            }
        }
        Ok(id.prefix(digits))
    }

    /// Resolves a text: a tag, `latest`, `latest~N`, or a prefix of an id.
    pub fn resolve(&self, text: &str) -> Result<Result<Target, ResolveError>, StoreError> {
        if let Some(target) = self.txn.open_table(TAGS)?.get(text)? {
            return Ok(Ok(read_target(target.value())));
        }
        if let Some(back) = latest_offset(text) {
            let rows = self.recent(0, back.saturating_add(1), false)?;
            return Ok(match rows.get(back) {
                Some(row) => Ok(Target::Attempt(row.attempt)),
                None => Err(ResolveError::Unknown { text: text.to_owned(), hint: self.too_few(rows.len())? }),
            });
        }
        let Some((low, high)) = prefix_range(text) else { return Ok(Err(self.unknown(text)?)) };
        let mut found = Vec::new();
        for (table, make) in [
            (&self.runs, (|id| Target::Run(RunId(id))) as fn(Digest) -> Target),
            (&self.attempts, |id| Target::Attempt(AttemptId(id))),
        ] {
            for item in table.range(low..=high)?.take(6) {
                found.push(make(Digest(item?.0.value())));
            }
        }
        match found.as_slice() {
            [] => Ok(Err(self.unknown(text)?)),
            [one] => Ok(Ok(*one)),
            many => {
                let mut candidates = Vec::new();
                for target in many {
                    let kind = if matches!(target, Target::Run(_)) { "run" } else { "attempt" };
                    candidates.push(format!("{kind} {}", self.short(target.digest())?));
                }
                Ok(Err(ResolveError::Ambiguous { text: text.to_owned(), candidates }))
            }
        }
    }

    /// The hint for a `latest~N` beyond the oldest visible attempt.
    fn too_few(&self, visible: usize) -> Result<String, StoreError> {
        let are = if visible == 1 { "is" } else { "are" };
        let there = format!("there {are} {}", count(visible, "attempt"));
        let hidden = self.hidden_attempts()?.len();
        let hidden = if hidden > 0 { format!(", and {hidden} hidden: `ledger ls --hidden`") } else { String::new() };
        Ok(format!(" ({there}{hidden})"))
    }

    fn unknown(&self, text: &str) -> Result<ResolveError, StoreError> {
        let newest = self.recent(0, 1, false)?;
        let hint = match newest.first() {
            None if self.attempts.is_empty()? => " (the ledger is empty)".to_owned(),
            None => " (all attempts are hidden: `ledger ls --hidden`)".to_owned(),
            Some(_) if text.len() < ACCEPTED_DIGITS && text.chars().all(|c| c.is_ascii_hexdigit()) => {
                format!(" (give at least {ACCEPTED_DIGITS} digits)")
            }
            Some(row) => format!(" (the newest run is {})", self.short(row.run.0)?),
        };
        Ok(ResolveError::Unknown { text: text.to_owned(), hint })
    }
}

fn damaged(id: AttemptId, source: impl Into<ChunkError>) -> StoreError {
    StoreError::Attempt { id, source: source.into() }
}

pub(super) fn read_target((kind, id): (u8, Id)) -> Target {
    if kind == 0 { Target::Run(RunId(Digest(id))) } else { Target::Attempt(AttemptId(Digest(id))) }
}

fn latest_offset(text: &str) -> Option<usize> {
    match text.strip_prefix("latest")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}

/// The smallest and the largest id with this prefix.
fn prefix_range(text: &str) -> Option<(Id, Id)> {
    if !(ACCEPTED_DIGITS..=64).contains(&text.len()) || !text.is_ascii() {
        return None;
    }
    let fill = |digit: char| {
        let full: String = text.chars().chain(std::iter::repeat_n(digit, 64 - text.len())).collect();
        full.parse::<Digest>().ok().map(|digest| digest.0)
    };
    Some((fill('0')?, fill('f')?))
}

fn common_digits(a: &Digest, b: &Digest) -> usize {
    let (a, b) = (a.to_hex(), b.to_hex());
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}
