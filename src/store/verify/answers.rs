//! Compares the index entries that are derived from several attempts.

use super::super::StoreError;
use super::super::index::{ordered, place};
use super::super::query::Reader;
use super::super::rank::{Repeated, push_packed};
use super::super::tables::{ATTEMPTS, BY_RUN, GROUPS, Id, RANKING, RUNS, SHAPES, TOTALS, UNITS, VALUES};
use super::compare::{check_table, each_piece, guarded, of_table};
use super::records::Part;
use super::{PIECES, Verification, bounds};
use crate::record::{Digest, GroupId, count};
use crate::wire::{decode_attempt, decode_run, decode_shape};
use redb::ReadableTable;
use std::collections::{BTreeMap, BTreeSet};

/// The key of a place to the number of values.
type Ranking = BTreeMap<Vec<u8>, u32>;

/// A checksum that does not depend on the order of entries.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    entries: u64,
    hashes: u128,
}

impl Sum {
    fn take(&mut self, place: &[u8], n: u32) {
        let digest = Digest::of_pieces("place", &[place, &n.to_le_bytes()]);
        let hash = digest.0.first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes));
        self.entries += 1;
        self.hashes = self.hashes.wrapping_add(hash);
    }

    fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.hashes = self.hashes.wrapping_add(other.hashes);
    }
}

/// Compares the metric indexes.
pub(super) fn check(reader: &Reader<'_>, part: &Part, found: &mut Verification) -> Result<(), StoreError> {
    check_ranking(reader, found)?;
    let txn = reader.txn();
    check_table("totals", &part.totals, found, || {
        let table = txn.open_table(TOTALS)?;
        let mut actual = BTreeMap::new();
        for item in table.iter()? {
            let (key, count) = item?;
            let (model, metric) = key.value();
            actual.insert((model.to_owned(), metric.to_owned()), count.value());
        }
        Ok(actual)
    })?;
    check_table("units", &part.units.iter().map(|unit| (unit.clone(), ())).collect(), found, || {
        let table = txn.open_table(UNITS)?;
        let mut actual = BTreeMap::new();
        for item in table.iter()? {
            let (key, _) = item?;
            let (model, metric, unit) = key.value();
            actual.insert((model.to_owned(), metric.to_owned(), unit.to_owned()), ());
        }
        Ok(actual)
    })?;
    of_table("names", found, |found| check_shapes(reader, &part.shapes, found))?;
    Ok(())
}

/// Checks that each group's run belongs to it and has attempts.
pub(super) fn check_groups(reader: &Reader<'_>, found: &mut Verification) -> Result<(), StoreError> {
    let piece = |piece: usize| {
        guarded(|| {
            let txn = reader.txn();
            let (groups, runs, by_run) = (txn.open_table(GROUPS)?, txn.open_table(RUNS)?, txn.open_table(BY_RUN)?);
            let (low, high) = bounds(piece);
            let (mut entries, mut wrong) = (0u64, Vec::new());
            for item in groups.range(low..=high)? {
                let (group, run) = item?;
                let (group, run) = (group.value(), run.value());
                entries += 1;
                let of_run = runs.get(run)?.and_then(|bytes| decode_run(bytes.value()).ok());
                let has_attempts = by_run.range((run, [0; 32])..=(run, [0xff; 32]))?.next().is_some();
                if !has_attempts || of_run.is_none_or(|run| run.parts.group_id().0.0 != group) {
                    wrong.push(group);
                }
            }
            Ok((entries, wrong))
        })
    };
    let mut all = Vec::new();
    each_piece(0, PIECES, &|| false, &piece, &mut |at, value| all.push((at, value)));
    all.sort_by_key(|(at, _)| *at);
    for (_, result) in all {
        let (entries, wrong) = match result? {
            Ok(checked) => checked,
            Err(fault) => {
                found.fault("table `groups`", fault);
                return Ok(());
            }
        };
        found.index_entries += entries;
        for group in wrong {
            found.fault(format!("group {}", GroupId(Digest(group))), "its run does not belong to it");
        }
    }
    Ok(())
}

/// Compares the ranking with the means over `measured`, which was compared with the records before.
fn check_ranking(reader: &Reader<'_>, found: &mut Verification) -> Result<(), StoreError> {
    let piece = |piece: usize| {
        let mut sum = Sum::default();
        let missing = if piece == PIECES {
            guarded(|| {
                for item in reader.txn().open_table(RANKING)?.iter()? {
                    let (place, n) = item?;
                    sum.take(place.value(), n.value());
                }
                Ok(0)
            })
        } else {
            guarded(|| places(reader, piece, &mut |place, n| sum.take(&place, n)))
        };
        missing.map(|missing| missing.map(|missing| (sum, missing)))
    };
    let (mut expected, mut actual, mut unnamed, mut faults) = (Sum::default(), Sum::default(), 0, Vec::new());
    let mut failed = None;
    each_piece(0, PIECES + 1, &|| false, &piece, &mut |at, result| match result {
        Ok(Ok((sum, _))) if at == PIECES => actual = sum,
        Ok(Ok((sum, missing))) => {
            expected.add(sum);
            unnamed += missing;
        }
        Ok(Err(fault)) => {
            faults.push(if at == PIECES { ("table `places`", fault) } else { ("table `measured`", fault) })
        }
        Err(error) => failed = Some(error),
    });
    failed.map_or(Ok(()), Err)?;
    faults.sort_unstable();
    faults.dedup();
    for (table, fault) in &faults {
        // An unreadable table may have been reported before. It is reported once.
        if !found.faults.iter().any(|known| known.owner == *table) {
            found.fault(*table, fault);
        }
    }
    if unnamed > 0 {
        found.fault("index `groups`", format!("{} missing", count(unnamed, "entry")));
    }
    if !faults.is_empty() {
        return Ok(());
    }
    if actual == expected {
        found.index_entries += actual.entries;
        return Ok(());
    }
    let mut expected = Ranking::new();
    for piece in 0..PIECES {
        places(reader, piece, &mut |place, n| {
            expected.insert(place, n);
        })?;
    }
    check_table("places", &expected, found, || {
        let mut actual = Ranking::new();
        for item in reader.txn().open_table(RANKING)?.iter()? {
            let (place, n) = item?;
            actual.insert(place.value().to_vec(), n.value());
        }
        Ok(actual)
    })
}

