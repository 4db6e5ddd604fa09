//! Batch normalisation of images, with the activation and residual that follow in residual networks, and its backward:
//! one operation each.

use super::compile::Program;
use super::run::{Argument, Launcher, pair, queue_some};
use super::{beside, count, fresh, own, primitive, ready, same_device, single, tensor};
use crate::cuda::dnn::Storage;
use crate::cuda::layout::packed;
use crate::cuda::plan::Format;
use crate::cuda::{Cube, Fault, format};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use std::ffi::CStr;

/// As in the kernels: the maximum threads of a block, those for packs with values of several channels, and the packs
/// that a thread reads at a time.
const THREADS: u32 = 512;
const SPLIT_THREADS: u32 = 256;
const AHEAD: u32 = 4;
/// The maximum packs that a thread can keep in registers; below, for packs with values of two channels.
const KEPT: u32 = 8;
const KEPT_SPLIT: u32 = 4;
/// The number of blocks that keeps the largest GPUs busy, several per multiprocessor, so that the last ones do not
/// matter.
const BLOCKS: u32 = 2048;
/// The same for NHWC, six for each of 132 multiprocessors: with more parts `batch_join` takes longer.
const PIXEL_BLOCKS: u32 = 792;
/// The size of a pack in bytes.
const PACK: u32 = 16;
/// In NHWC, the maximum packs of a pixel's channels per block.
const ACROSS: u32 = 8;
/// Threads of a block in which each warp joins the sums of a channel.
const JOINERS: u32 = 256;
/// The argument of the activation: the sum with a residual, or what the residual is added to.
const BEND_SUM: u32 = 1;
const BEND_NORM: u32 = 2;

/// The parameters of a normalisation, and the operations that follow.
pub struct BatchNorm<'a> {
    /// Gain, bias, running mean and running variance, one float32 value per channel.
    pub channels: [&'a Tensor<1>; 4],
    /// Added to the variance.
    pub epsilon: f64,
    /// The residual, in the shape and format of the images. It is added to the normalised images.
    pub residual: Option<&'a Tensor<4>>,
    /// Whether the residual is added after the activation.
    pub residual_last: bool,
    /// The factor of negative values, at least 0: 0 for ReLU. `None` without an activation.
    pub leak: Option<f64>,
}

/// The results of a training step.
pub struct BatchNormed {
    /// The output, in the format of the images.
    pub y: Tensor<4>,
    /// The new running mean and variance.
    pub running: [Tensor<1>; 2],
    /// Saved tensors for the backward pass.
    pub kept: SavedTensors,
}

/// The saved tensors of the forward pass.
pub struct SavedTensors {
    x: Tensor<4>,
    /// The output, if a residual precedes the activation: its sign is that of the activation's argument. Otherwise the
    /// argument is computed again.
    y: Option<Tensor<4>>,
    gain: Tensor<1>,
    bias: Tensor<1>,
    /// Per channel the mean, its rounding remainder, and the inverse standard deviation: [3, channels].
    saved: Tensor<2>,
    images: Images,
}

/// The gradients of a batch normalisation.
pub struct BatchGradients {
    /// The gradient of the images.
    pub x: Tensor<4>,
    /// The gradient of the gain.
    pub gain: Tensor<1>,
    /// The gradient of the bias.
    pub bias: Tensor<1>,
    /// The gradient of the residual, if there was one.
    pub residual: Option<Tensor<4>>,
}

/// Normalises each channel of images [rows, channels, height, width] over the batch, in float32: activation((x −
/// mean)·inverse·gain + bias + residual), or with the residual after the activation. `inverse` is 1/√(variance +
/// epsilon). Running statistics move by `share` towards those of the batch, with the unbiased sample variance.
///
/// If images are NHWC and their channels fill whole packs of 16 bytes, the output is NHWC, otherwise NCHW. `None` if
/// the kernels cannot run.
pub fn batch_norm(x: &Tensor<4>, norm: &BatchNorm<'_>, share: f64) -> Option<BatchNormed> {
    let (images, given) = Images::of(x, norm)?;
    let (y, statistics) = images.forward(Some(share), given);
    let [saved, mean, variance] = statistics?;
    let [gain, bias, ..] = norm.channels.map(Clone::clone);
    let shown = images.bends_sum().then(|| y.clone());
    let kept = SavedTensors { x: x.clone(), y: shown, gain, bias, saved: tensor(saved), images };
    Some(BatchNormed { y, running: [tensor(mean), tensor(variance)], kept })
}

