//! `ledger import FILE…`

use crate::cli::context::Context;
use crate::cli::failure::{Failure, exit};
use crate::cli::output::say;
use crate::host::{clock, files};
use crate::record::Value;
use crate::report::{columns, count, table_of};
use crate::store::Added;
use crate::wire::{PACK_MOST_BYTES, PackError, PackFile, PackRoom, PackedAttempt};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub(super) fn run(files: &[PathBuf], context: &Context) -> Result<u8, Failure> {
    take_in(&read_packs(files)?, context)
}

/// Imports all attempts of the packs, or none of them.
pub(in crate::cli) fn take_in(packs: &[(&Path, PackFile)], context: &Context) -> Result<u8, Failure> {
    let attempts: Vec<(&Path, &PackedAttempt)> =
        packs.iter().flat_map(|(path, packed)| packed.attempts.iter().map(move |one| (*path, one))).collect();
    let sources: Vec<_> = packs.iter().flat_map(|(_, packed)| packed.named_sources()).collect();
    let added = context.store().write(|writer| {
        sources.iter().try_for_each(|(_, source)| writer.keep(source))?;
        attempts.iter().map(|(_, one)| writer.unite_packed(one, clock::unix_ms())).collect::<Result<Vec<_>, _>>()
    })?;
    tell_restored(&added);
    context.answer(
        || if attempts.len() > LISTED { counts(packs, &added) } else { each(&attempts, &added) },
        || {
            let items = attempts.iter().zip(&added).map(|((path, one), added)| {
                Value::Table(table_of([
                    ("run", one.sealed.run.id.to_string().into()),
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

/// Reports how many attempts were damaged in the ledger and are replaced.
pub(in crate::cli) fn tell_restored(added: &[Added]) {
    let restored = added.iter().filter(|one| matches!(one, Added::Restored(_))).count();
    if restored > 0 {
        say(&format!("note: {} restored from the pack", count(restored, "damaged attempt")));
    }
}

/// The largest number of attempts that are listed one by one.
const LISTED: usize = 20;

fn each(attempts: &[(&Path, &PackedAttempt)], added: &[Added]) -> String {
    let rows = attempts.iter().zip(added).map(|((path, one), added)| {
        let run = one.sealed.run.id.0.prefix(8);
        vec![run, added.id().0.prefix(8), state(added).to_owned(), path.display().to_string()]
    });
    columns(&["RUN", "ATTEMPT", "STATE", "FILE"], rows)
}

fn counts(packs: &[(&Path, PackFile)], added: &[Added]) -> String {
    let mut added = added.iter();
    let rows = packs.iter().map(|(path, packed)| {
        let own: Vec<&Added> = added.by_ref().take(packed.attempts.len()).collect();
        let new = own.iter().filter(|one| matches!(one, Added::New(_))).count();
        let models: BTreeSet<&str> = packed.attempts.iter().map(|one| one.sealed.run.model()).collect();
        let models: Vec<&str> = models.into_iter().collect();
        vec![new.to_string(), (own.len() - new).to_string(), models.join(", "), path.display().to_string()]
    });
    columns(&[">NEW", ">KNOWN", "MODELS", "FILE"], rows)
}

/// Reads each file once, because a pipe cannot be read again.
pub(in crate::cli) fn read_packs(files: &[PathBuf]) -> Result<Vec<(&Path, PackFile)>, Failure> {
    let mut room = PackRoom::WHOLE;
    let read = |path: &'_ PathBuf| {
        room.renew_points();
        read_within(path, &mut room)
    };
    let packs: Vec<PackFile> = files.iter().map(read).collect::<Result<_, _>>()?;
    Ok(files.iter().map(PathBuf::as_path).zip(packs).collect())
}

/// Reads a pack and recomputes every id and digest in it.
pub(in crate::cli) fn read_pack(path: &Path) -> Result<PackFile, Failure> {
    read_within(path, &mut { PackRoom::WHOLE })
}

fn read_within(path: &Path, room: &mut PackRoom) -> Result<PackFile, Failure> {
    let folder = files::folder_for_large();
    let unread = |error| Failure::new(exit::USAGE, format!("cannot read `{}`: {error}", path.display()));
    let refused = |error: PackError| match error {
        PackError::Unread(error) => unread(error),
        PackError::Unspooled(error) => {
            let (path, folder) = (path.display(), folder.display());
            let text = format!("cannot keep the content of `{path}` in a temporary file in `{folder}`: {error}");
            Failure::new(exit::FAILED, format!("{text} (set TMPDIR to a folder with room for it)"))
        }
        error => Failure::new(exit::USAGE, format!("`{}` is refused: {error}", path.display())),
    };
    let file = std::fs::File::open(path).map_err(unread)?;
    if path.is_dir() {
        let path = path.display();
        return Err(Failure::new(
            exit::USAGE,
            format!("`{path}` is a folder (name the files in it: `{path}/*.ledger`)"),
        ));
    }
    if file.metadata().is_ok_and(|metadata| metadata.len() > PACK_MOST_BYTES) {
        return Err(refused(PackError::Long));
    }
    PackFile::read(file, room, &|| files::nameless_in(&folder)).map_err(refused)
}

pub(super) fn state(added: &Added) -> &'static str {
    match added {
        Added::New(_) => "new",
        Added::Known(_) => "known",
        Added::Restored(_) => "restored",
    }
}
