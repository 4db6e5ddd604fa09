//! The parts of drawings: random colours, directions and strokes, and outlines that are stretched and turned.
//!
//! Knows the random draws of each and nothing of their use.

use super::figure::{Colour, Figure, Fill};
use super::outline::Point;
use crate::data::planes::CHANNELS;
use crate::rng::Rng;

/// Returns a random colour.
pub fn colour(rng: &mut Rng) -> Colour {
    [rng.range(0.0, 255.0), rng.range(0.0, 255.0), rng.range(0.0, 255.0)]
}

/// Returns the squared distance of two colours; black and white are 442 apart.
pub fn distance(a: Colour, b: Colour) -> f32 {
    let off = [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
    off[0] * off[0] + off[1] * off[1] + off[2] * off[2]
}

/// Returns a random direction of length 1, uniformly distributed: a point of the unit disc, scaled to its rim.
pub fn direction(rng: &mut Rng) -> Point {
    for _ in 0..16 {
        let (x, y) = (rng.range(-1.0, 1.0), rng.range(-1.0, 1.0));
        let square = x * x + y * y;
        if (0.01..=1.0).contains(&square) {
            let length = square.sqrt();
            return Point { x: x / length, y: y / length };
        }
    }
    Point { x: 1.0, y: 0.0 }
}

/// Returns a colour with a slight gradient over `extent` pixels.
pub fn uneven(rng: &mut Rng, colour: Colour, origin: Point, extent: f32) -> Fill {
    let mut slope = || [0.0; CHANNELS].map(|_: f32| 45.0 * rng.triangle() / extent);
    Fill { colour, right: slope(), down: slope(), origin }
}

/// Scales an outline of area 1 to the area `size`², stretches it by `stretch` along one direction, shrinks it across,
/// and turns it. Returns its maximum distance from the origin along the axes.
pub fn pose(lines: &mut [Vec<Point>], size: f32, stretch: f32, along: Point, turn: Point) -> f32 {
    let mut reach = 0.0_f32;
    for point in lines.iter_mut().flatten() {
        let (long, wide) = (point.x * along.x + point.y * along.y, point.y * along.x - point.x * along.y);
        let (long, wide) = (size * stretch * long, size / stretch * wide);
        *point = Point { x: long * turn.x - wide * turn.y, y: long * turn.y + wide * turn.x };
        reach = reach.max(point.x.abs()).max(point.y.abs());
    }
    reach
}

/// Returns a bent line of random colour in a picture of `side` × `side` pixels.
pub fn stroke(rng: &mut Rng, side: f32) -> Figure {
    let from = Point { x: rng.range(0.0, side), y: rng.range(0.0, side) };
    let (along, length) = (direction(rng), side * rng.range(0.25, 0.9));
    let bend = 0.8 * length * rng.triangle();
    let half = (0.5 * side * rng.range(0.008, 0.03)).max(0.35);
    let mut upper = Vec::new();
    let mut lower = Vec::new();
    for step in 0..=12_u8 {
        let t = f32::from(step) / 12.0;
        // A parabola over the line from end to end. Its normal follows from its derivative.
        let (on, off) = (length * t, bend * t * (1.0 - t));
        let (tangent, normal) = (length, bend * (1.0 - 2.0 * t));
        let norm = half / (tangent * tangent + normal * normal).sqrt();
        let place = |on: f32, off: f32| Point {
            x: from.x + on * along.x - off * along.y,
            y: from.y + on * along.y + off * along.x,
        };
        upper.push(place(on - norm * normal, off + norm * tangent));
        lower.push(place(on + norm * normal, off - norm * tangent));
    }
    upper.extend(lower.into_iter().rev());
    let colour = colour(rng);
    Figure::new(&[upper], uneven(rng, colour, from, length))
}
