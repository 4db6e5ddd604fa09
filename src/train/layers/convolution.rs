//! Convolutions of images.

use crate::forward_context::ForwardContext;
use crate::number::{real_len, wide};
use crate::ops::{self, Filters, Window};
use crate::parameters::{Init, ParamSpec};
use burn::tensor::Tensor;

/// `name.weight` [out, in, side, side], normal around 0 with the deviation √(2/(out·side²)): it keeps the size of gradients where half of them pass a ReLU (He et al. 2015,
/// "Delving deep into rectifiers", section 2.2, backward case; torchvision's `kaiming_normal_` with `fan_out`).
pub fn convolution_spec(name: &str, [to, from, side]: [usize; 3]) -> ParamSpec {
    let deviation = (2.0 / real_len(to * side * side)).sqrt();
    ParamSpec::new(format!("{name}.weight"), &[to, from, side, side], Init::Normal(deviation))
}

/// Floating-point operations of a convolution that gives images of `places` x `places`: 2·side²·in·out·places².
pub fn convolution_flops([to, from, side]: [usize; 3], places: usize) -> u64 {
    2 * wide(side * side * from * to) * wide(places * places)
}

/// [rows, in, height, width] to [rows, out, height', width'], with `name.weight` [out, in, side, side] and, where there is one, `name.bias` [out], in the number
/// format of the context.
pub fn convolve(ctx: &ForwardContext<'_>, name: &str, x: Tensor<4>, window: Window) -> Tensor<4> {
    followed(ctx, name, x, window, false)
}

/// [`convolve`] with a rectifier behind it.
pub fn convolve_relu(ctx: &ForwardContext<'_>, name: &str, x: Tensor<4>, window: Window) -> Tensor<4> {
    followed(ctx, name, x, window, true)
}

fn followed(ctx: &ForwardContext<'_>, name: &str, x: Tensor<4>, window: Window, rectified: bool) -> Tensor<4> {
    let (weight, shape) = ctx.flat_parameter(&format!("{name}.weight"));
    let &[to, from, height, width] = shape else { panic!("`{name}` has no windows") };
    let named = format!("{name}.bias");
    let bias = ctx.has(&named).then(|| ctx.flat_parameter(&named).0);
    ops::convolve(ctx, x, Filters { weight, shape: [to, from, height, width], bias }, window, rectified)
}

#[cfg(test)]
mod tests;
