//! How a ledger begins: whole, or not at all.
//!
//! redb writes a new file piece by piece. Whoever dies meanwhile, or finds the disk full, leaves a file that is no ledger and that nobody dares to
//! remove. So the first state is made beside its place, synced, and then given its name; the folders are synced too, or the name may be lost with the power.
//! Until they are, the name that it was made under stays: whoever finds that one knows that its maker is not done, or died.

use super::{Store, StoreError, builder};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What names of unfinished ledgers begin with.
const UNFINISHED: &str = ".ledger.redb.";

/// A file for this user alone, where there is none: redb makes files that everybody may read, and takes an empty one for a new ledger.
fn make_private(path: &Path) -> std::io::Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop);
    made.or_else(|error| if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
}

/// The same of the file that a link leads to.
fn make_private_behind(link: &Path) -> std::io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(link).map(drop)
}

/// Whether it is a link to a file that is not there.
fn is_dangling(path: &Path) -> bool {
    path.is_symlink() && !path.exists()
}

impl Store {
    /// Makes an empty ledger where there is none.
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
        // A name that is there already is another process's ledger, which is as good.
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
        // Beside a file that could only be begun the other name says that nothing was lost.
        if synced.is_ok() || !self.is_empty() {
            let _ = fs::remove_file(&unfinished);
        }
        synced?;
        self.finish_for_others()
    }

    /// Syncs the folder, and those above it that had to be made; its parent always, since somebody else may have made it a moment before.
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

    /// Removes what was left by those that died before they were done, which may be a second name of the ledger. Whoever is still at it finds the ledger
    /// that is there now.
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

    /// Refuses an empty file that nobody is making: it was a ledger, and another one in its place would hide that it is gone.
    ///
    /// # Errors
    /// If it is one.
    pub(super) fn check_begun(&self) -> Result<(), StoreError> {
        // In this order: whoever makes one removes the other name when the file is whole.
        let is_begun = !self.unfinished().is_empty();
        if is_begun || !self.is_empty() { Ok(()) } else { Err(StoreError::Empty(self.file())) }
    }

    fn is_empty(&self) -> bool {
        fs::metadata(self.file()).is_ok_and(|found| found.len() == 0)
    }

    /// The names of ledgers whose makers are not done, or died.
    fn unfinished(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let is_unfinished = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(UNFINISHED))
        };
        entries.flatten().map(|entry| entry.path()).filter(is_unfinished).collect()
    }
}

/// On file systems without links the ledger is made in its place, while the other name says that it is being made.
fn is_without_links(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied)
}

fn sync(folder: &Path) -> Result<(), std::io::Error> {
    let opened = match File::open(folder) {
        // A folder above may be another's, of which only the names below it may be used.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        opened => opened?,
    };
    match opened.sync_all() {
        // Some file systems cannot sync a folder.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        result => result,
    }
}

/// A number that other processes do not draw.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u8)
}