/// Calls `give` with the expected places of a piece's groups. Returns the number of groups without a run.
fn places(reader: &Reader<'_>, piece: usize, give: &mut dyn FnMut(Vec<u8>, u32)) -> Result<usize, StoreError> {
    let (low, high) = bounds(piece);
    places_between(reader, &[low, [0; 32]].concat(), &[high, [0xff; 32]].concat(), give)
}

/// Checks the places of one group. Returns the number of missing or wrong ones.
pub(super) fn wrong_places(reader: &Reader<'_>, group: Id) -> Result<usize, StoreError> {
    let table = reader.txn().open_table(RANKING)?;
    let mut expected = Vec::new();
    let unnamed =
        places_between(reader, &[group, [0; 32]].concat(), &[group, [0xff; 32]].concat(), &mut |place, n| {
            expected.push((place, n));
        })?;
    let mut wrong = unnamed;
    for (place, n) in expected {
        wrong += usize::from(table.get(place.as_slice())?.is_none_or(|found| found.value() != n));
    }
    Ok(wrong)
}

fn places_between(
    reader: &Reader<'_>,
    low: &[u8],
    high: &[u8],
    give: &mut dyn FnMut(Vec<u8>, u32),
) -> Result<usize, StoreError> {
    let txn = reader.txn();
    let (values, groups) = (txn.open_table(VALUES)?, txn.open_table(GROUPS)?);
    let (runs, attempts) = (txn.open_table(RUNS)?, txn.open_table(ATTEMPTS)?);
    let mut unnamed = 0;
    let mut finish = |group: Id, attempt: Id, of_group: &BTreeMap<String, Repeated>| -> Result<(), StoreError> {
        let named = groups.get(group)?.map(|run| run.value());
        unnamed += usize::from(named.is_none());
        let run = match named {
            Some(run) => Some(run),
            None => attempts.get(attempt)?.and_then(|bytes| Some(decode_attempt(bytes.value()).ok()?.run.0.0)),
        };
        let run = run.map(|run| runs.get(run)).transpose()?.flatten();
        // A damaged run was reported before.
        let Some(run) = run.and_then(|bytes| decode_run(bytes.value()).ok()) else { return Ok(()) };
        for (metric, repeated) in of_group {
            let mean = repeated.mean();
            if mean.is_finite() {
                give(place(run.model(), metric, ordered(mean), group), repeated.n());
            }
        }
        Ok(())
    };
    let mut now: Option<(Id, Id)> = None;
    let mut of_group: BTreeMap<String, Repeated> = BTreeMap::new();
    for item in values.range(low..=high)? {
        let (key, metrics) = item?;
        let key = key.value();
        let (Some(group), Some(attempt)) = (key.first_chunk(), key.last_chunk()) else { continue };
        if let Some((before, first)) = now
            && before != *group
        {
            finish(before, first, &of_group)?;
            of_group.clear();
            now = None;
        }
        now.get_or_insert((*group, *attempt));
        push_packed(metrics.value(), &mut of_group);
    }
    if let Some((group, first)) = now {
        finish(group, first, &of_group)?;
    }
    Ok(unnamed)
}

fn check_shapes(
    reader: &Reader<'_>,
    expected: &BTreeMap<Id, BTreeSet<String>>,
    found: &mut Verification,
) -> Result<(), StoreError> {
    // Names that no attempt has any more may stay.
    let mut missing: usize = expected.values().map(BTreeSet::len).sum();
    for item in reader.txn().open_table(SHAPES)?.iter()? {
        let (key, names) = item?;
        let (model, shape) = key.value();
        let fault = match decode_shape(names.value()) {
            _ if Digest::of(names.value()).0 != shape => Some("they do not match their digest".to_owned()),
            Err(error) => Some(error.to_string()),
            Ok(_) => None,
        };
        found.index_entries += 1;
        match fault {
            Some(fault) => found.fault(format!("index `names`, names {}", Digest(shape)), fault),
            None => missing -= usize::from(expected.get(&shape).is_some_and(|models| models.contains(model))),
        }
    }
    if missing > 0 {
        found.fault("index `names`", format!("{} missing", count(missing, "entry")));
    }
    Ok(())
}
