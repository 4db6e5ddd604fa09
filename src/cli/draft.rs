//! Files and folders that a command writes: each appears at its place complete, or not at all.
//!
//! A file or a folder is first written under a hidden name in the same folder. It is removed if the command fails or is
//! terminated. The next command that writes to the place removes drafts that a killed process left.

use super::failure::{Failure, exit};
use crate::host::{files, signals};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{Error, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of names that are tried for a draft.
const TRIES: u32 = 1000;

/// The largest process id on Linux (`PID_MAX_LIMIT`).
const MOST_PROCESSES: u32 = 1 << 22;
/// The word that marks an incomplete file in its name.
const NEW: &str = "new";

/// The drafts of this process. They are changed only under this lock; the thread that removes them never releases it.
static DRAFTS: Mutex<Drafts> = Mutex::new(Drafts { is_watched: false, paths: BTreeSet::new() });

struct Drafts {
    /// Whether the drafts are removed when the process is terminated.
    is_watched: bool,
    paths: BTreeSet<PathBuf>,
}

fn drafts() -> MutexGuard<'static, Drafts> {
    DRAFTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all drafts, and blocks every thread that would begin or continue one.
fn remove_all() {
    let drafts = drafts();
    for path in &drafts.paths {
        // If it cannot be removed, its name marks it as incomplete.
        let _ = remove(path);
    }
    std::mem::forget(drafts);
}

/// Removes a file, or a folder with its contents.
fn remove(path: &Path) -> Result<(), Error> {
    if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// A file or folder that is not at its final place yet.
#[derive(Debug)]
pub(super) struct Draft {
    place: PathBuf,
    path: PathBuf,
    /// Holds a lock, so that no other process takes the draft for abandoned.
    held: File,
    is_finished: bool,
}

impl Draft {
    /// Begins a file. Its place must not exist.
    pub(super) fn file(place: &Path) -> Result<Self, Error> {
        files::unused(place)?;
        Self::replacing(place)
    }

    /// Begins a file that may replace another one.
    pub(super) fn replacing(place: &Path) -> Result<Self, Error> {
        if place.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(Error::new(ErrorKind::IsADirectory, "it is the name of a folder (add the name of a file)"));
        }
        Self::begin(place, |path| files::handed_on().create_new(true).open(path))
    }

    /// Begins a folder. Its place is not checked.
    pub(super) fn folder(place: &Path) -> Result<Self, Error> {
        Self::begin(place, |path| {
            fs::create_dir(path)?;
            File::open(path)
        })
    }

    fn begin(place: &Path, make: impl Fn(&Path) -> Result<File, Error>) -> Result<Self, Error> {
        let place = in_real_folder(place)?;
        sweep(&place, NEW);
        let mut drafts = drafts();
        if !drafts.is_watched {
            signals::before_end(remove_all)?;
            drafts.is_watched = true;
        }
        for path in beside(&place, NEW) {
            match make(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(held) => {
                    // On a file system without locks, no process can take it for abandoned either.
                    let _ = held.try_lock();
                    drafts.paths.insert(path.clone());
                    return Ok(Self { place: place.clone(), path, held, is_finished: false });
                }
            }
        }
        Err(used_up())
    }

    /// Returns the file itself, or the folder, whose files are written by the methods below.
    pub(super) fn held(&self) -> &File {
        &self.held
    }

    /// Returns the final path.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Creates a folder in it, with its parents.
    pub(super) fn make_folder(&self, path: &Path) -> Result<(), Error> {
        let _drafts = drafts();
        self.is_there()?;
        fs::create_dir_all(self.path.join(path))
    }

    /// Writes a file into the folder. Fails if the file exists.
    pub(super) fn put(&self, path: &Path, content: &[u8]) -> Result<(), Error> {
        self.begin_file(path)?.write_all(content)
    }

    /// Creates a file in the folder, which the caller writes. Fails if the file exists, as [`put`](Self::put) does.
    pub(super) fn begin_file(&self, path: &Path) -> Result<File, Error> {
        self.write(path, |place| {
            // Not `AlreadyExists`, which means that the draft's place is taken: another place would not help.
            files::handed_on().create_new(true).open(place).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => {
                    Error::other(format!("two of its files would be named `{}`", path.display()))
                }
                _ => error,
            })
        })
    }

    /// Appends to a file of the folder, which the first call creates.
    pub(super) fn append(&self, path: &Path, content: &[u8]) -> Result<(), Error> {
        self.write(path, |place| files::handed_on().create(true).append(true).open(place)?.write_all(content))
    }

    /// Writes a file that parts of the folder share. The last content replaces earlier ones.
    pub(super) fn put_shared(&self, path: &Path, content: &[u8]) -> Result<(), Error> {
        self.write(path, |place| files::hand_on(place, content))
    }

    fn write<T>(&self, path: &Path, way: impl FnOnce(&Path) -> Result<T, Error>) -> Result<T, Error> {
        let _drafts = drafts();
        self.is_there()?;
        let path = self.path.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        way(&path)
    }

    /// Fails if the draft was removed. It is not begun again, because a part would look complete.
    fn is_there(&self) -> Result<(), Error> {
        self.path.symlink_metadata().map(drop)
    }

    /// Moves it to its place, which must not exist.
    pub(super) fn finish(self) -> Result<(), Error> {
        self.finish_by(files::rename_new)
    }

    /// Moves it to its place by a function of the draft's path and the final path.
    pub(super) fn finish_by<T>(mut self, way: impl FnOnce(&Path, &Path) -> Result<T, Error>) -> Result<T, Error> {
        let mut drafts = drafts();
        let moved = way(&self.path, &self.place)?;
        drafts.paths.remove(&self.path);
        self.is_finished = true;
        Ok(moved)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_finished {
            let mut drafts = drafts();
            // An incomplete draft is useless; if it cannot be removed, its name marks it as incomplete.
            let _ = remove(&self.path);
            drafts.paths.remove(&self.path);
        }
    }
}

