//! What conditions ask of the attempts of a model, without a record being read: one short row each, in the order of their ids.
//!
//! Names stand apart from values, by their digest: attempts of one kind share them. Rows do not say whether an attempt counts; the census does.

use super::StoreError;
use super::census;
use super::tables::{BRIEFS, Id, SHAPES};
use crate::record::{Attempt, AttemptId, Digest, GroupId, LeftOut, Names, Replicate, Run, RunId};
use crate::wire::{Known, Place, Shape, Wanted, WireError, decode_shape, decode_values, encode_brief};
use redb::{AccessGuard, ReadTransaction, ReadableTable, WriteTransaction};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// The names of many attempts, each once.
pub(super) type Shared = Mutex<HashMap<Id, Arc<[u8]>>>;

/// What is kept of one attempt.
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
        let row = [shape.as_slice(), &run.id.0.0, &group, &replicate, &values].concat();
        Ok(Self { group, shape, shape_bytes: shape_bytes.into(), row })
    }

    /// Attempts of one kind hold their names once.
    pub(super) fn share(&mut self, known: &Shared) {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let names = known.entry(self.shape).or_insert_with(|| Arc::clone(&self.shape_bytes));
        self.shape_bytes = Arc::clone(names);
    }
}

/// Enters an attempt.
pub(super) fn insert(txn: &WriteTransaction, run: &Run, id: Id, attempt: &Attempt) -> Result<(), StoreError> {
    let kept = Kept::of(run, attempt)?;
    let mut shapes = txn.open_table(SHAPES)?;
    if shapes.get(kept.shape)?.is_none() {
        shapes.insert(kept.shape, &*kept.shape_bytes)?;
    }
    txn.open_table(BRIEFS)?.insert((run.model(), id), kept.row.as_slice())?;
    Ok(())
}

/// The names that any attempt has; none where the record alone tells of one of them.
pub(super) fn names(txn: &ReadTransaction) -> Result<Option<Names>, StoreError> {
    let mut names = Names::known();
    for item in txn.open_table(SHAPES)?.iter()? {
        let Some(shape) = decode_shape(item?.1.value())? else { return Ok(None) };
        names.add(&shape.names);
    }
    Ok(Some(names))
}

/// The attempts of a model, as far as conditions ask of them.
pub struct Briefs {
    /// In the order of [`Reader::of_model`](super::Reader::of_model).
    rows: Vec<Row>,
    shapes: Vec<Shape>,
}

struct Row {
    attempt: Id,
    shape: usize,
    /// As it lies in the ledger: most of it nobody asks for.
    bytes: AccessGuard<'static, &'static [u8]>,
    left_out: Option<LeftOut>,
}

/// One attempt of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Brief {
    /// Its place among them.
    at: usize,
    /// Its id.
    pub id: AttemptId,
    /// Its run.
    pub run: RunId,
    /// Its run's group.
    pub group: GroupId,
    /// What it is a repetition of.
    pub replicate: Replicate,
    /// Why it does not count at all; none if it does.
    pub left_out: Option<LeftOut>,
    /// The values of the fields that were asked for, then of the metrics if these were.
    pub values: Vec<Known>,
}

impl Briefs {
    /// Those of a model; none if the records alone tell of one of them.
    pub(super) fn read(txn: &ReadTransaction, model: &str) -> Result<Option<Self>, StoreError> {
        let table = txn.open_table(BRIEFS)?;
        let stored = txn.open_table(SHAPES)?;
        let mut found = Self { rows: Vec::new(), shapes: Vec::new() };
        let mut known: HashMap<Id, usize> = HashMap::new();
        for item in table.range((model, [0; 32])..=(model, [0xff; 32]))? {
            let (key, bytes) = item?;
            let (shape, ..) = split(bytes.value()).ok_or(FAULT)?;
            let shape = match known.get(&shape) {
                Some(at) => *at,
                None => {
                    let bytes = stored.get(shape)?.ok_or(FAULT)?;
                    let Some(shape_of_row) = decode_shape(bytes.value())? else { return Ok(None) };
                    found.shapes.push(shape_of_row);
                    known.insert(shape, found.shapes.len() - 1);
                    found.shapes.len() - 1
                }
            };
            found.rows.push(Row { attempt: key.value().1, shape, bytes, left_out: None });
        }
        found.rank(census::excluded(txn, model)?);
        Ok(Some(found))
    }

