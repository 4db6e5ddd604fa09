//! The box head: classifies regions and refines their boxes (Girshick 2015; He et al. 2017, figure 4, right).

use super::loss::{Goal, smooth_l1};
use super::regions::{SCALES, Slot};
use crate::detection::Detection;
use crate::detection::boxes::Xyxy;
use crate::detection::deltas::HEAD;
use crate::detection::nms::{Suppression, nms};
use crate::forward_context::{ForwardContext, int_tensor};
use crate::layers::{Roi, cross_entropy, linear, roi_align};
use crate::number::{real_len, single, wide};
use crate::parameters::ParamSpec;
use crate::precision::exact;
use burn::tensor::Tensor;
use burn::tensor::activation::{relu, softmax};

/// Rows and columns of a region's features.
const SIDE: usize = 7;
/// Detections need a score above this.
const SCORE: f32 = 0.05;
/// Non-maximum suppression drops the lower-scored of two boxes of a class whose IoU is above this.
const SAME: f32 = 0.5;
/// Minimum width and height of a detection, in pixels.
const LEAST: f32 = 1e-2;

/// The linear layers of the head.
#[derive(Clone, Copy, Debug)]
pub struct BoxHead {
    /// Channels of a region's features.
    pub channels: usize,
    /// Width of the first two layers.
    pub hidden: usize,
    /// Number of classes, including the background, which is class 0.
    pub classes: usize,
}

impl BoxHead {
    fn maps(&self) -> [(&'static str, [usize; 2]); 4] {
        [
            ("roi_heads.box_head.fc6", [self.channels * SIDE * SIDE, self.hidden]),
            ("roi_heads.box_head.fc7", [self.hidden, self.hidden]),
            ("roi_heads.box_predictor.cls_score", [self.hidden, self.classes]),
            ("roi_heads.box_predictor.bbox_pred", [self.hidden, 4 * self.classes]),
        ]
    }

    /// The parameters, with PyTorch's default initialisation.
    pub fn param_specs(&self) -> Vec<ParamSpec> {
        self.maps().iter().flat_map(|(name, shape)| ParamSpec::pair(name, shape, shape[1])).collect()
    }

    /// Floating-point operations for this many regions.
    pub fn flops(&self, regions: usize) -> u64 {
        self.maps().iter().map(|(_, [from, to])| 2 * wide(from * to)).sum::<u64>() * wide(regions)
    }

    /// The class logits [n, classes] and the box deltas of each class [n, 4·classes], for n regions of the levels.
    pub fn answers(&self, ctx: &ForwardContext<'_>, levels: &[Tensor<4>], rois: &[Roi]) -> [Tensor<2>; 2] {
        let [first, second, classes, deltas] = self.maps().map(|(name, _)| name);
        let x = roi_align(ctx, levels, rois, &SCALES, SIDE).flatten::<2>(1, 3);
        let x = relu(linear(ctx, second, relu(linear(ctx, first, x))));
        [linear(ctx, classes, x.clone()), linear(ctx, deltas, x)]
    }

    /// The classification and box losses.
    ///
    /// The first is the cross-entropy of the classes, averaged over the used slots. The second is the smooth L1 loss of
    /// the true class's deltas, summed over positive regions and divided by the number of used slots.
    pub fn losses(
        &self,
        ctx: &ForwardContext<'_>,
        [logits, deltas]: [Tensor<2>; 2],
        slots: &[Vec<Slot<'_>>],
    ) -> [Tensor<1>; 2] {
        let slots: Vec<&Slot<'_>> = slots.iter().flatten().collect();
        let (many, counted) = (slots.len(), slots.iter().filter(|slot| slot.class >= 0).count());
        let classes: Vec<i32> = slots.iter().map(|slot| slot.class).collect();
        let right = ctx.indices(int_tensor(&classes, [many], ctx.device()));
        let of_classes = cross_entropy(ctx, logits, right, [self.classes, counted]);
        let mut goal = Goal { targets: vec![0.0; 4 * many], weights: vec![0.0; 4 * many] };
        let weight = single(1.0 / real_len(counted.max(1)));
        for (place, deltas) in slots.iter().enumerate().filter_map(|(n, slot)| Some((4 * n, slot.deltas?))) {
            goal.targets[place..place + 4].copy_from_slice(&deltas);
            goal.weights[place..place + 4].fill(weight);
        }
        let chosen = ctx.constant(chosen(ctx, &classes, self.classes).reshape([many, self.classes, 1]));
        let deltas: Tensor<3> = exact(deltas).reshape([many, self.classes, 4]) * chosen;
        [of_classes, smooth_l1(ctx, deltas.sum_dim(1).reshape([many, 4]), goal)]
    }

    /// Class probabilities, then deltas, in each row: [n, 5·classes], float32.
    pub fn judged(&self, answers: [Tensor<2>; 2]) -> Tensor<2> {
        let [logits, deltas] = answers.map(exact);
        Tensor::cat(vec![softmax(logits, 1), deltas], 1)
    }

    /// The detections in an image of this side, best first, from the rows of [`judged`](Self::judged) for its
    /// proposals. Classes count from 1; 0 is the background.
    pub fn found(&self, judged: &[f32], proposals: &[Xyxy], side: usize, most: usize) -> Vec<Detection<Xyxy>> {
        let mut all = Vec::new();
        let side = single(real_len(side));
        for (judged, proposal) in judged.chunks_exact(5 * self.classes).zip(proposals) {
            let (scores, deltas) = judged.split_at(self.classes);
            for (class, (score, deltas)) in scores.iter().zip(deltas.as_chunks::<4>().0).enumerate().skip(1) {
                if *score > SCORE {
                    let region = HEAD.decode(*proposal, *deltas).clipped(side, side);
                    if region.width() >= LEAST && region.height() >= LEAST {
                        all.push(Detection { class, score: *score, region });
                    }
                }
            }
        }
        let limits = Suppression { score: SCORE, iou: SAME, max: most };
        nms(&all, limits).into_iter().map(|place| all[place].clone()).collect()
    }
}

/// One-hot rows of the classes, [rows, columns], off the tape. A row is all 0 if its class is negative.
pub fn chosen(ctx: &ForwardContext<'_>, classes: &[i32], columns: usize) -> Tensor<2> {
    let all: Vec<i32> = (0..).take(columns).collect();
    let rows = classes.len();
    let [classes, all] = [
        int_tensor(classes, [rows, 1], ctx.device()).expand([rows, columns]),
        int_tensor(&all, [1, columns], ctx.device()).expand([rows, columns]),
    ];
    classes.equal(all).float()
}

#[cfg(test)]
mod tests;
