//! `digits`: generated handwriting. Version 1.
//!
//! Knows how an image is made from (seed, split, index) and nothing of files, training or devices.
//!
//! A digit's skeleton is one of several ways to write it. Its points are jittered, and a pen moves smoothly through
//! them (Catmull-Rom). The result is bent, stretched, sheared, turned and moved, drawn with a pen of varying width,
//! anti-aliased, and covered with noise. Only additions, multiplications, divisions and square roots of float32 are
//! used. IEEE 754 rounds each of these in one way, so that every machine draws the same bytes. Sines are avoided.
//!
//! An image depends only on version, seed, split and index: the first n images of a larger set are the set of n.
//! Training and evaluation images come from separate random streams.
//!
//! Any change of a byte requires a new version and a new [`REFERENCE`].

mod glyphs;

use crate::data::images::{Images, PIXELS, SIDE};
use crate::number::{grey, pixel, wide};
use crate::rng::{Rng, Stream};
use glyphs::GLYPHS;
use ledger_record::Digest;
use rayon::prelude::*;

/// The digest of the first 1,000 training images and labels of seed 0. It identifies the generator in run ids; a test
/// compares it with generated images.
pub const REFERENCE: Digest = Digest([
    0xe3, 0xf8, 0x10, 0x87, 0x6c, 0x43, 0x46, 0x78, 0xf8, 0x3b, 0x6f, 0x4c, 0x30, 0x2f, 0xef, 0xca, 0x04, 0x5d, 0x6e,
    0x2e, 0x6a, 0xfd, 0x62, 0x74, 0x7f, 0x5c, 0x63, 0x3a, 0x82, 0x0b, 0x04, 0xc7,
]);

/// Whether an image is for training or for evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// For training.
    Train,
    /// For evaluation.
    Eval,
}

/// Returns the first `count` images of a split; 0 is paper and 255 ink.
pub fn generate(seed: u64, split: Split, count: usize) -> Images {
    let mut pixels = vec![0; count * PIXELS];
    let labels = pixels
        .par_chunks_exact_mut(PIXELS)
        .enumerate()
        .map(|(index, image)| draw_image(seed, split, index, image))
        .collect();
    Images { pixels, labels }
}

/// Draws one image and returns its label.
fn draw_image(seed: u64, split: Split, index: usize, image: &mut [u8]) -> u8 {
    let stream = match split {
        Split::Train => Stream::TrainImage,
        Split::Eval => Stream::EvalImage,
    };
    let mut rng = Rng::new(seed, stream, wide(index));
    let label = rng.below(10);
    let ways = GLYPHS[label];
    let glyph = &ways[rng.below(ways.len())];
    let hand = Hand::new(&mut rng);
    let points: Vec<Point> = glyph
        .points
        .chunks_exact(2)
        .map(|point| hand.place(point[0] + JITTER * rng.triangle(), point[1] + JITTER * rng.triangle()))
        .collect();

    let mut ink = [0.0_f32; PIXELS];
    for stroke in glyph.strokes {
        let path: Vec<Point> = stroke.iter().map(|&point| points[point]).collect();
        let (from, to) = (hand.pen * rng.range(0.8, 1.2), hand.pen * rng.range(0.8, 1.2));
        trace(&path, from, to, &mut ink);
    }
    let strength = rng.range(170.0, 255.0);
    let noise = rng.range(0.0, NOISE);
    for (pixel, ink) in image.iter_mut().zip(ink) {
        *pixel = grey(ink * strength + noise * rng.triangle());
    }
    u8::try_from(label).unwrap_or_default()
}

/// The maximum offset of a skeleton's point, in units of its box.
const JITTER: f32 = 0.09;

/// The maximum noise of a pixel in grey values.
const NOISE: f32 = 50.0;

/// The number of segments between two points of a skeleton.
const SEGMENTS: u8 = 6;

#[derive(Clone, Copy)]
struct Point {
    x: f32,
    y: f32,
}

/// The handwriting of one digit: a map from the skeleton's box to pixels, and a pen.
struct Hand {
    bend: Point,
    xx: f32,
    xy: f32,
    yx: f32,
    yy: f32,
    shift: Point,
    pen: f32,
}

impl Hand {
    fn new(rng: &mut Rng) -> Self {
        let (width, height) = (rng.range(9.0, 15.0), rng.range(15.0, 21.0));
        let shear = 0.35 * rng.triangle();
        // The rotation by the angle whose half has this tangent, without a sine: up to 20 degrees to both sides.
        let half = 0.176 * rng.triangle();
        let norm = 1.0 + half * half;
        let (cos, sin) = ((1.0 - half * half) / norm, 2.0 * half / norm);
        Self {
            bend: Point { x: 0.5 * rng.triangle(), y: 0.4 * rng.triangle() },
            xx: cos * width,
            xy: (cos * shear - sin) * height,
            yx: sin * width,
            yy: (sin * shear + cos) * height,
            shift: Point { x: 14.0 + 2.5 * rng.triangle(), y: 14.0 + 2.5 * rng.triangle() },
            pen: rng.range(0.7, 1.7),
        }
    }

