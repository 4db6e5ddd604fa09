//! Attempts of the ledger as the file of a pack, written piece by piece.

use super::context::Context;
use super::draft::{Draft, unwritten};
use super::failure::{Failure, exit};
use crate::host::files;
use crate::record::{AttemptId, SourceText};
use crate::store::Store;
use crate::wire::{PackError, PackFile, PackRoom, ToPack, write_pack};
use std::collections::VecDeque;
use std::io::{Error, Seek};
use std::path::Path;

/// So much is read before the ledger is closed again: who wants to write waits no longer than that takes.
const AHEAD_BYTES: usize = 32 << 20;

/// Chunks in the order in which a pack holds them.
pub(super) struct Chunks<'s> {
    store: &'s Store,
    wanted: VecDeque<(AttemptId, String)>,
    read: VecDeque<Result<Vec<u8>, (AttemptId, String)>>,
}

impl<'s> Chunks<'s> {
    pub(super) fn of(attempts: &[ToPack], store: &'s Store) -> Self {
        let of_attempt = |to_pack: &ToPack| {
            let id = to_pack.attempt.id();
            let names: Vec<_> = to_pack.attempt.series.iter().map(|series| (id, series.name.clone())).collect();
            names.into_iter().chain([(id, String::new())])
        };
        Self { store, wanted: attempts.iter().flat_map(of_attempt).collect(), read: VecDeque::new() }
    }

    pub(super) fn next(&mut self) -> Result<Vec<u8>, Error> {
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
            None => Err(Error::other("the ledger has fewer series than before")),
        }
    }
}

/// Writes a pack into a file that must not exist yet: whole, or not at all. Returns its length.
pub(super) fn write(
    path: &Path,
    format: u8,
    (attempts, sources): (&[ToPack], &[SourceText]),
    context: &Context,
) -> Result<u64, Failure> {
    let unwritten = |error: Error| unwritten(path, &error, "choose another name with -o");
    let draft = Draft::file(path).map_err(unwritten)?;
    let mut file = draft.held();
    let mut chunks = Chunks::of(attempts, context.store());
    let written = write_pack(file, format, attempts, sources, &mut || chunks.next());
    let length = written.map_err(|error| match error {
        PackError::Unwritten(error) => unwritten(error),
        PackError::Unread(error) => Failure::new(exit::LEDGER, error),
        error => Failure::new(exit::LEDGER, error),
    })?;
    file.sync_all().and_then(|()| file.rewind()).map_err(unwritten)?;
    // What is written can be read back, by this program at least: nothing is missing, nothing too large.
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match PackFile::read(file, &mut { PackRoom::WHOLE }, &|| files::nameless_in(folder)) {
        Ok(_) => {}
        Err(PackError::Unspooled(error) | PackError::Unread(error)) => {
            let text =
                format!("the pack was not written, since it cannot be checked in `{}`: {error}", folder.display());
            return Err(Failure::new(exit::FAILED, text));
        }
        Err(error) => return Err(Failure::new(exit::LEDGER, format!("the pack would be incomplete: {error}"))),
    }
    draft.finish().map_err(unwritten)?;
    Ok(length)
}
