//! Whether the attempts of a model state each metric in one unit: where they do not, means of the indexes are of numbers that do not compare.

use super::StoreError;
use super::tables::UNITS;
use crate::record::{Attempt, known_metric};
use redb::{ReadTransaction, ReadableTable, TableError, WriteTransaction};

/// Enters the units that have to be told of an attempt, hidden or not.
pub(super) fn insert(txn: &WriteTransaction, model: &str, attempt: &Attempt) -> Result<(), StoreError> {
    let mut table = txn.open_table(UNITS)?;
    for (metric, unit) in attempt.told_units() {
        if table.get((model, metric, unit))?.is_none() {
            table.insert((model, metric, unit), ())?;
        }
    }
    Ok(())
}

/// Whether every metric of the model is in one unit: a known one in its own, others in whatever it is.
pub(super) fn are_uniform(txn: &ReadTransaction, model: &str) -> Result<bool, StoreError> {
    let table = match txn.open_table(UNITS) {
        Ok(table) => table,
        // Nothing was sealed yet.
        Err(TableError::TableDoesNotExist(_)) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    let mut before = String::new();
    for item in table.range((model, "", "")..)? {
        let (key, _) = item?;
        let (of, metric, _) = key.value();
        if of != model {
            break;
        }
        if known_metric(metric).is_some() || before == metric {
            return Ok(false);
        }
        metric.clone_into(&mut before);
    }
    Ok(true)
}
