//! Conversion between masks and the m × m grids of a mask head (He et al. 2017, "Mask R-CNN").
//!
//! Both directions match torchvision except for rounding: `project_masks_on_boxes`, which is RoIAlign of the mask's zeros and ones,
//! and `paste_masks_in_image` with a threshold of one half.

use super::{Mask, Size};
use crate::detection::boxes::{Xyxy, greater, lesser};
use crate::number::{real, real_len, single, truncated, whole};
use std::ops::Range;

/// Pixels with a probability above this are set.
const THRESHOLD: f32 = 0.5;

/// Clear cells around a grid before it is pasted, so that a mask can end inside its box.
const PADDING: usize = 1;

/// Maximum number of samples of a cell: more than an image has pixels would not change the result.
const MAX_SAMPLES: u32 = 1 << 16;

impl Mask {
    /// The target of a mask head for a box: `side` × `side` numbers from 0 to 1, row by row.
    ///
    /// This is RoIAlign with as many samples of a cell in each direction as it has pixels, rounded up. A pixel's value is at the
    /// coordinates of its upper left corner (torchvision's `aligned = False`), and a box is at least 1 wide and high.
    pub fn aligned(&self, bounds: Xyxy, side: usize) -> Vec<f32> {
        let rows = cells(bounds.top, bounds.bottom, side, self.size.height);
        let columns = cells(bounds.left, bounds.right, side, self.size.width);
        let mut grid = vec![0.0; side * side];
        for (column, set) in self.stretches() {
            let met = meeting(&columns, &(column..column + 1));
            if met.is_empty() {
                continue;
            }
            for row in meeting(&rows, &set) {
                let part = rows[row].share(&set);
                let line = &mut grid[row * side..(row + 1) * side];
                for at in met.clone() {
                    line[at] += part * columns[at].share(&(column..column + 1));
                }
            }
        }
        grid
    }

    /// The mask, in an image of `size`, of a mask head's prediction for a box. `grid` has `side` × `side` probabilities, row by row.
    ///
    /// The grid is padded with one clear cell and the box grows accordingly. The grid is then resized bilinearly to the
    /// whole pixels of the box.
    pub fn pasted(size: Size, bounds: Xyxy, side: usize, grid: &[f32]) -> Self {
        let padded = padded(side, grid);
        let cells = side + 2 * PADDING;
        let growth = single(real_len(cells) / real_len(side.max(1)));
        let columns = spread(bounds.left, bounds.right, growth, cells, size.width);
        let rows = spread(bounds.top, bounds.bottom, growth, cells, size.height);
        let mut profile = vec![0.0_f32; cells];
        let mut runs: Vec<Range<u32>> = Vec::new();
        for (column, across) in (columns.first..).zip(&columns.mixes) {
            for (value, line) in profile.iter_mut().zip(padded.chunks_exact(cells)) {
                *value = across.of(line);
            }
            // An interpolated value is never above the largest.
            if !profile.iter().any(|value| *value > THRESHOLD) {
                continue;
            }
            let begin = column * u32::from(size.height) + rows.first;
            for (at, down) in (begin..).zip(&rows.mixes) {
                if down.of(&profile) > THRESHOLD {
                    match runs.last_mut() {
                        Some(run) if run.end == at => run.end = at + 1,
                        _ => runs.push(at..at + 1),
                    }
                }
            }
        }
        Self::from_runs(size, runs)
    }
}

/// The weights of an axis' pixels in a cell.
struct Cell {
    /// The first pixel with a weight.
    first: u32,
    /// The cumulative sums of the weights: before each pixel, then of all.
    sums: Vec<f32>,
}

impl Cell {
    /// The pixel after the last one with a weight.
    fn end(&self) -> u32 {
        self.first + u32::try_from(self.sums.len() - 1).unwrap_or(0)
    }

    /// The total weight of a range of pixels.
    fn share(&self, pixels: &Range<u32>) -> f32 {
        let before = |pixel: u32| {
            let place = usize::try_from(pixel.saturating_sub(self.first)).unwrap_or(usize::MAX);
            self.sums[place.min(self.sums.len() - 1)]
        };
        before(pixels.end) - before(pixels.start)
    }
}

