//! What a merge changes of what this ledger said before: names that mean something else now, attempts that are hidden or shown again.

use super::StoreError;
use super::merge::{Standing, standing};
use super::query::read_target;
use super::seal::{Writer, target_key};
use super::tables::{HIDDEN, TAGS};
use crate::record::{Change, Digest, LogEntry, Target};
use redb::ReadableTable;
use std::collections::{BTreeMap, HashSet};

/// Something that this ledger said and that a newer word of another one has overruled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overruled {
    /// A tag means something else, or nothing any more.
    Tag {
        /// Its name.
        name: String,
        /// What it meant.
        from: Target,
        /// What it means; none if it was taken back.
        to: Option<Target>,
    },
    /// What could be seen is hidden.
    Hidden(Target),
    /// What was hidden can be seen.
    Shown(Target),
}

/// What this ledger says before a merge changes it.
pub(super) struct Before {
    tags: BTreeMap<String, Target>,
    hidings: Vec<(Target, bool)>,
}

impl Before {
    /// Of what the entries are about, as far as it was `held` before the merge.
    pub(super) fn of<'a>(
        writer: &Writer<'_>,
        entries: impl Iterator<Item = &'a LogEntry>,
        held: &HashSet<Digest>,
    ) -> Result<Self, StoreError> {
        let mut before = Self { tags: BTreeMap::new(), hidings: Vec::new() };
        let mut seen = HashSet::new();
        for entry in entries {
            match (standing(entry), &entry.change) {
                (Some(Standing::Tag(name)), _) => {
                    let target = tag(writer, &name)?;
                    before.tags.extend(target.map(|target| (name, target)));
                }
                (_, Change::Hidden(target) | Change::Unhidden(target))
                    if held.contains(&target.digest()) && seen.insert(target_key(*target)) =>
                {
                    before.hidings.push((*target, is_hidden(writer, *target)?));
                }
                _ => {}
            }
        }
        Ok(before)
    }

    /// What is otherwise now.
    pub(super) fn overruled(self, writer: &Writer<'_>) -> Result<Vec<Overruled>, StoreError> {
        let mut found = Vec::new();
        for (name, from) in self.tags {
            let to = tag(writer, &name)?;
            if to != Some(from) {
                found.push(Overruled::Tag { name, from, to });
            }
        }
        for (target, was) in self.hidings {
            match (was, is_hidden(writer, target)?) {
                (false, true) => found.push(Overruled::Hidden(target)),
                (true, false) => found.push(Overruled::Shown(target)),
                _ => {}
            }
        }
        Ok(found)
    }
}

fn tag(writer: &Writer<'_>, name: &str) -> Result<Option<Target>, StoreError> {
    Ok(writer.txn.open_table(TAGS)?.get(name)?.map(|target| read_target(target.value())))
}

fn is_hidden(writer: &Writer<'_>, target: Target) -> Result<bool, StoreError> {
    Ok(writer.txn.open_table(HIDDEN)?.get(target.digest().0)?.is_some())
}
