//! NHWC images on a GPU, against plain loops.

use super::*;
use crate::cuda::dnn::Storage;

/// Channels that fill whole packs and that do not, and more than a block has threads.
const SHAPES: [[usize; 4]; 7] =
    [[2, 3, 4, 4], [3, 8, 7, 7], [2, 512, 14, 14], [32, 24, 28, 28], [70, 64, 33, 35], [1, 2304, 3, 5], [2, 300, 9, 9]];

fn laid(images: &Tensor<4>) -> Tensor<4> {
    Storage::Nhwc.laid(moved(images, &card())).expect("on the card")
}

#[test]
fn nhwc_kernels_refuse_host_tensors() {
    assert!(add_bias_back_nhwc(random([1, 2, 3, 3]), None).is_none(), "no card is asked for");
    let windows = Windows { side: 2, stride: 2, padding: 0 };
    assert!(pool_max_nhwc(&random([1, 2, 4, 4]), windows).is_none(), "no card is asked for");
}

#[test]
#[ignore = "needs a GPU"]
fn gradients_of_biases_in_nhwc_on_gpu() {
    for (dims, format) in SHAPES.into_iter().flat_map(|dims| FORMATS.map(|format| (dims, format))) {
        for (rectified, lies) in [(false, true), (true, true), (true, false)] {
            let what = format!("{dims:?} {format:?}, rectified {rectified}, lies {lies}");
            let (dy, y) = (random(dims).cast(format), rectified.then(|| random::<4>(dims).cast(format)));
            let given = |images: &Tensor<4>| if lies { laid(images) } else { moved(images, &card()) };
            let on_card = y.as_ref().map(given);
            let once = || {
                let Some(found) = add_bias_back_nhwc(given(&dy), on_card.as_ref()) else { panic!("{what} is refused") };
                found
            };
            let ((dx, dbias), (_, again)) = (once(), once());
            let (mut expected, mut sums) = (read(dy.clone()), vec![0.0_f64; dims[1]]);
            for (slope, y) in expected.iter_mut().zip(y.map(read).unwrap_or_default()) {
                *slope = if y > 0.0 { *slope } else { 0.0 };
            }
            for (n, slope) in expected.iter().enumerate() {
                sums[n / (dims[2] * dims[3]) % dims[1]] += f64::from(*slope);
            }
            assert!(!rectified || Storage::of(&dx) == Storage::Nhwc, "{what}");
            assert!(read(dx) == expected, "{what}");
            let dbias = read(dbias);
            assert!(dbias == read(again), "{what}: other bits");
            let terms = crate::number::real_len(dims[0] * dims[2] * dims[3]);
            for (found, sum) in dbias.iter().zip(sums) {
                assert!(
                    (f64::from(*found) - sum).abs() <= 4e-6 * terms.sqrt().max(1.0),
                    "{what}: {found} and not {sum}"
                );
            }
            assert_eq!(fault(), None, "{what}");
        }
    }
}

/// Returns the maxima of windows and the gradient of the images, choosing the first of equal values.
fn pooled(x: &Tensor<4>, dy: &[f32], windows: Windows, output: [usize; 4]) -> (Vec<f32>, Vec<f32>) {
    let ([images, channels, height, width], Windows { side, stride, padding }) = (x.dims(), windows);
    let (values, mut y) = (read(x.clone()), Vec::new());
    let mut dx = vec![0.0; values.len()];
    for plane in 0..images * channels {
        for (top, left) in (0..output[2]).flat_map(|top| (0..output[3]).map(move |left| (top, left))) {
            let mut best = None;
            for (i, j) in (0..side).flat_map(|i| (0..side).map(move |j| (i, j))) {
                let (row, column) =
                    ((top * stride + i).wrapping_sub(padding), (left * stride + j).wrapping_sub(padding));
                if row < height && column < width {
                    let place = (plane * height + row) * width + column;
                    best = best.filter(|best: &usize| values[*best] >= values[place]).or(Some(place));
                }
            }
            let best = best.expect("some of a window is in the image");
            dx[best] += dy[y.len()];
            y.push(values[best]);
        }
    }
    (y, dx)
}

#[test]
#[ignore = "needs a GPU"]
fn largest_values_in_nhwc_on_gpu() {
    let windows = |side, stride, padding| Windows { side, stride, padding };
    let apart = [windows(2, 2, 0), windows(3, 3, 0), windows(1, 2, 0), windows(2, 3, 0)];
    let overlapping = [windows(3, 2, 1), windows(3, 1, 1), windows(2, 1, 0), windows(2, 2, 1)];
    for (dims, format) in SHAPES.into_iter().flat_map(|dims| FORMATS.map(|format| (dims, format))) {
        for (windows, rounded) in apart.into_iter().chain(overlapping).flat_map(|w| [(w, false), (w, true)]) {
            let what = format!("{dims:?} {format:?}, {windows:?}, rounded {rounded}");
            let x = random::<4>(dims);
            // Integers have many equal values, and sums of their gradients are exact.
            let x = (if rounded { (x * 2.0).round() } else { x }).cast(format);
            let places = |length: usize| (length + 2 * windows.padding - windows.side) / windows.stride + 1;
            let output = [dims[0], dims[1], places(dims[2]), places(dims[3])];
            let dy = (random::<4>(output) * 8.0).round().cast(format);
            let (y, dx) = pooled(&x, &read(dy.clone()), windows, output);
            let Some((found, saved)) = pool_max_nhwc(&laid(&x), windows) else { panic!("{what} is refused") };
            assert!(read(found) == y, "{what}");
            let found = saved.backward(&laid(&dy)).expect("it fits");
            assert!(read(found.clone()) == dx, "{what}");
            assert!(Storage::of(&found) == Storage::Nhwc, "{what}");
            assert_eq!(fault(), None, "{what}");
        }
    }
    let mut values = vec![1.0_f32; 32];
    values[1] = f32::NAN;
    let x = Tensor::<1>::from_data(TensorData::from(values.as_slice()), &flex()).reshape([1, 8, 2, 2]);
    let Some((y, _)) = pool_max_nhwc(&laid(&x), windows(2, 2, 0)) else { panic!("refused") };
    let y = read(y);
    assert!(y[0].is_nan(), "NaN stays NaN");
    assert!(y[1..] == [1.0; 7], "the other channels");
}

#[test]
#[ignore = "needs a GPU"]
fn pictures_are_standardised_on_gpu() {
    let (means, deviations) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    // In packs, and with planes that do not fill whole packs.
    for shape in [[2, 3, 16, 32], [5, 3, 7, 9], [1, 3, 1, 1]] {
        let bytes: Vec<u8> = (0..=255).cycle().step_by(37).take(shape.iter().product()).collect();
        let given = Tensor::<4, Int>::from_data(TensorData::new(bytes.clone(), shape), (&card(), DType::U8));
        let found: Vec<f32> = read(standardise(&given, means, deviations).expect("runs"));
        let channel = |at: usize| at / (shape[2] * shape[3]) % 3;
        let value =
            |(at, byte): (usize, &u8)| (f32::from(*byte) / 255.0 - means[channel(at)]) / deviations[channel(at)];
        assert!(found == bytes.iter().enumerate().map(value).collect::<Vec<f32>>(), "{shape:?}");
        assert!(standardise(&given, [0.5], [0.5]).is_none());
    }
}
