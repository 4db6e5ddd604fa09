use super::job::queue;
use super::*;
use crate::cuda::{Fault, fault};
use burn::tensor::module::{conv2d, max_pool2d};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Device, FloatDType, TensorData};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) const FORMATS: [FloatDType; 3] = [FloatDType::F32, FloatDType::BF16, FloatDType::F16];

/// Serialises tests, because failures are recorded in one place for all threads.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(library::dnn().is_some(), "no cuDNN");
    assert_eq!(fault(), None);
    alone
}

/// Returns values between -1 and 1 with 16 digits, so that TF32 has to round them.
pub(in crate::cuda) fn spread<const D: usize>(shape: [usize; D], seed: u32) -> TensorData {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from(u16::try_from(state >> 16).unwrap()) / 32768.0 - 1.0
        })
        .collect();
    TensorData::new(values, shape)
}

/// Returns integers that every format can represent, all different within a window.
fn apart(shape: [usize; 4]) -> TensorData {
    let values: Vec<f32> =
        (0..shape.iter().product()).map(|index| f32::from(u8::try_from(index * 37 % 251).unwrap()) - 125.0).collect();
    TensorData::new(values, shape)
}

pub(super) fn given<const D: usize>(data: TensorData, format: FloatDType) -> Tensor<D> {
    Tensor::<D>::from_data(data, &Device::cuda(0)).cast(format)
}

/// Copies the values to the host, on a tape.
fn taped<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    Tensor::from_data(tensor.clone().cast(FloatDType::F32).into_data(), &Device::flex().autodiff()).require_grad()
}

pub(super) fn read<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(FloatDType::F32).into_data().try_to_vec::<f32>().unwrap()
}

/// Checks that the largest difference is a small part of the largest value.
#[track_caller]
fn same<const D: usize>(what: &str, ours: Tensor<D>, theirs: Tensor<D>, tolerance: f32) {
    assert_eq!(ours.dims(), theirs.dims(), "{what}");
    let (ours, theirs) = (read(ours), read(theirs));
    let largest = theirs.iter().fold(1e-3_f32, |largest, value| largest.max(value.abs()));
    for (index, (one, other)) in ours.iter().zip(&theirs).enumerate() {
        let off = (one - other).abs() / largest;
        assert!(off <= tolerance, "{what}: {one} for {other} at {index}, {off:.1e} of the largest");
    }
}

pub(super) fn tolerance(format: FloatDType, exact: f32) -> f32 {
    match format {
        FloatDType::F32 => exact,
        FloatDType::F16 => 2e-3,
        _ => 1e-2,
    }
}

fn how(stride: [usize; 2], padding: [usize; 2]) -> Convolution {
    Convolution { stride, padding, tf32: false, storage: Storage::Nchw }
}

/// Compares result and gradients by cuDNN with those by Burn on the host. Returns whether cuDNN supported it.
pub(super) fn convolutions(x: Tensor<4>, w: Tensor<4>, how: Convolution, tolerance: f32) -> bool {
    let what = format!("{:?} {:?} {:?} {how:?}", x.dtype(), x.dims(), w.dims());
    let (tape_x, tape_w) = (taped(&x), taped(&w));
    let options = ConvOptions::new(how.stride, how.padding, [1, 1], 1);
    let their_y = conv2d(tape_x.clone(), tape_w.clone(), None, options);
    let dy = given::<4>(spread(their_y.dims(), 3), x.dtype().into());
    let grads = (their_y.clone() * taped(&dy)).sum().backward();
    let (input, weight) = (x.dims(), w.dims());
    let made =
        (convolve(x.clone(), w.clone(), how), of_input(dy.clone(), w, input, how), of_weight(x, dy, weight, how));
    let (Some(y), Some(dx), Some(dw)) = made else {
        println!("{what}: refused, {:?}", [made.0.is_some(), made.1.is_some(), made.2.is_some()]);
        return false;
    };
    same(&format!("{what} y"), y, their_y.inner(), tolerance);
    same(&format!("{what} dx"), dx, tape_x.grad(&grads).unwrap(), tolerance);
    same(&format!("{what} dw"), dw, tape_w.grad(&grads).unwrap(), tolerance);
    true
}

