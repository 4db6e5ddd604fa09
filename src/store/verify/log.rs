//! Reads the chained log once, and later only its new entries.

use super::super::query::Reader;
use super::super::seal::target_key;
use super::super::tables::{Id, LOG};
use super::super::{StoreError, Verified};
use super::{Fault, Verification};
use crate::record::{Change, Digest};
use crate::wire::decode_log_entry;
use std::collections::{BTreeMap, BTreeSet};

/// The tags, notes, hidden runs and attempts that follow from the log.
pub(super) struct LogState {
    /// The number of entries before the first one that was read.
    pub(super) begin: u64,
    /// The number of entries up to the last one that was read.
    pub(super) end: u64,
    pub(super) head: Digest,
    pub(super) sealed: BTreeSet<Id>,
    /// `None` for a tag that was removed.
    pub(super) tags: BTreeMap<String, Option<(u8, Id)>>,
    pub(super) notes: BTreeMap<(Id, u64), String>,
    /// For each run or attempt that was ever hidden, whether it still is.
    pub(super) hidden: BTreeMap<Id, bool>,
    /// The first missing or damaged entry. Later entries were not read.
    pub(super) fault: Option<Fault>,
}

/// The changes in new entries.
#[derive(Default)]
pub(super) struct News {
    /// Attempts, each with the position of its entry.
    pub(super) attempts: Vec<(u64, Id)>,
    pub(super) changes_hidden: bool,
}

impl LogState {
    /// The state after the entries that were verified before.
    pub(super) fn after(verified: &Verified) -> Self {
        let Verified { entries, head } = *verified;
        Self {
            begin: entries,
            end: entries,
            head,
            sealed: BTreeSet::new(),
            tags: BTreeMap::new(),
            notes: BTreeMap::new(),
            hidden: BTreeMap::new(),
            fault: None,
        }
    }

    pub(super) fn is_hidden(&self, id: &Id) -> bool {
        self.hidden.get(id).copied().unwrap_or(false)
    }

    /// Reads the entries that are new since the last call.
    pub(super) fn read_on(&mut self, reader: &Reader<'_>) -> Result<News, StoreError> {
        let mut news = News::default();
        if self.fault.is_some() {
            return Ok(news);
        }
        let table = reader.txn().open_table(LOG)?;
        for item in table.range(self.end..)? {
            let (position, bytes) = item?;
            let position = position.value();
            let fault = |at: u64, fault: String| Some(Fault { owner: format!("log entry {at}"), fault });
            if position != self.end {
                self.fault = fault(self.end, "it is missing".to_owned());
                return Ok(news);
            }
            let entry = match decode_log_entry(bytes.value()) {
                Ok(entry) => entry,
                Err(error) => {
                    self.fault = fault(position, error.to_string());
                    self.end += 1;
                    return Ok(news);
                }
            };
            self.end += 1;
            self.head = entry.chain(self.head);
            match entry.change {
                Change::Sealed(id) | Change::Imported(id) => {
                    self.sealed.insert(id.0.0);
                    news.attempts.push((position, id.0.0));
                }
                Change::Tagged { name, target } => {
                    self.tags.insert(name, Some(target_key(target)));
                }
                Change::Untagged { name } => {
                    self.tags.insert(name, None);
                }
                Change::Noted { target, text } => {
                    self.notes.insert((target.digest().0, position), text);
                }
                Change::Hidden(target) => {
                    self.hidden.insert(target.digest().0, true);
                    news.changes_hidden = true;
                }
                Change::Unhidden(target) => {
                    self.hidden.insert(target.digest().0, false);
                    news.changes_hidden = true;
                }
                Change::Verdict { .. } => {}
            }
        }
        Ok(news)
    }

    /// Compares the computed head with the stored one.
    pub(super) fn check_head(&self, reader: &Reader<'_>, found: &mut Verification) -> Result<(), StoreError> {
        found.log_entries += self.end - self.begin;
        if let Some(fault) = &self.fault {
            found.faults.push(fault.clone());
            return Ok(());
        }
        let (stored, head) = (reader.log_head()?, self.head);
        if stored != head {
            found.fault("log", format!("its entries chain to {head}, but its head is {stored}"));
        }
        Ok(())
    }
}
