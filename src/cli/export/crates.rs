//! `ledger export --ro-crate DIR`

use super::Args;
use super::foreign::{Fault, chosen, each, failed_with, none, points_of, put};
use crate::cli::context::Context;
use crate::cli::draft::Draft;
use crate::cli::failure::{Failure, exit};
use crate::host::{clock, files};
use crate::interop::{CrateOf, ResearchObject, Sink, Sourced};
use crate::record::{AttemptId, SourceText};
use crate::report::{bytes, count, table_of};
use crate::store::{Chunks, Store};
use crate::wire::{PackError, write_pack};
use std::io;
use std::path::Path;

pub(super) fn run(args: &Args, folder: &Path, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    let ids = store.read(|reader| chosen(reader, args))??;
    if ids.is_empty() {
        return Err(none(store, args)?);
    }
    let refused = |fault| failed_with(folder, fault, "--ro-crate with another name makes another one");
    let make = || {
        files::unused(folder).map_err(Fault::Io)?;
        let draft = Draft::folder(folder).map_err(Fault::Io)?;
        let written = write(store, &ids, args, &draft)?;
        draft.finish().map_err(Fault::Io)?;
        Ok(written)
    };
    let (number, size) = make().map_err(refused)?;
    let shown = folder.display().to_string();
    context.answer(
        || {
            let (attempts, files) = (count(ids.len(), "attempt"), count(number, "file"));
            format!("{shown} {attempts}, {files}, {}\n", bytes(size))
        },
        || table_of([("path", shown.as_str().into()), ("attempts", ids.len().into()), ("files", number.into())]),
    )?;
    Ok(exit::YES)
}

/// Writes the files of each attempt as it is read, then their description. Returns the number of files and their total bytes.
fn write(store: &Store, ids: &[AttemptId], args: &Args, draft: &Draft) -> Result<(usize, u64), Fault> {
    let about = CrateOf { author: args.author.clone(), license: args.license.clone(), unix_ms: clock::unix_ms() };
    let mut made = ResearchObject::new(about);
    let mut size = 0;
    each(store, ids, &mut |entry, to_pack| {
        let attempt = &entry.sealed.attempt;
        let mut sources = Vec::new();
        for (kind, digest) in SourceText::named_by(&attempt.settings, &attempt.facts) {
            let source = store.read(|reader| reader.source(digest, &attempt.facts))?;
            sources.extend(source.map(|source| (kind, source)));
        }
        let (attempts, points) = ([to_pack], points_of(store, entry.id));
        let pack = |out: &mut dyn Sink| {
            let mut chunks = Chunks::of(&attempts, store);
            write_pack(out, 1, &attempts, &[], &mut || chunks.next_chunk()).map(drop).map_err(|error| match error {
                PackError::Unwritten(error) | PackError::Unread(error) => error,
                error => io::Error::other(error),
            })
        };
        let sourced = Sourced { entry, points: &points, pack: &pack, sources };
        for file in made.add(&sourced) {
            let bytes = put(draft, &file)?;
            made.sized(&file.path, bytes);
            size += bytes;
        }
        Ok(())
    })?;
    let number = made.files() + 1;
    size += put(draft, &made.finish())?;
    Ok((number, size))
}
