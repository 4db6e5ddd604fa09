//! Mask R-CNN (He et al. 2017) on the feature pyramid of a residual network (Lin et al. 2017, "Feature pyramid networks for object detection").
//!
//! As torchvision's `maskrcnn_resnet50_fpn` has it, with its names, constants and losses; every parameter is learned. Pictures come in their final size. What the network says is turned into
//! proposals, matches and detections on the host; regions come in few numbers, and those that are missing count nothing.
//!
//! The body's norms are frozen. torchvision fills them from a network that was trained to name pictures; [`calibrate`](Detector::calibrate) sets their statistics to those of the first
//! batch instead, so that a network that starts from nothing starts with normalised activations.

mod anchors;
mod box_head;
mod loss;
mod mask_head;
mod matching;
#[cfg(test)]
mod parity;
mod proposals;
mod pyramid;
mod regions;

use super::detector::{Detector, HostTime, Prediction, ReadError};
use super::resnet::{Body, Norm};
use crate::data::objects::Object;
use crate::detection::Detection;
use crate::detection::boxes::Xyxy;
use crate::detection::mask::{Mask, Size};
use crate::forward_context::ForwardContext;
use crate::layers::Roi;
use crate::parameters::ParamSpec;
use anchors::Anchors;
use box_head::BoxHead;
use burn::tensor::Tensor;
use burn::tensor::activation::sigmoid;
use mask_head::{MAP, MaskHead};
use matching::{Share, learnable};
use proposals::{ANSWER, Lesson, ProposalCounts};
use pyramid::{LEVELS, Pyramid, STAGES};
use rayon::prelude::*;
use regions::{Slot, roi};
use std::time::Instant;

/// Means and deviations of ImageNet's colours, from 0 to 1, red first.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];

/// A detector that tells masks. Pictures are [rows, 3, side, side] with a side that is a multiple of 32.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskRcnn {
    /// Blocks of each of the body's four stages.
    pub blocks: [usize; 4],
    /// Channels of the body's first convolution.
    pub base: usize,
    /// Channels of each level of the pyramid.
    pub channels: usize,
    /// Width of the maps that name a region.
    pub hidden: usize,
    /// Classes without the background.
    pub classes: usize,
    /// Side of the square anchor of each level, in pixels.
    pub sizes: [f32; LEVELS],
    /// Proposals of a training step.
    pub training_proposals: ProposalCounts,
    /// Proposals in inference.
    pub inference_proposals: ProposalCounts,
    /// Anchors of a picture that a step learns from.
    pub anchors: usize,
    /// Regions of a picture that a step learns from; a quarter of them at most are objects'.
    pub regions: usize,
    /// The maximum number of detections of a picture.
    pub max_detections: usize,
}

impl MaskRcnn {
    /// On ResNet-50: 44,401,393 parameters with 90 classes.
    pub fn fifty(classes: usize) -> Self {
        Self {
            blocks: [3, 4, 6, 3],
            base: 64,
            channels: 256,
            hidden: 1024,
            classes,
            sizes: [32.0, 64.0, 128.0, 256.0, 512.0],
            training_proposals: ProposalCounts { before: 2000, after: 2000 },
            inference_proposals: ProposalCounts { before: 1000, after: 1000 },
            anchors: 256,
            regions: 512,
            max_detections: 100,
        }
    }

    /// The same form with a block a stage and few channels, for pictures of 64 x 64 or 128 x 128: what a CPU trains in seconds.
    pub fn tiny(classes: usize) -> Self {
        Self {
            blocks: [1; 4],
            base: 4,
            channels: 16,
            hidden: 32,
            classes,
            sizes: [8.0, 16.0, 32.0, 64.0, 128.0],
            training_proposals: ProposalCounts { before: 100, after: 50 },
            inference_proposals: ProposalCounts { before: 50, after: 20 },
            anchors: 64,
            regions: 16,
            max_detections: 8,
        }
    }

    fn body(&self, norm: Norm) -> Body {
        Body { prefix: "backbone.body.", blocks: self.blocks, base: self.base, norm }
    }

