//! A lock between commands that submit cells to Slurm: no other may look for missing cells until this one has submitted
//! its own.

use super::{ClusterError, io_error};
use crate::host::files;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The lock file. It is hidden, so that it is not taken for a submission.
const LOCK: &str = ".lock";
/// The interval at which the lock is retried.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Holds the lock while a command looks for missing cells and submits them. The kernel releases it however the process
/// ends.
#[derive(Debug)]
pub struct Turn {
    /// `None` if the file system has no locks.
    lock: Option<File>,
}

impl Turn {
    /// Takes the lock of a ledger, waiting up to `patience`. `waits` is called once if another command holds it.
    ///
    /// # Errors
    /// If another command still holds it, or the folder cannot be made.
    pub fn take(ledger: &Path, patience: Duration, waits: impl FnOnce()) -> Result<Self, ClusterError> {
        let home = ledger.join("slurm");
        files::private_folder(&home).map_err(io_error("make the folder", &home))?;
        let path = home.join(LOCK);
        // Opened for writing: NFS grants no exclusive lock on a file that is open only for reading.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(io_error("open", &path))?;
        let (since, mut waits) = (Instant::now(), Some(waits));
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { lock: Some(file) }),
                // Without locks, users have to avoid concurrent submits themselves.
                Err(TryLockError::Error(_)) => return Ok(Self { lock: None }),
                Err(TryLockError::WouldBlock) if since.elapsed() >= patience => return Err(ClusterError::Busy),
                Err(TryLockError::WouldBlock) => {
                    if let Some(waits) = waits.take() {
                        waits();
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
            }
        }
    }

    /// Whether the lock excludes other commands; false if the file system has no locks.
    pub fn is_sure(&self) -> bool {
        self.lock.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_admits_one_command_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = Turn::take(dir.path(), Duration::ZERO, || panic!("nobody is before it")).unwrap();
        assert!(first.is_sure());
        let mut waited = false;
        let second = Turn::take(dir.path(), Duration::ZERO, || ());
        assert!(matches!(second, Err(ClusterError::Busy)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(2 * LOOK_EVERY);
                drop(first);
            });
            Turn::take(dir.path(), Duration::from_secs(60), || waited = true).unwrap();
        });
        assert!(waited);
        let other = tempfile::tempdir().unwrap();
        Turn::take(other.path(), Duration::ZERO, || panic!("another ledger's is its own")).unwrap();
    }
}
