//! `ledger import FILE…`

use crate::cli::context::{Context, read_file};
use crate::cli::failure::{Failure, exit};
use crate::host::clock;
use crate::record::Value;
use crate::report::{columns, table_of};
use crate::store::Added;
use crate::wire::decode_pack;
use std::path::PathBuf;

pub(super) fn run(files: &[PathBuf], context: &Context) -> Result<u8, Failure> {
    let mut packs = Vec::new();
    for path in files {
        let sealed = decode_pack(&read_file(path)?)
            .map_err(|error| Failure::new(exit::USAGE, format!("`{}` is refused: {error}", path.display())))?;
        packs.push((path, sealed));
    }
    let added = context.store().write(|writer| {
        packs.iter().map(|(_, sealed)| writer.import(sealed, clock::unix_ms())).collect::<Result<Vec<_>, _>>()
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

/// `new` or `known`.
pub(super) fn state(added: &Added) -> &'static str {
    if matches!(added, Added::New(_)) { "new" } else { "known" }
}
