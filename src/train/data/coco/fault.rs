//! What can be wrong with a file of annotations, told with the place and the remedy.

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
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A place in the file is not as it must be.
    #[error("{path}:{line}:{column}: {fault}", path = path.display())]
    Place {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The byte in the line, from 1.
        column: usize,
        /// What is wrong there.
        fault: Fault,
    },
    /// An image's file cannot be read.
    #[error("image {id} cannot be read: `{path}` (all images of the annotations must be there)", path = path.display())]
    Picture {
        /// The image's id.
        id: u64,
        /// The image's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Part of the folder is missing.
    #[error("`{root}` has no {part} (it must be laid out as COCO is)", root = root.display())]
    Absent {
        /// The folder that was given.
        root: PathBuf,
        /// What is missing, with `*` for any letters.
        part: &'static str,
    },
    /// Part of the folder is there more than once.
    #[error("`{first}` and `{second}` are both there (there must be one {part}: move the other one away)", first = first.display(), second = second.display())]
    Several {
        /// The first in the order of names.
        first: PathBuf,
        /// The second.
        second: PathBuf,
        /// What there must be once.
        part: &'static str,
    },
    /// A folder cannot be listed.
    #[error("`{path}` cannot be listed", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is nothing to learn from or to evaluate with.
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
        /// What differs.
        difference: String,
    },
    /// An image's file is another picture than that of the annotations.
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
    /// An image's file is no picture.
    #[error(transparent)]
    Decode(#[from] FolderError),
}

/// What is wrong at a place of the file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Fault {
    /// It is not JSON.
    #[error("{reason} (the file must be one JSON object)")]
    Syntax {
        /// What the parser says.
        reason: String,
    },
    /// One of the three lists is missing, and no place is better than the end.
    #[error("`{list}` is missing (it must be a list; is this COCO's file of instances?)")]
    NoList {
        /// Its name.
        list: &'static str,
    },
    /// What should be a list is none.
    #[error("`{list}` is not a list (it must be one, of objects)")]
    NotList {
        /// Its name.
        list: &'static str,
    },
    /// A list is there twice.
    #[error("`{list}` is there for the second time (join the lists)")]
    SecondList {
        /// Its name.
        list: &'static str,
    },
    /// An entry of a list is not as it must be.
    #[error("`{list}[{index}]`{id}: {fault}", id = id.map(|id| format!(" (id {id})")).unwrap_or_default())]
    Entry {
        /// The list's name.
        list: &'static str,
        /// Which of the list, from 0.
        index: usize,
        /// The entry's id, if that could be read.
        id: Option<u64>,
        /// What is wrong with it.
        fault: Box<EntryFault>,
    },
}

/// What is wrong with an entry of a list.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EntryFault {
    /// It is not an object.
    #[error("it is {found} (it must be an object)")]
    NotObject {
        /// Its beginning.
        found: String,
    },
    /// A field is missing.
    #[error("`{field}` is missing (it must be {needed})")]
    Missing {
        /// The field.
        field: &'static str,
        /// What it must be.
        needed: &'static str,
    },
    /// A field is of another kind or beyond its range.
    #[error("`{field}` is {found} (it must be {needed})")]
    Field {
        /// The field.
        field: &'static str,
        /// The beginning of what is there.
        found: String,
        /// What it must be.
        needed: &'static str,
    },
    /// An id is there twice.
    #[error("its id is that of `{list}[{first}]` as well (give every id once)")]
    Duplicate {
        /// The list's name.
        list: &'static str,
        /// Where the id was before.
        first: usize,
    },
    /// A box ends before it begins.
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
    /// A polygon is none.
    #[error(
        "`segmentation[{polygon}]` has {} (a polygon must have an even number of them, at least 6)",
        count(numbers, "number")
    )]
    Polygon {
        /// Which of the object, from 0.
        polygon: usize,
        /// How many numbers it has.
        numbers: usize,
    },
    /// Run lengths are those of another picture.
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
    /// Run lengths are not those of a mask.
    #[error("`segmentation.counts`: {0}")]
    Runs(MaskError),
}

/// A fault and the byte of the file at which it is; which file is told by [`in_file`](Self::in_file).
#[derive(Debug)]
pub(super) struct Halt {
    pub offset: usize,
    pub fault: Fault,
}

impl Halt {
    /// Counts the lines up to the place, which nobody needs where all is well.
    pub fn in_file(self, path: &Path, bytes: &[u8]) -> CocoError {
        let before = &bytes[..self.offset.min(bytes.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').count();
        CocoError::Place { path: path.to_owned(), line, column, fault: self.fault }
    }
}