    fn pyramid(&self) -> Pyramid {
        Pyramid { from: self.body(Norm::Frozen).channels(), to: self.channels }
    }

    fn box_head(&self) -> BoxHead {
        BoxHead { channels: self.channels, hidden: self.hidden, classes: self.classes + 1 }
    }

    fn mask_head(&self) -> MaskHead {
        MaskHead { channels: self.channels, classes: self.classes + 1 }
    }

    fn sampled_regions(&self) -> Share {
        Share { all: self.regions, objects: 0.25 }
    }

    fn anchors_of(&self, side: usize) -> Anchors {
        let levels: Vec<(f32, usize)> = self.sizes.into_iter().zip(Pyramid::sides(side)).collect();
        Anchors::new(side, &levels)
    }

    fn levels(&self, ctx: &mut ForwardContext<'_>, images: Tensor<4>) -> [Tensor<4>; LEVELS] {
        let images = normalised(ctx, images);
        let stages = self.body(Norm::Frozen).stages(ctx, images);
        self.pyramid().levels(ctx, stages)
    }

    /// Regions of a picture, at most, that masks are learned for: the least of 16, 32, 64, … that all those of a batch fit in, so that there are few shapes.
    fn mask_slots(&self, largest: usize) -> usize {
        largest.next_power_of_two().max(16).min(self.sampled_regions().most())
    }

    /// The five losses of a step in torchvision's order.
    fn losses(
        &self,
        ctx: &mut ForwardContext<'_>,
        images: Tensor<4>,
        objects: &[Vec<Object>],
        host: &mut HostTime,
    ) -> Result<Losses, ReadError> {
        let side = images.dims()[3];
        let keys = [ctx.dropout_key(), ctx.dropout_key()];
        // While this thread asks the device for its answers, others find out what they should be.
        let mut taught = None;
        let (levels, answers, asked) = rayon::in_place_scope(|scope| {
            scope.spawn(|_| taught = Some(self.lesson(side, objects, keys[0])));
            let levels = self.levels(ctx, images);
            let answers = proposals::answers(ctx, &levels);
            (levels, answers, Instant::now())
        });
        host.since(asked);
        let Some((anchors, lesson)) = taught else { unreachable!("the scope waits for it") };
        let told = read("proposals", ctx.off_tape(answers.clone()))?;
        let slots = host.during(|| {
            let found = proposed(&told, &anchors, side, self.training_proposals);
            regions::slots(found, objects, self.sampled_regions(), keys[1])
        });
        let [objectness, proposals] = lesson.losses(ctx, answers);
        let [classes, boxes] = self.named(ctx, &levels[..STAGES], &slots);
        let masks = self.masked(ctx, &levels[..STAGES], &slots, host);
        Ok(Losses { classes, boxes, masks, objectness, proposals })
    }

    /// The anchors of pictures of this side, and what the network should answer for each.
    fn lesson(&self, side: usize, objects: &[Vec<Object>], key: Option<u32>) -> (Anchors, Lesson) {
        let boxes = |objects: &Vec<Object>| learnable(objects).iter().map(|object| object.bounds).collect();
        let boxes: Vec<Vec<Xyxy>> = objects.iter().map(boxes).collect();
        let anchors = self.anchors_of(side);
        let lesson = Lesson::new(&anchors, &boxes, Share { all: self.anchors, objects: 0.5 }, key);
        (anchors, lesson)
    }

