//! The images' files. They are read once before training, for their digest and to check their sizes against the
//! annotations.

use super::{CocoError, Image};
use crate::data::folder::{hash, measure};
use ledger_record::Digest;
use rayon::prelude::*;
use std::path::Path;

/// Hashes the annotations' digest, and the names and bytes of all images below `root` in order, on several threads. The
/// error is that of the first image in that order that cannot be read or whose size differs from the annotations.
pub(super) fn digest(root: &Path, annotations: Digest, images: &[Image]) -> Result<Digest, CocoError> {
    let hashed: Vec<Result<Digest, CocoError>> = images.par_iter().map(|image| read(root, image)).collect();
    // The first error in the order of the images, not of the threads.
    let hashed = hashed.into_iter().collect::<Result<Vec<Digest>, CocoError>>()?;
    let mut pieces: Vec<&[u8]> = vec![b"coco", &annotations.0];
    for (image, digest) in images.iter().zip(&hashed) {
        pieces.extend([image.file.as_os_str().as_encoded_bytes(), &digest.0]);
    }
    Ok(Digest::of_pieces("ledger pictures v1", &pieces))
}

fn read(root: &Path, image: &Image) -> Result<Digest, CocoError> {
    let path = root.join(&image.file);
    match hash(&path) {
        Ok(digest) => check(image, &path, measure(&path)?).map(|()| digest),
        Err(source) => Err(CocoError::Picture { id: image.id, path, source }),
    }
}

/// Checks the width and height of an image's file.
pub(super) fn check(image: &Image, path: &Path, file: (u32, u32)) -> Result<(), CocoError> {
    let Image { id, size, .. } = *image;
    if file == (size.width.into(), size.height.into()) {
        return Ok(());
    }
    Err(CocoError::PictureSize { id, path: path.to_owned(), size, file: file.into() })
}
