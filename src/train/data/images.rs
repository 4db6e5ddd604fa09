//! Labelled images in memory, as bytes, and the order in which they are visited.
//!
//! Knows nothing of their source.

use crate::rng::{Rng, Stream};

/// Pixels of a side.
pub const SIDE: usize = 28;

/// Pixels of an image.
pub const PIXELS: usize = SIDE * SIDE;

/// Classes of labels.
pub const CLASSES: usize = 10;

/// Labelled images: 784 grey values each, and a class 0 to 9 each.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Images {
    /// Grey values, image by image, row by row.
    pub pixels: Vec<u8>,
    /// Classes.
    pub labels: Vec<u8>,
}

impl Images {
    /// Returns the number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns the images of these indices, in this order; indices that are too large are left out.
    pub fn pick(&self, indices: &[usize]) -> Self {
        let mut picked = Self::default();
        for &index in indices {
            if let (Some(image), Some(label)) = (self.image(index), self.labels.get(index)) {
                picked.pixels.extend_from_slice(image);
                picked.labels.push(*label);
            }
        }
        picked
    }

    /// Returns the grey values of one image.
    pub fn image(&self, index: usize) -> Option<&[u8]> {
        self.pixels.get(index * PIXELS..(index + 1) * PIXELS)
    }
}

/// Returns the order of an epoch's samples: a permutation that depends only on seed and epoch (from 1).
pub fn order(seed: u64, epoch: u64, len: usize) -> Vec<usize> {
    Rng::new(seed, Stream::Order, epoch).permutation(len)
}
