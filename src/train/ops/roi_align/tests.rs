mod kernels;

use super::*;
use crate::precision::Precision;
use crate::sample_tensors::uniform;

const SHAPES: [[usize; 4]; 2] = [[2, 3, 8, 8], [2, 3, 4, 4]];
const SCALES: [f32; 2] = [0.25, 0.125];

/// Regions inside images of 32 x 32, across their edges, far outside, without area, and with swapped corners.
fn rois() -> Vec<Roi> {
    let bounds = [
        [3.3, 4.7, 20.1, 29.9],
        [0.0, 0.0, 32.0, 32.0],
        [-9.0, -3.0, 11.0, 40.0],
        [27.5, 30.0, 60.0, 61.0],
        [-50.0, -50.0, -20.0, -20.0],
        [90.0, 1.0, 95.0, 9.0],
        [5.0, 5.0, 5.0, 5.0],
        [20.0, 21.0, 10.0, 11.0],
        [31.9, 31.9, 32.0, 32.0],
    ];
    let of = |(n, bounds): (usize, &[f32; 4])| Roi { row: n % 2, level: n / 2 % 2, bounds: Xyxy::new(*bounds) };
    bounds.iter().enumerate().map(of).collect()
}

fn features() -> Vec<Tensor<4>> {
    let of = |(seed, shape): (u64, [usize; 4])| {
        Tensor::from_data(TensorData::new(uniform(seed, shape.iter().product()), shape), &Device::flex())
    };
    (1..).zip(SHAPES).map(of).collect()
}

fn with<T>(work: impl FnOnce(&ForwardContext<'_>) -> T) -> T {
    work(&ForwardContext::without_parameters(Precision::Fp32, &Device::flex()))
}

fn values(tensor: Tensor<4>) -> Vec<f32> {
    tensor.try_into_vec_as().expect("readable")
}

/// The output and the gradients of both levels, for the upstream gradient `slopes`.
fn found(slopes: &[f32]) -> (Vec<f32>, [Vec<f32>; 2]) {
    with(|ctx| {
        let leaves: Vec<Tensor<4>> =
            features().into_iter().map(|level| Tensor::from_inner(level).require_grad()).collect();
        let y = roi_align(ctx, &leaves, &rois(), &SCALES, 7);
        let slopes = Tensor::from_data(TensorData::new(slopes.to_vec(), y.dims()), &Device::flex());
        let mut tape = (y.clone() * Tensor::from_inner(slopes)).sum().backward();
        let gradients = [0, 1].map(|n: usize| values(leaves[n].grad_remove(&mut tape).expect("on the tape")));
        (values(y.inner()), gradients)
    })
}

/// The layer is linear: ⟨y, g⟩ = ⟨x, back(g)⟩, and a change of one pixel changes the output as the gradient predicts.
#[test]
fn gradients_match_the_outputs() {
    let slopes = uniform(5, rois().len() * 3 * 49);
    let (y, gradients) = found(&slopes);
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let pixels: Vec<Vec<f32>> = features().into_iter().map(values).collect();
    let other = dot(&pixels[0], &gradients[0]) + dot(&pixels[1], &gradients[1]);
    assert!((dot(&y, &slopes) - other).abs() < 1e-4 * other.abs().max(1.0), "{} and {other}", dot(&y, &slopes));
    for (level, place) in [(0, 0), (0, 63), (0, 100), (1, 5), (1, 47), (1, 80)] {
        let mut moved = features();
        let mut changed = pixels[level].clone();
        changed[place] += 1.0;
        moved[level] = Tensor::from_data(TensorData::new(changed, SHAPES[level]), &Device::flex());
        let moved = with(|ctx| {
            let levels: Vec<Tensor<4>> = moved.into_iter().map(|level| ctx.constant(level)).collect();
            values(roi_align(ctx, &levels, &rois(), &SCALES, 7).inner())
        });
        let difference = dot(&moved, &slopes) - dot(&y, &slopes);
        let gradient = f64::from(gradients[level][place]);
        assert!((difference - gradient).abs() < 1e-4, "{difference}, not {gradient}, at {place} of {level}");
    }
}

#[test]
fn results_are_reproducible_and_nan_coordinates_have_no_weight() {
    let slopes = uniform(5, rois().len() * 3 * 49);
    assert_eq!(found(&slopes), found(&slopes));
    let samples = Taps::along(f32::NAN, 1.0, [1, 2], 8);
    assert_eq!(samples, [Taps::default(); 2]);
}
