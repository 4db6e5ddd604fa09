//! The data of a run: loading, splitting, digests and batches of float32.
//!
//! Knows the source of each kind of data and nothing of models. The loader is a function of indices: no threads, no
//! state, the same batches on every machine.

pub mod cifar;
pub mod coco;
pub mod dataset;
pub mod digits;
mod folder;
pub mod grammar;
pub mod idx;
pub mod images;
pub mod objects;
pub mod pictures;
pub mod planes;
pub mod scenes;
pub mod shapes;
pub mod text;

use crate::rng::{Rng, Stream};
use crate::spec::SmallData;
use digits::Split;
use idx::{IdxError, Pair};
use images::{CLASSES, Images, PIXELS};
use ledger_record::{Digest, count};
use objects::ObjectError;
use pictures::PictureError;
use std::path::PathBuf;
use text::TextError;

/// The data cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A data file cannot be used.
    #[error(transparent)]
    Idx(#[from] IdxError),
    /// Pictures cannot be used.
    #[error(transparent)]
    Pictures(#[from] PictureError),
    /// A text cannot be used.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Pictures with objects cannot be used.
    #[error(transparent)]
    Objects(#[from] ObjectError),
    /// There are more classes than the model has outputs.
    #[error("the data have {}, but `model.classes` is {model} (raise it)", count(found, "class"))]
    Classes {
        /// The number of classes.
        found: usize,
        /// The number of the model's outputs.
        model: usize,
    },
    /// No images are left for training.
    #[error(
        "`data.validation_count` is {validation}, but the data have {} (hold back fewer)",
        count(images, "training image")
    )]
    Validation {
        /// The number of images to hold back.
        validation: usize,
        /// The number of images.
        images: usize,
    },
    /// More samples are requested than there are.
    #[error(
        "`data.train_count` is {asked}, but `{path}` has {}{} (ask for fewer, or leave it out)",
        count(images, "image"), besides(*held), path = path.display()
    )]
    Count {
        /// The number requested.
        asked: usize,
        /// The file of images.
        path: PathBuf,
        /// The number of images in the file.
        images: usize,
        /// The number of images that are held back.
        held: usize,
    },
    /// There are fewer samples than one batch has.
    #[error(
        "`training.batch_size` is {batch}, but the data have {} (take a smaller batch or more data)",
        count(samples, "training sample")
    )]
    Batch {
        /// The samples that a step needs.
        batch: usize,
        /// The samples in the data.
        samples: usize,
    },
    /// There are fewer samples than all ranks need in a step.
    #[error(
        "`training.batch_size` is {batch} on each of {ranks} ranks, but the data have {} (take a smaller batch or more data)",
        count(samples, "training sample")
    )]
    GlobalBatch {
        /// The samples of a rank in a step.
        batch: usize,
        /// The number of ranks.
        ranks: usize,
        /// The samples in the data.
        samples: usize,
    },
}

fn besides(held: usize) -> String {
    if held == 0 { String::new() } else { format!(", of which `data.validation_count` holds back {held}") }
}

impl DataError {
    /// Returns an error if the data have fewer samples than the ranks need in a step, `batch` each.
    pub fn too_few([batch, ranks]: [usize; 2], samples: usize) -> Result<(), Self> {
        match ranks {
            _ if samples >= batch.saturating_mul(ranks) => Ok(()),
            1 => Err(Self::Batch { batch, samples }),
            _ => Err(Self::GlobalBatch { batch, ranks, samples }),
        }
    }
}

/// The abscissae of `line`.
pub const LINE_X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

/// The ordinates of `line`.
pub const LINE_Y: [f32; 4] = [0.0, -1.0, -2.0, -3.0];

/// The data of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Four points, all of them in every batch, none for evaluation.
    Line,
    /// Images.
    Images {
        /// To train on.
        train: Images,
        /// To evaluate with.
        eval: Images,
    },
}

/// Rows of float32: inputs and targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Number of rows.
    pub rows: usize,
    /// `rows` times the width of an input.
    pub inputs: Vec<f32>,
    /// `rows` times the width of an output; classes are one-hot.
    pub targets: Vec<f32>,
}

