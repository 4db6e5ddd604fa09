//! The finalized record of an attempt, with its series, phases and output.

use crate::host::clock;
use crate::journal::{Kept, Spill};
use crate::record::{Attempt, Run, Sealed, SourceText};
use crate::store::{Added, Store, StoreError};
use crate::wire::{ChunkError, decode_phases, decode_series};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A finalized attempt. Series and phases are encoded and may be in a file, so memory does not grow with them.
#[derive(Debug)]
pub struct Folded {
    /// The run that was executed.
    pub run: Run,
    /// The record of the attempt.
    pub attempt: Attempt,
    /// The stored part of the worker's output.
    pub output: Option<SourceText>,
    /// Series by name. The empty name has the phases.
    pub(super) chunks: BTreeMap<String, Kept>,
    pub(super) spill: Spill,
}

impl Folded {
    /// Seals the attempt in a ledger, with its output.
    ///
    /// # Errors
    /// If the ledger cannot be written.
    pub fn seal(&self, store: &Store) -> Result<Added, StoreError> {
        store.write(|writer| {
            self.output.iter().try_for_each(|output| writer.keep(output))?;
            writer.seal_encoded((&self.run, &self.attempt), &|_, name| self.chunk(name), clock::unix_ms())
        })
    }

    /// Decodes everything into memory.
    ///
    /// # Errors
    /// If a series cannot be read.
    pub fn sealed(self) -> Result<Sealed, ChunkError> {
        let series = self.attempt.series.iter().map(|series| decode_series(&self.chunk(&series.name)?));
        let series = series.collect::<Result<_, _>>()?;
        let phases = decode_phases(&self.chunk("")?)?;
        Ok(Sealed { series, phases, run: self.run, attempt: self.attempt })
    }

    fn chunk(&self, name: &str) -> Result<Cow<'_, [u8]>, ChunkError> {
        let kept = self.chunks.get(name).ok_or(std::io::ErrorKind::NotFound).map_err(std::io::Error::from)?;
        Ok(self.spill.read(kept)?)
    }
}
