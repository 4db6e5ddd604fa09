//! The convolutions of a residual network: its stem and the four stages of bottlenecks.
//!
//! Knows their names, their shapes and their normalisation, and nothing of the layers after them.

use crate::forward_context::ForwardContext;
use crate::layers::{
    After, Window, calibrate_norm, convolution_flops, convolution_spec, convolve, convolve_normed, forked, frozen_norm,
    frozen_statistics, max_pool, norm_specs, norm_statistics, stored_nhwc,
};
use crate::models::units::Unit as Part;
use crate::parameters::ParamSpec;
use burn::tensor::Tensor;

/// Channels of an image.
const COLOURS: usize = 3;
/// Ratio of a block's output channels to those of its 3 x 3 convolution.
const EXPANSION: usize = 4;
/// The 3 x 3 max pooling after the first convolution.
const HALVE: Window = Window { stride: 2, padding: 1 };

/// The normalisation after convolutions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Batch normalisation with trained gain and bias.
    Batch,
    /// Batch normalisation with fixed statistics, gain and bias.
    Frozen,
    /// As [`Frozen`](Self::Frozen), after setting the statistics to those of the batch.
    Calibrated,
}

/// The convolutions of a residual network.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    /// The prefix of all names, including its final dot.
    pub prefix: &'static str,
    /// Blocks of each of the four stages.
    pub blocks: [usize; 4],
    /// Channels of the first convolution and of the first stage's 3 x 3 convolutions; each further stage has twice as many.
    pub base: usize,
    /// The normalisation after each convolution.
    pub norm: Norm,
}

impl Body {
    /// The parameters in torchvision's order.
    pub fn param_specs(&self) -> Vec<ParamSpec> {
        let mut param_specs = Vec::new();
        for unit in self.units() {
            param_specs.push(convolution_spec(&unit.convolution, unit.shape));
            if self.norm == Norm::Batch {
                param_specs.extend(norm_specs(&unit.norm, unit.shape[0]));
            }
        }
        param_specs
    }

    /// The running statistics in the same order. For frozen norms they include gain and bias.
    pub fn statistics(&self) -> Vec<ParamSpec> {
        let of = |unit: Unit| match self.norm {
            Norm::Batch => norm_statistics(&unit.norm, unit.shape[0]).to_vec(),
            Norm::Frozen | Norm::Calibrated => frozen_statistics(&unit.norm, unit.shape[0]).to_vec(),
        };
        self.units().into_iter().flat_map(of).collect()
    }

    /// Channels of each stage's output.
    pub fn channels(&self) -> [usize; 4] {
        [0, 1, 2, 3].map(|stage| (self.base << stage) * EXPANSION)
    }

    /// The outputs of the stages for images [rows, 3, side, side]. The first has a quarter of the images' side, and
    /// each further one half the side of the one before.
    pub fn stages(&self, ctx: &mut ForwardContext<'_>, images: Tensor<4>) -> [Tensor<4>; 4] {
        let (mut x, mut number) = (self.part(ctx, 0, images), 0);
        self.blocks.map(|blocks| {
            for _ in 0..blocks {
                number += 1;
                x = self.part(ctx, number, x.clone());
            }
            x.clone()
        })
    }

    /// Applies a part to the output of the one before. Part 0 is the stem with its max pooling, and each block is a further part.
    pub fn part(&self, ctx: &mut ForwardContext<'_>, number: usize, x: Tensor<4>) -> Tensor<4> {
        // The backward kernels of frozen norms support only NCHW.
        let x = if self.norm == Norm::Batch { stored_nhwc(ctx, x) } else { x };
        match number.checked_sub(1) {
            None => {
                let x = self.stem().apply(ctx, x, After::relu());
                max_pool(ctx, x, 3, HALVE)
            }
            Some(block) => match self.bottlenecks().nth(block) {
                Some(block) => block.apply(ctx, x),
                None => panic!("the network has no block {block}"),
            },
        }
    }

    /// The parts as pipeline units, for an image of this side.
    pub fn parts(&self, side: usize) -> Vec<Part> {
        let (flops, places) = self.stem().flops(side);
        let stem = ["conv1", "bn1"].map(|name| format!("{}{name}", self.prefix));
        let (mut parts, mut image) = (vec![Part::new(stem, flops)], HALVE.places(3, places));
        for block in self.bottlenecks() {
            let mut flops = block.shortcut().map_or(0, |unit| unit.flops(image).0);
            for unit in block.path() {
                let (own, next) = unit.flops(image);
                (flops, image) = (flops + own, next);
            }
            parts.push(Part::new([block.name], flops));
        }
        parts
    }

