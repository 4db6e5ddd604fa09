//! An index of units. If the attempts of a model have a metric in several units, its means in the indexes are not
//! comparable.

use super::StoreError;
use super::query::Reader;
use super::tables::UNITS;
use crate::record::{Attempt, known_metric};
use redb::{ReadableTable, WriteTransaction};

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

impl Reader<'_> {
    /// Whether all attempts of a model have each metric in the same unit, so that the numbers in the indexes are
    /// comparable. For a known metric this is its usual unit.
    pub fn has_one_unit_each(&self, model: &str) -> Result<bool, StoreError> {
        let Some(table) = self.table(UNITS)? else { return Ok(true) };
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
}
