//! RoIAlign over several levels of features, and its backward: one operation each.

use super::batch_norm::{begin_packs, lanes};
use super::compile::Program;
use super::run::{Argument, pair, queue_some};
use super::{count, fresh, primitive, ready, same_device, tensor};
use crate::cuda::plan::Format;
use crate::cuda::{Cube, format};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;

/// As in the kernels: levels and bins along an axis at most, cells along a side of a tile, and threads of blocks.
const LEVELS: usize = 4;
const LONGEST: usize = 16;
const TILE: u32 = 16;
const THREADS: u32 = 256;
const SORTERS: u32 = 1024;
/// Channels of a block of the backward, and of the forward with few bins and with many: as many as there is room for.
const CHANNELS: u32 = 16;
const CHUNK: [u32; 2] = [64, 16];
/// Bins along an axis that are few.
const FEW: u32 = 8;
/// Words of a region that touches a level.
const ENTRY: usize = 4;

/// The bins of regions: [regions, channels, side, side] in the format of the features. A bin is the mean of two by two samples, each between the four cells around it (He et al. 2017, "Mask
/// R-CNN", section 3; torchvision's `roi_align` with `sampling_ratio` 2 and without `aligned`). Sums are in float32.
///
/// Up to four levels of features are [rows, channels, height, width], with so many cells for a pixel; regions [regions, 6] are in float32: the row of the batch, the level, and the left,
/// upper, right and lower edge in pixels. Where there is no such row or level the bins are zeros. There are up to 16 bins along an axis. None where the kernels cannot be run.
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

/// The gradients of levels of features with these shapes, in the format of that of the bins. Each cell has what the regions give to it, in their order. None where the kernels cannot be run.
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

/// What the kernels are told besides their tensors.
#[derive(Clone, Debug)]
struct Task {
    dtype: DType,
    format: Format,
    levels: Vec<Level>,
    regions: usize,
    rows: usize,
    channels: usize,
    side: usize,
    /// The four of them as kernels count.
    counted: [u32; 4],
}

/// A level of features: its shape, as kernels have it too, cells for a pixel, and tiles of an image.
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
        // Rows and columns are kept in halves of a word.
        let small = size.iter().all(|length| (1..=u32::from(u16::MAX)).contains(length));
        let tiles = size[0].div_ceil(TILE).checked_mul(size[1].div_ceil(TILE))?;
        (small && size[0].checked_mul(size[1]).is_some()).then_some(Self { shape, size, scale, tiles })
    }
}

impl Task {
    /// None where there is nothing to do, too much to count, or something does not fit.
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
        // The second axis of a grid has no more blocks.
        let task = Self { dtype, format, levels, regions: many, rows, channels, side, counted };
        (task.counted[2].div_ceil(CHANNELS) <= u32::from(u16::MAX) && task.blocks().is_some()).then_some(task)
    }

    fn bins(&self) -> [usize; 4] {
        [self.regions, self.channels, self.side, self.side]
    }

    /// Blocks of the backward for each group of channels.
    fn blocks(&self) -> Option<u32> {
        let tiles = self.levels.iter().try_fold(0_u32, |tiles, level| tiles.checked_add(level.tiles))?;
        tiles.checked_mul(self.counted[1])
    }

    /// Channels of a block of the forward.
    fn chunk(&self) -> u32 {
        CHUNK[usize::from(self.counted[3] > FEW)]
    }

    /// The structure of the kernels, where tensors are at these addresses.
    fn words(&self, maps: &[u64], [regions, bins, entries, counts]: [u64; 4], aligned: bool) -> Vec<u64> {
        let mut words = Vec::with_capacity(20);
        for (level, map) in self.levels.iter().zip(maps) {
            let [height, width] = level.size;
            words.extend([*map, pair(height, width), pair(level.scale.to_bits(), level.tiles)]);
        }
        words.resize(LEVELS * 3, 0);
        let [many, rows, channels, side] = self.counted;
        let depth = count(self.levels.len()).unwrap_or(0);
        // All channels of a region are a whole number of packs, and so are those of every block.
        let packed = aligned && channels.wrapping_mul(side * side).is_multiple_of(lanes(self.format));
        words.extend([regions, bins, entries, counts]);
        words.extend([pair(many, rows), pair(channels, side), pair(self.chunk(), depth), pair(packed.into(), 0)]);
        words
    }

    /// Of regions and features.
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

    /// Of regions and the gradient of the bins.
    fn backward(&self, given: [Cube; 2]) -> Vec<Cube> {
        let [regions, gradient] = &given.map(into_contiguous);
        let aligned = begin_packs([Some(gradient)]);
        let made: Vec<Cube> = self.levels.iter().map(|level| fresh(gradient, level.shape, self.dtype)).collect();
        // Memory for whole numbers of the same size.
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
