//! Images [count, channels, height, width] that lie NHWC: the backward of a bias with the rectifier behind it, and the largest values of
//! windows that do not overlap.

use super::compile::Program;
use super::run::{Argument, Launcher, aligned, pair, queue, queue_some};
use super::{beside, count, fresh, of_format, own, primitive, ready, same_device, tensor};
use crate::cuda::dnn::Storage;
use crate::cuda::{Cube, Fault};
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

/// The largest value of each window of `side` x `side` pixels, `stride` pixels apart, of those that fit in whole, in NHWC. None where
/// windows overlap or the kernels cannot be run.
pub fn pool_max_nhwc(x: &Tensor<4>, side: usize, stride: usize) -> Option<Tensor<4>> {
    let pool = Pool::of(x, side, stride)?;
    let name = of_format(x.dtype(), [c"pool_f32", c"pool_f16", c"pool_bf16"])?;
    let x = into_contiguous(primitive(&Storage::Nhwc.lying(x.clone()))?);
    let y = fresh(&x, Storage::Nhwc.shape(pool.output), x.dtype);
    queue(Program::Nhwc, &x, &[&x.handle, &y.handle], move |places, card| {
        pool.launch(card, name, places, [pool.output[2], pool.output[3]])
    });
    Some(Storage::Nhwc.named(tensor(y)))
}

/// The gradient of the images from that of [`pool_max_nhwc`], in NHWC. None where that would give none. Of equal values in a window the first
/// has the gradient.
pub fn pool_max_nhwc_back(x: &Tensor<4>, dy: &Tensor<4>, side: usize, stride: usize) -> Option<Tensor<4>> {
    let (dims, dtype) = (x.dims(), x.dtype());
    let alike = |pool: &Pool| dy.dims() == pool.output && dy.dtype() == dtype && same_device(dy, x);
    let pool = Pool::of(x, side, stride).filter(alike)?;
    let name = of_format(dtype, [c"pool_back_f32", c"pool_back_f16", c"pool_back_bf16"])?;
    let [x, dy] = [x, dy].map(|images| primitive(&Storage::Nhwc.lying(images.clone())));
    let [x, dy] = [x?, dy?].map(into_contiguous);
    let dx = fresh(&x, Storage::Nhwc.shape(dims), dtype);
    queue(Program::Nhwc, &x, &[&x.handle, &dy.handle, &dx.handle], move |places, card| {
        pool.launch(card, name, places, [dims[2].div_ceil(stride), dims[3].div_ceil(stride)])
    });
    Some(Storage::Nhwc.named(tensor(dx)))
}

/// What the kernels are told of windows.
#[derive(Clone, Copy)]
struct Pool {
    images: u32,
    channels: u32,
    image: [u32; 2],
    side: u32,
    stride: u32,
    /// Values that are read at once where the addresses allow it.
    pack: u32,
    output: [usize; 4],
}

impl Pool {
    /// None where windows overlap or the kernels cannot be run.
    fn of(x: &Tensor<4>, side: usize, stride: usize) -> Option<Self> {
        let dims = x.dims();
        let [images, channels, height, width] = dims;
        // Threads count a little further than there are values.
        let values = dims.iter().try_fold(1_usize, |values, length| values.checked_mul(*length)).and_then(count)?;
        let places = |length: usize| Some(length.checked_sub(side)? / stride + 1);
        let fits = (1..u32::MAX / 2).contains(&values) && side > 0 && stride >= side && ready(Program::Nhwc, x);
        let output = fits.then_some([images, channels, places(height)?, places(width)?])?;
        Some(Self {
            images: count(images)?,
            channels: count(channels)?,
            image: [count(height)?, count(width)?],
            side: count(side)?,
            stride: count(stride)?,
            pack: lanes(x.dtype()),
            output,
        })
    }

    /// With a thread for each of so many places of each image, downwards and along, and each pack of channels.
    fn launch(
        self,
        card: &Launcher,
        name: &'static CStr,
        places: &[u64],
        [high, wide]: [usize; 2],
    ) -> Result<(), Fault> {
        let packed = aligned(places, 16) && self.channels.is_multiple_of(self.pack);
        let packs = if packed { self.channels / self.pack } else { self.channels };
        let [high, wide] = [high, wide].map(|length| count(length).unwrap_or(0));
        // No more than there are values.
        let blocks = (self.images * packs * high * wide).div_ceil(THREADS);
        let [height, width] = self.image;
        let windows = [pair(self.channels, height), pair(width, self.side), pair(self.stride, packed.into())];
        let mut arguments: Vec<_> = places.iter().map(|place| Argument::Address(*place)).collect();
        arguments.extend([Argument::Words(&windows), Argument::U32(self.images)]);
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
