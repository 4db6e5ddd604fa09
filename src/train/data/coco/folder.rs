//! COCO's folder: `annotations/instances_train*.json` and `instances_val*.json`, and the pictures, JPEG or PNG, in `train*` and `val*`.
//!
//! Knows the folder's layout and what its digest covers. The pictures stay on disk; each is decoded when it is needed.

use super::square::Square;
use super::{Category, CocoError, Image, Instances, Parts, pictures};
use crate::data::folder::decode;
use crate::data::objects::object::Object;
use ledger_record::Digest;
use std::fs;
use std::path::{Path, PathBuf};

/// The pictures and annotations below one folder.
#[derive(Clone, Debug)]
pub struct Coco {
    side: u16,
    train: Half,
    eval: Half,
    digest: Digest,
}

/// The training or the evaluation half.
#[derive(Clone, Debug)]
struct Half {
    file: PathBuf,
    instances: Instances,
    /// The folder of the pictures.
    root: PathBuf,
}

/// The names of a half's files and folders.
struct Names {
    /// The prefix of the file of annotations.
    file: &'static str,
    /// The file in words, for messages.
    annotations: &'static str,
    /// The prefix of the folder of pictures.
    folder: &'static str,
    /// The folder in words, for messages.
    pictures: &'static str,
}

const TRAIN: Names = Names {
    file: "instances_train",
    annotations: "file annotations/instances_train*.json",
    folder: "train",
    pictures: "folder train* of pictures",
};

const EVAL: Names = Names {
    file: "instances_val",
    annotations: "file annotations/instances_val*.json",
    folder: "val",
    pictures: "folder val* of pictures",
};

impl Coco {
    /// Reads all annotations, and every byte of the pictures once for the digest. Pictures will be scaled to `side` ×
    /// `side`.
    pub fn open(root: &Path, side: u16, parts: Parts) -> Result<Self, CocoError> {
        let (train, eval) = (Half::read(root, &TRAIN, parts)?, Half::read(root, &EVAL, parts)?);
        train.same_categories(&eval)?;
        let [a, b] = [train.digest()?, eval.digest()?];
        let digest = Digest::of_pieces("ledger pictures v1", &[b"coco folder", &a.0, &b.0]);
        Ok(Self { side, train, eval, digest })
    }

    /// Returns the categories in the order of their classes.
    pub fn categories(&self) -> &[Category] {
        self.train.instances.categories()
    }

    /// Returns the number of training pictures.
    pub fn train_len(&self) -> usize {
        self.train.instances.images().len()
    }

    /// Returns the number of evaluation pictures.
    pub fn eval_len(&self) -> usize {
        self.eval.instances.images().len()
    }

    /// Returns the number of objects that training leaves out, because their boxes lie outside of their pictures.
    pub fn left_out(&self) -> usize {
        let of_image = |image: &Image| {
            let square = Square::new(image.size, self.side);
            image.objects.iter().filter(|object| square.clipped(object.bounds).is_empty()).count()
        };
        self.train.instances.images().iter().map(of_image).sum()
    }

    /// Whether the evaluation pictures have an object to be found; crowds do not count.
    pub fn evaluates(&self) -> bool {
        self.eval.instances.images().iter().flat_map(|image| &image.objects).any(|object| !object.crowd)
    }

    /// Returns the digest of both files of annotations, and of all pictures' names and bytes when the folder was
    /// opened.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Decodes a training picture into a square and returns its objects, with boxes clipped at the picture's edges;
    /// `None` if the index is too large.
    pub fn train(&self, index: usize, planes: &mut [u8]) -> Result<Option<Vec<Object>>, CocoError> {
        let Some((image, square)) = self.train.painted(index, self.side, planes)? else { return Ok(None) };
        let clipped = image.objects.iter().map(|object| (object, square.clipped(object.bounds)));
        let inside = clipped.filter(|(_, bounds)| !bounds.is_empty());
        Ok(Some(inside.map(|(object, bounds)| Object { bounds, ..square.object(object) }).collect()))
    }

    /// Decodes an evaluation picture into a square and returns all its objects unclipped, because COCO's tools evaluate
    /// that way; `None` if the index is too large.
    pub fn eval(&self, index: usize, planes: &mut [u8]) -> Result<Option<Vec<Object>>, CocoError> {
        let Some((image, square)) = self.eval.painted(index, self.side, planes)? else { return Ok(None) };
        Ok(Some(image.objects.iter().map(|object| square.object(object)).collect()))
    }
}

impl Half {
    fn read(root: &Path, names: &Names, parts: Parts) -> Result<Self, CocoError> {
        let annotations = root.join("annotations");
        let json = |path: &Path| path.extension().is_some_and(|ending| ending == "json") && path.is_file();
        let file = only(root, &annotations, names.file, names.annotations, json)?;
        let folder = only(root, root, names.folder, names.pictures, Path::is_dir)?;
        let instances = Instances::read(&file, parts)?;
        if instances.images().is_empty() {
            return Err(CocoError::Empty { path: file });
        }
        Ok(Self { file, instances, root: folder })
    }

    fn same_categories(&self, eval: &Self) -> Result<(), CocoError> {
        let (ours, theirs) = (self.instances.categories(), eval.instances.categories());
        let fault =
            |difference| Err(CocoError::Categories { train: self.file.clone(), eval: eval.file.clone(), difference });
        let shown = |Category { id, name }: &Category| format!("{id} is `{name}`");
        match ours.iter().zip(theirs).find(|(one, other)| one != other) {
            Some((one, other)) => fault(format!("{}, not {}", shown(other), shown(one))),
            None if ours.len() != theirs.len() => fault(format!("{} of {}", theirs.len(), ours.len())),
            None => Ok(()),
        }
    }

    fn digest(&self) -> Result<Digest, CocoError> {
        pictures::digest(&self.root, self.instances.digest, self.instances.images())
    }

    /// Paints a picture. Returns the image and its place in the square.
    fn painted(&self, index: usize, side: u16, planes: &mut [u8]) -> Result<Option<(&Image, Square)>, CocoError> {
        let Some(image) = self.instances.images().get(index) else { return Ok(None) };
        let path = self.root.join(&image.file);
        let picture = decode(&path)?;
        // The file may have been replaced since it was checked.
        pictures::check(image, &path, picture.dimensions())?;
        let square = Square::new(image.size, side);
        square.paint(&picture, planes);
        Ok(Some((image, square)))
    }
}

/// Returns the only entry of a folder that begins with `prefix` and that `fits` accepts.
fn only(
    root: &Path,
    folder: &Path,
    prefix: &str,
    part: &'static str,
    fits: impl Fn(&Path) -> bool,
) -> Result<PathBuf, CocoError> {
    let absent = || CocoError::Absent { root: root.to_owned(), part };
    if !folder.is_dir() {
        return Err(absent());
    }
    let fault = |source| CocoError::Folder { path: folder.to_owned(), source };
    let entries = fs::read_dir(folder).map_err(fault)?.collect::<Result<Vec<_>, _>>().map_err(fault)?;
    let named = entries.into_iter().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()));
    let mut found: Vec<PathBuf> = named.map(|entry| entry.path()).filter(|path| fits(path)).collect();
    found.sort();
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(first), Some(second)) => Err(CocoError::Several { first, second, part }),
        (Some(only), None) => Ok(only),
        (None, _) => Err(absent()),
    }
}

#[cfg(test)]
mod tests;
