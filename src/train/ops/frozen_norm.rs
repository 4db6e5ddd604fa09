//! Batch normalisation of images with fixed statistics, gain and bias.

use super::batch_norm::{After, BATCH_EPSILON};
use crate::native::kernels::{self, BatchNorm, FrozenNorm};
use crate::precision::exact;
use burn::tensor::Tensor;

/// (x − mean)·gain/√(variance + 10⁻⁵) + bias of images, followed by `after`, off the tape. `channels` are gain, bias, mean and variance.
pub fn frozen_norm(channels: &[Tensor<1>; 4], x: Tensor<4>, after: After) -> Tensor<4> {
    let (residual, residual_last, leak) = (after.residual.as_ref(), after.residual_last, after.activation.leak());
    let norm = BatchNorm { channels: channels.each_ref(), epsilon: BATCH_EPSILON, residual, residual_last, leak };
    kernels::batch_norm_answer(&x, &norm).unwrap_or_else(|| reference(channels, x, after))
}

fn reference(channels: &[Tensor<1>; 4], x: Tensor<4>, after: After) -> Tensor<4> {
    let [gain, bias, mean, variance] = channels;
    let format = x.dtype();
    let scale = scale(gain, variance);
    let shift = bias.clone() - mean.clone() * scale.clone();
    after.apply(exact(x) * per_channel(scale) + per_channel(shift)).cast(format)
}

fn scale(gain: &Tensor<1>, variance: &Tensor<1>) -> Tensor<1> {
    gain.clone() * (variance.clone() + BATCH_EPSILON).sqrt().recip()
}

fn per_channel(values: Tensor<1>) -> Tensor<4> {
    let [channels] = values.dims();
    values.reshape([1, channels, 1, 1])
}

/// The saved state for the backward pass.
pub struct FrozenSaved {
    /// The output, and the factor of negative values; `None` without an activation.
    pub activation: Option<(Tensor<4>, f64)>,
    /// The gain of each channel.
    pub gain: Tensor<1>,
    /// The variance of each channel.
    pub variance: Tensor<1>,
}

impl FrozenSaved {
    /// The gradients of the input and, if `residual` is set, of the residual.
    pub fn backward(self, gradient: Tensor<4>, residual: bool) -> (Tensor<4>, Option<Tensor<4>>) {
        let Self { activation, gain, variance } = self;
        let bent = activation.as_ref().map(|(y, leak)| (y, *leak));
        let norm = FrozenNorm { channels: [&gain, &variance], epsilon: BATCH_EPSILON, activation: bent, residual };
        if let Some(kernel) = kernels::frozen_norm_back(&gradient, &norm) {
            return kernel(gradient);
        }
        let format = gradient.dtype();
        let slope = match activation {
            None => exact(gradient),
            Some((y, leak)) => {
                let below = exact(y).lower_equal_elem(0.0).float();
                exact(gradient) * (below * (leak - 1.0) + 1.0)
            }
        };
        let x = (slope.clone() * per_channel(scale(&gain, &variance))).cast(format);
        (x, residual.then(|| slope.cast(format)))
    }
}
