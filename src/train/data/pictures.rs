//! Labelled RGB pictures from any source, in batches.
//!
//! Knows the source of the pictures and the random numbers that change them, and nothing of models. A batch is a
//! function of indices: no state, the same bytes for any number of threads.

use super::cifar::{self, Cifar, CifarError};
use super::dataset::{Dataset, Inputs, Samples};
use super::folder::{Folder, FolderError};
use super::planes::{CHANNELS, fill_rows};
use super::shapes::{self, Shapes};
use crate::DataError;
use crate::number::{real_len, wide};
use crate::rng::{Rng, Stream};
use ledger_record::{Digest, Value};
use std::path::Path;

/// The allowed sides of pictures, in pixels.
pub const SIDES: std::ops::RangeInclusive<usize> = 16..=1024;

/// Pictures cannot be provided.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// A file of CIFAR cannot be used.
    #[error(transparent)]
    Cifar(#[from] CifarError),
    /// A folder of pictures cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The side is too small or too large.
    #[error("the side of pictures is {side} (it must be {least} to {most})", least = SIDES.start(), most = SIDES.end())]
    Side {
        /// The requested side in pixels.
        side: usize,
    },
    /// There is no picture with this index.
    #[error("there is no {split} picture {index} (there are {len}, from 0)")]
    Index {
        /// `training` or `evaluation`.
        split: &'static str,
        /// The requested index.
        index: usize,
        /// The number of pictures.
        len: usize,
    },
}

/// Labelled RGB pictures for training and evaluation, all of one side: generated on demand, in memory, or on disk.
#[derive(Clone, Debug)]
pub struct Pictures {
    source: Source,
    side: usize,
}

#[derive(Clone, Debug)]
enum Source {
    Shapes(Shapes),
    Cifar(Cifar),
    Folder(Folder),
}

/// Rows of pictures and their classes.
#[derive(Clone, Debug, PartialEq)]
pub struct PictureBatch {
    /// Number of rows.
    pub rows: usize,
    /// `rows` × 3 × side × side: red, green and blue planes.
    pub pixels: Vec<u8>,
    /// `rows` classes, from 0.
    pub labels: Vec<i32>,
}

impl Pictures {
    /// Generated shapes; training pictures are mirrored at random.
    pub fn shapes(seed: u64, side: usize, train: usize, eval: usize) -> Result<Self, PictureError> {
        Self::new(Source::Shapes(Shapes { seed, side, train_count: train, eval_count: eval }), side)
    }

    /// CIFAR-10, 32 × 32, read into memory; training pictures are moved by up to 4 pixels and mirrored at
    /// random.
    pub fn cifar(dir: &Path) -> Result<Self, PictureError> {
        Self::new(Source::Cifar(Cifar::read(dir)?), cifar::SIDE)
    }

    /// A folder of JPEG and PNG files, which are read once now for the digest and decoded for each batch. Training
    /// takes a random part of a picture and mirrors it at random; evaluation takes the middle.
    pub fn folder(root: &Path, side: usize) -> Result<Self, PictureError> {
        if !SIDES.contains(&side) {
            return Err(PictureError::Side { side });
        }
        Self::new(Source::Folder(Folder::open(root, side)?), side)
    }

    fn new(source: Source, side: usize) -> Result<Self, PictureError> {
        if SIDES.contains(&side) { Ok(Self { source, side }) } else { Err(PictureError::Side { side }) }
    }

    /// Returns the number of files and folders that a folder of pictures has besides its pictures.
    pub fn ignored(&self) -> usize {
        match &self.source {
            Source::Shapes(_) | Source::Cifar(_) => 0,
            Source::Folder(folder) => folder.ignored(),
        }
    }

    /// Returns the training pictures of these indices. Their changes depend only on (`seed`, `epoch`, index). Fails if
    /// an index is too large or a file cannot be read or decoded.
    pub fn train_batch(&self, seed: u64, epoch: u64, indices: &[usize]) -> Result<PictureBatch, PictureError> {
        let key = Rng::new(seed, Stream::Augment, epoch).bits();
        self.batch(indices, |index, planes| {
            let mut rng = Rng::new(key, Stream::Augment, wide(index));
            let class = match &self.source {
                Source::Shapes(shapes) => shapes.train(index, &mut rng, planes),
                Source::Cifar(set) => set.train(index, &mut rng, planes),
                Source::Folder(folder) => folder.train(index, &mut rng, planes)?,
            };
            class.ok_or(PictureError::Index { split: "training", index, len: self.train_len() })
        })
    }

