use super::*;
use crate::ops::stored_nhwc;
use crate::precision::{Precision, exact};
use crate::sample_tensors::{self, read};
use burn::tensor::{Device, TensorData};

fn uniform(seed: u64, dims: [usize; 4], precision: Precision, device: &Device) -> Tensor<4> {
    let values = sample_tensors::uniform(seed, dims.iter().product());
    precision.round(Tensor::from_data(TensorData::new(values, dims), device))
}

/// The layer's output and gradients. With `nhwc`, images are stored NHWC where the device supports it.
fn by_layer(dims: [usize; 4], [lateral, nhwc]: [bool; 2], precision: Precision, device: &Device) -> Vec<Vec<f32>> {
    let [rows, channels, height, width] = dims;
    let large = [rows, channels, height * 2, width * 2];
    let leaf = |seed, dims| Tensor::from_inner(uniform(seed, dims, precision, device)).require_grad();
    let (x, beside) = (leaf(1, dims), lateral.then(|| leaf(2, large)));
    let ctx = ForwardContext::without_parameters(precision, device);
    let given = if nhwc { stored_nhwc(&ctx, x.clone()) } else { x.clone() };
    let y = match &beside {
        None => upsample_nearest(&ctx, given),
        Some(beside) => upsample_add(&ctx, given, beside.clone()),
    };
    assert_eq!((y.dims(), y.dtype()), (large, x.dtype()));
    let slopes = Tensor::from_inner(uniform(3, large, precision, device));
    // The gradient gets the same storage as the output.
    let slopes = if nhwc { stored_nhwc(&ctx, slopes) } else { slopes };
    let mut tape = exact(y.clone() * slopes).reshape([1, large.iter().product()]).sum_dim(1).backward();
    let gradient = |leaf: Tensor<4>| read(leaf.grad_remove(&mut tape).expect("on the tape"));
    let gradients: Vec<_> = [Some(x), beside].into_iter().flatten().map(gradient).collect();
    std::iter::once(read(y.inner())).chain(gradients).collect()
}

/// The same, value by value in float64.
fn by_loops(dims: [usize; 4], lateral: bool, precision: Precision) -> Vec<Vec<f64>> {
    let [rows, channels, height, width] = dims;
    let large = [rows, channels, height * 2, width * 2];
    let values = |seed, dims| -> Vec<f64> {
        read(uniform(seed, dims, precision, &Device::flex())).into_iter().map(f64::from).collect()
    };
    let (x, beside, slopes) = (values(1, dims), values(2, large), values(3, large));
    let (mut y, mut gradient) = (beside.clone(), vec![0.0; x.len()]);
    for (n, slope) in slopes.iter().enumerate() {
        let (line, column) = (n / (2 * width), n % (2 * width));
        let (plane, row) = (line / (2 * height), line % (2 * height));
        let from = (plane * height + row / 2) * width + column / 2;
        y[n] = x[from] + if lateral { beside[n] } else { 0.0 };
        gradient[from] += slope;
    }
    [y, gradient].into_iter().chain(lateral.then_some(slopes)).collect()
}

fn compare(dims: [usize; 4], device: &Device) {
    for (precision, close) in [(Precision::Fp32, 1e-6), (Precision::Fp16, 1e-3), (Precision::Bf16, 8e-3)] {
        for [lateral, nhwc] in [[false, false], [true, false], [false, true], [true, true]] {
            let ours = by_layer(dims, [lateral, nhwc], precision, device);
            let theirs = by_loops(dims, lateral, precision);
            assert_eq!(ours.len(), theirs.len());
            for (part, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                assert_eq!(ours.len(), theirs.len());
                for (place, (a, b)) in ours.iter().zip(theirs).enumerate() {
                    let near = (f64::from(*a) - b).abs() <= close * b.abs().max(1.0);
                    assert!(
                        near,
                        "{precision:?} {dims:?}, lateral {lateral}, NHWC {nhwc}, {part} at {place}: {a}, not {b}"
                    );
                }
            }
        }
    }
}

#[test]
fn values_are_repeated_and_their_gradients_summed() {
    [[1, 1, 1, 1], [2, 3, 4, 5], [1, 2, 3, 8]].into_iter().for_each(|dims| compare(dims, &Device::flex()));
}

#[test]
#[ignore = "needs a GPU"]
fn upsampling_on_gpu() {
    for dims in [[1, 1, 1, 1], [2, 3, 5, 7], [2, 5, 6, 2], [1, 2, 3, 8], [2, 64, 16, 16], [1, 8, 33, 36]] {
        compare(dims, &Device::cuda(0));
        assert_eq!(crate::native::fault(), None, "{dims:?}");
    }
}
