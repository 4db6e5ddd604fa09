//! The layers of the network, numbered as in Darknet's configuration, and the forward pass through them.

use crate::forward_context::ForwardContext;
use crate::layers::{
    After, Window, batch_norm, concat_channels, convolution_flops, convolve, forked, norm_specs, norm_statistics,
    stored_nhwc, upsample_nearest,
};
use crate::number::real_len;
use crate::parameters::{Init, ParamSpec};
use burn::tensor::Tensor;

/// Channels of an image.
const COLOURS: usize = 3;
/// Negative slope of the leaky ReLUs (Darknet's configuration of table 1's network).
const SLOPE: f64 = 0.1;
/// Standard deviation of the initial weights of the three output convolutions.
const OUTPUT_DEVIATION: f64 = 0.01;
/// The initial predicted probability of an object at every place.
const PRIOR: f32 = 0.01;

/// A layer. Inputs are indices into a list that starts with the image and has the output of layer n at n + 1.
enum Layer {
    /// A convolution of the preceding entry.
    Convolution {
        /// Channels out, channels in, side of the kernel.
        shape: [usize; 3],
        stride: usize,
        /// Whether batch normalisation and a leaky ReLU follow; otherwise the convolution has a bias.
        normed: bool,
        /// The entry that is added to the output.
        residual: Option<usize>,
    },
    /// The preceding entry, which already includes the residual. It only exists because Darknet's configuration numbers it.
    Shortcut,
    /// The concatenation of these entries along the channels.
    Route(Vec<usize>),
    /// The preceding entry at twice the size.
    Upsample,
    /// Marks the preceding entry as one of the network's three outputs.
    Output,
}

/// The size of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Residual blocks of each of the five stages.
    pub blocks: [usize; 5],
    /// Channels of the first convolution; each stage doubles them.
    pub base: usize,
    /// Channels of each of the three outputs.
    pub outputs: usize,
}

/// The layers so far, and the channels of every entry.
struct Plan {
    layers: Vec<Layer>,
    channels: Vec<usize>,
}

impl Plan {
    fn last(&self) -> usize {
        self.channels.len() - 1
    }

    fn push(&mut self, layer: Layer, channels: usize) {
        self.layers.push(layer);
        self.channels.push(channels);
    }

    fn convolve(&mut self, to: usize, side: usize, stride: usize) {
        self.convolve_beside(to, side, stride, None);
    }

    fn convolve_beside(&mut self, to: usize, side: usize, stride: usize, residual: Option<usize>) {
        let shape = [to, self.channels[self.last()], side];
        self.push(Layer::Convolution { shape, stride, normed: true, residual }, to);
    }

    /// A residual block: 1 x 1 to half the channels, 3 x 3 back, plus the input.
    fn block(&mut self, channels: usize) {
        let start = self.last();
        self.convolve(channels / 2, 1, 1);
        self.convolve_beside(channels, 3, 1, Some(start));
        self.push(Layer::Shortcut, channels);
    }

    fn route(&mut self, places: Vec<usize>) {
        let channels = places.iter().map(|place| self.channels[*place]).sum();
        self.push(Layer::Route(places), channels);
    }

    /// Six alternating convolutions of 1 x 1 and 3 x 3, and an output. Returns the entry of the fifth convolution,
    /// where the next level starts.
    fn output(&mut self, half: usize, outputs: usize) -> usize {
        let mut branch = 0;
        for _ in 0..3 {
            self.convolve(half, 1, 1);
            branch = self.last();
            self.convolve(2 * half, 3, 1);
        }
        let shape = [outputs, 2 * half, 1];
        self.push(Layer::Convolution { shape, stride: 1, normed: false, residual: None }, outputs);
        self.push(Layer::Output, outputs);
        branch
    }
}

impl Network {
    fn layers(&self) -> Vec<Layer> {
        let mut plan = Plan { layers: Vec::new(), channels: vec![COLOURS] };
        plan.convolve(self.base, 3, 1);
        let (mut width, mut stages) = (self.base, Vec::new());
        for count in self.blocks {
            width *= 2;
            plan.convolve(width, 3, 2);
            (0..count).for_each(|_| plan.block(width));
            stages.push(plan.last());
        }
        let mut half = width / 2;
        let mut branch = plan.output(half, self.outputs);
        for stage in [stages[3], stages[2]] {
            half /= 2;
            plan.route(vec![branch]);
            plan.convolve(half, 1, 1);
            plan.push(Layer::Upsample, half);
            plan.route(vec![plan.last(), stage]);
            branch = plan.output(half, self.outputs);
        }
        plan.layers
    }

