//! `ledger export --ro-crate DIR`

use super::Args;
use super::foreign::{Fault, chosen, each, failed_with};
use crate::cli::context::Context;
use crate::cli::failure::{Failure, exit};
use crate::host::{clock, files};
use crate::interop::{CrateOf, ResearchObject, Sourced};
use crate::record::{AttemptId, SourceText};
use crate::report::{bytes, count, table_of};
use crate::store::Store;
use std::fs;
use std::io;
use std::path::Path;

pub(super) fn run(args: &Args, folder: &Path, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    let ids = store.read(|reader| chosen(reader, args))??;
    if ids.is_empty() {
        return Err(Failure::new(exit::NO, "the ledger has no such attempt (`ledger ls` lists what it has)"));
    }
    let refused = |fault| failed_with(folder, fault, "--ro-crate with another name makes another one");
    if folder.symlink_metadata().is_ok() {
        return Err(refused(Fault::Io(io::ErrorKind::AlreadyExists.into())));
    }
    // Beside its place until it is whole.
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.with_file_name(format!(".{name}.new-{}", std::process::id()));
    fs::create_dir(&draft).map_err(|error| refused(Fault::Io(error)))?;
    let written = write(store, &ids, args, &draft).and_then(|size| {
        fs::rename(&draft, folder).map_err(Fault::Io)?;
        Ok(size)
    });
    if written.is_err() {
        // What is left of it is of no use.
        let _ = fs::remove_dir_all(&draft);
    }
    let (number, size) = written.map_err(refused)?;
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

/// Writes the files of each attempt as it is read, and their description at the end. Returns how many files and bytes there are.
fn write(store: &Store, ids: &[AttemptId], args: &Args, folder: &Path) -> Result<(usize, u64), Fault> {
    let about = CrateOf { author: args.author.clone(), license: args.license.clone(), unix_ms: clock::unix_ms() };
    let mut made = ResearchObject::new(about);
    let mut size = 0;
    let mut put = |path: &Path, content: &[u8]| {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        size += content.len() as u64;
        fs::create_dir_all(parent).and_then(|()| files::hand_on(&path, content)).map_err(Fault::Io)
    };
    each(store, ids, &mut |entry| {
        let attempt = &entry.sealed.attempt;
        let mut sources = Vec::new();
        for (kind, digest) in SourceText::named_by(&attempt.settings, &attempt.facts) {
            let source = store.read(|reader| reader.source(digest, &attempt.facts))?;
            sources.extend(source.map(|source| (kind, source)));
        }
        let files = made.add(&Sourced { entry, sources }).map_err(|error| Fault::Io(io::Error::other(error)))?;
        files.iter().try_for_each(|(path, content)| put(path, content))
    })?;
    let number = made.files() + 1;
    let (path, content) = made.finish();
    put(&path, &content)?;
    Ok((number, size))
}
