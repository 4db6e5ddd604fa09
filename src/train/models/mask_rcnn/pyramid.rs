//! A feature pyramid: the outputs of a backbone's stages, projected to the same number of channels and merged from
//! coarse to fine (Lin et al. 2017, "Feature pyramid networks for object detection", section 3).

use crate::forward_context::ForwardContext;
use crate::layers::{Window, convolution_flops, convolve, max_pool, upsample_add, zero_bias_specs};
use crate::number::{real_len, single};
use crate::parameters::{Init, ParamSpec};
use burn::tensor::Tensor;

/// Stages of the backbone, and levels that regions are taken from.
pub const STAGES: usize = 4;
/// All levels, including one that only subsamples the coarsest.
pub const LEVELS: usize = STAGES + 1;

const POINT: Window = Window { stride: 1, padding: 0 };
const KEEP: Window = Window { stride: 1, padding: 1 };

/// The channel counts of a feature pyramid.
#[derive(Clone, Copy, Debug)]
pub struct Pyramid {
    /// Channels of each stage.
    pub from: [usize; STAGES],
    /// Channels of each level.
    pub to: usize,
}

impl Pyramid {
    /// The convolutions in torchvision's order: the 1 x 1 of each stage, then the 3 x 3 of each level.
    fn convolutions(&self) -> Vec<(String, [usize; 3])> {
        let inner = self.from.iter().enumerate().map(|(n, from)| (inner_name(n), [self.to, *from, 1]));
        inner.chain((0..STAGES).map(|n| (layer_name(n), [self.to, self.to, 3]))).collect()
    }

    /// The parameters: weights are uniform in ±√(3/fan_in), biases 0 (torchvision's `kaiming_uniform_` with a = 1).
    pub fn param_specs(&self) -> Vec<ParamSpec> {
        let of = |(name, [to, from, side]): (String, [usize; 3])| {
            let start = Init::Uniform(single((3.0 / real_len(from * side * side)).sqrt()));
            zero_bias_specs(&name, &[to, from, side, side], to, start)
        };
        self.convolutions().into_iter().flat_map(of).collect()
    }

    /// The levels, finest first; each is half as wide and high as the one before.
    pub fn levels(&self, ctx: &ForwardContext<'_>, stages: [Tensor<4>; STAGES]) -> [Tensor<4>; LEVELS] {
        let mut sum: Option<Tensor<4>> = None;
        let mut found = Vec::new();
        for (n, stage) in stages.into_iter().enumerate().rev() {
            let lateral = convolve(ctx, &inner_name(n), stage, POINT);
            let joined = match sum {
                Some(above) => upsample_add(ctx, above, lateral),
                None => lateral,
            };
            found.push(convolve(ctx, &layer_name(n), joined.clone(), KEEP));
            sum = Some(joined);
        }
        let Ok([fifth, fourth, third, second]) = <[Tensor<4>; STAGES]>::try_from(found) else {
            unreachable!("a level for each stage")
        };
        // Every second pixel.
        let sixth = max_pool(ctx, fifth.clone(), 1, Window { stride: 2, padding: 0 });
        [second, third, fourth, fifth, sixth]
    }

    /// Rows and columns of each level for an image of this side, a multiple of 32.
    pub fn sides(side: usize) -> [usize; LEVELS] {
        [side / 4, side / 8, side / 16, side / 32, (side / 32).div_ceil(2)]
    }

    /// Floating-point operations for an image of this side.
    pub fn flops(&self, side: usize) -> u64 {
        let sides = Self::sides(side);
        let convolutions = self.convolutions().into_iter().zip(sides[..STAGES].iter().cycle());
        convolutions.map(|((_, shape), places)| convolution_flops(shape, *places)).sum()
    }
}

fn inner_name(stage: usize) -> String {
    format!("backbone.fpn.inner_blocks.{stage}.0")
}

fn layer_name(stage: usize) -> String {
    format!("backbone.fpn.layer_blocks.{stage}.0")
}