    /// The parameters in the order of the layers.
    ///
    /// The weights are normal with standard deviation √(2/((1 + 0.1²)·in·side²)) (He et al. 2015, "Delving deep into
    /// rectifiers", equation 15), or 0.01 in the output convolutions. Output biases are 0, except those of objectness,
    /// which give an initial probability of 0.01 (Lin et al. 2017, "Focal loss for dense object detection", section
    /// 4.1). Otherwise an image's thousands of empty places would dominate the first steps.
    pub fn param_specs(&self) -> Vec<ParamSpec> {
        let mut param_specs = Vec::new();
        for (n, layer) in self.layers().into_iter().enumerate() {
            let Layer::Convolution { shape: [to, from, side], normed, .. } = layer else { continue };
            let name = convolution(n);
            let fan_in = real_len(from * side * side);
            let leaky = 1.0 + SLOPE * SLOPE;
            let deviation = if normed { (2.0 / (leaky * fan_in)).sqrt() } else { OUTPUT_DEVIATION };
            param_specs.push(ParamSpec::new(
                format!("{name}.weight"),
                &[to, from, side, side],
                Init::Normal(deviation),
            ));
            if normed {
                param_specs.extend(norm_specs(&norm(n), to));
            } else {
                let value = (PRIOR / (1.0 - PRIOR)).ln();
                let start = Init::Every { period: self.outputs / super::BOXES, place: super::OBJECTNESS, value };
                param_specs.push(ParamSpec::new(format!("{name}.bias"), &[to], start));
            }
        }
        param_specs
    }

    pub fn statistics(&self) -> Vec<ParamSpec> {
        let normed = |(n, layer): (usize, Layer)| match layer {
            Layer::Convolution { shape: [to, ..], normed: true, .. } => Some(norm_statistics(&norm(n), to)),
            _ => None,
        };
        self.layers().into_iter().enumerate().filter_map(normed).flatten().collect()
    }

    /// The three outputs [rows, outputs, side, side], coarsest first, in the number format of the context.
    pub fn forward(&self, ctx: &mut ForwardContext<'_>, images: Tensor<4>) -> Vec<Tensor<4>> {
        let layers = self.layers();
        let mut uses = vec![0; layers.len() + 1];
        for place in layers.iter().enumerate().flat_map(|(n, layer)| layer.reads(n)) {
            uses[place] += 1;
        }
        let mut kept: Vec<Option<Tensor<4>>> = vec![Some(stored_nhwc(ctx, images))];
        let mut answers = Vec::new();
        for (n, layer) in layers.iter().enumerate() {
            let mut read = layer.reads(n).into_iter().map(|place| {
                uses[place] -= 1;
                let Some(found) = kept[place].take() else {
                    unreachable!("a place is kept until it was read for the last time")
                };
                // The last reader takes the tensor, which frees it early.
                if uses[place] == 0 {
                    return found;
                }
                let [found, other] = forked(ctx, found);
                kept[place] = Some(other);
                found
            });
            let (first, others): (Option<Tensor<4>>, Vec<Tensor<4>>) = (read.next(), read.collect());
            let Some(x) = first else { unreachable!("every layer reads something") };
            kept.push(match layer {
                Layer::Output => {
                    answers.push(x);
                    None
                }
                _ => Some(layer.apply(ctx, n, x, others)),
            });
        }
        answers
    }

    /// Floating-point operations of the convolutions for one image of this side.
    pub fn flops(&self, side: usize) -> u64 {
        let (mut flops, mut sides) = (0, vec![side]);
        for (n, layer) in self.layers().iter().enumerate() {
            let before = layer.reads(n).first().map_or(side, |place| sides[*place]);
            sides.push(match layer {
                Layer::Convolution { shape, stride, .. } => {
                    let after = window(shape[2], *stride).places(shape[2], before);
                    flops += convolution_flops(*shape, after);
                    after
                }
                Layer::Upsample => 2 * before,
                Layer::Shortcut | Layer::Route(_) | Layer::Output => before,
            });
        }
        flops
    }
}

impl Layer {
    /// The entries that layer n reads.
    fn reads(&self, n: usize) -> Vec<usize> {
        match self {
            Self::Convolution { residual, .. } => std::iter::once(n).chain(*residual).collect(),
            Self::Route(places) => places.clone(),
            Self::Shortcut | Self::Upsample | Self::Output => vec![n],
        }
    }

    fn apply(&self, ctx: &mut ForwardContext<'_>, n: usize, x: Tensor<4>, others: Vec<Tensor<4>>) -> Tensor<4> {
        match self {
            Self::Convolution { shape, stride, normed, .. } => {
                let x = convolve(ctx, &convolution(n), x, window(shape[2], *stride));
                let after = After::leaky(SLOPE, others.into_iter().next());
                if *normed { batch_norm(ctx, &norm(n), x, after) } else { x }
            }
            Self::Route(_) if others.is_empty() => x,
            Self::Route(_) => concat_channels(ctx, std::iter::once(x).chain(others).collect()),
            Self::Upsample => upsample_nearest(ctx, x),
            Self::Shortcut | Self::Output => x,
        }
    }
}

/// Keeps the side of the image, or halves it with a stride of 2.
fn window(side: usize, stride: usize) -> Window {
    Window { stride, padding: side / 2 }
}

fn convolution(n: usize) -> String {
    format!("module_list.{n}.conv_{n}")
}

fn norm(n: usize) -> String {
    format!("module_list.{n}.batch_norm_{n}")
}
