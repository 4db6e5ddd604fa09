//! The ordered metric indexes: `best` reads its answer from them without a scan.
//!
//! Attempts of runs that differ in their seed alone form a group. A group stands in the ranking of a metric by the mean over its
//! finished, visible, untainted attempts; one non-finite value takes the whole group out, since its mean means nothing.

use super::StoreError;
use super::index::{ordered, unordered};
use super::tables::{ATTEMPTS, BY_RUN, GROUPS, HIDDEN, Id, RANKING, RUNS, VALUES};
use crate::record::{Attempt, Digest, Direction, GroupId, Metric, Run, RunId, Target};
use crate::wire::{decode_attempt, decode_run};
use redb::{ReadTransaction, ReadableTable, WriteTransaction};
use std::collections::BTreeMap;

/// A group's place in the ranking of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// The group.
    pub group: GroupId,
    /// One of its runs.
    pub run: RunId,
    /// The mean over its attempts.
    pub mean: f64,
    /// How many attempts the mean is over.
    pub n: u32,
}

fn mean(values: impl Iterator<Item = f64>) -> Option<(f64, u32)> {
    let (sum, n) = values.fold((0.0, 0u32), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| (sum / f64::from(n), n))
}

/// Puts an attempt's metrics into the values and the ranking.
pub(super) fn insert(txn: &WriteTransaction, run: &Run, id: Id, attempt: &Attempt) -> Result<(), StoreError> {
    if !attempt.counts() || is_hidden(txn, run.id.0.0)? || is_hidden(txn, id)? {
        return Ok(());
    }
    change(txn, run, id, &attempt.metrics, true)
}

fn is_hidden(txn: &WriteTransaction, id: Id) -> Result<bool, StoreError> {
    Ok(txn.open_table(HIDDEN)?.get(id)?.is_some())
}

fn change(
    txn: &WriteTransaction,
    run: &Run,
    attempt: Id,
    metrics: &BTreeMap<String, Metric>,
    add: bool,
) -> Result<(), StoreError> {
    let (model, group) = (run.model(), run.parts.group_id().0.0);
    if add {
        // A group is named by a run that has a value in it.
        txn.open_table(GROUPS)?.insert(group, run.id.0.0)?;
    }
    let mut values = txn.open_table(VALUES)?;
    let mut ranking = txn.open_table(RANKING)?;
    for (metric, value) in metrics {
        let Some(value) = value.value else { continue };
        if let Some((mean, _)) = group_mean(&values, group, metric)?
            && mean.is_finite()
        {
            ranking.remove((model, metric.as_str(), ordered(mean), group))?;
        }
        if add {
            values.insert((group, metric.as_str(), attempt), value.to_bits())?;
        } else {
            values.remove((group, metric.as_str(), attempt))?;
        }
        if let Some((mean, n)) = group_mean(&values, group, metric)?
            && mean.is_finite()
        {
            ranking.insert((model, metric.as_str(), ordered(mean), group), n)?;
        }
    }
    Ok(())
}

fn group_mean(
    values: &impl ReadableTable<(Id, &'static str, Id), u64>,
    group: Id,
    metric: &str,
) -> Result<Option<(f64, u32)>, StoreError> {
    let range = values.range((group, metric, [0; 32])..=(group, metric, [0xff; 32]))?;
    let values: Vec<f64> =
        range.map(|item| item.map(|(_, bits)| f64::from_bits(bits.value()))).collect::<Result<_, _>>()?;
    Ok(mean(values.into_iter()))
}

/// Takes what a target names out of the ranking, or puts it back, after `HIDDEN` has been changed.
pub(super) fn refresh(txn: &WriteTransaction, target: Target) -> Result<(), StoreError> {
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
            decode_attempt(bytes.value())?
        };
        let run = {
            let table = txn.open_table(RUNS)?;
            let Some(bytes) = table.get(attempt.run.0.0)? else { continue };
            decode_run(bytes.value())?
        };
        if !attempt.counts() {
            continue;
        }
        let visible = !is_hidden(txn, run.id.0.0)? && !is_hidden(txn, id)?;
        change(txn, &run, id, &attempt.metrics, visible)?;
        if !visible {
            rename(txn, run.parts.group_id().0.0)?;
        }
    }
    Ok(())
}

/// Names a group by the run of an attempt that still has a value in it.
fn rename(txn: &WriteTransaction, group: Id) -> Result<(), StoreError> {
    let attempt = {
        let values = txn.open_table(VALUES)?;
        let mut range = values.range((group, "", [0; 32])..)?;
        match range.next().transpose()? {
            Some((key, _)) if key.value().0 == group => key.value().2,
            _ => return Ok(()),
        }
    };
    let run = {
        let table = txn.open_table(ATTEMPTS)?;
        let Some(bytes) = table.get(attempt)? else { return Ok(()) };
        decode_attempt(bytes.value())?.run
    };
    txn.open_table(GROUPS)?.insert(group, run.0.0)?;
    Ok(())
}

/// The best groups of a model by a metric, best first, at most `limit`.
pub(super) fn best(
    txn: &ReadTransaction,
    model: &str,
    metric: &str,
    direction: Direction,
    limit: usize,
) -> Result<Vec<Ranked>, StoreError> {
    let ranking = txn.open_table(RANKING)?;
    let groups = txn.open_table(GROUPS)?;
    let range = ranking.range((model, metric, 0, [0; 32])..=(model, metric, u64::MAX, [0xff; 32]))?;
    let ranked = |item: Result<(redb::AccessGuard<'_, _>, redb::AccessGuard<'_, u32>), redb::StorageError>| {
        let (key, n) = item?;
        let (_, _, mean, group): (&str, &str, u64, Id) = key.value();
        let run = groups.get(group)?.map(|run| run.value()).unwrap_or_default();
        Ok(Ranked { group: GroupId(Digest(group)), run: RunId(Digest(run)), mean: unordered(mean), n: n.value() })
    };
    match direction {
        Direction::Minimize => range.take(limit).map(ranked).collect(),
        Direction::Maximize => range.rev().take(limit).map(ranked).collect(),
    }
}
