//! The folder on a machine in which a user's ledgers record their changes of GPU settings.
//!
//! It is not a ledger's own folder, because several ledgers share the GPUs, and because the scratch space of a cluster
//! job disappears with the job. It has a lock for each GPU. A process with the lock may change that GPU, after undoing
//! the changes in files that name it. A lock ends with its process, so a file with unlocked GPUs has no owner any more.
//! This needs neither host names nor process ids, which differ in containers.

use super::hold_error::HoldError;
use crate::host::{environment, files, owner};
use std::fs::{DirBuilder, File, Metadata, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The parent of the users' folders and of the locks shared by all users.
const OF_ALL: &str = "/var/tmp";

/// A folder with files of changed settings and locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    folder: PathBuf,
    /// The folder in which all users of the machine lock its GPUs too.
    of_all: Option<PathBuf>,
}

/// Locked GPUs: no other process changes them as long as this exists.
pub(super) struct Locks {
    _files: Vec<File>,
}

impl Place {
    /// `$LEDGER_RESTORE`, otherwise a folder of this user in `/var/tmp`, which outlives jobs, with locks there that all
    /// users share.
    pub fn usual() -> Self {
        match environment::var("LEDGER_RESTORE") {
            Some(named) => Self::at(named),
            None => Self {
                folder: format!("{OF_ALL}/ledger-restore-{}", owner::user_id()).into(),
                of_all: Some(OF_ALL.into()),
            },
        }
    }

    /// A place in this folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), of_all: None }
    }

    /// The place of one of its files.
    pub(super) fn of(file: &Path) -> Option<Self> {
        let (folder, usual) = (file.parent()?, Self::usual());
        Some(if usual.folder == folder { usual } else { Self::at(folder) })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Creates the folder, for this user alone.
    pub(super) fn make(&self) -> Result<(), HoldError> {
        if self.folder.is_relative() {
            return self.exists().map(drop);
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| self.fault(&error.to_string()))?;
        self.exists().map(drop)
    }

    /// Whether the folder exists. Fails if other users can write there: its files decide what is set on GPUs, maybe by
    /// root.
    fn exists(&self) -> Result<bool, HoldError> {
        if self.folder.is_relative() {
            return Err(self.fault("a relative path is another folder in each directory"));
        }
        let found = match std::fs::symlink_metadata(&self.folder) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.fault(&error.to_string())),
        };
        if !found.is_dir() {
            return Err(self.fault("it is not a folder"));
        }
        if !is_ours(&found) || found.mode() & 0o022 != 0 {
            return Err(self.fault("others may write there"));
        }
        Ok(true)
    }

    /// Whether another process has locked one of these GPUs. Creates nothing.
    pub(super) fn is_busy<'a>(&self, uuids: impl IntoIterator<Item = &'a str>) -> Result<bool, HoldError> {
        Ok(self.exists()? && self.lock_there(uuids, false)?.is_none())
    }

    /// Locks GPUs. `None` if another process has locked one of them.
    pub(super) fn lock<'a>(&self, uuids: impl IntoIterator<Item = &'a str>) -> Result<Option<Locks>, HoldError> {
        self.lock_there(uuids, true)
    }

    fn lock_there<'a>(
        &self,
        uuids: impl IntoIterator<Item = &'a str>,
        makes: bool,
    ) -> Result<Option<Locks>, HoldError> {
        let mut locked = Vec::new();
        if !self.exists()? {
            return Err(self.fault("it is not there any more"));
        }
        for uuid in uuids {
            let name: String = uuid.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
            let fault = |error: std::io::Error| self.fault(&error.to_string());
            let own = self.own_lock(&format!("{name}.lock"), makes).map_err(fault)?;
            let of_all = self.of_all.as_ref().map(|folder| folder.join(format!("ledger-gpu-{name}.lock")));
            let of_all = of_all.map(|path| lock_of_all(&path, makes)).transpose().map_err(fault)?.flatten();
            for file in own.into_iter().chain(of_all) {
                match file.try_lock() {
                    Ok(()) => locked.push(file),
                    Err(TryLockError::WouldBlock) => return Ok(None),
                    Err(TryLockError::Error(error)) => return Err(fault(error)),
                }
            }
        }
        Ok(Some(Locks { _files: locked }))
    }

    fn own_lock(&self, name: &str, makes: bool) -> std::io::Result<Option<File>> {
        let path = self.folder.join(name);
        let Some(file) = files::open_lock(&path, makes.then_some(0o600))? else { return Ok(None) };
        if !is_ours(&file.metadata()?) {
            return Err(std::io::Error::other(format!("`{}` belongs to another user", path.display())));
        }
        Ok(Some(file))
    }

    /// The files of changed settings. Skips those of other users.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>, HoldError> {
        if !self.exists()? {
            return Ok(Vec::new());
        }
        let named = files::beginning(&self.folder, "", ".json").map_err(|error| self.fault(&error.to_string()))?;
        let ours =
            |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && is_ours(&found));
        Ok(named.into_iter().map(|(_, path)| path).filter(ours).collect())
    }

    fn fault(&self, why: &str) -> HoldError {
        HoldError::NoPlace { folder: self.folder.clone(), why: why.to_owned() }
    }
}

