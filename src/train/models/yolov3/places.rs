//! The places where boxes are predicted: three levels of grids with three anchors in each cell.
//!
//! Places are numbered by level (coarsest first), then anchor, then row, then column of the grid.

use super::BOXES;
use crate::number::{real_len, single};

/// Side of a cell of each level, in pixels.
pub const STRIDES: [usize; 3] = [32, 16, 8];
/// Number of planes of [`Places::planes`].
pub const PLANES: usize = 5;

/// The places of images of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Places {
    side: usize,
    anchors: [[f32; 2]; 9],
}

impl Places {
    /// The places of images of this side, a multiple of 32. The anchors are widths and heights in pixels; the first
    /// three belong to the finest level.
    pub fn new(side: usize, anchors: [[f32; 2]; 9]) -> Self {
        Self { side, anchors }
    }

    /// Rows and columns of an image.
    pub fn side(&self) -> usize {
        self.side
    }

    /// Cells along a level's side.
    pub fn cells(&self, level: usize) -> usize {
        self.side / STRIDES[level]
    }

    /// The number of places.
    pub fn count(&self) -> usize {
        self.start(STRIDES.len())
    }

    /// The number of the level's first place.
    fn start(&self, level: usize) -> usize {
        (0..level).map(|level| BOXES * self.cells(level) * self.cells(level)).sum()
    }

    /// The place of one of the nine anchors in the cell that contains a point of the image, and the point's position in
    /// the cell, from 0 to 1.
    pub fn around(&self, anchor: usize, [x, y]: [f32; 2]) -> (usize, [f32; 2]) {
        let level = STRIDES.len() - 1 - anchor / BOXES;
        let (cells, stride) = (self.cells(level), single(real_len(STRIDES[level])));
        // Points on or beyond a border belong to the cell at that border.
        let cell = |along: f32| (1..cells).rev().find(|cell| along >= single(real_len(*cell))).unwrap_or(0);
        let along = [x, y].map(|pixels| pixels / stride);
        let [column, row] = along.map(cell);
        let inside = [along[0] - single(real_len(column)), along[1] - single(real_len(row))];
        let place = self.start(level) + (anchor % BOXES * cells + row) * cells + column;
        (place, inside.map(|share| share.clamp(0.0, 1.0)))
    }

    /// The anchor with the largest IoU with this width and height if both share a corner, and its size; the first of equal ones.
    pub fn best_anchor(&self, [width, height]: [f32; 2]) -> (usize, [f32; 2]) {
        let mut best = (0, self.anchors[0], -1.0);
        for (n, anchor) in self.anchors.into_iter().enumerate() {
            let common = anchor[0].min(width) * anchor[1].min(height);
            let iou = common / (anchor[0] * anchor[1] + width * height - common);
            if iou > best.2 {
                best = (n, anchor, iou);
            }
        }
        (best.0, best.1)
    }

    /// The data to decode each place's box, [[`PLANES`], places]: column and row of the cell, the cell's side in
    /// pixels, width and height of the anchor in pixels.
    pub fn planes(&self) -> Vec<f32> {
        let mut planes = vec![Vec::new(); PLANES];
        for (level, stride) in STRIDES.into_iter().enumerate() {
            let cells = self.cells(level);
            let first = BOXES * (STRIDES.len() - 1 - level);
            for [width, height] in &self.anchors[first..first + BOXES] {
                for (row, column) in (0..cells).flat_map(|row| (0..cells).map(move |column| (row, column))) {
                    let [column, row, stride] = [column, row, stride].map(|count| single(real_len(count)));
                    for (plane, value) in planes.iter_mut().zip([column, row, stride, *width, *height]) {
                        plane.push(value);
                    }
                }
            }
        }
        planes.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::yolov3::ANCHORS;

    #[test]
    fn an_image_of_416_has_10647_places() {
        // 3·(13² + 26² + 52²).
        assert_eq!(Places::new(416, ANCHORS).count(), 10_647);
        assert_eq!(Places::new(64, ANCHORS).count(), 252);
    }

    #[test]
    fn the_best_anchor_has_the_largest_iou() {
        let places = Places::new(416, ANCHORS);
        for (n, anchor) in ANCHORS.into_iter().enumerate() {
            assert_eq!(places.best_anchor(anchor), (n, anchor));
        }
        // The IoUs of 20 x 20 are 130 / 400 with 10 x 13, 320 / 560 with 16 x 30 and 400 / 759 with 33 x 23.
        assert_eq!(places.best_anchor([20.0, 20.0]).0, 1);
        assert_eq!(places.best_anchor([1000.0, 900.0]).0, 8);
        assert_eq!(places.best_anchor([0.5, 0.5]).0, 0);
    }

    #[test]
    fn a_point_lies_in_its_cell() {
        let places = Places::new(64, ANCHORS);
        // The coarsest level has 2 x 2 cells of 32 pixels; the finest has 8 x 8 cells of 8 pixels and starts after 3·(4 + 16) places.
        assert_eq!(places.around(6, [0.0, 0.0]), (0, [0.0, 0.0]));
        assert_eq!(places.around(8, [40.0, 16.0]), (2 * 4 + 1, [0.25, 0.5]));
        assert_eq!(places.around(0, [9.0, 22.0]), (60 + 2 * 8 + 1, [0.125, 0.75]));
        assert_eq!(places.around(3, [64.0, 64.0]), (12 + 15, [1.0, 1.0]));
        assert_eq!(places.around(3, [-3.0, 70.0]), (12 + 12, [0.0, 1.0]));
        let planes = places.planes();
        let plane = |plane: usize, place: usize| planes[plane * places.count() + place];
        let of = |place| [0, 1, 2, 3, 4].map(|which| plane(which, place));
        assert_eq!(of(9), [1.0, 0.0, 32.0, 373.0, 326.0]);
        assert_eq!(of(60 + 64 + 2 * 8 + 1), [1.0, 2.0, 8.0, 16.0, 30.0]);
        assert_eq!(planes.len(), 5 * 252);
    }
}
