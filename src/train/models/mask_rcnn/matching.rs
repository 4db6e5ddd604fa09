//! Which object a box answers for, and which boxes a step learns from.

use crate::data::objects::Object;
use crate::detection::boxes::Xyxy;
use crate::number::{part, wide};
use crate::rng::{Rng, Stream};
use rayon::prelude::*;

/// The objects of a picture that boxes answer for: crowds and empty boxes are left out, as torchvision's reference training does.
pub fn learnable(objects: &[Object]) -> Vec<&Object> {
    objects.iter().filter(|object| !object.crowd && !object.bounds.is_empty()).collect()
}

/// What a box answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The object of this place.
    Object(usize),
    /// The background.
    Background,
    /// Neither: nothing is learned from it.
    Unclear,
}

/// From which overlap on a box answers for an object.
#[derive(Clone, Copy, Debug)]
pub struct Overlap {
    /// A box answers for the object with which its intersection over union is the largest and at least this.
    pub object: f32,
    /// Below, it answers for the background.
    pub background: f32,
    /// Those that overlap most with an object answer for something however little that is.
    pub best: bool,
}

/// Of anchors (Ren et al. 2015, section 3.1.2).
pub const ANCHORS: Overlap = Overlap { object: 0.7, background: 0.3, best: true };
/// Of proposals (He et al. 2017, section 3.1).
pub const PROPOSALS: Overlap = Overlap { object: 0.5, background: 0.5, best: false };

/// Fewer boxes than that are not worth a thread.
const LEAST: usize = 2048;

/// What each box answers for. Of objects with which it overlaps equally it is the first, also where another object made it one of `best` (torchvision's `Matcher`).
pub fn matches(objects: &[Xyxy], boxes: &[Xyxy], overlap: Overlap) -> Vec<Match> {
    let ious: Vec<Vec<f32>> = objects.par_iter().map(|object| object.ious(boxes)).collect();
    let most: Vec<f32> = ious.iter().map(|ious| ious.iter().copied().fold(0.0, f32::max)).collect();
    let of = |bounds: usize| {
        let (mut found, mut best, mut among) = (Match::Background, -1.0, false);
        for (place, ious) in ious.iter().enumerate() {
            let iou = ious[bounds];
            if iou > best {
                (found, best) = (Match::Object(place), iou);
            }
            among |= overlap.best && iou > 0.0 && iou >= most[place];
        }
        match found {
            Match::Object(_) if among || best >= overlap.object => found,
            _ if best < overlap.background => Match::Background,
            _ => Match::Unclear,
        }
    };
    (0..boxes.len()).into_par_iter().with_min_len(LEAST).map(of).collect()
}

/// How many boxes of a picture a step learns from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// At most, of both kinds.
    pub all: usize,
    /// The share of those that answer for an object, at most.
    pub objects: f64,
}

impl Share {
    /// How many answer for an object, at most.
    pub fn most(self) -> usize {
        part(self.all, self.objects)
    }
}

/// The boxes that a step learns from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Those that answer for an object.
    pub objects: Vec<usize>,
    /// Those that answer for the background.
    pub background: Vec<usize>,
}

/// What is drawn by a key in a picture at this place of the batch; without a key the first ones are taken.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Of the step.
    pub key: Option<u32>,
    /// Of the picture.
    pub row: usize,
}

/// Draws from both kinds; what is missing of the one is made up by the background.
pub fn sample(matches: &[Match], share: Share, choice: Choice) -> Sample {
    let of = |wanted: fn(&Match) -> bool| {
        matches.iter().enumerate().filter(|(_, found)| wanted(found)).map(|(place, _)| place).collect::<Vec<usize>>()
    };
    let mut rng = choice.key.map(|key| Rng::new(u64::from(key), Stream::Sample, wide(choice.row)));
    let objects = some(of(|found| matches!(found, Match::Object(_))), share.most(), &mut rng);
    let rest = share.all - objects.len();
    Sample { background: some(of(|found| *found == Match::Background), rest, &mut rng), objects }
}

/// So many of the places in a random order, or the first of them.
fn some(mut places: Vec<usize>, many: usize, rng: &mut Option<Rng>) -> Vec<usize> {
    let many = many.min(places.len());
    if let Some(rng) = rng {
        for place in 0..many {
            let other = place + rng.below(places.len() - place);
            places.swap(place, other);
        }
    }
    places.truncate(many);
    places
}

#[cfg(test)]
mod tests;