    /// Returns the evaluation pictures of these indices, unchanged. Fails as [`Self::train_batch`] does.
    pub fn eval_batch(&self, indices: &[usize]) -> Result<PictureBatch, PictureError> {
        self.batch(indices, |index, planes| {
            let class = match &self.source {
                Source::Shapes(shapes) => shapes.eval(index, planes),
                Source::Cifar(set) => set.eval(index, planes),
                Source::Folder(folder) => folder.eval(index, planes)?,
            };
            class.ok_or(PictureError::Index { split: "evaluation", index, len: self.eval_len() })
        })
    }

    /// Fills the rows; `fill` writes the planes of one picture and returns its class.
    fn batch(
        &self,
        indices: &[usize],
        fill: impl Fn(usize, &mut [u8]) -> Result<usize, PictureError> + Sync,
    ) -> Result<PictureBatch, PictureError> {
        let label =
            |index: usize, planes: &mut [u8]| fill(index, planes).map(|class| i32::try_from(class).unwrap_or(i32::MAX));
        let (pixels, labels) = fill_rows(self.side, indices, label)?;
        Ok(PictureBatch { rows: indices.len(), pixels, labels })
    }

    fn samples(&self, batch: PictureBatch) -> Samples {
        let PictureBatch { rows, pixels, labels } = batch;
        let shape = [rows, CHANNELS, self.side, self.side];
        Samples { inputs: Inputs::Pictures { bytes: pixels, shape }, targets: labels }
    }
}

impl Dataset for Pictures {
    fn train_len(&self) -> usize {
        match &self.source {
            Source::Shapes(shapes) => shapes.train_count,
            Source::Cifar(set) => set.train_len(),
            Source::Folder(folder) => folder.train_len(),
        }
    }

    fn eval_len(&self) -> usize {
        match &self.source {
            Source::Shapes(shapes) => shapes.eval_count,
            Source::Cifar(set) => set.eval_len(),
            Source::Folder(folder) => folder.eval_len(),
        }
    }

    fn classes(&self) -> usize {
        match &self.source {
            Source::Shapes(_) => shapes::CLASSES,
            Source::Cifar(_) => cifar::CLASSES,
            Source::Folder(folder) => folder.classes().len(),
        }
    }

    fn train(&self, seed: u64, epoch: u64, indices: &[usize]) -> Result<Samples, DataError> {
        Ok(self.samples(self.train_batch(seed, epoch, indices)?))
    }

    fn eval(&self, indices: &[usize]) -> Result<Samples, DataError> {
        Ok(self.samples(self.eval_batch(indices)?))
    }

    fn facts(&self) -> Vec<(&'static str, Value)> {
        let ignored = Some(self.ignored()).filter(|ignored| *ignored > 0);
        let chance = 1.0 / real_len(self.classes().max(1));
        let ignored = ignored.map(|ignored| ("data_files_ignored", ignored.into()));
        ignored.into_iter().chain([("chance_accuracy", chance.into())]).collect()
    }

