//! One command at a time of those that hand cells to Slurm: between looking what is missing and handing it over nobody else may do the same.

use super::{ClusterError, io_error};
use crate::host::files;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Locked while a command hands cells over. Hidden, so that it is taken for no submission.
const LOCK: &str = ".lock";
/// How often to look whether the other one is done.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Held while a command looks what is missing and hands it over; the kernel lets go of it however the process ends.
#[derive(Debug)]
pub struct Turn {
    /// Absent where the file system has no locks.
    lock: Option<File>,
}

impl Turn {
    /// Waits for so long until no other command hands cells of that ledger over; `waits` is called once if there is one.
    ///
    /// # Errors
    /// If another one is still at it, or the folder cannot be made.
    pub fn take(ledger: &Path, patience: Duration, waits: impl FnOnce()) -> Result<Self, ClusterError> {
        let home = ledger.join("slurm");
        files::private_folder(&home).map_err(io_error("make the folder", &home))?;
        let path = home.join(LOCK);
        // For writing: NFS locks no file for one alone that was opened for reading.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(io_error("open", &path))?;
        let (since, mut waits) = (Instant::now(), Some(waits));
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { lock: Some(file) }),
                // Without locks people have to take turns themselves.
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

    /// Whether nobody else can be at it: not known where the file system has no locks.
    pub fn is_sure(&self) -> bool {
        self.lock.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_the_next_when_it_is_done() {
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
