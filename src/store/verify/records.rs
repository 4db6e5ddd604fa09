//! Checks one attempt: its record, its chunks, its run and its index entries.

use super::super::StoreError;
use super::super::brief::Kept;
use super::super::census::Census;
use super::super::index::{self, member, pack};
use super::super::query::Reader;
use super::super::rank::ranked_metrics;
use super::super::seal::outcome_code;
use super::super::tables::{ATTEMPTS, BRIEFS, BY_MODEL, BY_RUN, CHUNKS, Id, NONCES, RECENT, RUNS, UNMEASURED, VALUES};
use super::Fault;
use super::compare::Comparison;
use crate::record::{Attempt, AttemptId, Digest, Phase, Replicate, Run, SourceText};
use crate::wire::{decode_attempt, decode_phases, decode_run, encode_row, summarize_series};
use redb::ReadOnlyTable;
use std::collections::{BTreeMap, BTreeSet};

/// The indexes with a separate entry for each attempt.
pub(super) struct Comparisons {
    pub(super) by_run: Comparison,
    pub(super) nonces: Comparison,
    pub(super) recent: Comparison,
    pub(super) measured: Comparison,
    pub(super) by_model: Comparison,
    pub(super) unmeasured: Comparison,
    pub(super) briefs: Comparison,
}

impl Default for Comparisons {
    fn default() -> Self {
        let of = Comparison::of;
        Self {
            by_run: of("by_run"),
            nonces: of("nonces"),
            recent: of("recent"),
            measured: of("measured"),
            by_model: of("by_model"),
            unmeasured: of("unmeasured"),
            briefs: of("briefs"),
        }
    }
}

type Bytes = &'static [u8];
/// Model, metric and attempt.
type OfMetric = (&'static str, &'static str, Id);

