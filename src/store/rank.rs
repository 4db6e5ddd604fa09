//! The ordered metric indexes, from which `best` reads its answer without a scan.
//!
//! Attempts of runs that differ only in the seed form a group. The ranking of a metric orders groups by the mean of
//! their visible attempts that count, over independent units (see `record::unit_mean`). A group with a non-finite value
//! has no place in it.

use super::index::{member, ordered, pack, place, placed, unordered, unpack};
use super::query::Reader;
use super::tables::{
    ATTEMPTS, BRIEFS, BY_MODEL, BY_RUN, GROUPS, HIDDEN, Id, OLD_RANKING, OLD_SHAPES, OLD_VALUES, RANKING, RUNS, SHAPES,
    TOTALS, UNITS, UNMEASURED, VALUES,
};
use super::{StoreError, brief, census, units};
use crate::record::{
    Attempt, AttemptId, Digest, Direction, GroupId, LeftOut, Metric, MetricKind, Replicate, Run, RunId, Target, Why,
    unit_mean,
};
use crate::wire::{WireError, decode_attempt, decode_run};
use redb::{ReadableTable, WriteTransaction};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// A group's place in the ranking of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// The group.
    pub group: GroupId,
    /// One of its runs.
    pub run: RunId,
    /// The mean over its attempts.
    pub mean: f64,
    /// The number of attempts in the mean.
    pub n: u32,
}

/// Adds an attempt to every metric index.
pub(super) fn insert(txn: &WriteTransaction, run: &Run, id: Id, attempt: &Attempt) -> Result<(), StoreError> {
    let hidden = is_hidden(txn, run.id.0.0)? || is_hidden(txn, id)?;
    brief::insert(txn, run, id, attempt)?;
    units::insert(txn, run.model(), attempt)?;
    census::change(txn, run.model(), id, attempt, hidden, true)?;
    if hidden { Ok(()) } else { change(txn, run, id, attempt, true) }
}

/// Removes every metric index, including those of older versions.
pub(super) fn clear(txn: &WriteTransaction) -> Result<(), StoreError> {
    txn.delete_table(OLD_VALUES)?;
    txn.delete_table(OLD_RANKING)?;
    txn.delete_table(VALUES)?;
    txn.delete_table(RANKING)?;
    txn.delete_table(GROUPS)?;
    txn.delete_table(BY_MODEL)?;
    txn.delete_table(UNMEASURED)?;
    txn.delete_table(TOTALS)?;
    txn.delete_table(BRIEFS)?;
    txn.delete_table(SHAPES)?;
    txn.delete_table(OLD_SHAPES)?;
    txn.delete_table(UNITS)?;
    Ok(())
}

fn is_hidden(txn: &WriteTransaction, id: Id) -> Result<bool, StoreError> {
    Ok(txn.open_table(HIDDEN)?.get(id)?.is_some())
}

/// The metrics of an attempt that enter means, including non-finite ones.
pub(super) fn ranked_metrics(attempt: &Attempt) -> Vec<(&str, MetricKind, f64)> {
    if attempt.counts().is_err() {
        return Vec::new();
    }
    let value = |name: &str, metric: &Metric| match attempt.judge(name, metric) {
        Ok(value) => Some(value),
        Err(LeftOut { why: Why::NotFinite, .. }) => metric.value,
        Err(_) => None,
    };
    let ranked = attempt.metrics.iter().filter_map(|(name, metric)| Some((name.as_str(), value(name, metric)?)));
    ranked.map(|(name, value)| (name, attempt.metric_kind(name), value)).collect()
}

fn change(txn: &WriteTransaction, run: &Run, id: Id, attempt: &Attempt, add: bool) -> Result<(), StoreError> {
    if attempt.counts().is_err() {
        return Ok(());
    }
    let (model, group) = (run.model(), run.parts.group_id().0.0);
    if add {
        // A group's run is one that has a value in it.
        txn.open_table(GROUPS)?.insert(group, run.id.0.0)?;
    }
    let mut values = txn.open_table(VALUES)?;
    let mut ranking = txn.open_table(RANKING)?;
    let metrics = ranked_metrics(attempt);
    let before = group_means(&values, group)?;
    for (metric, ..) in &metrics {
        if let Some((mean, _)) = before.get(*metric).filter(|(mean, _)| mean.is_finite()) {
            ranking.remove(place(model, metric, ordered(*mean), group).as_slice())?;
        }
    }
    if add {
        values.insert(member(group, id).as_slice(), pack(Replicate::of(run, attempt), &metrics).as_slice())?;
    } else {
        values.remove(member(group, id).as_slice())?;
    }
    let after = group_means(&values, group)?;
    for (metric, ..) in &metrics {
        if let Some((mean, n)) = after.get(*metric).filter(|(mean, _)| mean.is_finite()) {
            ranking.insert(place(model, metric, ordered(*mean), group).as_slice(), *n)?;
        }
    }
    Ok(())
}