/// As [`batch_norm`], but normalises with the running statistics, which stay unchanged.
pub fn batch_norm_answer(x: &Tensor<4>, norm: &BatchNorm<'_>) -> Option<Tensor<4>> {
    let (images, given) = Images::of(x, norm)?;
    Some(images.forward(None, given).0)
}

/// Returns the gradients, from that of the output, which has the shape and format of the images. An optional second
/// part of the output's gradient is added to the first. `None` if they do not fit.
pub fn batch_norm_back(dy: Tensor<4>, second: Option<Tensor<4>>, kept: SavedTensors) -> Option<BatchGradients> {
    let SavedTensors { x, y, gain, bias, saved, images } = kept;
    let fits = |dy: &Tensor<4>| dy.dims() == x.dims() && dy.dtype() == x.dtype() && same_device(dy, &x);
    if !fits(&dy) || !second.as_ref().is_none_or(fits) {
        return None;
    }
    let lying = |x: &Tensor<4>| primitive(&images.storage.lying(x.clone()));
    let given = [lying(&dy)?, lying(&x)?, primitive(&gain)?, primitive(&bias)?, primitive(&saved)?];
    let [shown, second] =
        [y, second].map(|images_beside| beside(images_beside.map(|it| images.storage.lying(it)).as_ref()));
    let (shown, second) = (shown?, second?);
    // Without an activation after the sum, the residual's gradient is the output's. The backward kernel adds a second
    // part.
    let passed = (images.residual && !images.bends_sum() && second.is_none()).then(|| dy.clone());
    drop((dy, x, gain, bias, saved));
    let ([x, gain, bias], residual) = images.backward(given, shown, second);
    let named = |x| images.storage.named(tensor(x));
    let residual = residual.filter(|_| images.residual).map(named).or(passed);
    Some(BatchGradients { x: named(x), gain: tensor(gain), bias: tensor(bias), residual })
}

/// The kernels' parameters besides their tensors, and the tensors' layout.
#[derive(Clone, Copy)]
struct Images {
    shape: [usize; 4],
    storage: Storage,
    dtype: DType,
    format: Format,
    /// Rows, channels, and values of a channel per row, in the kernels' type. In NHWC each pixel is a row.
    counted: [u32; 3],
    epsilon: f32,
    residual: bool,
    residual_last: bool,
    leak: Option<f32>,
}

impl Images {
    /// Returns the parameters with their tensors, or `None` if the kernels cannot run.
    fn of(x: &Tensor<4>, norm: &BatchNorm<'_>) -> Option<(Self, Vec<Cube>)> {
        let (shape, dtype) = (x.dims(), x.dtype());
        let [rows, channels, height, width] = shape;
        let format = format(dtype)?;
        let storage = match Storage::of(x) {
            Storage::Nhwc if count(channels)?.is_multiple_of(lanes(format)) => Storage::Nhwc,
            _ => Storage::Nchw,
        };
        let plane = height.checked_mul(width)?;
        let [rows, plane] = match storage {
            Storage::Nhwc => [rows.checked_mul(plane)?, 1],
            Storage::Nchw => [rows, plane],
        };
        let counted = [count(rows)?, count(channels)?, count(plane)?];
        let vector = |vector: &&Tensor<1>| {
            vector.dims() == [channels] && vector.dtype() == DType::F32 && same_device(*vector, x)
        };
        let like = |other: &Tensor<4>| other.dims() == shape && other.dtype() == dtype && same_device(other, x);
        let fit = countable(counted) && norm.channels.iter().all(vector) && norm.residual.is_none_or(like);
        if !fit || !ready(program(storage, format), x) {
            return None;
        }
        let lying = |x: &Tensor<4>| primitive(&storage.lying(x.clone()));
        let given = std::iter::once(lying(x)).chain(norm.channels.map(primitive));
        let given: Option<Vec<_>> = given.chain(norm.residual.map(lying)).collect();
        let leak = norm.leak.map(single);
        assert!(leak.is_none_or(|leak| leak >= 0.0), "what is below zero must not rise above it");
        let (residual, residual_last) = (norm.residual.is_some(), norm.residual_last);
        let epsilon = single(norm.epsilon);
        Some((Self { shape, storage, dtype, format, counted, epsilon, residual, residual_last, leak }, given?))
    }

