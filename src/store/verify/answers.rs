//! Rebuilds the indexes that questions are answered from, and compares.

use super::super::StoreError;
use super::super::brief::Kept;
use super::super::census::Census;
use super::super::index::{member, ordered, pack, place};
use super::super::query::Reader;
use super::super::rank::{Repeated, ranked_metrics};
use super::super::tables::{BRIEFS, BY_MODEL, GROUPS, Id, RANKING, SHAPES, TOTALS, UNITS, UNMEASURED, VALUES};
use super::{Verification, check_table, of_table};
use crate::record::{Attempt, Digest, MetricKind, Replicate, Run, count};
use crate::wire::decode_shape;
use redb::ReadableTable;
use std::collections::{BTreeMap, BTreeSet};

/// What the indexes have to say of one attempt, unless it is hidden.
pub(super) struct Measured {
    id: Id,
    run: Id,
    group: Id,
    model: String,
    standing: (u8, String),
    counted: Vec<String>,
    unmeasured: Vec<(String, u8, String)>,
    replicate: Replicate,
    ranked: Vec<(String, MetricKind, f64)>,
    units: Vec<(String, String)>,
    shape: Id,
    brief: Digest,
}

impl Measured {
    pub(super) fn of(id: Id, run: &Run, attempt: &Attempt) -> Result<Self, StoreError> {
        let brief = Kept::of(run, attempt)?;
        let census = Census::of(attempt, false);
        let owned = |(name, kind, reason): (&str, u8, String)| (name.to_owned(), kind, reason);
        Ok(Self {
            id,
            run: run.id.0.0,
            group: run.parts.group_id().0.0,
            model: run.model().to_owned(),
            standing: census.standing,
            counted: census.counted.into_iter().map(str::to_owned).collect(),
            unmeasured: census.unmeasured.into_iter().map(owned).collect(),
            replicate: Replicate::of(run, attempt),
            ranked: ranked_metrics(attempt)
                .into_iter()
                .map(|(name, kind, value)| (name.to_owned(), kind, value))
                .collect(),
            units: attempt.told_units().map(|(metric, unit)| (metric.to_owned(), unit.to_owned())).collect(),
            shape: brief.shape,
            brief: Digest::of(&brief.row),
        })
    }
}

/// A place to the number of values.
type Ranking = BTreeMap<Vec<u8>, u32>;

#[derive(Default)]
struct Expected {
    by_model: BTreeMap<(String, u8, Id), String>,
    totals: BTreeMap<(String, String), u64>,
    unmeasured: BTreeMap<(String, String, Id), (u8, String)>,
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    groups: BTreeMap<(String, String, Id), Repeated>,
}

impl Expected {
    fn of(measured: &[Measured], hidden: &BTreeSet<Id>) -> Self {
        let mut expected = Self::default();
        for one in measured {
            let model = || one.model.clone();
            if hidden.contains(&one.id) || hidden.contains(&one.run) {
                expected.by_model.insert((model(), 4, one.id), String::new());
                continue;
            }
            let (code, reason) = &one.standing;
            expected.by_model.insert((model(), *code, one.id), reason.clone());
            for metric in &one.counted {
                *expected.totals.entry((model(), metric.clone())).or_default() += 1;
            }
            for (metric, kind, reason) in &one.unmeasured {
                expected.unmeasured.insert((model(), metric.clone(), one.id), (*kind, reason.clone()));
            }
            if one.standing.0 == 0 {
                let metrics: Vec<_> =
                    one.ranked.iter().map(|(name, kind, value)| (name.as_str(), *kind, *value)).collect();
                expected.values.insert(member(one.group, one.id).to_vec(), pack(one.replicate, &metrics));
            }
            for (metric, kind, value) in &one.ranked {
                let group = expected.groups.entry((model(), metric.clone(), one.group)).or_default();
                group.push(one.replicate, *kind, *value);
            }
        }
        expected
    }

    fn ranking(&self) -> Ranking {
        let mut ranking = BTreeMap::new();
        for ((model, metric, group), repeated) in &self.groups {
            let mean = repeated.mean();
            if mean.is_finite() {
                ranking.insert(place(model, metric, ordered(mean), *group), repeated.n());
            }
        }
        ranking
    }
}

