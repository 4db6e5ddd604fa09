//! An index of units. If the attempts of a model have a metric in several units, its means in the indexes are not
//! comparable.

use super::StoreError;
use super::tables::UNITS;
use crate::record::{Attempt, known_metric};
use redb::{ReadTransaction, ReadableTable, TableError, WriteTransaction};

/// Adds the units of an attempt, hidden or not, that are not known from the metrics' names.
pub(super) fn insert(txn: &WriteTransaction, model: &str, attempt: &Attempt) -> Result<(), StoreError> {
    let mut table = txn.open_table(UNITS)?;
    for (metric, unit) in attempt.told_units() {
        if table.get((model, metric, unit))?.is_none() {
            table.insert((model, metric, unit), ())?;
        }
    }
    Ok(())
}

/// Whether every metric of the model has one unit in all attempts. For a known metric this is its usual unit.
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
