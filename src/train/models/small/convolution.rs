//! Convolution, pooling and ReLU as one block on the CPU, with its backward pass.
//!
//! Knows the two blocks of the convolutional model. On two processor cores it takes about half the time of Burn's operations.
//! Pixels are stored channels-last, so that a patch of the image is copied as five runs of memory. One matrix product serves
//! several images, and pooling compares whole rows of channels.
//!
//! Threads process images in groups of fixed size. The results of the groups are added in their order, so the number of
//! threads does not change any bit.

use crate::data::images::{PIXELS, SIDE};
use burn::tensor::{Device, Tensor, TensorData, TensorReadError};
use rayon::prelude::*;

/// Side of a kernel.
const KERNEL: usize = 5;
const TAPS: usize = KERNEL * KERNEL;
const MARGIN: usize = KERNEL / 2;

/// Images per matrix product: few enough that their patches stay in the caches.
const GROUP: usize = 4;

/// One block: a 5 x 5 convolution that keeps the size, 2 x 2 max pooling, ReLU.
#[derive(Clone, Copy)]
struct Block {
    side: usize,
    from: usize,
    to: usize,
}

const FIRST: Block = Block { side: SIDE, from: 1, to: 32 };
const SECOND: Block = Block { side: SIDE / 2, from: 32, to: 64 };

/// The source of an output that ReLU set to 0.
const CLOSED: u8 = 4;

/// The output of a block, channels last, and which of its four input pixels each value came from.
struct Pooled {
    values: Vec<f32>,
    source: Vec<u8>,
}

/// The saved state of the forward pass for the backward pass.
pub struct Trace {
    first: Pooled,
    second: Pooled,
}

/// Output values per image: 64 channels of 7 x 7, channel by channel.
pub const FEATURES: usize = 64 * 7 * 7;

/// Computes features [rows, 3136] of images [rows, 784]. `parameters` are weight and bias of each block.
pub fn forward(parameters: &[Tensor<1>; 4], inputs: &[f32]) -> Result<(Tensor<2>, Trace), TensorReadError> {
    let [c1, d1, c2, d2] = parameters;
    let first = FIRST.forward(inputs, &FIRST.matrix(c1)?, d1)?;
    let second = SECOND.forward(&first.values, &SECOND.matrix(c2)?, d2)?;
    let features = swap(&second.values, 49, 64);
    let rows = inputs.len() / PIXELS;
    let features = Tensor::from_data(TensorData::new(features, [rows, FEATURES]), &Device::flex());
    Ok((features, Trace { first, second }))
}

/// The gradients of the four parameters from that of the features.
pub fn backward(
    parameters: &[Tensor<1>; 4],
    inputs: &[f32],
    trace: &Trace,
    gradient: Tensor<2>,
) -> Result<[Tensor<1>; 4], TensorReadError> {
    let gradient = swap(gradient.try_into_data()?.as_slice()?, 64, 49);
    let matrix = SECOND.matrix(&parameters[2])?;
    let second = SECOND.backward(&trace.first.values, &trace.second.source, &gradient, Some(&matrix))?;
    let first = FIRST.backward(inputs, &trace.first.source, &second.inputs, None)?;
    let flat = |values: Vec<f32>| Tensor::from_data(TensorData::from(values.as_slice()), &Device::flex());
    Ok([flat(first.weight), flat(first.bias), flat(second.weight), flat(second.bias)])
}

/// The gradients of a group of images, or their sum.
struct Gradients {
    weight: Vec<f32>,
    bias: Vec<f32>,
    inputs: Vec<f32>,
}

impl Block {
    fn pixels(self) -> usize {
        self.side * self.side
    }

    fn input(self) -> usize {
        self.pixels() * self.from
    }

    fn output(self) -> usize {
        self.pixels() / 4 * self.to
    }

    fn patch(self) -> usize {
        TAPS * self.from
    }

    /// Converts a weight [to, from, taps] to a matrix [taps x from, to].
    fn matrix(self, weight: &Tensor<1>) -> Result<Tensor<2>, TensorReadError> {
        let data = weight.try_to_data()?;
        let weight: &[f32] = data.as_slice()?;
        let mut matrix = vec![0.0; weight.len()];
        for (to, kernels) in weight.chunks_exact(self.patch()).enumerate() {
            for (from, kernel) in kernels.chunks_exact(TAPS).enumerate() {
                for (tap, value) in kernel.iter().enumerate() {
                    matrix[(tap * self.from + from) * self.to + to] = *value;
                }
            }
        }
        Ok(tensor(matrix, [self.patch(), self.to]))
    }