    /// Whether the argument of the activation is a sum with a residual.
    fn bends_sum(&self) -> bool {
        self.leak.is_some() && self.residual && !self.residual_last
    }

    /// Returns the bits of the factor of negative values, and the argument of the activation, as in the kernels.
    fn bend(&self) -> [u32; 2] {
        let place = match self.leak {
            None => 0,
            Some(_) if self.residual && self.residual_last => BEND_NORM,
            Some(_) => BEND_SUM,
        };
        [self.leak.unwrap_or(0.0).to_bits(), place]
    }

    /// Returns the output. If running statistics move by a share, also returns the saved values of each channel and the
    /// new statistics.
    fn forward(self, share: Option<f64>, given: Vec<Cube>) -> (Tensor<4>, Option<[Cube; 3]>) {
        let given: Vec<Cube> = given.into_iter().map(|tensor| self.laid(tensor)).collect();
        let [x, gain, bias, mean, variance, residual @ ..] = given.as_slice() else {
            unreachable!("the images and four vectors")
        };
        let residual = residual.first();
        let blocks = self.blocks(share.is_some(), [Some(x), residual]);
        let channels = self.shape[1];
        let y = fresh(x, self.storage.shape(self.shape), self.dtype);
        let statistics = share.map(|_| {
            let saved = fresh(x, [3, channels], DType::F32);
            let [mean, variance] = [(); 2].map(|()| fresh(x, [channels], DType::F32));
            [saved, mean, variance]
        });
        let parts = (share.is_some() && !blocks.whole).then(|| fresh(x, blocks.room(3), DType::F32));
        let [saved, new_mean, new_variance] = [0, 1, 2].map(|place| statistics.as_ref().map(|all| &all[place]));
        // In the order of the kernels' structure.
        let of_channels = [gain, bias, mean, variance].map(Some);
        let outputs = [parts.as_ref(), saved, new_mean, new_variance];
        let tensors: Vec<_> = [Some(x), residual, Some(&y)].into_iter().chain(of_channels).chain(outputs).collect();
        let part = single(share.unwrap_or(0.0));
        let kept = single(1.0 - share.unwrap_or(0.0));
        queue_some(program(self.storage, self.format), x, &tensors, move |mut words, card| {
            words.extend(blocks.words);
            let [leak, bend] = self.bend();
            words.extend([pair(self.epsilon.to_bits(), kept.to_bits()), pair(part.to_bits(), leak)]);
            words.push(pair(bend, blocks.packed.into()));
            if blocks.whole {
                return blocks.launch(card, [c"batch_whole", c"batch_whole_split"], &words);
            }
            if share.is_some() {
                blocks.launch(card, [c"batch_sums", c"batch_sums_split"], &words)?;
                blocks.join(card, c"batch_join", &words)?;
            }
            blocks.launch(card, [c"batch_apply", c"batch_apply_split"], &words)
        });
        (self.storage.named(tensor(y)), statistics)
    }

