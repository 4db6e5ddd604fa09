//! `scenes`: generated scenes of overlapping shapes with boxes, classes and masks. Version 1.
//!
//! Knows how a scene is made from (seed, split, index, side, classes) and nothing of files, training or devices.
//!
//! A scene has one to eight objects, every number equally likely, of two to eighty classes. They are small, medium and
//! large by COCO's limits, at any place, turned by any angle, in any colours, before a textured background and under
//! noise. Nearer objects hide others: a mask has the visible pixels, which are at least 40% and at least 64 pixels of
//! each object. A class is a form of `shapes` and a fill ([`class`]). Sizes, places, order and colours have the same
//! distribution for all classes, so that only form and fill distinguish them. Only additions, multiplications,
//! divisions and square roots of float32 are used. IEEE 754 rounds each of these in one way, so that every machine
//! draws the same bytes.
//!
//! A scene depends only on version, seed, split, index, side and number of classes, and is drawn on demand.
//!
//! Any change of a byte requires a new version and a new [`REFERENCE`].

pub mod class;
mod ground;
mod lattice;
mod layer;
mod paint;
mod pattern;
mod place;

use super::objects::object::Object;
use crate::data::digits::Split;
use crate::number::wide;
use crate::rng::{Rng, Stream};
use ledger_record::Digest;

/// The version of the drawings. Any change of a byte raises it.
pub const GENERATOR_VERSION: i64 = 1;

/// The allowed sides of scenes, in pixels.
pub const SIDES: std::ops::RangeInclusive<usize> = 64..=1024;

/// The digest of the scenes that a test draws. It identifies the generator in run ids.
pub const REFERENCE: Digest = Digest([
    0xd5, 0x05, 0x73, 0x62, 0x20, 0xf0, 0x07, 0x8b, 0xad, 0xf5, 0x6b, 0xd2, 0xd1, 0xb6, 0x53, 0x2e, 0xeb, 0x8c, 0x19,
    0xf8, 0xf0, 0xc1, 0xf0, 0x0a, 0x29, 0xcd, 0x5e, 0x3e, 0xe1, 0x41, 0x95, 0xd4,
]);

/// Scenes cannot be provided.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SceneError {
    /// The side is too small or too large.
    #[error("the side of scenes is {side} (it must be {least} to {most})", least = SIDES.start(), most = SIDES.end())]
    Side {
        /// The requested side in pixels.
        side: usize,
    },
    /// There are too few or too many classes.
    #[error("scenes cannot have {classes} classes (it must be {least} to {most})", least = class::CLASSES.start(), most = class::CLASSES.end())]
    Classes {
        /// The requested number.
        classes: usize,
    },
}

/// Scenes of one seed, side and number of classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenes {
    seed: u64,
    side: usize,
    classes: usize,
    train_count: usize,
    eval_count: usize,
}

impl Scenes {
    /// Scenes of `side` × `side` pixels with objects of `classes` classes. Fails if the side or the number of classes
    /// is out of range.
    pub fn new(
        seed: u64,
        side: usize,
        classes: usize,
        train_count: usize,
        eval_count: usize,
    ) -> Result<Self, SceneError> {
        if !SIDES.contains(&side) {
            return Err(SceneError::Side { side });
        }
        if !class::CLASSES.contains(&classes) {
            return Err(SceneError::Classes { classes });
        }
        Ok(Self { seed, side, classes, train_count, eval_count })
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Returns the number of training scenes.
    pub fn train_len(&self) -> usize {
        self.train_count
    }

    /// Returns the number of evaluation scenes.
    pub fn eval_len(&self) -> usize {
        self.eval_count
    }

    /// Draws a training scene. Returns its objects, at least one, the foremost first; `None` if the index is too large.
    pub fn train(&self, index: usize, planes: &mut [u8]) -> Option<Vec<Object>> {
        (index < self.train_count).then(|| self.draw_scene(Split::Train, index, planes))
    }

    /// Draws an evaluation scene. Returns its objects as [`Self::train`] does.
    pub fn eval(&self, index: usize, planes: &mut [u8]) -> Option<Vec<Object>> {
        (index < self.eval_count).then(|| self.draw_scene(Split::Eval, index, planes))
    }

    /// Returns the digest of the generator and its parameters: the scenes are never all in memory.
    pub fn digest(&self) -> Digest {
        let numbers = [self.side, self.classes, self.train_count, self.eval_count].map(wide);
        let numbers = [self.seed].into_iter().chain(numbers).flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
        Digest::of_pieces("ledger scenes v1", &[b"scenes", &REFERENCE.0, &numbers])
    }

    /// Draws one scene and returns its objects.
    fn draw_scene(&self, split: Split, index: usize, planes: &mut [u8]) -> Vec<Object> {
        let mut rng = self.random(split, index);
        let placed = place::place(&mut rng, self.side, self.classes);
        paint::paint(&mut rng, &placed, self.side, planes);
        placed.into_iter().map(|object| Object::of_mask(object.class, object.mask)).collect()
    }

    /// Returns the random numbers of a scene.
    fn random(&self, split: Split, index: usize) -> Rng {
        let stream = match split {
            Split::Train => Stream::TrainScene,
            Split::Eval => Stream::EvalScene,
        };
        Rng::new(self.seed, stream, wide(index))
    }
}

#[cfg(test)]
mod tests;
