//! Reports what a merge changes in this ledger: tags with another target, and runs and attempts that are hidden or
//! shown again.

use super::StoreError;
use super::merge::{Standing, standing};
use super::query::read_target;
use super::seal::{Writer, target_key};
use super::tables::{HIDDEN, TAGS};
use crate::record::{Change, Digest, LogEntry, Target};
use redb::ReadableTable;
use std::collections::{BTreeMap, HashSet};

/// A state of this ledger that a newer entry of another ledger has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overruled {
    /// A tag has another target, or was removed.
    Tag {
        /// The tag's name.
        name: String,
        /// The old target.
        from: Target,
        /// The new target; `None` if the tag was removed.
        to: Option<Target>,
    },
    /// A visible run or attempt is hidden now.
    Hidden(Target),
    /// A hidden run or attempt is visible now.
    Shown(Target),
}

/// The tags and hidings of this ledger before a merge.
pub(super) struct Before {
    tags: BTreeMap<String, Target>,
    hidings: Vec<(Target, bool)>,
}

impl Before {
    /// Records the state of everything that the entries change. Of hidings, only the targets in `held`, which the
    /// ledger had before.
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

    /// The differences after the merge.
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
