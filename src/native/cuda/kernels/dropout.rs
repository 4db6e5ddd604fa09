//! Dropout.

use super::compile::Program;
use super::run::{Argument, aligned, queue};
use super::{count, of_format, owned, ready, room, single, tensor};
use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;

/// The number of bytes read at once; below, the threads of a block.
const PACK: usize = 16;
const THREADS: u32 = 256;

/// Returns a closure that sets a share of the values to zero and multiplies the others by 1/(1-share), in place if
/// possible. Only n and the key decide about the n-th value, through the upper 24 bits of MurmurHash3's finaliser. The
/// backward pass applies the same function to the gradient. `None` if the kernels cannot run.
pub fn drop<const D: usize>(
    x: &Tensor<D>,
    key: u32,
    share: f64,
) -> Option<impl FnOnce(Tensor<D>) -> Tensor<D> + use<D>> {
    let (values, dtype) = (x.shape().num_elements(), x.dtype());
    let (name, len) = (of_format(dtype, [c"drop_f32", c"drop_f16", c"drop_bf16"])?, count(values)?);
    if len == 0 || !ready(Program::Dropout, x) {
        return None;
    }
    let blocks = count(values.div_ceil(PACK / dtype.size()))?.div_ceil(THREADS);
    let (threshold, scale) = (single(share * 16_777_216.0), single(1.0 / (1.0 - share)));
    Some(move |x: Tensor<D>| {
        let x = into_contiguous(owned(x));
        let y = room(&x);
        queue(Program::Dropout, &x, &[&x.handle, &y.handle], move |places, card| {
            let arguments = [
                Argument::Address(places[0]),
                Argument::Address(places[1]),
                Argument::U32(len),
                Argument::U32(key),
                Argument::F32(threshold),
                Argument::F32(scale),
                Argument::U32(aligned(places, 16).into()),
            ];
            card.launch(name, [blocks, 1], [THREADS, 1], &arguments)
        });
        tensor(y)
    })
}