/// Returns the place with the real path of its folder: a path such as `report/../report` would be invalid once the folder is moved.
pub(super) fn in_real_folder(place: &Path) -> Result<PathBuf, Error> {
    let place = std::path::absolute(place)?;
    match (place.parent(), place.file_name()) {
        (Some(folder), Some(name)) => Ok(folder.canonicalize()?.join(name)),
        _ => Err(Error::new(ErrorKind::InvalidInput, "it has no name of its own")),
    }
}

/// Returns the beginning of the hidden names of drafts of a place.
fn beginning(place: &Path, what: &str) -> OsString {
    let mut hidden = OsString::from(".");
    hidden.push(place.file_name().unwrap_or_default());
    hidden.push(format!(".{what}-"));
    hidden
}

/// Returns the failure for a file or folder that cannot be written, with the fix. `if_taken` is the fix if the name is taken.
pub(super) fn unwritten(path: &Path, error: &Error, if_taken: &str) -> Failure {
    let missing = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    let (code, help) = match (error.kind(), missing) {
        (ErrorKind::AlreadyExists, _) if path.is_dir() => (exit::USAGE, format!("a folder has this name; {if_taken}")),
        (ErrorKind::AlreadyExists, _) => (exit::USAGE, if_taken.to_owned()),
        (ErrorKind::StorageFull | ErrorKind::QuotaExceeded, _) => (exit::FAILED, "free some space".to_owned()),
        (ErrorKind::NotFound, Some(folder)) => (exit::USAGE, format!("make the folder `{}` first", folder.display())),
        _ => (exit::USAGE, String::new()),
    };
    let help = if help.is_empty() { help } else { format!(" ({help})") };
    Failure::new(code, format!("cannot write `{}`: {error}{help}", path.display()))
}

/// Returns possible names for drafts of a place. Several are needed, because an earlier process with the same id may have left a draft.
pub(super) fn beside(place: &Path, what: &str) -> impl Iterator<Item = PathBuf> {
    let beginning = beginning(place, what);
    (0..TRIES).map(move |at| {
        let mut name = beginning.clone();
        name.push(format!("{}-{at}", std::process::id()));
        place.with_file_name(name)
    })
}

/// The error if all names for drafts are in use.
pub(super) fn used_up() -> Error {
    Error::new(ErrorKind::AlreadyExists, "every name beside it is in use")
}

/// Removes drafts of a place that terminated processes left under such names.
pub(super) fn sweep(place: &Path, what: &str) {
    let beginning = beginning(place, what);
    let (Some(folder), Some(beginning)) = (place.parent(), beginning.to_str()) else { return };
    for (name, path) in files::beginning(folder, beginning, "").unwrap_or_default() {
        let is_gone = process_of(&name[beginning.len()..])
            .is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists());
        if is_gone && is_forgotten(&path) {
            // A draft that cannot be removed does no harm.
            let _ = remove(&path);
        }
    }
}

/// Returns the process id in the end of a name that [`beside`] made. Returns `None` for other names, such as a folder named by its date.
fn process_of(end: &str) -> Option<u32> {
    let (process, at) = end.split_once('-')?;
    let (process, at): (u32, _) = (process.parse().ok()?, at.parse().ok()?);
    let is_made = (0..TRIES).contains(&at) && (1..=MOST_PROCESSES).contains(&process);
    (is_made && end == format!("{process}-{at}")).then_some(process)
}

