//! Values on a coarse grid, interpolated row of pixels by row of pixels.
//!
//! Each line of the grid is interpolated along the row once and stored. A row of pixels is then a mixture of two of
//! them. Knows nothing of the values' meaning.

use crate::number::{real_len, single, whole};

/// A grid of values over a picture, interpolated from its first row to its last.
#[derive(Debug)]
pub struct Lattice {
    /// The grid points of a line.
    points: usize,
    /// The values of the grid, line by line.
    nodes: Vec<f32>,
    places: Vec<Place>,
    /// The lines of the grid above and below the current row, interpolated along the row.
    lines: [Vec<f32>; 2],
    /// The number of the line above.
    above: Option<usize>,
}

/// The grid line before a pixel, and the weight of the next one, from 0 to 1.
#[derive(Clone, Copy, Debug)]
struct Place {
    before: usize,
    rest: f32,
}

impl Lattice {
    /// A grid over `side` × `side` pixels whose points are `cell` pixels apart, at least 1. `shift`, from 0 to 1, moves
    /// it by that part of a cell. `value` makes its values.
    pub fn new(side: usize, cell: f32, shift: f32, value: impl FnMut() -> f32) -> Self {
        let mut places = Vec::with_capacity(side);
        let mut pixel = 0.5;
        for _ in 0..side {
            let at = pixel / cell + shift;
            let before = usize::try_from(whole(f64::from(at))).unwrap_or(0);
            let rest = at - single(real_len(before));
            // Smoothstep, so that no edges show where cells meet.
            places.push(Place { before, rest: rest * rest * (3.0 - 2.0 * rest) });
            pixel += 1.0;
        }
        let points = places.last().map_or(0, |place| place.before + 2);
        let mut nodes = Vec::with_capacity(points * points);
        nodes.resize_with(points * points, value);
        Self { points, nodes, places, lines: [Vec::with_capacity(side), Vec::with_capacity(side)], above: None }
    }

    /// Returns the two lines around a row of pixels, and the weight of the second one, from 0 to 1. Rows must be
    /// requested in order.
    pub fn row(&mut self, y: usize) -> (&[f32], &[f32], f32) {
        let Place { before, rest } = self.places[y];
        if self.above != Some(before) {
            self.lines.swap(0, 1);
            if self.above.is_none_or(|above| above + 1 != before) {
                self.mix(before, 0);
            }
            self.mix(before + 1, 1);
            self.above = Some(before);
        }
        (&self.lines[0], &self.lines[1], rest)
    }

    fn mix(&mut self, line: usize, into: usize) {
        let nodes = &self.nodes[line * self.points..(line + 1) * self.points];
        let out = &mut self.lines[into];
        out.clear();
        out.extend(self.places.iter().map(|&Place { before, rest }| {
            let (left, right) = (nodes[before], nodes[before + 1]);
            left + rest * (right - left)
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_mixed_between_four_points() {
        let mut next = 0.0;
        // Points 4 pixels apart, moved by half a cell: pixel centres are at 0.625, 0.875, 1.125, … of the grid.
        let mut lattice = Lattice::new(8, 4.0, 0.5, || {
            next += 1.0;
            next
        });
        assert_eq!((lattice.points, lattice.nodes.len()), (4, 16));
        let smooth = |t: f32| t * t * (3.0 - 2.0 * t);
        for y in 0..8_u8 {
            let (above, below, rest) = lattice.row(usize::from(y));
            for x in 0..8_u8 {
                let at = |pixel: u8| 0.5 + (f32::from(pixel) + 0.5) / 4.0;
                let grid = |pixel: u8| at(pixel).floor() + smooth(at(pixel).fract());
                // The nodes count up by 1 along a line and by 4 from line to line.
                let expected = 1.0 + grid(x) + 4.0 * grid(y);
                let column = usize::from(x);
                let found = above[column] + rest * (below[column] - above[column]);
                assert!((found - expected).abs() < 1e-5, "{found} instead of {expected} at {x}, {y}");
            }
        }
    }
}
