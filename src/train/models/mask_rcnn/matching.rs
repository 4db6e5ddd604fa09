//! Matches boxes with objects and samples the boxes that a training step uses.

use crate::data::objects::Object;
use crate::detection::boxes::Xyxy;
use crate::number::{part, wide};
use crate::rng::{Rng, Stream};
use rayon::prelude::*;

/// The objects of an image that boxes can match: all but crowds and empty boxes, as in torchvision's reference training.
pub fn learnable(objects: &[Object]) -> Vec<&Object> {
    objects.iter().filter(|object| !object.crowd && !object.bounds.is_empty()).collect()
}

/// The match of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The object with this index.
    Object(usize),
    /// The background.
    Background,
    /// Neither: the box is not used.
    Unclear,
}

/// The IoU thresholds of matching.
#[derive(Clone, Copy, Debug)]
pub struct Overlap {
    /// A box matches the object with which its IoU is largest, if that is at least this.
    pub object: f32,
    /// A box whose largest IoU is below this matches the background.
    pub background: f32,
    /// Whether the boxes with an object's largest IoU always match an object, even below the thresholds.
    pub best: bool,
}

/// The thresholds for anchors (Ren et al. 2015, section 3.1.2).
pub const ANCHORS: Overlap = Overlap { object: 0.7, background: 0.3, best: true };
/// The thresholds for proposals (He et al. 2017, section 3.1).
pub const PROPOSALS: Overlap = Overlap { object: 0.5, background: 0.5, best: false };

/// Minimum number of boxes per parallel task.
const LEAST: usize = 2048;

/// The match of each box. Of objects with the same IoU the first wins, even if another object made the box one of
/// `best` (torchvision's `Matcher`).
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

/// How many boxes of an image are sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Maximum number of boxes in total.
    pub all: usize,
    /// Maximum fraction of positive boxes (those that match an object).
    pub objects: f64,
}

impl Share {
    /// Maximum number of positive boxes.
    pub fn most(self) -> usize {
        part(self.all, self.objects)
    }
}

/// The sampled boxes, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Boxes that match an object.
    pub objects: Vec<usize>,
    /// Boxes that match the background.
    pub background: Vec<usize>,
}

/// The random source of a sample; without a key the first boxes are taken.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The random key of the step.
    pub key: Option<u32>,
    /// The image's row in the batch.
    pub row: usize,
}

/// Samples positive and background boxes; background boxes fill up missing positive ones.
pub fn sample(matches: &[Match], share: Share, choice: Choice) -> Sample {
    let of = |wanted: fn(&Match) -> bool| {
        matches.iter().enumerate().filter(|(_, found)| wanted(found)).map(|(place, _)| place).collect::<Vec<usize>>()
    };
    let mut rng = choice.key.map(|key| Rng::new(u64::from(key), Stream::Sample, wide(choice.row)));
    let objects = some(of(|found| matches!(found, Match::Object(_))), share.most(), &mut rng);
    let rest = share.all - objects.len();
    Sample { background: some(of(|found| *found == Match::Background), rest, &mut rng), objects }
}

/// Draws `many` of the places without replacement; without a generator, takes the first ones.
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