#[test]
#[ignore = "needs a GPU"]
fn convolutions_are_those_of_burn_on_gpu() {
    let _alone = alone();
    let cases = [
        ([3, 5, 9, 7], [6, 5, 1, 1], how([1, 1], [0, 0])),
        ([3, 8, 9, 7], [16, 8, 1, 1], how([2, 2], [0, 0])),
        ([3, 8, 9, 11], [16, 8, 3, 3], how([2, 2], [1, 1])),
        ([3, 64, 14, 13], [64, 64, 3, 3], how([1, 1], [1, 1])),
        ([3, 3, 33, 29], [16, 3, 7, 7], how([2, 2], [3, 3])),
        ([1, 1, 5, 5], [1, 1, 3, 3], how([1, 1], [0, 0])),
        ([2, 16, 10, 8], [32, 16, 3, 1], how([1, 2], [1, 0])),
        ([5, 4, 20, 20], [8, 4, 8, 8], how([4, 4], [0, 0])),
    ];
    for (input, weight, how) in cases {
        for format in FORMATS {
            let (x, w) = (given(spread(input, 1), format), given(spread(weight, 2), format));
            let exact = convolutions(x.clone(), w.clone(), how, tolerance(format, 1e-5));
            assert!(exact || format != FloatDType::F32, "float32 is always done");
            assert!(exact || input[1] % 8 != 0, "whole pieces are always done");
            if format == FloatDType::F32 {
                assert!(convolutions(x, w, Convolution { tf32: true, ..how }, 3e-3));
            }
        }
    }
    assert_eq!(fault(), None);
}

#[test]
#[ignore = "needs a GPU"]
fn tensors_that_lie_otherwise_on_gpu() {
    let _alone = alone();
    for format in FORMATS {
        let close = tolerance(format, 1e-5);
        let w: Tensor<4> = given(spread([8, 8, 3, 3], 2), format);
        // The addition makes new buffers, so that the axes really are in another order.
        let last = (given::<4>(spread([3, 9, 7, 8], 1), format) + 1.0).permute([0, 3, 1, 2]);
        assert_eq!(Storage::of(&last), Storage::Nhwc);
        assert!(convolutions(last.clone(), w.clone(), how([2, 2], [1, 1]), close), "channels last");
        assert!(pools(last, Pool { size: [2, 2], stride: [2, 2], padding: [0, 0] }, close));
        let part = (given::<4>(spread([3, 8, 9, 7], 1), format) + 1.0).slice([1..3, 0..8, 0..9, 0..7]);
        assert!(convolutions(part, w.clone(), how([2, 2], [1, 1]), close), "the end of a batch");
    }
    assert_eq!(fault(), None);
}

/// As [`convolutions`], for max pooling.
fn pools(x: Tensor<4>, how: Pool, tolerance: f32) -> bool {
    let what = format!("{:?} {:?} {how:?}", x.dtype(), x.dims());
    let tape_x = taped(&x);
    let their_y = max_pool2d(tape_x.clone(), how.size, how.stride, how.padding, [1, 1], false);
    let dy = given::<4>(spread(their_y.dims(), 3), x.dtype().into());
    let grads = (their_y.clone() * taped(&dy)).sum().backward();
    let Some(y) = pool_max(&x, how) else { panic!("{what}: refused") };
    same(&format!("{what} y"), y.clone(), their_y.inner(), 0.0);
    let Some(dx) = pool_max_back(&x, &y, &dy, how) else { panic!("{what}: refused") };
    same(&format!("{what} dx"), dx, tape_x.grad(&grads).unwrap(), tolerance);
    true
}

#[test]
#[ignore = "needs a GPU"]
fn largest_values_are_those_of_burn_on_gpu() {
    let _alone = alone();
    let square = |size, stride, padding| Pool { size: [size; 2], stride: [stride; 2], padding: [padding; 2] };
    for how in [square(3, 2, 1), square(2, 2, 0), square(3, 1, 1), square(1, 1, 0)] {
        for format in FORMATS {
            for shape in [[3, 5, 9, 11], [1, 1, 7, 7], [2, 64, 16, 16]] {
                assert!(pools(given(apart(shape), format), how, tolerance(format, 1e-5)));
            }
        }
    }
    // If all values are equal, exactly one of each window gets the gradient.
    let (how, x) = (square(2, 2, 0), Tensor::<4>::zeros([2, 3, 8, 8], &Device::cuda(0)));
    let y = pool_max(&x, how).unwrap();
    let dx = pool_max_back(&x, &y, &y.ones_like(), how).unwrap();
    assert_eq!(read(dx).iter().map(|value| [*value == 1.0, *value == 0.0]).filter(|is| is[0]).count(), 2 * 3 * 16);
    assert_eq!(fault(), None);
}

