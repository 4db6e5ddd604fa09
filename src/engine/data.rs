//! The data of a cell, as it enters the identity: by what it holds, wherever it lies.

use super::bind::{BindError, Refusal, Trainer};
use super::machine::Machine;
use crate::host::files;
use crate::record::{Cell, Digest};
use std::path::{Path, PathBuf};

const IDX_FILES: [&str; 4] =
    ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];
const CIFAR_FILES: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];
const IMAGE_ENDINGS: [&str; 3] = ["jpg", "jpeg", "png"];

/// Puts the digest of the data into the cell: of the files' content, compressed or not, or of what the generator draws.
pub(super) fn bind_data(cell: &mut Cell, trainer: Option<&Trainer>, machine: &Machine) -> Result<(), BindError> {
    let path = PathBuf::from(cell.text("data.path").unwrap_or_default());
    let digest = match cell.text("data.name") {
        Some("idx") => {
            let either = |file: &str| [file.to_owned(), format!("{file}.gz")];
            named(&path, &IDX_FILES, either, " (plain or .gz)", machine)?
        }
        Some("cifar10") => named(&path, &CIFAR_FILES, |file| [file.to_owned(), file.to_owned()], "", machine)?,
        Some("folder") => all(files::below(&path, &IMAGE_ENDINGS)?, machine)?,
        Some("text") if path.is_file() => all(vec![(String::new(), path)], machine)?,
        Some("text") => all(files::below(&path, &["txt"])?, machine)?,
        Some(name) => {
            let drawn = trainer.and_then(|trainer| trainer.generators.iter().find(|(of, _)| *of == name));
            let Some((_, digest)) = drawn else { return Ok(()) };
            *digest
        }
        None => return Ok(()),
    };
    cell.config.insert("data.digest".to_owned(), digest.to_string().into());
    Ok(())
}

/// The digest of files that must be there, each under one of two names.
fn named(
    directory: &Path,
    files: &[&str],
    names: impl Fn(&str) -> [String; 2],
    forms: &str,
    machine: &Machine,
) -> Result<Digest, BindError> {
    let mut found = Vec::new();
    for file in files {
        let path = names(file).iter().map(|name| directory.join(name)).find(|path| path.is_file());
        let missing = || Refusal::NoData { path: directory.to_owned(), file: format!("{file}{forms}") };
        found.push(((*file).to_owned(), path.ok_or_else(missing)?));
    }
    all(found, machine)
}

/// The digest of names and contents.
fn all(files: Vec<(String, PathBuf)>, machine: &Machine) -> Result<Digest, BindError> {
    let paths: Vec<&Path> = files.iter().map(|(_, path)| path.as_path()).collect();
    let contents = machine.contents(&paths)?;
    let pieces: Vec<&[u8]> =
        files.iter().zip(&contents).flat_map(|((name, _), digest)| [name.as_bytes(), digest.0.as_slice()]).collect();
    Ok(Digest::of_pieces("ledger data v1", &pieces))
}
