//! CIFAR-10 in its binary form (Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images").
//!
//! Knows the files' names, their records, and the usual augmentation. A file may have any number of records, so that a part of
//! the data can be used; everything else about it is checked.

use super::planes::{cut_padded, mirror};
use crate::rng::Rng;
use ledger_record::{Digest, count};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Pixels of a side.
pub const SIDE: usize = 32;

/// Bytes of an image: three planes of 32×32.
const PIXELS: usize = 3 * SIDE * SIDE;

/// Black pixels around an image before it is cut (He et al. 2016, section 4.2).
const PAD: usize = 4;

/// Number of classes.
pub const CLASSES: usize = 10;

/// The files for training, each of records of a class and an image.
const TRAIN_FILES: [&str; 5] =
    ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];

/// The file for evaluation.
const EVAL_FILE: &str = "test_batch.bin";

/// A file of CIFAR cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CifarError {
    /// The file is missing or cannot be read.
    #[error("`{path}` cannot be read (the directory must have {needed})", path = path.display(), needed = needed.join(", "))]
    Read {
        /// The file.
        path: PathBuf,
        /// The files that the directory must have.
        needed: Vec<&'static str>,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The length is not that of one or more records.
    #[error(
        "`{path}` has {} (it must have {record} for each image, {original} in the original: extract the binary version once more)",
        count(found, "byte"), path = path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        found: usize,
        /// Bytes of a record.
        record: usize,
        /// The length of the published file.
        original: usize,
    },
    /// A label names no class.
    #[error("`{path}` has the label {label} in record {record} (labels are 0 to {last}: is this another file?)", path = path.display())]
    Label {
        /// The file.
        path: PathBuf,
        /// The record, from 0.
        record: usize,
        /// The label.
        label: u8,
        /// The greatest label allowed.
        last: usize,
    },
}

/// One split: 3,072 bytes an image, and a label each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

/// Both splits in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cifar {
    train: Part,
    eval: Part,
}

impl Cifar {
    /// Reads all files.
    pub fn read(dir: &Path) -> Result<Self, CifarError> {
        let mut set = Self::default();
        for name in TRAIN_FILES {
            append(dir, name, &mut set.train)?;
        }
        append(dir, EVAL_FILE, &mut set.eval)?;
        Ok(set)
    }

    /// Number of training images.
    pub fn train_len(&self) -> usize {
        self.train.labels.len()
    }

    /// Number of evaluation images.
    pub fn eval_len(&self) -> usize {
        self.eval.labels.len()
    }

    /// Writes a training image, cut at random out of a black frame of 4 pixels and mirrored at random. Returns its
    /// class; `None` if the index is too large.
    pub fn train(&self, index: usize, rng: &mut Rng, planes: &mut [u8]) -> Option<usize> {
        let (image, label) = self.train.get(index)?;
        let (mirrored, top, left) = (rng.below(2) == 1, rng.below(2 * PAD + 1), rng.below(2 * PAD + 1));
        cut_padded(image, SIDE, PAD, (top, left), planes);
        if mirrored {
            mirror(planes, SIDE);
        }
        Some(label)
    }

    /// Writes an evaluation image unchanged. Returns its class; `None` if the index is too large.
    pub fn eval(&self, index: usize, planes: &mut [u8]) -> Option<usize> {
        let (image, label) = self.eval.get(index)?;
        planes.copy_from_slice(image);
        Some(label)
    }

    /// Returns the digest of all images and labels.
    pub fn digest(&self) -> Digest {
        let Self { train, eval } = self;
        let pieces: [&[u8]; 5] = [b"cifar10", &train.pixels, &train.labels, &eval.pixels, &eval.labels];
        Digest::of_pieces("ledger pictures v1", &pieces)
    }
}

impl Part {
    fn get(&self, index: usize) -> Option<(&[u8], usize)> {
        let label = usize::from(*self.labels.get(index)?);
        Some((self.pixels.get(index * PIXELS..(index + 1) * PIXELS)?, label))
    }
}