/// Alternates Burn and cuDNN, each on the previous result, without waiting, in memory that is freed and reused.
#[test]
#[ignore = "needs a GPU"]
fn work_stays_in_order_on_gpu() {
    let _alone = alone();
    let device = Device::cuda(0);
    let twice: Tensor<4> = Tensor::<2>::eye(64, &device).reshape([64, 64, 1, 1]) * 2.0;
    let mut value = Tensor::<4>::ones([4, 64, 28, 28], &device);
    for _ in 0..300 {
        let grown = value.mul_scalar(0.5).add_scalar(0.5);
        value = convolve(grown, twice.clone(), how([1, 1], [0, 0])).unwrap();
        // If the runtime considered an operand's memory free, this would overwrite it.
        drop(Tensor::<4>::full([4, 64, 28, 28], 1.0e6, &device) + 1.0);
    }
    assert_eq!(read(value).iter().filter(|value| **value != 301.0).count(), 0);
    assert_eq!(fault(), None);
}

#[test]
#[ignore = "needs a GPU"]
fn all_is_the_same_twice_on_gpu() {
    let _alone = alone();
    for format in FORMATS {
        let (x, w) = (given::<4>(spread([16, 32, 28, 28], 1), format), given::<4>(spread([64, 32, 3, 3], 2), format));
        let dy = given::<4>(spread([16, 64, 14, 14], 3), format);
        let how = Convolution { stride: [2, 2], padding: [1, 1], tf32: true, storage: Storage::Nchw };
        let once = || {
            let y = convolve(x.clone(), w.clone(), how).unwrap();
            let dx = of_input(dy.clone(), w.clone(), x.dims(), how).unwrap();
            let dw = of_weight(x.clone(), dy.clone(), w.dims(), how).unwrap();
            [read(y), read(dx), read(dw)]
        };
        let first = once();
        for _ in 0..5 {
            assert!(first == once(), "{format:?}");
        }
    }
    assert_eq!(fault(), None);
}

#[test]
#[ignore = "needs a GPU"]
fn failures_are_reported_on_gpu() {
    let _alone = alone();
    let x = Tensor::<1>::ones([1000], &Device::cuda(0)) + 1.0;
    let [y] = queue([primitive(&x).unwrap()], [([1000].into(), DType::F32)], 0, |_, _, _| Err(Fault::Absent));
    assert_eq!(read(tensor::<1>(y)).len(), 1000);
    assert!(fault().is_some());
    assert_eq!(read(x), [2.0; 1000]);
}

#[test]
#[ignore = "needs cuDNN"]
fn cudnn_accepts_the_descriptors() {
    use super::descriptors::{pooling, tensor};
    use crate::cuda::plan::Format;
    let dnn = library::dnn().unwrap();
    for format in [Format::F32, Format::F16, Format::Bf16] {
        tensor(dnn, format, [3, 5, 9, 7]).unwrap();
    }
    pooling(dnn, [3, 3], [2, 2], [1, 1]).unwrap();
    assert!(tensor(dnn, Format::F32, [0, 1, 1, 1]).is_err());
}

#[test]
fn windows_that_fit_are_counted() {
    assert_eq!(fitting([9, 7], [3, 3], [2, 2], [1, 1]), Some([5, 4]));
    assert_eq!(fitting([224, 224], [7, 7], [2, 2], [3, 3]), Some([112, 112]));
    assert_eq!(fitting([9, 7], [1, 1], [2, 2], [0, 0]), Some([5, 4]));
    assert_eq!(fitting([2, 7], [3, 3], [1, 1], [0, 0]), None);
    assert_eq!(fitting([9, 7], [3, 3], [0, 1], [0, 0]), None);
    assert!(countable([1, 2, 3, 4]) && !countable([1, 0, 3, 4]) && !countable([2, 1 << 30, 1, 1]));
}

#[test]
fn cudnn_refuses_host_tensors() {
    let device = Device::flex();
    let (x, w) = (Tensor::<4>::ones([1, 2, 5, 5], &device), Tensor::<4>::ones([3, 2, 3, 3], &device));
    assert!(pool_max(&x, Pool { size: [2, 2], stride: [2, 2], padding: [0, 0] }).is_none());
    assert!(convolve(x, w, how([1, 1], [0, 0])).is_none());
}