/// Whether no process on this host or another one holds its lock.
fn is_forgotten(path: &Path) -> bool {
    let is_ours = path.symlink_metadata().is_ok_and(|found| found.is_dir() || found.is_file());
    let free = |file: File| !matches!(file.try_lock(), Err(TryLockError::WouldBlock | TryLockError::Error(_)));
    is_ours && File::open(path).is_ok_and(free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn entries(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_draft_appears_complete_or_not_at_all() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("out");
        drop(Draft::file(&place).unwrap());
        let half = Draft::folder(&place).unwrap();
        half.put(Path::new("a/b"), b"c").unwrap();
        drop(half);
        assert_eq!(entries(home.path()), 0);
        let whole = Draft::folder(&place).unwrap();
        whole.put(Path::new("a/b"), b"c").unwrap();
        let said = whole.put(Path::new("a/b"), b"d").unwrap_err();
        assert_eq!(said.to_string(), "two of its files would be named `a/b`");
        for content in [b"e", b"f"] {
            whole.put_shared(Path::new("a/shared"), content).unwrap();
        }
        whole.finish().unwrap();
        assert_eq!(fs::read(place.join("a/shared")).unwrap(), b"f");
        assert_eq!((fs::read(place.join("a/b")).unwrap(), entries(home.path())), (b"c".to_vec(), 1));
        assert_eq!(Draft::file(&place).unwrap_err().kind(), ErrorKind::AlreadyExists);
        // Another process was faster.
        assert_eq!(Draft::folder(&place).unwrap().finish().unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(entries(home.path()), 1);
    }

    #[test]
    fn an_unwritable_place_gives_an_error_with_the_fix() {
        let home = tempfile::tempdir().unwrap();
        let said = |path: &Path, error: &Error| unwritten(path, error, "--force replaces it").source.to_string();
        let of = |name: &str| {
            let path = home.path().join(name);
            let text = said(&path, &Draft::file(&path).unwrap_err());
            text.replace(&home.path().display().to_string(), "HOME")
        };
        fs::write(home.path().join("taken"), "").unwrap();
        assert_eq!(of("taken"), "cannot write `HOME/taken`: File exists (os error 17) (--force replaces it)");
        assert_eq!(of("new/"), "cannot write `HOME/new/`: it is the name of a folder (add the name of a file)");
        let missing =
            "cannot write `HOME/no/file`: No such file or directory (os error 2) (make the folder `HOME/no` first)";
        assert_eq!(of("no/file"), missing);
        let full = unwritten(Path::new("a"), &ErrorKind::StorageFull.into(), "");
        assert_eq!((full.code, full.source.to_string().ends_with(" (free some space)")), (exit::FAILED, true));
    }

    #[test]
    fn drafts_of_killed_processes_are_removed_and_those_of_running_ones_kept() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("out");
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let left = |process: u32, at: u32| home.path().join(format!(".out.new-{process}-{at}"));
        fs::create_dir_all(left(gone.id(), 0).join("half")).unwrap();
        fs::write(left(gone.id(), 1), "half").unwrap();
        fs::create_dir(left(std::process::id(), 7)).unwrap();
        // Names with dates, which a person gave.
        for name in [".out.new-20240501", ".out.new-2024-05-01", ".out.new-2024-05"] {
            fs::create_dir(home.path().join(name)).unwrap();
        }
        // A draft of another host, whose processes are not visible here.
        fs::create_dir(left(gone.id(), 2)).unwrap();
        let held = File::open(left(gone.id(), 2)).unwrap();
        held.try_lock().unwrap();
        Draft::file(&place).unwrap().finish().unwrap();
        let is_there = [left(gone.id(), 0), left(gone.id(), 1), left(std::process::id(), 7), left(gone.id(), 2)];
        assert_eq!(is_there.map(|path| path.exists()), [false, false, true, true]);
        assert_eq!(entries(home.path()), 1 + 2 + 3);
    }

    #[test]
    fn a_terminated_process_leaves_no_draft() {
        for signal in ["INT", "TERM"] {
            let home = tempfile::tempdir().unwrap();
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "cli::draft::tests::writing", "--test-threads=1"])
                .env("DRAFT_HOME", home.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let begun = home.path().join("begun");
            while !begun.exists() {
                assert!(child.try_wait().unwrap().is_none(), "it ended early");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            assert!(
                Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap().success()
            );
            assert!(!child.wait().unwrap().success());
            assert_eq!(entries(home.path()), 1, "{signal}: only what says that it has begun");
        }
    }

    #[test]
    #[ignore = "the body of `a_terminated_process_leaves_no_draft`"]
    fn writing() {
        let home = PathBuf::from(std::env::var_os("DRAFT_HOME").unwrap());
        let folder = Draft::folder(&home.join("folder")).unwrap();
        let _file = Draft::file(&home.join("file")).unwrap();
        for at in 0u64.. {
            folder.put(Path::new(&format!("{}/{at}", at % 100)), b"half").unwrap();
            if at == 200 {
                fs::write(home.join("begun"), "").unwrap();
            }
        }
    }
}
