//! Compares our kernels with the host.

use crate::native::fault;
use crate::ops::roi_align::*;
use crate::precision::Precision;
use crate::sample_tensors;

fn uniform<const D: usize>(seed: u64, shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(sample_tensors::uniform(seed, shape.iter().product()), shape), device)
}

/// Regions inside, across the border and outside of an image of 80 x 64 pixels, and an empty one.
fn rois() -> Vec<Roi> {
    let edges = [
        [3.0, 5.0, 40.0, 60.0],
        [-20.0, 30.0, 33.3, 90.0],
        [500.0, 500.0, 600.0, 700.0],
        [10.0, 10.0, 10.0, 10.0],
        [0.0, 0.0, 64.0, 80.0],
        [41.7, 2.2, 80.1, 17.9],
    ];
    let roi = |(n, [left, top, right, bottom]): (usize, [f32; 4])| Roi {
        row: n % 2,
        level: n / 2 % 2,
        bounds: Xyxy { left, top, right, bottom },
    };
    edges.into_iter().cycle().take(12).enumerate().map(roi).collect()
}

/// The layer's output, and the gradients of both levels.
fn by_layer(device: &Device, precision: Precision, side: usize) -> Vec<Vec<f32>> {
    let read = |tensor: Tensor<4>| exact(tensor).try_into_vec_as::<f32>().expect("readable");
    let level = |seed, shape| Tensor::from_inner(precision.round(uniform(seed, shape, device))).require_grad();
    let features = [level(1, [2, 5, 20, 16]), level(2, [2, 5, 10, 8])];
    let ctx = ForwardContext::without_parameters(precision, device);
    let y = roi_align(&ctx, &features, &rois(), &[0.25, 0.125], side);
    let slopes = precision.round(uniform(3, y.dims(), device));
    let all = y.dims().iter().product();
    let mut tape = exact(y.clone() * Tensor::from_inner(slopes)).reshape([1, all]).sum_dim(1).backward();
    let gradients = features.map(|level| read(level.grad_remove(&mut tape).expect("on the tape")));
    [read(y.inner())].into_iter().chain(gradients).collect()
}

#[test]
#[ignore = "needs a GPU"]
fn the_layer_is_that_of_the_cpu_on_gpu() {
    for (precision, close) in [(Precision::Fp32, 1e-5), (Precision::Fp16, 2e-3), (Precision::Bf16, 1e-2)] {
        for side in [7, 14] {
            let [ours, theirs] = [Device::cuda(0), Device::flex()].map(|on| by_layer(&on, precision, side));
            assert_eq!(fault(), None);
            for (ours, theirs) in ours.iter().zip(&theirs) {
                let largest = theirs.iter().fold(1e-3_f32, |largest, value| largest.max(value.abs()));
                assert_eq!(ours.len(), theirs.len());
                for (place, (a, b)) in ours.iter().zip(theirs).enumerate() {
                    assert!((a - b).abs() <= close * largest, "{precision:?}, side {side}, {place}: {a}, not {b}");
                }
            }
        }
    }
}
