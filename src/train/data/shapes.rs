//! `shapes`: generated pictures of coloured shapes. Version 1.
//!
//! Knows how a picture is made from (seed, split, index, side) and nothing of files, training or devices.
//!
//! A picture has one of ten shapes, anywhere, turned by any angle, stretched a little, in any colour. The background
//! has other colours that change smoothly. There are lines of random colour, some of which cross the shape, and noise
//! over everything. All shapes cover the same area and their colours have the same distribution. Therefore neither a
//! mean colour nor a pixel at a fixed place reveals the class, only the outline does. Only additions, multiplications,
//! divisions and square roots of float32 are used. IEEE 754 rounds each of these in one way, so that every machine
//! draws the same bytes.
//!
//! A picture depends only on version, seed, split, index and side, and is drawn on demand.
//!
//! Any change of a byte requires a new version and a new [`REFERENCE`].

pub(super) mod figure;
pub(super) mod outline;
pub(super) mod parts;
pub(super) mod region;

pub use outline::NAMES;

use super::planes::{CHANNELS, mirror};
use crate::data::digits::Split;
use crate::number::{grey, real_len, single, whole, wide};
use crate::rng::{Rng, Stream};
use figure::{Colour, Figure};
use ledger_record::Digest;
use outline::{Point, outline};
use parts::{colour, direction, distance, pose, stroke, uneven};
use region::Scratch;

/// The version of the drawings. Any change of a byte raises it.
pub const GENERATOR_VERSION: i64 = 1;

/// Number of classes.
pub const CLASSES: usize = NAMES.len();

/// The digest of the pictures that a test draws. It identifies the generator in run ids.
pub const REFERENCE: Digest = Digest([
    0xc4, 0x24, 0xb4, 0xc7, 0x35, 0x6c, 0x02, 0x2d, 0x04, 0x80, 0xe1, 0x02, 0xc1, 0xa0, 0xcd, 0x7e, 0x47, 0x1c, 0x0d,
    0xf1, 0x7a, 0x6c, 0x30, 0x43, 0xc8, 0xe4, 0x80, 0x79, 0x55, 0xf6, 0x5a, 0xaf,
]);

/// The range of the root of a shape's area, in units of the side.
const SIZE: (f32, f32) = (0.24, 0.42);

/// The minimum distance of a shape's colour from the background's. Black and white are 442 apart.
const CONTRAST: f32 = 110.0;

/// The maximum noise of a pixel.
const NOISE: f32 = 45.0;

/// Pictures of one seed and side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shapes {
    /// The seed of the drawings.
    pub seed: u64,
    /// Pixels of a side.
    pub side: usize,
    /// Number of training pictures.
    pub train_count: usize,
    /// Number of evaluation pictures.
    pub eval_count: usize,
}

impl Shapes {
    /// Draws a training picture and mirrors it at random. Returns its class; `None` if the index is too large.
    pub fn train(&self, index: usize, augment: &mut Rng, planes: &mut [u8]) -> Option<usize> {
        if index >= self.train_count {
            return None;
        }
        let class = draw_image(self.seed, Split::Train, index, self.side, planes);
        if augment.below(2) == 1 {
            mirror(planes, self.side);
        }
        Some(class)
    }

    /// Draws an evaluation picture. Returns its class; `None` if the index is too large.
    pub fn eval(&self, index: usize, planes: &mut [u8]) -> Option<usize> {
        (index < self.eval_count).then(|| draw_image(self.seed, Split::Eval, index, self.side, planes))
    }

    /// Returns the digest of the generator and its parameters: the pictures are never all in memory.
    pub fn digest(&self) -> Digest {
        let numbers =
            [self.seed, wide(self.side), wide(self.train_count), wide(self.eval_count)].map(u64::to_le_bytes).concat();
        Digest::of_pieces("ledger pictures v1", &[b"shapes", &REFERENCE.0, &numbers])
    }
}

/// Draws one picture of `side` × `side` pixels and returns its class.
fn draw_image(seed: u64, split: Split, index: usize, side: usize, planes: &mut [u8]) -> usize {
    let stream = match split {
        Split::Train => Stream::TrainPicture,
        Split::Eval => Stream::EvalPicture,
    };
    let mut rng = Rng::new(seed, stream, wide(index));
    let class = rng.below(CLASSES);
    let scene = Scene::new(&mut rng, single(real_len(side)), class);
    scene.paint(&mut rng, side, planes);
    class
}

/// The content of a picture, without its noise.
struct Scene {
    ground: Ground,
    /// From the back to the front.
    figures: Vec<Figure>,
    noise: f32,
}

