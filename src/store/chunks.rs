//! Reads the series and phases for a pack, a few at a time.

use super::Store;
use crate::record::AttemptId;
use crate::wire::ToPack;
use std::collections::VecDeque;
use std::io::Error;

/// Bytes read before the ledger is closed again. Writers wait no longer than that takes.
const AHEAD_BYTES: usize = 32 << 20;

/// The chunks of attempts, in the order of a pack. The ledger is closed between two reads.
#[derive(Debug)]
pub struct Chunks<'s> {
    store: &'s Store,
    wanted: VecDeque<(AttemptId, String)>,
    read: VecDeque<Result<Vec<u8>, (AttemptId, String)>>,
}

impl<'s> Chunks<'s> {
    /// The chunks of these attempts.
    pub fn of(attempts: &[ToPack], store: &'s Store) -> Self {
        let of_attempt = |to_pack: &ToPack| {
            let id = to_pack.attempt.id();
            let names: Vec<_> = to_pack.attempt.series.iter().map(|series| (id, series.name.clone())).collect();
            names.into_iter().chain([(id, String::new())])
        };
        Self { store, wanted: attempts.iter().flat_map(of_attempt).collect(), read: VecDeque::new() }
    }

    /// The next chunk.
    ///
    /// # Errors
    /// If the ledger cannot be read, or no longer has the chunk.
    pub fn next_chunk(&mut self) -> Result<Vec<u8>, Error> {
        if self.read.is_empty() {
            let (wanted, read) = (&mut self.wanted, &mut self.read);
            self.store
                .read(|reader| {
                    let mut bytes = 0;
                    while bytes < AHEAD_BYTES {
                        let Some((id, name)) = wanted.pop_front() else { break };
                        let chunk = reader.chunk(id, &name)?;
                        bytes += chunk.as_ref().map_or(0, Vec::len);
                        read.push_back(chunk.ok_or((id, name)));
                    }
                    Ok(())
                })
                .map_err(Error::other)?;
        }
        match self.read.pop_front() {
            Some(Ok(chunk)) => Ok(chunk),
            Some(Err((id, name))) => {
                let text = "is missing in the ledger (`ledger verify` names all that is damaged)";
                Err(Error::other(format!("series `{name}` of attempt {} {text}", id.0.prefix(8))))
            }
            None => Err(Error::other("more series are asked for than the attempts have")),
        }
    }
}
