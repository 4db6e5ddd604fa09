//! Residual networks of bottlenecks (He et al. 2015, "Deep residual learning for image recognition", table 1).
//!
//! Follows torchvision: a stage that halves the image does so in the 3 x 3 convolution of its first block ("v1.5"),
//! while the paper uses the 1 x 1 convolution before it. Names are those of torchvision's `state_dict`.

mod body;

pub use body::{Body, Norm};

use super::units::{Activation, Unit, Units, through};
use super::{Input, Model};
use crate::forward_context::ForwardContext;
use crate::layers::{linear, mean_pixel};
use crate::number::wide;
use crate::parameters::ParamSpec;
use burn::tensor::Tensor;

/// A residual network, from images [rows, 3, side, side] to logits [rows, classes].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resnet {
    /// Blocks of each of the four stages.
    pub blocks: [usize; 4],
    /// Channels of the first convolution and of the first stage's 3 x 3 convolutions; each further stage has twice as many.
    pub base: usize,
    /// Number of classes.
    pub classes: usize,
    /// Rows and columns of an image; only [`forward_flops`](Model::forward_flops) uses this.
    pub side: usize,
}

impl Resnet {
    /// ResNet-50 for images of 224 x 224: 25,557,032 parameters with 1,000 classes.
    pub fn fifty(classes: usize) -> Self {
        Self { blocks: [3, 4, 6, 3], base: 64, classes, side: 224 }
    }

    /// The same architecture with five blocks of a sixteenth of the width, for images of 32 x 32: 35,470 parameters
    /// with 10 classes. A CPU trains it in an instant.
    pub fn tiny(classes: usize) -> Self {
        Self { blocks: [1, 2, 1, 1], base: 4, classes, side: 32 }
    }

    fn body(&self) -> Body {
        Body { prefix: "", blocks: self.blocks, base: self.base, norm: Norm::Batch }
    }

    /// Input features of the classifier.
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
    /// The stem, each block, and the classifier.
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
