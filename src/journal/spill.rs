//! Storage for the points of series, on disk if they are many: those of a run of several days would take too much
//! memory.
//!
//! The first blocks stay in memory. Further ones go to one file beside the journal, which is unlinked as soon as it is
//! open.

use super::{PRIVATE, SPILL_EXTENSION};
use crate::wire::Points;
use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Points per block.
const BLOCK: usize = 1024;
const POINT_BYTES: usize = 16;
const BLOCK_BYTES: usize = BLOCK * POINT_BYTES;
/// Bytes of blocks that stay in memory. Further blocks go to the file.
const MOST_KEPT_BYTES: usize = 32 << 20;
/// Points sorted in one pass, for a column whose points came out of order.
const SORTED: usize = 2 << 20;

/// Stores the blocks of columns.
#[derive(Debug, Default)]
pub struct Spill {
    path: Option<PathBuf>,
    disk: Disk,
    kept_bytes: usize,
}

#[derive(Debug, Default)]
enum Disk {
    #[default]
    Unused,
    Open(File, u64),
    /// The file cannot be created: everything stays in memory.
    Refused,
}

/// The points of one series in the order in which they came.
#[derive(Debug, Default)]
pub struct Column {
    blocks: Vec<Block>,
    /// Points that do not fill a block yet.
    tail: Vec<(u64, f64)>,
    last: u64,
    is_out_of_order: bool,
}

/// A handle to stored bytes.
#[derive(Debug)]
pub struct Kept(Block);

#[derive(Debug)]
enum Block {
    Kept(Box<[u8]>),
    /// A part of the file.
    Spilled {
        at: u64,
        len: usize,
    },
}

impl Spill {
    /// A store that spills to a file beside this journal.
    pub fn beside(journal: &Path) -> Self {
        Self { path: Some(journal.with_extension(SPILL_EXTENSION)), ..Self::default() }
    }

    /// Adds a point to a column.
    pub fn push(&mut self, column: &mut Column, position: u64, value: f64) {
        column.is_out_of_order |= position < column.last;
        column.last = position;
        column.tail.push((position, value));
        if column.tail.len() == BLOCK {
            let mut bytes = Vec::with_capacity(BLOCK_BYTES);
            for (position, value) in column.tail.drain(..) {
                bytes.extend_from_slice(&position.to_le_bytes());
                bytes.extend_from_slice(&value.to_bits().to_le_bytes());
            }
            let block = self.put(bytes);
            column.blocks.push(block);
        }
    }

    /// Stores bytes.
    pub fn keep(&mut self, bytes: Vec<u8>) -> Kept {
        Kept(self.put(bytes))
    }

    /// Returns stored bytes.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read<'s>(&'s self, kept: &'s Kept) -> io::Result<Cow<'s, [u8]>> {
        let mut buffer = Vec::new();
        if let Block::Kept(bytes) = &kept.0 {
            return Ok(bytes.as_ref().into());
        }
        self.bytes(&kept.0, &mut buffer)?;
        Ok(buffer.into())
    }

    fn bytes<'s>(&'s self, block: &'s Block, buffer: &'s mut Vec<u8>) -> io::Result<&'s [u8]> {
        match (block, &self.disk) {
            (Block::Kept(bytes), _) => Ok(bytes),
            (Block::Spilled { at, len }, Disk::Open(file, _)) => {
                buffer.resize(*len, 0);
                file.read_exact_at(buffer, *at)?;
                Ok(buffer)
            }
            (Block::Spilled { .. }, _) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn put(&mut self, bytes: Vec<u8>) -> Block {
        if self.kept_bytes + bytes.len() > MOST_KEPT_BYTES
            && let Some(at) = self.write(&bytes)
        {
            return Block::Spilled { at, len: bytes.len() };
        }
        self.kept_bytes += bytes.len();
        Block::Kept(bytes.into_boxed_slice())
    }

    /// Writes bytes to the file and returns their offset. `None` if they cannot be written.
    fn write(&mut self, bytes: &[u8]) -> Option<u64> {
        if matches!(self.disk, Disk::Unused) {
            let opened = self.path.as_deref().and_then(|path| nameless(path).ok());
            self.disk = opened.map_or(Disk::Refused, |file| Disk::Open(file, 0));
        }
        let Disk::Open(file, len) = &mut self.disk else { return None };
        let at = *len;
        // A later write begins at the same offset and replaces a partial one.
        file.write_all_at(bytes, at).ok()?;
        *len += bytes.len() as u64;
        Some(at)
    }

    /// The points of a column, stably sorted by position.
    pub fn points<'s>(&'s self, column: &'s Column) -> impl Points + 's {
        Stored { spill: self, column }
    }

    /// Bytes of memory used by blocks.
    #[cfg(test)]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }
}