    /// Returns the digest of all pictures before random changes: of the bytes, or of the generator's parameters.
    fn digest(&self) -> Digest {
        match &self.source {
            Source::Shapes(shapes) => shapes.digest(),
            Source::Cifar(set) => set.digest(),
            Source::Folder(folder) => folder.digest(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::ThreadPoolBuilder;
    use std::fs;
    use tempfile::TempDir;

    /// CIFAR with one record a file; every image is a ramp.
    fn cifar() -> (TempDir, Pictures) {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"] {
            let record: Vec<u8> = (0..3073_u32).map(|at| u8::try_from(at % 251).expect("below 251")).collect();
            fs::write(dir.path().join(format!("{name}.bin")), record).expect("writable");
        }
        let pictures = Pictures::cifar(dir.path()).expect("valid");
        (dir, pictures)
    }

    fn folder() -> (TempDir, Pictures) {
        let dir = tempfile::tempdir().expect("a directory");
        for (part, class) in [("train", "a"), ("train", "b"), ("val", "a"), ("val", "b")] {
            let class = dir.path().join(part).join(class);
            fs::create_dir_all(&class).expect("writable");
            for name in ["1.png", "2.png", "3.png"] {
                let ramp = |x: u32, y: u32| image::Rgb([x * 4, y * 5, x + y].map(|n| u8::try_from(n).expect("a byte")));
                image::RgbImage::from_fn(40, 30, ramp).save(class.join(name)).expect("writable");
            }
        }
        let pictures = Pictures::folder(dir.path(), 24).expect("valid");
        (dir, pictures)
    }

    fn shapes() -> Pictures {
        Pictures::shapes(1, 24, 12, 6).expect("valid")
    }

    fn all_sources() -> Vec<(Option<TempDir>, Pictures)> {
        let ((cifar_dir, cifar), (folder_dir, folder)) = (cifar(), folder());
        vec![(None, shapes()), (Some(cifar_dir), cifar), (Some(folder_dir), folder)]
    }

    #[test]
    fn every_source_reports_its_sizes() {
        let sizes = |pictures: &Pictures| {
            (pictures.side, pictures.classes(), pictures.train_len(), pictures.eval_len(), pictures.ignored())
        };
        let found: Vec<_> = all_sources().iter().map(|(_, pictures)| sizes(pictures)).collect();
        assert_eq!(found, [(24, 10, 12, 6, 0), (32, 10, 5, 1, 0), (24, 2, 6, 6, 0)]);
    }

    #[test]
    fn a_batch_is_the_same_on_any_number_of_threads() {
        for (_dir, pictures) in all_sources() {
            let batches = |threads| {
                let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
                pool.install(|| {
                    (
                        pictures.train_batch(7, 2, &[3, 0, 4, 3, 1]).expect("there"),
                        pictures.eval_batch(&[0]).expect("there"),
                    )
                })
            };
            assert_eq!(batches(1), batches(4));
        }
    }

    #[test]
    fn a_row_depends_on_seed_epoch_and_index_and_not_on_its_batch() {
        for (_dir, pictures) in all_sources() {
            let size = 3 * pictures.side * pictures.side;
            let batch = pictures.train_batch(7, 2, &[3, 0, 4, 3]).expect("there");
            assert_eq!((batch.rows, batch.pixels.len(), batch.labels.len()), (4, 4 * size, 4));
            let alone = pictures.train_batch(7, 2, &[4]).expect("there");
            assert_eq!(batch.pixels[2 * size..3 * size], alone.pixels);
            assert_eq!(batch.labels[2], alone.labels[0]);
            assert_eq!(batch.pixels[..size], batch.pixels[3 * size..]);
            // A mirror leaves a picture unchanged in half of the epochs. All ten are equal with a probability of 1 in
            // 1024.
            let epochs: Vec<_> =
                (0..10).map(|epoch| pictures.train_batch(7, epoch, &[4]).expect("there").pixels).collect();
            assert!(epochs.iter().any(|epoch| *epoch != epochs[0]));
            let seeds: Vec<_> =
                (0..10).map(|seed| pictures.train_batch(seed, 1, &[4]).expect("there").pixels).collect();
            assert!(seeds.iter().any(|seed| *seed != seeds[0]));
        }
    }

    #[test]
    fn evaluation_pictures_are_not_changed() {
        let (_dir, pictures) = cifar();
        let batch = pictures.eval_batch(&[0]).expect("there");
        assert_eq!(batch.labels, [0]);
        // The record counts up from the label 0, modulo 251.
        assert_eq!([0, 1024, 3071].map(|at| u16::from(batch.pixels[at])), [1, 1025 % 251, 3072 % 251]);
    }

    #[test]
    fn an_index_that_is_too_large_is_an_error() {
        let fault = |found: Result<PictureBatch, PictureError>| found.expect_err("too large").to_string();
        let pictures = shapes();
        insta::assert_snapshot!(fault(pictures.train_batch(0, 0, &[11, 12, 13])), @"there is no training picture 12 (there are 12, from 0)");
        insta::assert_snapshot!(fault(pictures.eval_batch(&[6])), @"there is no evaluation picture 6 (there are 6, from 0)");
        for (_dir, pictures) in all_sources() {
            assert!(pictures.train_batch(0, 0, &[pictures.train_len()]).is_err());
            assert!(pictures.eval_batch(&[pictures.eval_len()]).is_err());
        }
    }

    #[test]
    fn no_indices_give_an_empty_batch() {
        let empty = shapes().eval_batch(&[]).expect("nothing to fail");
        assert_eq!(empty, PictureBatch { rows: 0, pixels: vec![], labels: vec![] });
    }

    #[test]
    fn a_side_must_be_reasonable() {
        for side in [0, 15, 1025] {
            assert!(matches!(Pictures::shapes(0, side, 1, 1), Err(PictureError::Side { .. })));
            assert!(matches!(Pictures::folder(Path::new("/nowhere"), side), Err(PictureError::Side { .. })));
        }
        insta::assert_snapshot!(Pictures::shapes(0, 8, 1, 1).expect_err("too small"), @"the side of pictures is 8 (it must be 16 to 1024)");
    }

    /// The changes that a seed makes to a picture are part of a run's results: another change needs a new version of
    /// the trainer.
    #[test]
    fn the_changes_of_an_epoch_are_frozen() {
        let (_dir, pictures) = cifar();
        let corners = |index| {
            let batch = pictures.train_batch(1, 1, &[index]).expect("there");
            [0, 31, 500, 1023].map(|at| batch.pixels[at])
        };
        let frozen = [[31, 0, 240, 0], [130, 0, 128, 0], [0, 0, 185, 206], [0, 0, 174, 0]];
        assert_eq!([0, 1, 2, 3].map(corners), frozen);
    }
}