pub(super) fn check(
    reader: &Reader<'_>,
    measured: &[Measured],
    hidden: &BTreeSet<Id>,
    found: &mut Verification,
) -> Result<(), StoreError> {
    if !reader.is_current() {
        let note = "the indexes of what is measured are of an older kind, and were not compared (any command that may write makes them anew)";
        found.notes.push(note.to_owned());
        return Ok(());
    }
    let txn = reader.txn();
    let expected = Expected::of(measured, hidden);
    check_table("measured", &expected.values, found, || {
        let table = txn.open_table(VALUES)?;
        let mut actual = BTreeMap::new();
        for item in table.iter()? {
            let (key, metrics) = item?;
            actual.insert(key.value().to_vec(), metrics.value().to_vec());
        }
        Ok(actual)
    })?;
    check_table("places", &expected.ranking(), found, || {
        let table = txn.open_table(RANKING)?;
        let mut actual = BTreeMap::new();
        for item in table.iter()? {
            let (key, n) = item?;
            actual.insert(key.value().to_vec(), n.value());
        }
        Ok(actual)
    })?;
    check_table("by_model", &expected.by_model, found, || {
        let table = txn.open_table(BY_MODEL)?;
        let mut actual = BTreeMap::new();
        for item in table.iter()? {
            let (key, reason) = item?;
            let (model, code, attempt) = key.value();
            actual.insert((model.to_owned(), code, attempt), reason.value().to_owned());
        }
        Ok(actual)
    })?;
    check_table("unmeasured", &expected.unmeasured, found, || {
        let table = txn.open_table(UNMEASURED)?;
        let mut actual = BTreeMap::new();
        for item in table.iter()? {
            let (key, value) = item?;
            let ((model, metric, attempt), (kind, reason)) = (key.value(), value.value());
            actual.insert((model.to_owned(), metric.to_owned(), attempt), (kind, reason.to_owned()));
        }
        Ok(actual)
    })?;
    check_table("totals", &expected.totals, found, || {
        let table = txn.open_table(TOTALS)?;
        let mut actual = BTreeMap::new();
        for item in table.iter()? {
            let (key, count) = item?;
            let (model, metric) = key.value();
            actual.insert((model.to_owned(), metric.to_owned()), count.value());
        }
        Ok(actual)
    })?;
    let told = |one: &Measured| -> Vec<((String, String, String), ())> {
        one.units.iter().map(|(metric, unit)| ((one.model.clone(), metric.clone(), unit.clone()), ())).collect()
    };
    check_table("units", &measured.iter().flat_map(told).collect(), found, || {
        let table = txn.open_table(UNITS)?;
        let mut actual = BTreeMap::new();
        for item in table.iter()? {
            let (key, _) = item?;
            let (model, metric, unit) = key.value();
            actual.insert((model.to_owned(), metric.to_owned(), unit.to_owned()), ());
        }
        Ok(actual)
    })?;
    of_table("groups", found, |found| check_groups(reader, &expected, found))?;
    check_briefs(reader, measured, found)
}

/// A group that has values is named by one of its runs. One whose attempts are all hidden may still be.
fn check_groups(reader: &Reader<'_>, expected: &Expected, found: &mut Verification) -> Result<(), StoreError> {
    let table = reader.txn().open_table(GROUPS)?;
    let mut missing: BTreeSet<Id> = BTreeSet::new();
    for key in expected.values.keys() {
        let Some(group) = key.first_chunk() else { continue };
        if table.get(group)?.is_none() {
            missing.insert(*group);
        }
    }
    if !missing.is_empty() {
        found.fault("index `groups`", format!("{} missing", count(missing.len(), "entry")));
    }
    Ok(())
}

fn check_briefs(reader: &Reader<'_>, measured: &[Measured], found: &mut Verification) -> Result<(), StoreError> {
    let txn = reader.txn();
    let expected = measured.iter().map(|one| ((one.model.clone(), one.id), one.brief)).collect();
    check_table("briefs", &expected, found, || {
        let table = txn.open_table(BRIEFS)?;
        let mut actual = BTreeMap::new();
        for item in table.iter()? {
            let (key, row) = item?;
            let (model, attempt) = key.value();
            actual.insert((model.to_owned(), attempt), Digest::of(row.value()));
        }
        Ok(actual)
    })?;
    of_table("shapes", found, |found| check_shapes(reader, measured, found))?;
    Ok(())
}

fn check_shapes(reader: &Reader<'_>, measured: &[Measured], found: &mut Verification) -> Result<(), StoreError> {
    // Names that nobody has any more may stay.
    let mut actual = BTreeSet::new();
    for item in reader.txn().open_table(SHAPES)?.iter()? {
        let (key, names) = item?;
        let key = Digest(key.value());
        found.index_entries += 1;
        if Digest::of(names.value()) != key {
            found.fault(format!("index `shapes`, names {key}"), "they do not match their digest");
        } else if let Err(error) = decode_shape(names.value()) {
            found.fault(format!("index `shapes`, names {key}"), error.to_string());
        } else {
            actual.insert(key.0);
        }
    }
    let missing = measured.iter().map(|one| one.shape).collect::<BTreeSet<_>>().difference(&actual).count();
    if missing > 0 {
        found.fault("index `shapes`", format!("{} missing", count(missing, "entry")));
    }
    Ok(())
}
