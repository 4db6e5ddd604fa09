//! The places of the objects of a scene and their visible pixels.
//!
//! Objects are placed from the front to the back. A placed object never loses a pixel to a later one, so each is
//! checked once, against the objects before it. Knows classes, forms and pixels; nothing of colours.

use super::class::form;
use super::layer::Layer;
use crate::data::shapes::outline::{Point, outline};
use crate::data::shapes::parts::{direction, pose};
use crate::data::shapes::region::{Region, Scratch};
use crate::detection::mask::{Mask, Size};
use crate::number::{real, real_len, single};
use crate::rng::Rng;

/// The maximum number of objects in a scene; every number from 1 on is equally likely.
pub const MOST: usize = 8;

/// The minimum fraction of an object that is visible.
pub const SHARE: f32 = 0.4;

/// The minimum number of its visible pixels.
pub const PIXELS: u32 = 64;

/// The limits of COCO's small, medium and large objects: sides of squares of their area, in pixels.
pub const BANDS: [f32; 2] = [32.0, 96.0];

/// The number of tries for an object before it is left out.
const TRIES: usize = 24;

/// A size and a place.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    /// The side of a square of an object's area, in pixels, including hidden parts.
    pub size: f32,
    /// Its centre in the range that is allowed for this size, from 0 to 1.
    pub place: Point,
    /// Its centre, in pixels.
    pub centre: Point,
}

/// A placed object.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Its class.
    pub class: usize,
    /// Its size and place.
    pub spot: Spot,
    /// Its coverage.
    pub layer: Layer,
    /// Its visible pixels.
    pub mask: Mask,
}

/// Draws the objects of a scene, the foremost first. An object that is hidden too much is drawn again with the same
/// class, and left out if there is no room for it. Nothing hides the first object. Only in a corner too little of it
/// may lie within the picture, so that it is never left out: at most one try in twenty fails, and all of them once in
/// 10^31 scenes.
pub fn place(rng: &mut Rng, side: usize, classes: usize) -> Vec<Placed> {
    let pixels = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
    let picture = Size { width: pixels(side), height: pixels(side) };
    let mut taken = vec![0; side * side];
    let (mut scratch, mut seen) = (Scratch::default(), Vec::new());
    let mut placed: Vec<Placed> = Vec::with_capacity(MOST);
    for _ in 0..=rng.below(MOST) {
        let class = rng.below(classes);
        let fitting = (0..TRIES).find_map(|_| {
            let spot = spot(rng, single(real_len(side)), classes, &placed);
            let layer = Layer::new(&region(rng, class, spot), side, &mut scratch);
            let count = layer.seen(&taken, side, &mut seen);
            let enough = count >= PIXELS && single(real(count.into())) >= SHARE * spot.size * spot.size;
            enough.then_some((spot, layer))
        });
        if let Some((spot, layer)) = fitting {
            layer.take(&seen, &mut taken, side);
            let [left, top, width] = [layer.columns().start, layer.rows().start, layer.columns().len()].map(pixels);
            let mask = Mask::from_part(picture, (left, top), width, &seen);
            placed.push(Placed { class, spot, layer, mask });
        }
    }
    placed
}

/// Returns the smallest size at which classes can be distinguished: patterns need more pixels than forms. It is the
/// same for all classes of a scene.
pub fn least(classes: usize) -> f32 {
    if classes > 10 { 20.0 } else { 14.0 }
}

/// Draws a size and a place. Small, medium and large are equally likely, as far as they fit into half of the picture's
/// side. At most a quarter of the size lies beyond each edge of the picture.
fn spot(rng: &mut Rng, side: f32, classes: usize, placed: &[Placed]) -> Spot {
    let (least, most) = (least(classes), 0.5 * side);
    let bands = 1 + BANDS.iter().filter(|border| **border < most).count();
    let band = rng.below(bands);
    let low = if band == 0 { least } else { BANDS[band - 1] };
    let high = BANDS.get(band).map_or(most, |border| border.min(most));
    let size = rng.range(low, high);
    let range = side - 0.5 * size;
    let place = somewhere(rng, size / range, range, placed);
    let centre = Point { x: 0.25 * size + place.x * range, y: 0.25 * size + place.y * range };
    Spot { size, place, centre }
}

/// Draws a place anywhere or, in half of the cases, near a placed object, so that objects hide others more often than
/// by chance. Places beyond an edge wrap around, so that every place remains equally likely.
fn somewhere(rng: &mut Rng, size: f32, range: f32, placed: &[Placed]) -> Point {
    let free = Point { x: rng.unit(), y: rng.unit() };
    let near = rng.below(2) == 1;
    let Some(other) = placed.get(rng.below(placed.len())).filter(|_| near) else { return free };
    let reach = 0.5 * (size + other.spot.size / range);
    let wrapped = |at: f32| at - at.floor();
    let Point { x, y } = other.spot.place;
    Point { x: wrapped(x + reach * (2.0 * free.x - 1.0)), y: wrapped(y + reach * (2.0 * free.y - 1.0)) }
}

/// Returns the form of a class, stretched a little and turned.
fn region(rng: &mut Rng, class: usize, Spot { size, centre, .. }: Spot) -> Region {
    let mut lines = outline(form(class));
    let stretch = 1.0 + 0.1 * rng.triangle();
    let (along, turn) = (direction(rng), direction(rng));
    pose(&mut lines, size, stretch, along, turn);
    for point in lines.iter_mut().flatten() {
        *point = Point { x: point.x + centre.x, y: point.y + centre.y };
    }
    Region::new(&lines)
}