    /// Converts a gradient of [`Block::matrix`] to the weight's layout.
    fn unmatrix(self, matrix: &[f32]) -> Vec<f32> {
        let mut weight = vec![0.0; matrix.len()];
        for (row, values) in matrix.chunks_exact(self.to).enumerate() {
            let (tap, from) = (row / self.from, row % self.from);
            for (to, value) in values.iter().enumerate() {
                weight[(to * self.from + from) * TAPS + tap] = *value;
            }
        }
        weight
    }

    fn forward(self, inputs: &[f32], matrix: &Tensor<2>, bias: &Tensor<1>) -> Result<Pooled, TensorReadError> {
        let bias = bias.try_to_data()?;
        let bias: &[f32] = bias.as_slice()?;
        let images = inputs.len() / self.input();
        let mut pooled = Pooled { values: vec![0.0; images * self.output()], source: vec![0; images * self.output()] };
        inputs
            .par_chunks(GROUP * self.input())
            .zip(pooled.values.par_chunks_mut(GROUP * self.output()))
            .zip(pooled.source.par_chunks_mut(GROUP * self.output()))
            .try_for_each(|((inputs, values), source)| {
                let convolved = self.patches(inputs).matmul(matrix.clone()).try_into_data()?;
                self.pool(convolved.as_slice()?, bias, values, source);
                Ok::<(), TensorReadError>(())
            })?;
        Ok(pooled)
    }

    fn backward(
        self,
        inputs: &[f32],
        source: &[u8],
        gradient: &[f32],
        matrix: Option<&Tensor<2>>,
    ) -> Result<Gradients, TensorReadError> {
        let groups: Vec<Gradients> = inputs
            .par_chunks(GROUP * self.input())
            .zip(source.par_chunks(GROUP * self.output()))
            .zip(gradient.par_chunks(GROUP * self.output()))
            .map(|((inputs, source), gradient)| self.backward_group(inputs, source, gradient, matrix))
            .collect::<Result<_, TensorReadError>>()?;
        let mut sum =
            Gradients { weight: vec![0.0; self.patch() * self.to], bias: vec![0.0; self.to], inputs: Vec::new() };
        for group in groups {
            add(&mut sum.weight, &group.weight);
            add(&mut sum.bias, &group.bias);
            sum.inputs.extend(group.inputs);
        }
        sum.weight = self.unmatrix(&sum.weight);
        Ok(sum)
    }

    fn backward_group(
        self,
        inputs: &[f32],
        source: &[u8],
        gradient: &[f32],
        matrix: Option<&Tensor<2>>,
    ) -> Result<Gradients, TensorReadError> {
        let (convolved, bias) = self.unpool(source, gradient);
        let rows = convolved.len() / self.to;
        let convolved = tensor(convolved, [rows, self.to]);
        let weight = self.patches(inputs).transpose().matmul(convolved.clone()).try_into_data()?;
        let inputs = match matrix {
            Some(matrix) => {
                let patches = convolved.matmul(matrix.clone().transpose()).try_into_data()?;
                self.unpatch(patches.as_slice()?)
            }
            None => Vec::new(),
        };
        Ok(Gradients { weight: weight.as_slice()?.to_vec(), bias, inputs })
    }

    /// The patch around each pixel, with zeros beyond the border, as a matrix [pixels of all images, taps x from] (im2col).
    fn patches(self, inputs: &[f32]) -> Tensor<2> {
        let rows = inputs.len() / self.from;
        let mut patches = vec![0.0; rows * self.patch()];
        for (image, patches) in
            inputs.chunks_exact(self.input()).zip(patches.chunks_exact_mut(self.pixels() * self.patch()))
        {
            self.each_run(|inside, patch, len| {
                patches[patch..patch + len].copy_from_slice(&image[inside..inside + len])
            });
        }
        tensor(patches, [rows, self.patch()])
    }

