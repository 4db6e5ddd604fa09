//! The files of one half of a folder of pictures, in the order of torchvision's `ImageFolder`.
//!
//! Knows names and extensions and nothing of the files' contents.

use super::FolderError;
use ledger_record::{is_hidden, is_picture};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry, FileType};
use std::path::{Path, PathBuf};

/// The maximum number of folders between a class and its files: a class is itself the second folder below the root.
const DEEPEST: usize = ledger_record::DEEPEST - 2;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path.
    pub path: PathBuf,
    /// The number of its class.
    pub class: usize,
}

/// All files of `train` or of `val`.
#[derive(Debug)]
pub struct Listing {
    dir: PathBuf,
    classes: Vec<OsString>,
    /// Sorted by class, then by folder, then by name.
    pub entries: Vec<Entry>,
    /// Number of files and folders that were left out.
    pub ignored: usize,
}

impl Listing {
    /// Lists the files below `root/part`.
    pub fn read(root: &Path, part: &'static str) -> Result<Self, FolderError> {
        let dir = root.join(part);
        if !dir.is_dir() {
            return Err(FolderError::Absent { root: root.to_owned(), part });
        }
        let mut listing = Self { dir, classes: Vec::new(), entries: Vec::new(), ignored: 0 };
        for entry in seen(&listing.dir, &mut listing.ignored)? {
            if kind(&entry)?.is_dir() {
                listing.classes.push(entry.file_name());
            } else {
                listing.ignored += 1;
            }
        }
        if listing.classes.is_empty() {
            return Err(FolderError::NoClasses { path: listing.dir });
        }
        listing.classes.sort();
        for (class, name) in listing.classes.iter().enumerate() {
            let path = listing.dir.join(name);
            let mut found = Vec::new();
            walk(&path, 0, &mut found, &mut listing.ignored)?;
            if found.is_empty() {
                return Err(FolderError::Empty { path });
            }
            found.sort_by(|a, b| order(a).cmp(&order(b)));
            listing.entries.extend(found.into_iter().map(|path| Entry { path, class }));
        }
        Ok(listing)
    }

    /// Checks that another half has the same classes.
    pub fn same_classes(&self, other: &Self) -> Result<(), FolderError> {
        for (here, there) in [(self, other), (other, self)] {
            if let Some(class) = here.classes.iter().find(|class| !there.classes.contains(class)) {
                return Err(FolderError::Classes {
                    class: class.to_string_lossy().into_owned(),
                    there: here.dir.clone(),
                    missing: there.dir.clone(),
                });
            }
        }
        Ok(())
    }

    /// Returns the names of the classes, with invalid characters replaced.
    pub fn class_names(&self) -> Vec<String> {
        self.classes.iter().map(|class| class.to_string_lossy().into_owned()).collect()
    }
}

/// Returns the sort key of a file. Folders are compared as whole texts, as in Python: `a`, `a-b`, `a/x`.
fn order(path: &Path) -> (Option<&OsStr>, Option<&OsStr>) {
    (path.parent().map(Path::as_os_str), path.file_name())
}

/// Adds the pictures at any depth below a folder.
fn walk(dir: &Path, depth: usize, found: &mut Vec<PathBuf>, ignored: &mut usize) -> Result<(), FolderError> {
    if depth > DEEPEST {
        return Err(FolderError::Deep { path: dir.to_owned(), deepest: DEEPEST });
    }
    for entry in seen(dir, ignored)? {
        let path = entry.path();
        if kind(&entry)?.is_dir() {
            walk(&path, depth + 1, found, ignored)?;
        } else if is_picture(&path) {
            found.push(path);
        } else {
            *ignored += 1;
        }
    }
    Ok(())
}

/// Returns the entries of a folder that are not hidden, and counts the hidden ones.
fn seen(dir: &Path, ignored: &mut usize) -> Result<Vec<DirEntry>, FolderError> {
    let fault = |source| FolderError::Read { path: dir.to_owned(), source };
    let mut all = fs::read_dir(dir).map_err(fault)?.collect::<Result<Vec<DirEntry>, _>>().map_err(fault)?;
    let before = all.len();
    all.retain(|entry| !is_hidden(&entry.file_name()));
    *ignored += before - all.len();
    Ok(all)
}

/// Returns the type of an entry or of its link's target.
fn kind(entry: &DirEntry) -> Result<FileType, FolderError> {
    let kind = entry.file_type().and_then(|own| {
        if own.is_symlink() { fs::metadata(entry.path()).map(|target| target.file_type()) } else { Ok(own) }
    });
    kind.map_err(|source| FolderError::Read { path: entry.path(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs are identified by the files that are read; another crate lists them for the id.
    #[test]
    fn exactly_the_files_in_the_id_are_read() {
        let root = tempfile::tempdir().expect("a directory");
        let write = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, name).expect("written");
        };
        let deepest = format!("train/cat/{}", "d/".repeat(DEEPEST));
        for name in ["train/cat/1.JPG", "train/cat/2.gif", "train/cat/.3.png", "train/.dog/4.png", "val/cat/a/5.Jpeg"] {
            write(name);
        }
        write(&format!("{deepest}6.png"));
        let read = |part| Listing::read(root.path(), part);
        let halves = ["train", "val"].map(|part| read(part).expect("valid").entries);
        let mut paths: Vec<PathBuf> = halves.into_iter().flatten().map(|entry| entry.path).collect();
        paths.sort();
        let identity = ledger_host::files::pictures(root.path(), &|| false).expect("listed");
        let mut listed: Vec<PathBuf> = identity.into_iter().map(|(_, path)| path).collect();
        listed.sort();
        assert_eq!((paths.len(), &paths), (3, &listed));
        write(&format!("{deepest}d/7.png"));
        assert!(matches!(read("train"), Err(FolderError::Deep { .. })), "it is in no id");
    }
}
