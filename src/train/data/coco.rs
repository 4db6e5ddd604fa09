//! COCO's annotations of objects (Lin et al. 2014, "Microsoft COCO: Common Objects in Context"): a JSON file with the lists `images`,
//! `annotations` and `categories`.
//!
//! Knows the file's form and what in it must fit together; nothing of models, and of the pictures only their names and their bytes'
//! digest. Everything is checked when the file is read: any bytes give an error with file, place and remedy, or annotations.
//!
//! Classes are numbered from 0 without gaps, in the order of the categories' ids. Images are in the order of their ids, in which COCO's
//! tools evaluate, and an image's objects in the order of the file. What else a file has is passed over.

mod fault;
mod fields;
mod folder;
mod link;
mod pictures;
mod sections;
mod square;

use crate::detection::boxes::Xywh;
use crate::detection::mask::{Mask, Size};
pub use fault::CocoError;
pub use folder::Coco;
use ledger_record::Digest;
use std::fs;
use std::path::{Path, PathBuf};

/// What of the annotations is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// Boxes; `segmentation` may be missing and is not looked at.
    Boxes,
    /// Boxes and masks.
    Masks,
}

/// The annotations of a set of images.
#[derive(Clone, Debug, PartialEq)]
pub struct Instances {
    categories: Vec<Category>,
    images: Vec<Image>,
    digest: Digest,
}

/// A kind of object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Category {
    /// Its id in the file.
    pub id: u64,
    /// Its name.
    pub name: String,
}

/// An image and what is in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Its id in the file.
    pub id: u64,
    /// Its file, below the folder of the pictures.
    pub file: PathBuf,
    /// Its width and height in pixels; neither is 0.
    pub size: Size,
    /// What is in it, in the order of the file.
    pub objects: Vec<Instance>,
}

/// An object in an image, or several that are not told apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Its annotation's id in the file.
    pub id: u64,
    /// The number of its class, from 0.
    pub class: usize,
    /// Its box in pixels; width and height are not below 0, but may be 0, as two of COCO's own are.
    pub bounds: Xywh,
    /// Its area in square pixels as the file has it: its mask's, without the fractions that the box has.
    pub area: f64,
    /// Whether it stands for many objects that are not told apart.
    pub crowd: bool,
    /// Its outline, where masks are read.
    pub outline: Option<Outline>,
}

/// Which pixels an object has, in the form of the file.
#[derive(Clone, Debug, PartialEq)]
pub enum Outline {
    /// Polygons `[x, y, x, y, …]` in pixels, one or more, each of three corners or more: an object that is partly covered may be in
    /// several parts.
    Polygons(Vec<Vec<f64>>),
    /// Run lengths, of the image's size.
    Runs(Mask),
}

impl Instances {
    /// Reads a file of annotations.
    pub fn read(path: &Path, parts: Parts) -> Result<Self, CocoError> {
        let bytes = fs::read(path).map_err(|source| CocoError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &bytes, parts)
    }

    /// Reads annotations from the bytes of the file `path`.
    fn parse(path: &Path, bytes: &[u8], parts: Parts) -> Result<Self, CocoError> {
        let listed = link::Listed::read(bytes, parts).map_err(|halt| halt.in_file(path, bytes))?;
        let (categories, images) = listed.link().map_err(|halt| halt.in_file(path, bytes))?;
        Ok(Self { categories, images, digest: Digest::of(bytes) })
    }

    /// The images in the order of their ids.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    /// The categories in the order of their ids, which is that of their classes.
    pub fn categories(&self) -> &[Category] {
        &self.categories
    }
}

#[cfg(test)]
mod tests;