    fn place(&self, x: f32, y: f32) -> Point {
        let (x, y) = (x - 0.5, y - 0.5);
        let (x, y) = (x + self.bend.x * y * y, y + self.bend.y * x * x);
        Point { x: self.xx * x + self.xy * y + self.shift.x, y: self.yx * x + self.yy * y + self.shift.y }
    }
}

/// Draws a smooth line through the points; its half-width changes from `from` to `to`.
fn trace(path: &[Point], from: f32, to: f32, ink: &mut [f32; PIXELS]) {
    let spans = path.len().saturating_sub(1);
    let at = |index: usize| path[index.min(spans)];
    let mut width = from;
    let steps: f32 = (0..spans).map(|_| f32::from(SEGMENTS)).sum();
    let widen = (to - from) / steps;
    for span in 0..spans {
        let around = [at(span.saturating_sub(1)), at(span), at(span + 1), at(span + 2)];
        let mut last = around[1];
        for step in 1..=SEGMENTS {
            let next = between(&around, f32::from(step) / f32::from(SEGMENTS));
            segment(last, next, width, ink);
            width += widen;
            last = next;
        }
    }
}

/// Returns the point at `t` between the inner two of four points (Catmull and Rom 1974, uniform).
fn between(around: &[Point; 4], t: f32) -> Point {
    let blend = |a: f32, b: f32, c: f32, d: f32| {
        b + 0.5 * t * ((c - a) + t * ((2.0 * a - 5.0 * b + 4.0 * c - d) + t * (3.0 * (b - c) + d - a)))
    };
    let [a, b, c, d] = around;
    Point { x: blend(a.x, b.x, c.x, d.x), y: blend(a.y, b.y, c.y, d.y) }
}

/// Darkens the pixels near a segment: full ink within `width`, none a pixel beyond.
fn segment(a: Point, b: Point, width: f32, ink: &mut [f32; PIXELS]) {
    let reach = width + 1.0;
    let (along_x, along_y) = (b.x - a.x, b.y - a.y);
    let length = along_x * along_x + along_y * along_y;
    for row in pixel(a.y.min(b.y) - reach, 27)..=pixel(a.y.max(b.y) + reach, 27) {
        for column in pixel(a.x.min(b.x) - reach, 27)..=pixel(a.x.max(b.x) + reach, 27) {
            let (x, y) = (CENTRES[column] - a.x, CENTRES[row] - a.y);
            let t = if length > 0.0 { ((x * along_x + y * along_y) / length).clamp(0.0, 1.0) } else { 0.0 };
            let (off_x, off_y) = (x - t * along_x, y - t * along_y);
            let dark = (width + 0.5 - (off_x * off_x + off_y * off_y).sqrt()).clamp(0.0, 1.0);
            let spot = &mut ink[row * SIDE + column];
            *spot = spot.max(dark);
        }
    }
}

/// The centre of each pixel.
const CENTRES: [f32; SIDE] = {
    let mut centres = [0.5; SIDE];
    let mut index = 1;
    while index < SIDE {
        centres[index] = centres[index - 1] + 1.0;
        index += 1;
    }
    centres
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_reference_digest_is_what_is_drawn() {
        let first = generate(0, Split::Train, 1000);
        let drawn = Digest::of_pieces("ledger digits v1", &[&first.pixels, &first.labels]);
        assert_eq!(drawn.to_hex(), REFERENCE.to_hex());
    }

    #[test]
    fn classes_are_balanced() {
        let labels = generate(3, Split::Train, 10_000).labels;
        for class in 0..10 {
            // 1,000 expected with a standard deviation of 30; 5 of them are allowed.
            let count = labels.iter().filter(|label| **label == class).count();
            assert!((850..1150).contains(&count), "{count} of class {class}");
        }
    }

    #[test]
    fn every_image_has_ink_and_paper() {
        for image in generate(4, Split::Eval, 2000).pixels.chunks_exact(PIXELS) {
            let dark = image.iter().filter(|pixel| **pixel > 130).count();
            assert!((10..500).contains(&dark), "{dark} dark pixels");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn an_image_depends_on_its_index_alone(seed: u64, short in 1..20_usize, more in 0..20_usize) {
            let set = generate(seed, Split::Train, short);
            let longer = generate(seed, Split::Train, short + more);
            prop_assert_eq!(&set.pixels[..], &longer.pixels[..short * PIXELS]);
            prop_assert_eq!(&set.labels[..], &longer.labels[..short]);
            prop_assert_ne!(generate(seed, Split::Eval, short).pixels, set.pixels);
        }
    }
}
