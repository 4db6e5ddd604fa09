//! How a ledger begins: whole, or not at all.
//!
//! redb writes a new file piece by piece. Whoever dies meanwhile, or finds the disk full, leaves a file that is no ledger and that nobody dares to
//! remove. So the first state is made beside its place, synced, and then given its name; the folder is synced too, or the name may be lost with the power.

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

impl Store {
    /// Makes an empty ledger where there is none.
    pub(super) fn found(&self) -> Result<(), StoreError> {
        let file = self.file();
        if file.exists() {
            return Ok(());
        }
        let is_new = !self.dir.exists();
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { action, path, source }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(failed("create", &self.dir))?;
        let unfinished = self.dir.join(format!("{UNFINISHED}{}.{:016x}", std::process::id(), super::random()));
        let made = self.make(&unfinished);
        // A name that is there already is another process's ledger, which is as good.
        let named = made.and_then(|()| match fs::hard_link(&unfinished, &file) {
            Err(error) if is_without_links(&error) => make_private(&file).map_err(failed("create", &file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(_) if file.exists() => Ok(()),
            result => result.map_err(failed("create", &file)),
        });
        let _ = fs::remove_file(&unfinished);
        named?;
        sync(&self.dir).map_err(failed("sync", &self.dir))?;
        if let Some(parent) = self.dir.parent().filter(|parent| is_new && parent.is_dir()) {
            sync(parent).map_err(failed("sync", parent))?;
        }
        self.sweep();
        Ok(())
    }

    fn make(&self, path: &Path) -> Result<(), StoreError> {
        let failed = |source| StoreError::Io { action: "create", path: path.to_owned(), source };
        make_private(path).map_err(failed)?;
        let database = self.wait(|| self.create(&builder(), path))?;
        self.begin(&database)?.commit()?;
        Ok(())
    }

    /// Removes what was left by those that died before they were done. Whoever is still at it finds the ledger that is there now.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        let is_unfinished = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(UNFINISHED))
        };
        for path in entries.flatten().map(|entry| entry.path()).filter(is_unfinished) {
            let _ = fs::remove_file(path);
        }
    }
}

/// On file systems without links the ledger is made in its place, by whoever opens it next.
fn is_without_links(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied)
}

fn sync(folder: &Path) -> Result<(), std::io::Error> {
    match File::open(folder)?.sync_all() {
        // Some file systems cannot sync a folder.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        result => result,
    }
}
