//! What an attempt came to, with all that is kept of it.

use crate::host::clock;
use crate::record::{Sealed, SourceText};
use crate::store::{Added, Store, StoreError};

/// What an attempt's entries came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// What is sealed.
    pub sealed: Sealed,
    /// What the worker wrote, as far as it is kept beside the record.
    pub output: Option<SourceText>,
}

impl Folded {
    /// Seals it in a ledger, with its output.
    ///
    /// # Errors
    /// If the ledger cannot be written.
    pub fn seal(&self, store: &Store) -> Result<Added, StoreError> {
        store.write(|writer| {
            self.output.iter().try_for_each(|output| writer.keep(output))?;
            writer.seal(&self.sealed, clock::unix_ms())
        })
    }
}
