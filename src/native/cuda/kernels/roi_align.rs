//! RoIAlign over several feature levels, and its backward: one operation each.

use super::batch_norm::{begin_packs, lanes};
use super::compile::Program;
use super::run::{Argument, pair, queue_some};
use super::{count, fresh, primitive, ready, same_device, tensor};
use crate::cuda::plan::Format;
use crate::cuda::{Cube, format};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;

/// As in the kernels: the maximum levels and bins along an axis, the cells along a side of a tile, and the threads of
/// blocks.
const LEVELS: usize = 4;
const LONGEST: usize = 16;
const TILE: u32 = 16;
const THREADS: u32 = 256;
const SORTERS: u32 = 1024;
/// Channels per block of the backward, and of the forward with few and with many bins, limited by shared memory.
const CHANNELS: u32 = 16;
const CHUNK: [u32; 2] = [64, 16];
/// The maximum bins along an axis that count as few.
const FEW: u32 = 8;
/// Words of a region that touches a level.
const ENTRY: usize = 4;

/// Returns the bins of regions: [regions, channels, side, side] in the format of the features. A bin is the mean of two
/// by two samples, each interpolated from its four neighbouring cells (He et al. 2017, "Mask R-CNN", section 3;
/// torchvision's `roi_align` with `sampling_ratio` 2 and without `aligned`). Sums are in float32.
///
/// Up to four levels of features are [rows, channels, height, width]; `scales` are their cells per pixel. Regions
/// [regions, 6] are in float32: the row of the batch, the level, and the left, upper, right and lower edge in pixels.
/// Bins of a nonexistent row or level are zero. There are at most 16 bins along an axis. `None` if the kernels cannot
/// run.
pub fn roi_align(features: &[Tensor<4>], regions: &Tensor<2>, scales: &[f32], side: usize) -> Option<Tensor<4>> {
    let first = features.first()?;
    let shapes: Vec<[usize; 4]> = features.iter().map(Tensor::dims).collect();
    let task = Task::of(&shapes, scales, regions, side, first.dtype())?;
    let alike = |level: &Tensor<4>| level.dtype() == first.dtype() && same_device(level, regions);
    if !features.iter().all(alike) || !ready(Program::RoiAlign(task.format), regions) {
        return None;
    }
    let given = std::iter::once(primitive(regions)).chain(features.iter().map(primitive));
    task.forward(given.collect::<Option<_>>()?).map(tensor)
}

/// Returns the gradients of feature levels with these shapes, in the format of the bins' gradient. Each cell sums the
/// contributions of regions in their order. `None` if the kernels cannot run.
pub fn roi_align_back(
    gradient: &Tensor<4>,
    regions: &Tensor<2>,
    shapes: &[[usize; 4]],
    scales: &[f32],
) -> Option<Vec<Tensor<4>>> {
    let task = Task::of(shapes, scales, regions, gradient.dims()[3], gradient.dtype())?;
    let fits = gradient.dims() == task.bins() && same_device(gradient, regions);
    if !fits || !ready(Program::RoiAlign(task.format), regions) {
        return None;
    }
    let given = [primitive(regions)?, primitive(gradient)?];
    Some(task.backward(given).into_iter().map(tensor).collect())
}

/// The kernels' parameters besides their tensors.
#[derive(Clone, Debug)]
struct Task {
    dtype: DType,
    format: Format,
    levels: Vec<Level>,
    regions: usize,
    rows: usize,
    channels: usize,
    side: usize,
    /// Regions, rows, channels and side in the kernels' type.
    counted: [u32; 4],
}

/// A feature level: its shape, also in the kernels' type, its cells per pixel, and the tiles of an image.
#[derive(Clone, Copy, Debug)]
struct Level {
    shape: [usize; 4],
    size: [u32; 2],
    scale: f32,
    tiles: u32,
}

impl Level {
    fn of(shape: [usize; 4], scale: f32) -> Option<Self> {
        let size = [count(shape[2])?, count(shape[3])?];
        // Rows and columns are stored in half words.
        let small = size.iter().all(|length| (1..=u32::from(u16::MAX)).contains(length));
        let tiles = size[0].div_ceil(TILE).checked_mul(size[1].div_ceil(TILE))?;
        (small && size[0].checked_mul(size[1]).is_some()).then_some(Self { shape, size, scale, tiles })
    }
}

