//! RGB pictures with objects, from any source, in batches.
//!
//! Knows the source of the pictures and the random numbers that mirror them, and nothing of models. A batch is a
//! function of indices: no state, the same bytes for any number of threads.

pub mod object;

use super::coco::{Coco, CocoError, Parts};
use super::pictures::SIDES;
use super::planes::{fill_rows, mirror};
use super::scenes::{SceneError, Scenes};
use crate::number::{real_len, single, wide};
use crate::rng::{Rng, Stream};
use ledger_record::{Digest, Value};
pub use object::Object;
use std::path::Path;

/// Pictures with objects cannot be provided.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// Scenes cannot be drawn.
    #[error(transparent)]
    Scenes(#[from] SceneError),
    /// A folder in COCO's layout cannot be used.
    #[error(transparent)]
    Coco(#[from] CocoError),
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

/// RGB pictures with objects for training and evaluation, all of one side: generated on demand, or on disk.
#[derive(Clone, Debug)]
pub struct ObjectPictures {
    source: Source,
    side: usize,
}

#[derive(Clone, Debug)]
enum Source {
    Scenes(Scenes),
    Coco(Box<Coco>),
}

/// Pictures and their objects.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectBatch {
    /// Number of rows.
    pub rows: usize,
    /// Width and height of each picture in pixels.
    pub side: usize,
    /// `rows` × 3 × side × side: red, green and blue planes.
    pub pixels: Vec<u8>,
    /// The objects of each row.
    pub objects: Vec<Vec<Object>>,
}

impl ObjectPictures {
    /// Generated scenes, with boxes and masks.
    pub fn scenes(seed: u64, side: usize, classes: usize, train: usize, eval: usize) -> Result<Self, ObjectError> {
        Ok(Self { source: Source::Scenes(Scenes::new(seed, side, classes, train, eval)?), side })
    }

    /// A folder in COCO's layout, with the requested parts of its annotations. Its pictures are read once now for the
    /// digest, and decoded for each batch: scaled to fit into `side` × `side`, with a grey frame if they are not
    /// square.
    pub fn coco(root: &Path, side: usize, parts: Parts) -> Result<Self, ObjectError> {
        let pixels = u16::try_from(side).ok().filter(|_| SIDES.contains(&side)).ok_or(ObjectError::Side { side })?;
        Ok(Self { source: Source::Coco(Coco::open(root, pixels, parts)?.into()), side })
    }

    /// Returns the width and height of every picture in pixels.
    pub fn side(&self) -> usize {
        self.side
    }

    /// Returns the number of classes, without the background.
    pub fn classes(&self) -> usize {
        match &self.source {
            Source::Scenes(scenes) => scenes.classes(),
            Source::Coco(coco) => coco.categories().len(),
        }
    }

    /// Returns the number of training pictures.
    pub fn train_len(&self) -> usize {
        match &self.source {
            Source::Scenes(scenes) => scenes.train_len(),
            Source::Coco(coco) => coco.train_len(),
        }
    }

    /// Returns the number of evaluation pictures.
    pub fn eval_len(&self) -> usize {
        match &self.source {
            Source::Scenes(scenes) => scenes.eval_len(),
            Source::Coco(coco) => coco.eval_len(),
        }
    }

    /// Returns the training pictures of these indices with their objects. Mirroring depends only on (`seed`, `epoch`,
    /// index). Every box has an extent and lies in its picture. Fails if an index is too large or a file cannot be read
    /// or decoded.
    pub fn train_batch(&self, seed: u64, epoch: u64, indices: &[usize]) -> Result<ObjectBatch, ObjectError> {
        let key = Rng::new(seed, Stream::Augment, epoch).bits();
        self.batch(indices, |index, planes| {
            let objects = match &self.source {
                Source::Scenes(scenes) => scenes.train(index, planes),
                Source::Coco(coco) => coco.train(index, planes)?,
            };
            let objects = objects.ok_or(ObjectError::Index { split: "training", index, len: self.train_len() })?;
            if Rng::new(key, Stream::Augment, wide(index)).below(2) == 0 {
                return Ok(objects);
            }
            mirror(planes, self.side);
            let width = single(real_len(self.side));
            Ok(objects.into_iter().map(|object| object.mirrored(width)).collect())
        })
    }

    /// Returns the evaluation pictures of these indices, unchanged. Boxes from files are unchanged: they may extend
    /// beyond the picture. Fails as [`Self::train_batch`] does.
    pub fn eval_batch(&self, indices: &[usize]) -> Result<ObjectBatch, ObjectError> {
        self.batch(indices, |index, planes| {
            let objects = match &self.source {
                Source::Scenes(scenes) => scenes.eval(index, planes),
                Source::Coco(coco) => coco.eval(index, planes)?,
            };
            objects.ok_or(ObjectError::Index { split: "evaluation", index, len: self.eval_len() })
        })
    }

    /// Returns the digest of all training and evaluation data before mirroring: of the bytes, or of the generator's
    /// parameters.
    pub fn digest(&self) -> Digest {
        match &self.source {
            Source::Scenes(scenes) => scenes.digest(),
            Source::Coco(coco) => coco.digest(),
        }
    }

    /// Returns facts about the data.
    pub fn facts(&self) -> Vec<(&'static str, Value)> {
        let Source::Coco(coco) = &self.source else { return Vec::new() };
        let left_out = Some(coco.left_out()).filter(|count| *count > 0);
        let pictures = ("data_pictures", (coco.train_len() + coco.eval_len()).into());
        let missing = (!coco.evaluates()).then_some("no picture of the evaluation has an object to be found");
        [pictures]
            .into_iter()
            .chain(left_out.map(|count| ("data_objects_left_out", count.into())))
            .chain(missing.map(|why| ("accuracy_missing", why.into())))
            .collect()
    }

    /// Fills the rows; `fill` writes the planes of one picture and returns its objects.
    fn batch(
        &self,
        indices: &[usize],
        fill: impl Fn(usize, &mut [u8]) -> Result<Vec<Object>, ObjectError> + Sync,
    ) -> Result<ObjectBatch, ObjectError> {
        let (pixels, objects) = fill_rows(self.side, indices, fill)?;
        Ok(ObjectBatch { rows: indices.len(), side: self.side, pixels, objects })
    }
}

#[cfg(test)]
mod tests;
