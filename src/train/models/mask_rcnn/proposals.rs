//! The region proposal network (Ren et al. 2015, section 3.1).
//!
//! A small network predicts an objectness logit and box deltas for each anchor on the device. The host turns them into proposals.

use super::anchors::{Anchors, PER_PLACE};
use super::loss::{Goal, binary, smooth_l1};
use super::matching::{ANCHORS, Choice, Match, Sample, Share, matches, sample};
use super::pyramid::{LEVELS, Pyramid};
use crate::detection::Detection;
use crate::detection::boxes::Xyxy;
use crate::detection::deltas::PROPOSAL;
use crate::detection::nms::{Suppression, descending, nms};
use crate::forward_context::{ForwardContext, int_tensor};
use crate::layers::{Window, convolution_flops, convolve, convolve_relu, zero_bias_specs};
use crate::number::{real_len, single};
use crate::parameters::{Init, ParamSpec};
use crate::precision::exact;
use burn::tensor::Tensor;
use rayon::prelude::*;

/// Values predicted per anchor: the objectness logit, then four deltas.
pub const ANSWER: usize = 5;
/// Minimum width and height of a proposal, in pixels.
const LEAST: f32 = 1e-3;
/// Non-maximum suppression drops the lower-scored of two proposals of a level whose IoU is above this.
const SAME: f32 = 0.7;

const NAMES: [&str; 3] = ["rpn.head.conv.0.0", "rpn.head.cls_logits", "rpn.head.bbox_pred"];

/// The maximum numbers of proposals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProposalCounts {
    /// Of each level, before non-maximum suppression.
    pub before: usize,
    /// Of an image, after non-maximum suppression.
    pub after: usize,
}

