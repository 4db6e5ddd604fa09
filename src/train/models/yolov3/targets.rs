//! The training targets: each object is assigned to one place.

use super::places::Places;
use crate::data::objects::Object;
use crate::number::{real_len, single};

/// Number of planes of [`Targets::dense`].
pub const PLANES: usize = 7;
/// Minimum of [`Targets::most`].
const LEAST: usize = 8;

/// The targets of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Targets {
    /// [rows, [`PLANES`], places]: for a place's object x and y in its cell, the logarithms of width and height
    /// relative to the anchor, the weight of these four, 1, and the class. Without an object the class is −1 and the
    /// rest 0.
    pub dense: Vec<f32>,
    /// Every object's box, [rows, most, 4]: left, top, right, bottom in pixels, padded with boxes without area.
    pub boxes: Vec<f32>,
    /// The largest number of objects of a row, rounded up to a power of two, at least 8.
    pub most: usize,
}

impl Targets {
    /// Assigns each object to the anchor with the largest IoU of the nine, in the cell of its centre on that anchor's level (section 2.1).
    ///
    /// If several objects have the same place, the last one wins. Objects without area and crowds get no place. A
    /// crowd's box is still among [`boxes`](Self::boxes), so that places that predict it are not penalised.
    pub fn new(places: &Places, objects: &[Vec<Object>]) -> Self {
        let count = places.count();
        let most = objects.iter().map(Vec::len).fold(LEAST, usize::max).next_power_of_two();
        let mut dense = vec![0.0; objects.len() * PLANES * count];
        let mut boxes = vec![0.0; objects.len() * most * 4];
        let rows = dense.chunks_exact_mut(PLANES * count).zip(boxes.chunks_exact_mut(most * 4));
        for ((dense, boxes), objects) in rows.zip(objects) {
            dense[(PLANES - 1) * count..].fill(-1.0);
            for (object, corners) in objects.iter().zip(boxes.chunks_exact_mut(4)) {
                if object.bounds.is_empty() {
                    continue;
                }
                corners.copy_from_slice(&object.bounds.array());
                if !object.crowd {
                    let (place, values) = target(places, object);
                    values.into_iter().enumerate().for_each(|(plane, value)| dense[plane * count + place] = value);
                }
            }
        }
        Self { dense, boxes, most }
    }
}

/// The place of an object, and its value in every plane.
fn target(places: &Places, object: &Object) -> (usize, [f32; PLANES]) {
    let bounds = object.bounds;
    let (width, height) = (bounds.width(), bounds.height());
    let (anchor, [anchor_width, anchor_height]) = places.best_anchor([width, height]);
    let centre = [(bounds.left + bounds.right) / 2.0, (bounds.top + bounds.bottom) / 2.0];
    let (place, [x, y]) = places.around(anchor, centre);
    let side = single(real_len(places.side()));
    // Small boxes get up to twice the weight (Darknet).
    let weight = 2.0 - width / side * (height / side);
    let class = single(real_len(object.class));
    (place, [x, y, (width / anchor_width).ln(), (height / anchor_height).ln(), weight, 1.0, class])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::yolov3::ANCHORS;
    use crate::models::yolov3::tests::object;

    #[test]
    fn an_object_has_one_place_with_its_box_and_class() {
        let places = Places::new(64, ANCHORS);
        // A box of 16 x 32 around (20, 36): the second anchor, 16 x 30, on the finest level, in cell (2, 4) of 8 pixels.
        let targets = Targets::new(&places, &[vec![], vec![object(2, [12.0, 20.0, 28.0, 52.0])]]);
        let (count, place) = (252, 60 + 64 + 4 * 8 + 2);
        let row = &targets.dense[PLANES * count..];
        let at: Vec<f32> = (0..PLANES).map(|plane| row[plane * count + place]).collect();
        assert_eq!(at, [0.5, 0.5, 0.0, (32.0_f32 / 30.0).ln(), 2.0 - 0.25 * 0.5, 1.0, 2.0]);
        let empty: Vec<f32> = [vec![0.0; 6 * count], vec![-1.0; count]].concat();
        assert_eq!(targets.dense[..PLANES * count], empty);
        let filled = row.iter().zip(&empty).filter(|(found, empty)| found != empty).count();
        // The logarithm of the width is 0, as in the empty row.
        assert_eq!(filled, PLANES - 1);
        assert_eq!((targets.most, targets.boxes.len()), (8, 2 * 8 * 4));
        assert_eq!(targets.boxes[32..40], [12.0, 20.0, 28.0, 52.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn the_last_of_two_objects_at_one_place_wins() {
        let places = Places::new(64, ANCHORS);
        let (first, last) = (object(0, [12.0, 20.0, 28.0, 52.0]), object(1, [13.0, 21.0, 29.0, 51.0]));
        let both = Targets::new(&places, &[vec![first.clone(), last.clone()]]);
        assert_eq!(both.dense, Targets::new(&places, &[vec![last]]).dense);
        assert_ne!(both.dense, Targets::new(&places, &[vec![first]]).dense);
        assert_eq!(both.boxes[4..8], [13.0, 21.0, 29.0, 51.0]);
    }

    #[test]
    fn crowds_and_boxes_without_area_have_no_place() {
        let places = Places::new(64, ANCHORS);
        let crowd = Object { crowd: true, ..object(1, [4.0, 4.0, 40.0, 40.0]) };
        let targets = Targets::new(&places, &[vec![object(0, [5.0, 5.0, 5.0, 9.0]), crowd]]);
        assert_eq!(targets.dense, Targets::new(&places, &[vec![]]).dense);
        assert_eq!(targets.boxes[..8], [0.0, 0.0, 0.0, 0.0, 4.0, 4.0, 40.0, 40.0]);
    }

    #[test]
    fn room_for_boxes_grows_in_powers_of_two() {
        let most = |len: usize| {
            let many = vec![object(0, [0.0, 0.0, 9.0, 9.0]); len];
            Targets::new(&Places::new(32, ANCHORS), &[vec![], many]).most
        };
        assert_eq!([0, 8, 9, 16, 93].map(most), [8, 8, 16, 16, 128]);
    }
}
