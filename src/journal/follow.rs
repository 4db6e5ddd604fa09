//! Reads the entries of a journal while another process writes it.

use super::{JournalError, MAGIC, check_format, io_error, next_frame};
use crate::record::Entry;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes read at once. The journal of a run of several days has hundreds of MiB.
const CHUNK_BYTES: u64 = 4 << 20;

/// A reader's position in a journal that another process writes.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    /// Stays open after the first read, so that a removed journal can still be read to its end.
    file: Option<File>,
    /// Offset after the last whole entry that was read.
    at: u64,
}

impl Follower {
    /// A follower at the beginning of a journal.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None, at: 0 }
    }

    /// Passes each entry written since the last call to `take`. A partly written entry is left to a later call.
    ///
    /// # Errors
    /// If the file cannot be read, or has a newer format.
    pub fn read(&mut self, mut take: impl FnMut(Entry)) -> Result<(), JournalError> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::open(&self.path).map_err(io_error("read", &self.path))?),
        };
        let mut bytes = Vec::new();
        loop {
            file.seek(SeekFrom::Start(self.at)).map_err(io_error("read", &self.path))?;
            bytes.clear();
            let limit = CHUNK_BYTES + super::MAX_FRAME_BYTES as u64;
            Read::by_ref(file).take(limit).read_to_end(&mut bytes).map_err(io_error("read", &self.path))?;
            let mut rest = bytes.as_slice();
            if self.at == 0 {
                check_format(&self.path, rest)?;
                match rest.strip_prefix(MAGIC.as_slice()) {
                    Some(after) => rest = after,
                    None => return Ok(()),
                }
            }
            while let Some((entry, after)) = next_frame(rest) {
                take(entry);
                rest = after;
            }
            let read = (bytes.len() - rest.len()) as u64;
            self.at += read;
            // This was the last chunk, or it has no whole entry.
            if (bytes.len() as u64) < limit || read == 0 {
                return Ok(());
            }
        }
    }

    /// The number of bytes after the last whole entry.
    pub(super) fn unread_bytes(&self) -> Result<u64, JournalError> {
        let Some(file) = &self.file else { return Ok(0) };
        let len = file.metadata().map_err(io_error("read", &self.path))?.len();
        Ok(len.saturating_sub(self.at))
    }
}
