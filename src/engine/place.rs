//! The one place on a machine where a user's ledgers write down what they have set on its GPUs.
//!
//! Not in a ledger's own folder: ledgers in different folders share the cards, and the scratch space of a cluster's job goes with the
//! job. Each card has a lock there; whoever holds a card's lock may set it, and has undone first what files name that card. A lock ends
//! with its process, so that a file whose cards are not locked is one that nobody looks after any more. Neither names of hosts nor ids
//! of processes are needed for that, which containers have of their own.

use super::HoldError;
use crate::host::{environment, files, process};
use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A folder of pending files and locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    folder: PathBuf,
}

/// Cards that nobody else sets as long as this lives.
pub(super) struct Locks {
    _files: Vec<File>,
}

impl Place {
    /// `$LEDGER_RESTORE`, else a folder of this user's in `/var/tmp`, which outlives jobs.
    pub fn usual() -> Self {
        let named = environment::var("LEDGER_RESTORE").map(PathBuf::from);
        Self {
            folder: named.unwrap_or_else(|| format!("/var/tmp/ledger-restore-{}", process::effective_user()).into()),
        }
    }

    /// The one in that folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes it, for this user alone.
    pub(super) fn make(&self) -> Result<(), HoldError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| self.fault(&error.to_string()))?;
        self.exists().map(drop)
    }

    /// Whether it is there. What others could have written there is not to be trusted: it decides what is set on cards, maybe by root.
    fn exists(&self) -> Result<bool, HoldError> {
        let found = match std::fs::symlink_metadata(&self.folder) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.fault(&error.to_string())),
        };
        if !found.is_dir() {
            return Err(self.fault("it is no folder"));
        }
        if !is_ours(&found) || found.mode() & 0o022 != 0 {
            return Err(self.fault("others may write there"));
        }
        Ok(true)
    }

    /// Locks cards; none if another process has one of them.
    pub(super) fn lock<'a>(&self, uuids: impl IntoIterator<Item = &'a str>) -> Result<Option<Locks>, HoldError> {
        let mut locked = Vec::new();
        for uuid in uuids {
            let name: String = uuid.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
            let path = self.folder.join(format!("{name}.lock"));
            let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
            let file = open.map_err(|error| self.fault(&error.to_string()))?;
            match file.try_lock() {
                Ok(()) => locked.push(file),
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(self.fault(&error.to_string())),
            }
        }
        Ok(Some(Locks { _files: locked }))
    }

    /// The files of what has to be undone. Those of others are passed over.
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

fn is_ours(found: &Metadata) -> bool {
    [process::effective_user(), 0].contains(&found.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_card_is_locked_once_and_free_again_afterwards() {
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
    fn a_folder_that_others_may_write_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("open");
        let place = Place::at(&folder);
        assert!(place.files().unwrap().is_empty(), "there is none yet");
        place.make().unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        std::fs::write(folder.join("a.json"), "").unwrap();
        symlink(folder.join("a.json"), folder.join("b.json")).unwrap();
        assert_eq!(place.files().unwrap(), [folder.join("a.json")], "links are passed over");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(place.files().unwrap_err().to_string().contains("others may write there"));
        let link = dir.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(Place::at(link).make().unwrap_err().to_string().contains("it is no folder"));
    }
}