impl Column {
    /// The number of points.
    fn len(&self) -> usize {
        self.blocks.len() * BLOCK + self.tail.len()
    }
}

/// Creates a file for reading and writing and unlinks it: it is gone when this process ends.
fn nameless(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).mode(PRIVATE).open(path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

struct Stored<'s> {
    spill: &'s Spill,
    column: &'s Column,
}

impl Stored<'_> {
    fn as_they_came(&self, visit: &mut dyn FnMut(u64, f64)) -> io::Result<()> {
        let mut buffer = Vec::new();
        for block in &self.column.blocks {
            let bytes = self.spill.bytes(block, &mut buffer)?;
            let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
            for point in bytes.chunks_exact(POINT_BYTES) {
                let (position, value) = point.split_at(POINT_BYTES / 2);
                visit(word(position), f64::from_bits(word(value)));
            }
        }
        self.column.tail.iter().for_each(|(position, value)| visit(*position, *value));
        Ok(())
    }

    /// Visits the points in order. Each pass over the column selects the next `most` points.
    fn sorted(&self, most: usize, visit: &mut dyn FnMut(u64, f64)) -> io::Result<()> {
        let (mut given, mut after) = (0, None);
        while given < self.column.len() {
            let mut next: Vec<(u64, u64, f64)> = Vec::with_capacity(2 * most);
            let shorten = |next: &mut Vec<(u64, u64, f64)>| {
                next.sort_unstable_by_key(|(position, place, _)| (*position, *place));
                next.truncate(most);
            };
            let (mut place, mut below) = (0, None);
            self.as_they_came(&mut |position, value| {
                let key = Some((position, place));
                if key > after && below.is_none_or(|below| key < below) {
                    next.push((position, place, value));
                    if next.len() == 2 * most {
                        shorten(&mut next);
                        below = Some(next.last().map(|(position, place, _)| (*position, *place)));
                    }
                }
                place += 1;
            })?;
            shorten(&mut next);
            next.iter().for_each(|(position, _, value)| visit(*position, *value));
            given += next.len();
            after = next.last().map(|(position, place, _)| (*position, *place));
        }
        Ok(())
    }
}

impl Points for Stored<'_> {
    fn count(&self) -> usize {
        self.column.len()
    }

    fn visit(&self, visit: &mut dyn FnMut(u64, f64)) -> io::Result<()> {
        if self.column.is_out_of_order { self.sorted(SORTED, visit) } else { self.as_they_came(visit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(points: &dyn Points) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        points.visit(&mut |position, value| all.push((position, value.to_bits()))).unwrap();
        assert_eq!(all.len(), points.count());
        all
    }

    #[test]
    fn ten_million_points_take_no_more_memory_than_a_few() {
        let dir = tempfile::tempdir().unwrap();
        let mut spill = Spill::beside(&dir.path().join("a.journal"));
        let mut columns = [Column::default(), Column::default()];
        for at in 0..5_000_000u32 {
            columns.iter_mut().for_each(|column| spill.push(column, u64::from(at), f64::from(at) / 3.0));
        }
        assert!(spill.kept_bytes() <= MOST_KEPT_BYTES, "{}", spill.kept_bytes());
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            0,
            "nothing is left of it if this process is killed"
        );
        for column in &columns {
            let mut next = 0u32;
            let check = &mut |position, value| {
                assert!((position, value) == (u64::from(next), f64::from(next) / 3.0));
                next += 1;
            };
            spill.points(column).visit(check).unwrap();
            assert_eq!(next, 5_000_000);
        }
    }

    #[test]
    fn points_stay_in_memory_if_no_file_can_be_created() {
        let dir = tempfile::tempdir().unwrap();
        for mut spill in [Spill::default(), Spill::beside(&dir.path().join("missing/a.journal"))] {
            let mut column = Column::default();
            (0..3_000_000).for_each(|at| spill.push(&mut column, at, 0.5));
            assert_eq!(all(&spill.points(&column)).len(), 3_000_000);
        }
    }

    proptest! {
        #[test]
        fn points_out_of_order_are_returned_in_a_stable_sort(
            points in prop::collection::vec((0u64..50, any::<u64>()), 0..200), most in 1usize..40,
        ) {
            let (mut spill, mut column) = (Spill::default(), Column::default());
            points.iter().for_each(|(position, value)| spill.push(&mut column, *position, f64::from_bits(*value)));
            let mut expected = points.clone();
            expected.sort_by_key(|(position, _)| *position);
            prop_assert_eq!(all(&spill.points(&column)), expected.clone());
            let mut sorted = Vec::new();
            let stored = Stored { spill: &spill, column: &column };
            stored.sorted(most, &mut |position, value| sorted.push((position, value.to_bits()))).unwrap();
            prop_assert_eq!(sorted, expected);
        }
    }
}
