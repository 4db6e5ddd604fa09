//! The coverage of pixels by an object, within its box.
//!
//! Knows coverage in bytes, computed once for an object and used for its mask and its painting. A pixel belongs to an
//! object from a coverage of one half on. Knows nothing of classes or colours.

use crate::data::shapes::region::{Region, Scratch};
use crate::number::{nearest_grey, real_len, single};
use std::ops::Range;

/// The minimum coverage of a pixel that belongs to an object.
pub const HALF: u8 = 128;

/// The coverage of the pixels in an object's box.
#[derive(Clone, Debug)]
pub struct Layer {
    columns: Range<usize>,
    rows: Range<usize>,
    /// Coverage from 0 to 255, row by row.
    cover: Vec<u8>,
    /// The touched range of each row, counted from the first of the columns.
    touched: Vec<Range<usize>>,
}

impl Layer {
    /// The coverage of a picture of `side` × `side` pixels by a region.
    pub fn new(region: &Region, side: usize, scratch: &mut Scratch) -> Self {
        let (columns, rows) = (region.columns(side), region.rows(side));
        let width = columns.len();
        let mut cover = vec![0; width * rows.len()];
        let mut touched = Vec::with_capacity(rows.len());
        let mut y = single(real_len(rows.start));
        for row in 0..rows.len() {
            let (met, parts) = region.cover(y, side, scratch);
            let part = met.start.clamp(columns.start, columns.end)..met.end.clamp(columns.start, columns.end);
            let within = part.start - columns.start..part.end - columns.start;
            let out = &mut cover[row * width..][within.clone()];
            out.iter_mut().zip(&parts[part]).for_each(|(byte, part)| *byte = nearest_grey(part * 255.0));
            touched.push(within);
            y += 1.0;
        }
        Self { columns, rows, cover, touched }
    }

    /// Returns the columns of its box.
    pub fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// Returns the rows of its box.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Returns the coverage of a row of the picture: the first touched column, and the coverage from there on.
    pub fn row(&self, y: usize) -> Option<(usize, &[u8])> {
        let row = y.checked_sub(self.rows.start)?;
        let touched = self.touched.get(row)?.clone();
        Some((self.columns.start + touched.start, &self.cover[row * self.columns.len()..][touched]))
    }

    /// Writes 1 for each pixel of the box that belongs to the object and is free, else 0. Returns the number of ones.
    /// `taken` has a byte for each pixel of the picture, 0 if it is free.
    pub fn seen(&self, taken: &[u8], side: usize, seen: &mut Vec<u8>) -> u32 {
        seen.clear();
        seen.resize(self.cover.len(), 0);
        let mut count = 0;
        for (row, y) in self.rows().enumerate() {
            let Some((first, cover)) = self.row(y) else { continue };
            let out = &mut seen[row * self.columns.len() + first - self.columns.start..];
            for ((bit, cover), taken) in out.iter_mut().zip(cover).zip(&taken[y * side + first..]) {
                *bit = u8::from(*cover >= HALF) & u8::from(*taken == 0);
                count += u32::from(*bit);
            }
        }
        count
    }

    /// Marks the pixels that [`Self::seen`] wrote as taken.
    pub fn take(&self, seen: &[u8], taken: &mut [u8], side: usize) {
        for (y, seen) in self.rows().zip(seen.chunks_exact(self.columns.len().max(1))) {
            let taken = &mut taken[y * side..][self.columns()];
            taken.iter_mut().zip(seen).for_each(|(taken, seen)| *taken |= seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::shapes::outline::{NAMES, Point, outline};

    const SIDE: usize = 48;

    /// Whether a point is inside: an odd number of edges is to its right.
    fn inside(lines: &[Vec<Point>], x: f64, y: f64) -> bool {
        let crosses = |(a, b): (&Point, &Point)| {
            let [ax, ay, bx, by] = [a.x, a.y, b.x, b.y].map(f64::from);
            (ay > y) != (by > y) && x < ax + (y - ay) / (by - ay) * (bx - ax)
        };
        let edges = lines.iter().flat_map(|line| line.iter().zip(line.iter().cycle().skip(1)));
        edges.filter(|edge| crosses(*edge)).count() % 2 == 1
    }

    /// A form of 20 pixels, turned, a quarter of it beyond the left edge.
    fn form(class: usize) -> Vec<Vec<Point>> {
        let mut lines = outline(class);
        for point in lines.iter_mut().flatten() {
            let (x, y) = (20.0 * point.x, 20.0 * point.y);
            *point = Point { x: 0.8 * x - 0.6 * y + 6.0, y: 0.6 * x + 0.8 * y + 25.3 };
        }
        lines
    }

    #[test]
    fn coverage_is_the_fraction_of_sample_points_inside() {
        const POINTS: u8 = 16;
        for (class, name) in NAMES.iter().enumerate() {
            let lines = form(class);
            let layer = Layer::new(&Region::new(&lines), SIDE, &mut Scratch::default());
            for at in 0..SIDE * SIDE {
                let place = |point: u8| (f64::from(point) + 0.5) / f64::from(POINTS);
                let (column, row) = (real_len(at % SIDE), real_len(at / SIDE));
                let points = (0..POINTS).flat_map(|down| (0..POINTS).map(move |right| (place(right), place(down))));
                let hits = points.filter(|(right, down)| inside(&lines, column + right, row + down)).count();
                let expected = real_len(hits) / 256.0;
                let (first, cover) = layer.row(at / SIDE).unwrap_or((0, &[]));
                let found = (at % SIDE)
                    .checked_sub(first)
                    .and_then(|at| cover.get(at))
                    .map_or(0.0, |byte| f64::from(*byte) / 255.0);
                // Coverage is measured on four lines a row, so tips and level edges are less exact.
                assert!((found - expected).abs() < 0.2, "{name}: {found} instead of {expected} at {at}");
            }
        }
    }

    #[test]
    fn pixels_are_free_until_they_are_taken() {
        let layer = Layer::new(&Region::new(&form(0)), SIDE, &mut Scratch::default());
        let (mut taken, mut seen) = (vec![0; SIDE * SIDE], vec![]);
        let all = layer.seen(&taken, SIDE, &mut seen);
        assert_eq!(all, seen.iter().map(|bit| u32::from(*bit)).sum::<u32>());
        // The left half of the rows is taken, so its visible pixels are missing.
        taken.chunks_exact_mut(SIDE).for_each(|row| row[..8].fill(1));
        let width = layer.columns().len();
        assert_eq!(layer.columns().start, 0);
        let left: u32 = seen.chunks_exact(width).flat_map(|row| &row[..8]).map(|bit| u32::from(*bit)).sum();
        assert!(left > 0);
        assert_eq!(layer.seen(&taken, SIDE, &mut seen), all - left);
        layer.take(&seen.clone(), &mut taken, SIDE);
        assert_eq!(layer.seen(&taken, SIDE, &mut seen), 0);
        let count: u32 = taken.iter().map(|byte| u32::from(*byte)).sum();
        assert_eq!(usize::try_from(count).expect("few"), 8 * SIDE + usize::try_from(all - left).expect("few"));
    }
}