    /// Puts those that do not count behind those that do.
    fn rank(&mut self, excluded: Vec<(AttemptId, LeftOut)>) {
        let mut excluded: BTreeMap<Id, (usize, LeftOut)> =
            excluded.into_iter().enumerate().map(|(at, (id, left))| (id.0.0, (at + 1, left))).collect();
        if excluded.is_empty() {
            return;
        }
        let mut ranked: Vec<(usize, Row)> = Vec::with_capacity(self.rows.len());
        for mut row in self.rows.drain(..) {
            let (at, left) = excluded.remove(&row.attempt).map_or((0, None), |(at, left)| (at, Some(left)));
            row.left_out = left;
            ranked.push((at, row));
        }
        // Stable: those that count stay in the order of their ids.
        ranked.sort_by_key(|(at, _)| *at);
        self.rows.extend(ranked.into_iter().map(|(_, row)| row));
    }

    /// The names that any of them has.
    pub fn names(&self) -> Names {
        let mut names = Names::default();
        self.shapes.iter().for_each(|shape| names.add(&shape.names));
        names
    }

    /// Each of them with its values of fields of these full names.
    ///
    /// # Errors
    /// If a row does not decode.
    pub fn ask(&self, fields: &[String]) -> Result<Vec<Brief>, StoreError> {
        let wanted = self.wanted(|shape| fields.iter().map(|name| shape.place(name)).collect());
        let ask = |(at, row): (usize, &Row)| {
            let (_, run, group, replicate, values) = split(row.bytes.value()).ok_or(FAULT)?;
            let wanted = wanted.get(row.shape).ok_or(FAULT)?;
            Ok(Brief {
                at,
                id: AttemptId(Digest(row.attempt)),
                run: RunId(Digest(run)),
                group: GroupId(Digest(group)),
                replicate,
                left_out: row.left_out.clone(),
                values: decode_values(values, wanted)?,
            })
        };
        self.rows.iter().enumerate().map(ask).collect()
    }

    /// Puts the values of these metrics behind those of the fields.
    ///
    /// # Errors
    /// If a row does not decode.
    pub fn ask_more<'b>(
        &self,
        briefs: impl IntoIterator<Item = &'b mut Brief>,
        metrics: &[String],
    ) -> Result<(), StoreError> {
        let wanted = self.wanted(|shape| metrics.iter().map(|name| shape.metric(name)).collect());
        for brief in briefs {
            let row = self.rows.get(brief.at).ok_or(FAULT)?;
            let (.., values) = split(row.bytes.value()).ok_or(FAULT)?;
            brief.values.extend(decode_values(values, wanted.get(row.shape).ok_or(FAULT)?)?);
        }
        Ok(())
    }

    fn wanted(&self, places: impl Fn(&Shape) -> Vec<Place>) -> Vec<Wanted> {
        self.shapes.iter().map(|shape| Wanted::new(&places(shape))).collect()
    }
}

const FAULT: WireError =
    WireError::Shape { what: "an attempt's row", fault: "it is cut short, or its names are missing" };

/// Shape, run, group, what it is a repetition of, and values.
fn split(row: &[u8]) -> Option<(Id, Id, Id, Replicate, &[u8])> {
    let (shape, row) = row.split_first_chunk()?;
    let (run, row) = row.split_first_chunk()?;
    let (group, row) = row.split_first_chunk()?;
    let (replicate, values) = row.split_first_chunk()?;
    Some((*shape, *run, *group, Replicate::from_bytes(replicate), values))
}
