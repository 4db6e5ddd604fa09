//! `ledger import`

use super::context::{Context, read_file};
use super::failure::{Failure, exit};
use crate::host::clock;
use crate::record::Value;
use crate::report::{columns, table_of};
use crate::store::Added;
use crate::wire::decode_pack;
use std::path::PathBuf;

/// Take attempts from portable files into the ledger
///
/// Every id and digest is recomputed first; an attempt that the ledger holds already stays as it is.
///
/// Example: ledger import run.ledger
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files that `ledger export` wrote
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let mut packs = Vec::new();
    for path in &args.files {
        let sealed = decode_pack(&read_file(path)?)
            .map_err(|error| Failure::new(exit::USAGE, format!("`{}` is refused: {error}", path.display())))?;
        packs.push((path, sealed));
    }
    let added = context.store().write(|writer| {
        packs.iter().map(|(_, sealed)| writer.import(sealed, clock::unix_ms())).collect::<Result<Vec<_>, _>>()
    })?;
    let state = |added: &Added| if matches!(added, Added::New(_)) { "new" } else { "known" };
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