/// The cells of an axis between two coordinates. Both `first` and `end` ascend from cell to cell.
fn cells(from: f32, to: f32, count: usize, pixels: u16) -> Vec<Cell> {
    let step = greater(to - from, 1.0) / single(real_len(count));
    let samples = whole(f64::from(step).ceil()).clamp(1, MAX_SAMPLES);
    let number = single(real(samples.into()));
    let mut end = 0;
    let cell = |cell: usize| {
        let begin = from + single(real_len(cell)) * step;
        let at = (0..samples).map(|sample| begin + (single(real(sample.into())) + 0.5) * step / number);
        let (mut first, mut weights) = (end, Vec::new());
        for (pixel, rest) in at.filter_map(|at| between(at, pixels)) {
            if weights.is_empty() {
                first = pixel;
            }
            let place = usize::try_from(pixel - first).unwrap_or(0);
            weights.resize(weights.len().max(place + 1 + usize::from(rest > 0.0)), 0.0);
            weights[place] += 1.0 - rest;
            if rest > 0.0 {
                weights[place + 1] += rest;
            }
        }
        let mut sum = 0.0;
        let sums = weights.into_iter().map(|weight: f32| {
            sum += weight;
            sum / number
        });
        let cell = Cell { first, sums: [0.0].into_iter().chain(sums).collect() };
        end = cell.end();
        cell
    };
    (0..count).map(cell).collect()
}

/// The pixel before a coordinate, and the interpolation weight of the next one; `None` more than a pixel outside the image.
fn between(at: f32, pixels: u16) -> Option<(u32, f32)> {
    if !(-1.0..=f32::from(pixels)).contains(&at) {
        return None;
    }
    let (at, last) = (greater(at, 0.0), u32::from(pixels).checked_sub(1)?);
    let pixel = whole(at.into());
    Some(if pixel >= last { (last, 0.0) } else { (pixel, at - at.floor()) })
}

/// The cells in which any of these pixels has a weight.
fn meeting(cells: &[Cell], pixels: &Range<u32>) -> Range<usize> {
    cells.partition_point(|cell| cell.end() <= pixels.start)..cells.partition_point(|cell| cell.first < pixels.end)
}

/// A grid padded with clear cells.
fn padded(side: usize, grid: &[f32]) -> Vec<f32> {
    let cells = side + 2 * PADDING;
    let mut padded = vec![0.0; cells * cells];
    let inside = padded.chunks_exact_mut(cells.max(1)).skip(PADDING);
    for (line, row) in inside.zip(grid.chunks_exact(side.max(1))) {
        line[PADDING..PADDING + side].copy_from_slice(row);
    }
    padded
}

/// An interpolation between two values of a line.
struct Mix {
    low: usize,
    high: usize,
    /// The weight of the second value.
    share: f32,
}

impl Mix {
    fn of(&self, line: &[f32]) -> f32 {
        (1.0 - self.share) * line[self.low] + self.share * line[self.high]
    }
}

/// The interpolations of consecutive pixels, starting at `first`.
struct Spread {
    first: u32,
    mixes: Vec<Mix>,
}

/// Resizes cells to the whole pixels between two coordinates, which first grow around their middle. Keeps only pixels inside the image.
fn spread(from: f32, to: f32, growth: f32, cells: usize, pixels: u16) -> Spread {
    let (middle, half) = ((to + from) * 0.5, (to - from) * 0.5 * growth);
    let [first, last] = [middle - half, middle + half].map(|edge| i64::from(truncated(edge.into())));
    let float = |count: i64| single(real(count.unsigned_abs()));
    let ratio = single(real_len(cells)) / float((last - first + 1).max(1));
    let mix = |pixel: i64| {
        let at = greater(ratio * (float(pixel - first) + 0.5) - 0.5, 0.0);
        let low = usize::try_from(whole(at.into())).unwrap_or(usize::MAX).min(cells - 1);
        Mix { low, high: (low + 1).min(cells - 1), share: lesser(at - single(real_len(low)), 1.0) }
    };
    // A box with NaN or swapped edges contains nothing.
    let inside = if to >= from { first.max(0)..(last + 1).min(pixels.into()) } else { 0..0 };
    Spread { first: u32::try_from(inside.start).unwrap_or(u32::MAX), mixes: inside.map(mix).collect() }
}

#[cfg(test)]
mod parity;
#[cfg(test)]
mod tests;
