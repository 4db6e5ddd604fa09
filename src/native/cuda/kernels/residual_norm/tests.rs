use super::*;
use crate::cuda::kernels::{Normed, drop as dropped, fault_free, layer_norm, layer_norm_back, timed};
use burn::tensor::{Device, Distribution, FloatDType};

fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Uniform(-1.0, 1.0), device)
}

#[test]
fn the_host_computes_for_itself() {
    let host = Device::flex();
    let [gain, bias] = [(); 2].map(|()| random([8], &host));
    let how = ResidualNorm { post: true, epsilon: 1e-5, key: 0, share: 0.0 };
    assert!(residual_norm(random([3, 8], &host), random([3, 8], &host), &gain, &bias, how).is_none());
}

/// A residual by the kernels that it was made of before, and by that for all at once.
#[test]
#[ignore = "needs a GPU, prints times"]
fn times_of_a_residual_on_gpu() {
    let (card, shape, epsilon, key, share) = (Device::cuda(0), [4096, 768], 1e-12, 9, 0.1);
    let [gain, bias] = [(); 2].map(|()| random([768], &card));
    for format in [FloatDType::BF16, FloatDType::F32] {
        let (x, added) = (random(shape, &card), random(shape, &card).cast(format));
        let (of_normed, of_stream) = (random(shape, &card).cast(format), random(shape, &card));
        let before = || {
            let sum = x.clone() + dropped(&added, key, share).unwrap()(added.clone()).cast(FloatDType::F32);
            let normed = layer_norm(sum.clone(), &gain, &bias, epsilon, FloatDType::F32).unwrap();
            (normed.y.clone().cast(format), sum, normed)
        };
        let (_, sum, Normed { mean, inverse, .. }) = before();
        let before_back = || {
            let gradient = of_normed.clone().cast(FloatDType::F32) + of_stream.clone();
            let (of_x, ..) = layer_norm_back(sum.clone(), gradient, &gain, &mean, &inverse).unwrap();
            let of_added = of_x.clone().cast(format);
            (dropped(&of_added, key, share).unwrap()(of_added), of_x)
        };
        let how = ResidualNorm { post: true, epsilon, key, share };
        let now = || residual_norm(x.clone(), added.clone(), &gain, &bias, how).unwrap();
        let kept = now().kept;
        let kept = || SavedTensors {
            sum: kept.sum.clone(),
            gain: kept.gain.clone(),
            mean: kept.mean.clone(),
            inverse: kept.inverse.clone(),
            sizes: kept.sizes,
        };
        let now_back = || residual_norm_back(of_normed.clone(), Some(of_stream.clone()), kept()).unwrap();
        let before = [timed(before), timed(before_back)];
        let now = [timed(now), timed(now_back)];
        println!("residual {shape:?} in {format:?}, forward and backward: {before:.0?} µs before, {now:.0?} µs now");
        fault_free();
    }
}
