//! Dropout.

use super::super::operation::{exactly, register};
use super::compile::Program;
use super::run::{Argument, aligned, queue};
use super::{count, of_format, primitive, ready, room, single, taken, tensor};
use burn::tensor::Tensor;

/// Values that are read at once, in bytes, and threads of a block.
const PACK: usize = 16;
const THREADS: u32 = 256;

/// Sets a share of the values to zero and multiplies the others by 1/(1-share). The n-th is decided by n and the key alone: through MurmurHash3's finaliser,
/// of which the upper 24 bits are compared. Its backward is the same function of the gradient.
#[expect(clippy::result_large_err, reason = "what comes back is what was given")]
pub fn drop<const D: usize>(x: Tensor<D>, key: u32, share: f64) -> Result<Tensor<D>, Tensor<D>> {
    if share <= 0.0 {
        return Ok(x);
    }
    let (shape, dtype) = (x.shape(), x.dtype());
    let names = [c"drop_f32", c"drop_f16", c"drop_bf16"];
    let (Some(name), Some(len)) = (of_format(dtype, names), count(shape.num_elements())) else { return Err(x) };
    if len == 0 || !ready(Program::Dropout, &x) {
        return Err(x);
    }
    let Some(input) = primitive(&x) else { return Err(x) };
    // Nobody else may have it if it is to be overwritten.
    std::mem::drop(x);
    let (threshold, scale) = (single(share * 16_777_216.0), single(1.0 / (1.0 - share)));
    let work = move |inputs| {
        let [x] = taken(inputs);
        let y = room(&x);
        let Some(blocks) = count(x.meta.shape().num_elements().div_ceil(PACK / dtype.size())) else { return vec![y] };
        let blocks = blocks.div_ceil(THREADS);
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
        vec![y]
    };
    let [y] = exactly(register("drop", vec![input], vec![(shape, dtype)], work));
    Ok(tensor(y))
}
