//! Images [count, channels, height, width] that lie NHWC: the backward of a bias with the rectifier behind it, and the largest values of
//! windows.

use super::compile::Program;
use super::run::{Argument, Launcher, aligned, pair, queue, queue_some};
use super::{beside, count, fresh, of_format, own, primitive, ready, same_device, tensor};
use crate::cuda::dnn::Storage;
use crate::cuda::{Cube, Fault, card_of};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use std::ffi::CStr;

/// Threads of a block, as in the kernels.
const THREADS: u32 = 256;
/// Stretches of pixels at most that sums are first taken over: eight blocks for each multiprocessor of an H200.
const STRETCHES: u32 = 1056;
/// Pixels of a stretch at least.
const LEAST: u32 = 32;
/// Bytes that are read at once.
const PACK: usize = 16;

/// The gradients of what a bias `[channels]` was added to and of the bias, from that of the answer, whose memory the first may take. `y` is
/// the answer where it was rectified. None where the kernels cannot be run, or where y is another kind of tensor than dy.
pub fn add_bias_back_nhwc(dy: Tensor<4>, y: Option<&Tensor<4>>) -> Option<(Tensor<4>, Tensor<1>)> {
    let (dims, dtype) = (dy.dims(), dy.dtype());
    let alike = |y: &Tensor<4>| y.dims() == dims && y.dtype() == dtype && same_device(y, &dy);
    let name = of_format(dtype, [c"bias_back_f32", c"bias_back_f16", c"bias_back_bf16"])?;
    let counted = pixels(dims).filter(|_| y.is_none_or(alike) && ready(Program::Nhwc, &dy))?;
    let lying = |images: &Tensor<4>| Storage::Nhwc.lying(images.clone());
    let (given, y) = (primitive(&lying(&dy))?, beside(y.map(lying).as_ref())?);
    // Without a rectifier it is that of the answer.
    let passed = y.is_none().then(|| dy.clone());
    drop(dy);
    let (dbias, dx) = bias_back(name, counted, given, y);
    Some((dx.map(|dx| Storage::Nhwc.named(tensor(dx))).or(passed)?, tensor(dbias)))
}

/// The gradient of the bias, and where there is an answer that of what it was added to.
fn bias_back(name: &'static CStr, [pixels, channels]: [u32; 2], dy: Cube, y: Option<Cube>) -> (Cube, Option<Cube>) {
    let (dy, y) = (&into_contiguous(dy), y.map(into_contiguous));
    let dx = y.as_ref().map(|_| if own(dy) { dy.clone() } else { fresh(dy, dy.meta.shape().clone(), dy.dtype) });
    let tall = pixels.div_ceil(STRETCHES).max(LEAST);
    let stretches = pixels.div_ceil(tall);
    let wide = |len: u32| usize::try_from(len).unwrap_or(usize::MAX);
    let parts = fresh(dy, [wide(stretches), wide(channels)], DType::F32);
    let dbias = fresh(dy, [wide(channels)], DType::F32);
    let pack = lanes(dy.dtype);
    let tensors = [Some(dy), y.as_ref(), dx.as_ref(), Some(&parts), Some(&dbias)];
    queue_some(Program::Nhwc, dy, &tensors, move |places, card| {
        let [addresses @ .., dbias] = places.as_slice() else { return Ok(()) };
        let packed = aligned(addresses, 16) && channels.is_multiple_of(pack);
        let packs = if packed { channels / pack } else { channels };
        let across = packs.min(THREADS);
        let numbers = [pixels, channels, tall, across, packed.into()].map(Argument::U32);
        let arguments: Vec<_> = addresses.iter().map(|place| Argument::Address(*place)).chain(numbers).collect();
        card.launch(name, [packs.div_ceil(across), stretches], [THREADS, 1], &arguments)?;
        let addresses = [places[3], *dbias].map(Argument::Address);
        let arguments: Vec<_> = addresses.into_iter().chain([stretches, channels].map(Argument::U32)).collect();
        card.launch(c"bias_total", [channels.div_ceil(THREADS / 32), 1], [THREADS, 1], &arguments)
    });
    (dbias, dx)
}

/// Square windows of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Pixels along a side, 16 at most.
    pub side: usize,
    /// Pixels from one window to the next.
    pub stride: usize,
    /// Pixels added on each side of an image, which never win: half a window at most.
    pub padding: usize,
}

/// Kept by [`pool_max_nhwc`] for its backward.
#[derive(Debug)]
pub struct SavedMaxima {
    pool: Pool,
    dtype: DType,
    /// The number in its window of each largest value, a byte each.
    numbers: Cube,
}

