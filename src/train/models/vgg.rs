//! Deep stacks of 3 x 3 convolutions (Simonyan and Zisserman 2014, "Very deep convolutional networks for large-scale
//! image recognition", table 1), without batch normalisation.
//!
//! Follows torchvision: adaptive mean pooling brings the convolutions' output to 7 x 7, so that images of any size are
//! accepted; at 224 x 224 it has that size already. Names are those of torchvision's `state_dict`.

use super::units::{Activation, Unit, Units, through};
use super::{Input, Model};
use crate::forward_context::ForwardContext;
use crate::layers::{
    Window, convolution_flops, convolution_spec, convolve_relu, dropout, linear, max_pool, mean_to, stored_nhwc,
    zero_bias_specs,
};
use crate::number::wide;
use crate::parameters::{Init, ParamSpec};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;

/// Channels of an image.
const COLOURS: usize = 3;
/// Rows and columns of the classifier's input.
const SEEN: usize = 7;
/// The 3 x 3 convolutions keep the size.
const KEEP: Window = Window { stride: 1, padding: 1 };
/// The 2 x 2 max pooling.
const HALVE: Window = Window { stride: 2, padding: 0 };

/// A stack of convolutions with a classifier of three layers, from images [rows, 3, side, side] to logits [rows,
/// classes]; `side` must be 32 or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vgg {
    /// Convolutions of each of the five stages.
    pub convolutions: [usize; 5],
    /// Channels of each stage.
    pub channels: [usize; 5],
    /// Width of the classifier's first two layers.
    pub hidden: usize,
    /// Number of classes.
    pub classes: usize,
    /// Rows and columns of an image; only [`forward_flops`](Model::forward_flops) uses this.
    pub side: usize,
    /// Dropout probability after each of the classifier's first two layers.
    pub dropout: f64,
}

impl Vgg {
    /// VGG16 (configuration D) for images of 224 x 224: 138,357,544 parameters with 1,000 classes.
    pub fn sixteen(classes: usize) -> Self {
        Self {
            convolutions: [2, 2, 3, 3, 3],
            channels: [64, 128, 256, 512, 512],
            hidden: 4096,
            classes,
            side: 224,
            dropout: 0.5,
        }
    }

    /// The same architecture with six convolutions of few channels, for images of 32 x 32: 33,706 parameters with 10
    /// classes. A CPU trains it in an instant.
    pub fn tiny(classes: usize) -> Self {
        Self {
            convolutions: [1, 2, 1, 1, 1],
            channels: [8, 8, 16, 16, 16],
            hidden: 32,
            classes,
            side: 32,
            dropout: 0.5,
        }
    }

    /// The convolutions of each stage: name, and channels out, channels in, side of the kernel. The ReLU after each and
    /// the max pooling after a stage are numbered too.
    fn stages(&self) -> Vec<Vec<(String, [usize; 3])>> {
        let (mut number, mut from) = (0, COLOURS);
        let mut stages = Vec::new();
        for (count, to) in self.convolutions.into_iter().zip(self.channels) {
            let mut stage = Vec::new();
            for _ in 0..count {
                stage.push((format!("features.{number}"), [to, from, 3]));
                (number, from) = (number + 2, to);
            }
            number += 1;
            stages.push(stage);
        }
        stages
    }

    /// The layers of the classifier: name, inputs, outputs. The ReLU and dropout between them are numbered too.
    fn classifier(&self) -> [(&'static str, [usize; 2]); 3] {
        let features = self.channels[4] * SEEN * SEEN;
        [
            ("classifier.0", [features, self.hidden]),
            ("classifier.3", [self.hidden, self.hidden]),
            ("classifier.6", [self.hidden, self.classes]),
        ]
    }
}

impl Model for Vgg {
    fn param_specs(&self) -> Vec<ParamSpec> {
        let mut param_specs = Vec::new();
        for (name, shape) in self.stages().into_iter().flatten() {
            let bias = ParamSpec::new(format!("{name}.bias"), &shape[..1], Init::Constant(0.0));
            param_specs.extend([convolution_spec(&name, shape), bias]);
        }
        for (name, shape) in self.classifier() {
            param_specs.extend(zero_bias_specs(name, &shape, shape[1], Init::Normal(0.01)));
        }
        param_specs
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

impl Units for Vgg {
    /// Each convolution with its ReLU and pooling, then the layers of the classifier.
    fn units(&self, _width: usize) -> Vec<Unit> {
        let (mut units, mut image) = (Vec::new(), self.side);
        for stage in self.stages() {
            units.extend(stage.into_iter().map(|(name, shape)| Unit::new([name], convolution_flops(shape, image))));
            image = HALVE.places(2, image);
        }
        let layer = |(name, [from, to]): (&str, [usize; 2])| Unit::new([name.to_owned()], 2 * wide(from * to));
        units.extend(self.classifier().map(layer));
        units
    }

    fn unit(&self, ctx: &mut ForwardContext<'_>, number: usize, activation: Activation) -> Activation {
        let mut left = number;
        for stage in self.stages() {
            if let Some((name, _)) = stage.get(left) {
                let images = stored_nhwc(ctx, activation.images());
                let x = convolve_relu(ctx, name, images, KEEP);
                return Activation::Images(if left + 1 == stage.len() { max_pool(ctx, x, 2, HALVE) } else { x });
            }
            left -= stage.len();
        }
        let (name, _) = self.classifier()[left];
        let x = if left == 0 { mean_to(ctx, activation.images(), SEEN).flatten::<2>(1, 3) } else { activation.rows() };
        let x = linear(ctx, name, x);
        Activation::Rows(if left < 2 { dropout(ctx, relu(x), self.dropout) } else { x })
    }
}

#[cfg(test)]
mod tests;