    fn named(&self, ctx: &ForwardContext<'_>, levels: &[Tensor<4>], slots: &[Vec<Slot<'_>>]) -> [Tensor<1>; 2] {
        let rois = rois(slots.iter().map(|slots| slots.iter().map(|slot| slot.bounds)));
        let head = self.box_head();
        head.losses(ctx, head.answers(ctx, levels, &rois), slots)
    }

    fn masked(
        &self,
        ctx: &ForwardContext<'_>,
        levels: &[Tensor<4>],
        slots: &[Vec<Slot<'_>>],
        host: &mut HostTime,
    ) -> Tensor<1> {
        // Those of objects come first.
        let objects = slots.iter().map(|slots| slots.iter().filter(|slot| slot.class > 0).count());
        let many = self.mask_slots(objects.max().unwrap_or(0));
        let slots: Vec<&[Slot<'_>]> = slots.iter().map(|slots| &slots[..many]).collect();
        let rois = rois(slots.iter().map(|slots| slots.iter().map(|slot| slot.bounds)));
        let slots = slots.concat();
        let classes: Vec<i32> = slots.iter().map(|slot| slot.class).collect();
        let maps = self.mask_head().maps(ctx, levels, &rois, &classes);
        let targets = host.during(|| {
            let of = |slot: &Slot<'_>| slot.mask.map(|mask| mask.aligned(slot.bounds, MAP));
            slots.par_iter().map(of).collect()
        });
        mask_head::loss(ctx, maps, targets)
    }

    /// Operations of the forward pass over a picture of this side, with so many regions that are named and so many masks.
    fn flops(&self, side: usize, [regions, masks]: [usize; 2]) -> u64 {
        self.body(Norm::Frozen).flops(side)
            + self.pyramid().flops(side)
            + proposals::flops(self.channels, side)
            + self.box_head().flops(regions)
            + self.mask_head().flops(masks)
    }

    /// The detections of each picture, without masks, from the pyramid's levels and the proposal network's answers.
    fn boxes(
        &self,
        ctx: &ForwardContext<'_>,
        (levels, answers): (&[Tensor<4>], Tensor<4>),
        side: usize,
        host: &mut HostTime,
    ) -> Result<Vec<Vec<Detection<Xyxy>>>, ReadError> {
        let told = read("proposals", ctx.off_tape(answers))?;
        let proposals = host.during(|| proposed(&told, &self.anchors_of(side), side, self.inference_proposals));
        let head = self.box_head();
        let rois = rois(proposals.iter().map(|boxes| filled(boxes.iter().copied(), self.inference_proposals.after)));
        let judged = head.judged(head.answers(ctx, &levels[..STAGES], &rois));
        let judged = read("classes and boxes", ctx.off_tape(judged))?;
        Ok(host.during(|| {
            let of_pictures = judged.par_chunks(judged.len() / proposals.len().max(1));
            of_pictures
                .zip(&proposals)
                .map(|(judged, boxes)| head.found(judged, boxes, side, self.max_detections))
                .collect()
        }))
    }
}

/// The losses of a step.
struct Losses {
    classes: Tensor<1>,
    boxes: Tensor<1>,
    masks: Tensor<1>,
    objectness: Tensor<1>,
    proposals: Tensor<1>,
}

impl Detector for MaskRcnn {
    fn param_specs(&self) -> Vec<ParamSpec> {
        let mut param_specs = self.body(Norm::Frozen).param_specs();
        param_specs.extend(self.pyramid().param_specs());
        param_specs.extend(proposals::param_specs(self.channels));
        param_specs.extend(self.box_head().param_specs());
        param_specs.extend(self.mask_head().param_specs());
        param_specs
    }

    fn statistics(&self) -> Vec<ParamSpec> {
        self.body(Norm::Frozen).statistics()
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn masks(&self) -> bool {
        true
    }

    /// Goes through the body once and sets each norm's mean and variance to those of what it is given, in their order.
    fn calibrate(&self, ctx: &mut ForwardContext<'_>, images: Tensor<4>) {
        let images = normalised(ctx, images);
        self.body(Norm::Calibrated).stages(ctx, images);
    }

    fn loss(
        &self,
        ctx: &mut ForwardContext<'_>,
        images: Tensor<4>,
        objects: &[Vec<Object>],
        host: &mut HostTime,
    ) -> Result<Tensor<1>, ReadError> {
        let Losses { classes, boxes, masks, objectness, proposals } = self.losses(ctx, images, objects, host)?;
        Ok(classes + boxes + masks + objectness + proposals)
    }

    /// The levels of the pyramid and the proposal network's answers.
    fn features(&self, ctx: &mut ForwardContext<'_>, images: Tensor<4>) -> Vec<Tensor<4>> {
        let levels = self.levels(ctx, images);
        let answers = proposals::answers(ctx, &levels).unsqueeze_dim(3);
        levels.into_iter().chain([answers]).collect()
    }

    fn detect_in(
        &self,
        ctx: &ForwardContext<'_>,
        mut features: Vec<Tensor<4>>,
        side: usize,
        host: &mut HostTime,
    ) -> Result<Vec<Vec<Prediction>>, ReadError> {
        let Some(answers) = features.pop() else { unreachable!("levels and answers") };
        let levels = features;
        let found = self.boxes(ctx, (&levels, answers), side, host)?;
        let rois = rois(found.iter().map(|found| filled(found.iter().map(|one| one.region), self.max_detections)));
        let classes = found.iter().flat_map(|found| {
            let classes = found.iter().map(|one| i32::try_from(one.class).unwrap_or(0));
            classes.chain(std::iter::repeat(-1)).take(self.max_detections)
        });
        let maps = self.mask_head().maps(ctx, &levels[..STAGES], &rois, &classes.collect::<Vec<i32>>());
        let maps = read("masks", ctx.off_tape(sigmoid(maps)))?;
        let extent = u16::try_from(side).unwrap_or(u16::MAX);
        let picture = Size { width: extent, height: extent };
        let with_mask = |(one, map): (Detection<Xyxy>, &[f32])| Prediction {
            class: one.class - 1,
            score: one.score,
            bounds: one.region,
            mask: Some(Mask::pasted(picture, one.region, MAP, map)),
        };
        Ok(host.during(|| {
            let of_pictures = found.into_par_iter().zip(maps.par_chunks(self.max_detections * MAP * MAP));
            of_pictures
                .map(|(found, maps)| found.into_iter().zip(maps.chunks_exact(MAP * MAP)).map(with_mask).collect())
                .collect()
        }))
    }

    /// With the regions of a step and the fewest masks that are learned at a time.
    fn learning_flops(&self, side: usize) -> u64 {
        self.flops(side, [self.regions, self.mask_slots(0)])
    }

    /// With as many regions as there may be; of a region's masks that of its class.
    fn forward_flops(&self, side: usize) -> u64 {
        self.flops(side, [self.inference_proposals.after, self.max_detections])
    }
}

/// Colours less their mean, over their deviation.
fn normalised(ctx: &ForwardContext<'_>, images: Tensor<4>) -> Tensor<4> {
    let [mean, deviation] =
        ctx.constant_of("colours", || [MEAN, DEVIATION].map(|values| ctx.values(values.to_vec(), [1, 3, 1, 1])));
    (images - mean) / deviation
}

/// The proposals of each picture, of all answers [rows, anchors, 5].
fn proposed(answers: &[f32], anchors: &Anchors, side: usize, numbers: ProposalCounts) -> Vec<Vec<Xyxy>> {
    let rows = answers.par_chunks(anchors.boxes.len() * ANSWER);
    rows.map(|answers| proposals::propose(answers, anchors, side, numbers)).collect()
}

/// As many boxes as are asked for; those that are missing are nowhere.
fn filled(boxes: impl Iterator<Item = Xyxy>, many: usize) -> impl Iterator<Item = Xyxy> {
    boxes.chain(std::iter::repeat(Xyxy::default())).take(many)
}

/// The regions of all pictures, of the boxes of each.
fn rois<B: Iterator<Item = Xyxy>>(pictures: impl Iterator<Item = B>) -> Vec<Roi> {
    pictures.enumerate().flat_map(|(row, boxes)| boxes.map(move |bounds| roi(row, bounds))).collect()
}

/// What a tensor off the tape holds.
fn read<const D: usize>(what: &'static str, tensor: Tensor<D>) -> Result<Vec<f32>, ReadError> {
    tensor.try_into_vec_as().map_err(ReadError::of(what))
}

#[cfg(test)]
mod tests;
