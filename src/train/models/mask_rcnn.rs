//! Mask R-CNN (He et al. 2017) on the feature pyramid of a residual network (Lin et al. 2017, "Feature pyramid networks
//! for object detection").
//!
//! Follows torchvision's `maskrcnn_resnet50_fpn` with its names, constants and losses, except that every parameter is
//! trained and images have their final size on input. The host turns network outputs into proposals, matches and
//! detections. Region counts are padded to a few sizes; padding does not contribute to losses or results.
//!
//! The backbone's norms are frozen. torchvision takes their statistics from a network pretrained for classification.
//! [`calibrate`](Detector::calibrate) sets them to the statistics of the first batch instead, so that training from
//! scratch starts with normalised activations.

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

/// Means and standard deviations of ImageNet's RGB channels, on a scale from 0 to 1.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];

/// A detector that predicts masks. Images are [rows, 3, side, side], with a side that is a multiple of 32.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskRcnn {
    /// Blocks of each of the backbone's four stages.
    pub blocks: [usize; 4],
    /// Channels of the backbone's first convolution.
    pub base: usize,
    /// Channels of each level of the pyramid.
    pub channels: usize,
    /// Width of the box head's two hidden layers.
    pub hidden: usize,
    /// Classes without the background.
    pub classes: usize,
    /// Side of the square anchor of each level, in pixels.
    pub sizes: [f32; LEVELS],
    /// Proposal counts in training.
    pub training_proposals: ProposalCounts,
    /// Proposal counts in inference.
    pub inference_proposals: ProposalCounts,
    /// Anchors sampled for an image's proposal loss.
    pub anchors: usize,
    /// Regions sampled for an image's box and mask losses; at most a quarter are positive.
    pub regions: usize,
    /// Maximum number of detections of an image.
    pub max_detections: usize,
}

impl MaskRcnn {
    /// The model on ResNet-50: 44,401,393 parameters with 90 classes.
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

    /// The same architecture with one block per stage and few channels, for images of 64 x 64 or 128 x 128. A CPU trains it in seconds.
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

    /// Mask slots of an image: the smallest power of two from 16 that holds the batch's `largest` number of positive
    /// regions, so that there are few shapes.
    fn mask_slots(&self, largest: usize) -> usize {
        largest.next_power_of_two().max(16).min(self.sampled_regions().most())
    }

    /// The five losses of a training step.
    fn losses(
        &self,
        ctx: &mut ForwardContext<'_>,
        images: Tensor<4>,
        objects: &[Vec<Object>],
        host: &mut HostTime,
    ) -> Result<Losses, ReadError> {
        let side = images.dims()[3];
        let keys = [ctx.dropout_key(), ctx.dropout_key()];
        // Other threads compute the targets while this thread submits the forward pass to the device.
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

    /// The anchors of images of this side, and the proposal network's targets.
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
        // Positive regions come first.
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

    /// Floating-point operations of the forward pass over an image of this side, with this many regions in the box head
    /// and in the mask head.
    fn flops(&self, side: usize, [regions, masks]: [usize; 2]) -> u64 {
        self.body(Norm::Frozen).flops(side)
            + self.pyramid().flops(side)
            + proposals::flops(self.channels, side)
            + self.box_head().flops(regions)
            + self.mask_head().flops(masks)
    }

    /// The detections of each image, without masks, from the pyramid's levels and the proposal network's outputs.
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

/// The losses of a training step.
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

    /// Runs the backbone once and sets each norm's mean and variance, in order, to those of its input.
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

    /// The levels of the pyramid, then the proposal network's outputs.
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

    /// With all sampled regions and the smallest number of mask slots.
    fn learning_flops(&self, side: usize) -> u64 {
        self.flops(side, [self.regions, self.mask_slots(0)])
    }

    /// With the maximum number of regions and detections, and one mask per detection.
    fn forward_flops(&self, side: usize) -> u64 {
        self.flops(side, [self.inference_proposals.after, self.max_detections])
    }
}

/// Normalises the colour channels by mean and standard deviation.
fn normalised(ctx: &ForwardContext<'_>, images: Tensor<4>) -> Tensor<4> {
    let [mean, deviation] =
        ctx.constant_of("colours", || [MEAN, DEVIATION].map(|values| ctx.values(values.to_vec(), [1, 3, 1, 1])));
    (images - mean) / deviation
}

/// The proposals of each image, from the outputs [rows, anchors, 5].
fn proposed(answers: &[f32], anchors: &Anchors, side: usize, numbers: ProposalCounts) -> Vec<Vec<Xyxy>> {
    let rows = answers.par_chunks(anchors.boxes.len() * ANSWER);
    rows.map(|answers| proposals::propose(answers, anchors, side, numbers)).collect()
}

/// Truncates boxes to `many`, or pads them with empty boxes.
fn filled(boxes: impl Iterator<Item = Xyxy>, many: usize) -> impl Iterator<Item = Xyxy> {
    boxes.chain(std::iter::repeat(Xyxy::default())).take(many)
}

/// The regions of a batch, from the boxes of each image.
fn rois<B: Iterator<Item = Xyxy>>(pictures: impl Iterator<Item = B>) -> Vec<Roi> {
    pictures.enumerate().flat_map(|(row, boxes)| boxes.map(move |bounds| roi(row, bounds))).collect()
}

/// Reads the values of a tensor off the tape.
fn read<const D: usize>(what: &'static str, tensor: Tensor<D>) -> Result<Vec<f32>, ReadError> {
    tensor.try_into_vec_as().map_err(ReadError::of(what))
}

#[cfg(test)]
mod tests;
