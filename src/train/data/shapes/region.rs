//! The area within closed lines, row of pixels by row of pixels, with antialiased edges.
//!
//! Knows the fraction of a pixel that a region covers. Knows nothing of colours or of the region's meaning.

use super::outline::Point;
use crate::number::{real_len, single, whole};
use std::ops::Range;

/// The lines within a row of pixels on which coverage is measured; along them it is exact.
const LINES: [f32; 4] = [0.125, 0.375, 0.625, 0.875];

/// The fraction of a pixel's height that each of them represents.
const SHARE: f32 = 0.25;

/// The area within closed lines, in pixels.
#[derive(Debug)]
pub struct Region {
    edges: Vec<Edge>,
    left: f32,
    right: f32,
    top: f32,
    bottom: f32,
}

/// An edge that is not level: from `top` to `bottom`, starting at `x` and moving `slope` to the right per pixel down.
#[derive(Clone, Copy, Debug)]
struct Edge {
    top: f32,
    bottom: f32,
    x: f32,
    slope: f32,
}

/// Buffers for covering a row, reused from row to row.
#[derive(Debug, Default)]
pub struct Scratch {
    met: Vec<Edge>,
    crossings: Vec<f32>,
    cover: Vec<f32>,
    /// The range of `cover` that the last row touched; the rest is 0.
    touched: Range<usize>,
}

impl Region {
    /// The region within closed lines, by the even-odd rule.
    pub fn new(lines: &[Vec<Point>]) -> Self {
        let mut edges = Vec::new();
        for line in lines {
            for (from, to) in line.iter().zip(line.iter().cycle().skip(1)) {
                let (upper, lower) = if from.y <= to.y { (from, to) } else { (to, from) };
                if upper.y < lower.y {
                    let slope = (lower.x - upper.x) / (lower.y - upper.y);
                    edges.push(Edge { top: upper.y, bottom: lower.y, x: upper.x, slope });
                }
            }
        }
        let least = |values: &mut dyn Iterator<Item = f32>| values.fold(f32::INFINITY, f32::min);
        let most = |values: &mut dyn Iterator<Item = f32>| values.fold(f32::NEG_INFINITY, f32::max);
        Self {
            left: least(&mut lines.iter().flatten().map(|point| point.x)),
            right: most(&mut lines.iter().flatten().map(|point| point.x)),
            top: least(&mut edges.iter().map(|edge| edge.top)),
            bottom: most(&mut edges.iter().map(|edge| edge.bottom)),
            edges,
        }
    }

    /// Returns the columns of a picture of `width` pixels that the region may touch.
    pub fn columns(&self, width: usize) -> Range<usize> {
        pixels(self.left, self.right, width)
    }

    /// Returns the rows of a picture of `height` pixels that the region may touch.
    pub fn rows(&self, height: usize) -> Range<usize> {
        pixels(self.top, self.bottom, height)
    }

    /// Whether the region may touch the row whose upper edge is at `y`.
    pub fn touches(&self, y: f32) -> bool {
        self.bottom > y && self.top < y + 1.0
    }

    /// Returns the range of a row's pixels that the region touches, and the fraction, from 0 to 1, of each of `width`
    /// pixels that it covers. The row's upper edge is at `y`.
    pub fn cover<'a>(&self, y: f32, width: usize, scratch: &'a mut Scratch) -> (Range<usize>, &'a [f32]) {
        let Scratch { met, crossings, cover, touched } = scratch;
        cover[touched.clone()].fill(0.0);
        cover.resize(width, 0.0);
        met.clear();
        met.extend(self.edges.iter().filter(|edge| edge.top <= y + 1.0 && y < edge.bottom));
        let (mut first, mut last) = (width, 0);
        for line in LINES {
            crossings.clear();
            let met = met.iter().filter(|edge| edge.top <= y + line && y + line < edge.bottom);
            crossings.extend(met.map(|edge| edge.x + (y + line - edge.top) * edge.slope));
            crossings.sort_unstable_by(f32::total_cmp);
            for pair in crossings.chunks_exact(2) {
                let (from, to) = span(pair[0], pair[1], cover);
                first = first.min(from);
                last = last.max(to);
            }
        }
        *touched = first..last.max(first);
        (touched.clone(), cover)
    }
}

/// Returns the pixels of 0..`len` that an interval touches.
fn pixels(from: f32, to: f32, len: usize) -> Range<usize> {
    let at = |value: f32| usize::try_from(whole(f64::from(value))).unwrap_or(0).min(len);
    at(from)..at(to.ceil())
}

/// Adds the coverage of each pixel by an interval of one line. Returns the first pixel and the one after the last.
fn span(from: f32, to: f32, cover: &mut [f32]) -> (usize, usize) {
    let width = single(real_len(cover.len()));
    let (from, to) = (from.clamp(0.0, width), to.clamp(0.0, width));
    if to <= from {
        return (cover.len(), 0);
    }
    let at = |x: f32| usize::try_from(whole(f64::from(x))).unwrap_or(0);
    let (first, last) = (at(from), at(to));
    if first == last {
        cover[first] += SHARE * (to - from);
        return (first, first + 1);
    }
    cover[first] += SHARE * (1.0 - (from - single(real_len(first))));
    cover[first + 1..last].iter_mut().for_each(|part| *part += SHARE);
    let Some(end) = cover.get_mut(last) else { return (first, last) };
    *end += SHARE * (to - single(real_len(last)));
    (first, last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_reports_the_pixels_it_may_touch() {
        let corners = [(-2.5, 1.5), (3.25, 1.5), (3.25, 7.0), (-2.5, 7.0)].map(|(x, y)| Point { x, y });
        let region = Region::new(&[corners.to_vec()]);
        assert_eq!((region.columns(8), region.rows(8)), (0..4, 1..7));
        assert_eq!((region.columns(2), region.rows(5)), (0..2, 1..5));
        let mut scratch = Scratch::default();
        let (touched, cover) = region.cover(1.0, 5, &mut scratch);
        assert_eq!((touched, cover), (0..4, &[0.5, 0.5, 0.5, 0.125, 0.0][..]));
        assert!(region.cover(7.0, 5, &mut scratch).0.is_empty());
    }
}
