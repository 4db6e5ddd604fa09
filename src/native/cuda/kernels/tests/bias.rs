//! Biases and ReLU on a GPU against plain loops.

use super::*;

/// Planes of whole packs, of less than one pack, and with packs of two channels; one part per channel and many.
const SHAPES: [[usize; 4]; 9] = [
    [2, 3, 4, 4],
    [3, 8, 7, 7],
    [1, 16, 1, 1],
    [5, 7, 3, 5],
    [2, 512, 14, 14],
    [32, 24, 28, 28],
    [70, 3, 64, 64],
    [2, 2, 224, 224],
    [300, 4, 9, 9],
];

fn bias(channels: usize) -> Tensor<1> {
    random([channels])
}

/// Returns the output, from values in the format of the images.
fn added(x: &Tensor<4>, bias: &Tensor<1>, rectified: bool) -> Tensor<4> {
    let [_, channels, height, width] = x.dims();
    let bias = read(bias.clone());
    let sum = |(n, value): (usize, f32)| {
        let sum = value + bias[n / (height * width) % channels];
        if rectified && sum < 0.0 { 0.0 } else { sum }
    };
    let values: Vec<f32> = read(x.clone()).into_iter().enumerate().map(sum).collect();
    Tensor::from_data(TensorData::new(values, x.dims()), &flex())
}

/// Returns the gradients of x and of the bias, in double precision.
fn slopes(dy: &Tensor<4>, y: Option<&Tensor<4>>) -> (Vec<f32>, Vec<f64>) {
    let [_, channels, height, width] = dy.dims();
    let mut dx = read(dy.clone());
    for (slope, y) in dx.iter_mut().zip(y.map(|y| read(y.clone())).unwrap_or_default()) {
        *slope = if y > 0.0 { *slope } else { 0.0 };
    }
    let mut dbias = vec![0.0; channels];
    for (n, slope) in dx.iter().enumerate() {
        dbias[n / (height * width) % channels] += f64::from(*slope);
    }
    (dx, dbias)
}

#[test]
fn bias_kernels_refuse_host_tensors() {
    assert!(add_bias(&random([1, 2, 3, 3]), &bias(2), true).is_none(), "no card is asked for");
    assert!(add_bias_back(random([1, 2, 3, 3]), None).is_none(), "no card is asked for");
}

#[test]
#[ignore = "needs a GPU"]
fn biases_of_images_on_gpu() {
    for (dims, format) in SHAPES.into_iter().flat_map(|dims| FORMATS.map(|format| (dims, format))) {
        for (rectified, held) in [(false, false), (true, false), (true, true)] {
            let what = format!("{dims:?} {format:?}, rectified {rectified}, held {held}");
            let (x, bias) = (random(dims).cast(format), bias(dims[1]));
            let given = moved(&x, &card());
            let keep = held.then(|| given.clone());
            let Some(kernel) = add_bias(&given, &moved(&bias, &card()), rectified) else { panic!("{what} is refused") };
            near(kernel(given), added(&x, &bias, rectified).cast(format), rounding(format), &what);
            keep.into_iter().for_each(|kept| same(kept, x.clone(), &what));
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gradients_of_biases_on_gpu() {
    for (dims, format) in SHAPES.into_iter().flat_map(|dims| FORMATS.map(|format| (dims, format))) {
        for (rectified, held) in [(false, false), (true, false), (true, true)] {
            let what = format!("{dims:?} {format:?}, rectified {rectified}, held {held}");
            let (dy, y) = (random(dims).cast(format), rectified.then(|| random::<4>(dims).cast(format)));
            let on_card = y.as_ref().map(|y| moved(y, &card()));
            let once = || {
                let given = moved(&dy, &card());
                let keep = held.then(|| given.clone());
                let Some(found) = add_bias_back(given, on_card.as_ref()) else { panic!("{what} is refused") };
                keep.into_iter().for_each(|kept| same(kept, dy.clone(), &what));
                found
            };
            let ((dx, dbias), (_, again)) = (once(), once());
            let (expected, sums) = slopes(&dy, y.as_ref());
            assert!(read(dx) == expected, "{what}");
            let dbias = read(dbias);
            assert!(dbias == read(again), "{what}: other bits");
            let terms = f64::from(single(crate::number::real_len(dy.dims().iter().product::<usize>() / dims[1])));
            for (channel, (found, sum)) in dbias.iter().zip(&sums).enumerate() {
                // Terms are at most 1, each rounded to the 24th bit of a sum that grows like the square root of their
                // number.
                let near = (f64::from(*found) - sum).abs() <= 1e-6 * terms.sqrt().max(1.0) * 4.0;
                assert!(near, "{what}, channel {channel}: {found} and not {sum}");
            }
            assert_eq!(fault(), None, "{what}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn biases_of_views_on_gpu() {
    let (x, bias) = (random::<4>([4, 6, 10, 12]), bias(6));
    let part = |x: Tensor<4>| x.narrow(2, 1, 7).narrow(3, 2, 9);
    let given = part(moved(&x, &card()));
    let Some(kernel) = add_bias(&given, &moved(&bias, &card()), true) else { panic!("refused") };
    near(kernel(given), added(&part(x.clone()), &bias, true), 1e-6, "a part");
    let (dx, sums) = slopes(&part(x.clone()), None);
    let Some((found, dbias)) = add_bias_back(part(moved(&x, &card())), None) else { panic!("refused") };
    assert!(read(found) == dx);
    for (found, sum) in read(dbias).iter().zip(sums) {
        assert!((f64::from(*found) - sum).abs() < 1e-4, "{found} and not {sum}");
    }
}
