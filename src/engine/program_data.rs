//! The data of a program that is not ours, as it enters the identity.
//!
//! Nobody knows which files at `data.path` such a program reads, nor how: all of them count, whatever the data is called.

use super::bind::{BindError, Refusal};
use super::data::{DIGEST, DataFiles, PROGRAM};
use super::machine::Machine;
use crate::host::files;
use crate::record::{Cell, Digest};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Deeper than any data set; a link that leads back up ends here.
const DEPTH: usize = 16;

/// Puts the digest of what lies at `data.path` into the cell, if it has one. Gives the files, where they were read.
pub(super) fn bind_program_data(
    cell: &mut Cell,
    is_contained: bool,
    machine: &Machine,
) -> Result<Option<Arc<DataFiles>>, BindError> {
    let Some(path) = cell.text("data.path").map(PathBuf::from) else { return Ok(None) };
    let mut read = None;
    let digest = match machine.told_data() {
        Some(told) => told.clone(),
        // What is not here is the image's, and its digest says what it holds.
        None if is_contained && !path.exists() => {
            Digest::of_pieces("ledger data in an image v1", &[path.as_os_str().as_bytes()]).to_string().into()
        }
        None => {
            let (digest, files) = machine.data(PROGRAM, &path)?;
            read = Some(files);
            digest.to_string().into()
        }
    };
    cell.config.insert(DIGEST.to_owned(), digest);
    Ok(read)
}

/// A file, or all files in a folder and below it by their names from there on, sorted. Hidden ones are left out, links are followed.
pub(super) fn files_at(place: &Path) -> Result<Vec<(String, PathBuf)>, BindError> {
    if place.is_file() {
        return Ok(vec![(String::new(), place.to_owned())]);
    }
    let mut found = Vec::new();
    let mut waiting = Vec::new();
    waiting.extend(place.is_dir().then(|| (String::new(), place.to_owned(), 0)));
    while let Some((prefix, folder, depth)) = waiting.pop() {
        for (name, path) in files::beginning(&folder, "", "")? {
            if name.starts_with('.') {
                continue;
            }
            if path.is_file() {
                found.push((format!("{prefix}{name}"), path));
            } else if path.is_dir() && depth < DEPTH {
                waiting.push((format!("{prefix}{name}/"), path, depth + 1));
            }
        }
    }
    if found.is_empty() {
        return Err(Refusal::NoData { path: place.to_owned(), file: "file".to_owned() }.into());
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::bind::{bind_anchored, rebind};
    use super::*;
    use crate::manifest::Program;
    use crate::record::{Parts, Run, Table};
    use std::fs;

    fn digest(path: &Path, is_contained: bool) -> Result<String, String> {
        let settings = [("data.path".to_owned(), path.display().to_string().into())].into();
        let mut cell = Cell { settings, ..Cell::default() };
        bind_program_data(&mut cell, is_contained, &Machine::default()).map_err(|error| error.to_string())?;
        Ok(cell.text(DIGEST).unwrap().to_owned())
    }

    #[test]
    fn every_file_counts_by_its_name_and_content_wherever_the_folder_lies() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let of = |name: &str| digest(&root.path().join(name), false).unwrap();
        write("a/v", "5");
        write("a/deep/er/w.csv", "6");
        write("b/v", "5");
        write("b/deep/er/w.csv", "6");
        assert_eq!(of("a"), of("b"));
        write("b/.cache", "of some tool");
        assert_eq!(of("a"), of("b"), "hidden ones are nobody's data");
        write("b/deep/er/w.csv", "7");
        assert_ne!(of("a"), of("b"));
        write("b/deep/er/w.csv", "6");
        assert_eq!(of("a"), of("b"));
        fs::rename(root.path().join("b/v"), root.path().join("b/u")).unwrap();
        assert_ne!(of("a"), of("b"));
        let single = of("a/v");
        write("a/v", "8");
        assert_ne!(of("a/v"), single);
    }

    #[test]
    fn data_that_are_nowhere_are_refused_unless_an_image_may_have_them() {
        let root = tempfile::tempdir().unwrap();
        let (gone, other) = (root.path().join("gone"), root.path().join("other"));
        let said = |path: &Path| format!("`data.path` is `{}`, which has no file", path.display());
        assert_eq!(digest(&gone, false), Err(said(&gone)));
        assert_eq!(digest(root.path(), true), Err(said(root.path())), "it is here, and hides the image's");
        assert_ne!(digest(&gone, true).unwrap(), digest(&other, true).unwrap());
        let mut none = Cell::default();
        bind_program_data(&mut none, false, &Machine::default()).unwrap();
        assert_eq!(none, Cell::default());
    }
    #[test]
    fn a_run_that_was_recorded_without_its_data_stays_the_same_run() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("v"), "5").unwrap();
        let here = root.path().display().to_string();
        let settings: Table =
            [("data.path".to_owned(), here.clone().into()), ("program.directory".to_owned(), here.into())].into();
        let config = [("hardware.device".to_owned(), "cpu".into())].into();
        let cell = Cell { config, settings: settings.clone(), seed: 1 };
        let program = Program::new(vec!["sh".to_owned(), "{data.path}".to_owned()], Vec::new()).unwrap();
        let machine = Machine::default();
        let now = bind_anchored(cell, Some(&program), None, &machine).unwrap().run;
        let mut config = now.config().clone();
        assert!(config.remove(DIGEST).is_some());
        let before = Run::new(Parts { config: config.into(), ..now.parts.clone() });
        for recorded in [now, before] {
            assert_eq!(rebind(&recorded, &settings, None, &machine).unwrap().run.id, recorded.id);
        }
    }
}
