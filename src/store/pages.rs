//! Checks the checksums of the file's pages without writing to the file: redb repairs an overlay, whose changes stay in
//! memory.

use super::StoreError;
use redb::{DatabaseError, StorageBackend};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Bytes per block of changed data.
const BLOCK: u64 = 4096;

/// A file that is read from disk and written to memory.
#[derive(Debug)]
pub(super) struct Overlay {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    len: u64,
    /// The length up to which the file's own bytes are valid.
    of_file: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Overlay {
    /// Opens a file and locks it against writers as long as this is open.
    pub(super) fn shared(path: &Path) -> Result<Self, DatabaseError> {
        let overlay = Self::open(path)?;
        match overlay.file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Err(DatabaseError::DatabaseAlreadyOpen),
            // A medium without locks has no writers either.
            Err(TryLockError::Error(_)) | Ok(()) => Ok(overlay),
        }
    }

    fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok(Self { file, state: Mutex::new(State { len, of_file: len, blocks: BTreeMap::new() }) })
    }

    fn block(&self, state: &State, number: u64) -> Result<Vec<u8>, Error> {
        if let Some(block) = state.blocks.get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; size(BLOCK)];
        let begin = number * BLOCK;
        if begin < state.of_file {
            let there = size(BLOCK.min(state.of_file - begin));
            if let Some(head) = block.get_mut(..there) {
                self.file.read_exact_at(head, begin)?;
            }
        }
        Ok(block)
    }

    /// Splits a range of bytes into blocks. Gives the block's number, the offsets in the block and in the range, and
    /// the length.
    fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
        let mut done = 0usize;
        std::iter::from_fn(move || {
            let at = offset + u64::try_from(done).ok()?;
            let inner = size(at % BLOCK);
            let count = (size(BLOCK) - inner).min(len - done);
            let piece = (at / BLOCK, inner, done, count);
            done += count;
            (count > 0).then_some(piece)
        })
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl StorageBackend for Overlay {
    fn len(&self) -> Result<u64, Error> {
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner).len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let end = u64::try_from(out.len()).ok().and_then(|len| offset.checked_add(len));
        if end.is_none_or(|end| end > state.len) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        for (number, inner, begin, count) in Self::pieces(offset, out.len()) {
            let block = self.block(&state, number)?;
            out[begin..begin + count].copy_from_slice(&block[inner..inner + count]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if len < state.len {
            let last = len / BLOCK;
            let mut block = self.block(&state, last)?;
            block[size(len % BLOCK)..].fill(0);
            state.blocks.retain(|number, _| *number < last);
            state.blocks.insert(last, block);
            state.of_file = state.of_file.min(len);
        }
        state.len = len;
        Ok(())
    }

    fn sync_data(&self) -> Result<(), Error> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, inner, begin, count) in Self::pieces(offset, data.len()) {
            let mut block = self.block(&state, number)?;
            block[inner..inner + count].copy_from_slice(&data[begin..begin + count]);
            state.blocks.insert(number, block);
        }
        Ok(())
    }
}

/// Whether every page matches its checksum, and the free pages are those that no table uses.
///
/// # Errors
/// If the file cannot be read, or is not a ledger file.
pub(super) fn are_sound(path: &Path) -> Result<bool, StoreError> {
    let overlay =
        Overlay::open(path).map_err(|source| StoreError::Io { action: "read", path: path.to_owned(), source })?;
    // A file that was not closed is repaired on opening, which is not a fault.
    let opened = super::builder().create_with_backend(overlay);
    let mut database = opened.map_err(|error| StoreError::Database(error.into()))?;
    database.check_integrity().map_err(|error| StoreError::Database(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    proptest! {
        #[test]
        fn an_overlay_behaves_as_a_file_and_leaves_the_file_unchanged(
            content in prop::collection::vec(any::<u8>(), 0..20_000),
            changes in prop::collection::vec((any::<bool>(), 0u64..30_000, prop::collection::vec(any::<u8>(), 0..9000)), 0..6),
        ) {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&content).unwrap();
            let overlay = Overlay::open(file.path()).unwrap();
            let mut model = content.clone();
            for (is_cut, at, data) in changes {
                if is_cut {
                    overlay.set_len(at).unwrap();
                    model.resize(usize::try_from(at).unwrap(), 0);
                } else {
                    let at = at.min(overlay.len().unwrap());
                    let room = usize::try_from(overlay.len().unwrap() - at).unwrap();
                    let data = &data[..data.len().min(room)];
                    overlay.write(at, data).unwrap();
                    let at = usize::try_from(at).unwrap();
                    model[at..at + data.len()].copy_from_slice(data);
                }
                let mut read = vec![0; model.len()];
                overlay.read(0, &mut read).unwrap();
                prop_assert_eq!(&read, &model);
            }
            prop_assert!(overlay.read(overlay.len().unwrap(), &mut [0]).is_err());
            prop_assert_eq!(std::fs::read(file.path()).unwrap(), content);
        }
    }
}
