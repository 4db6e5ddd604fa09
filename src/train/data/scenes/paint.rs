//! Paints objects, background and noise as the pixels of a scene.
//!
//! Rows are painted one after the other, each from the back to the front. Knows colours; takes classes and places as
//! given.

use super::class::fill;
use super::ground::Ground;
use super::layer::Layer;
use super::pattern::Pattern;
use super::place::{Placed, Spot};
use crate::data::planes::CHANNELS;
use crate::data::shapes::figure::{Colour, Fill};
use crate::data::shapes::parts::{colour, direction, distance, uneven};
use crate::data::shapes::region::Scratch;
use crate::number::{nearest_grey, real_len, single};
use crate::rng::Rng;

/// The minimum distance of a colour from those that it must differ from, if that can be reached. Black and white are
/// 442 apart.
pub const CONTRAST: f32 = 100.0;

/// The maximum noise of a pixel.
const NOISE: f32 = 36.0;

/// The appearance of an object.
struct Coat<'a> {
    layer: &'a Layer,
    /// The first colour.
    first: Fill,
    /// The second colour, as a difference from the first.
    second: Colour,
    pattern: Pattern,
}

/// Buffers for painting a row, reused from row to row.
struct Brush {
    /// The centres of the columns.
    columns: Vec<f32>,
    mix: Vec<f32>,
    cover: Vec<f32>,
}

/// Paints a scene of `side` × `side` pixels into the red, green and blue plane. The foremost object comes first.
pub fn paint(rng: &mut Rng, objects: &[Placed], side: usize, planes: &mut [u8]) {
    let mut ground = Ground::new(rng, side);
    let coats = coats(rng, objects, ground.base);
    let strength = rng.range(3.0, NOISE) / 127.5;
    let mut lines = [vec![0.0; side], vec![0.0; side], vec![0.0; side]];
    let mut noise = vec![[0; 8]; (CHANNELS * side).div_ceil(8)];
    let columns = (0..side).map(|column| single(real_len(column)) + 0.5).collect();
    let mut brush = Brush { columns, mix: vec![0.0; side], cover: vec![0.0; side] };
    let mut scratch = Scratch::default();
    for row in 0..side {
        ground.paint(row, &brush.columns, &mut lines, &mut scratch);
        coats.iter().rev().for_each(|coat| coat.paint(row, &mut lines, &mut brush));
        noise.iter_mut().for_each(|bytes| *bytes = rng.bits().to_le_bytes());
        let out = planes.chunks_exact_mut(side * side).map(|plane| &mut plane[row * side..(row + 1) * side]);
        for ((line, noise), out) in lines.iter().zip(noise.as_flattened().chunks_exact(side)).zip(out) {
            for ((byte, value), noise) in out.iter_mut().zip(line).zip(noise) {
                *byte = nearest_grey(value + (f32::from(*noise) - 127.5) * strength);
            }
        }
    }
}

/// Returns colours and patterns for all objects.
fn coats<'a>(rng: &mut Rng, objects: &'a [Placed], ground: Colour) -> Vec<Coat<'a>> {
    let mut others = vec![ground];
    let mut coat = |object: &'a Placed| {
        let Spot { size, centre, .. } = object.spot;
        let first = apart(rng, &others);
        let second = apart(rng, &[ground, first]);
        others.push(first);
        let cells = rng.range(5.0, 8.0);
        let pattern = Pattern { fill: fill(object.class), origin: centre, axis: direction(rng), cell: size / cells };
        let second = [0, 1, 2].map(|channel| second[channel] - first[channel]);
        Coat { layer: &object.layer, first: uneven(rng, first, centre, size), second, pattern }
    };
    objects.iter().map(&mut coat).collect()
}

/// Returns a random colour that differs enough from all of `others`. If none is found soon, returns the one that is
/// furthest from them.
fn apart(rng: &mut Rng, others: &[Colour]) -> Colour {
    let mut best = (-1.0, [0.0; CHANNELS]);
    for _ in 0..16 {
        let drawn = colour(rng);
        let nearest = others.iter().map(|other| distance(drawn, *other)).fold(f32::INFINITY, f32::min);
        if nearest > best.0 {
            best = (nearest, drawn);
        }
        if nearest >= CONTRAST * CONTRAST {
            break;
        }
    }
    best.1
}

impl Coat<'_> {
    fn paint(&self, row: usize, lines: &mut [Vec<f32>; CHANNELS], brush: &mut Brush) {
        let Some((first, bytes)) = self.layer.row(row) else { return };
        let Brush { columns, mix, cover } = brush;
        cover.iter_mut().zip(bytes).for_each(|(part, byte)| *part = f32::from(*byte) * (1.0 / 255.0));
        let columns = &columns[first..first + bytes.len()];
        let y = single(real_len(row)) + 0.5;
        let patterned = self.pattern.mix(y, columns, mix);
        let Fill { colour, right, down, origin } = self.first;
        for (channel, line) in lines.iter_mut().enumerate() {
            let base = colour[channel] + (y - origin.y) * down[channel] - origin.x * right[channel];
            let (slope, second) = (right[channel], self.second[channel]);
            let pixels = line[first..].iter_mut().zip(columns).zip(&*cover);
            if patterned {
                for (((pixel, x), cover), mix) in pixels.zip(&*mix) {
                    *pixel += cover * (base + slope * x + second * mix - *pixel);
                }
            } else {
                for ((pixel, x), cover) in pixels {
                    *pixel += cover * (base + slope * x - *pixel);
                }
            }
        }
    }
}
