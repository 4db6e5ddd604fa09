//! What a supervisor that is gone left in a journal, read entry by entry: memory does not grow with it.

use super::fold::{Fold, Folded};
use crate::journal::{self, JournalError};
use crate::record::{Entry, Nonce, Owner, Table};
use crate::store::StoreError;
use std::path::{Path, PathBuf};

/// An attempt as its journal tells it.
pub struct Left {
    /// Who wrote it.
    pub owner: Owner,
    /// What the execution is known by.
    pub nonce: Nonce,
    /// What was recorded when it began.
    pub facts: Table,
    /// The worker's process, if it was started.
    pub worker: Option<u32>,
    /// Whether its end was seen.
    pub has_ended: bool,
    journal: PathBuf,
    fold: Fold,
    torn_bytes: u64,
}

impl Left {
    /// Reads a journal. Without a whole first entry, gives the number of its bytes instead.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(journal: &Path) -> Result<Result<Self, u64>, JournalError> {
        let mut left = None;
        let mut is_first = true;
        let torn_bytes = journal::scan(journal, |entry| {
            match &mut left {
                None if is_first => left = Self::open(journal, &entry),
                None => {}
                Some(left) => left.take(&entry),
            }
            is_first = false;
        })?;
        Ok(left.map(|left| Self { torn_bytes, ..left }).ok_or(torn_bytes))
    }

    fn open(journal: &Path, opened: &Entry) -> Option<Self> {
        let Entry::Opened { owner, nonce, facts, .. } = opened else { return None };
        Some(Self {
            owner: owner.clone(),
            nonce: *nonce,
            facts: facts.clone(),
            worker: None,
            has_ended: false,
            journal: journal.to_owned(),
            fold: Fold::open(opened)?.spilling_beside(journal),
            torn_bytes: 0,
        })
    }

    fn take(&mut self, entry: &Entry) {
        match entry {
            Entry::Started { pid } => self.worker = self.worker.or(Some(*pid)),
            Entry::Ended { .. } => self.has_ended = true,
            _ => {}
        }
        self.fold.take(entry);
    }

    /// What it came to. `lost` says why nobody saw the end.
    ///
    /// # Errors
    /// If points cannot be read from the file beside the journal.
    pub fn fold(mut self, lost: &str) -> Result<Folded, StoreError> {
        self.fold.take_side(&journal::read_side(&self.journal));
        Ok(self.fold.seal(lost, self.torn_bytes)?)
    }
}