/// Every metric's mean over a group, and the number of its attempts. A mean is part of a key, so its bits do not depend
/// on the order of attempts.
pub(super) fn group_means(
    values: &impl ReadableTable<&'static [u8], &'static [u8]>,
    group: Id,
) -> Result<BTreeMap<String, (f64, u32)>, StoreError> {
    let mut found: BTreeMap<String, Repeated> = BTreeMap::new();
    let (low, high) = (member(group, [0; 32]), member(group, [0xff; 32]));
    for item in values.range(low.as_slice()..=high.as_slice())? {
        push_packed(item?.1.value(), &mut found);
    }
    Ok(found.into_iter().map(|(name, repeated)| (name, (repeated.mean(), repeated.n()))).collect())
}

/// Adds the metrics of one attempt, as [`pack`] encodes them, to those of its group.
pub(super) fn push_packed(bytes: &[u8], found: &mut BTreeMap<String, Repeated>) {
    let (replicate, metrics) = unpack(bytes);
    for (name, kind, value) in metrics {
        if !found.contains_key(name) {
            found.insert(name.to_owned(), Repeated::default());
        }
        if let Some(repeated) = found.get_mut(name) {
            repeated.push(replicate, kind, value);
        }
    }
}

/// The values of a metric in one group.
#[derive(Default)]
pub(super) struct Repeated {
    is_measured: bool,
    values: Vec<(Replicate, f64)>,
}

impl Repeated {
    /// Adds a value. The metric is a measured one if it is measured in any attempt.
    fn push(&mut self, replicate: Replicate, kind: MetricKind, value: f64) {
        self.is_measured |= kind == MetricKind::Measured;
        self.values.push((replicate, value));
    }

    pub(super) fn mean(&self) -> f64 {
        let kind = if self.is_measured { MetricKind::Measured } else { MetricKind::Outcome };
        unit_mean(kind, &self.values)
    }

    pub(super) fn n(&self) -> u32 {
        u32::try_from(self.values.len()).unwrap_or(u32::MAX)
    }
}

/// Removes a target's attempts from the indexes or adds them again, after its entry in `HIDDEN` has changed. Returns
/// false if one of them does not decode, because its entries in the indexes are unknown.
pub(super) fn refresh(txn: &WriteTransaction, target: Target) -> Result<bool, StoreError> {
    let attempts: Vec<Id> = match target {
        Target::Attempt(id) => vec![id.0.0],
        Target::Run(id) => {
            let by_run = txn.open_table(BY_RUN)?;
            let range = by_run.range((id.0.0, [0; 32])..=(id.0.0, [0xff; 32]))?;
            range.map(|item| item.map(|(key, _)| key.value().1)).collect::<Result<_, _>>()?
        }
    };
    for id in attempts {
        let attempt = {
            let table = txn.open_table(ATTEMPTS)?;
            let Some(bytes) = table.get(id)? else { continue };
            let Ok(attempt) = decode_attempt(bytes.value()) else { return Ok(false) };
            attempt
        };
        let run = {
            let table = txn.open_table(RUNS)?;
            let Some(bytes) = table.get(attempt.run.0.0)? else { continue };
            let Ok(run) = decode_run(bytes.value()) else { return Ok(false) };
            run
        };
        let otherwise = match target {
            Target::Attempt(_) => is_hidden(txn, run.id.0.0)?,
            Target::Run(_) => is_hidden(txn, id)?,
        };
        if otherwise {
            // Hidden before and after.
            continue;
        }
        let hidden = is_hidden(txn, target.digest().0)?;
        census::change(txn, run.model(), id, &attempt, !hidden, false)?;
        census::change(txn, run.model(), id, &attempt, hidden, true)?;
        change(txn, &run, id, &attempt, !hidden)?;
        if hidden {
            rename(txn, run.parts.group_id().0.0)?;
        }
    }
    Ok(true)
}

/// Sets a group's run to that of an attempt that still has a value in it.
fn rename(txn: &WriteTransaction, group: Id) -> Result<(), StoreError> {
    let attempt: Id = {
        let values = txn.open_table(VALUES)?;
        let (low, high) = (member(group, [0; 32]), member(group, [0xff; 32]));
        let mut found = None;
        for item in values.range(low.as_slice()..=high.as_slice())? {
            let (key, bytes) = item?;
            if unpack(bytes.value()).1.next().is_some() {
                found = key.value().get(32..).and_then(|id| id.try_into().ok());
                break;
            }
        }
        let Some(found) = found else { return Ok(()) };
        found
    };
    let run = {
        let table = txn.open_table(ATTEMPTS)?;
        let Some(bytes) = table.get(attempt)? else { return Ok(()) };
        let Ok(attempt) = decode_attempt(bytes.value()) else { return Ok(()) };
        attempt.run
    };
    txn.open_table(GROUPS)?.insert(group, run.0.0)?;
    Ok(())
}

