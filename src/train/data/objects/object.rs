//! What is in a picture.

use crate::detection::boxes::Xyxy;
use crate::detection::mask::Mask;
use crate::number::real;

/// An object in a picture, in its pixels.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its class, from 0: there is none for the background.
    pub class: usize,
    /// Its box.
    pub bounds: Xyxy,
    /// What decides whether evaluation calls it small, medium or large, in square pixels: its mask's area where that is known.
    pub area: f64,
    /// Whether it stands for many objects that are not told apart: evaluation forgives what is found in it, and nothing is learned from it.
    pub crowd: bool,
    /// Its pixels, of the whole picture's size, where they are known.
    pub mask: Option<Mask>,
}

impl Object {
    /// The object of this class that has these pixels.
    pub fn of_mask(class: usize, mask: Mask) -> Self {
        let (bounds, area) = (mask.bounds().into(), real(mask.area().into()));
        Self { class, bounds, area, crowd: false, mask: Some(mask) }
    }

    /// The object in its picture, `width` pixels wide, after left and right were exchanged.
    pub fn mirrored(self, width: f32) -> Self {
        Self { bounds: self.bounds.mirrored(width), mask: self.mask.map(|mask| mask.mirrored()), ..self }
    }
}
