//! Numbers for the tests of layers: drawing, moving between devices, reading and comparing.

use crate::parameters::{Init, ParamSpec, initial};
use crate::precision::exact;
use burn::tensor::{Device, Tensor};

/// Random numbers in [-1, 1).
pub fn uniform(seed: u64, len: usize) -> Vec<f32> {
    initial(&[ParamSpec::new("values", &[len], Init::Uniform(1.0))], seed).remove(0)
}

/// Random numbers in [`middle` - `bound`, `middle` + `bound`).
pub fn around(seed: u64, len: usize, middle: f32, bound: f32) -> Vec<f32> {
    let drawn = initial(&[ParamSpec::new("values", &[len], Init::Uniform(bound))], seed).remove(0);
    drawn.into_iter().map(|value| middle + value).collect()
}

/// Returns the same values in the same format on another device.
pub fn moved<const D: usize>(tensor: &Tensor<D>, device: &Device) -> Tensor<D> {
    Tensor::from_data(tensor.clone().into_data(), (device, tensor.dtype()))
}

/// Returns the values in float32.
pub fn read<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    exact(tensor).try_into_vec_as().expect("readable")
}

/// Returns the largest difference, relative to the largest value.
pub fn off(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let largest = theirs.iter().fold(1e-30_f32, |largest, value| largest.max(value.abs()));
    let apart = |(a, b): (&f32, &f32)| if a.is_nan() { f32::INFINITY } else { (a - b).abs() };
    ours.iter().zip(theirs).map(apart).fold(0.0, f32::max) / largest
}

/// As [`off`] in double precision; the largest value counts as at least a thousandth.
pub fn off_double(ours: &[f32], theirs: &[f64]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let largest = theirs.iter().fold(1e-3_f64, |largest, value| largest.max(value.abs()));
    let apart = |(a, b): (&f32, &f64)| if a.is_nan() { f64::INFINITY } else { (f64::from(*a) - b).abs() };
    ours.iter().zip(theirs).map(apart).fold(0.0, f64::max) / largest
}

/// Panics if a value is off by more than `tolerance`, relative to the largest.
#[track_caller]
pub fn near(what: &str, ours: &[f32], theirs: &[f32], tolerance: f32) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let largest = theirs.iter().fold(1e-30_f32, |largest, value| largest.max(value.abs()));
    for (place, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert!((a - b).abs() <= tolerance * largest, "{what}, value {place}: {a} and not {b}");
    }
}
