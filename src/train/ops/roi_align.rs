//! RoIAlign: samples regions of any size on grids of fixed size (He et al. 2017, "Mask R-CNN", section 3). Each region
//! is taken from one of several feature levels.
//!
//! As torchvision's with `aligned=False` and four samples per cell. The reference implementation runs on the host, in a fixed order.

use super::computed;
use crate::detection::boxes::Xyxy;
use crate::forward_context::ForwardContext;
use crate::native::kernels;
use crate::number::{real_len, single, whole};
use crate::precision::exact;
use crate::tape::Plain;
use burn::tensor::{DType, Device, Tensor, TensorData};
use rayon::prelude::*;

/// Samples along each side of a cell, and the weight of each sample in a cell's mean.
const SAMPLES: u16 = 2;
const MEAN: f32 = 0.25;

/// A region of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Roi {
    /// The image's row in the batch.
    pub row: usize,
    /// The index of the feature level that it is taken from.
    pub level: usize,
    /// The box, in pixels of the image.
    pub bounds: Xyxy,
}

impl Roi {
    /// The row format of the kernels.
    fn numbers(&self) -> [f32; 6] {
        let [row, level] = [self.row, self.level].map(|place| single(real_len(place)));
        let [left, top, right, bottom] = self.bounds.array();
        [row, level, left, top, right, bottom]
    }
}

/// The features [n, channels, side, side] of n regions, in the number format of `features`. The levels of `features`
/// are [rows, channels, height, width], with the same rows and channels. `scales` are their resolutions relative to the
/// image: 1/4, for example.
pub fn roi_align(
    ctx: &ForwardContext<'_>,
    features: &[Tensor<4>],
    rois: &[Roi],
    scales: &[f32],
    side: usize,
) -> Tensor<4> {
    kernel(ctx, features, rois, scales, side).unwrap_or_else(|| reference(ctx, features, rois, scales, side))
}

/// `None` if kernels are not available or there are no regions.
fn kernel(
    ctx: &ForwardContext<'_>,
    features: &[Tensor<4>],
    rois: &[Roi],
    scales: &[f32],
    side: usize,
) -> Option<Tensor<4>> {
    if rois.is_empty() {
        return None;
    }
    let given: Vec<Tensor<4>> = features.iter().map(|level| ctx.off_tape(level.clone())).collect();
    let shapes: Vec<[usize; 4]> = given.iter().map(Tensor::dims).collect();
    let values: Vec<f32> = rois.iter().flat_map(Roi::numbers).collect();
    let rois = Tensor::<2>::from_data(TensorData::new(values, [rois.len(), 6]), &given.first()?.device());
    let y = kernels::roi_align(&given, &rois, scales, side)?;
    let scales = scales.to_vec();
    let on_tape = || features.iter().cloned().map(Into::into).collect();
    Some(ctx.recorded_all(on_tape, y, move |gradient, _| {
        let found = computed(kernels::roi_align_back(&gradient, &rois, &shapes, &scales));
        found.into_iter().map(|level| Some(Plain::from(level))).collect()
    }))
}

fn reference(ctx: &ForwardContext<'_>, features: &[Tensor<4>], rois: &[Roi], scales: &[f32], side: usize) -> Tensor<4> {
    let given: Vec<Tensor<4>> = features.iter().map(|level| ctx.off_tape(level.clone())).collect();
    let formats: Vec<DType> = given.iter().map(Tensor::dtype).collect();
    let grid = Grid { shapes: given.iter().map(Tensor::dims).collect(), scales: scales.to_vec(), side };
    let y = grid.forward(&given, rois, ctx.device()).cast(formats[0]);
    let (rois, device) = (rois.to_vec(), ctx.device().clone());
    ctx.recorded_all(
        || features.iter().cloned().map(Into::into).collect(),
        y,
        move |gradient, wanted| {
            let slopes = grid.backward(gradient, &rois, wanted, &device).into_iter().zip(formats);
            slopes.map(|(slope, format)| slope.map(|slope| Plain::from(slope.cast(format)))).collect()
        },
    )
}

/// The two pixels of a line around a sample, with their interpolation weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taps {
    /// Both pixels; the same one twice at the end of the line.
    pub places: [usize; 2],
    /// Their weights: 0 for samples more than a pixel beyond the line.
    pub shares: [f32; 2],
}

impl Taps {
    /// The samples of a region from `start` with length `extent` on a line of `length` pixels: `samples` for each of
    /// `cells` equal parts, in order.
    pub fn along(start: f32, extent: f32, [cells, samples]: [u16; 2], length: usize) -> Vec<Self> {
        let cell = extent / f32::from(cells);
        let place = |part: u16, sample: u16| {
            let within = (f32::from(sample) + 0.5) * cell / f32::from(samples);
            Self::at(start + f32::from(part) * cell + within, length)
        };
        (0..cells).flat_map(|part| (0..samples).map(move |sample| place(part, sample))).collect()
    }

