//! Creates a ledger atomically.
//!
//! redb writes a new file piece by piece. A process that dies meanwhile, or a full disk, would leave a file that is not
//! a ledger and that nobody dares to remove. So the first state is written under a temporary name, synced, and then
//! linked to its own name. The folders are synced too, or a power loss could lose the name. The temporary name stays
//! until then: it shows other processes that the creator is not done, or died.

use super::{Store, StoreError, builder};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The prefix of temporary names.
const UNFINISHED: &str = ".ledger.redb.";

/// Creates a file that only this user can read, if there is none. redb creates files that everybody can read, and takes
/// an empty one for a new ledger.
fn make_private(path: &Path) -> std::io::Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop);
    made.or_else(|error| if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
}

/// As [`make_private`], of a symbolic link's target.
fn make_private_behind(link: &Path) -> std::io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(link).map(drop)
}

/// Whether this is a symbolic link to a missing file.
fn is_dangling(path: &Path) -> bool {
    path.is_symlink() && !path.exists()
}

impl Store {
    /// Creates an empty ledger if there is none.
    pub(super) fn found(&self) -> Result<(), StoreError> {
        let file = self.file();
        if file.exists() {
            if self.is_empty() {
                self.check_begun()?;
                self.make(&file)?;
            }
            return self.finish_for_others();
        }
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { action, path, source }
        };
        let missing =
            self.dir.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).count();
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(failed("create", &self.dir))?;
        let unfinished = self.dir.join(format!("{UNFINISHED}{}.{:016x}", std::process::id(), random()));
        let made = self.make(&unfinished);
        // If the name exists, another process has created the ledger.
        let named = made.and_then(|()| match fs::hard_link(&unfinished, &file) {
            Err(error) if is_without_links(&error) => self.make(&file),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && is_dangling(&file) => {
                make_private_behind(&file).map_err(failed("create", &file))?;
                self.make(&file)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(_) if file.exists() => Ok(()),
            result => result.map_err(failed("create", &file)),
        });
        let synced = named.and_then(|()| self.sync_names(missing));
        // If the ledger's file is still empty, the temporary name stays: it shows that no data was lost.
        if synced.is_ok() || !self.is_empty() {
            let _ = fs::remove_file(&unfinished);
        }
        synced?;
        self.finish_for_others()
    }

    /// Syncs the folder, its created ancestors, and always its parent, which another process may have created a moment
    /// ago.
    fn sync_names(&self, made: usize) -> Result<(), StoreError> {
        for folder in self.dir.ancestors().take(1 + made.max(1)) {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            sync(folder).map_err(|source| StoreError::Io { action: "sync", path: folder.to_owned(), source })?;
        }
        Ok(())
    }

    fn make(&self, path: &Path) -> Result<(), StoreError> {
        let failed = |source| StoreError::Io { action: "create", path: path.to_owned(), source };
        make_private(path).map_err(failed)?;
        let database = self.wait(|| self.create(&builder(), path))?;
        self.begin(&database)?.commit()?;
        Ok(())
    }

    /// Removes the temporary names of processes that died, which may be second names of the ledger. A process that is
    /// still at work finds the ledger that exists now.
    fn finish_for_others(&self) -> Result<(), StoreError> {
        let left = self.unfinished();
        if left.is_empty() {
            return Ok(());
        }
        self.sync_names(0)?;
        for path in left {
            let _ = fs::remove_file(path);
        }
        Ok(())
    }

    /// Refuses an empty file that no process is creating. It was a ledger, and a new one in its place would hide the
    /// loss.
    ///
    /// # Errors
    /// [`StoreError::Empty`] for such a file.
    pub(super) fn check_begun(&self) -> Result<(), StoreError> {
        // In this order, because the creator removes the temporary name once the file is whole.
        let is_begun = !self.unfinished().is_empty();
        if is_begun || !self.is_empty() { Ok(()) } else { Err(StoreError::Empty(self.file())) }
    }

    fn is_empty(&self) -> bool {
        fs::metadata(self.file()).is_ok_and(|found| found.len() == 0)
    }

    /// The temporary names of creators that are not done, or died.
    fn unfinished(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let is_unfinished = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(UNFINISHED))
        };
        entries.flatten().map(|entry| entry.path()).filter(is_unfinished).collect()
    }
}

/// Whether the file system has no hard links. Then the ledger is written in place, and the temporary name shows that it
/// is being created.
fn is_without_links(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied)
}

fn sync(folder: &Path) -> Result<(), std::io::Error> {
    let opened = match File::open(folder) {
        // A folder above may be another user's, which may be traversed but not opened.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        opened => opened?,
    };
    match opened.sync_all() {
        // Some file systems cannot sync a folder.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        result => result,
    }
}

/// A random number that differs between processes.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u8)
}
