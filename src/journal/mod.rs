//! The append-only file of an attempt that still runs.
//!
//! A file is eight bytes of magic and then frames: `length u32, crc32c u32, entry`. Only the tail can be torn: reading
//! stops at the first frame that is short, does not match its checksum or does not decode, and returns how many bytes
//! were left over. This room knows files and frames. Its callers decide when to sync, and whether an attempt is still
//! alive.

mod follow;
mod side;
mod spill;

pub use follow::Follower;
pub use side::{Side, SidePart, copy_side, read_side};
pub use spill::{Column, Kept, Spill};

use crate::record::{Entry, Nonce, RunId, disk_hint};
use crate::wire::{WireError, decode_entry, encode_entry};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MAGIC: [u8; 8] = *b"ledgerJ\x01";
const FRAME_HEAD: usize = 8;
/// The largest accepted frame. The largest entry is a worker's line, which may have 1 MiB.
const MAX_FRAME_BYTES: usize = 8 << 20;
const EXTENSION: &str = "journal";

/// A journal that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file operation failed.
    #[error("cannot {action} `{path}`{}: {source}", disk_hint(source.kind()))]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The journal was written by a newer ledger.
    #[error("`{path}` has journal format {format}, but this ledger reads up to 1 (use a newer ledger)")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u8,
    },
    /// Another process locked the journals for too long.
    #[error("`{}` is locked: waited {seconds} s for another process (try again)", path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// The time waited.
        seconds: u64,
    },
    /// An entry could not be encoded.
    #[error(transparent)]
    Wire(#[from] WireError),
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Io { action, path, source }
}

/// Creates a file for this user alone, or empties it.
fn truncated(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(path)
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    dirty: bool,
    /// Bytes of whole frames in the file.
    good_bytes: u64,
}

impl Drop for Writer {
    /// Unlocks explicitly: a forked process may still have the file open until its `exec`, and closing alone would
    /// leave it locked.
    fn drop(&mut self) {
        let _ = self.file.unlock();
        // A missing reserve shows that the attempt was given up, also in a copy or through a mount that does not show
        // the lock.
        let _ = std::fs::remove_file(self.path.with_extension(RESERVE_EXTENSION));
    }
}

/// Disk space reserved for the last entry of an attempt that filled the disk.
const RESERVE_BYTES: usize = 64 << 10;
const RESERVE_EXTENSION: &str = "reserve";
const SPILL_EXTENSION: &str = "spill";
/// Only this user can read journals, whatever the process's umask.
const PRIVATE: u32 = 0o600;

impl Writer {
    /// Creates the journal of an attempt with its first entry, which is durable when this returns.
    pub fn create(dir: &Path, run: RunId, nonce: Nonce, opened: &Entry) -> Result<Self, JournalError> {
        let path = dir.join(format!("{}-{nonce}.{EXTENSION}", run.0.prefix(16)));
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(PRIVATE)
            .open(&path)
            .map_err(io_error("create", &path))?;
        // Locked until this process ends: the lock shows that the attempt is alive, also to processes in another PID
        // namespace.
        file.lock().map_err(io_error("lock", &path))?;
        let mut writer = Self { file, path, buffer: MAGIC.to_vec(), dirty: true, good_bytes: 0 };
        let reserve = writer.path.with_extension(RESERVE_EXTENSION);
        let started = truncated(&reserve)
            .and_then(|mut file| file.write_all(&[0; RESERVE_BYTES]))
            .map_err(io_error("write", &reserve))
            .and_then(|()| writer.append(opened))
            .and_then(|()| writer.sync());
        // The names of the file and of its folders, which may have been created a moment ago, must survive a power
        // loss. Errors are ignored because some file systems cannot sync a folder. Syncing one twice costs nothing.
        for folder in dir.ancestors().take(3).filter(|folder| !folder.as_os_str().is_empty()) {
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
        }
        if let Err(error) = started {
            // An attempt that could not be opened leaves no files. If even this fails, recovery removes them.
            let _ = std::fs::remove_file(&writer.path);
            let _ = std::fs::remove_file(&reserve);
            return Err(error);
        }
        Ok(writer)
    }

