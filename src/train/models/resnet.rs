//! Residual networks of bottlenecks (He et al. 2015, "Deep residual learning for image recognition", table 1).
//!
//! As torchvision has them: a stage that halves the image does so in its first block's 3 x 3 convolution ("v1.5"), where the paper takes the 1 x 1 convolution
//! before it. Names are those of torchvision's `state_dict`.

mod body;

pub use body::{Body, Norm};

use super::units::{Activation, Unit, Units, through};
use super::{Input, Model};
use crate::forward_context::ForwardContext;
use crate::layers::{linear, mean_pixel};
use crate::number::wide;
use crate::parameters::ParamSpec;
use burn::tensor::Tensor;

/// A residual network. It answers to images [rows, 3, side, side] with [rows, classes].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resnet {
    /// Blocks of each of the four stages.
    pub blocks: [usize; 4],
    /// Channels of the first convolution and of the first stage's 3 x 3 convolutions; each further stage has twice as many.
    pub base: usize,
    /// How many different answers there are.
    pub classes: usize,
    /// Rows and columns of an image. [`forward_flops`](Model::forward_flops) alone asks for them.
    pub side: usize,
}

impl Resnet {
    /// ResNet-50 for images of 224 x 224: 25,557,032 parameters with 1,000 classes.
    pub fn fifty(classes: usize) -> Self {
        Self { blocks: [3, 4, 6, 3], base: 64, classes, side: 224 }
    }

    /// The same form with five blocks of a sixteenth of the width, for images of 32 x 32: what a CPU trains in an instant. 35,470 parameters with 10 classes.
    pub fn tiny(classes: usize) -> Self {
        Self { blocks: [1, 2, 1, 1], base: 4, classes, side: 32 }
    }

    fn body(&self) -> Body {
        Body { prefix: "", blocks: self.blocks, base: self.base, norm: Norm::Batch }
    }

    /// Channels that the classes are read from.
    fn features(&self) -> usize {
        self.body().channels()[3]
    }
}

impl Model for Resnet {
    fn param_specs(&self) -> Vec<ParamSpec> {
        let mut param_specs = self.body().param_specs();
        param_specs.extend(ParamSpec::pair("fc", &[self.features(), self.classes], self.classes));
        param_specs
    }

    fn statistics(&self) -> Vec<ParamSpec> {
        self.body().statistics()
    }

    fn forward(&self, ctx: &mut ForwardContext<'_>, input: Input) -> Tensor<2> {
        through(self, ctx, input)
    }

    fn units(&self) -> Option<&dyn Units> {
        Some(self)
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn forward_flops(&self, width: usize) -> u64 {
        Units::units(self, width).iter().map(|unit| unit.flops).sum()
    }
}

impl Units for Resnet {
    /// The stem, each block, and the layer that reads the classes.
    fn units(&self, _width: usize) -> Vec<Unit> {
        let head = Unit::new(["fc".to_owned()], 2 * wide(self.features() * self.classes));
        self.body().parts(self.side).into_iter().chain([head]).collect()
    }

    fn unit(&self, ctx: &mut ForwardContext<'_>, number: usize, activation: Activation) -> Activation {
        let images = activation.images();
        if number <= self.blocks.iter().sum() {
            return Activation::Images(self.body().part(ctx, number, images));
        }
        Activation::Rows(linear(ctx, "fc", mean_pixel(ctx, images)))
    }
}

#[cfg(test)]
mod tests;
