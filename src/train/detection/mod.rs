//! Object detection and instance segmentation on the host: boxes, masks, suppression, and mean average precision.
//!
//! Knows geometry and counting; nothing of tensors, models or files.

pub mod boxes;
pub mod deltas;
pub mod mask;
pub mod mean_average_precision;
pub mod nms;

/// Something that was found in a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Detection<R> {
    /// Its class.
    pub class: usize,
    /// How sure the model is; only the order of the scores matters.
    pub score: f32,
    /// Where it is: a box or a mask.
    pub region: R,
}

/// Something that is in a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth<R> {
    /// Its class.
    pub class: usize,
    /// What decides whether it is small, medium or large, in pixels: COCO's `area`, which is its mask's even where boxes are
    /// compared.
    pub area: f64,
    /// Whether it stands for many objects that were not told apart: any number of detections may lie in it, and none of them counts.
    pub crowd: bool,
    /// Where it is: a box or a mask.
    pub region: R,
}

/// Numbers that `tests/parity/coco.py` and `mask_grid.py` compute as well.
#[cfg(test)]
mod formula {
    /// Knuth's linear congruential generator of 64 bits (MMIX), of which the upper 31 are taken.
    pub struct Lcg(pub u64);

    impl Lcg {
        pub fn below(&mut self, bound: u32) -> u32 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from(self.0 >> 33).expect("31 bits") % bound
        }

        /// A number below a bound, as a real one.
        pub fn real(&mut self, bound: u32) -> f64 {
            f64::from(self.below(bound))
        }
    }

    /// FNV-1a of 64 bits.
    pub fn fnv(text: &str) -> u64 {
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |value, byte| (value ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// The fields of the line of a file that begins with a name.
    pub fn find(file: &'static str, name: &str) -> Vec<&'static str> {
        let mut lines = file.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(first, _)| *first == name).expect("a line of this name").1.split(' ').collect()
    }

    /// [`find`] in `tests/parity/coco.txt`.
    pub fn line(name: &str) -> Vec<&'static str> {
        find(include_str!("../../../tests/parity/coco.txt"), name)
    }
}