    /// Appends one entry to the buffer.
    pub fn append(&mut self, entry: &Entry) -> Result<(), JournalError> {
        frame(entry, &mut self.buffer)?;
        self.dirty = true;
        Ok(())
    }

    /// Writes the buffer to the file: its entries survive the death of this process.
    pub fn flush(&mut self) -> Result<(), JournalError> {
        if !self.buffer.is_empty() {
            self.file.write_all(&self.buffer).map_err(io_error("write", &self.path))?;
            self.good_bytes += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Makes all entries durable: they survive the death of the machine.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.flush()?;
        if self.dirty {
            self.file.sync_data().map_err(io_error("sync", &self.path))?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Writes the last entry of an attempt after a write has failed: removes the reserve to free disk space, and cuts
    /// off a partly written frame.
    pub fn end_after_fault(&mut self, ended: &Entry) -> Result<(), JournalError> {
        let reserve = self.path.with_extension(RESERVE_EXTENSION);
        std::fs::remove_file(&reserve).map_err(io_error("remove", &reserve))?;
        self.file.set_len(self.good_bytes).map_err(io_error("shorten", &self.path))?;
        self.buffer.clear();
        self.append(ended)?;
        self.sync()
    }

    /// The path of the journal.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the journal of a sealed attempt.
    pub fn remove(self) -> Result<(), JournalError> {
        discard(&self.path)
    }
}

/// Appends an entry as a frame.
fn frame(entry: &Entry, out: &mut Vec<u8>) -> Result<(), JournalError> {
    let body = encode_entry(entry)?;
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    out.extend_from_slice(&body);
    Ok(())
}

/// The content of a journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// The entries before the first damaged one.
    pub entries: Vec<Entry>,
    /// Bytes after the last good entry.
    pub torn_bytes: u64,
}

/// Reads a journal up to its torn tail, if it has one.
pub fn read(path: &Path) -> Result<Contents, JournalError> {
    let bytes = std::fs::read(path).map_err(io_error("read", path))?;
    check_format(path, &bytes)?;
    Ok(parse(&bytes))
}

/// Passes each entry before the torn tail to `take`, and returns the length of that tail in bytes. Memory does not grow
/// with the journal.
///
/// # Errors
/// As [`read`].
pub fn scan(path: &Path, take: impl FnMut(Entry)) -> Result<u64, JournalError> {
    let mut follower = Follower::new(path);
    follower.read(take)?;
    follower.unread_bytes()
}

/// Reads only a journal's first entry. `None` if it is torn.
pub fn first(path: &Path) -> Result<Option<Entry>, JournalError> {
    let mut file = File::open(path).map_err(io_error("read", path))?;
    let mut bytes = Vec::new();
    let mut read_on = |bytes: &mut Vec<u8>, len: usize| {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        Read::by_ref(&mut file).take(len).read_to_end(bytes).map_err(io_error("read", path))
    };
    read_on(&mut bytes, MAGIC.len() + FRAME_HEAD)?;
    check_format(path, &bytes)?;
    let length = bytes.get(MAGIC.len()..MAGIC.len() + 4).and_then(|length| length.try_into().ok());
    let length = length.map_or(0, u32::from_le_bytes);
    read_on(&mut bytes, usize::try_from(length).unwrap_or(usize::MAX).min(MAX_FRAME_BYTES))?;
    Ok(parse(&bytes).entries.into_iter().next())
}

fn check_format(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    if bytes.len() >= MAGIC.len() && bytes[..7] == MAGIC[..7] && bytes[7] > MAGIC[7] {
        return Err(JournalError::Newer { path: path.to_owned(), format: bytes[7] });
    }
    Ok(())
}

/// Decodes the bytes of a journal up to the first torn frame.
pub fn parse(bytes: &[u8]) -> Contents {
    let mut entries = Vec::new();
    let mut rest = bytes.strip_prefix(MAGIC.as_slice()).unwrap_or_default();
    let mut torn = if rest.is_empty() && bytes != MAGIC { bytes.len() } else { rest.len() };
    while let Some((entry, after)) = next_frame(rest) {
        entries.push(entry);
        rest = after;
        torn = rest.len();
    }
    Contents { entries, torn_bytes: torn as u64 }
}

fn next_frame(bytes: &[u8]) -> Option<(Entry, &[u8])> {
    let (head, rest) = bytes.split_at_checked(FRAME_HEAD)?;
    let len = usize::try_from(u32::from_le_bytes(head[..4].try_into().ok()?)).ok()?;
    let crc = u32::from_le_bytes(head[4..].try_into().ok()?);
    if len > MAX_FRAME_BYTES {
        return None;
    }
    let (body, rest) = rest.split_at_checked(len)?;
    (crc32c::crc32c(body) == crc).then_some(())?;
    Some((decode_entry(body).ok()?, rest))
}

/// Whether the journal's owner has given it up, which is so if its reserve file is missing. The owner may still be
/// alive.
pub fn is_given_up(path: &Path) -> bool {
    !path.with_extension(RESERVE_EXTENSION).exists()
}

/// Whether a living process on this host writes this journal, or has just sealed and removed it.
pub fn is_held(path: &Path) -> Result<bool, JournalError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        result => result.map_err(io_error("open", path))?,
    };
    match file.try_lock() {
        Ok(()) => file.unlock().map(|()| false).map_err(io_error("unlock", path)),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(source)) => Err(io_error("lock", path)(source)),
    }
}

