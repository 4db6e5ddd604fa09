//! What the network should answer: each object at one place.

use super::places::Places;
use crate::data::objects::Object;
use crate::number::{real_len, single};

/// Planes of [`Targets::dense`].
pub const PLANES: usize = 7;
/// Fewer boxes than this are filled up to it.
const LEAST: usize = 8;

/// The targets of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Targets {
    /// [rows, [`PLANES`], places]: of a place's object x and y in its cell, the logarithms of width and height over those of the anchor, the weight of these four, 1, and the class. Where there is
    /// no object the class is −1 and the rest 0.
    pub dense: Vec<f32>,
    /// Every object's box, [rows, most, 4]: left, top, right, bottom in pixels. What is missing is filled up with boxes without area.
    pub boxes: Vec<f32>,
    /// The least power of two that no row has more objects than, 8 or more.
    pub most: usize,
}

impl Targets {
    /// Each object goes to the anchor, of all nine, whose width and height overlap most with its own, in the cell of its centre on that anchor's level; no other place is responsible for it
    /// (section 2.1). Of several at one place the last one counts. An object without area has no place, and neither has a crowd: where a crowd is, no place is told that nothing is there.
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

/// The place of an object, and what stands there in every plane.
fn target(places: &Places, object: &Object) -> (usize, [f32; PLANES]) {
    let bounds = object.bounds;
    let (width, height) = (bounds.width(), bounds.height());
    let (anchor, [anchor_width, anchor_height]) = places.best_anchor([width, height]);
    let centre = [(bounds.left + bounds.right) / 2.0, (bounds.top + bounds.bottom) / 2.0];
    let (place, [x, y]) = places.around(anchor, centre);
    let side = single(real_len(places.side()));
    // Small boxes count more, up to twice (Darknet).
    let weight = 2.0 - width / side * (height / side);
    let class = single(real_len(object.class));
    (place, [x, y, (width / anchor_width).ln(), (height / anchor_height).ln(), weight, 1.0, class])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detection::boxes::Xyxy;
    use crate::models::yolov3::ANCHORS;

    fn object(class: usize, corners: [f32; 4]) -> Object {
        let bounds = Xyxy::new(corners);
        Object { class, bounds, area: f64::from(bounds.area()), crowd: false, mask: None }
    }

    #[test]
    fn an_object_has_one_place_with_what_its_box_is_made_of() {
        let places = Places::new(64, ANCHORS);
        // 16 x 32 around (20, 36): the second anchor, 16 x 30, finest level, cell (2, 4) of 8 pixels.
        let targets = Targets::new(&places, &[vec![], vec![object(2, [12.0, 20.0, 28.0, 52.0])]]);
        let (count, place) = (252, 60 + 64 + 4 * 8 + 2);
        let row = &targets.dense[PLANES * count..];
        let at: Vec<f32> = (0..PLANES).map(|plane| row[plane * count + place]).collect();
        assert_eq!(at, [0.5, 0.5, 0.0, (32.0_f32 / 30.0).ln(), 2.0 - 0.25 * 0.5, 1.0, 2.0]);
        let empty: Vec<f32> = [vec![0.0; 6 * count], vec![-1.0; count]].concat();
        assert_eq!(targets.dense[..PLANES * count], empty);
        let filled = row.iter().zip(&empty).filter(|(found, empty)| found != empty).count();
        // The logarithm of the width is 0 as well.
        assert_eq!(filled, PLANES - 1);
        assert_eq!((targets.most, targets.boxes.len()), (8, 2 * 8 * 4));
        assert_eq!(targets.boxes[32..40], [12.0, 20.0, 28.0, 52.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn the_last_of_two_at_one_place_counts() {
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
