//! COCO's annotations of objects (Lin et al. 2014, "Microsoft COCO: Common Objects in Context"): a JSON file with the lists `images`,
//! `annotations` and `categories`.
//!
//! Knows the file's format and its consistency rules; nothing of models, and of the pictures only their names and the
//! digest of their bytes. Everything is checked when the file is read: any bytes give annotations, or an error with
//! file, place and fix.
//!
//! Classes are numbered from 0 without gaps, in the order of the categories' ids. Images are in the order of their ids,
//! in which COCO's tools evaluate. An image's objects are in the order of the file. Other content of the file is
//! ignored.

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

/// The parts of annotations that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// Boxes; `segmentation` may be missing and is ignored.
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

/// An image and its objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Its id in the file.
    pub id: u64,
    /// Its file, below the folder of pictures.
    pub file: PathBuf,
    /// Its width and height in pixels; neither is 0.
    pub size: Size,
    /// Its objects, in the order of the file.
    pub objects: Vec<Instance>,
}

/// An object in an image, or a group of objects that are not annotated separately.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Its annotation's id in the file.
    pub id: u64,
    /// The number of its class, from 0.
    pub class: usize,
    /// Its box in pixels. Width and height are at least 0; two of COCO's own are 0.
    pub bounds: Xywh,
    /// Its area in square pixels as given in the file: that of its mask, without the fractions that the box has.
    pub area: f64,
    /// Whether it stands for a group of objects that are not annotated separately.
    pub crowd: bool,
    /// Its outline, if masks are read.
    pub outline: Option<Outline>,
}

/// The pixels of an object, in the format of the file.
#[derive(Clone, Debug, PartialEq)]
pub enum Outline {
    /// Polygons `[x, y, x, y, …]` in pixels, one or more, each of at least three corners. An object that is partly
    /// covered may have several parts.
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

    /// Returns the images in the order of their ids.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    /// Returns the categories in the order of their ids, which is that of their classes.
    pub fn categories(&self) -> &[Category] {
        &self.categories
    }
}

#[cfg(test)]
mod tests;
