//! What a merge changes of what this ledger said before: names that mean something else now, attempts that are hidden or shown again.

use super::StoreError;
use super::merge::{Standing, standing};
use super::query::read_target;
use super::seal::{Writer, target_key};
use super::tables::{BY_RUN, HIDDEN, Id, TAGS};
use crate::record::{Change, LogEntry, Target};
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
        held: &HashSet<Id>,
    ) -> Result<Self, StoreError> {
        let mut before = Self { tags: BTreeMap::new(), hidings: Vec::new() };
        let mut seen = HashSet::new();
        let by_run = writer.txn.open_table(BY_RUN)?;
        for entry in entries {
            match (standing(entry), &entry.change) {
                (Some(Standing::Tag(name)), _) => {
                    let target = tag(writer, &name)?;
                    before.tags.extend(target.map(|target| (name, target)));
                }
                (_, Change::Hidden(target) | Change::Unhidden(target)) if seen.insert(target_key(*target)) => {
                    let is_known = match target {
                        Target::Attempt(id) => held.contains(&id.0.0),
                        Target::Run(run) => {
                            let mut attempts = by_run.range((run.0.0, [0; 32])..=(run.0.0, [0xff; 32]))?;
                            attempts.any(|item| item.is_ok_and(|(key, _)| held.contains(&key.value().1)))
                        }
                    };
                    if is_known {
                        before.hidings.push((*target, is_hidden(writer, *target)?));
                    }
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
