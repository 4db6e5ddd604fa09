use super::*;
use crate::forward_context::ModelState;
use crate::native::dnn::Storage;
use crate::ops::{concat_channels, forked, stored_nhwc};
use crate::parameters::{Index, initial};
use crate::precision::{Precision, exact};
use crate::sample_tensors::uniform;
use burn::tensor::{Device, TensorData};

/// A 3 x 3 convolution of images [rows, in, height, width].
#[derive(Debug)]
struct Case {
    images: [usize; 4],
    channels: usize,
    biased: bool,
    rectified: bool,
    /// Whether images are stored NHWC where the device supports it.
    nhwc: bool,
}

const KEEP: Window = Window { stride: 1, padding: 1 };

impl Case {
    fn param_specs(&self) -> Vec<ParamSpec> {
        let bias = self.biased.then(|| ParamSpec::new("conv.bias", &[self.channels], Init::Uniform(1.0)));
        let weight = convolution_spec("conv", [self.channels, self.images[1], 3]);
        std::iter::once(weight).chain(bias).collect()
    }

    fn answered(&self) -> [usize; 4] {
        let [rows, _, height, width] = self.images;
        [rows, self.channels, height, width]
    }

    /// The layer's output off the tape and on it, and the gradients of images, weight and bias. On the tape the output
    /// is the mean of two uses of the images.
    fn by_layer(&self, precision: Precision, device: &Device) -> Vec<Vec<f32>> {
        let param_specs = self.param_specs();
        let (index, none) = (Index::new(&param_specs), Index::default());
        let flat = |values: Vec<f32>| Tensor::<1>::from_data(TensorData::from(values.as_slice()), device);
        let parameters: Vec<Tensor<1>> = initial(&param_specs, 3).into_iter().map(flat).collect();
        let leaves: Vec<_> = parameters.iter().map(|one| Tensor::from_inner(one.clone()).require_grad()).collect();
        let images = || precision.round(flat(uniform(1, self.images.iter().product()))).reshape(self.images);
        let state = |parameters| ModelState {
            index: &index,
            parameters,
            statistics: &none,
            running: &mut [],
            precision,
            device: device.clone(),
        };
        let layer = if self.rectified { convolve_relu } else { convolve };
        let stored = |ctx: &ForwardContext<'_>, images| if self.nhwc { stored_nhwc(ctx, images) } else { images };
        let ctx = ForwardContext::inference(state(&parameters));
        let answer = layer(&ctx, "conv", stored(&ctx, images()), KEEP);
        let ctx = ForwardContext::inference_on_tape(state(&leaves));
        let x = Tensor::from_inner(images()).require_grad();
        let [one, other] = forked(&ctx, stored(&ctx, x.clone()));
        let y = (layer(&ctx, "conv", one, KEEP) + layer(&ctx, "conv", other, KEEP)) * 0.5;
        let all = self.answered().iter().product();
        let slopes = Tensor::from_inner(precision.round(flat(uniform(2, all)))).reshape(self.answered());
        let mut tape = exact(y.clone() * slopes).reshape([1, all]).sum_dim(1).backward();
        let read = |tensor: Tensor<1>| -> Vec<f32> { exact(tensor).try_into_vec_as().expect("readable") };
        let mut found = vec![read(answer.flatten(0, 3)), read(y.inner().flatten(0, 3))];
        found.push(read(x.grad_remove(&mut tape).expect("on the tape").flatten(0, 3)));
        found.extend(leaves.iter().map(|leaf| read(leaf.grad_remove(&mut tape).expect("on the tape"))));
        found
    }

    /// The same results in the same order, by loops in float64. Whether a ReLU is active is read from the layer's
    /// output, as sums near 0 may be rounded to either side.
    fn by_loops(&self, answer: &[f32]) -> Vec<Vec<f64>> {
        let [_, from, height, width] = self.images;
        let wide = |values: Vec<f32>| -> Vec<f64> { values.into_iter().map(f64::from).collect() };
        let (x, parameters) = (wide(uniform(1, self.images.iter().product())), initial(&self.param_specs(), 3));
        let weight = wide(parameters[0].clone());
        let bias = parameters.get(1).map_or_else(|| vec![0.0; self.channels], |bias| wide(bias.clone()));
        let slopes = wide(uniform(2, self.answered().iter().product()));
        let (mut y, mut dx) = (Vec::new(), vec![0.0; x.len()]);
        let (mut dweight, mut dbias) = (vec![0.0; weight.len()], vec![0.0; bias.len()]);
        for (at, slope) in slopes.iter().enumerate() {
            let (row, to) = (at / (self.channels * height * width), at / (height * width) % self.channels);
            let (line, column) = (at / width % height, at % width);
            let mut under = Vec::new();
            for (channel, i, j) in (0..from * 9).map(|n| (n / 9, n / 3 % 3, n % 3)) {
                let (Some(line), Some(column)) = ((line + i).checked_sub(1), (column + j).checked_sub(1)) else {
                    continue;
                };
                if line < height && column < width {
                    let image = ((row * from + channel) * height + line) * width + column;
                    under.push((image, (to * from + channel) * 9 + i * 3 + j));
                }
            }
            let sum = under.iter().map(|(image, tap)| x[*image] * weight[*tap]).sum::<f64>() + bias[to];
            y.push(if self.rectified { sum.max(0.0) } else { sum });
            let slope = if self.rectified && answer[at] == 0.0 { 0.0 } else { *slope };
            for (image, tap) in under {
                dx[image] += slope * weight[tap];
                dweight[tap] += slope * x[image];
            }
            dbias[to] += slope;
        }
        let all = [y.clone(), y, dx, dweight, dbias];
        all.into_iter().take(3 + parameters.len()).collect()
    }
}

