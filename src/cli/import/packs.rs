//! `ledger import FILE…`

use crate::cli::context::{Context, read_file};
use crate::cli::failure::{Failure, exit};
use crate::host::clock;
use crate::record::Value;
use crate::report::{columns, table_of};
use crate::store::Added;
use crate::wire::{Packed, decode_packed};
use std::path::{Path, PathBuf};

pub(in crate::cli) fn run(files: &[PathBuf], context: &Context) -> Result<u8, Failure> {
    let mut packs = Vec::new();
    let mut sources = Vec::new();
    for path in files {
        let packed = read_pack(path)?;
        packs.extend(packed.attempts.into_iter().map(|sealed| (path, sealed)));
        sources.extend(packed.sources);
    }
    let added = context.store().write(|writer| {
        sources.iter().try_for_each(|source| writer.keep(source))?;
        packs.iter().map(|(_, sealed)| writer.unite(sealed, clock::unix_ms())).collect::<Result<Vec<_>, _>>()
    })?;
    context.answer(
        || {
            let rows = packs.iter().zip(&added).map(|((path, sealed), added)| {
                let run = sealed.run.id.0.prefix(8);
                vec![run, added.id().0.prefix(8), state(added).to_owned(), path.display().to_string()]
            });
            columns(&["RUN", "ATTEMPT", "STATE", "FILE"], rows)
        },
        || {
            let items = packs.iter().zip(&added).map(|((path, sealed), added)| {
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

/// Larger packs are refused before they are read (`merge` takes a whole ledger).
const MOST_BYTES: u64 = 1 << 30;

/// Reads a pack and recomputes every id and digest in it.
pub(in crate::cli) fn read_pack(path: &Path) -> Result<Packed, Failure> {
    let refused = |why: String| Failure::new(exit::USAGE, format!("`{}` is refused: {why}", path.display()));
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > MOST_BYTES) {
        return Err(refused("it has more than 1 GiB".to_owned()));
    }
    decode_packed(&read_file(path)?).map_err(|error| refused(error.to_string()))
}

/// `new` or `known`.
pub(super) fn state(added: &Added) -> &'static str {
    if matches!(added, Added::New(_)) { "new" } else { "known" }
}
