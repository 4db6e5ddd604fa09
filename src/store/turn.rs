//! A second lock that keeps new readers from opening the ledger's file while a writer waits for it.
//!
//! redb's file has one lock, which readers share, so that overlapping readers could keep a writer out for ever.
//! Therefore a writer locks the ledger's folder from its first try until the file is open, and new readers wait for
//! that lock. It only decides the order: a process that cannot use it, or has waited for [`LIMIT`], goes on to the
//! file's own lock.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The longest wait for a turn, in case that a process is stopped while it has it.
const LIMIT: Duration = if cfg!(test) { Duration::from_secs(60) } else { Duration::from_secs(1) };
const RETRY_EVERY: Duration = Duration::from_millis(1);
/// The interval at which a long check looks for waiting writers.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// The right to open the ledger's file next. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn(File);

impl Drop for Turn {
    /// Unlocks explicitly, because a process that was forked meanwhile may have the file open too.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Turn {
    /// Waits for the turn, at most for `patience` and [`LIMIT`]. `None` if it was not obtained: the writer goes on
    /// without it.
    pub(super) fn take(dir: &Path, patience: Duration) -> Option<Self> {
        let file = File::open(dir).ok()?;
        let since = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Some(Self(file)),
                Err(TryLockError::WouldBlock) if since.elapsed() < patience.min(LIMIT) => {
                    std::thread::sleep(RETRY_EVERY);
                }
                Err(_) => return None,
            }
        }
    }

    /// Waits while a writer has the turn, at most for `patience` and [`LIMIT`].
    pub(super) fn let_writers_go_first(dir: &Path, patience: Duration) {
        let since = Instant::now();
        while Self::is_taken(dir) && since.elapsed() < patience.min(LIMIT) {
            std::thread::sleep(RETRY_EVERY);
        }
    }

    /// As [`is_taken`](Self::is_taken), for frequent calls: it checks every 5 ms, and returns false in between.
    pub(super) fn is_taken_at_times(dir: &Path) -> impl Fn() -> bool + Sync {
        let asked = Mutex::new(Instant::now());
        move || match asked.try_lock() {
            Ok(mut asked) if asked.elapsed() >= ASK_EVERY => {
                *asked = Instant::now();
                Self::is_taken(dir)
            }
            _ => false,
        }
    }

    /// Whether a writer waits for the ledger's file.
    pub(super) fn is_taken(dir: &Path) -> bool {
        let Ok(file) = File::open(dir) else { return false };
        match file.try_lock_shared() {
            Ok(()) => {
                let _ = file.unlock();
                false
            }
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(_)) => false,
        }
    }
}
