//! Writes attempts of the ledger into a pack, piece by piece.

use super::context::Context;
use super::draft::{Draft, unwritten};
use super::failure::{Failure, exit};
use crate::host::files;
use crate::record::SourceText;
use crate::store::Chunks;
use crate::wire::{PackError, PackFile, PackRoom, ToPack, write_pack};
use std::io::{Error, Seek};
use std::path::Path;

/// Writes a pack into a file that must not exist yet, completely or not at all. Returns its length in bytes.
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
    let written = write_pack(file, format, attempts, sources, &mut || chunks.next_chunk());
    let length = written.map_err(|error| match error {
        PackError::Unwritten(error) => unwritten(error),
        PackError::Unread(error) => Failure::new(exit::LEDGER, error),
        error => Failure::new(exit::LEDGER, error),
    })?;
    file.sync_all().and_then(|()| file.rewind()).map_err(unwritten)?;
    // The pack must be readable, at least by this program: nothing is missing or too large.
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
