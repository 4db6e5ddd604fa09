//! Copies the journals of attempts from a node to the shared folder, so that little is lost when the node dies.
//!
//! A journal only grows, and every prefix of a journal is a valid journal: a partial copy is an interrupted attempt.

use super::{ClusterError, Folder, io_error};
use crate::journal;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, copy};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The copying interval: at most this much of an attempt is lost with its node.
const EVERY: Duration = Duration::from_secs(5);

/// Source and target of the copies, and the end signal of the thread.
#[derive(Debug)]
struct Way {
    from: PathBuf,
    to: PathBuf,
    prefix: String,
    over: Mutex<bool>,
    ended: Condvar,
}

/// A thread that copies journals until it is dropped.
#[derive(Debug)]
pub struct Mirror {
    way: Arc<Way>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the prefix of a copied journal's name, which identifies the array's job, the task and its start.
pub(super) fn prefix(job: &str, task: u32, restarts: u32) -> String {
    format!("{job}_{task}-{restarts}-")
}

/// Returns the array's job, the task and its start from the name of a copy.
pub(super) fn origin(path: &Path) -> Option<(String, u32, u32)> {
    let name = path.file_name()?.to_str()?;
    let (job, rest) = name.split_once('_')?;
    let (task, rest) = rest.split_once('-')?;
    let (restarts, _) = rest.split_once('-')?;
    Some((job.to_owned(), task.parse().ok()?, restarts.parse().ok()?))
}

impl Mirror {
    /// Starts copying the journals of a folder. `beat` is called after each round.
    pub fn start(
        journals: &Path,
        folder: &Folder,
        (job, task, restarts): (&str, u32, u32),
        beat: impl Fn() + Send + 'static,
    ) -> Self {
        let way = Arc::new(Way {
            from: journals.to_owned(),
            to: folder.journals(),
            prefix: prefix(job, task, restarts),
            over: Mutex::new(false),
            ended: Condvar::new(),
        });
        let copying = Arc::clone(&way);
        let thread = std::thread::spawn(move || {
            loop {
                {
                    let over = copying.lock();
                    let waited = copying.ended.wait_timeout_while(over, EVERY, |over| !*over);
                    let (over, _) = waited.unwrap_or_else(PoisonError::into_inner);
                    if *over {
                        return;
                    }
                    // A failed copy is retried in the next round.
                    let _ = copying.copy_all();
                }
                beat();
            }
        });
        Self { way, thread: Some(thread) }
    }

    /// Removes the copy of a journal whose attempt has been delivered to `collect`.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn forget(&self, run: crate::record::RunId, nonce: crate::record::Nonce) -> Result<(), ClusterError> {
        let _still = self.way.lock();
        let name = format!("{}-{nonce}.journal", run.0.prefix(16));
        journal::discard(&self.way.to.join(format!("{}{name}", self.way.prefix)))?;
        Ok(())
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        *self.way.lock() = true;
        self.way.ended.notify_all();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the copies it made are kept.
            let _ = thread.join();
        }
    }
}

impl Way {
    /// Locks the copies. The lock is held while files are copied or removed.
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copy_all(&self) -> Result<(), ClusterError> {
        for from in journal::list(&self.from)? {
            let name = from.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let to = self.to.join(format!("{}{name}", self.prefix));
            append(&from, &to)?;
            journal::copy_side(&from, &to)?;
        }
        Ok(())
    }
}

/// Brings a copy up to date with its journal.
fn append(from: &Path, to: &Path) -> Result<(), ClusterError> {
    let mut source = match File::open(from) {
        // Its attempt was sealed just now.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        source => source.map_err(io_error("read", from))?,
    };
    let failed = || io_error("write", to);
    let mut copied = OpenOptions::new().append(true).create(true).open(to).map_err(failed())?;
    let there = copied.metadata().map_err(failed())?.len();
    let here = source.metadata().map_err(io_error("read", from))?.len();
    if there > here {
        // After a partial write on a full disk, a journal is truncated.
        copied.set_len(0).map_err(failed())?;
    }
    let begin = if there > here { 0 } else { there };
    source.seek(SeekFrom::Start(begin)).map_err(io_error("read", from))?;
    if copy(&mut source, &mut copied).map_err(failed())? > 0 {
        copied.sync_data().map_err(failed())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_follows_its_journal() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        for text in ["one", "one two", "one two", "one", "one three"] {
            std::fs::write(&from, text).unwrap();
            append(&from, &to).unwrap();
            assert_eq!(std::fs::read_to_string(&to).unwrap(), text);
        }
        std::fs::remove_file(&from).unwrap();
        append(&from, &to).unwrap();
        assert!(to.exists(), "what it came to is kept");
    }

    #[test]
    fn the_name_of_a_copy_identifies_its_task() {
        let name = format!("{}0123456789abcdef-00.journal", prefix("42", 7, 1));
        assert_eq!(origin(Path::new("/x").join(name).as_path()), Some(("42".to_owned(), 7, 1)));
        assert_eq!(origin(Path::new("0123456789abcdef-00.journal")), None);
    }
}
