//! The origin of attempts according to the log: whether they were imported, and the verdicts of reruns.

use super::StoreError;
use super::query::Reader;
use super::tables::LOG;
use crate::record::{AttemptId, Change, Origin, Repeated};
use crate::wire::decode_log_entry;
use redb::ReadableTable;
use std::collections::{BTreeMap, BTreeSet};

impl Reader<'_> {
    /// The origin of each of these attempts. Reads the log backwards until all of them were added: no earlier entry can
    /// concern them.
    pub fn origins(&self, ids: &BTreeSet<AttemptId>) -> Result<BTreeMap<AttemptId, Origin>, StoreError> {
        let mut origins: BTreeMap<AttemptId, Origin> = ids.iter().map(|id| (*id, Origin::default())).collect();
        let mut open = ids.clone();
        let table = self.txn().open_table(LOG)?;
        for item in table.iter()?.rev() {
            if open.is_empty() {
                break;
            }
            let entry = decode_log_entry(item?.1.value())?;
            match entry.change {
                Change::Sealed(id) => drop(open.remove(&id)),
                Change::Imported(id) => {
                    open.remove(&id);
                    origins.entry(id).and_modify(|origin| origin.is_imported = true);
                }
                Change::Verdict { original, rerun, verdict, detail } => {
                    let repeated = Repeated { unix_ms: entry.unix_ms, original, rerun, verdict, detail };
                    for id in BTreeSet::from([original, rerun]) {
                        origins.entry(id).and_modify(|origin| origin.verdicts.push(repeated.clone()));
                    }
                }
                _ => {}
            }
        }
        // In a merged ledger the entries are not in the order of their times.
        origins.values_mut().for_each(|origin| {
            origin.verdicts.reverse();
            origin.verdicts.sort_by_key(|repeated| repeated.unix_ms);
        });
        Ok(origins)
    }

    /// Whether an attempt came from another ledger.
    pub fn was_imported(&self, id: AttemptId) -> Result<bool, StoreError> {
        Ok(self.origins(&[id].into())?.values().any(|origin| origin.is_imported))
    }
}
