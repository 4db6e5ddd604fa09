//! A report's folder, which appears once it is complete and removes no files that it did not write.

use crate::cli::draft::{Draft, beside, in_real_folder, sweep, unwritten, used_up};
use crate::cli::failure::{Failure, exit};
use crate::host::files;
use crate::record::{Digest, DigestWriter, first_of};
use crate::report::MARKER;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// The first line of the marker file. A line with digest and path follows for each file.
const HEAD: &str = "A report by `ledger report`, which replaces these files (BLAKE3) and no others:";
/// The largest number of unknown files that are listed.
const NAMED: usize = 3;
/// The word in the temporary name of a report that is being replaced.
const OLD: &str = "old";

/// A report's folder that is not at its final place yet; it is removed if it is not finished.
pub(super) struct Folder {
    draft: Draft,
    written: BTreeMap<String, Digest>,
    /// Hashers of files that are written in pieces.
    growing: BTreeMap<String, DigestWriter>,
}

fn usage(text: String) -> Failure {
    Failure::new(exit::USAGE, text)
}

/// Renames a folder to the first unused name beside it.
fn move_aside(place: &Path) -> Result<PathBuf, Error> {
    for path in beside(place, OLD) {
        match files::rename_new(place, &path) {
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty) => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(path),
        }
    }
    Err(used_up())
}

impl Folder {
    /// Begins a folder. An existing report is replaced if its files are unchanged, and any other folder only with
    /// `force`. The current folder and the ledger are never replaced.
    pub(super) fn new(place: &Path, force: bool, ledger: &Path) -> Result<Self, Failure> {
        let place = in_real_folder(place).map_err(|error| unwritten(place, &error, ""))?;
        if let Ok(found) = fs::symlink_metadata(&place) {
            if !found.is_dir() {
                return Err(usage(format!("`{}` is not a folder (-o names another one)", place.display())));
            }
            replaceable(&place, force, ledger)?;
            // Another process has created the folder after it moved older ones aside.
            sweep(&place, OLD);
        }
        let make = || {
            let draft = Draft::folder(&place)?;
            ["runs", "figures", "data"].iter().try_for_each(|name| draft.make_folder(Path::new(name)))?;
            Ok(Self { draft, written: BTreeMap::new(), growing: BTreeMap::new() })
        };
        make().map_err(|error| unwritten(&place, &error, ""))
    }

    /// Writes a file of the report.
    pub(super) fn write(&mut self, path: &str, content: &[u8]) -> Result<(), Failure> {
        let put = self.draft.put(Path::new(path), content);
        put.map_err(|error| unwritten(self.draft.place(), &error, ""))?;
        self.written.insert(path.to_owned(), Digest::of(content));
        Ok(())
    }

    /// Appends to a file of the report, which the first call creates.
    pub(super) fn append(&mut self, path: &str, content: &[u8]) -> Result<(), Failure> {
        let hasher = self.growing.entry(path.to_owned()).or_default();
        hasher.write(content);
        let added = self.draft.append(Path::new(path), content);
        added.map_err(|error| unwritten(self.draft.place(), &error, ""))
    }

    /// Moves the folder to its place. The replaced report is removed only after that.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.written.extend(self.growing.into_iter().map(|(path, hasher)| (path, hasher.finish())));
        let lines = self.written.iter().map(|(path, digest)| format!("{digest}  {path}\n"));
        let marker = format!("{HEAD}\n{}", lines.collect::<String>());
        let place = self.draft.place().to_owned();
        let failed = |error: Error| unwritten(&place, &error, "");
        self.draft.put(Path::new(MARKER), marker.as_bytes()).map_err(failed)?;
        let moved = self.draft.finish_by(|new, place| {
            let old = if place.exists() { Some(move_aside(place)?) } else { None };
            if let Err(error) = files::rename_new(new, place) {
                if let Some(old) = &old {
                    // The first failure is reported, whether or not this succeeds.
                    let _ = fs::rename(old, place);
                }
                return Err(error);
            }
            Ok(old)
        });
        if let Some(old) = &moved.map_err(failed)? {
            fs::remove_dir_all(old).map_err(|error| unwritten(old, &error, ""))?;
        }
        // A process that was killed between its two renames left the previous report under a temporary name.
        sweep(&place, OLD);
        Ok(())
    }
}

