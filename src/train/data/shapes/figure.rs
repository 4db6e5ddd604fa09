//! Regions filled with colour, row of pixels by row of pixels.
//!
//! Knows the colour of a figure's pixels. Knows nothing of the figure's meaning.

use super::outline::Point;
use super::region::{Region, Scratch};
use crate::number::{real_len, single};

/// Red, green and blue from 0 to 255.
pub type Colour = [f32; 3];

/// A colour with a constant gradient over a figure.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// The colour at `origin`.
    pub colour: Colour,
    /// Its change per pixel to the right.
    pub right: Colour,
    /// Its change per pixel down.
    pub down: Colour,
    /// The place of `colour`, in pixels.
    pub origin: Point,
}

/// A filled figure in pixels.
#[derive(Debug)]
pub struct Figure {
    region: Region,
    fill: Fill,
}

impl Figure {
    /// The figure within closed lines, filled by the even-odd rule.
    pub fn new(lines: &[Vec<Point>], fill: Fill) -> Self {
        Self { region: Region::new(lines), fill }
    }

    /// Paints the figure over one row of pixels, whose upper edge is at `y`, with a line for each of the colours.
    pub fn paint(&self, y: f32, lines: &mut [Vec<f32>; 3], scratch: &mut Scratch) {
        if !self.region.touches(y) {
            return;
        }
        let (touched, cover) = self.region.cover(y, lines[0].len(), scratch);
        let Fill { colour, right, down, origin } = self.fill;
        let over = y + 0.5 - origin.y;
        let start = single(real_len(touched.start)) + 0.5 - origin.x;
        let cover = &cover[touched.clone()];
        for (channel, line) in lines.iter_mut().enumerate() {
            let mut shade = colour[channel] + over * down[channel] + start * right[channel];
            for (pixel, part) in line[touched.clone()].iter_mut().zip(cover) {
                *pixel += part * (shade - *pixel);
                shade += right[channel];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INK: Fill = Fill { colour: [1.0; 3], right: [0.0; 3], down: [0.0; 3], origin: Point { x: 0.0, y: 0.0 } };

    /// Returns the coverage of each pixel of a small picture.
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
    fn a_pixel_is_covered_by_its_fraction() {
        let cover = covered(&[rectangle(0.5, 0.5, 2.25, 2.0)], 4, 2, INK);
        assert_eq!(cover, [0.25, 0.5, 0.125, 0.0, 0.5, 1.0, 0.25, 0.0]);
    }

    #[test]
    fn a_line_within_another_is_a_hole() {
        let cover = covered(&[rectangle(0.0, 0.0, 3.0, 3.0), rectangle(1.0, 1.0, 2.0, 2.0)], 3, 3, INK);
        assert_eq!(cover, [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn parts_outside_are_clipped() {
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
