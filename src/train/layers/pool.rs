//! Pooling of images.

use crate::forward_context::ForwardContext;
use crate::number::{real_len, single};
use crate::ops::{Product, product};
use crate::precision::{Precision, exact};
use burn::tensor::{Tensor, TensorData};

/// Adaptive mean pooling of images of any size to [rows, channels, side, side], in float32 (PyTorch's `AdaptiveAvgPool2d`).
///
/// Output row i is the mean of the rows from ⌊i·height/side⌋ up to ⌈(i+1)·height/side⌉, and likewise for columns.
/// Pixels of smaller images are repeated.
///
/// Computed as one matrix product with the weights of all pixels in all means, which takes negligible time on a GPU.
/// Burn's own operation takes longer than all convolutions before it.
pub fn mean_to(ctx: &ForwardContext<'_>, x: Tensor<4>, side: usize) -> Tensor<4> {
    let [rows, channels, height, width] = x.dims();
    if [height, width] == [side; 2] {
        return exact(x);
    }
    let format = x.dtype();
    let shares = ctx.constant_of(&format!("means of {height} x {width} in {side} x {side}"), || {
        let shares = TensorData::new(shares([height, width], side), [height * width, side * side]);
        Tensor::<2>::from_data(shares, ctx.device())
    });
    let given = exact(ctx.off_tape(x.clone())).reshape([rows * channels, height * width]);
    // In float32, as otherwise the gradient of overlapping windows would be summed in half precision.
    let how = Product::of(Precision::Fp32);
    let y = product(given, shares.clone(), how).reshape([rows, channels, side, side]);
    ctx.recorded(
        || [x.into()],
        y,
        move |gradient, _| {
            let gradient: Tensor<4> = gradient;
            let of_x = product(gradient.reshape([rows * channels, side * side]), shares, how.second_transposed());
            [Some(of_x.reshape([rows, channels, height, width]).cast(format).into())]
        },
    )
}

/// The weight of each pixel of an image, row by row, in each mean: [height·width, side·side].
fn shares([height, width]: [usize; 2], side: usize) -> Vec<f32> {
    let span = |place: usize, length: usize| place * length / side..((place + 1) * length).div_ceil(side);
    let mut shares = vec![0.0; height * width * side * side];
    for (row, column) in (0..side).flat_map(|row| (0..side).map(move |column| (row, column))) {
        let (rows, columns) = (span(row, height), span(column, width));
        let share = single(1.0 / real_len(rows.len() * columns.len()));
        for pixel in rows.flat_map(|y| columns.clone().map(move |x| y * width + x)) {
            shares[pixel * side * side + row * side + column] = share;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Window, max_pool};
    use crate::sample_tensors::read;
    use burn::tensor::{DType, Device, FloatDType};

    /// Distinct values in shuffled order.
    fn pixels(count: usize) -> Vec<f32> {
        (0..count).map(|n| f32::from(u16::try_from(n * 37 % 101).expect("small"))).collect()
    }

    fn image(values: Vec<f32>, [height, width]: [usize; 2]) -> Tensor<4> {
        let shape = [1, values.len() / (height * width), height, width];
        Tensor::from_inner(Tensor::from_data(TensorData::new(values, shape), &Device::flex())).require_grad()
    }

    fn taped() -> ForwardContext<'static> {
        ForwardContext::without_parameters(Precision::Fp32, &Device::flex())
    }

    /// The gradient of Σ weight·y by x.
    fn gradient(x: &Tensor<4>, y: Tensor<4>, weights: &[f32]) -> Vec<f32> {
        let weights = Tensor::from_data(TensorData::new(weights.to_vec(), y.dims()), &Device::flex());
        let mut tape = (y * Tensor::from_inner(weights)).sum().backward();
        read(x.grad_remove(&mut tape).expect("on the tape"))
    }

    #[test]
    fn max_pooling_ignores_padding_and_passes_gradients_to_the_largest_pixel() {
        // 3 x 3 windows with stride 2 and padding 1 on 4 x 5: centres at rows 0, 2 and columns 0, 2, 4. All values are
        // negative, so that padding with zeros would win.
        let values: Vec<f32> = pixels(20).into_iter().map(|value| value - 200.0).collect();
        let window = Window { stride: 2, padding: 1 };
        assert_eq!([4, 5].map(|side| window.places(3, side)), [2, 3]);
        let (mut maxima, mut gradients) = (Vec::new(), vec![0.0; 20]);
        for (place, (row, column)) in [(0, 0), (0, 2), (0, 4), (2, 0), (2, 2), (2, 4)].into_iter().enumerate() {
            let near = (0..20).filter(|n: &usize| (n / 5).abs_diff(row) < 2 && (n % 5).abs_diff(column) < 2);
            let best = near.max_by(|a, b| values[*a].total_cmp(&values[*b])).expect("some");
            maxima.push(values[best]);
            gradients[best] += pixels(6)[place];
        }
        let x = image(values, [4, 5]);
        let y = max_pool(&taped(), x.clone(), 3, window);
        assert_eq!(read(y.clone()), maxima);
        assert_eq!(gradient(&x, y, &pixels(6)), gradients);
    }

    #[test]
    fn the_mean_pixel_is_in_float32() {
        // In fp16 the sum would stop growing at 2048.
        let half = Tensor::<4>::ones([2, 3, 64, 64], &Device::flex()).cast(FloatDType::F16);
        let mean = crate::ops::mean_pixel(&taped(), Tensor::from_inner(half));
        assert_eq!((mean.dtype(), mean.dims()), (DType::F32, [2, 3]));
        assert_eq!(read(mean), [1.0; 6]);
    }

    #[test]
    fn means_and_gradients_match_their_windows() {
        for [height, width] in [[1, 1], [2, 3], [7, 7], [10, 5], [14, 20]] {
            let values = pixels(2 * height * width);
            let (mut means, mut gradients) = (Vec::new(), vec![0.0; values.len()]);
            let weights = pixels(2 * 49);
            for (place, weight) in weights.iter().enumerate() {
                let (channel, i, j) = (place / 49, place / 7 % 7, place % 7);
                let span = |i: usize, side: usize| i * side / 7..((i + 1) * side).div_ceil(7);
                let places: Vec<usize> = span(i, height)
                    .flat_map(|row| span(j, width).map(move |column| (channel * height + row) * width + column))
                    .collect();
                let share = 1.0 / f32::from(u16::try_from(places.len()).expect("small"));
                means.push(places.iter().map(|place| values[*place]).sum::<f32>() * share);
                places.iter().for_each(|n| gradients[*n] += weight * share);
            }
            let x = image(values, [height, width]);
            let y = mean_to(&taped(), x.clone(), 7);
            let near = |found: &[f32], right: &[f32]| {
                assert_eq!(found.len(), right.len());
                for (a, b) in found.iter().zip(right) {
                    assert!((a - b).abs() <= 1e-6 * b.abs().max(1.0), "{height} x {width}: {a}, not {b}");
                }
            };
            near(&read(y.clone()), &means);
            near(&gradient(&x, y, &weights), &gradients);
        }
    }
}
