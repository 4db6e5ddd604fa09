//! The mask head: predicts which pixels of a region belong to the object (He et al. 2017, section 3, and figure 4, right).
//!
//! The network defines one mask per class, but only that of a region's own class is used, so only that one is computed.

use super::box_head::chosen;
use super::loss::{Goal, binary};
use super::regions::SCALES;
use crate::forward_context::ForwardContext;
use crate::layers::{
    Maps, Product, Roi, Window, convolution_flops, convolution_spec, convolve_relu, product, roi_align,
};
use crate::number::{real_len, single, wide};
use crate::parameters::{Init, ParamSpec};
use crate::precision::exact;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;

/// Rows and columns of a region's features.
const SIDE: usize = 14;
/// Rows and columns of a mask.
pub const MAP: usize = 2 * SIDE;
/// Convolutions before the upsampling.
const CONVOLUTIONS: usize = 4;
/// Output pixels per input pixel of the transposed convolution.
const BECOMES: usize = 4;

const ENLARGE: &str = "roi_heads.mask_predictor.conv5_mask";
const MAPS: &str = "roi_heads.mask_predictor.mask_fcn_logits";

/// The layers of the head.
#[derive(Clone, Copy, Debug)]
pub struct MaskHead {
    /// Channels of a region's features and of all hidden layers.
    pub channels: usize,
    /// Number of classes, including the background, which is class 0.
    pub classes: usize,
}

impl MaskHead {
    /// The parameters, initialised as in torchvision: weights are normal with standard deviation √(2/fan_out). Biases
    /// are 0 in the convolutions and PyTorch's default in the last two layers.
    pub fn param_specs(&self) -> Vec<ParamSpec> {
        let Self { channels, classes } = *self;
        let mut param_specs = Vec::new();
        for number in 0..CONVOLUTIONS {
            let name = convolution_name(number);
            param_specs.push(convolution_spec(&name, [channels, channels, 3]));
            param_specs.push(ParamSpec::new(format!("{name}.bias"), &[channels], Init::Constant(0.0)));
        }
        // PyTorch swaps the roles of inputs and outputs for a transposed convolution.
        let last = [(ENLARGE, [channels, channels, 2], channels), (MAPS, [classes, channels, 1], classes)];
        for (name, shape, outputs) in last {
            let fan_in = shape[1] * shape[2] * shape[2];
            let start = Init::Uniform(single(1.0 / real_len(fan_in).sqrt()));
            param_specs
                .extend([convolution_spec(name, shape), ParamSpec::new(format!("{name}.bias"), &[outputs], start)]);
        }
        param_specs
    }

    /// Floating-point operations for this many regions.
    pub fn flops(&self, regions: usize) -> u64 {
        let channels = self.channels;
        let convolutions = wide(CONVOLUTIONS) * convolution_flops([channels, channels, 3], SIDE);
        let enlarged = convolution_flops([BECOMES * channels, channels, 1], SIDE);
        (convolutions + enlarged + convolution_flops([1, channels, 1], MAP)) * wide(regions)
    }

    /// The mask logits of each region's class, row by row: [n, 28·28], float32. The result is unspecified for a negative class.
    pub fn maps(&self, ctx: &ForwardContext<'_>, levels: &[Tensor<4>], rois: &[Roi], classes: &[i32]) -> Tensor<2> {
        let (many, channels) = (rois.len(), self.channels);
        let mut x = roi_align(ctx, levels, rois, &SCALES, SIDE);
        for number in 0..CONVOLUTIONS {
            x = convolve_relu(ctx, &convolution_name(number), x, Window { stride: 1, padding: 1 });
        }
        let pixels: Tensor<3> = x.reshape([many, channels, SIDE * SIDE]).swap_dims(1, 2);
        let enlarged = relu(self.enlarged(ctx, pixels.reshape([many * SIDE * SIDE, channels])));
        let chosen = chosen(ctx, classes, self.classes);
        let weights = self.weights(ctx, chosen.clone()).reshape([many, 1, channels]);
        let values = rowwise(ctx, weights, enlarged.reshape([many, BECOMES * SIDE * SIDE, channels]));
        let biases = ctx.constant(chosen) * ctx.parameter::<2>(&format!("{MAPS}.bias")).reshape([1, self.classes]);
        let logits: Tensor<2> = exact(values).reshape([many, MAP * MAP]) + biases.sum_dim(1);
        // The four output pixels of an input pixel are adjacent in memory.
        let logits: Tensor<5> = logits.reshape([many, SIDE, SIDE, 2, 2]).permute([0, 1, 3, 2, 4]);
        logits.reshape([many, MAP * MAP])
    }

