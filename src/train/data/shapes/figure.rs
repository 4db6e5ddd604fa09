//! Closed lines filled with colour, row of pixels by row of pixels, with soft edges.
//!
//! Knows how much of a pixel a figure covers. Knows nothing of what the figure is.

use super::outline::Point;
use crate::train::number::{real_len, single, whole};

/// Red, green and blue from 0 to 255.
pub type Colour = [f32; 3];

/// Lines within a row of pixels on which coverage is measured; along them it is exact.
const LINES: [f32; 4] = [0.125, 0.375, 0.625, 0.875];

/// Part of a pixel's height that one of them stands for.
const SHARE: f32 = 0.25;

/// A colour that changes evenly over a figure.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// The colour at `origin`.
    pub colour: Colour,
    /// Its change per pixel to the right.
    pub right: Colour,
    /// Its change per pixel down.
    pub down: Colour,
    /// Where the colour is that of `colour`, in pixels.
    pub origin: Point,
}

/// A filled figure in pixels.
#[derive(Debug)]
pub struct Figure {
    edges: Vec<Edge>,
    top: f32,
    bottom: f32,
    fill: Fill,
}

/// An edge that is not level: from `top` to `bottom`, beginning at `x` and going `slope` to the right per pixel down.
#[derive(Debug)]
struct Edge {
    top: f32,
    bottom: f32,
    x: f32,
    slope: f32,
}

/// What filling a row needs, kept from row to row.
#[derive(Debug, Default)]
pub struct Scratch {
    crossings: Vec<f32>,
    cover: Vec<f32>,
}

impl Figure {
    /// The figure within closed lines; what an odd number of them encloses is filled.
    pub fn new(lines: &[Vec<Point>], fill: Fill) -> Self {
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
        let top = edges.iter().map(|edge| edge.top).fold(f32::INFINITY, f32::min);
        let bottom = edges.iter().map(|edge| edge.bottom).fold(f32::NEG_INFINITY, f32::max);
        Self { edges, top, bottom, fill }
    }

    /// Lays the figure over one row of pixels, whose upper edge is at `y`; a line for each of the colours.
    pub fn paint(&self, y: f32, lines: &mut [Vec<f32>; 3], scratch: &mut Scratch) {
        if self.bottom <= y || self.top >= y + 1.0 {
            return;
        }
        let Scratch { crossings, cover } = scratch;
        let width = lines[0].len();
        cover.clear();
        cover.resize(width, 0.0);
        let (mut first, mut last) = (width, 0);
        for line in LINES {
            crossings.clear();
            let met = self.edges.iter().filter(|edge| edge.top <= y + line && y + line < edge.bottom);
            crossings.extend(met.map(|edge| edge.x + (y + line - edge.top) * edge.slope));
            crossings.sort_unstable_by(f32::total_cmp);
            for pair in crossings.chunks_exact(2) {
                let (from, to) = span(pair[0], pair[1], cover);
                first = first.min(from);
                last = last.max(to);
            }
        }
        let Fill { colour, right, down, origin } = self.fill;
        let over = y + 0.5 - origin.y;
        let Some(cover) = cover.get(first..last) else { return };
        let start = single(real_len(first)) + 0.5 - origin.x;
        for (channel, line) in lines.iter_mut().enumerate() {
            let mut shade = colour[channel] + over * down[channel] + start * right[channel];
            for (pixel, part) in line[first..last].iter_mut().zip(cover) {
                *pixel += part * (shade - *pixel);
                shade += right[channel];
            }
        }
    }
}

/// Adds what a stretch of one line covers of each pixel; returns the first pixel and the one after the last.
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
    cover[first] += SHARE * (1.0 - (from - from.floor()));
    cover[first + 1..last].iter_mut().for_each(|part| *part += SHARE);
    let Some(end) = cover.get_mut(last) else { return (first, last) };
    *end += SHARE * (to - to.floor());
    (first, last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INK: Fill = Fill { colour: [1.0; 3], right: [0.0; 3], down: [0.0; 3], origin: Point { x: 0.0, y: 0.0 } };

    /// The covered part of each pixel of a small picture.
    fn covered(lines: &[Vec<Point>], width: usize, height: u8, fill: Fill) -> Vec<f32> {
        let figure = Figure::new(lines, fill);
        let mut all = Vec::new();
        for row in 0..height {
            let mut out = [vec![0.0; width], vec![0.0; width], vec![0.0; width]];
            figure.paint(f32::from(row), &mut out, &mut Scratch::default());
            all.extend_from_slice(&out[0]);
        }
        all
    }

    fn rectangle(left: f32, top: f32, right: f32, bottom: f32) -> Vec<Point> {
        [(left, top), (right, top), (right, bottom), (left, bottom)].map(|(x, y)| Point { x, y }).to_vec()
    }

    #[test]
    fn a_pixel_is_covered_by_its_share() {
        let cover = covered(&[rectangle(0.5, 0.5, 2.25, 2.0)], 4, 2, INK);
        assert_eq!(cover, [0.25, 0.5, 0.125, 0.0, 0.5, 1.0, 0.25, 0.0]);
    }

    #[test]
    fn a_line_within_another_is_a_hole() {
        let cover = covered(&[rectangle(0.0, 0.0, 3.0, 3.0), rectangle(1.0, 1.0, 2.0, 2.0)], 3, 3, INK);
        assert_eq!(cover, [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn what_lies_outside_is_cut_off() {
        assert_eq!(covered(&[rectangle(-9.0, -9.0, 1.5, 1.0)], 3, 2, INK), [1.0, 0.5, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(covered(&[rectangle(2.0, 0.0, 30.0, 9.0)], 3, 2, INK), [0.0, 0.0, 1.0, 0.0, 0.0, 1.0]);
        assert_eq!(covered(&[rectangle(5.0, 0.0, 30.0, 9.0), rectangle(-5.0, 0.0, -1.0, 9.0)], 3, 1, INK), [0.0; 3]);
    }

    #[test]
    fn the_colour_changes_evenly_from_its_origin() {
        let fill = Fill { colour: [10.0; 3], right: [2.0; 3], down: [20.0; 3], origin: Point { x: 1.5, y: 0.5 } };
        assert_eq!(covered(&[rectangle(0.0, 0.0, 3.0, 2.0)], 3, 2, fill), [8.0, 10.0, 12.0, 28.0, 30.0, 32.0]);
    }
}