    fn at(coordinate: f32, length: usize) -> Self {
        // No image has more than 65,535 pixels in a line.
        let end = f32::from(u16::try_from(length).unwrap_or(u16::MAX));
        if !(coordinate >= -1.0 && coordinate <= end) {
            return Self::default();
        }
        let coordinate = coordinate.max(0.0);
        let low = usize::try_from(whole(f64::from(coordinate))).unwrap_or(0);
        if low + 1 >= length {
            return Self { places: [length - 1; 2], shares: [1.0, 0.0] };
        }
        let share = coordinate.fract();
        Self { places: [low, low + 1], shares: [1.0 - share, share] }
    }
}

/// The feature levels' shapes and scales, and the side of the sampling grid.
struct Grid {
    shapes: Vec<[usize; 4]>,
    scales: Vec<f32>,
    side: usize,
}

impl Grid {
    /// The vertical and the horizontal samples of a region.
    fn taps(&self, roi: &Roi) -> [Vec<Taps>; 2] {
        let [_, _, height, width] = self.shapes[roi.level];
        let [left, top, right, bottom] = roi.bounds.array().map(|edge| edge * self.scales[roi.level]);
        let samples = [u16::try_from(self.side).unwrap_or(u16::MAX), SAMPLES];
        // Regions are at least one pixel wide and high.
        let along = |from: f32, to: f32, length| Taps::along(from, (to - from).max(1.0), samples, length);
        [along(top, bottom, height), along(left, right, width)]
    }

    fn forward(&self, features: &[Tensor<4>], rois: &[Roi], device: &Device) -> Tensor<4> {
        let levels: Vec<Vec<f32>> = features.iter().map(|level| read(level.clone())).collect();
        let (channels, cells) = (self.shapes[0][1], self.side * self.side);
        let mut values = vec![0.0; rois.len() * channels * cells];
        values.par_chunks_mut(channels * cells).zip(rois).for_each(|(values, roi)| {
            let [down, across] = self.taps(roi);
            let [_, _, height, width] = self.shapes[roi.level];
            let planes = levels[roi.level].chunks_exact(height * width).skip(roi.row * channels);
            for (values, plane) in values.chunks_exact_mut(cells).zip(planes) {
                each_sample(&down, &across, width, |cell, place, share| values[cell] += share * plane[place]);
            }
        });
        Tensor::from_data(TensorData::new(values, [rois.len(), channels, self.side, self.side]), device)
    }

    /// The wanted gradients of the feature levels.
    fn backward(&self, gradient: Tensor<4>, rois: &[Roi], wanted: &[bool], device: &Device) -> Vec<Option<Tensor<4>>> {
        let (gradient, channels, cells) = (read(gradient), self.shapes[0][1], self.side * self.side);
        let of_level = |(level, shape): (usize, &[usize; 4])| {
            let [rows, _, height, width] = *shape;
            let taps: Vec<[Vec<Taps>; 2]> = rois.par_iter().map(|roi| self.taps(roi)).collect();
            let mut of_row: Vec<Vec<usize>> = vec![Vec::new(); rows];
            let here = rois.iter().enumerate().filter(|(_, roi)| roi.level == level);
            here.for_each(|(number, roi)| of_row[roi.row].push(number));
            let mut values = vec![0.0; shape.iter().product()];
            values.par_chunks_mut(height * width).enumerate().for_each(|(plane, values)| {
                for number in &of_row[plane / channels] {
                    let [down, across] = &taps[*number];
                    let slopes = &gradient[(number * channels + plane % channels) * cells..][..cells];
                    each_sample(down, across, width, |cell, place, share| values[place] += share * slopes[cell]);
                }
            });
            Tensor::from_data(TensorData::new(values, *shape), device)
        };
        let levels = self.shapes.iter().enumerate().zip(wanted);
        levels.map(|(level, wanted)| wanted.then(|| of_level(level))).collect()
    }
}

/// Calls `with` for each contributing pixel, with its cell, its place in a plane of this width, and its weight in the cell's mean.
fn each_sample(down: &[Taps], across: &[Taps], width: usize, mut with: impl FnMut(usize, usize, f32)) {
    let samples = usize::from(SAMPLES);
    let side = across.len() / samples;
    for (row, y) in down.iter().enumerate() {
        for (column, x) in across.iter().enumerate() {
            let cell = row / samples * side + column / samples;
            for (line, high) in y.places.iter().zip(y.shares) {
                for (place, wide) in x.places.iter().zip(x.shares) {
                    with(cell, line * width + place, high * wide * MEAN);
                }
            }
        }
    }
}

/// Reads the values of a tensor off the tape, in float32.
fn read(tensor: Tensor<4>) -> Vec<f32> {
    match exact(tensor).try_into_vec_as() {
        Ok(values) => values,
        Err(error) => panic!("images cannot be read back from the device: {error}"),
    }
}

#[cfg(test)]
mod tests;