/// Checks that an existing folder may be replaced.
fn replaceable(place: &Path, force: bool, ledger: &Path) -> Result<(), Failure> {
    let failed = |error: Error| unwritten(place, &error, "");
    let full = fs::canonicalize(place).map_err(failed)?;
    let here = std::env::current_dir().map_err(failed)?;
    for (path, what) in [(here.as_path(), "the current folder"), (ledger, "the ledger")] {
        if fs::canonicalize(path).is_ok_and(|path| path.starts_with(&full)) {
            let text =
                format!("`{}` is or holds {what}, and is left unchanged (-o names another one)", place.display());
            return Err(usage(text));
        }
    }
    if fs::read_dir(place).map_err(failed)?.next().is_none() {
        return Ok(());
    }
    if fs::canonicalize(ledger).is_ok_and(|ledger| full.starts_with(ledger)) {
        return Err(usage(format!("`{}` is a part of the ledger, and is left unchanged", place.display())));
    }
    if force {
        return Ok(());
    }
    let Some(known) = listed(place) else {
        return Err(usage(format!(
            "`{}` is not a report, and is left unchanged (--force replaces it)",
            place.display()
        )));
    };
    let mut strangers = Vec::new();
    gather(place, "", &known, &mut strangers).map_err(failed)?;
    if strangers.is_empty() {
        return Ok(());
    }
    strangers.sort();
    let named = first_of(strangers.iter().map(|path| format!("`{path}`")), NAMED);
    Err(usage(format!(
        "`{}` is left unchanged: files that are not of the report, or changed since: {named} (--force removes them too)",
        place.display()
    )))
}

/// Returns the files of a report with their digests, as its marker lists them. Returns `None` without a marker.
fn listed(place: &Path) -> Option<BTreeMap<String, Digest>> {
    let marker = fs::symlink_metadata(place.join(MARKER)).is_ok_and(|found| found.is_file());
    let text = marker.then(|| fs::read_to_string(place.join(MARKER)).ok()).flatten()?;
    let line = |line: &str| {
        let (digest, path) = line.split_once("  ")?;
        Some((path.to_owned(), digest.parse().ok()?))
    };
    Some(text.lines().skip(1).filter_map(line).collect())
}

/// Collects the files of a folder that are unknown or changed.
fn gather(
    folder: &Path,
    before: &str,
    known: &BTreeMap<String, Digest>,
    strangers: &mut Vec<String>,
) -> Result<(), Error> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{before}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let inner = format!("{path}/");
            let is_ours = known.keys().any(|name| name.starts_with(&inner))
                || ["runs", "figures", "data"].contains(&path.as_str());
            if is_ours { gather(&entry.path(), &inner, known, strangers)? } else { strangers.push(inner) }
        } else if path != MARKER {
            let digest = known.get(&path).filter(|_| kind.is_file());
            let is_same = match digest {
                Some(digest) => Digest::of(&fs::read(entry.path())?) == *digest,
                None => false,
            };
            if !is_same {
                strangers.push(path);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_left_by_a_process_with_the_same_id_do_not_prevent_a_report() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("site");
        for round in ["one", "two"] {
            for what in ["new", "old"] {
                let left = beside(&place, what).next().unwrap();
                fs::create_dir_all(left.join("half")).unwrap();
            }
            let mut folder = Folder::new(&place, false, &home.path().join("ledger")).ok().unwrap();
            folder.write("data/a.csv", round.as_bytes()).ok().unwrap();
            folder.finish().ok().unwrap();
            assert_eq!(fs::read_to_string(place.join("data/a.csv")).unwrap(), round);
        }
        fs::write(place.join("data/a.csv"), "three").unwrap();
        assert!(Folder::new(&place, false, &home.path().join("ledger")).is_err());
        assert!(Folder::new(&place, true, &place.join("data")).is_err(), "the ledger is in it");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 3, "the report, and the two that were left behind");
    }

    #[test]
    fn a_report_can_be_replaced_by_a_path_through_itself() {
        let home = tempfile::tempdir().unwrap();
        let ledger = home.path().join("ledger");
        let written = |place: &Path, text: &str| {
            let mut folder = Folder::new(place, false, &ledger).ok().unwrap();
            folder.write("data/a.csv", text.as_bytes()).ok().unwrap();
            folder.finish().ok().unwrap();
        };
        written(&home.path().join("site"), "one");
        written(&home.path().join("site/../site"), "two");
        written(&home.path().join("site/data/../../site/."), "three");
        assert_eq!(fs::read_to_string(home.path().join("site/data/a.csv")).unwrap(), "three");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
        assert!(Folder::new(&home.path().join("site/.."), true, &ledger).is_err());
    }

    #[test]
    fn the_next_report_removes_one_that_was_left_between_two_renames() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("site");
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        for what in ["new", "old"] {
            let left = home.path().join(format!(".site.{what}-{}-0", gone.id()));
            fs::create_dir_all(left.join("data")).unwrap();
        }
        let folder = Folder::new(&place, false, &home.path().join("ledger")).ok().unwrap();
        let old = home.path().join(format!(".site.old-{}-0", gone.id()));
        assert!(old.exists(), "the only report there is stays until the new one is whole");
        folder.finish().ok().unwrap();
        let names: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["site"]);
    }
}
