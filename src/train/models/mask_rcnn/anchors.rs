//! Anchors: the reference boxes of proposals (Ren et al. 2015, "Faster R-CNN", section 3.1.1), with one size per
//! pyramid level (Lin et al. 2017, section 4.1).

use crate::detection::boxes::Xyxy;
use crate::number::{real_len, single};
use std::ops::Range;

/// Aspect ratios (height over width) of the anchors of a cell.
const RATIOS: [f32; 3] = [0.5, 1.0, 2.0];
/// Number of anchors of a cell.
pub const PER_PLACE: usize = RATIOS.len();

/// The anchors of an image: level by level, row by row, column by column, and for each cell in the order of the ratios.
#[derive(Clone, Debug, PartialEq)]
pub struct Anchors {
    /// All anchors, in pixels of the image.
    pub boxes: Vec<Xyxy>,
    /// The range of each level's anchors in `boxes`.
    pub levels: Vec<Range<usize>>,
}

impl Anchors {
    /// The anchors of a square image of this side. `levels` has the anchor size and the number of cells along a side for each level.
    ///
    /// Offsets from a cell are rounded to whole pixels, as in torchvision.
    pub fn new(side: usize, levels: &[(f32, usize)]) -> Self {
        let mut anchors = Self { boxes: Vec::new(), levels: Vec::new() };
        for (size, places) in levels {
            let first = anchors.boxes.len();
            let around = RATIOS.map(|ratio| around(*size, ratio));
            let stride = side / places;
            let at = |place: usize| single(real_len(place * stride));
            for (y, x) in (0..*places).flat_map(|row| (0..*places).map(move |column| (at(row), at(column)))) {
                let moved =
                    |[left, top, right, bottom]: [f32; 4]| Xyxy::new([left + x, top + y, right + x, bottom + y]);
                anchors.boxes.extend(around.map(moved));
            }
            anchors.levels.push(first..anchors.boxes.len());
        }
        anchors
    }
}

/// The anchor of this size and ratio around the origin.
fn around(size: f32, ratio: f32) -> [f32; 4] {
    let height = ratio.sqrt();
    let width = 1.0 / height;
    [-width, -height, width, height].map(|edge| (edge * size / 2.0).round_ties_even())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are `AnchorGenerator(((32,), …, (512,)), ((0.5, 1.0, 2.0),) * 5).cell_anchors` of torchvision.
    #[test]
    fn cell_anchors_match_torchvision() {
        let expected = [
            (32.0, [[-23.0, -11.0, 23.0, 11.0], [-16.0, -16.0, 16.0, 16.0], [-11.0, -23.0, 11.0, 23.0]]),
            (64.0, [[-45.0, -23.0, 45.0, 23.0], [-32.0, -32.0, 32.0, 32.0], [-23.0, -45.0, 23.0, 45.0]]),
            (128.0, [[-91.0, -45.0, 91.0, 45.0], [-64.0, -64.0, 64.0, 64.0], [-45.0, -91.0, 45.0, 91.0]]),
            (256.0, [[-181.0, -91.0, 181.0, 91.0], [-128.0, -128.0, 128.0, 128.0], [-91.0, -181.0, 91.0, 181.0]]),
            (512.0, [[-362.0, -181.0, 362.0, 181.0], [-256.0, -256.0, 256.0, 256.0], [-181.0, -362.0, 181.0, 362.0]]),
        ];
        for (size, boxes) in expected {
            assert_eq!(RATIOS.map(|ratio| around(size, ratio)), boxes, "{size}");
        }
    }

    #[test]
    fn anchors_are_in_row_order_a_whole_stride_apart() {
        // 13 cells in 800 pixels are 61 apart: torchvision rounds the stride down.
        let anchors = Anchors::new(800, &[(32.0, 2), (512.0, 13)]);
        assert_eq!(anchors.levels, [0..12, 12..12 + 507]);
        assert_eq!(anchors.boxes[4], Xyxy::new([384.0, -16.0, 416.0, 16.0]));
        assert_eq!(anchors.boxes[7], Xyxy::new([-16.0, 384.0, 16.0, 416.0]));
        let last = anchors.boxes.last().expect("some").array();
        assert_eq!(last, [-181.0, -362.0, 181.0, 362.0].map(|edge: f32| edge + 12.0 * 61.0));
    }
}