impl Data {
    /// Loads the data and checks that a batch can be filled.
    ///
    /// `batch` has the samples of each rank in a step, and the number of ranks.
    pub fn load(spec: &SmallData, batch: [usize; 2], seed: u64) -> Result<Self, DataError> {
        let data = match spec {
            SmallData::Line => return Ok(Self::Line),
            SmallData::Digits { seed, train, eval } => Self::Images {
                train: digits::generate(*seed, Split::Train, *train),
                eval: digits::generate(*seed, Split::Eval, *eval),
            },
            SmallData::Idx { path, validation, train } => {
                let all = idx::read(path, Pair::Train)?;
                let (mut kept, eval) = if *validation == 0 {
                    ((0..all.len()).collect(), idx::read(path, Pair::Test)?)
                } else {
                    hold_back(&all, *validation, seed)?
                };
                if let Some(asked) = *train {
                    let (images, held) = (all.len(), all.len() - kept.len());
                    if asked > kept.len() {
                        return Err(DataError::Count { asked, path: idx::images(path, Pair::Train)?, images, held });
                    }
                    kept.truncate(asked);
                }
                Self::Images { train: all.pick(&kept), eval }
            }
        };
        DataError::too_few(batch, data.train_len())?;
        Ok(data)
    }

    /// Returns the number of training samples.
    pub fn train_len(&self) -> usize {
        match self {
            Self::Line => LINE_X.len(),
            Self::Images { train, .. } => train.len(),
        }
    }

    /// Returns the digest of every byte that the run trains on or evaluates with.
    pub fn digest(&self) -> Digest {
        match self {
            Self::Line => {
                let bytes = |values: [f32; 4]| values.map(f32::to_le_bytes).concat();
                Digest::of_pieces("ledger data v1", &[&bytes(LINE_X), &bytes(LINE_Y)])
            }
            Self::Images { train, eval } => {
                Digest::of_pieces("ledger data v1", &[&train.pixels, &train.labels, &eval.pixels, &eval.labels])
            }
        }
    }

    /// Returns the training samples of these indices.
    pub fn batch(&self, indices: &[usize]) -> Batch {
        match self {
            Self::Line => {
                let points = |of: [f32; 4]| indices.iter().filter_map(|index| of.get(*index).copied()).collect();
                Batch { rows: indices.len(), inputs: points(LINE_X), targets: points(LINE_Y) }
            }
            Self::Images { train, .. } => image_batch(train, indices),
        }
    }
}

/// The mean of grey / 255 in PyTorch's MNIST example.
const MEAN: f32 = 0.1307;

/// Its standard deviation.
const DEVIATION: f32 = 0.3081;

/// Returns images as float32, standardised with MNIST's mean and deviation for all data.
pub fn image_batch(images: &Images, indices: &[usize]) -> Batch {
    let mut inputs = Vec::with_capacity(indices.len() * PIXELS);
    let mut targets = vec![0.0; indices.len() * CLASSES];
    for (row, &index) in indices.iter().enumerate() {
        inputs.extend(
            images.image(index).unwrap_or_default().iter().map(|grey| (f32::from(*grey) / 255.0 - MEAN) / DEVIATION),
        );
        if let Some(label) = images.labels.get(index) {
            targets[row * CLASSES + usize::from(*label)] = 1.0;
        }
    }
    Batch { rows: indices.len(), inputs, targets }
}