/// The open tables of one reader. `None` for an index that cannot be read or is outdated.
pub(super) struct Tables {
    runs: ReadOnlyTable<Id, Bytes>,
    pub(super) attempts: ReadOnlyTable<Id, Bytes>,
    chunks: ReadOnlyTable<(Id, &'static str), Bytes>,
    by_run: Option<ReadOnlyTable<(Id, Id), u8>>,
    nonces: Option<ReadOnlyTable<[u8; 16], Id>>,
    recent: Option<ReadOnlyTable<(i64, Id), Bytes>>,
    measured: Option<ReadOnlyTable<Bytes, Bytes>>,
    by_model: Option<ReadOnlyTable<(&'static str, u8, Id), &'static str>>,
    unmeasured: Option<ReadOnlyTable<OfMetric, (u8, &'static str)>>,
    briefs: Option<ReadOnlyTable<(&'static str, Id), Bytes>>,
}

impl Tables {
    pub(super) fn open(reader: &Reader<'_>, to: &Comparisons) -> Result<Self, StoreError> {
        let txn = reader.txn();
        let is_current = reader.is_current();
        // Outdated indexes are not compared, because the next change rebuilds them.
        macro_rules! measured {
            ($comparison:ident, $table:ident) => {
                if is_current { to.$comparison.open(|| txn.open_table($table))? } else { None }
            };
        }
        Ok(Self {
            runs: txn.open_table(RUNS)?,
            attempts: txn.open_table(ATTEMPTS)?,
            chunks: txn.open_table(CHUNKS)?,
            by_run: to.by_run.open(|| txn.open_table(BY_RUN))?,
            nonces: to.nonces.open(|| txn.open_table(NONCES))?,
            recent: to.recent.open(|| txn.open_table(RECENT))?,
            measured: measured!(measured, VALUES),
            by_model: measured!(by_model, BY_MODEL),
            unmeasured: measured!(unmeasured, UNMEASURED),
            briefs: measured!(briefs, BRIEFS),
        })
    }
}

/// The result of checking some attempts.
#[derive(Default)]
pub(super) struct Part {
    pub(super) faults: Vec<Fault>,
    /// Why a table of records cannot be read.
    pub(super) unreadable: Option<String>,
    pub(super) attempts: u64,
    pub(super) chunks: u64,
    /// The number of chunks that records list and that exist.
    pub(super) listed: u64,
    /// The number of attempts that are in the log and whose records can be read.
    pub(super) known: u64,
    /// The attempts that are not in the log.
    pub(super) unknown: Vec<Id>,
    /// The sources that attempts name: kind, digest, and the digests under which the text may be stored.
    pub(super) named: BTreeSet<(&'static str, Digest, Vec<Digest>)>,
    pub(super) units: BTreeSet<(String, String, String)>,
    pub(super) shapes: BTreeMap<Id, BTreeSet<String>>,
    pub(super) totals: BTreeMap<(String, String), u64>,
    /// The groups and runs of these attempts, if requested.
    pub(super) groups: BTreeSet<(Id, Id)>,
}

impl Part {
    pub(super) fn add(&mut self, other: Self) {
        self.faults.extend(other.faults);
        self.unreadable = self.unreadable.take().or(other.unreadable);
        self.attempts += other.attempts;
        self.chunks += other.chunks;
        self.listed += other.listed;
        self.known += other.known;
        self.unknown.extend(other.unknown);
        self.named.extend(other.named);
        self.units.extend(other.units);
        for (shape, models) in other.shapes {
            self.shapes.entry(shape).or_default().extend(models);
        }
        for (key, count) in other.totals {
            *self.totals.entry(key).or_default() += count;
        }
        self.groups.extend(other.groups);
    }

    fn fault(&mut self, owner: impl Into<String>, fault: impl Into<String>) {
        self.faults.push(Fault { owner: owner.into(), fault: fault.into() });
    }
}

/// The data that attempts are compared with.
pub(super) struct Context<'a> {
    pub(super) tables: &'a Tables,
    pub(super) to: &'a Comparisons,
    /// Whether the log has the attempt.
    pub(super) is_logged: &'a (dyn Fn(&Id) -> bool + Sync),
    /// Whether an attempt or a run is hidden.
    pub(super) is_hidden: &'a (dyn Fn(&Id) -> bool + Sync),
    pub(super) with_groups: bool,
}

impl Context<'_> {
    pub(super) fn check(&self, key: Id, bytes: &[u8], part: &mut Part) -> Result<(), StoreError> {
        let owner = format!("attempt {}", Digest(key));
        part.attempts += 1;
        let attempt = match decode_attempt(bytes) {
            Ok(attempt) => attempt,
            Err(error) => {
                part.fault(owner, error.to_string());
                return Ok(());
            }
        };
        if attempt.id().0.0 != key {
            part.fault(&owner, format!("its content hashes to {}", attempt.id()));
        }
        for (kind, digest) in SourceText::belonging_to(&attempt.settings, &attempt.facts) {
            part.named.insert((kind, digest, SourceText::keys(digest, &attempt.facts).collect()));
        }
        self.check_chunks(key, &owner, &attempt, part)?;
        let run = self.tables.runs.get(attempt.run.0.0)?.and_then(|run| decode_run(run.value()).ok());
        let Some(run) = run.filter(|run| run.id == attempt.run) else {
            part.fault(owner, format!("its run {} is missing or damaged", attempt.run));
            return Ok(());
        };
        if (self.is_logged)(&key) {
            part.known += 1;
        } else {
            part.unknown.push(key);
        }
        self.check_entries(key, &run, &attempt)?;
        self.check_measured(key, &run, &attempt, part)
    }

    fn check_chunks(&self, key: Id, owner: &str, attempt: &Attempt, part: &mut Part) -> Result<(), StoreError> {
        for summary in &attempt.series {
            let owner = format!("series `{}` of {owner}", summary.name);
            let Some(chunk) = self.tables.chunks.get((key, summary.name.as_str()))? else {
                part.fault(owner, "it is missing");
                continue;
            };
            part.chunks += 1;
            part.listed += 1;
            match summarize_series(chunk.value()) {
                Ok(found) if found == *summary => {}
                Ok(_) => part.fault(owner, "its points do not match its digest"),
                Err(error) => part.fault(owner, error.to_string()),
            }
        }
        let phases = self.tables.chunks.get((key, ""))?;
        part.chunks += 1;
        part.listed += u64::from(phases.is_some());
        match phases.map(|chunk| decode_phases(chunk.value())) {
            Some(Ok(phases)) if Phase::digest_all(&phases) == attempt.phases => {}
            Some(Ok(_)) => part.fault(format!("phases of {owner}"), "they do not match their digest"),
            Some(Err(error)) => part.fault(format!("phases of {owner}"), error.to_string()),
            None => part.fault(format!("phases of {owner}"), "they are missing"),
        }
        Ok(())
    }

    fn check_entries(&self, key: Id, run: &Run, attempt: &Attempt) -> Result<(), StoreError> {
        let (tables, to) = (self.tables, self.to);
        if let Some(table) = &tables.by_run {
            let code = outcome_code(&attempt.outcome);
            to.by_run.expect(|| Ok(table.get((run.id.0.0, key))?.map(|found| found.value() == code)))?;
        }
        if let Some(table) = &tables.nonces {
            let nonce = attempt.nonce.0;
            match table.get(nonce).map(|found| found.map(|found| found.value())) {
                // If an execution has several attempts, its entry is the smallest id.
                Ok(Some(other)) if other < key && self.is_executed_as(other, nonce)? => {}
                found => to.nonces.expect(|| Ok(found?.map(|found| found == key)))?,
            }
        }
        if let Some(table) = &tables.recent {
            let row = encode_row(&index::row(AttemptId(Digest(key)), run, attempt))?;
            let at = (attempt.started_unix_ms, key);
            to.recent.expect(|| Ok(table.get(at)?.map(|found| found.value() == row)))?;
        }
        Ok(())
    }

    fn is_executed_as(&self, id: Id, nonce: [u8; 16]) -> Result<bool, StoreError> {
        let found = self.tables.attempts.get(id)?;
        Ok(found.and_then(|bytes| decode_attempt(bytes.value()).ok()).is_some_and(|found| found.nonce.0 == nonce))
    }

    fn check_measured(&self, key: Id, run: &Run, attempt: &Attempt, part: &mut Part) -> Result<(), StoreError> {
        let (tables, to) = (self.tables, self.to);
        let (model, group) = (run.model(), run.parts.group_id().0.0);
        let owned = |text: &str| text.to_owned();
        if self.with_groups {
            part.groups.insert((group, run.id.0.0));
        }
        let brief = Kept::of(run, attempt)?;
        if let Some(table) = &tables.briefs {
            to.briefs.expect(|| Ok(table.get((model, key))?.map(|found| found.value() == brief.row)))?;
        }
        let of_model = part.shapes.entry(brief.shape).or_default();
        if !of_model.contains(model) {
            of_model.insert(owned(model));
        }
        part.units.extend(attempt.told_units().map(|(metric, unit)| (owned(model), owned(metric), owned(unit))));
        let is_hidden = (self.is_hidden)(&key) || (self.is_hidden)(&run.id.0.0);
        let census = Census::of(attempt, is_hidden);
        let (code, reason) = &census.standing;
        if let Some(table) = &tables.by_model {
            to.by_model.expect(|| Ok(table.get((model, *code, key))?.map(|found| found.value() == reason)))?;
        }
        for metric in census.counted {
            *part.totals.entry((owned(model), owned(metric))).or_default() += 1;
        }
        if let Some(table) = &tables.unmeasured {
            for (metric, kind, reason) in &census.unmeasured {
                let expected = (*kind, reason.as_str());
                to.unmeasured
                    .expect(|| Ok(table.get((model, *metric, key))?.map(|found| found.value() == expected)))?;
            }
        }
        if let Some(table) = &tables.measured
            && *code == 0
        {
            let (at, values) = (member(group, key), pack(Replicate::of(run, attempt), &ranked_metrics(attempt)));
            to.measured.expect(|| Ok(table.get(at.as_slice())?.map(|found| found.value() == values)))?;
        }
        Ok(())
    }
}