impl Task {
    /// Returns `None` if there is nothing to do, the sizes are too large, or something does not fit.
    fn of(shapes: &[[usize; 4]], scales: &[f32], regions: &Tensor<2>, side: usize, dtype: DType) -> Option<Self> {
        let format = format(dtype)?;
        let [rows, channels, ..] = *shapes.first()?;
        let [many, columns] = regions.dims();
        let alike = shapes.len() == scales.len() && shapes.iter().all(|shape| shape[..2] == [rows, channels]);
        let some = rows > 0 && channels > 0 && many > 0 && (1..=LONGEST).contains(&side) && shapes.len() <= LEVELS;
        if !alike || !some || columns != 6 || regions.dtype() != DType::F32 {
            return None;
        }
        let levels: Vec<Level> =
            shapes.iter().zip(scales).map(|(shape, scale)| Level::of(*shape, *scale)).collect::<Option<_>>()?;
        let counted = [count(many)?, count(rows)?, count(channels)?, count(side)?];
        // The maximum second dimension of a grid.
        let task = Self { dtype, format, levels, regions: many, rows, channels, side, counted };
        (task.counted[2].div_ceil(CHANNELS) <= u32::from(u16::MAX) && task.blocks().is_some()).then_some(task)
    }

    fn bins(&self) -> [usize; 4] {
        [self.regions, self.channels, self.side, self.side]
    }

    /// Returns the blocks of the backward for each group of channels.
    fn blocks(&self) -> Option<u32> {
        let tiles = self.levels.iter().try_fold(0_u32, |tiles, level| tiles.checked_add(level.tiles))?;
        tiles.checked_mul(self.counted[1])
    }

    /// Returns the channels per block of the forward.
    fn chunk(&self) -> u32 {
        CHUNK[usize::from(self.counted[3] > FEW)]
    }

    /// Returns the words of the kernels' structure for tensors at these addresses.
    fn words(&self, maps: &[u64], [regions, bins, entries, counts]: [u64; 4], aligned: bool) -> Vec<u64> {
        let mut words = Vec::with_capacity(20);
        for (level, map) in self.levels.iter().zip(maps) {
            let [height, width] = level.size;
            words.extend([*map, pair(height, width), pair(level.scale.to_bits(), level.tiles)]);
        }
        words.resize(LEVELS * 3, 0);
        let [many, rows, channels, side] = self.counted;
        let depth = count(self.levels.len()).unwrap_or(0);
        // The channels of a region fill whole packs, and so do those of every block.
        let packed = aligned && channels.wrapping_mul(side * side).is_multiple_of(lanes(self.format));
        words.extend([regions, bins, entries, counts]);
        words.extend([pair(many, rows), pair(channels, side), pair(self.chunk(), depth), pair(packed.into(), 0)]);
        words
    }

    /// Computes the bins, from regions and features.
    fn forward(&self, given: Vec<Cube>) -> Option<Cube> {
        let inputs: Vec<Cube> = given.into_iter().map(into_contiguous).collect();
        let like = inputs.first()?;
        let made = fresh(like, self.bins(), self.dtype);
        let tensors: Vec<Option<&Cube>> = inputs.iter().chain([&made]).map(Some).collect();
        let task = self.clone();
        let blocks = [self.counted[0], self.counted[2].div_ceil(self.chunk())];
        queue_some(Program::RoiAlign(self.format), like, &tensors, move |places, card| {
            let [regions, maps @ .., bins] = places.as_slice() else { return Ok(()) };
            let words = task.words(maps, [*regions, *bins, 0, 0], true);
            card.launch(c"roi_align", blocks, [THREADS, 1], &[Argument::Words(&words)])
        });
        Some(made)
    }

    /// Computes the gradients, from regions and the bins' gradient.
    fn backward(&self, given: [Cube; 2]) -> Vec<Cube> {
        let [regions, gradient] = &given.map(into_contiguous);
        let aligned = begin_packs([Some(gradient)]);
        let made: Vec<Cube> = self.levels.iter().map(|level| fresh(gradient, level.shape, self.dtype)).collect();
        // Integers of the same size are stored in float32 tensors.
        let lists = self.rows * LEVELS;
        let entries = fresh(regions, [lists, self.regions, ENTRY], DType::F32);
        let counts = fresh(regions, [lists], DType::F32);
        let beside = [regions, gradient, &entries, &counts];
        let tensors: Vec<Option<&Cube>> = beside.into_iter().chain(&made).map(Some).collect();
        let task = self.clone();
        queue_some(Program::RoiAlign(self.format), gradient, &tensors, move |places, card| {
            let [regions, bins, entries, counts, maps @ ..] = places.as_slice() else { return Ok(()) };
            let words = task.words(maps, [*regions, *bins, *entries, *counts], aligned);
            let [_, rows, channels, side] = task.counted;
            let depth = count(task.levels.len()).unwrap_or(0);
            card.launch(c"roi_lists", [rows, depth], [SORTERS, 1], &[Argument::Words(&words)])?;
            let name = if side <= FEW { c"roi_align_back_8" } else { c"roi_align_back_16" };
            let blocks = [task.blocks().unwrap_or(0), channels.div_ceil(CHANNELS)];
            card.launch(name, blocks, [THREADS, 1], &[Argument::Words(&words)])
        });
        made
    }
}