    /// Returns the gradients of the images, the gain and the bias. The last tensor exists if the output's gradient has
    /// two parts or the activation follows the residual. It is the sum of the parts, after the activation's backward in
    /// the latter case.
    fn backward(self, given: [Cube; 5], y: Option<Cube>, second: Option<Cube>) -> ([Cube; 3], Option<Cube>) {
        let [dy, x, gain, bias, saved] = &given.map(|tensor| self.laid(tensor));
        let [y, second] = [y, second].map(|images| images.map(|images| self.laid(images)));
        let (y, second) = (y.as_ref(), second.as_ref());
        let blocks = self.blocks(true, [Some(dy), Some(x), y, second]);
        let [in_dy, in_x] = [dy, x].map(|tensor| own(tensor).then(|| tensor.clone()));
        let unlike = || fresh(x, self.storage.shape(self.shape), self.dtype);
        // In-place is safe: every value is read before it is overwritten, by the same thread.
        let is_written = y.is_some() || second.is_some();
        let (dresidual, in_dy) = if is_written { (Some(in_dy.unwrap_or_else(unlike)), None) } else { (None, in_dy) };
        let dx = in_x.or(in_dy).unwrap_or_else(unlike);
        let [dgain, dbias] = [(); 2].map(|()| fresh(x, [self.shape[1]], DType::F32));
        let parts = (!blocks.whole).then(|| fresh(x, blocks.room(2), DType::F32));
        let tensors = [
            Some(dy),
            Some(x),
            y,
            second,
            Some(&dx),
            dresidual.as_ref(),
            Some(gain),
            Some(bias),
            Some(saved),
            parts.as_ref(),
            Some(&dgain),
            Some(&dbias),
        ];
        let shut = y.is_some();
        queue_some(program(self.storage, self.format), x, &tensors, move |mut words, card| {
            words.extend(blocks.words);
            let [leak, bend] = self.bend();
            words.extend([pair(leak, bend), pair(blocks.packed.into(), 0)]);
            if blocks.whole {
                return blocks.launch(card, [c"batch_back_whole", c"batch_back_whole_split"], &words);
            }
            blocks.launch(card, [c"batch_back_sums", c"batch_back_sums_split"], &words)?;
            blocks.join(card, c"batch_back_join", &words)?;
            if is_written {
                // The residual's gradient now includes the second part.
                (words[0], words[3], words[5]) = (words[5], 0, 0);
            }
            if shut {
                // It also includes the activation's backward.
                words[2] = 0;
                words.truncate(words.len() - 2);
                words.extend([pair(leak, 0), pair(blocks.packed.into(), 0)]);
            }
            blocks.launch(card, [c"batch_back_apply", c"batch_back_apply_split"], &words)
        });
        ([dx, dgain, dbias], dresidual)
    }

    /// Returns the division of the work, given the tensors' alignment.
    fn blocks<const N: usize>(&self, sums: bool, tensors: [Option<&Cube>; N]) -> Blocks {
        let (lanes, aligned) = (lanes(self.format), begin_packs(tensors));
        match self.storage {
            Storage::Nchw => Blocks::of(self.counted, lanes, aligned, sums),
            Storage::Nhwc => Blocks::of_pixels(self.counted, lanes),
        }
    }

    /// Returns a tensor in the layout that the kernels read.
    fn laid(&self, tensor: Cube) -> Cube {
        match self.storage {
            Storage::Nchw => into_contiguous(tensor),
            Storage::Nhwc => packed(tensor),
        }
    }
}

fn program(storage: Storage, format: Format) -> Program {
    match storage {
        Storage::Nchw => Program::BatchNorm(format),
        Storage::Nhwc => Program::BatchNormNhwc(format),
    }
}

/// Returns the number of values in a pack.
pub(super) fn lanes(format: Format) -> u32 {
    if format == Format::F32 { PACK / 4 } else { PACK / 2 }
}

/// Whether tensors are aligned to packs.
pub(super) fn begin_packs<const N: usize>(tensors: [Option<&Cube>; N]) -> bool {
    let begins = |tensor: &Cube| tensor.handle.offset_start.unwrap_or(0);
    tensors.into_iter().flatten().all(|tensor| begins(tensor).is_multiple_of(PACK.into()))
}

/// Whether the kernels' types can count all values.
pub(super) fn countable([rows, channels, plane]: [u32; 3]) -> bool {
    // The maximum second dimension of a grid.
    let groups = channels <= u32::from(u16::MAX);
    rows > 0
        && channels > 0
        && plane > 0
        && groups
        && rows.checked_mul(plane).is_some()
        && channels.checked_mul(plane).is_some()
}

