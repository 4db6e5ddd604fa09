//! The listing: a row for each attempt, in the order of start times.

use super::StoreError;
use super::query::Reader;
use super::tables::{Id, RECENT};
use crate::record::{AttemptId, Digest, Row};
use crate::wire::decode_row;
use redb::{ReadableTable, ReadableTableMetadata};
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

/// A row of the listing as it is stored.
pub struct Recent<'r> {
    /// The attempt's start, in milliseconds since 1970, and its id.
    pub key: (i64, AttemptId),
    bytes: &'r [u8],
}

impl Recent<'_> {
    /// Decodes the row.
    ///
    /// # Errors
    /// If it does not decode.
    pub fn row(&self) -> Result<Row, StoreError> {
        Ok(decode_row(self.bytes)?)
    }
}

impl Reader<'_> {
    /// Returns listing rows, newest first: at most `limit` after the first `skip`. Includes hidden ones if
    /// `with_hidden`.
    pub fn recent(&self, skip: usize, limit: usize, with_hidden: bool) -> Result<Vec<Row>, StoreError> {
        let table = self.txn().open_table(RECENT)?;
        let hidden = if with_hidden { BTreeSet::new() } else { self.hidden()? };
        let is_hidden = |row: &Row| hidden.contains(&row.attempt.0) || hidden.contains(&row.run.0);
        if hidden.is_empty() {
            // Skipped rows need not be decoded, and the oldest ones are read from their end.
            let all = usize::try_from(table.len()?).unwrap_or(usize::MAX);
            let newer = skip.min(all);
            let rest = all - newer;
            let (count, older) = (rest.min(limit), rest.saturating_sub(limit));
            let is_nearer_to_the_oldest = older < newer;
            let mut rows: Vec<Row> = if is_nearer_to_the_oldest {
                let items = table.iter()?.skip(older).take(count);
                items.map(|item| Ok(decode_row(item?.1.value())?)).collect::<Result<_, StoreError>>()?
            } else {
                let items = table.iter()?.rev().skip(newer).take(count);
                items.map(|item| Ok(decode_row(item?.1.value())?)).collect::<Result<_, StoreError>>()?
            };
            if is_nearer_to_the_oldest {
                rows.reverse();
            }
            return Ok(rows);
        }
        let (mut rows, mut left) = (Vec::new(), skip);
        for item in table.iter()?.rev() {
            if rows.len() == limit {
                break;
            }
            let row = decode_row(item?.1.value())?;
            match left {
                _ if is_hidden(&row) => {}
                0 => rows.push(row),
                _ => left -= 1,
            }
        }
        Ok(rows)
    }

    /// Calls `visit` for each row, newest first, until it breaks. Rows are decoded on request.
    ///
    /// # Errors
    /// If the ledger cannot be read, or if `visit` fails.
    pub fn each_recent(
        &self,
        mut visit: impl FnMut(&Recent<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        for item in self.txn().open_table(RECENT)?.iter()?.rev() {
            let (key, bytes) = item?;
            let (started, id) = key.value();
            if visit(&Recent { key: (started, AttemptId(Digest(id))), bytes: bytes.value() })?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The listing row of an attempt, by its start in milliseconds since 1970 and its id.
    pub fn row(&self, (started, id): (i64, AttemptId)) -> Result<Option<Row>, StoreError> {
        let table = self.txn().open_table(RECENT)?;
        Ok(table.get((started, id.0.0))?.map(|bytes| decode_row(bytes.value())).transpose()?)
    }

    /// The start of each attempt, in milliseconds since 1970.
    pub fn started(&self) -> Result<HashMap<AttemptId, i64>, StoreError> {
        let table = self.txn().open_table(RECENT)?;
        let started = |key: (i64, Id)| (AttemptId(Digest(key.1)), key.0);
        table.iter()?.map(|item| Ok(started(item?.0.value()))).collect()
    }
}
