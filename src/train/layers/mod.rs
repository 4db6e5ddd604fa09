//! Layers: functions of a forward context, a name and a tensor.
//!
//! Parameters are found by the name of the layer and PyTorch's name of the part (`.weight`, `.bias`). Sums over many values are computed
//! in float32; products and convolutions use the number format of the context.

mod activation;
mod attention;
mod convolution;
mod dropout;
mod embedding;
mod frozen_norm;
mod linear;
mod loss;
mod norm;
mod pool;
mod recurrent;
mod residual;
mod upsample;

pub use crate::ops::{
    After, Product, Roi, Window, concat_channels, forked, max_pool, mean_pixel, product, roi_align, standardise,
    stored_nhwc,
};
pub use activation::{gelu, gelu_tanh};
pub use attention::{Attention, attend, attention_flops};
pub use convolution::{convolution_flops, convolution_spec, convolve, convolve_normed, convolve_relu};
pub use dropout::dropout;
pub use embedding::{add_positions, embed, selected_rows, unembed};
pub use frozen_norm::{calibrate_norm, frozen_norm, frozen_statistics};
pub use linear::{Maps, linear, zero_bias_specs};
pub use loss::{cross_entropy, loss_and_correct};
pub use norm::{batch_norm, layer_norm, norm_specs, norm_statistics};
pub use pool::mean_to;
pub use recurrent::{Cell, recurrent_flops, recurrent_specs, recurrent_stack};
pub use residual::{Residual, Stream};
pub use upsample::{upsample_add, upsample_nearest};