    /// The 2 x 2 transposed convolution with stride 2, over pixels [n, channels]: the four output pixels of each, [n, 4·channels].
    fn enlarged(&self, ctx: &ForwardContext<'_>, pixels: Tensor<2>) -> Tensor<2> {
        let (channels, columns) = (self.channels, BECOMES * self.channels);
        let weight: Tensor<3> =
            ctx.flat_parameter(&format!("{ENLARGE}.weight")).0.reshape([channels, channels, BECOMES]);
        let weight: Tensor<1> = weight.swap_dims(1, 2).reshape([channels * columns]);
        let bias = Tensor::cat(vec![ctx.flat_parameter(&format!("{ENLARGE}.bias")).0; BECOMES], 0);
        let maps =
            Maps { shape: [channels, columns], weights: vec![weight], biases: vec![bias], table: false, columns };
        maps.apply(ctx, pixels)
    }

    /// The weights of each region's class, [n, channels].
    ///
    /// Computed as a matrix product with one-hot rows: the gradient of indexing would accumulate in an unspecified order.
    fn weights(&self, ctx: &ForwardContext<'_>, chosen: Tensor<2>) -> Tensor<2> {
        let weights = vec![ctx.flat_parameter(&format!("{MAPS}.weight")).0];
        let (shape, columns) = ([self.classes, self.channels], self.channels);
        Maps { shape, weights, biases: Vec::new(), table: false, columns }.apply(ctx, ctx.constant(chosen))
    }
}

fn convolution_name(number: usize) -> String {
    format!("roi_heads.mask_head.{number}.0")
}

/// The dot products of `weights` [n, 1, channels] with each pixel of [n, pixels, channels]: [n, 1, pixels], in the
/// number format of the context.
fn rowwise(ctx: &ForwardContext<'_>, weights: Tensor<3>, pixels: Tensor<3>) -> Tensor<3> {
    let [w, x] = [&weights, &pixels].map(|tensor| ctx.off_tape(tensor.clone()));
    let (how, formats) = (Product::of(ctx.precision), [w.dtype(), x.dtype()]);
    let y = product(w.clone(), x.clone(), how.second_transposed());
    ctx.recorded(
        || [weights.into(), pixels.into()],
        y,
        move |gradient, _| {
            let of_weights = product(gradient.clone(), x, how);
            let of_pixels = product(gradient, w, how.first_transposed());
            [Some(of_weights.cast(formats[0]).into()), Some(of_pixels.cast(formats[1]).into())]
        },
    )
}

/// The binary cross-entropy of the mask logits [n, 28·28], averaged over the regions that have a target.
pub fn loss(ctx: &ForwardContext<'_>, maps: Tensor<2>, targets: Vec<Option<Vec<f32>>>) -> Tensor<1> {
    let pixels = MAP * MAP;
    let weight = single(1.0 / real_len(pixels * targets.iter().flatten().count().max(1)));
    let mut goal = Goal { targets: Vec::new(), weights: Vec::new() };
    for target in targets {
        goal.weights.extend(std::iter::repeat_n(if target.is_some() { weight } else { 0.0 }, pixels));
        goal.targets.extend(target.unwrap_or_else(|| vec![0.0; pixels]));
    }
    binary(ctx, maps, goal)
}

#[cfg(test)]
mod tests;
