//! Flat buckets, in which the values of many tensors are communicated together.
//!
//! Knows lengths and offsets. The first bucket has the last parameters, because a backward pass computes their
//! gradients first.

use crate::number::real;
use crate::ops::{in_bucket, out_of_bucket};
use burn::tensor::Tensor;
use std::ops::Range;

/// The maximum number of values in a bucket (32 MiB); a larger tensor has a bucket of its own. A bucket of this size
/// can be communicated while the backward pass continues. Tests use a smaller limit, because their models would fit
/// into one bucket.
pub const MOST: usize = if cfg!(test) { 4 << 10 } else { 8 << 20 };

/// The alignment of tensors in values: 256 bytes, as for allocations, so that kernels can use vector loads.
const ALIGNED: usize = 64;

/// A bucket: tensors that are communicated together, and their places in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The tensors' range in the order of all tensors.
    pub tensors: Range<usize>,
    /// The offset and the number of values of each tensor.
    pub places: Vec<(usize, usize)>,
    /// The number of values, with the zeros between tensors.
    pub len: usize,
}

/// Distributes tensors of these lengths over buckets of at most `most` values, from the last tensor to the first.
pub fn buckets(lengths: &[usize], most: usize) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    let mut end = lengths.len();
    while end > 0 {
        let mut begin = end;
        let mut len = 0;
        while begin > 0 && (begin == end || len + room(lengths[begin - 1]) <= most) {
            begin -= 1;
            len += room(lengths[begin]);
        }
        let mut places = Vec::with_capacity(end - begin);
        let mut start = 0;
        for length in &lengths[begin..end] {
            places.push((start, *length));
            start += room(*length);
        }
        buckets.push(Bucket { tensors: begin..end, places, len });
        end = begin;
    }
    buckets
}

fn room(length: usize) -> usize {
    length.next_multiple_of(ALIGNED)
}

impl Bucket {
    /// Returns the tensors' values, each times a factor, with zeros between tensors.
    pub fn gather(&self, tensors: Vec<Tensor<1>>, factor: f64) -> Tensor<1> {
        in_bucket(tensors, &self.places, self.len, factor)
    }

    /// Returns the tensors of a bucket's values.
    pub fn scatter(&self, bucket: Tensor<1>) -> Vec<Tensor<1>> {
        out_of_bucket(&bucket, &self.places)
    }
}

/// Returns the buckets of all tensors, each value times a factor.
pub fn gather(buckets: &[Bucket], mut tensors: Vec<Tensor<1>>, factor: f64) -> Vec<Tensor<1>> {
    let of = |bucket: &Bucket| bucket.gather(tensors.split_off(bucket.tensors.start.min(tensors.len())), factor);
    buckets.iter().map(of).collect()
}

/// Returns the tensors of all buckets, in order.
pub fn scatter(buckets: &[Bucket], values: Vec<Tensor<1>>) -> Vec<Tensor<1>> {
    let mut parts: Vec<Vec<Tensor<1>>> =
        buckets.iter().zip(values).map(|(bucket, values)| bucket.scatter(values)).collect();
    parts.reverse();
    parts.into_iter().flatten().collect()
}

/// Returns the bucket number of each tensor.
pub fn numbers(buckets: &[Bucket]) -> Vec<usize> {
    let mut numbers = vec![0; buckets.first().map_or(0, |last| last.tensors.end)];
    for (number, bucket) in buckets.iter().enumerate() {
        numbers[bucket.tensors.clone()].fill(number);
    }
    numbers
}

/// Returns the MiB of all buckets.
pub fn mebibytes(buckets: &[Bucket]) -> f64 {
    buckets.iter().map(|bucket| real(crate::number::wide(bucket.len))).sum::<f64>() * 4.0 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::{real_len, single};
    use burn::tensor::{Device, TensorData};

    #[test]
    fn every_tensor_is_in_one_bucket_and_the_last_come_first() {
        let lengths = [5, 64, 1, 1000, 64, 65];
        assert_eq!(
            buckets(&lengths, 256),
            [
                Bucket { tensors: 4..6, places: vec![(0, 64), (64, 65)], len: 192 },
                Bucket { tensors: 3..4, places: vec![(0, 1000)], len: 1024 },
                Bucket { tensors: 0..3, places: vec![(0, 5), (64, 64), (128, 1)], len: 192 },
            ]
        );
        assert_eq!(buckets(&lengths, usize::MAX).len(), 1);
        assert_eq!(buckets(&[], 256), []);
    }

    #[test]
    fn scatter_returns_gathered_tensors_times_the_factor() {
        let lengths = [5, 64, 1, 1000, 64, 65];
        let values =
            |place: usize| (0..lengths[place]).map(move |n| single((real_len(n) + 1.0) * (real_len(place) + 0.5)));
        let tensors = || -> Vec<Tensor<1>> {
            let of = |place| {
                Tensor::from_data(TensorData::from(values(place).collect::<Vec<f32>>().as_slice()), &Device::flex())
            };
            (0..lengths.len()).map(of).collect()
        };
        for most in [1, 256, MOST] {
            for factor in [1.0, 0.25] {
                let plan = buckets(&lengths, most);
                let gathered = gather(&plan, tensors(), factor);
                let total: f64 =
                    gathered.iter().map(|bucket| f64::from(bucket.clone().sum().into_scalar::<f32>())).sum();
                let expected: f64 = (0..lengths.len()).flat_map(values).map(|value| f64::from(value) * factor).sum();
                assert!((total - expected).abs() < 1e-5 * expected, "{total} and not {expected}");
                assert!(gathered.iter().zip(&plan).all(|(values, bucket)| values.dims() == [bucket.len]));
                for (place, tensor) in scatter(&plan, gathered).into_iter().enumerate() {
                    let found: Vec<f32> = tensor.try_into_vec_as().expect("readable");
                    let expected: Vec<f32> = values(place).map(|value| value * single(factor)).collect();
                    assert_eq!(found, expected, "tensor {place}");
                }
            }
        }
    }
}
