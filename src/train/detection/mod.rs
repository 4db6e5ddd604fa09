//! Object detection and instance segmentation on the host: boxes, masks, suppression, and mean average precision.
//!
//! Knows geometry and counting; nothing of tensors, models or files.

pub mod boxes;
pub mod deltas;
pub mod mask;
pub mod mean_average_precision;
pub mod nms;

/// A detected object of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Detection<R> {
    /// Its class.
    pub class: usize,
    /// The model's confidence; only the order of the scores matters.
    pub score: f32,
    /// Where it is: a box or a mask.
    pub region: R,
}

/// A ground-truth object of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth<R> {
    /// Its class.
    pub class: usize,
    /// The area in pixels that decides whether it is small, medium or large: COCO's `area`, which is that of the mask
    /// even if boxes are compared.
    pub area: f64,
    /// Whether it is a crowd of objects that are not annotated individually. Detections in a crowd are ignored.
    pub crowd: bool,
    /// Where it is: a box or a mask.
    pub region: R,
}

/// The formulas that `tests/parity/coco.py` and `mask_grid.py` share.
#[cfg(test)]
mod formula {
    /// Knuth's 64-bit linear congruential generator (MMIX); the upper 31 bits are used.
    pub struct Lcg(pub u64);

    impl Lcg {
        pub fn below(&mut self, bound: u32) -> u32 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from(self.0 >> 33).expect("31 bits") % bound
        }

        /// An integer below a bound, as a float.
        pub fn real(&mut self, bound: u32) -> f64 {
            f64::from(self.below(bound))
        }
    }

    /// FNV-1a of 64 bits.
    pub fn fnv(text: &str) -> u64 {
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |value, byte| (value ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// The fields after the name, of the line of a file with this name.
    pub fn find(file: &'static str, name: &str) -> Vec<&'static str> {
        let mut lines = file.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(first, _)| *first == name).expect("a line of this name").1.split(' ').collect()
    }

    /// [`find`] in `tests/parity/coco.txt`.
    pub fn line(name: &str) -> Vec<&'static str> {
        find(include_str!("../../../tests/parity/coco.txt"), name)
    }
}
