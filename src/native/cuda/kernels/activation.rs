//! Pointwise activation functions, and their backward.

use super::compile::Program;
use super::run::{Argument, aligned, queue_some};
use super::{count, fresh, of_format, owned, primitive, ready, room, same_device, tensor};
use crate::cuda::Cube;
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use std::ffi::CStr;

/// The number of bytes read at once; below, the threads of a block.
const PACK: usize = 16;
const THREADS: u32 = 256;

/// An activation function.
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

/// Applies a function to each value, in the format of x; arithmetic is in float32. `None` if the kernels cannot run.
pub fn curve(of: Curve, x: &Tensor<2>) -> Option<Tensor<2>> {
    let kernel = Kernel::of(of, x)?;
    let x = into_contiguous(primitive(x)?);
    let y = fresh(&x, x.meta.shape().clone(), x.dtype);
    Some(kernel.run(&x, None, y))
}

/// Returns a closure that multiplies `dy`, in the format of x, by the derivative of the function at x, in place if
/// possible. `None` if the kernels cannot run.
pub fn curve_back(of: Curve, x: &Tensor<2>, dy: &Tensor<2>) -> Option<impl FnOnce(Tensor<2>) -> Tensor<2> + use<>> {
    let fits = dy.dims() == x.dims() && dy.dtype() == x.dtype() && same_device(dy, x);
    let (kernel, x) = (Kernel::of(of, x).filter(|_| fits)?, primitive(x)?);
    Some(move |dy: Tensor<2>| {
        let [x, dy] = [x, owned(dy)].map(into_contiguous);
        let made = room(&dy);
        kernel.run(&x, Some(&dy), made)
    })
}

/// A kernel over this many values.
struct Kernel {
    name: &'static CStr,
    len: u32,
    blocks: u32,
}

impl Kernel {
    fn of(of: Curve, x: &Tensor<2>) -> Option<Self> {
        let (values, dtype) = (x.shape().num_elements(), x.dtype());
        let (name, len) = (of.kernel(dtype)?, count(values)?);
        let blocks = count(values.div_ceil(PACK / dtype.size()))?.div_ceil(THREADS);
        (len > 0 && ready(Program::Activation, x)).then_some(Self { name, len, blocks })
    }

    fn run(self, x: &Cube, dy: Option<&Cube>, made: Cube) -> Tensor<2> {
        queue_some(Program::Activation, &made, &[Some(x), dy, Some(&made)], move |places, card| {
            // A missing tensor has the address zero, which is aligned.
            let numbers = [self.len, aligned(&places, 16).into()].map(Argument::U32);
            let arguments: Vec<_> = places.into_iter().map(Argument::Address).chain(numbers).collect();
            card.launch(self.name, [self.blocks, 1], [THREADS, 1], &arguments)
        });
        tensor(made)
    }
}