impl Reader<'_> {
    /// Calls `visit` for the groups of a model, best first by a metric, until it breaks.
    pub fn walk(
        &self,
        model: &str,
        metric: &str,
        direction: Direction,
        visit: &mut dyn FnMut(Ranked) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let Some(ranking) = self.table(RANKING)? else { return Ok(()) };
        let groups = self.txn().open_table(GROUPS)?;
        let (low, high) = (place(model, metric, 0, [0; 32]), place(model, metric, u64::MAX, [0xff; 32]));
        let mut range = ranking.range(low.as_slice()..=high.as_slice())?;
        loop {
            let item = match direction {
                Direction::Minimize => range.next(),
                Direction::Maximize => range.next_back(),
            };
            let Some(item) = item else { return Ok(()) };
            let (key, n) = item?;
            if visit(ranked(&groups, key.value(), n.value())?)?.is_break() {
                return Ok(());
            }
        }
    }

    /// At most `limit` groups of a model, best first by a metric. Of groups with equal means those with the smaller ids
    /// are returned.
    pub fn best(
        &self,
        model: &str,
        metric: &str,
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<Ranked>, StoreError> {
        let mut found = Vec::new();
        self.walk(model, metric, direction, &mut |ranked| {
            if found.len() < limit {
                found.push(ranked);
            }
            Ok(if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        if let Some(cut) = found.last().map(|last: &Ranked| ordered(last.mean))
            && direction == Direction::Maximize
        {
            // Read from its end, the ranking has groups with equal means with the largest id first.
            let is_above = |ranked: &Ranked| ordered(ranked.mean) != cut;
            let wanted = found.len();
            found.retain(is_above);
            let ranking = self.txn().open_table(RANKING)?;
            let groups = self.txn().open_table(GROUPS)?;
            let (low, high) = (place(model, metric, cut, [0; 32]), place(model, metric, cut, [0xff; 32]));
            for item in ranking.range(low.as_slice()..=high.as_slice())?.take(wanted - found.len()) {
                let (key, n) = item?;
                found.push(ranked(&groups, key.value(), n.value())?);
            }
        }
        Ok(found)
    }

    /// The values of a metric in a group, by attempt. Attempts that do not count have none.
    pub fn values(&self, group: GroupId, metric: &str) -> Result<Vec<(AttemptId, f64)>, StoreError> {
        let Some(table) = self.table(VALUES)? else { return Ok(Vec::new()) };
        let (low, high) = (member(group.0.0, [0; 32]), member(group.0.0, [0xff; 32]));
        let mut found = Vec::new();
        for item in table.range(low.as_slice()..=high.as_slice())? {
            let (key, bytes) = item?;
            let value = unpack(bytes.value()).1.find(|(name, ..)| *name == metric).map(|(.., value)| value);
            if let Some(value) = value
                && let Some(id) = key.value().get(32..).and_then(|id| id.try_into().ok())
            {
                found.push((AttemptId(Digest(id)), value));
            }
        }
        Ok(found)
    }

    /// The mean of a metric over a group, as the ranking has it. `None` if no attempt has a value that counts, or one
    /// is not finite.
    pub fn mean(&self, group: GroupId, metric: &str) -> Result<Option<f64>, StoreError> {
        let Some(table) = self.table(VALUES)? else { return Ok(None) };
        let means = group_means(&table, group.0.0)?;
        Ok(means.get(metric).map(|(mean, _)| *mean).filter(|mean| mean.is_finite()))
    }

    /// Every model that has a ranking, with its metrics.
    pub fn ranked_metrics(&self) -> Result<BTreeMap<String, BTreeSet<String>>, StoreError> {
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let Some(table) = self.table(RANKING)? else { return Ok(found) };
        let mut from = Vec::new();
        // One look-up for each model and metric, not for each group: skips all further keys of both.
        loop {
            let Some(item) = table.range(from.as_slice()..)?.next() else { return Ok(found) };
            let (key, _) = item?;
            let (model, metric, ..) = placed(key.value()).ok_or(FAULT)?;
            found.entry(model.to_owned()).or_default().insert(metric.to_owned());
            from = place(model, metric, u64::MAX, [0xff; 32]);
            from.push(0);
        }
    }
}

fn ranked(groups: &impl ReadableTable<Id, Id>, key: &[u8], n: u32) -> Result<Ranked, StoreError> {
    let (_, _, mean, group) = placed(key).ok_or(FAULT)?;
    let run = groups.get(group)?.map(|run| run.value()).unwrap_or_default();
    Ok(Ranked { group: GroupId(Digest(group)), run: RunId(Digest(run)), mean: unordered(mean), n })
}

const FAULT: WireError = WireError::Shape { what: "a place in a ranking", fault: "it is cut short" };