/// The division of images among blocks and threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Blocks {
    /// The shape, as the kernels' structure has it.
    pub(super) words: [u64; 5],
    /// Whether values are read in packs, which may contain values of two channels.
    pub(super) packed: bool,
    split: bool,
    /// Whether a block has all values of its channels, and keeps them in registers.
    whole: bool,
    channels: usize,
    parts: u32,
    groups: u32,
    threads: u32,
}

impl Blocks {
    /// Divides images with these rows, channels and values of a channel per row; `lanes` is the number of values in a
    /// pack. Without sums over a channel nothing is kept in registers.
    pub(super) fn of([rows, channels, plane]: [u32; 3], lanes: u32, aligned: bool, sums: bool) -> Self {
        // The smallest number of channels that fills whole packs.
        let group = lanes >> plane.trailing_zeros().min(lanes.trailing_zeros());
        let fits = group == 1
            || (channels.is_multiple_of(group) && plane >= lanes && plane / (lanes / group) <= SPLIT_THREADS);
        let packed = aligned && fits;
        let (group, lanes) = if packed { (group, lanes) } else { (1, 1) };
        let (split, tile, groups) = (group > 1, plane / (lanes / group), channels / group);
        let across = tile.div_ceil(THREADS);
        let wide = tile.div_ceil(across);
        let kept = if split { KEPT_SPLIT } else { KEPT };
        let whole = sums && across == 1 && rows <= kept * (THREADS / tile);
        let deep = (if split && !whole { SPLIT_THREADS } else { THREADS } / wide).min(rows);
        let wanted = BLOCKS.div_ceil(groups * across);
        let tall = if whole { rows } else { rows.div_ceil(wanted).max(AHEAD * deep).next_multiple_of(deep) };
        let parts = across * rows.div_ceil(tall);
        let words = [pair(rows, channels), pair(plane, group), pair(tile, wide), pair(across, deep), pair(tall, parts)];
        let threads = (wide * deep).next_multiple_of(32);
        let channels = usize::try_from(channels).unwrap_or(usize::MAX);
        Self { words, packed, split, whole, channels, parts, groups, threads }
    }

    /// Divides NHWC images. The channels fill whole packs, and a block has some packs of each of its pixels.
    fn of_pixels([rows, channels, plane]: [u32; 3], lanes: u32) -> Self {
        let wide = 1 << (channels / lanes).trailing_zeros().min(ACROSS.trailing_zeros());
        let group = wide * lanes;
        let (groups, deep) = (channels / group, (SPLIT_THREADS / wide).min(rows));
        let tall = rows.div_ceil(PIXEL_BLOCKS.div_ceil(groups)).max(AHEAD * deep).next_multiple_of(deep);
        let parts = rows.div_ceil(tall);
        let words = [pair(rows, channels), pair(plane, group), pair(wide, wide), pair(1, deep), pair(tall, parts)];
        let channels = usize::try_from(channels).unwrap_or(usize::MAX);
        let threads = (wide * deep).next_multiple_of(32);
        Self { words, packed: true, split: true, whole: false, channels, parts, groups, threads }
    }

    /// Returns the shape of the partial sums, given the number of sums per channel.
    pub(super) fn room(&self, sums: usize) -> [usize; 3] {
        [sums, self.channels, usize::try_from(self.parts).unwrap_or(usize::MAX)]
    }

    /// Returns the number of parts into which a channel's values are divided.
    pub(super) fn parts(&self) -> u32 {
        self.parts
    }

    /// Launches a kernel that joins the sums of all parts, one warp per channel.
    fn join(&self, card: &Launcher, name: &'static CStr, words: &[u64]) -> Result<(), Fault> {
        let channels = count(self.channels).unwrap_or(0);
        card.launch(name, [channels.div_ceil(JOINERS / 32), 1], [JOINERS, 1], &[Argument::Words(words)])
    }

    /// Launches the first kernel, or the second if packs have values of several channels.
    pub(super) fn launch(
        &self,
        card: &Launcher,
        [name, split]: [&'static CStr; 2],
        words: &[u64],
    ) -> Result<(), Fault> {
        let name = if self.split { split } else { name };
        card.launch(name, [self.parts, self.groups], [self.threads, 1], &[Argument::Words(words)])
    }
}
