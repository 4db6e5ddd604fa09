//! Errors in a file of annotations, with the place and the fix.

use crate::data::folder::FolderError;
use crate::detection::mask::{MaskError, Size};
use ledger_record::count;
use std::io;
use std::path::{Path, PathBuf};

/// Annotations cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CocoError {
    /// The file of annotations cannot be read.
    #[error("`{path}` cannot be read (it must be COCO's JSON file of instances)", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The content at a place in the file is invalid.
    #[error("{path}:{line}:{column}: {fault}", path = path.display())]
    Place {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The byte in the line, from 1.
        column: usize,
        /// The fault.
        fault: Fault,
    },
    /// An image's file cannot be read.
    #[error("image {id} cannot be read: `{path}` (all images of the annotations must be there)", path = path.display())]
    Picture {
        /// The image's id.
        id: u64,
        /// The image's file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A part of the folder is missing.
    #[error("`{root}` has no {part} (it must be laid out as COCO is)", root = root.display())]
    Absent {
        /// The folder that was given.
        root: PathBuf,
        /// The missing part, with `*` for any letters.
        part: &'static str,
    },
    /// A part of the folder exists more than once.
    #[error("`{first}` and `{second}` are both there (there must be one {part}: move the other one away)", first = first.display(), second = second.display())]
    Several {
        /// The first in the order of names.
        first: PathBuf,
        /// The second.
        second: PathBuf,
        /// The part that must exist once.
        part: &'static str,
    },
    /// A folder cannot be listed.
    #[error("`{path}` cannot be listed", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// There are no images for training or for evaluation.
    #[error("`{path}` has no images in `images` (it must have at least one)", path = path.display())]
    Empty {
        /// The file of annotations.
        path: PathBuf,
    },
    /// Training and evaluation do not have the same classes.
    #[error("`{eval}` has not the categories of `{train}`: {difference} (both must have the same ids and names)", train = train.display(), eval = eval.display())]
    Categories {
        /// The annotations for training.
        train: PathBuf,
        /// The annotations for evaluation.
        eval: PathBuf,
        /// The difference.
        difference: String,
    },
    /// An image's file has another size than in the annotations.
    #[error(
        "image {id} is {found} pixels in the annotations, but its file `{path}` has {w} × {h} (pictures and annotations must be of one set)",
        path = path.display(), found = size.text(), w = file[0], h = file[1]
    )]
    PictureSize {
        /// The image's id.
        id: u64,
        /// Its file.
        path: PathBuf,
        /// Width and height in the annotations.
        size: Size,
        /// Width and height of the file's picture.
        file: [u32; 2],
    },
    /// An image's file is not a picture.
    #[error(transparent)]
    Decode(#[from] FolderError),
}

/// A fault at a place of the file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Fault {
    /// It is not JSON.
    #[error("{reason} (the file must be one JSON object)")]
    Syntax {
        /// The parser's message.
        reason: String,
    },
    /// One of the three lists is missing. The place is the end of the file.
    #[error("`{list}` is missing (it must be a list; is this COCO's file of instances?)")]
    NoList {
        /// Its name.
        list: &'static str,
    },
    /// A value that should be a list is not one.
    #[error("`{list}` is not a list (it must be one, of objects)")]
    NotList {
        /// Its name.
        list: &'static str,
    },
    /// A list occurs twice.
    #[error("`{list}` is there for the second time (join the lists)")]
    SecondList {
        /// Its name.
        list: &'static str,
    },
    /// An entry of a list is invalid.
    #[error("`{list}[{index}]`{id}: {fault}", id = id.map(|id| format!(" (id {id})")).unwrap_or_default())]
    Entry {
        /// The list's name.
        list: &'static str,
        /// The place in the list, from 0.
        index: usize,
        /// The entry's id, if that could be read.
        id: Option<u64>,
        /// The fault.
        fault: Box<EntryFault>,
    },
}

/// A fault of an entry of a list.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EntryFault {
    /// It is not an object.
    #[error("it is {found} (it must be an object)")]
    NotObject {
        /// The beginning of its value.
        found: String,
    },
    /// A field is missing.
    #[error("`{field}` is missing (it must be {needed})")]
    Missing {
        /// The field.
        field: &'static str,
        /// The expected value.
        needed: &'static str,
    },
    /// A field has another type or is out of range.
    #[error("`{field}` is {found} (it must be {needed})")]
    Field {
        /// The field.
        field: &'static str,
        /// The beginning of its value.
        found: String,
        /// The expected value.
        needed: &'static str,
    },
    /// An id occurs twice.
    #[error("its id is that of `{list}[{first}]` as well (give every id once)")]
    Duplicate {
        /// The list's name.
        list: &'static str,
        /// The place of the first occurrence.
        first: usize,
    },
    /// A box has a negative width or height.
    #[error(
        "the box `bbox` is {width} wide and {height} high (it must be [x, y, width, height], the last two not below 0)"
    )]
    Extent {
        /// Its width.
        width: f64,
        /// Its height.
        height: f64,
    },
    /// The image of an annotation does not exist.
    #[error("image {image} is not in `images` (add it or remove the annotation)")]
    Image {
        /// Its id.
        image: u64,
    },
    /// The category of an annotation does not exist.
    #[error("category {category} is not in `categories` (add it or remove the annotation)")]
    Category {
        /// Its id.
        category: u64,
    },
    /// A polygon has a wrong number of coordinates.
    #[error(
        "`segmentation[{polygon}]` has {} (a polygon must have an even number of them, at least 6)",
        count(numbers, "number")
    )]
    Polygon {
        /// The polygon's place in the object, from 0.
        polygon: usize,
        /// The number of its coordinates.
        numbers: usize,
    },
    /// Run lengths have another size than the image.
    #[error(
        "`segmentation.size` is [{h}, {w}] (the image is {height} high and {width} wide)",
        h = found[0], w = found[1], height = image.height, width = image.width
    )]
    Size {
        /// The height and width of the run lengths.
        found: [u64; 2],
        /// The image's size.
        image: Size,
    },
    /// Run lengths do not describe a mask.
    #[error("`segmentation.counts`: {0}")]
    Runs(MaskError),
}

/// A fault and the byte of the file at which it is; [`in_file`](Self::in_file) adds the file.
#[derive(Debug)]
pub(super) struct Halt {
    pub offset: usize,
    pub fault: Fault,
}

impl Halt {
    /// Adds the file, and counts the lines up to the place.
    pub fn in_file(self, path: &Path, bytes: &[u8]) -> CocoError {
        let before = &bytes[..self.offset.min(bytes.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').count();
        CocoError::Place { path: path.to_owned(), line, column, fault: self.fault }
    }
}