    /// Floating-point operations for an image of this side.
    pub fn flops(&self, side: usize) -> u64 {
        self.parts(side).iter().map(|part| part.flops).sum()
    }

    fn stem(&self) -> Unit {
        let Self { prefix, norm: how, .. } = *self;
        let window = Window { stride: 2, padding: 3 };
        let (convolution, norm) = (format!("{prefix}conv1"), format!("{prefix}bn1"));
        Unit { convolution, norm, how, shape: [self.base, COLOURS, 7], window }
    }

    fn bottlenecks(&self) -> impl Iterator<Item = Bottleneck> {
        (0..4).flat_map(move |stage| (0..self.blocks[stage]).map(move |number| self.bottleneck(stage, number)))
    }

    fn bottleneck(&self, stage: usize, number: usize) -> Bottleneck {
        let width = self.base << stage;
        // The input of a stage is the output of the one before (half the width, expanded), or of the stem.
        let before = if stage == 0 { self.base } else { width / 2 * EXPANSION };
        Bottleneck {
            name: format!("{}layer{}.{number}", self.prefix, stage + 1),
            how: self.norm,
            from: if number == 0 { before } else { width * EXPANSION },
            width,
            stride: if stage > 0 && number == 0 { 2 } else { 1 },
        }
    }

    fn units(&self) -> Vec<Unit> {
        let mut units = vec![self.stem()];
        for block in self.bottlenecks() {
            units.extend(block.path());
            units.extend(block.shortcut());
        }
        units
    }
}

/// A convolution without bias and its normalisation.
struct Unit {
    convolution: String,
    norm: String,
    how: Norm,
    /// Channels out, channels in, side of the kernel.
    shape: [usize; 3],
    window: Window,
}

impl Unit {
    fn apply(&self, ctx: &mut ForwardContext<'_>, x: Tensor<4>, after: After) -> Tensor<4> {
        if self.how == Norm::Batch {
            return convolve_normed(ctx, [&self.convolution, &self.norm], x, self.window, after);
        }
        let x = convolve(ctx, &self.convolution, x, self.window);
        if self.how == Norm::Calibrated {
            calibrate_norm(ctx, &self.norm, &x);
        }
        frozen_norm(ctx, &self.norm, x, after)
    }

    /// Floating-point operations for an image of this side, and the side of the output.
    fn flops(&self, image: usize) -> (u64, usize) {
        let places = self.window.places(self.shape[2], image);
        (convolution_flops(self.shape, places), places)
    }
}

/// A bottleneck block: a 1 x 1 convolution to fewer channels, a 3 x 3 convolution, a 1 x 1 convolution to more
/// channels, and a shortcut (figure 5 of the paper, right).
struct Bottleneck {
    name: String,
    how: Norm,
    from: usize,
    width: usize,
    stride: usize,
}

impl Bottleneck {
    fn path(&self) -> [Unit; 3] {
        let Self { name, how, from, width, stride } = self;
        let unit = |number: usize, shape: [usize; 3], stride: usize| Unit {
            convolution: format!("{name}.conv{number}"),
            norm: format!("{name}.bn{number}"),
            how: *how,
            shape,
            window: Window { stride, padding: shape[2] / 2 },
        };
        [
            unit(1, [*width, *from, 1], 1),
            unit(2, [*width, *width, 3], *stride),
            unit(3, [width * EXPANSION, *width, 1], 1),
        ]
    }

    /// The projection of the shortcut, if input and output differ in shape (option B of the paper).
    fn shortcut(&self) -> Option<Unit> {
        let Self { name, how, from, width, stride } = self;
        let to = width * EXPANSION;
        (*stride != 1 || *from != to).then(|| Unit {
            convolution: format!("{name}.downsample.0"),
            norm: format!("{name}.downsample.1"),
            how: *how,
            shape: [to, *from, 1],
            window: Window { stride: *stride, padding: 0 },
        })
    }

    fn apply(&self, ctx: &mut ForwardContext<'_>, x: Tensor<4>) -> Tensor<4> {
        let [narrow, middle, widen] = self.path();
        let [x, beside] = forked(ctx, x);
        let y = narrow.apply(ctx, x, After::relu());
        let y = middle.apply(ctx, y, After::relu());
        let beside = match self.shortcut() {
            Some(projection) => projection.apply(ctx, beside, After::default()),
            None => beside,
        };
        widen.apply(ctx, y, After::relu_of_sum(beside))
    }
}