/// Splits the training images. Returns the indices that stay, in random order, and the images that are held back.
fn hold_back(all: &Images, validation: usize, seed: u64) -> Result<(Vec<usize>, Images), DataError> {
    if validation >= all.len() {
        return Err(DataError::Validation { validation, images: all.len() });
    }
    let mut order = Rng::new(seed, Stream::Split, 0).permutation(all.len());
    let kept = order.split_off(validation);
    Ok((kept, all.pick(&order)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(len: u8) -> Images {
        Images { pixels: (0..len).flat_map(|n| [n; PIXELS]).collect(), labels: (0..len).map(|n| n % 10).collect() }
    }

    #[test]
    fn a_split_keeps_every_image_once_and_repeats_by_seed() {
        let all = numbered(50);
        let (kept, held) = hold_back(&all, 20, 5).expect("enough images");
        let mut seen: Vec<u8> =
            all.pick(&kept).pixels.chunks(PIXELS).chain(held.pixels.chunks(PIXELS)).map(|image| image[0]).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..50).collect::<Vec<u8>>());
        assert_eq!(hold_back(&all, 20, 5).expect("enough images"), (kept, held.clone()));
        assert_ne!(hold_back(&all, 20, 6).expect("enough images").1, held);
        assert!(matches!(hold_back(&all, 50, 5), Err(DataError::Validation { .. })));
    }

    #[test]
    fn a_batch_is_in_the_order_of_its_indices() {
        let batch = image_batch(&numbered(20), &[13, 2]);
        assert_eq!((batch.rows, batch.inputs.len()), (2, 2 * PIXELS));
        let grey = |n: f32| (n / 255.0 - 0.1307) / 0.3081;
        assert_eq!((batch.inputs[0], batch.inputs[PIXELS]), (grey(13.0), grey(2.0)));
        let ones: Vec<usize> = (0..2 * CLASSES).filter(|spot| batch.targets[*spot] == 1.0).collect();
        assert_eq!(ones, [3, CLASSES + 2]);
    }

    #[test]
    fn too_few_samples_for_a_batch_are_an_error() {
        let spec = SmallData::Digits { seed: 0, train: 9, eval: 1 };
        let fault = Data::load(&spec, [10, 1], 0).expect_err("too few").to_string();
        assert_eq!(
            fault,
            "`training.batch_size` is 10, but the data have 9 training samples (take a smaller batch or more data)"
        );
        let fault = Data::load(&spec, [5, 2], 0).expect_err("too few for both").to_string();
        assert!(fault.starts_with("`training.batch_size` is 5 on each of 2 ranks, but the data have 9 "), "{fault}");
    }

    #[test]
    fn more_images_than_a_file_has_are_an_error() {
        let root = tempfile::tempdir().expect("a directory");
        let file = |name: &str, head: &[u32], items: &[u8]| {
            let head: Vec<u8> = head.iter().flat_map(|word| word.to_be_bytes()).collect();
            std::fs::write(root.path().join(name), [head.as_slice(), items].concat()).expect("written");
        };
        for name in ["train", "t10k"] {
            file(&format!("{name}-images-idx3-ubyte"), &[0x0803, 40, 28, 28], &[7; 40 * PIXELS]);
            file(&format!("{name}-labels-idx1-ubyte"), &[0x0801, 40], &[3; 40]);
        }
        let load = |train, validation| {
            let spec = SmallData::Idx { path: root.path().to_owned(), validation, train };
            let loaded = Data::load(&spec, [1, 1], 0).map(|data| data.train_len());
            loaded.map_err(|fault| fault.to_string().replace(&root.path().display().to_string(), "ROOT"))
        };
        assert_eq!([load(None, 0), load(Some(40), 0), load(Some(20), 20), load(None, 20)], [40, 40, 20, 20].map(Ok));
        let file = "`ROOT/train-images-idx3-ubyte` has 40 images";
        let remedy = "(ask for fewer, or leave it out)";
        assert_eq!(load(Some(1000), 0), Err(format!("`data.train_count` is 1000, but {file} {remedy}")));
        let held = "of which `data.validation_count` holds back 20";
        assert_eq!(load(Some(21), 20), Err(format!("`data.train_count` is 21, but {file}, {held} {remedy}")));
    }

    #[test]
    fn the_digest_covers_both_splits() {
        let load =
            |train, eval| Data::load(&SmallData::Digits { seed: 0, train, eval }, [1, 1], 0).expect("valid").digest();
        assert_eq!(load(5, 5), load(5, 5));
        assert_ne!(load(5, 5), load(6, 5));
        assert_ne!(load(5, 5), load(5, 6));
    }
}
