//! Folders of pictures in the layout of ImageNet: `train/CLASS/FILE` and `val/CLASS/FILE`, JPEG or PNG.
//!
//! Knows how the folders are read, what their digest covers, and how a file becomes a picture of a fixed size. The
//! files stay on disk; each is decoded when it is needed.
//!
//! As in torchvision's `ImageFolder`, classes are the folders in the order of their names. Files are found at any depth
//! below them and sorted, and links are followed. As in torchvision's reference for classification, training scales a
//! random part and evaluation the middle. Both use `image`'s triangle filter, which is bilinear with antialiasing, as
//! Pillow's. Differences: hidden files and folders are left out, the format is detected by a file's content and not by
//! its extension, and only JPEG and PNG are read. As in torchvision, the orientation in the EXIF data is not applied.

mod crop;
mod listing;

use super::planes::{mirror, size};
use crate::rng::Rng;
use crop::Crop;
use image::imageops::{self, FilterType};
use image::{ImageError, ImageFormat, ImageReader, RgbImage};
use ledger_record::{Digest, DigestWriter};
use listing::{Entry, Listing};
use rayon::prelude::*;
use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

/// A folder of pictures cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// There are no training or no evaluation pictures.
    #[error(
        "`{root}` has no folder `{part}` (it must have `train/CLASS/FILE` and `val/CLASS/FILE` with JPEG or PNG files)",
        root = root.display()
    )]
    Absent {
        /// The folder that was given.
        root: PathBuf,
        /// `train` or `val`.
        part: &'static str,
    },
    /// A file or folder cannot be read.
    #[error("`{path}` cannot be read", path = path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A folder has no classes.
    #[error("`{path}` has no folders (it must have one for each class)", path = path.display())]
    NoClasses {
        /// The folder.
        path: PathBuf,
    },
    /// A class has no pictures.
    #[error("`{path}` has no file that ends in .jpg, .jpeg or .png (remove the class or fill it)", path = path.display())]
    Empty {
        /// The folder of the class.
        path: PathBuf,
    },
    /// The classes of training and evaluation are not the same.
    #[error("the class `{class}` is in `{there}` but not in `{missing}` (both must have the same classes)", there = there.display(), missing = missing.display())]
    Classes {
        /// The class.
        class: String,
        /// The folder that has it.
        there: PathBuf,
        /// The folder that lacks it.
        missing: PathBuf,
    },
    /// Folders are nested too deeply.
    #[error("`{path}` lies more than {deepest} folders below its class (is there a link to a folder above it?)", path = path.display())]
    Deep {
        /// The folder.
        path: PathBuf,
        /// The maximum depth.
        deepest: usize,
    },
    /// The content of a file is not a picture.
    #[error("`{path}` cannot be decoded (it must be a whole JPEG or PNG file)", path = path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: ImageError,
    },
    /// A JPEG file ends before its picture does.
    #[error("`{path}` is cut off: it has no end marker (copy it once more)", path = path.display())]
    CutOff {
        /// The file.
        path: PathBuf,
    },
}

/// The pictures below one folder.
#[derive(Clone, Debug)]
pub struct Folder {
    side: usize,
    classes: Vec<String>,
    train: Vec<Entry>,
    eval: Vec<Entry>,
    ignored: usize,
    digest: Digest,
}

impl Folder {
    /// Lists all pictures and reads every byte of them once for the digest. Pictures will be scaled to `side` × `side`.
    pub fn open(root: &Path, side: usize) -> Result<Self, FolderError> {
        let train = Listing::read(root, "train")?;
        let eval = Listing::read(root, "val")?;
        train.same_classes(&eval)?;
        let digest = digest(root, &[&train.entries, &eval.entries])?;
        Ok(Self {
            side,
            classes: train.class_names(),
            ignored: train.ignored + eval.ignored,
            train: train.entries,
            eval: eval.entries,
            digest,
        })
    }

    /// Returns the names of the classes in the order of their numbers.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Returns the number of training pictures.
    pub fn train_len(&self) -> usize {
        self.train.len()
    }

    /// Returns the number of evaluation pictures.
    pub fn eval_len(&self) -> usize {
        self.eval.len()
    }

    /// Returns the number of files and folders that were left out: hidden ones, and files with other extensions.
    pub fn ignored(&self) -> usize {
        self.ignored
    }

    /// Returns the digest of all files' names below the root and of all their bytes when the folder was opened.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Decodes a training picture, takes a random part of it and mirrors it at random. Returns its class; `None` if the
    /// index is too large.
    pub fn train(&self, index: usize, rng: &mut Rng, planes: &mut [u8]) -> Result<Option<usize>, FolderError> {
        let Some(entry) = self.train.get(index) else { return Ok(None) };
        let picture = decode(&entry.path)?;
        let mirrored = rng.below(2) == 1;
        let part = crop::random(picture.width(), picture.height(), rng);
        let side = u32::try_from(self.side).unwrap_or(u32::MAX);
        split(&scaled(&picture, part, (side, side)), (0, 0), self.side, planes);
        if mirrored {
            mirror(planes, self.side);
        }
        Ok(Some(entry.class))
    }