/// Opens the lock of a GPU that all users share. Its creator makes it readable for all, which suffices for locking.
fn lock_of_all(path: &Path, makes: bool) -> std::io::Result<Option<File>> {
    let Some(file) = files::open_lock(path, makes.then_some(0o644))? else { return Ok(None) };
    let found = file.metadata()?;
    // The umask may have removed the permission.
    if found.uid() == owner::user_id() && found.mode() & 0o044 != 0o044 {
        file.set_permissions(Permissions::from_mode(0o644))?;
    }
    Ok(Some(file))
}

fn is_ours(found: &Metadata) -> bool {
    [owner::user_id(), 0].contains(&found.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_gpu_is_locked_once_and_can_be_locked_again_later() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::at(dir.path().join("restore"));
        place.make().unwrap();
        let both = place.lock(["GPU-a", "GPU-b"]).unwrap().unwrap();
        assert!(place.lock(["GPU-b"]).unwrap().is_none());
        assert!(place.lock(["GPU-c", "GPU-a"]).unwrap().is_none());
        assert!(place.lock(["GPU-c"]).unwrap().is_some(), "what was not got whole is let go of");
        drop(both);
        assert!(place.lock(["GPU-a", "GPU-b"]).unwrap().is_some());
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("open");
        let place = Place::at(&folder);
        assert!(place.files().unwrap().is_empty(), "there is none yet");
        place.make().unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        std::fs::write(folder.join("a.json"), "").unwrap();
        symlink(folder.join("a.json"), folder.join("b.json")).unwrap();
        assert_eq!(place.files().unwrap(), [folder.join("a.json")], "links are passed over");
        std::fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert!(place.files().unwrap_err().to_string().contains("others may write there"));
        let link = dir.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(Place::at(link).make().unwrap_err().to_string().contains("it is not a folder"));
    }

    #[test]
    fn locks_are_opened_only_in_a_folder_that_others_cannot_write() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("open");
        let place = Place::at(&folder);
        assert!(!place.is_busy(["GPU-a"]).unwrap() && !folder.exists(), "nothing is made by looking");
        place.make().unwrap();
        // Through a link, root would create a file anywhere. Opening a pipe would block forever.
        let aim = dir.path().join("aim");
        symlink(&aim, folder.join("GPU-a.lock")).unwrap();
        assert!(place.is_busy(["GPU-a"]).is_err() && !aim.exists());
        files::fifo(&folder.join("GPU-b.lock")).unwrap();
        assert!(place.is_busy(["GPU-b"]).unwrap_err().to_string().contains("GPU-b.lock` is not a file"));
        assert!(!place.is_busy(["GPU-c"]).unwrap() && !folder.join("GPU-c.lock").exists());
        std::fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert!(place.is_busy(["GPU-d"]).unwrap_err().to_string().contains("others may write there"));
        assert!(!folder.join("GPU-d.lock").exists());
    }

    #[test]
    fn a_gpu_locked_by_another_user_is_busy() {
        let dir = tempfile::tempdir().unwrap();
        let of = |user: &str| {
            let place = Place { folder: dir.path().join(user), of_all: Some(dir.path().to_owned()) };
            place.make().unwrap();
            place
        };
        let (root, user) = (of("root"), of("user"));
        let locks = root.lock(["GPU-a"]).unwrap().unwrap();
        assert!(user.lock(["GPU-a"]).unwrap().is_none() && user.is_busy(["GPU-a"]).unwrap());
        assert!(user.lock(["GPU-b"]).unwrap().is_some());
        drop(locks);
        assert!(user.lock(["GPU-a"]).unwrap().is_some());
        let shared = dir.path().join("ledger-gpu-GPU-a.lock");
        assert_eq!(std::fs::metadata(&shared).unwrap().mode() & 0o777, 0o644, "whoever comes may lock it");
        std::fs::remove_file(&shared).unwrap();
        symlink(dir.path().join("aim"), &shared).unwrap();
        assert!(user.lock(["GPU-a"]).is_err() && !dir.path().join("aim").exists());
    }

    #[test]
    fn a_relative_folder_is_refused() {
        let place = Place::at("restore");
        for told in [place.files().map(drop), place.make(), place.is_busy(["GPU-a"]).map(drop)] {
            assert!(told.unwrap_err().to_string().contains("a relative path is another folder in each directory"));
        }
        assert!(!Path::new("restore").exists());
    }
}
