//! `ledger import FILE…`

use crate::cli::context::Context;
use crate::cli::failure::{Failure, exit};
use crate::host::clock;
use crate::record::{Sealed, Value};
use crate::report::{columns, table_of};
use crate::store::Added;
use crate::wire::{PACK_MOST_BYTES, PackError, Packed, decode_packed};
use std::io::Read;
use std::path::{Path, PathBuf};

pub(super) fn run(files: &[PathBuf], context: &Context) -> Result<u8, Failure> {
    take_in(&read_packs(files)?, context)
}

/// Takes in all that lies in packs, or nothing of them.
pub(in crate::cli) fn take_in(packs: &[(&Path, Packed)], context: &Context) -> Result<u8, Failure> {
    let attempts: Vec<(&Path, &Sealed)> =
        packs.iter().flat_map(|(path, packed)| packed.attempts.iter().map(move |sealed| (*path, sealed))).collect();
    let added = context.store().write(|writer| {
        let mut sources = packs.iter().flat_map(|(_, packed)| packed.named_sources());
        sources.try_for_each(|(_, source)| writer.keep(source))?;
        attempts.iter().map(|(_, sealed)| writer.unite(sealed, clock::unix_ms())).collect::<Result<Vec<_>, _>>()
    })?;
    context.answer(
        || {
            let rows = attempts.iter().zip(&added).map(|((path, sealed), added)| {
                let run = sealed.run.id.0.prefix(8);
                vec![run, added.id().0.prefix(8), state(added).to_owned(), path.display().to_string()]
            });
            columns(&["RUN", "ATTEMPT", "STATE", "FILE"], rows)
        },
        || {
            let items = attempts.iter().zip(&added).map(|((path, sealed), added)| {
                Value::Table(table_of([
                    ("run", sealed.run.id.to_string().into()),
                    ("attempt", added.id().to_string().into()),
                    ("state", state(added).into()),
                    ("file", path.display().to_string().into()),
                ]))
            });
            table_of([("imported", Value::List(items.collect()))])
        },
    )?;
    Ok(exit::YES)
}

/// Reads each file once: a pipe has nothing to say to who asks again.
pub(in crate::cli) fn read_packs(files: &[PathBuf]) -> Result<Vec<(&Path, Packed)>, Failure> {
    files.iter().map(|path| Ok((path.as_path(), read_pack(path)?))).collect()
}

/// Reads a pack and recomputes every id and digest in it.
pub(in crate::cli) fn read_pack(path: &Path) -> Result<Packed, Failure> {
    let refused = |why: String| Failure::new(exit::USAGE, format!("`{}` is refused: {why}", path.display()));
    let unread = |error| Failure::new(exit::USAGE, format!("cannot read `{}`: {error}", path.display()));
    // What a pipe holds is not told by its length.
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unread)?;
    if file.metadata().is_ok_and(|metadata| metadata.len() > PACK_MOST_BYTES) {
        return Err(refused(PackError::Long.to_string()));
    }
    file.take(PACK_MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unread)?;
    decode_packed(&bytes).map_err(|error| refused(error.to_string()))
}

/// `new` or `known`.
pub(super) fn state(added: &Added) -> &'static str {
    if matches!(added, Added::New(_)) { "new" } else { "known" }
}