    /// Decodes an evaluation picture and takes its middle. Returns its class; `None` if the index is too large.
    pub fn eval(&self, index: usize, planes: &mut [u8]) -> Result<Option<usize>, FolderError> {
        let Some(entry) = self.eval.get(index) else { return Ok(None) };
        let picture = decode(&entry.path)?;
        let part = crop::unstripped(picture.width(), picture.height());
        let side = u32::try_from(self.side).unwrap_or(u32::MAX);
        let (width, height) = crop::resized(part.width, part.height, side);
        let resized = scaled(&picture, part, (width, height));
        split(&resized, (crop::centred(width, side), crop::centred(height, side)), self.side, planes);
        Ok(Some(entry.class))
    }
}

/// Decodes a file to eight bits for each of red, green and blue: grey is repeated, opacity is dropped.
pub(super) fn decode(path: &Path) -> Result<RgbImage, FolderError> {
    let bytes = fs::read(path).map_err(|source| FolderError::Read { path: path.to_owned(), source })?;
    if image::guess_format(&bytes).is_ok_and(|format| format == ImageFormat::Jpeg) && !ends(&bytes) {
        return Err(FolderError::CutOff { path: path.to_owned() });
    }
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(ImageError::IoError);
    let decoded = reader.and_then(ImageReader::decode);
    let decoded = decoded.map_err(|source| FolderError::Decode { path: path.to_owned(), source })?;
    Ok(decoded.into_rgb8())
}

/// Returns the width and height in a picture file's header.
pub(super) fn measure(path: &Path) -> Result<(u32, u32), FolderError> {
    let reader = ImageReader::open(path).and_then(ImageReader::with_guessed_format).map_err(ImageError::IoError);
    let size = reader.and_then(ImageReader::into_dimensions);
    size.map_err(|source| FolderError::Decode { path: path.to_owned(), source })
}

/// Whether a JPEG has an end marker behind its first scan, regardless of what follows (ITU-T T.81, annex B). The
/// decoder would fill missing data with grey.
fn ends(bytes: &[u8]) -> bool {
    const END: u8 = 0xd9;
    const SCAN: u8 = 0xda;
    // A zero behind 0xff belongs to a scan's data, and 0xff is padding. Restarts and the start of the picture are
    // markers without a segment.
    let marks = |pair: &[u8]| pair[0] == 0xff && !matches!(pair[1], 0x00 | 0x01 | 0xd0..=0xd8 | 0xff);
    let (mut rest, mut scanned) = (bytes, false);
    while let Some(at) = rest.windows(2).position(marks) {
        let (marker, segment) = (rest[at + 1], &rest[at + 2..]);
        if marker == END && scanned {
            return true;
        }
        scanned |= marker == SCAN;
        // A segment begins with its length, and may contain a whole thumbnail.
        let length = match segment.first_chunk() {
            _ if marker == END => 0,
            Some(length) => usize::from(u16::from_be_bytes(*length)),
            None => return false,
        };
        let Some(behind) = segment.get(length..) else { return false };
        rest = behind;
    }
    false
}

fn scaled(picture: &RgbImage, part: Crop, (width, height): (u32, u32)) -> RgbImage {
    let Crop { left, top, width: w, height: h } = part;
    imageops::resize(&*imageops::crop_imm(picture, left, top, w, h), width, height, FilterType::Triangle)
}

/// Writes the planes of a square of a picture.
fn split(picture: &RgbImage, (left, top): (u32, u32), side: usize, planes: &mut [u8]) {
    debug_assert_eq!(planes.len(), size(side));
    let index = |pixels: u32| usize::try_from(pixels).unwrap_or(usize::MAX);
    for (row, pixels) in picture.rows().skip(index(top)).take(side).enumerate() {
        for (column, pixel) in pixels.skip(index(left)).take(side).enumerate() {
            for (channel, value) in pixel.0.into_iter().enumerate() {
                planes[(channel * side + row) * side + column] = value;
            }
        }
    }
}

/// Hashes names and bytes of all files, in the order of the lists.
fn digest(root: &Path, parts: &[&[Entry]]) -> Result<Digest, FolderError> {
    let all: Vec<&Entry> = parts.iter().copied().flatten().collect();
    let read =
        |entry: &&Entry| hash(&entry.path).map_err(|source| FolderError::Read { path: entry.path.clone(), source });
    let hashed: Vec<Result<Digest, FolderError>> = all.par_iter().map(read).collect();
    // The first error in the order of the files, not of the threads.
    let hashed = hashed.into_iter().collect::<Result<Vec<Digest>, FolderError>>()?;
    let mut pieces: Vec<&[u8]> = vec![b"folder"];
    for (entry, digest) in all.iter().zip(&hashed) {
        let name = entry.path.strip_prefix(root).unwrap_or(&entry.path);
        pieces.extend([name.as_os_str().as_encoded_bytes(), &digest.0]);
    }
    Ok(Digest::of_pieces("ledger pictures v1", &pieces))
}

/// Returns the digest of a file's bytes.
pub(super) fn hash(path: &Path) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    let mut writer = DigestWriter::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(writer.finish()),
            Ok(read) => writer.write(&piece[..read]),
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            Err(fault) => return Err(fault),
        }
    }
}

#[cfg(test)]
mod tests;
