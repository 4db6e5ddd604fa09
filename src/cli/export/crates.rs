//! `ledger export --ro-crate DIR`

use super::Args;
use super::foreign::{Fault, chosen, each, failed};
use crate::cli::context::Context;
use crate::cli::failure::{Failure, exit};
use crate::host::{clock, files};
use crate::interop::{CrateOf, Sourced, ro_crate};
use crate::record::SourceText;
use crate::report::{bytes, count, table_of};
use std::fs;
use std::path::Path;

pub(super) fn run(args: &Args, folder: &Path, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    let ids = store.read(|reader| chosen(reader, args))??;
    if ids.is_empty() {
        return Err(Failure::new(exit::NO, "the ledger has no such attempt (`ledger ls` lists what it has)"));
    }
    let mut attempts = Vec::with_capacity(ids.len());
    let read = each(store, &ids, &mut |entry| {
        let attempt = &entry.sealed.attempt;
        let mut sources = Vec::new();
        for (kind, digest) in SourceText::named_by(&attempt.settings, &attempt.facts) {
            let source = store.read(|reader| reader.source(digest, &attempt.facts))?;
            sources.extend(source.map(|source| (kind, source)));
        }
        attempts.push(Sourced { entry, sources });
        Ok(())
    });
    read.map_err(|fault| failed(folder, fault))?;
    let about = CrateOf { author: args.author.clone(), license: args.license.clone(), unix_ms: clock::unix_ms() };
    let written = ro_crate(&attempts, &about).map_err(|error| Failure::new(exit::LEDGER, error))?;
    let refused = |error| failed(folder, Fault::Io(error));
    fs::create_dir(folder).map_err(refused)?;
    let mut size = 0;
    for (path, content) in &written {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).and_then(|()| files::hand_on(&path, content)).map_err(refused)?;
        size += content.len();
    }
    let shown = folder.display().to_string();
    context.answer(
        || {
            let (attempts, files) = (count(attempts.len(), "attempt"), count(written.len(), "file"));
            format!("{shown} {attempts}, {files}, {}\n", bytes(size as u64))
        },
        || {
            table_of([
                ("path", shown.as_str().into()),
                ("attempts", attempts.len().into()),
                ("files", written.len().into()),
            ])
        },
    )?;
    Ok(exit::YES)
}
