use super::*;
use crate::cuda::kernels::{fault_free, timed};
use burn::tensor::{Device, Distribution, FloatDType};

#[test]
fn the_host_computes_for_itself() {
    let x = Tensor::<2>::ones([3, 8], &Device::flex());
    assert!(curve(Curve::Gelu, &x).is_none());
    assert!(curve_back(Curve::GeluTanh, &x, &x).is_none());
}

#[test]
#[ignore = "needs a GPU, prints times"]
fn times_of_gelu_on_gpu() {
    let card = Device::cuda(0);
    for format in [FloatDType::BF16, FloatDType::F32] {
        let [x, dy] =
            [(); 2].map(|()| Tensor::<2>::random([4096, 3072], Distribution::Uniform(-3.0, 3.0), &card).cast(format));
        // As Burn computes them value by value, in one kernel if it is fused.
        let share = |x: Tensor<2>| ((x * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
        let before = || {
            let x = x.clone().cast(FloatDType::F32);
            (x.clone() * share(x)).cast(format)
        };
        let before_back = || {
            let x = x.clone().cast(FloatDType::F32);
            let density = (x.clone() * x.clone() * -0.5).exp() * 0.398_942_28;
            (dy.clone().cast(FloatDType::F32) * (share(x.clone()) + x * density)).cast(format)
        };
        let now = || curve(Curve::Gelu, &x).unwrap();
        let now_back = || curve_back(Curve::Gelu, &x, &dy).unwrap()(dy.clone());
        let before = [timed(before), timed(before_back)];
        let now = [timed(now), timed(now_back)];
        println!("GELU of [4096, 3072] in {format:?}, forward and backward: {before:.0?} µs before, {now:.0?} µs now");
        fault_free();
    }
}
