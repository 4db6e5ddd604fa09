//! The data of a cell, as it enters the identity: by what it holds, wherever it lies.

use super::bind::{BindError, Refusal, Trainer};
use super::machine::Machine;
use crate::host::files;
use crate::record::{Cell, Digest};
use std::path::{Path, PathBuf};

pub(super) const DIGEST: &str = "data.digest";
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

/// Puts the digest of the data into the cell: of the files' content, compressed or not, or of what the generator draws.
pub(super) fn bind_data(cell: &mut Cell, trainer: Option<&Trainer>, machine: &Machine) -> Result<(), BindError> {
    let path = PathBuf::from(cell.text("data.path").unwrap_or_default());
    let is_of_files = matches!(cell.text("data.name"), Some("idx" | "cifar10" | "folder" | "coco" | "text"));
    if let (true, Some(told)) = (is_of_files, machine.told_data()) {
        cell.config.insert(DIGEST.to_owned(), told.clone());
        return Ok(());
    }
    let digest = match cell.text("data.name") {
        Some("idx") => {
            let either = |file: &str| [file.to_owned(), format!("{file}.gz")];
            named(&path, &IDX_FILES, either, " (plain or .gz)", machine)?
        }
        Some("cifar10") => named(&path, &CIFAR_FILES, |file| [file.to_owned(), file.to_owned()], "", machine)?,
        Some("folder") => all(files::pictures(&path)?, machine)?,
        Some("coco") => all(coco(&path)?, machine)?,
        Some("text") if path.is_file() => all(vec![(String::new(), path)], machine)?,
        Some("text") => all(files::texts(&path)?, machine)?,
        Some(name) => {
            let drawn = trainer.and_then(|trainer| trainer.generators.iter().find(|(of, _)| *of == name));
            let Some((_, digest)) = drawn else { return Ok(()) };
            *digest
        }
        None => return Ok(()),
    };
    cell.config.insert(DIGEST.to_owned(), digest.to_string().into());
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

/// The files of a folder that is laid out as COCO's: annotations of training and evaluation, then their pictures, by their names from
/// the folder on.
fn coco(directory: &Path) -> Result<Vec<(String, PathBuf)>, BindError> {
    let only = |folder: &str, begin: &str, end: &str, directories: bool, file: &str| {
        let fits = |path: &Path| if directories { path.is_dir() } else { path.is_file() };
        let found = files::beginning(&directory.join(folder), begin, end)?;
        let mut fitting = found.into_iter().filter(|(_, path)| fits(path));
        match (fitting.next(), fitting.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(BindError::from(Refusal::NoData { path: directory.to_owned(), file: file.to_owned() })),
            (Some((first, _)), Some((second, _))) => {
                let file = format!("single {file}, but `{first}` and `{second}`");
                Err(Refusal::NoData { path: directory.to_owned(), file }.into())
            }
        }
    };
    let mut all = Vec::new();
    for half in ["train", "val"] {
        let annotations = format!("annotations/instances_{half}*.json");
        let (name, path) = only("annotations", &format!("instances_{half}"), ".json", false, &annotations)?;
        all.push((format!("annotations/{name}"), path));
    }
    for half in ["train", "val"] {
        let (name, path) = only("", half, "", true, &format!("folder {half}* of pictures"))?;
        let pictures = files::pictures(&path)?;
        all.extend(pictures.into_iter().map(|(below, path)| (format!("{name}/{below}"), path)));
    }
    Ok(all)
}

/// The digest of names and contents.
fn all(files: Vec<(String, PathBuf)>, machine: &Machine) -> Result<Digest, BindError> {
    let paths: Vec<&Path> = files.iter().map(|(_, path)| path.as_path()).collect();
    let contents = machine.contents(&paths)?;
    let pieces: Vec<&[u8]> =
        files.iter().zip(&contents).flat_map(|((name, _), digest)| [name.as_bytes(), digest.0.as_slice()]).collect();
    Ok(Digest::of_pieces("ledger data v1", &pieces))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Parts, Run, Table, Value};
    use std::fs;

    #[test]
    fn data_that_are_not_to_be_read_are_what_the_record_says() {
        let root = tempfile::tempdir().unwrap();
        let gone = root.path().join("gone").display().to_string();
        let config: Table = [("data.name".to_owned(), "idx".into()), (DIGEST.to_owned(), "ab".into())].into();
        let none = || Value::from("none");
        let run = Run::new(Parts {
            config: config.clone().into(),
            program: none(),
            container: none(),
            cuda: none(),
            driver: none(),
            device: none(),
            seed: 1,
        });
        let settings: Table = [("data.path".to_owned(), gone.into())].into();
        let bound = |machine: &Machine| {
            let config = [("data.name".to_owned(), "idx".into())].into();
            let mut cell = Cell { config, settings: settings.clone(), seed: 1 };
            bind_data(&mut cell, None, machine).map(|()| cell.config)
        };
        assert!(matches!(bound(&Machine::default()), Err(BindError::Refused(Refusal::NoData { .. }))));
        assert_eq!(bound(&Machine::without_git(&run).without_data(&run)).unwrap(), config);
        let silent = Run::new(Parts { config: Table::new().into(), ..run.parts.clone() });
        assert!(bound(&Machine::default().without_data(&silent)).is_ok());
    }

    #[test]
    fn a_folder_of_cocos_layout_is_its_annotations_and_its_pictures() {
        let root = tempfile::tempdir().unwrap();
        let said = || coco(root.path()).unwrap_err().to_string().replace(&root.path().display().to_string(), "ROOT");
        let write = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        };
        assert!(said().starts_with("cannot read `ROOT/annotations`"), "{}", said());
        write("annotations/captions_train2017.json");
        assert_eq!(said(), "`data.path` is `ROOT`, which has no annotations/instances_train*.json");
        write("annotations/instances_train2017.json");
        write("annotations/instances_val2017.json");
        write("train2017.zip");
        write("val2017/2.jpg");
        assert_eq!(said(), "`data.path` is `ROOT`, which has no folder train* of pictures");
        write("train2017/b/1.PNG");
        write("train2017/a.jpg");
        write("train2017/notes.txt");
        write("test2017/9.jpg");
        let names: Vec<String> = coco(root.path()).unwrap().into_iter().map(|(name, _)| name).collect();
        let annotations = ["annotations/instances_train2017.json", "annotations/instances_val2017.json"];
        assert_eq!(names[..2], annotations);
        assert_eq!(names[2..], ["train2017/a.jpg", "train2017/b/1.PNG", "val2017/2.jpg"]);
        fs::create_dir(root.path().join("val2014")).unwrap();
        assert_eq!(
            said(),
            "`data.path` is `ROOT`, which has no single folder val* of pictures, but `val2014` and `val2017`"
        );
    }
}
