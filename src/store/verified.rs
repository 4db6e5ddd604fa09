//! A file beside the ledger with the result of the last verification: the length and head of the log that was found
//! sound.

use super::{Store, StoreError};
use crate::record::Digest;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// A verified part of the log: its length, and the head that its entries chain to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The number of entries.
    pub entries: u64,
    /// The head after the last one.
    pub head: Digest,
}

impl Store {
    fn verified_file(&self) -> PathBuf {
        self.dir().join("verified")
    }

    /// Reads the result of the last verification. `None` if there is none, or the file does not parse.
    pub fn last_verified(&self) -> Option<Verified> {
        let text = fs::read_to_string(self.verified_file()).ok()?;
        let (entries, head) = text.trim_end().split_once(' ')?;
        Some(Verified { entries: entries.parse().ok()?, head: head.parse().ok()? })
    }

    /// Removes the stored result, after a fault was found.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn forget_verified(&self) -> Result<(), StoreError> {
        let path = self.verified_file();
        match fs::remove_file(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                Err(StoreError::Io { action: "remove", path, source })
            }
            _ => Ok(()),
        }
    }

    /// Stores that the ledger is sound up to this part of the log.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn remember_verified(&self, verified: &Verified) -> Result<(), StoreError> {
        let path = self.verified_file();
        // All processes use one draft, so that the file of a killed command is overwritten. If two processes mix their
        // lines, the result does not parse.
        let draft = path.with_extension("new");
        let write = || {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            writeln!(file, "{} {}", verified.entries, verified.head)?;
            file.sync_all()?;
            fs::rename(&draft, &path)
        };
        write().map_err(|source| {
            let _ = fs::remove_file(&draft);
            StoreError::Io { action: "write", path, source }
        })
    }
}
