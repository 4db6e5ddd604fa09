//! Reader of IDX files, the format of MNIST and Fashion-MNIST (LeCun, Cortes, Burges: "The MNIST database"), plain or
//! gzip.
//!
//! Knows the format of the files and their four names. The split for training is decided elsewhere. Any bytes give an
//! error or a set of images, never a panic, and no more memory is allocated than the file has bytes.

use crate::data::images::{Images, PIXELS, SIDE};
use crate::spec::MAX_SAMPLES;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// A data file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdxError {
    /// Neither the plain nor the compressed file exists.
    #[error("`{dir}` has neither `{name}` nor `{name}.gz` (`data.path` must be a directory with the four files of MNIST)", dir = dir.display())]
    Absent {
        /// The directory.
        dir: PathBuf,
        /// The plain file's name.
        name: &'static str,
    },
    /// The file cannot be read, or its compressed data are damaged.
    #[error("`{path}` cannot be read", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file's content is invalid.
    #[error("`{path}` has {found} (it must have {allowed})", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The content found.
        found: String,
        /// The content expected.
        allowed: String,
    },
}

/// A pair of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    /// `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`.
    Train,
    /// `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`.
    Test,
}

impl Pair {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Train => ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
            Self::Test => ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
        }
    }
}

/// Reads one pair of files of a directory.
pub fn read(dir: &Path, pair: Pair) -> Result<Images, IdxError> {
    let (images, labels) = pair.names();
    let images = find(dir, images)?;
    let labels = find(dir, labels)?;
    join(&images, open(&images)?, &labels, open(&labels)?)
}

/// Returns the path of a pair's images.
pub fn images(dir: &Path, pair: Pair) -> Result<PathBuf, IdxError> {
    find(dir, pair.names().0)
}

fn find(dir: &Path, name: &'static str) -> Result<PathBuf, IdxError> {
    let plain = dir.join(name);
    let compressed = dir.join(format!("{name}.gz"));
    [plain, compressed]
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| IdxError::Absent { dir: dir.to_owned(), name })
}

fn open(path: &Path) -> Result<impl Read + use<>, IdxError> {
    File::open(path).map(BufReader::new).map_err(|source| IdxError::Read { path: path.to_owned(), source })
}

fn join(images_path: &Path, images: impl Read, labels_path: &Path, labels: impl Read) -> Result<Images, IdxError> {
    let pixels = content(images_path, images, Kind::Images)?;
    let labels = content(labels_path, labels, Kind::Labels)?;
    let count = pixels.len() / PIXELS;
    if count != labels.len() {
        return Err(IdxError::Content {
            path: labels_path.to_owned(),
            found: format!("{} labels", labels.len()),
            allowed: format!("{count}, as many as `{}` has images", images_path.display()),
        });
    }
    Ok(Images { pixels, labels })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Images,
    Labels,
}

impl Kind {
    /// Returns the magic number: two zeros, the type (8 is u8) and the number of dimensions.
    fn magic(self) -> u32 {
        match self {
            Self::Images => 0x0803,
            Self::Labels => 0x0801,
        }
    }

    fn item(self) -> usize {
        match self {
            Self::Images => PIXELS,
            Self::Labels => 1,
        }
    }
}

/// Reads a file's items. Unpacks it first if its first two bytes are those of gzip, regardless of its name.
fn content(path: &Path, mut file: impl Read, kind: Kind) -> Result<Vec<u8>, IdxError> {
    let reading = |source| IdxError::Read { path: path.to_owned(), source };
    let mut head = Vec::new();
    file.by_ref().take(2).read_to_end(&mut head).map_err(reading)?;
    let packed = head == [0x1f, 0x8b];
    let whole = io::Cursor::new(head).chain(file);
    if packed { items(path, MultiGzDecoder::new(whole), kind) } else { items(path, whole, kind) }
}

fn items(path: &Path, mut file: impl Read, kind: Kind) -> Result<Vec<u8>, IdxError> {
    let fault = |found: String, allowed: &str| {
        Err(IdxError::Content { path: path.to_owned(), found, allowed: allowed.to_owned() })
    };
    let reading = |source| IdxError::Read { path: path.to_owned(), source };
    let header = if kind == Kind::Images { 16 } else { 8 };
    let mut head = Vec::new();
    file.by_ref().take(header).read_to_end(&mut head).map_err(reading)?;
    let words: Vec<u32> =
        head.chunks_exact(4).map(|word| word.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))).collect();
    match words.first() {
        None => return fault(format!("{} bytes", head.len()), "a header"),
        Some(magic) if *magic != kind.magic() => {
            return fault(format!("the magic number {magic:#010x}"), &format!("{:#010x}", kind.magic()));
        }
        Some(_) => {}
    }
    let (count, size) = match (kind, words.as_slice()) {
        (Kind::Images, [_, count, rows, columns]) => (*count, Some((*rows, *columns))),
        (Kind::Labels, [_, count]) => (*count, None),
        _ => return fault(format!("{} bytes", head.len()), &format!("a header of {header}")),
    };
    if let Some((rows, columns)) = size
        && [rows, columns].map(usize::try_from) != [Ok(SIDE), Ok(SIDE)]
    {
        return fault(format!("images of {rows} x {columns}"), "images of 28 x 28");
    }
    let count = match usize::try_from(count) {
        Ok(count) if (1..=MAX_SAMPLES).contains(&count) => count,
        _ => return fault(format!("a count of {count}"), &format!("a count of 1 to {MAX_SAMPLES}")),
    };
    let expected = count * kind.item();
    let mut bytes = Vec::new();
    let limit = u64::try_from(expected).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(reading)?;
    if bytes.len() < expected {
        return fault(format!("{} bytes after its header", bytes.len()), &format!("{expected}, as its header says"));
    }
    if bytes.len() > expected {
        return fault(format!("more than {expected} bytes after its header"), "no more than its header says");
    }
    if kind == Kind::Labels
        && let Some(position) = bytes.iter().position(|label| *label > 9)
    {
        return fault(format!("the label {} at position {position}", bytes[position]), "labels 0 to 9");
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