/// The largest value of each window that fits in with its padding, in NHWC. Of equal values the first one counts. None where the kernels cannot
/// be run.
pub fn pool_max_nhwc(x: &Tensor<4>, windows: Windows) -> Option<(Tensor<4>, SavedMaxima)> {
    let pool = Pool::of(x, windows)?;
    let name = of_format(x.dtype(), [c"pool_f32", c"pool_f16", c"pool_bf16"])?;
    let x = into_contiguous(primitive(&Storage::Nhwc.lying(x.clone()))?);
    let y = fresh(&x, Storage::Nhwc.shape(pool.output), x.dtype);
    let numbers = fresh(&x, Storage::Nhwc.shape(pool.output), DType::U8);
    let dtype = x.dtype;
    queue(Program::Nhwc, &x, &[&x.handle, &y.handle, &numbers.handle], move |places, card| {
        pool.launch(card, name, places, pool.output)
    });
    Some((Storage::Nhwc.named(tensor(y)), SavedMaxima { pool, dtype, numbers }))
}

impl SavedMaxima {
    /// The gradient of the images, in NHWC, from that of the largest values. None where it does not fit.
    pub fn backward(self, dy: &Tensor<4>) -> Option<Tensor<4>> {
        let Self { pool, dtype, numbers } = self;
        let name = of_format(dtype, [c"pool_back_f32", c"pool_back_f16", c"pool_back_bf16"])?;
        let fits =
            dy.dims() == pool.output && dy.dtype() == dtype && card_of(&dy.device()) == Some(numbers.device.index);
        let dy = into_contiguous(primitive(&Storage::Nhwc.lying(dy.clone())).filter(|_| fits)?);
        let dx = fresh(&dy, Storage::Nhwc.shape(pool.input), dtype);
        queue(Program::Nhwc, &dy, &[&numbers.handle, &dy.handle, &dx.handle], move |places, card| {
            pool.launch(card, name, places, pool.input)
        });
        Some(Storage::Nhwc.named(tensor(dx)))
    }
}

/// What the kernels are told of windows.
#[derive(Clone, Copy, Debug)]
struct Pool {
    input: [usize; 4],
    output: [usize; 4],
    windows: Windows,
    /// Values that are read at once where the addresses allow it.
    pack: u32,
}

impl Pool {
    /// None where the kernels cannot be run.
    fn of(x: &Tensor<4>, windows: Windows) -> Option<Self> {
        let input = x.dims();
        let [images, channels, height, width] = input;
        let Windows { side, stride, padding } = windows;
        let places = |length: usize| Some((length + 2 * padding).checked_sub(side)? / stride + 1);
        // Numbers of pixels in a window are bytes.
        let fits = (1..=16).contains(&side) && stride > 0 && 2 * padding <= side && ready(Program::Nhwc, x);
        let places = |length| if fits { places(length) } else { None };
        let output = [images, channels, places(height)?, places(width)?];
        // Threads count a little further than there are values.
        let all =
            |dims: [usize; 4]| dims.iter().try_fold(1_usize, |all, length| all.checked_mul(*length)).and_then(count);
        let counted = [all(input)?, all(output)?].iter().all(|all| (1..u32::MAX / 2).contains(all));
        counted.then(|| Self { input, output, windows, pack: lanes(x.dtype()) })
    }

    /// With a thread for each pixel of images of this shape, and each pack of channels.
    fn launch(
        self,
        card: &Launcher,
        name: &'static CStr,
        places: &[u64],
        [images, channels, high, wide]: [usize; 4],
    ) -> Result<(), Fault> {
        let number = |length: usize| count(length).unwrap_or(0);
        let packed = aligned(places, 16) && number(channels).is_multiple_of(self.pack);
        let pack = if packed { self.pack } else { 1 };
        // No more than there are values.
        let blocks = (number(images * channels * high * wide) / pack).div_ceil(THREADS);
        let ([_, _, height, width], [_, _, down, along]) = (self.input, self.output);
        let Windows { side, stride, padding } = self.windows;
        let numbers = [channels, height, width, side, stride, padding, down, along, images].map(number);
        let [channels, height, width, side, stride, padding, down, along, images] = numbers;
        let windows = [
            pair(channels, height),
            pair(width, side),
            pair(stride, padding),
            pair(down, along),
            pair(images, packed.into()),
        ];
        let mut arguments: Vec<_> = places.iter().map(|place| Argument::Address(*place)).collect();
        arguments.push(Argument::Words(&windows));
        card.launch(name, [blocks, 1], [THREADS, 1], &arguments)
    }
}

/// Pixels of all images, and channels, as the kernels count them. None where there is nothing or too much of them.
fn pixels([images, channels, height, width]: [usize; 4]) -> Option<[u32; 2]> {
    let pixels = count(images.checked_mul(height)?.checked_mul(width)?)?;
    let channels = count(channels)?;
    // Threads count a little further than there are.
    let fits = |length: u32| length > 0 && length < u32::MAX / 2;
    (fits(pixels) && fits(channels)).then_some([pixels, channels])
}

fn lanes(dtype: DType) -> u32 {
    u32::try_from(PACK / dtype.size().max(1)).unwrap_or(1)
}
