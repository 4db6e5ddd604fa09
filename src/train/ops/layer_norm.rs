//! Layer normalisation.

use super::computed;
use crate::forward_context::ForwardContext;
use crate::native::kernels::{self, Normed};
use burn::tensor::{FloatDType, Tensor};

/// Normalises each row of x [rows, features] in float32 (Ba, Kiros, Hinton 2016).
pub fn layer_norm(ctx: &ForwardContext<'_>, x: Tensor<2>, [gain, bias]: [Tensor<1>; 2], epsilon: f64) -> Tensor<2> {
    let [scale, shift] = [&gain, &bias].map(|vector| ctx.off_tape(vector.clone()));
    let given = ctx.off_tape(x.clone());
    let Some(normed) = kernels::layer_norm(given.clone(), &scale, &shift, epsilon, FloatDType::F32) else {
        return reference(x, [gain, bias], epsilon);
    };
    let Normed { y, mean, inverse } = normed;
    let on_tape = || [x.into(), gain.into(), bias.into()];
    ctx.recorded(on_tape, y, move |gradient, _| {
        let (x, gain, bias) = computed(kernels::layer_norm_back(given, gradient, &scale, &mean, &inverse));
        [Some(x.into()), Some(gain.into()), Some(bias.into())]
    })
}

fn reference(x: Tensor<2>, vectors: [Tensor<1>; 2], epsilon: f64) -> Tensor<2> {
    let [gain, bias] = vectors.map(Tensor::unsqueeze);
    let centred = x.clone() - x.mean_dim(1);
    let variance = (centred.clone() * centred.clone()).mean_dim(1);
    centred * (variance + epsilon).sqrt().recip() * gain + bias
}