fn compare(case: &Case, precision: Precision, device: &Device, close: f64) {
    let ours = case.by_layer(precision, device);
    let theirs = case.by_loops(&ours[1]);
    assert_eq!(ours.len(), theirs.len());
    for (part, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours.len(), theirs.len());
        let off = |(a, b): (&f32, &f64)| (f64::from(*a) - b).powi(2);
        let off = ours.iter().zip(theirs).map(off).sum::<f64>().sqrt();
        let long = theirs.iter().map(|value| value * value).sum::<f64>().sqrt();
        assert!(off <= close * long, "{case:?} {precision:?}, part {part}: {off} of {long}");
    }
}

fn cases() -> Vec<Case> {
    let shapes = [([2, 3, 5, 6], 4), ([1, 4, 1, 1], 8), ([3, 8, 7, 7], 16)];
    let all = (0..8).map(|n| [n & 1 != 0, n & 2 != 0, n & 4 != 0]);
    let each = |(images, channels)| {
        all.clone().map(move |[biased, rectified, nhwc]| Case { images, channels, biased, rectified, nhwc })
    };
    shapes.into_iter().flat_map(each).collect()
}

#[test]
fn biases_and_rectifiers_follow_a_convolution() {
    for case in cases() {
        for (precision, close) in [(Precision::Fp32, 1e-6), (Precision::Fp16, 2e-3), (Precision::Bf16, 1e-2)] {
            compare(&case, precision, &Device::flex(), close);
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn biases_and_rectifiers_follow_a_convolution_on_gpu() {
    let large = [([4, 16, 56, 56], 32), ([64, 8, 14, 14], 24)];
    let large = large.map(|(images, channels)| {
        [false, true].map(|nhwc| Case { images, channels, biased: !nhwc, rectified: true, nhwc })
    });
    for case in cases().iter().chain(large.iter().flatten()) {
        // TF32 has a rounding error of 2⁻¹¹.
        for (precision, close) in [(Precision::Fp32, 2e-3), (Precision::Fp16, 2e-3), (Precision::Bf16, 2e-2)] {
            compare(case, precision, &Device::cuda(0), close);
        }
    }
}

/// Checks that concatenation joins the channels of two images and splits the gradient.
fn joined_and_parted(parts: [usize; 2], device: &Device) {
    let all = parts[0] + parts[1];
    let ctx = ForwardContext::without_parameters(Precision::Bf16, device);
    let (rows, pixels) = (2, 4 * 5);
    let values = |seed, channels: usize| {
        // Values that bf16 represents exactly.
        uniform(seed, rows * channels * pixels).into_iter().map(|value| (value * 64.0).round()).collect::<Vec<f32>>()
    };
    let images = |values: Vec<f32>, channels| {
        Tensor::<1>::from_data(TensorData::from(values.as_slice()), device).reshape([rows, channels, 4, 5])
    };
    let read =
        |tensor: Tensor<4>| -> Vec<f32> { exact(tensor).flatten::<1>(0, 3).try_into_vec_as().expect("readable") };
    let leaves = parts.map(|channels| Tensor::from_inner(images(values(1, channels), channels)).require_grad());
    let given = leaves.iter().map(|leaf| stored_nhwc(&ctx, leaf.clone())).collect();
    let y = concat_channels(&ctx, given);
    assert_eq!(
        Storage::of(&y.clone().inner()) == Storage::Nhwc,
        crate::native::dnn::available() && device != &Device::flex()
    );
    let slopes = values(2, all);
    let loss = y.clone() * stored_nhwc(&ctx, Tensor::from_inner(images(slopes.clone(), all)));
    let mut tape = exact(loss).reshape([1, rows * all * pixels]).sum_dim(1).backward();
    let part = |values: &[f32], first: usize, channels: usize| -> Vec<f32> {
        let row = |row: &[f32]| row[first * pixels..(first + channels) * pixels].to_vec();
        values.chunks_exact(all * pixels).flat_map(row).collect()
    };
    let answer = read(y.inner());
    for (leaf, (first, channels)) in leaves.into_iter().zip([(0, parts[0]), (parts[0], parts[1])]) {
        assert_eq!(part(&answer, first, channels), values(1, channels));
        assert_eq!(read(leaf.grad_remove(&mut tape).expect("on the tape")), part(&slopes, first, channels));
    }
}

#[test]
fn channels_are_joined_and_their_gradients_parted() {
    joined_and_parted([3, 8], &Device::flex());
}

#[test]
#[ignore = "needs a GPU"]
fn channels_are_joined_and_their_gradients_parted_on_gpu() {
    // Channel offsets that are and are not aligned for a view.
    for parts in [[3, 8], [128, 256], [256, 512]] {
        joined_and_parted(parts, &Device::cuda(0));
    }
    assert_eq!(crate::native::fault(), None);
}