/// The convolutions of the network: name and shape.
fn convolutions(channels: usize) -> [(&'static str, [usize; 3]); 3] {
    let [shared, objectness, deltas] = NAMES;
    [(shared, [channels, channels, 3]), (objectness, [PER_PLACE, channels, 1]), (deltas, [PER_PLACE * 4, channels, 1])]
}

/// The parameters: weights are normal with standard deviation 0.01, biases 0.
pub fn param_specs(channels: usize) -> Vec<ParamSpec> {
    let of = |(name, [to, from, side]): (&str, [usize; 3])| {
        zero_bias_specs(name, &[to, from, side, side], to, Init::Normal(0.01))
    };
    convolutions(channels).into_iter().flat_map(of).collect()
}

/// Floating-point operations for an image of this side.
pub fn flops(channels: usize, side: usize) -> u64 {
    let of =
        |places: usize| convolutions(channels).map(|(_, shape)| convolution_flops(shape, places)).iter().sum::<u64>();
    Pyramid::sides(side).map(of).iter().sum()
}

/// The predictions for each anchor, in the order of the anchors: [rows, anchors, 5], float32.
pub fn answers(ctx: &ForwardContext<'_>, levels: &[Tensor<4>; LEVELS]) -> Tensor<3> {
    let point = Window { stride: 1, padding: 0 };
    let of = |level: &Tensor<4>| -> Tensor<3> {
        let [rows, _, height, width] = level.dims();
        let [shared, objectness, deltas] = NAMES;
        let x = convolve_relu(ctx, shared, level.clone(), Window { stride: 1, padding: 1 });
        let [objectness, deltas] = [(objectness, 1), (deltas, 4)].map(|(name, many)| -> Tensor<4> {
            exact(convolve(ctx, name, x.clone(), point)).reshape([rows, PER_PLACE, many, height * width])
        });
        let all = Tensor::cat(vec![objectness, deltas], 2).permute([0, 3, 1, 2]);
        all.reshape([rows, height * width * PER_PLACE, ANSWER])
    };
    Tensor::cat(levels.iter().map(of).collect(), 1)
}

/// The proposals of an image, best first, from its predictions [anchors, 5].
pub fn propose(answers: &[f32], anchors: &Anchors, side: usize, numbers: ProposalCounts) -> Vec<Xyxy> {
    let of = |level: usize| {
        let found = best_of_level(answers, anchors, level, side, numbers.before);
        let limits = Suppression { score: -1.0, iou: SAME, max: numbers.after };
        nms(&found, limits).into_iter().map(|place| found[place].clone()).collect::<Vec<_>>()
    };
    let levels: Vec<Vec<Detection<Xyxy>>> = (0..anchors.levels.len()).into_par_iter().map(of).collect();
    let mut all: Vec<Detection<Xyxy>> = levels.into_iter().flatten().collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    all.into_iter().take(numbers.after).map(|proposal| proposal.region).collect()
}

/// The `many` best boxes of a level, clipped to the image, best first.
fn best_of_level(answers: &[f32], anchors: &Anchors, level: usize, side: usize, many: usize) -> Vec<Detection<Xyxy>> {
    let places = anchors.levels[level].clone();
    let logit = |place: usize| answers[place * ANSWER];
    // Integers that sort by descending logit, then by place. They are contiguous in memory, unlike the logits.
    let mut ranks: Vec<u64> = (0..=u32::MAX)
        .zip(places.clone())
        .map(|(number, place)| u64::from(descending(logit(place))) << 32 | u64::from(number))
        .collect();
    if many < ranks.len() {
        ranks.select_nth_unstable(many);
        ranks.truncate(many);
    }
    ranks.sort_unstable();
    let places = ranks.into_iter().map(|rank| places.start + number_of(rank));
    let side = single(real_len(side));
    let boxed = |place: usize| {
        let [dx, dy, dw, dh] = [1, 2, 3, 4].map(|n| answers[place * ANSWER + n]);
        let region = PROPOSAL.decode(anchors.boxes[place], [dx, dy, dw, dh]).clipped(side, side);
        Detection { class: level, score: 1.0 / (1.0 + (-logit(place)).exp()), region }
    };
    let large = |found: &Detection<Xyxy>| found.region.width() >= LEAST && found.region.height() >= LEAST;
    places.map(boxed).filter(large).collect()
}

/// The place within the level that a rank encodes.
fn number_of(rank: u64) -> usize {
    usize::try_from(rank & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

/// The proposal network's targets for a batch.
pub struct Lesson {
    /// The index of each sampled anchor in its image: `share.all` slots per image, 0 if unused.
    places: Vec<i32>,
    objectness: Goal,
    deltas: Goal,
    all: usize,
}

impl Lesson {
    /// The targets for the object boxes of each image.
    pub fn new(anchors: &Anchors, objects: &[Vec<Xyxy>], share: Share, key: Option<u32>) -> Self {
        let of = |(row, boxes): (usize, &Vec<Xyxy>)| {
            let found = matches(boxes, &anchors.boxes, ANCHORS);
            (sample(&found, share, Choice { key, row }), found)
        };
        let samples: Vec<(Sample, Vec<Match>)> = objects.par_iter().enumerate().map(of).collect();
        let counted: usize = samples.iter().map(|(one, _)| one.objects.len() + one.background.len()).sum();
        let weight = single(1.0 / real_len(counted.max(1)));
        let slots = objects.len() * share.all;
        let goal = |len: usize| Goal { targets: vec![0.0; len], weights: vec![0.0; len] };
        let mut lesson =
            Self { places: vec![0; slots], objectness: goal(slots), deltas: goal(4 * slots), all: share.all };
        for (row, (sample, found)) in samples.iter().enumerate() {
            for (slot, place) in (row * share.all..).zip(sample.objects.iter().chain(&sample.background)) {
                lesson.places[slot] = i32::try_from(*place).unwrap_or(0);
                lesson.objectness.weights[slot] = weight;
                if let Match::Object(object) = found[*place] {
                    lesson.objectness.targets[slot] = 1.0;
                    let deltas = PROPOSAL.encode(anchors.boxes[*place], objects[row][object]);
                    lesson.deltas.targets[4 * slot..][..4].copy_from_slice(&deltas);
                    lesson.deltas.weights[4 * slot..][..4].fill(weight);
                }
            }
        }
        lesson
    }

    /// The objectness and box losses of predictions [rows, anchors, 5].
    ///
    /// The first is the mean binary cross-entropy of the sampled anchors. The second is the smooth L1 loss, summed over
    /// positive anchors and divided by the number of sampled anchors.
    pub fn losses(self, ctx: &ForwardContext<'_>, answers: Tensor<3>) -> [Tensor<1>; 2] {
        let ([rows, ..], slots) = (answers.dims(), self.places.len());
        let places: Vec<i32> = self.places.iter().flat_map(|place| [*place; ANSWER]).collect();
        let places = ctx.indices(int_tensor(&places, [rows, self.all, ANSWER], ctx.device()));
        // Only the place of unused slots occurs more than once, and their gradient is 0: the order of accumulation does not matter.
        let sampled: Tensor<2> = answers.gather(1, places).reshape([slots, ANSWER]);
        let objectness = binary(ctx, sampled.clone().narrow(1, 0, 1), self.objectness);
        [objectness, smooth_l1(ctx, sampled.narrow(1, 1, 4), self.deltas)]
    }
}

#[cfg(test)]
mod tests;