    /// The backward pass of [`Block::patches`]: sums the gradients of a pixel over the patches that contain it.
    fn unpatch(self, patches: &[f32]) -> Vec<f32> {
        let images = patches.len() / (self.pixels() * self.patch());
        let mut inputs = vec![0.0; images * self.input()];
        for (image, patches) in
            inputs.chunks_exact_mut(self.input()).zip(patches.chunks_exact(self.pixels() * self.patch()))
        {
            self.each_run(|inside, patch, len| add(&mut image[inside..inside + len], &patches[patch..patch + len]));
        }
        inputs
    }

    /// Calls `run` for each run of memory that is copied between image and patches, with its offsets in both and its length.
    fn each_run(self, mut run: impl FnMut(usize, usize, usize)) {
        for y in 0..self.side {
            for x in 0..self.side {
                let patch = (y * self.side + x) * self.patch();
                let (left, right) = (MARGIN.saturating_sub(x), KERNEL.min(self.side + MARGIN - x));
                for tap in MARGIN.saturating_sub(y)..KERNEL.min(self.side + MARGIN - y) {
                    let inside = ((y + tap - MARGIN) * self.side + x + left - MARGIN) * self.from;
                    run(inside, patch + (tap * KERNEL + left) * self.from, (right - left) * self.from);
                }
            }
        }
    }

    /// Takes the maximum of each square of four pixels, adds the bias and applies ReLU. NaN propagates.
    fn pool(self, convolved: &[f32], bias: &[f32], values: &mut [f32], source: &mut [u8]) {
        let pooled = values.chunks_exact_mut(self.to).zip(source.chunks_exact_mut(self.to));
        for (spot, (values, source)) in pooled.enumerate() {
            let corners = self.corners(spot);
            values.copy_from_slice(&convolved[corners[0]..corners[0] + self.to]);
            for (number, corner) in (1..CLOSED).zip(&corners[1..]) {
                for ((best, source), next) in values.iter_mut().zip(source.iter_mut()).zip(&convolved[*corner..]) {
                    let better = *next > *best || next.is_nan();
                    *best = if better { *next } else { *best };
                    *source = if better { number } else { *source };
                }
            }
            for ((value, source), bias) in values.iter_mut().zip(source.iter_mut()).zip(bias) {
                let sum = *value + bias;
                let closed = sum <= 0.0;
                *value = if closed { 0.0 } else { sum };
                *source = if closed { CLOSED } else { *source };
            }
        }
    }

    /// Returns each gradient at the pixel that its value came from, and the sum of the gradients by channel.
    fn unpool(self, source: &[u8], gradient: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let mut convolved = vec![0.0; gradient.len() * 4];
        let mut bias = vec![0.0; self.to];
        for (spot, (gradient, source)) in gradient.chunks_exact(self.to).zip(source.chunks_exact(self.to)).enumerate() {
            for (number, corner) in (0..CLOSED).zip(self.corners(spot)) {
                let to = &mut convolved[corner..corner + self.to];
                for ((to, gradient), source) in to.iter_mut().zip(gradient).zip(source) {
                    *to = if *source == number { *gradient } else { 0.0 };
                }
            }
            for ((bias, gradient), source) in bias.iter_mut().zip(gradient).zip(source) {
                *bias += if *source == CLOSED { 0.0 } else { *gradient };
            }
        }
        (convolved, bias)
    }

    /// The offsets of the four pixels behind a pooled pixel. `spot` counts pooled pixels through all images.
    fn corners(self, spot: usize) -> [usize; 4] {
        let half = self.side / 2;
        let (row, column) = (spot / half, spot % half);
        // Rows are numbered through all images, before and after pooling.
        let upper = (2 * row * self.side + 2 * column) * self.to;
        let lower = upper + self.side * self.to;
        [upper, upper + self.to, lower, lower + self.to]
    }
}

fn tensor(values: Vec<f32>, shape: [usize; 2]) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values, shape), &Device::flex())
}

fn add(sum: &mut [f32], values: &[f32]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

/// Transposes the [rows, columns] matrix of each image.
fn swap(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut swapped = vec![0.0; values.len()];
    for (swapped, values) in swapped.chunks_exact_mut(rows * columns).zip(values.chunks_exact(rows * columns)) {
        for (row, values) in values.chunks_exact(columns).enumerate() {
            for (column, value) in values.iter().enumerate() {
                swapped[column * rows + row] = *value;
            }
        }
    }
    swapped
}