impl Scene {
    fn new(rng: &mut Rng, side: f32, class: usize) -> Self {
        let ground = Ground::new(rng);
        let mut figures = Vec::new();
        for _ in 0..2 + rng.below(4) {
            figures.push(stroke(rng, side));
        }
        let colour = contrasting(rng, ground.base);
        figures.push(shape(rng, side, class, colour));
        for _ in 0..rng.below(3) {
            figures.push(stroke(rng, side));
        }
        Self { ground, figures, noise: rng.range(5.0, NOISE) }
    }

    fn paint(&self, rng: &mut Rng, side: usize, planes: &mut [u8]) {
        let places = self.ground.places(side);
        let mut lines = [vec![0.0; side], vec![0.0; side], vec![0.0; side]];
        let (mut scratch, mut noise) = (Scratch::default(), Vec::with_capacity(side));
        let strength = self.noise / 255.0;
        let mut y = 0.0;
        for (row, place) in places.iter().enumerate() {
            self.ground.paint(place, &places, &mut lines);
            for figure in &self.figures {
                figure.paint(y, &mut lines, &mut scratch);
            }
            // The difference of two bytes has a density that falls linearly to both sides.
            noise.clear();
            noise.extend((0..side).map(|_| rng.bits().to_le_bytes()));
            for (channel, (line, plane)) in lines.iter().zip(planes.chunks_exact_mut(side * side)).enumerate() {
                let out = plane[row * side..].iter_mut();
                for ((byte, value), noise) in out.zip(line).zip(&noise) {
                    let off = f32::from(noise[2 * channel]) - f32::from(noise[2 * channel + 1]);
                    *byte = grey(value + 0.5 + off * strength);
                }
            }
            y += 1.0;
        }
    }
}

/// Colours on a coarse grid, interpolated between its points.
struct Ground {
    base: Colour,
    nodes: Vec<Colour>,
    cells: u8,
}

/// The grid line before a pixel, and the pixel's distance behind it, from 0 to 1.
struct Place {
    cell: usize,
    rest: f32,
}

impl Ground {
    fn new(rng: &mut Rng) -> Self {
        let base = colour(rng);
        let cells = [1, 2, 3, 5][rng.below(4)];
        let strength = rng.range(10.0, 70.0);
        let points = usize::from(cells + 1);
        let nodes = (0..points * points).map(|_| base.map(|value| value + strength * rng.triangle())).collect();
        Self { base, nodes, cells }
    }

    fn places(&self, side: usize) -> Vec<Place> {
        let step = f32::from(self.cells) / single(real_len(side));
        let mut places = Vec::with_capacity(side);
        let mut pixel = 0.5;
        for _ in 0..side {
            let at = pixel * step;
            let cell = usize::try_from(whole(f64::from(at))).unwrap_or(0).min(usize::from(self.cells) - 1);
            places.push(Place { cell, rest: at - single(real_len(cell)) });
            pixel += 1.0;
        }
        places
    }

    fn paint(&self, row: &Place, columns: &[Place], lines: &mut [Vec<f32>; CHANNELS]) {
        let points = usize::from(self.cells) + 1;
        let node = |column: usize, channel: usize| {
            let above = self.nodes[row.cell * points + column][channel];
            let below = self.nodes[(row.cell + 1) * points + column][channel];
            above + row.rest * (below - above)
        };
        for (channel, line) in lines.iter_mut().enumerate() {
            let mixed: [f32; 6] = std::array::from_fn(|column| node(column.min(points - 1), channel));
            let mut line = line.iter_mut();
            for cell in columns.chunk_by(|a, b| a.cell == b.cell) {
                let (left, right) = (mixed[cell[0].cell], mixed[cell[0].cell + 1]);
                for (place, pixel) in cell.iter().zip(line.by_ref()) {
                    *pixel = left + place.rest * (right - left);
                }
            }
        }
    }
}

/// Returns a random colour that differs enough from `ground`.
fn contrasting(rng: &mut Rng, ground: Colour) -> Colour {
    for _ in 0..16 {
        let drawn = colour(rng);
        if distance(drawn, ground) >= CONTRAST * CONTRAST {
            return drawn;
        }
    }
    ground.map(|value| if value < 127.5 { 255.0 } else { 0.0 })
}

/// Returns the shape of a class, completely within the picture.
fn shape(rng: &mut Rng, side: f32, class: usize, colour: Colour) -> Figure {
    let mut lines = outline(class);
    let size = side * rng.range(SIZE.0, SIZE.1);
    let stretch = 1.0 + 0.08 * rng.triangle();
    let (along, turn) = (direction(rng), direction(rng));
    let reach = pose(&mut lines, size, stretch, along, turn);
    let reach = reach.min(0.5 * side);
    let centre = Point { x: rng.range(reach, side - reach), y: rng.range(reach, side - reach) };
    for point in lines.iter_mut().flatten() {
        *point = Point { x: point.x + centre.x, y: point.y + centre.y };
    }
    Figure::new(&lines, uneven(rng, colour, centre, size))
}

#[cfg(test)]
mod tests;
