//! NHWC images [count, channels, height, width]: the backward of a bias with ReLU, and max pooling.

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
/// The maximum number of partial sums over pixels: eight blocks for each multiprocessor of an H200.
const STRETCHES: u32 = 1056;
/// The minimum number of pixels per partial sum.
const LEAST: u32 = 32;
/// The number of bytes read at once.
const PACK: usize = 16;

/// Returns the gradients of the images and of their bias `[channels]` from that of the output, which it may overwrite.
/// `y` is the output if ReLU followed. `None` if the kernels cannot run, or `y` and `dy` differ in shape or format.
pub fn add_bias_back_nhwc(dy: Tensor<4>, y: Option<&Tensor<4>>) -> Option<(Tensor<4>, Tensor<1>)> {
    let (dims, dtype) = (dy.dims(), dy.dtype());
    let alike = |y: &Tensor<4>| y.dims() == dims && y.dtype() == dtype && same_device(y, &dy);
    let name = of_format(dtype, [c"bias_back_f32", c"bias_back_f16", c"bias_back_bf16"])?;
    let counted = pixels(dims).filter(|_| y.is_none_or(alike) && ready(Program::Nhwc, &dy))?;
    let lying = |images: &Tensor<4>| Storage::Nhwc.lying(images.clone());
    let (given, y) = (primitive(&lying(&dy))?, beside(y.map(lying).as_ref())?);
    // Without ReLU it is the output's gradient.
    let passed = y.is_none().then(|| dy.clone());
    drop(dy);
    let (dbias, dx) = bias_back(name, counted, given, y);
    Some((dx.map(|dx| Storage::Nhwc.named(tensor(dx))).or(passed)?, tensor(dbias)))
}

/// Returns the gradient of the bias, and that of the images if there is an output.
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

/// The configuration of square pooling windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The side of a window in pixels, at most 16.
    pub side: usize,
    /// The stride in pixels.
    pub stride: usize,
    /// The padding on each side of an image, at most half a window. Padded pixels are never the maximum.
    pub padding: usize,
}

/// The tensors that [`pool_max_nhwc`] keeps for its backward pass.
#[derive(Debug)]
pub struct SavedMaxima {
    pool: Pool,
    dtype: DType,
    /// The index of each maximum in its window, one byte each.
    numbers: Cube,
}

/// Returns the maximum of each window that fits with its padding, in NHWC. The first of equal values is chosen. `None`
/// if the kernels cannot run.
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
    /// Returns the gradient of the images, in NHWC, from that of the maxima. `None` if it does not fit.
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

/// The kernels' parameters of a pooling.
#[derive(Clone, Copy, Debug)]
struct Pool {
    input: [usize; 4],
    output: [usize; 4],
    windows: Windows,
    /// The number of values read at once if the addresses are aligned.
    pack: u32,
}

impl Pool {
    /// Returns `None` if the kernels cannot run.
    fn of(x: &Tensor<4>, windows: Windows) -> Option<Self> {
        let input = x.dims();
        let [images, channels, height, width] = input;
        let Windows { side, stride, padding } = windows;
        let places = |length: usize| Some((length + 2 * padding).checked_sub(side)? / stride + 1);
        // Indices in a window are bytes.
        let fits = (1..=16).contains(&side) && stride > 0 && 2 * padding <= side && ready(Program::Nhwc, x);
        let places = |length| if fits { places(length) } else { None };
        let output = [images, channels, places(height)?, places(width)?];
        // Threads count slightly beyond the last value.
        let all =
            |dims: [usize; 4]| dims.iter().try_fold(1_usize, |all, length| all.checked_mul(*length)).and_then(count);
        let counted = [all(input)?, all(output)?].iter().all(|all| (1..u32::MAX / 2).contains(all));
        counted.then(|| Self { input, output, windows, pack: lanes(x.dtype()) })
    }

    /// Launches a kernel with one thread per pixel of images of this shape and pack of channels.
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
        // There are at most as many as values.
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

/// Returns the pixels of all images, and the channels, in the kernels' type. `None` if the images are empty or too
/// large.
fn pixels([images, channels, height, width]: [usize; 4]) -> Option<[u32; 2]> {
    let pixels = count(images.checked_mul(height)?.checked_mul(width)?)?;
    let channels = count(channels)?;
    // Threads count slightly beyond the last one.
    let fits = |length: u32| length > 0 && length < u32::MAX / 2;
    (fits(pixels) && fits(channels)).then_some([pixels, channels])
}

fn lanes(dtype: DType) -> u32 {
    u32::try_from(PACK / dtype.size().max(1)).unwrap_or(1)
}
