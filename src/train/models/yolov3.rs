//! YOLOv3 (Redmon and Farhadi 2018, "YOLOv3: an incremental improvement"): boxes of objects from one pass through a
//! convolutional network, at three scales.
//!
//! Layers are numbered as in Darknet's `yolov3.cfg`. Parameters have the names of the usual PyTorch port of that file:
//! `module_list.0.conv_0.weight`, `module_list.0.batch_norm_0.weight`. Batch normalisation has the constants of that
//! port (epsilon 1e-5, momentum 0.1).

mod boxes;
mod detections;
mod loss;
mod network;
mod places;
mod targets;

use super::detector::{Detector, HostTime, Prediction, ReadError};
use crate::data::objects::Object;
use crate::forward_context::ForwardContext;
use crate::parameters::ParamSpec;
use burn::tensor::Tensor;
use network::Network;
use places::Places;
use targets::Targets;

/// Boxes per cell.
const BOXES: usize = 3;
/// The index of objectness in a box's predictions: x, y, width and height come before it, the classes after it.
const OBJECTNESS: usize = 4;
/// Widths and heights of the nine clusters of COCO's boxes, in pixels of the network's input (section 2.3).
const ANCHORS: [[f32; 2]; 9] = [
    [10.0, 13.0],
    [16.0, 30.0],
    [33.0, 23.0],
    [30.0, 61.0],
    [62.0, 45.0],
    [59.0, 119.0],
    [116.0, 90.0],
    [156.0, 198.0],
    [373.0, 326.0],
];

/// A detector for square images whose side is a multiple of 32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YoloV3 {
    /// Residual blocks of each of the five stages.
    pub blocks: [usize; 5],
    /// Channels of the first convolution; each stage doubles them.
    pub base: usize,
    /// Number of classes.
    pub classes: usize,
    /// Widths and heights of the anchors, in pixels, small to large; three for each scale.
    pub anchors: [[f32; 2]; 9],
}

impl YoloV3 {
    /// The published network: the 52 convolutions of Darknet-53 and 23 more, with the anchors for images of 416 x 416.
    ///
    /// 61,949,149 parameters with 80 classes:
    /// - 40,549,216 weights and 35,712 gains and biases of the norms in Darknet-53,
    /// - 20,889,600 and 16,896 in the 20 normalised convolutions after it,
    /// - 456,960 weights and 765 biases of the three output convolutions, from 1024, 512 and 256 channels to 3·(5 + 80) each.
    pub fn darknet53(classes: usize) -> Self {
        Self { blocks: [1, 2, 8, 8, 4], base: 32, classes, anchors: ANCHORS }
    }

    /// The same architecture with one block per stage, an eighth of the channels and anchors for images of 64 x 64. A
    /// CPU trains it in an instant.
    pub fn tiny(classes: usize) -> Self {
        // A sixth of the published anchors.
        let anchors = ANCHORS.map(|anchor| anchor.map(|pixels| pixels / 6.0));
        Self { blocks: [1; 5], base: 4, classes, anchors }
    }

    fn network(&self) -> Network {
        Network { blocks: self.blocks, base: self.base, outputs: BOXES * (OBJECTNESS + 1 + self.classes) }
    }

    /// The three outputs of the network, coarsest level first, and the places of the images.
    fn outputs(&self, ctx: &mut ForwardContext<'_>, images: Tensor<4>) -> (Vec<Tensor<4>>, Places) {
        let [_, _, height, width] = images.dims();
        assert!(height == width && width % places::STRIDES[0] == 0, "{height} x {width} is no square of whole cells");
        (self.network().forward(ctx, images), Places::new(width, self.anchors))
    }
}

impl Detector for YoloV3 {
    fn param_specs(&self) -> Vec<ParamSpec> {
        self.network().param_specs()
    }

    fn statistics(&self) -> Vec<ParamSpec> {
        self.network().statistics()
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn loss(
        &self,
        ctx: &mut ForwardContext<'_>,
        images: Tensor<4>,
        objects: &[Vec<Object>],
        host: &mut HostTime,
    ) -> Result<Tensor<1>, ReadError> {
        let (outputs, places) = self.outputs(ctx, images);
        let targets = host.during(|| Targets::new(&places, objects));
        Ok(loss::loss(ctx, boxes::joined(outputs), targets, &places))
    }

    fn features(&self, ctx: &mut ForwardContext<'_>, images: Tensor<4>) -> Vec<Tensor<4>> {
        let (outputs, places) = self.outputs(ctx, images);
        detections::scored(ctx, outputs, &places).to_vec()
    }

    fn detect_in(
        &self,
        ctx: &ForwardContext<'_>,
        features: Vec<Tensor<4>>,
        side: usize,
        host: &mut HostTime,
    ) -> Result<Vec<Vec<Prediction>>, ReadError> {
        detections::detect(ctx, features, side, host)
    }

    fn forward_flops(&self, side: usize) -> u64 {
        self.network().flops(side)
    }
}

#[cfg(test)]
mod tests;
