//! The journal of a dead supervisor, read entry by entry so that memory does not grow with it.

use super::fold::{Fold, Folded};
use crate::journal::{self, JournalError};
use crate::record::{Entry, Nonce, Owner, Table};
use crate::store::StoreError;
use std::path::{Path, PathBuf};

/// An attempt, read from its journal.
pub struct Left {
    /// The supervisor that wrote the journal.
    pub owner: Owner,
    /// The nonce of the execution.
    pub nonce: Nonce,
    /// The facts recorded at the start.
    pub facts: Table,
    /// The worker's pid, if it was started.
    pub worker: Option<u32>,
    /// Whether the journal has the attempt's end.
    pub has_ended: bool,
    journal: PathBuf,
    fold: Fold,
    torn_bytes: u64,
}

impl Left {
    /// Reads a journal. If the first entry is not whole, returns the number of bytes instead.
    ///
    /// # Errors
    /// If the journal cannot be read.
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

    /// Finalizes the attempt. `lost` is the reason why its end was not recorded.
    ///
    /// # Errors
    /// If points cannot be read from the file beside the journal.
    pub fn fold(mut self, lost: &str) -> Result<Folded, StoreError> {
        self.fold.take_side(&journal::read_side(&self.journal));
        Ok(self.fold.seal(lost, self.torn_bytes)?)
    }
}