fn append(dir: &Path, name: &str, part: &mut Part) -> Result<(), CifarError> {
    let path = dir.join(name);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(source) => {
            let needed = TRAIN_FILES.into_iter().chain([EVAL_FILE]).collect();
            return Err(CifarError::Read { path, needed, source });
        }
    };
    let record = 1 + PIXELS;
    if bytes.is_empty() || !bytes.len().is_multiple_of(record) {
        return Err(CifarError::Length { path, found: bytes.len(), record, original: record * 10_000 });
    }
    for (position, bytes) in bytes.chunks_exact(record).enumerate() {
        let label = bytes[0];
        if usize::from(label) >= CLASSES {
            return Err(CifarError::Label { path, record: position, label, last: CLASSES - 1 });
        }
        part.labels.push(label);
        part.pixels.extend_from_slice(&bytes[1..]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;
    use tempfile::TempDir;

    /// Returns records with these labels; the image of label n is a diagonal ramp from n.
    fn records(labels: &[u8]) -> Vec<u8> {
        let record = |label: &u8| {
            let mut record = vec![*label];
            record.extend((0..PIXELS).map(|at| u8::try_from((at / SIDE + at % SIDE) % 96).expect("below 96") + label));
            record
        };
        labels.iter().flat_map(record).collect()
    }

    fn ten() -> TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        for (label, name) in (0..).zip(TRAIN_FILES) {
            fs::write(dir.path().join(name), records(&[label, 9 - label])).expect("writable");
        }
        fs::write(dir.path().join("test_batch.bin"), records(&[3])).expect("writable");
        dir
    }

    fn message(dir: &TempDir) -> String {
        let fault = Cifar::read(dir.path()).expect_err("unusable").to_string();
        fault.replace(&dir.path().display().to_string(), "DIR")
    }

    #[test]
    fn the_files_are_read_in_their_order() {
        let set = Cifar::read(ten().path()).expect("valid");
        assert_eq!((set.train_len(), set.eval_len()), (10, 1));
        assert_eq!(set.train.labels, [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]);
        let mut planes = vec![0; PIXELS];
        assert_eq!(set.eval(0, &mut planes), Some(3));
        assert_eq!(planes, records(&[3])[1..]);
        assert_eq!(set.eval(1, &mut planes), None);
    }

    #[test]
    fn a_file_of_a_wrong_length_is_named_with_what_is_expected() {
        let dir = ten();
        fs::write(dir.path().join("data_batch_3.bin"), vec![0; 3072]).expect("writable");
        insta::assert_snapshot!(message(&dir), @"`DIR/data_batch_3.bin` has 3072 bytes (it must have 3073 for each image, 30730000 in the original: extract the binary version once more)");
        fs::write(dir.path().join("data_batch_3.bin"), []).expect("writable");
        assert!(message(&dir).contains("`DIR/data_batch_3.bin` has 0 bytes"));
    }

    #[test]
    fn a_missing_file_and_a_wrong_label_are_named() {
        let dir = ten();
        fs::write(dir.path().join("data_batch_2.bin"), records(&[1, 10])).expect("writable");
        insta::assert_snapshot!(message(&dir), @"`DIR/data_batch_2.bin` has the label 10 in record 1 (labels are 0 to 9: is this another file?)");
        fs::remove_file(dir.path().join("data_batch_2.bin")).expect("there");
        insta::assert_snapshot!(message(&dir), @"`DIR/data_batch_2.bin` cannot be read (the directory must have data_batch_1.bin, data_batch_2.bin, data_batch_3.bin, data_batch_4.bin, data_batch_5.bin, test_batch.bin)");
    }

    #[test]
    fn training_images_are_moved_by_up_to_four_pixels_and_mirrored_half_the_time() {
        let set = Cifar::read(ten().path()).expect("valid");
        let mut seen = std::collections::BTreeSet::new();
        let mut mirrored = 0;
        let mut planes = vec![0; PIXELS];
        for index in 0..2000 {
            assert_eq!(set.train(1, &mut Rng::new(5, Stream::Augment, index), &mut planes), Some(9));
            // Along a row the ramp rises, unless it is mirrored. All pixels of the image are 9 or more, the frame is 0.
            let middle = &planes[16 * SIDE..17 * SIDE];
            mirrored += u32::from(middle[15] > middle[16]);
            let black = planes[..SIDE].iter().filter(|pixel| **pixel == 0).count();
            let left = planes.chunks(SIDE).take(SIDE).filter(|row| row[0] == 0).count();
            seen.insert((black, left));
        }
        // 1,000 expected with a standard deviation of 22; 5 of them are allowed.
        assert!((890..1110).contains(&mirrored), "{mirrored} mirrored");
        // Each edge is black by none, a few (one to four) or all of its pixels.
        assert!(seen.contains(&(0, 0)) && seen.contains(&(32, 32)) && seen.contains(&(4, 4)), "{seen:?}");
        assert!(seen.iter().all(|(black, left)| [*black, *left].iter().all(|n| *n <= 4 || *n == 32)), "{seen:?}");
    }

    #[test]
    fn the_digest_covers_both_splits() {
        let dir = ten();
        let digest = || Cifar::read(dir.path()).expect("valid").digest();
        let before = digest();
        assert_eq!(digest(), before);
        fs::write(dir.path().join("test_batch.bin"), records(&[4])).expect("writable");
        assert_ne!(digest(), before);
    }
}
