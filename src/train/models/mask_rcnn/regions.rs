//! Regions of images: assigns each to a pyramid level, and samples those that a training step uses.

use super::matching::{Choice, Match, PROPOSALS, Share, learnable, matches, sample};
use super::pyramid::STAGES;
use crate::data::objects::Object;
use crate::detection::boxes::Xyxy;
use crate::detection::deltas::HEAD;
use crate::detection::mask::Mask;
use crate::layers::Roi;
use crate::number::whole;
use rayon::prelude::*;

/// The image side of ImageNet training, in pixels, and the pyramid level (0 is the finest) of a region of that size
/// (Lin et al. 2017, equation 1).
const CANONICAL: (f32, f32) = (224.0, 2.0);
/// Added to the level before rounding down, as in torchvision.
const EPSILON: f32 = 1e-6;

/// The side of each level as a fraction of the image's.
pub const SCALES: [f32; STAGES] = [0.25, 0.125, 0.0625, 0.03125];

/// A region of the image at `row` of the batch, with its pyramid level.
pub fn roi(row: usize, bounds: Xyxy) -> Roi {
    let (side, level) = CANONICAL;
    let level = (level + (bounds.area().max(0.0).sqrt() / side).log2() + EPSILON).floor();
    let level = usize::try_from(whole(f64::from(level))).unwrap_or(0).min(STAGES - 1);
    Roi { row, level, bounds }
}

/// A region that a training step uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slot<'a> {
    /// The region's box; empty if the slot is unused.
    pub bounds: Xyxy,
    /// 0 for the background, otherwise the object's class + 1; −1 if the slot is unused.
    pub class: i32,
    /// The deltas from the region to the object's box, if the region is positive.
    pub deltas: Option<[f32; 4]>,
    /// The object's mask.
    pub mask: Option<&'a Mask>,
}

/// Samples the regions that a training step uses from each image's proposals and its objects' own boxes.
///
/// Each image has `share.all` slots: positive regions first, then background, then unused slots.
pub fn slots<'a>(
    proposals: Vec<Vec<Xyxy>>,
    objects: &'a [Vec<Object>],
    share: Share,
    key: Option<u32>,
) -> Vec<Vec<Slot<'a>>> {
    let of = |(row, (mut boxes, objects)): (usize, (Vec<Xyxy>, &'a Vec<Object>))| {
        let objects = learnable(objects);
        let there: Vec<Xyxy> = objects.iter().map(|object| object.bounds).collect();
        boxes.extend(&there);
        let found = matches(&there, &boxes, PROPOSALS);
        let chosen = sample(&found, share, Choice { key, row });
        let slot = |place: usize| {
            let bounds = boxes[place];
            match found[place] {
                Match::Object(object) => Slot {
                    bounds,
                    class: i32::try_from(objects[object].class + 1).unwrap_or(0),
                    deltas: Some(HEAD.encode(bounds, there[object])),
                    mask: objects[object].mask.as_ref(),
                },
                _ => Slot { bounds, ..Slot::default() },
            }
        };
        let used = chosen.objects.into_iter().chain(chosen.background).map(slot);
        let unused = std::iter::repeat_with(|| Slot { class: -1, ..Slot::default() });
        used.chain(unused).take(share.all).collect()
    };
    proposals.into_par_iter().zip(objects).enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected levels are those of torchvision's `LevelMapper(2, 5)`, less 2.
    #[test]
    fn levels_match_torchvision() {
        let square = |side: f32| roi(3, Xyxy::new([0.0, 0.0, side, side]));
        let sides = [0.0, 1.0, 111.9, 112.0, 223.9, 224.0, 447.9, 448.0, 4000.0];
        assert_eq!(sides.map(|side| square(side).level), [0, 0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(square(1.0).row, 3);
    }

    #[test]
    fn slots_have_positive_regions_first() {
        let bounds = Xyxy::new([10.0, 10.0, 30.0, 30.0]);
        let object = |crowd| Object { class: 4, bounds, area: 400.0, crowd, mask: None };
        let proposals = vec![
            vec![Xyxy::new([0.0, 0.0, 5.0, 5.0]), Xyxy::new([12.0, 10.0, 30.0, 30.0])],
            vec![Xyxy::new([12.0, 10.0, 30.0, 30.0])],
        ];
        let objects = [vec![object(false), object(true)], vec![]];
        let share = Share { all: 4, objects: 0.5 };
        let found = slots(proposals, &objects, share, None);
        let classes = |row: usize| found[row].iter().map(|slot| slot.class).collect::<Vec<_>>();
        // A proposal and the object's own box, then the background. The other image has one background region.
        assert_eq!((classes(0), classes(1)), (vec![5, 5, 0, -1], vec![0, -1, -1, -1]));
        let deltas = found[0][0].deltas.expect("an object's");
        // The object's centre is 1 of 18 pixels further left, times 10; its width is 20/18 of the proposal's, and its
        // logarithm is scaled by 5.
        let expected = [-10.0 / 18.0, 0.0, 5.0 * (20.0_f32 / 18.0).ln(), 0.0];
        assert!(deltas.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{deltas:?}");
        assert_eq!((found[0][1].bounds, found[0][1].deltas), (bounds, Some([0.0; 4])));
    }
}
