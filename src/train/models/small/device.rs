//! The small models on devices other than the host. They use the layers of the published models, and so NVIDIA's libraries on a GPU.

use super::{FEATURES, SIDE, Small};
use crate::forward_context::{ForwardContext, ModelState};
use crate::layers::{Maps, Window, convolve, linear, max_pool};
use crate::parameters::Index;
use crate::precision::Precision;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

/// The 5 x 5 convolutions keep the size.
const KEEP: Window = Window { stride: 1, padding: 2 };
/// The 2 x 2 max pooling.
const HALVE: Window = Window { stride: 2, padding: 0 };

impl Small {
    /// The outputs [rows, outputs] of a training step for inputs [rows, inputs], with parameters on a tape. The mask
    /// [rows, 1024] is that of dropout.
    pub(super) fn train_on_device(
        &self,
        leaves: &[Tensor<1>],
        inputs: Tensor<2>,
        mask: Option<Tensor<2>>,
        device: &Device,
    ) -> Tensor<2> {
        self.passed(leaves, device, true, inputs, mask)
    }

    /// The outputs [rows, outputs] for inputs [rows, inputs], off any tape.
    pub fn answer_on_device(&self, parameters: &[Tensor<1>], inputs: Tensor<2>, device: &Device) -> Tensor<2> {
        self.passed(parameters, device, false, inputs, None)
    }

    fn passed(
        &self,
        parameters: &[Tensor<1>],
        device: &Device,
        trains: bool,
        inputs: Tensor<2>,
        mask: Option<Tensor<2>>,
    ) -> Tensor<2> {
        let (index, none) = (Index::new(&self.param_specs()), Index::default());
        let state = ModelState {
            index: &index,
            parameters,
            statistics: &none,
            running: &mut [],
            precision: Precision::Fp32,
            device: device.clone(),
        };
        // The mask already contains the step's random numbers; seed and step number are unused here.
        let ctx = if trains { ForwardContext::training(state, 0, 0) } else { ForwardContext::inference(state) };
        self.layered(&ctx, inputs, mask)
    }

    fn layered(&self, ctx: &ForwardContext<'_>, inputs: Tensor<2>, mask: Option<Tensor<2>>) -> Tensor<2> {
        match *self {
            Self::Linear { .. } | Self::Softmax => {
                let [(weight, shape), (bias, _)] = ["weight", "bias"].map(|name| ctx.flat_parameter(name));
                let (shape, columns) = ([shape[0], shape[1]], self.outputs());
                Maps { shape, weights: vec![weight], biases: vec![bias], table: false, columns }.apply(ctx, inputs)
            }
            Self::Mlp { .. } => linear(ctx, "fc2", relu(linear(ctx, "fc1", inputs))),
            Self::Cnn { .. } => {
                let [rows, _] = inputs.dims();
                let mut images = inputs.reshape([rows, 1, SIDE, SIDE]);
                for name in ["conv1", "conv2"] {
                    // ReLU after max pooling gives the same values for a quarter of the work.
                    images = relu(max_pool(ctx, convolve(ctx, name, images, KEEP), 2, HALVE));
                }
                let inner = relu(linear(ctx, "fc1", images.reshape([rows, FEATURES])));
                let inner = match mask {
                    Some(mask) => inner * mask,
                    None => inner,
                };
                linear(ctx, "fc2", inner)
            }
        }
    }
}
