//! Functions of each value, and their backward.

use super::super::operation::{exactly, register};
use super::compile::Program;
use super::run::{Argument, aligned, queue};
use super::{count, fresh, of_format, primitive, ready, room, same_device, tensor};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use std::ffi::CStr;

/// Values that are read at once, in bytes, and threads of a block.
const PACK: usize = 16;
const THREADS: u32 = 256;

/// A function of each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// x·Φ(x), with the error function.
    Gelu,
    /// x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
    GeluTanh,
}

impl Curve {
    fn kernel(self, dtype: DType) -> Option<&'static CStr> {
        match self {
            Self::Gelu => of_format(dtype, [c"gelu_f32", c"gelu_f16", c"gelu_bf16"]),
            Self::GeluTanh => of_format(dtype, [c"gelu_tanh_f32", c"gelu_tanh_f16", c"gelu_tanh_bf16"]),
        }
    }
}

/// The values of a function, in the format of x: arithmetic is in float32. None where they cannot be computed here.
pub fn curve(of: Curve, x: &Tensor<2>) -> Option<Tensor<2>> {
    computed(of, x, None)
}

/// `dy`, in the format of x, times the slopes of the function at x. None where they cannot be computed here.
pub fn curve_back(of: Curve, x: &Tensor<2>, dy: Tensor<2>) -> Option<Tensor<2>> {
    if dy.dims() != x.dims() || dy.dtype() != x.dtype() || !same_device(&dy, x) {
        return None;
    }
    computed(of, x, Some(dy))
}

fn computed(of: Curve, x: &Tensor<2>, dy: Option<Tensor<2>>) -> Option<Tensor<2>> {
    let (shape, dtype) = (x.shape(), x.dtype());
    let (name, len) = (of.kernel(dtype)?, count(shape.num_elements())?);
    if len == 0 || !ready(Program::Activation, x) {
        return None;
    }
    let blocks = count(shape.num_elements().div_ceil(PACK / dtype.size()))?.div_ceil(THREADS);
    let mut given = vec![primitive(x)?];
    if let Some(dy) = dy {
        // Nobody else may have it if it is to be overwritten.
        given.push(primitive(&dy)?);
    }
    let work = move |inputs: Vec<_>| {
        let inputs: Vec<_> = inputs.into_iter().map(into_contiguous).collect();
        let y = match inputs.as_slice() {
            [_, dy] => room(dy),
            [x, ..] => fresh(x, x.meta.shape().clone(), dtype),
            [] => return inputs,
        };
        let buffers: Vec<_> = inputs.iter().chain([&y]).map(|tensor| &tensor.handle).collect();
        queue(Program::Activation, &y, &buffers, move |places, card| {
            let [x, .., y] = places else { return Ok(()) };
            let dy = if places.len() > 2 { places[1] } else { 0 };
            let flag = aligned(places, 16).into();
            let arguments = [*x, dy, *y].map(Argument::Address);
            let arguments: Vec<_> = arguments.into_iter().chain([Argument::U32(len), Argument::U32(flag)]).collect();
            card.launch(name, [blocks, 1], [THREADS, 1], &arguments)
        });
        vec![y]
    };
    let [y] = exactly(register("curve", given, vec![(shape, dtype)], work));
    Some(tensor(y))
}

#[cfg(test)]
mod tests;
