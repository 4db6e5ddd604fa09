//! Image files in the Singularity Image Format: whether a file is one, and its metadata.
//!
//! Parses the header and the small objects itself (sif's `pkg/sif`, format version 01), so that no tool is needed to
//! inspect an image. The file system inside is not opened.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The length of the launch line, which can start the image; the magic follows.
const LAUNCH_BYTES: usize = 32;
const MAGIC: &[u8] = b"SIF_MAGIC\0";
const HEADER_BYTES: usize = 128;
/// Offsets in the header, in bytes, of the position and the length of the descriptors.
const DESCRIPTORS_OFFSET: usize = 96;
const DESCRIPTORS_LENGTH: usize = 104;
const DESCRIPTOR_BYTES: usize = 585;
/// The maximum number of descriptors that are read, and below, the maximum size of an object.
const MOST_DESCRIPTORS: usize = 256;
const MOST_OBJECT_BYTES: u64 = 1 << 20;

const DEFINITION: i32 = 0x4001;
const JSON: i32 = 0x4006;

/// The metadata of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sif {
    /// The definition file that it was built from, if the image has it.
    pub definition: Option<String>,
    /// The JSON documents in it, unchanged: labels, and the configuration of the OCI image that it was made from.
    pub documents: Vec<String>,
}

/// Why a file is not an image.
#[derive(Debug, thiserror::Error)]
pub enum SifError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is another type of file.
    #[error("it is {0}")]
    Other(&'static str),
}

/// Reads the metadata of an image. Damaged or oversized objects are skipped.
///
/// # Errors
/// If the file cannot be read or is not an image.
pub fn read(path: &Path) -> Result<Sif, SifError> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(SifError::Other("a folder (an unpacked image is not kept from changing; build a .sif of it)"));
    }
    if !metadata.is_file() {
        return Err(SifError::Other("not a regular file"));
    }
    let file = File::open(path)?;
    let mut header = Vec::with_capacity(HEADER_BYTES);
    (&file).take(HEADER_BYTES as u64).read_to_end(&mut header)?;
    if !header.get(LAUNCH_BYTES..).is_some_and(|rest| rest.starts_with(MAGIC)) {
        return Err(SifError::Other("no image in the Singularity Image Format"));
    }
    if header.len() < HEADER_BYTES {
        return Err(SifError::Other("an image that was cut off"));
    }
    let number = |at: usize| whole(header.get(at..at + 8)).ok_or(SifError::Other("an image whose header is damaged"));
    let (offset, length) = (number(DESCRIPTORS_OFFSET)?, number(DESCRIPTORS_LENGTH)?);
    let most = MOST_DESCRIPTORS * DESCRIPTOR_BYTES;
    let mut descriptors = vec![0; usize::try_from(length).unwrap_or(most).min(most)];
    let read = match file.read_exact_at(&mut descriptors, offset) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(SifError::Other("an image that was cut off")),
        read => read.map_err(SifError::from),
    };
    read?;
    let mut sif = Sif::default();
    for descriptor in descriptors.chunks_exact(DESCRIPTOR_BYTES) {
        let Some((kind, start, size)) = parse(descriptor) else { continue };
        if start.checked_add(size).is_none_or(|end| end > metadata.len()) {
            return Err(SifError::Other("an image that was cut off"));
        }
        let text = || object(&file, start, size);
        match kind {
            DEFINITION => sif.definition = text(),
            JSON => sif.documents.extend(text()),
            _ => {}
        }
    }
    Ok(sif)
}

fn whole(bytes: Option<&[u8]>) -> Option<u64> {
    u64::try_from(i64::from_le_bytes(bytes?.try_into().ok()?)).ok()
}

/// Parses a descriptor that is in use: its type, and the position and size of its object. Fields are packed: type (4
/// bytes), in use (1), number, group and link (4 each), offset, size.
fn parse(descriptor: &[u8]) -> Option<(i32, u64, u64)> {
    let kind = i32::from_le_bytes(descriptor.get(..4)?.try_into().ok()?);
    let is_used = *descriptor.get(4)? != 0;
    let (start, size) = (whole(descriptor.get(17..25))?, whole(descriptor.get(25..33))?);
    is_used.then_some((kind, start, size))
}

fn object(file: &File, start: u64, size: u64) -> Option<String> {
    let mut bytes = vec![0; usize::try_from(size).ok().filter(|_| size <= MOST_OBJECT_BYTES)?];
    file.read_exact_at(&mut bytes, start).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds an image of these objects, given by type and content.
    fn image(objects: &[(i32, &str)]) -> Vec<u8> {
        let mut bytes = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x0001\x0002\0".to_vec();
        bytes.resize(HEADER_BYTES, 0);
        let put = |bytes: &mut Vec<u8>, at: usize, value: usize| {
            bytes[at..at + 8].copy_from_slice(&i64::try_from(value).unwrap().to_le_bytes());
        };
        put(&mut bytes, DESCRIPTORS_OFFSET, HEADER_BYTES);
        put(&mut bytes, DESCRIPTORS_LENGTH, (objects.len() + 1) * DESCRIPTOR_BYTES);
        let mut start = HEADER_BYTES + (objects.len() + 1) * DESCRIPTOR_BYTES;
        bytes.resize(start, 0);
        for (number, (kind, text)) in objects.iter().enumerate() {
            let at = HEADER_BYTES + number * DESCRIPTOR_BYTES;
            bytes[at..at + 4].copy_from_slice(&kind.to_le_bytes());
            bytes[at + 4] = 1;
            put(&mut bytes, at + 17, start);
            put(&mut bytes, at + 25, text.len());
            start += text.len();
        }
        objects.iter().for_each(|(_, text)| bytes.extend_from_slice(text.as_bytes()));
        bytes
    }

    #[test]
    fn metadata_is_read_and_damaged_images_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sif");
        let whole = image(&[(DEFINITION, "Bootstrap: docker\n"), (0x4004, "squashed"), (JSON, "{\"a\":1}\0\0")]);
        let said = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read(&path).map_err(|error| error.to_string())
        };
        let expected =
            Sif { definition: Some("Bootstrap: docker\n".to_owned()), documents: vec!["{\"a\":1}".to_owned()] };
        assert_eq!(said(&whole), Ok(expected));
        let cut = "it is an image that was cut off".to_owned();
        assert_eq!(said(&whole[..whole.len() - 3]), Err(cut.clone()));
        assert_eq!(said(&whole[..HEADER_BYTES + 50]), Err(cut.clone()));
        assert_eq!(said(&whole[..50]), Err(cut));
        let other = "it is no image in the Singularity Image Format".to_owned();
        assert_eq!(said(b"#!/bin/sh\nexit\n"), Err(other.clone()));
        assert_eq!(said(b""), Err(other));
        assert!(read(dir.path()).unwrap_err().to_string().contains("a folder"));
        assert!(read(Path::new("/dev/zero")).unwrap_err().to_string().contains("not a regular file"));
        // Parsing ends whatever the bytes.
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] = 0xff;
            let _ = said(&bytes);
        }
    }
}
