//! The background of a scene: smooth colours, blotches and grain, sometimes a pattern, and strokes.
//!
//! The patterns are those of the fills, so that a pattern somewhere in the picture does not reveal a class. Knows
//! nothing of objects.

use super::class::FILLS;
use super::lattice::Lattice;
use super::pattern::Pattern;
use crate::data::planes::CHANNELS;
use crate::data::shapes::figure::{Colour, Figure};
use crate::data::shapes::outline::Point;
use crate::data::shapes::parts::{colour, direction, stroke};
use crate::data::shapes::region::Scratch;
use crate::number::{real_len, single};
use crate::rng::Rng;

/// The background of a scene, painted from its first row to its last.
#[derive(Debug)]
pub struct Ground {
    /// The mean colour.
    pub base: Colour,
    colours: [Lattice; CHANNELS],
    /// Brightness that is added to all channels: blotches, then grain.
    textures: [Lattice; 2],
    pattern: Pattern,
    /// The pattern's second colour, as a difference from the first.
    tint: Colour,
    strokes: Vec<Figure>,
    brightness: Vec<f32>,
    mix: Vec<f32>,
}

impl Ground {
    /// Draws a background of `side` × `side` pixels.
    pub fn new(rng: &mut Rng, side: usize) -> Self {
        let base = colour(rng);
        let extent = single(real_len(side));
        let (cell, strength) = (extent / [1.0, 2.0, 3.0, 4.0][rng.below(4)], rng.range(10.0, 60.0));
        let shift = rng.unit();
        let colours = base.map(|value| Lattice::new(side, cell, shift, || value + strength * rng.triangle()));
        let textures = [(16.0, 5.0, 28.0), (80.0, 24.0, 22.0)].map(|(many, few, strength)| {
            let (cell, strength) = (rng.range(extent / many, extent / few).max(2.0), rng.range(0.0, strength));
            let shift = rng.unit();
            Lattice::new(side, cell, shift, || strength * rng.triangle())
        });
        let pattern = Pattern {
            fill: if rng.below(2) == 0 { 0 } else { rng.below(FILLS.len()) },
            origin: Point { x: rng.range(0.0, extent), y: rng.range(0.0, extent) },
            axis: direction(rng),
            cell: rng.range(extent / 40.0, extent / 8.0).max(3.0),
        };
        let tint = [0.0; CHANNELS].map(|_: f32| 40.0 * rng.triangle());
        let strokes = (0..2 + rng.below(5)).map(|_| stroke(rng, extent)).collect();
        Self { base, colours, textures, pattern, tint, strokes, brightness: vec![0.0; side], mix: vec![0.0; side] }
    }

    /// Paints one row of pixels, whose centres are at `columns`, into a line for each of the colours. Rows must be
    /// painted in order.
    pub fn paint(&mut self, row: usize, columns: &[f32], lines: &mut [Vec<f32>; CHANNELS], scratch: &mut Scratch) {
        self.brighten(row);
        for (colours, line) in self.colours.iter_mut().zip(lines.iter_mut()) {
            let (above, below, rest) = colours.row(row);
            for (((pixel, above), below), add) in line.iter_mut().zip(above).zip(below).zip(&self.brightness) {
                *pixel = above + rest * (below - above) + add;
            }
        }
        let y = single(real_len(row));
        if self.pattern.mix(y + 0.5, columns, &mut self.mix) {
            for (line, tint) in lines.iter_mut().zip(self.tint) {
                line.iter_mut().zip(&self.mix).for_each(|(pixel, mix)| *pixel += tint * mix);
            }
        }
        self.strokes.iter().for_each(|stroke| stroke.paint(y, lines, scratch));
    }

    /// Computes the textures of a row.
    fn brighten(&mut self, row: usize) {
        let [blotches, grain] = &mut self.textures;
        let (above, below, rest) = blotches.row(row);
        for ((sum, above), below) in self.brightness.iter_mut().zip(above).zip(below) {
            *sum = above + rest * (below - above);
        }
        let (above, below, rest) = grain.row(row);
        for ((sum, above), below) in self.brightness.iter_mut().zip(above).zip(below) {
            *sum += above + rest * (below - above);
        }
    }
}
