//! An index with one short row per attempt, so that conditions can be evaluated without reading records.
//!
//! A row has the values. The names are stored apart under their digest, because similar attempts share them.
//! Whether an attempt counts is not in its row, but in the census.

use super::StoreError;
use super::bulk::in_parallel;
use super::census;
use super::tables::{BRIEFS, Id, SHAPES};
use crate::record::{Attempt, AttemptId, Digest, GroupId, LeftOut, Names, Replicate, Run, RunId};
use crate::wire::{Known, Place, Shape, Wanted, WireError, decode_shape, decode_values, encode_brief};
use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata, WriteTransaction};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Encoded names by their digest, shared by many attempts.
pub(super) type Shared = Mutex<HashMap<Id, Arc<[u8]>>>;

/// The index entries of one attempt.
pub(super) struct Kept {
    pub(super) group: Id,
    pub(super) shape: Id,
    pub(super) shape_bytes: Arc<[u8]>,
    pub(super) row: Vec<u8>,
}

impl Kept {
    pub(super) fn of(run: &Run, attempt: &Attempt) -> Result<Self, StoreError> {
        let (shape_bytes, values) = encode_brief(run, attempt)?;
        let shape = Digest::of(&shape_bytes).0;
        let replicate = Replicate::of(run, attempt).to_bytes();
        let group = run.parts.group_id().0.0;
        let started = attempt.started_unix_ms.to_le_bytes();
        let row = [shape.as_slice(), &run.id.0.0, &group, &replicate, &started, &values].concat();
        Ok(Self { group, shape, shape_bytes: shape_bytes.into(), row })
    }

    /// Replaces this attempt's copy of its names by one that similar attempts share.
    pub(super) fn share(&mut self, known: &Shared) {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let names = known.entry(self.shape).or_insert_with(|| Arc::clone(&self.shape_bytes));
        self.shape_bytes = Arc::clone(names);
    }
}

/// Adds an attempt to the index.
pub(super) fn insert(txn: &WriteTransaction, run: &Run, id: Id, attempt: &Attempt) -> Result<(), StoreError> {
    let kept = Kept::of(run, attempt)?;
    let mut shapes = txn.open_table(SHAPES)?;
    if shapes.get((run.model(), kept.shape))?.is_none() {
        shapes.insert((run.model(), kept.shape), &*kept.shape_bytes)?;
    }
    txn.open_table(BRIEFS)?.insert((run.model(), id), kept.row.as_slice())?;
    Ok(())
}

/// The names of all attempts. `None` if an attempt has more names than the index keeps.
pub(super) fn names(txn: &ReadTransaction) -> Result<Option<Names>, StoreError> {
    let mut names = Names::known();
    for item in txn.open_table(SHAPES)?.iter()? {
        let Some(shape) = decode_shape(item?.1.value())? else { return Ok(None) };
        names.add(&shape.names);
    }
    Ok(Some(names))
}

/// The index rows of a model's attempts.
pub struct Briefs {
    table: ReadOnlyTable<(&'static str, Id), &'static [u8]>,
    model: String,
    shapes: Vec<Shape>,
    /// The index in `shapes`, by the digest of the names.
    places: HashMap<Id, usize>,
    /// The attempts that do not count, numbered from 1 in the order of the census.
    excluded: HashMap<Id, (usize, LeftOut)>,
}

/// One row as it is stored. Its values are decoded on request.
pub struct BriefRow<'r> {
    /// The attempt's id.
    pub id: AttemptId,
    /// The attempt's run.
    pub run: RunId,
    /// The attempt's start, in milliseconds since 1970.
    pub started_unix_ms: i64,
    group: Id,
    replicate: Replicate,
    shape: usize,
    values: &'r [u8],
    excluded: Option<&'r (usize, LeftOut)>,
}

/// The values to read from each row.
pub struct BriefColumns(Vec<Wanted>);

/// One attempt with the requested values.
#[derive(Clone, Debug, PartialEq)]
pub struct Brief {
    /// The attempt's id.
    pub id: AttemptId,
    /// The attempt's run.
    pub run: RunId,
    /// The attempt's start, in milliseconds since 1970.
    pub started_unix_ms: i64,
    /// The run's group.
    pub group: GroupId,
    /// The seed, execution and machine that make it a repetition.
    pub replicate: Replicate,
    /// Why it does not count; `None` if it counts.
    pub left_out: Option<LeftOut>,
    /// The values of the requested fields, then of the requested metrics.
    pub values: Vec<Known>,
    /// 0 if it counts, otherwise its number among the attempts that do not, from 1.
    pub standing: usize,
}

impl Briefs {
    /// Opens the rows of a model. `None` if an attempt has more names than the index keeps.
    pub(super) fn open(txn: &ReadTransaction, model: &str) -> Result<Option<Self>, StoreError> {
        let (mut shapes, mut places) = (Vec::new(), HashMap::new());
        for item in txn.open_table(SHAPES)?.range((model, [0; 32])..=(model, [0xff; 32]))? {
            let (key, names) = item?;
            let Some(shape) = decode_shape(names.value())? else { return Ok(None) };
            places.insert(key.value().1, shapes.len());
            shapes.push(shape);
        }
        let excluded = census::excluded(txn, model)?.into_iter().zip(1..);
        let excluded = excluded.map(|((id, left), at)| (id.0.0, (at, left))).collect();
        Ok(Some(Self { table: txn.open_table(BRIEFS)?, model: model.to_owned(), shapes, places, excluded }))
    }

