//! Standardisation of images for networks.

use super::compile::{Program, image};
use super::run::{Argument, aligned, pair, queue};
use super::{card_of, count, fresh, tensor, whole};
use burn::tensor::{DType, Int, Tensor};
use burn_cubecl::kernel::into_contiguous;

const THREADS: u32 = 256;
/// Values that a thread writes.
const PACK: u32 = 4;
/// The maximum number of channels.
const CHANNELS: usize = 4;

/// Converts bytes of images [count, channels, height, width] to float32: (byte / 255 − mean) / deviation, with a mean
/// and a deviation per channel. Each of the three operations is rounded. `None` if the kernel cannot run.
pub fn standardise<const C: usize>(bytes: &Tensor<4, Int>, means: [f32; C], deviations: [f32; C]) -> Option<Tensor<4>> {
    let shape @ [_, channels, height, width] = bytes.dims();
    let len = shape.iter().try_fold(1_usize, |len, side| len.checked_mul(*side)).and_then(count)?;
    let plane = count(height * width)?;
    // Threads count slightly beyond the last value.
    let fits = bytes.dtype() == DType::U8 && channels == C && C <= CHANNELS && (1..u32::MAX / 2).contains(&len);
    card_of(&bytes.device()).and_then(|card| image(Program::Standardise, card)).filter(|_| fits)?;
    let x = into_contiguous(whole(bytes)?);
    let y = fresh(&x, shape, DType::F32);
    let words = [means, deviations].map(|values| {
        let bits = |n: usize| values.get(n).copied().unwrap_or(1.0).to_bits();
        [pair(bits(0), bits(1)), pair(bits(2), bits(3))]
    });
    queue(Program::Standardise, &x, &[&x.handle, &y.handle], move |places, card| {
        let packed = plane.is_multiple_of(PACK) && aligned(places, 16);
        let threads = if packed { len / PACK } else { len };
        let [x, y] = [0, 1].map(|number| Argument::Address(places[number]));
        let [len, plane, channels, packed] = [len, plane, count(C).unwrap_or(0), packed.into()].map(Argument::U32);
        let channels_of = words.concat();
        let arguments = [x, y, len, plane, channels, packed, Argument::Words(&channels_of)];
        card.launch(c"standardise", [threads.div_ceil(THREADS), 1], [THREADS, 1], &arguments)
    });
    Some(tensor(y))
}
