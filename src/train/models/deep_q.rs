//! Networks that estimate action values, for deep Q-learning.
//!
//! Knows nothing of environments or of the learning algorithm. An output row holds one value for each action, in the
//! order of the actions. The values are not logits.

use super::{Input, Model};
use crate::forward_context::ForwardContext;
use crate::layers::{Window, convolution_flops, convolve_relu, linear};
use crate::number::wide;
use crate::parameters::ParamSpec;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;

/// Stacked frames of an input.
const FRAMES: usize = 4;
/// Rows and columns of a frame.
const SIDE: usize = 84;
/// Width of the layer after the convolutions.
const HIDDEN: usize = 512;

/// Name; channels out, channels in, side of the kernel; stride and padding.
const CONVOLUTIONS: [(&str, [usize; 3], Window); 3] = [
    ("network.0", [32, FRAMES, 8], Window { stride: 4, padding: 0 }),
    ("network.2", [64, 32, 4], Window { stride: 2, padding: 0 }),
    ("network.4", [64, 64, 3], Window { stride: 1, padding: 0 }),
];

/// A network that estimates the value of each action. All layers have PyTorch's default initialisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeepQ {
    body: Body,
    actions: usize,
}

/// The input of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// A state vector: its length, and the width of the two hidden layers.
    State([usize; 2]),
    /// The last [`FRAMES`] frames.
    Frames,
}

impl DeepQ {
    /// A network with two hidden layers of 128, from CartPole's state [rows, 4] to [rows, actions]. Width and names are
    /// those of PyTorch's tutorial on deep Q-learning.
    ///
    /// It has 640 + 16,512 + 129·actions parameters: 17,410 for CartPole's 2 actions.
    pub fn cart_pole(actions: usize) -> Self {
        Self { body: Body::State([4, 128]), actions }
    }

    /// The convolutional network of Mnih et al. 2015, "Human-level control through deep reinforcement learning"
    /// (Methods, model architecture), [rows, 4, 84, 84] to [rows, actions]. The caller scales the grey values of the
    /// frames, usually by 1/255.
    ///
    /// (8²·4·32 + 32) + (4²·32·64 + 64) + (3²·64·64 + 64) + (7²·64·512 + 512) + (512 + 1)·actions parameters: with 4 actions
    /// 8,224 + 32,832 + 36,928 + 1,606,144 + 2,052 = 1,686,180. Names are those of one `nn.Sequential` called `network`.
    pub fn nature(actions: usize) -> Self {
        Self { body: Body::Frames, actions }
    }

    /// The linear layers: name, inputs, outputs.
    fn linear_layers(&self) -> Vec<(&'static str, [usize; 2])> {
        match self.body {
            Body::State([numbers, width]) => {
                vec![("layer1", [numbers, width]), ("layer2", [width, width]), ("layer3", [width, self.actions])]
            }
            Body::Frames => {
                let (places, channels) = convolved();
                vec![("network.7", [places * places * channels, HIDDEN]), ("network.9", [HIDDEN, self.actions])]
            }
        }
    }
}

/// Side and channels of the last convolution's output.
fn convolved() -> (usize, usize) {
    CONVOLUTIONS
        .iter()
        .fold((SIDE, FRAMES), |(image, _), (_, [to, _, side], window)| (window.places(*side, image), *to))
}

impl Model for DeepQ {
    fn param_specs(&self) -> Vec<ParamSpec> {
        let mut param_specs = Vec::new();
        if self.body == Body::Frames {
            for (name, [to, from, side], _) in CONVOLUTIONS {
                param_specs.extend(ParamSpec::pair(name, &[to, from, side, side], to));
            }
        }
        for (name, shape) in self.linear_layers() {
            param_specs.extend(ParamSpec::pair(name, &shape, shape[1]));
        }
        param_specs
    }

    fn forward(&self, ctx: &mut ForwardContext<'_>, input: Input) -> Tensor<2> {
        let mut x = match (self.body, input) {
            (Body::State(_), Input::Rows(states)) => states,
            (Body::Frames, Input::Images(frames)) => CONVOLUTIONS
                .into_iter()
                .fold(frames, |x, (name, _, window)| convolve_relu(ctx, name, x, window))
                .flatten::<2>(1, 3),
            (body, _) => panic!("a network that sees {body:?} does not answer to such an input"),
        };
        let layers = self.linear_layers();
        for (n, (name, _)) in layers.iter().enumerate() {
            x = linear(ctx, name, x);
            if n + 1 < layers.len() {
                x = relu(x);
            }
        }
        x
    }

    fn classes(&self) -> usize {
        self.actions
    }

    fn forward_flops(&self, _width: usize) -> u64 {
        let (mut flops, mut image) = (0, SIDE);
        if self.body == Body::Frames {
            for (_, shape, window) in CONVOLUTIONS {
                image = window.places(shape[2], image);
                flops += convolution_flops(shape, image);
            }
        }
        flops + self.linear_layers().iter().map(|(_, [from, to])| 2 * wide(from * to)).sum::<u64>()
    }
}

#[cfg(test)]
mod tests;