/// Renames a journal that cannot be read. Returns its new path.
pub fn set_aside(path: &Path) -> Result<PathBuf, JournalError> {
    let aside = path.with_extension("damaged");
    std::fs::rename(path, &aside).map_err(io_error("rename", path))?;
    Ok(aside)
}

/// The journals in a directory, sorted by name. A missing directory has none.
pub fn list(dir: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error("list", dir)(error)),
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
        .collect();
    paths.sort();
    Ok(paths)
}

/// Removes the journal of a sealed attempt and its companion files. Missing files are no error.
pub fn discard(path: &Path) -> Result<(), JournalError> {
    for extension in
        side::EXTENSIONS.into_iter().chain([RESERVE_EXTENSION, SPILL_EXTENSION, "events", "loaded", EXTENSION])
    {
        let path = path.with_extension(extension);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", &path)(error)),
            _ => {}
        }
    }
    Ok(())
}

/// The lock of a ledger's journals: while it exists, no other process opens, seals or removes one.
#[derive(Debug)]
pub struct Gate {
    file: File,
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// How long a process waits for the lock. Other processes keep it for milliseconds, unless they are stopped.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two attempts to take the lock.
const RETRY_EVERY: Duration = Duration::from_millis(2);

impl Gate {
    /// Locks the journals. Waits up to 30 s for another process.
    ///
    /// # Errors
    /// [`JournalError::Busy`] after that time.
    pub fn enter(dir: &Path) -> Result<Self, JournalError> {
        Self::enter_within(dir, PATIENCE)
    }

    /// Locks the journals. `None` if another process has locked them.
    pub fn try_enter(dir: &Path) -> Result<Option<Self>, JournalError> {
        match Self::enter_within(dir, Duration::ZERO) {
            Err(JournalError::Busy { .. }) => Ok(None),
            result => result.map(Some),
        }
    }

    fn enter_within(dir: &Path, patience: Duration) -> Result<Self, JournalError> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io_error("create", dir))?;
        let path = Self::lock_file(dir);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(PRIVATE);
        let file = options.open(&path).map_err(io_error("open", &path))?;
        let since = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file }),
                Err(TryLockError::Error(source)) => return Err(io_error("lock", &path)(source)),
                Err(TryLockError::WouldBlock) if since.elapsed() >= patience => {
                    return Err(JournalError::Busy { path, seconds: patience.as_secs() });
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(RETRY_EVERY),
            }
        }
    }

    /// The path of the lock file.
    pub fn lock_file(dir: &Path) -> PathBuf {
        dir.join(".lock")
    }
}

#[cfg(test)]
mod tests;