    /// The names of all attempts of the model.
    pub fn names(&self) -> Names {
        let mut names = Names::default();
        self.shapes.iter().for_each(|shape| names.add(&shape.names));
        names
    }

    /// Selects fields, by their full names, followed by metrics.
    pub fn columns(&self, fields: &[String], metrics: &[String]) -> BriefColumns {
        let places = |shape: &Shape| -> Vec<Place> {
            let of_fields = fields.iter().map(|name| shape.place(name));
            of_fields.chain(metrics.iter().map(|name| shape.metric(name))).collect()
        };
        BriefColumns(self.shapes.iter().map(|shape| Wanted::new(&places(shape))).collect())
    }

    /// Visits all rows on several threads. The rows are divided into ranges of ids, each with a `T` of its own, into which
    /// its rows are collected in their order. The `T`s are in the order of the ids.
    ///
    /// # Errors
    /// If a row does not decode, or if `visit` fails.
    pub fn each<T: Default + Send>(
        &self,
        visit: impl Fn(&mut T, &BriefRow<'_>) -> Result<(), StoreError> + Sync,
    ) -> Result<Vec<T>, StoreError> {
        /// Below this number of attempts in the ledger, one thread is faster.
        const FEW: u64 = if cfg!(test) { 2 } else { 4096 };
        let shares = if self.table.len()? < FEW { 1 } else { 16 };
        let begins = (0..shares).map(|share| u8::try_from(share * 256 / shares).unwrap_or(u8::MAX)).collect();
        let visit_share = |begin: u8| {
            let (mut first, mut last, mut part) = ([0; 32], [0xff; 32], T::default());
            first[0] = begin;
            last[0] = begin + u8::try_from(256 / shares - 1).unwrap_or(u8::MAX);
            self.each_between(first, last, |row| visit(&mut part, row)).map(|()| part)
        };
        in_parallel(begins, &visit_share).into_iter().collect()
    }

    fn each_between(
        &self,
        first: Id,
        last: Id,
        mut visit: impl FnMut(&BriefRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let model = self.model.as_str();
        for item in self.table.range((model, first)..=(model, last))? {
            let (key, row) = item?;
            let Parts { shape, run, group, replicate, started_unix_ms, values } =
                Parts::of(row.value()).ok_or(FAULT)?;
            let id = key.value().1;
            visit(&BriefRow {
                id: AttemptId(Digest(id)),
                run: RunId(Digest(run)),
                started_unix_ms,
                group,
                replicate,
                shape: *self.places.get(&shape).ok_or(FAULT)?,
                values,
                excluded: self.excluded.get(&id),
            })?;
        }
        Ok(())
    }
}

impl BriefRow<'_> {
    /// Replaces the content of `found` by the row's values of these columns.
    ///
    /// # Errors
    /// If the row does not decode.
    pub fn read(&self, columns: &BriefColumns, found: &mut Vec<Known>) -> Result<(), StoreError> {
        Ok(decode_values(self.values, columns.0.get(self.shape).ok_or(FAULT)?, found)?)
    }

    /// An owned copy of the row with its values of these columns.
    ///
    /// # Errors
    /// If the row does not decode.
    pub fn brief(&self, columns: &BriefColumns) -> Result<Brief, StoreError> {
        let mut values = Vec::new();
        self.read(columns, &mut values)?;
        Ok(Brief {
            id: self.id,
            run: self.run,
            started_unix_ms: self.started_unix_ms,
            group: GroupId(Digest(self.group)),
            replicate: self.replicate,
            left_out: self.excluded.map(|(_, left)| left.clone()),
            values,
            standing: self.excluded.map_or(0, |(at, _)| *at),
        })
    }
}

const FAULT: WireError =
    WireError::Shape { what: "an attempt's row", fault: "it is cut short, or its names are missing" };

/// The parts of a row as it is stored.
struct Parts<'r> {
    shape: Id,
    run: Id,
    group: Id,
    replicate: Replicate,
    started_unix_ms: i64,
    values: &'r [u8],
}

impl<'r> Parts<'r> {
    fn of(row: &'r [u8]) -> Option<Self> {
        let (shape, row) = row.split_first_chunk()?;
        let (run, row) = row.split_first_chunk()?;
        let (group, row) = row.split_first_chunk()?;
        let (replicate, row) = row.split_first_chunk()?;
        let (started, values) = row.split_first_chunk()?;
        let replicate = Replicate::from_bytes(replicate);
        let started_unix_ms = i64::from_le_bytes(*started);
        Some(Self { shape: *shape, run: *run, group: *group, replicate, started_unix_ms, values })
    }
}
