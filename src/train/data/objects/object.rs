//! An object in a picture.

use crate::detection::boxes::Xyxy;
use crate::detection::mask::Mask;
use crate::number::real;

/// An object in a picture, in the picture's pixels.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its class, from 0; the background has none.
    pub class: usize,
    /// Its box.
    pub bounds: Xyxy,
    /// Its area in square pixels, by which evaluation calls it small, medium or large: its mask's area if known.
    pub area: f64,
    /// Whether it stands for a group of objects that are not annotated separately. Evaluation ignores predictions in
    /// it, and training leaves it out.
    pub crowd: bool,
    /// Its mask, of the whole picture's size, if known.
    pub mask: Option<Mask>,
}

impl Object {
    /// The object of this class with this mask.
    pub fn of_mask(class: usize, mask: Mask) -> Self {
        let (bounds, area) = (mask.bounds().into(), real(mask.area().into()));
        Self { class, bounds, area, crowd: false, mask: Some(mask) }
    }

    /// Returns the object after its picture, `width` pixels wide, was mirrored.
    pub fn mirrored(self, width: f32) -> Self {
        Self { bounds: self.bounds.mirrored(width), mask: self.mask.map(|mask| mask.mirrored()), ..self }
    }
}
