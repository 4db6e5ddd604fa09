//! Anchors: the boxes relative to which proposals are told (Ren et al. 2015, "Faster R-CNN", section 3.1.1), with one size on each level of the pyramid (Lin et al. 2017, section 4.1).

use crate::detection::boxes::Xyxy;
use crate::number::{real_len, single};
use std::ops::Range;

/// Height over width of the anchors of a place.
const RATIOS: [f32; 3] = [0.5, 1.0, 2.0];
/// How many there are at a place.
pub const PER_PLACE: usize = RATIOS.len();

/// The anchors of a picture: level by level, row by row, column by column, and those of a place in the order of their ratios.
#[derive(Clone, Debug, PartialEq)]
pub struct Anchors {
    /// All of them, in pixels of the picture.
    pub boxes: Vec<Xyxy>,
    /// Which of them each level has.
    pub levels: Vec<Range<usize>>,
}

impl Anchors {
    /// Of a picture of this side, with the level's size and its rows and columns for each level. Edges around a place are whole numbers, as torchvision rounds them.
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

/// An anchor around the origin.
fn around(size: f32, ratio: f32) -> [f32; 4] {
    let height = ratio.sqrt();
    let width = 1.0 / height;
    [-width, -height, width, height].map(|edge| (edge * size / 2.0).round_ties_even())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What torchvision's `AnchorGenerator(((32,), …, (512,)), ((0.5, 1.0, 2.0),) * 5).cell_anchors` holds.
    #[test]
    fn anchors_around_a_place_are_those_of_torchvision() {
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
    fn anchors_stand_row_by_row_a_whole_stride_apart() {
        // 13 places in 800 pixels are 61 apart, as torchvision divides.
        let anchors = Anchors::new(800, &[(32.0, 2), (512.0, 13)]);
        assert_eq!(anchors.levels, [0..12, 12..12 + 507]);
        assert_eq!(anchors.boxes[4], Xyxy::new([384.0, -16.0, 416.0, 16.0]));
        assert_eq!(anchors.boxes[7], Xyxy::new([-16.0, 384.0, 16.0, 416.0]));
        let last = anchors.boxes.last().expect("some").array();
        assert_eq!(last, [-181.0, -362.0, 181.0, 362.0].map(|edge: f32| edge + 12.0 * 61.0));
    }
}
