//! Convolutions of images.

use super::norm::{batch_norm, scale_and_shift};
use crate::forward_context::ForwardContext;
use crate::number::{real_len, wide};
use crate::ops::{self, Activation, After, Filters, Window};
use crate::parameters::{Init, ParamSpec};
use burn::tensor::Tensor;

/// `name.weight` [out, in, side, side], normal with standard deviation √(2/(out·side²)). This preserves the variance of
/// gradients through ReLUs (He et al. 2015, "Delving deep into rectifiers", section 2.2, backward case; torchvision's
/// `kaiming_normal_` with `fan_out`).
pub fn convolution_spec(name: &str, [to, from, side]: [usize; 3]) -> ParamSpec {
    let deviation = (2.0 / real_len(to * side * side)).sqrt();
    ParamSpec::new(format!("{name}.weight"), &[to, from, side, side], Init::Normal(deviation))
}

/// Floating-point operations of a convolution with an output of `places` x `places` pixels: 2·side²·in·out·places².
pub fn convolution_flops([to, from, side]: [usize; 3], places: usize) -> u64 {
    2 * wide(side * side * from * to) * wide(places * places)
}

/// Convolves [rows, in, height, width] to [rows, out, height', width'], in the number format of the context. The
/// parameters are `name.weight` [out, in, side, side] and, if it exists, `name.bias` [out].
pub fn convolve(ctx: &ForwardContext<'_>, name: &str, x: Tensor<4>, window: Window) -> Tensor<4> {
    followed(ctx, name, x, window, false)
}

/// [`convolve`] followed by ReLU.
pub fn convolve_relu(ctx: &ForwardContext<'_>, name: &str, x: Tensor<4>, window: Window) -> Tensor<4> {
    followed(ctx, name, x, window, true)
}

fn followed(ctx: &ForwardContext<'_>, name: &str, x: Tensor<4>, window: Window, rectified: bool) -> Tensor<4> {
    let (weight, shape) = ctx.flat_parameter(&format!("{name}.weight"));
    let &[to, from, height, width] = shape else { panic!("`{name}` has no windows") };
    let named = format!("{name}.bias");
    let bias = ctx.has(&named).then(|| ctx.flat_parameter(&named).0);
    ops::convolve(ctx, x, Filters { name, weight, shape: [to, from, height, width], bias }, window, rectified)
}

/// A convolution without bias, followed by [`batch_norm`]. If the context folds constants, the normalisation becomes
/// part of weight and bias, unless a leaky ReLU, a residual after the activation, or a residual without activation
/// follows.
pub fn convolve_normed(
    ctx: &mut ForwardContext<'_>,
    [name, norm]: [&str; 2],
    x: Tensor<4>,
    window: Window,
    after: After,
) -> Tensor<4> {
    let After { residual, residual_last, activation } = &after;
    let rectified = *activation == Activation::Relu;
    let simple = rectified || *activation == Activation::None && residual.is_none();
    if !ctx.folds() || !simple || *residual_last {
        let y = convolve(ctx, name, x, window);
        return batch_norm(ctx, norm, y, after);
    }
    let (weight, shape) = ctx.flat_parameter(&format!("{name}.weight"));
    let &[to, from, height, width] = shape else { panic!("`{name}` has no windows") };
    let named = format!("{name} {norm}");
    let [weight, bias] = ctx.constant_of(&named, || {
        let [scale, shift] = scale_and_shift(ctx, norm);
        [(weight.reshape([to, from * height * width]) * scale.unsqueeze_dim::<2>(1)).flatten(0, 1), shift]
    });
    let filters = Filters { name: &named, weight, shape: [to, from, height, width], bias: Some(bias) };
    match after.residual {
        Some(residual) => ops::convolve_residual_relu(ctx, x, filters, window, residual),
        None => ops::convolve(ctx, x, filters, window, rectified),
    }
}

#[cfg(test)]
mod tests;
