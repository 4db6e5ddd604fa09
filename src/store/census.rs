//! An index of which attempts of a model count, and why the others do not, so that answers can count them without
//! reading records.

use super::StoreError;
use super::query::Reader;
use super::tables::{BY_MODEL, Id, TOTALS, UNMEASURED};
use crate::record::{Attempt, AttemptId, Digest, LeftOut, Row, Why};
use redb::{ReadTransaction, ReadableTable, WriteTransaction};
use std::collections::{BTreeMap, BTreeSet};

/// How many attempts of a model count in one metric, and how many do not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number that count.
    pub counted: u64,
    /// The number that do not count, by reason. Attempts without the metric are only counted, without a reason.
    pub left_out: BTreeMap<LeftOut, u64>,
}

/// The index entries of one attempt.
pub(super) struct Census<'a> {
    pub(super) standing: (u8, String),
    /// The metrics that count, and one empty name if the attempt counts.
    pub(super) counted: Vec<&'a str>,
    pub(super) unmeasured: Vec<(&'a str, u8, String)>,
}

impl<'a> Census<'a> {
    pub(super) fn of(attempt: &'a Attempt, hidden: bool) -> Self {
        let standing = match attempt.counts() {
            _ if hidden => (4, String::new()),
            Ok(()) => (0, String::new()),
            Err(LeftOut { why: Why::Failed, reason }) => (1, reason),
            Err(LeftOut { why: Why::Interrupted, reason }) => (2, reason),
            Err(LeftOut { reason, .. }) => (3, reason),
        };
        let mut found = Self { standing, counted: Vec::new(), unmeasured: Vec::new() };
        if found.standing.0 != 0 {
            return found;
        }
        found.counted.push("");
        for (name, metric) in attempt.metrics.iter().filter(|(name, _)| !name.is_empty()) {
            match attempt.judge(name, metric) {
                Ok(_) => found.counted.push(name),
                Err(LeftOut { why, reason }) => {
                    let kind = match why {
                        Why::NotFinite => 1,
                        Why::Tainted => 2,
                        _ => 0,
                    };
                    found.unmeasured.push((name, kind, reason));
                }
            }
        }
        found
    }
}

/// Adds an attempt to the index, or removes the same entries.
pub(super) fn change(
    txn: &WriteTransaction,
    model: &str,
    id: Id,
    attempt: &Attempt,
    hidden: bool,
    add: bool,
) -> Result<(), StoreError> {
    let census = Census::of(attempt, hidden);
    let mut by_model = txn.open_table(BY_MODEL)?;
    let (code, reason) = &census.standing;
    if add {
        by_model.insert((model, *code, id), reason.as_str())?;
    } else {
        by_model.remove((model, *code, id))?;
    }
    let mut totals = txn.open_table(TOTALS)?;
    for metric in census.counted {
        let before = totals.get((model, metric))?.map_or(0, |count| count.value());
        let after = if add { before + 1 } else { before.saturating_sub(1) };
        if after == 0 {
            totals.remove((model, metric))?;
        } else {
            totals.insert((model, metric), after)?;
        }
    }
    let mut unmeasured = txn.open_table(UNMEASURED)?;
    for (metric, kind, reason) in census.unmeasured {
        if add {
            unmeasured.insert((model, metric, id), (kind, reason.as_str()))?;
        } else {
            unmeasured.remove((model, metric, id))?;
        }
    }
    Ok(())
}

fn why_of(standing: u8) -> Why {
    match standing {
        1 => Why::Failed,
        2 => Why::Interrupted,
        4 => Why::Hidden,
        _ => Why::Tainted,
    }
}

/// The attempts of a model that do not count in any metric, each with its reason.
pub(super) fn excluded(txn: &ReadTransaction, model: &str) -> Result<Vec<(AttemptId, LeftOut)>, StoreError> {
    let table = txn.open_table(BY_MODEL)?;
    let range = table.range((model, 1, [0; 32])..=(model, u8::MAX, [0xff; 32]))?;
    range
        .map(|item| {
            let (key, reason) = item?;
            let (_, standing, id) = key.value();
            Ok((AttemptId(Digest(id)), LeftOut { why: why_of(standing), reason: reason.value().to_owned() }))
        })
        .collect()
}

