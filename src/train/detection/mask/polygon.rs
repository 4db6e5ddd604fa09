//! Masks from polygons, with exactly the pixels of COCO's tools.
//!
//! The rule follows from their arithmetic:
//! - Corners move to a grid five times as fine: 5x + ½, truncated.
//! - An edge is a line of grid points, one for each step along its longer axis (x if both are equal), starting at the lower end of that
//!   axis. The other coordinate is truncated after adding ½.
//! - A line that passes from grid column 5c + 2 to 5c + 3 or back crosses the middle of pixel column c, at the smaller grid row v of
//!   the two points. From pixel row ⌈(v − 2) / 5⌉ to the end of the image in column-major order, clear and set are swapped.
//! - Two changes at one place cancel.
//!
//! Pixels outside the image are never visited, so corners may lie anywhere.

use super::{Mask, Size};
use crate::number::truncated;
use std::ops::Range;

/// Grid points per pixel, in each direction.
const FINE: i32 = 5;

/// Grid coordinates are clamped to this (20 million pixels), so that their differences fit into 32 bits.
const FARTHEST: f64 = 1e8;

impl Mask {
    /// The pixels inside a closed polygon with the corners `[x, y, x, y, …]` in pixels, as COCO's tools draw it. Overlaps follow the
    /// even-odd rule. Fewer than three corners give no pixels, and an unpaired last number is ignored.
    pub fn from_polygon(size: Size, corners: &[f64]) -> Self {
        let fine = |coordinate: f64| truncated((f64::from(FINE) * coordinate + 0.5).clamp(-FARTHEST, FARTHEST));
        let points: Vec<[i32; 2]> = corners.chunks_exact(2).map(|corner| [fine(corner[0]), fine(corner[1])]).collect();
        let mut changes = Vec::new();
        let next = points.iter().cycle().skip(1);
        for (from, to) in points.iter().zip(next) {
            Edge::new(*from, *to).cross(size, &mut changes);
        }
        changes.sort_unstable();
        Self::from_runs(size, runs(&changes, size.pixels()))
    }

    /// The pixels inside any of several polygons: an object of several parts in COCO.
    pub fn from_polygons<P: AsRef<[f64]>>(size: Size, polygons: &[P]) -> Self {
        match polygons {
            [one] => Self::from_polygon(size, one.as_ref()),
            many => {
                let parts: Vec<Self> = many.iter().map(|one| Self::from_polygon(size, one.as_ref())).collect();
                Self::union(size, &parts)
            }
        }
    }
}

/// The runs between an odd change and the following even one; the last may continue to the end.
fn runs(changes: &[u32], end: u32) -> impl Iterator<Item = Range<u32>> {
    changes.chunks(2).map(move |pair| pair[0]..pair.get(1).copied().unwrap_or(end))
}

/// A line on the fine grid, from the lower end of its longer axis.
struct Edge {
    from: [i32; 2],
    to: [i32; 2],
    steep: bool,
    /// Change of the shorter axis for a step along the longer one.
    slope: f64,
}

impl Edge {
    fn new(a: [i32; 2], b: [i32; 2]) -> Self {
        let steep = a[0].abs_diff(b[0]) < a[1].abs_diff(b[1]);
        let longer = usize::from(steep);
        let (from, to) = if a[longer] > b[longer] { (b, a) } else { (a, b) };
        let [dx, dy] = [to[0] - from[0], to[1] - from[1]].map(f64::from);
        // The slope of an edge of one point is NaN, but never used.
        let slope = if steep { dx / dy } else { dy / dx };
        Self { from, to, steep, slope }
    }

    /// The coordinate on the shorter axis after this many steps along the longer one.
    fn shorter(&self, step: i32) -> i32 {
        let start = self.from[usize::from(!self.steep)];
        truncated(f64::from(start) + self.slope * f64::from(step) + 0.5)
    }

    /// Adds the places where the line crosses the middle of a pixel column.
    fn cross(&self, size: Size, changes: &mut Vec<u32>) {
        let (low, high) = (self.from[0].min(self.to[0]), self.from[0].max(self.to[0]));
        let first = (low + 2).div_euclid(FINE).max(0);
        let last = (high - 3).div_euclid(FINE).min(i32::from(size.width) - 1);
        for column in first..=last {
            let row = if self.steep { self.steep_row(FINE * column + 2) } else { self.flat_row(FINE * column + 2) };
            // Clamped, so that neither conversion fails.
            let row = (row + 2).div_euclid(FINE).clamp(0, i32::from(size.height));
            let [column, row] = [column, row].map(|place| u32::try_from(place).unwrap_or(0));
            changes.push(column * u32::from(size.height) + row);
        }
    }

    fn flat_row(&self, x: i32) -> i32 {
        let step = x - self.from[0];
        self.shorter(step).min(self.shorter(step + 1))
    }

    /// The last row before the line goes from `x` to `x + 1` or back. Found by bisection, as x is monotonic.
    fn steep_row(&self, x: i32) -> i32 {
        let rises = self.to[0] > self.from[0];
        let (mut before, mut behind) = (0, self.to[1] - self.from[1]);
        while behind - before > 1 {
            let middle = before + (behind - before) / 2;
            if (self.shorter(middle) <= x) == rises {
                before = middle;
            } else {
                behind = middle;
            }
        }
        self.from[1] + before
    }
}