impl Reader<'_> {
    /// Every attempt of a model, or of all models, including hidden ones.
    pub fn of_model(&self, model: Option<&str>) -> Result<Vec<AttemptId>, StoreError> {
        if let Some(model) = model.filter(|_| self.is_current()) {
            let table = self.txn().open_table(BY_MODEL)?;
            let range = table.range((model, 0, [0; 32])..=(model, u8::MAX, [0xff; 32]))?;
            return range.map(|item| Ok(AttemptId(Digest(item?.0.value().2)))).collect();
        }
        let rows = self.recent(0, usize::MAX, true)?.into_iter();
        Ok(rows.filter(|row| model.is_none_or(|model| row.model == model)).map(|row| row.attempt).collect())
    }

    /// Every model, sorted by name.
    pub fn models(&self) -> Result<Vec<String>, StoreError> {
        if !self.is_current() {
            let rows = self.recent(0, usize::MAX, true)?;
            return Ok(rows.into_iter().map(|row| row.model).collect::<BTreeSet<_>>().into_iter().collect());
        }
        let table = self.txn().open_table(BY_MODEL)?;
        let (mut models, mut from) = (Vec::new(), String::new());
        while let Some(item) = table.range((from.as_str(), 0, [0; 32])..)?.next() {
            let model = item?.0.value().0.to_owned();
            // The next possible name.
            from = format!("{model}\0");
            models.push(model);
        }
        Ok(models)
    }

    /// The attempts of a model that count, but not in this metric, each with its reason. Attempts without the metric are
    /// not included.
    pub fn unmeasured(&self, model: &str, metric: &str) -> Result<Vec<(AttemptId, LeftOut)>, StoreError> {
        let table = self.txn().open_table(UNMEASURED)?;
        let range = table.range((model, metric, [0; 32])..=(model, metric, [0xff; 32]))?;
        range
            .map(|item| {
                let (key, value) = item?;
                let (kind, reason) = value.value();
                let why = match kind {
                    1 => Why::NotFinite,
                    2 => Why::Tainted,
                    _ => Why::Missing,
                };
                Ok((AttemptId(Digest(key.value().2)), LeftOut { why, reason: reason.to_owned() }))
            })
            .collect()
    }

    /// Whether a finished attempt is tainted according to the indexes, as a whole or in a metric that every attempt
    /// measures.
    pub fn is_tainted(&self, row: &Row) -> Result<bool, StoreError> {
        /// A disturbance taints all of them, and estimators that disagree taint the energies.
        const MEASURED: [&str; 3] = ["wall_time", "energy", "energy_total"];
        if !self.is_current() {
            return Ok(false);
        }
        let (txn, model, id) = (self.txn(), row.model.as_str(), row.attempt.0.0);
        if txn.open_table(BY_MODEL)?.get((model, 3, id))?.is_some() {
            return Ok(true);
        }
        let unmeasured = txn.open_table(UNMEASURED)?;
        for metric in MEASURED {
            if unmeasured.get((model, metric, id))?.is_some_and(|found| found.value().0 == 2) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The number of attempts of a model that count in a metric; 0 if the indexes are outdated.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub fn counted(&self, model: &str, metric: &str) -> Result<u64, StoreError> {
        if !self.is_current() {
            return Ok(0);
        }
        Ok(self.txn().open_table(TOTALS)?.get((model, metric))?.map_or(0, |count| count.value()))
    }

    /// The numbers of attempts of a model that count in a metric and that do not, with reasons. Empty if the indexes are
    /// outdated.
    pub fn tally(&self, model: &str, metric: &str) -> Result<Tally, StoreError> {
        let mut tally = Tally::default();
        if !self.is_current() {
            return Ok(tally);
        }
        let unmeasured = self.unmeasured(model, metric)?;
        let totals = self.txn().open_table(TOTALS)?;
        let total = |metric| Ok::<_, StoreError>(totals.get((model, metric))?.map_or(0, |count| count.value()));
        tally.counted = total(metric)?;
        let of_metric = u64::try_from(unmeasured.len()).unwrap_or(u64::MAX);
        let absent = total("")?.saturating_sub(tally.counted).saturating_sub(of_metric);
        for (_, left) in excluded(self.txn(), model)?.into_iter().chain(unmeasured) {
            *tally.left_out.entry(left).or_default() += 1;
        }
        if absent > 0 {
            tally.left_out.insert(LeftOut { why: Why::Absent, reason: String::new() }, absent);
        }
        Ok(tally)
    }
}
