//! Flat buckets in which the values of many tensors travel together.
//!
//! Knows lengths and places. A bucket begins with the tensor that a backward pass makes first: the last parameters come first.

use crate::number::real;
use crate::ops::{in_bucket, out_of_bucket};
use burn::tensor::Tensor;
use std::ops::Range;

/// Values of a bucket at most, but for a tensor that has more by itself: 32 MiB, which is short enough to be on its way while the rest of the backward pass goes on.
/// Tests have models that would lie in one.
pub const MOST: usize = if cfg!(test) { 4 << 10 } else { 8 << 20 };

/// Each tensor begins at a multiple of so many values, 256 bytes: what allocations begin at too, so that nothing that reads it has to go value by value.
const ALIGNED: usize = 64;

/// Tensors that travel together, and where each lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Which they are, in the order of all.
    pub tensors: Range<usize>,
    /// Where each begins, and how many values it has.
    pub places: Vec<(usize, usize)>,
    /// Values of the bucket, with the zeros between tensors.
    pub len: usize,
}

/// Shares tensors of these lengths out among buckets of at most so many values, from the last tensor to the first.
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
    /// The tensors' values, each times a factor, with zeros between them.
    pub fn gather(&self, tensors: Vec<Tensor<1>>, factor: f64) -> Tensor<1> {
        in_bucket(tensors, &self.places, self.len, factor)
    }

    /// The tensors whose values a bucket holds.
    pub fn scatter(&self, bucket: Tensor<1>) -> Vec<Tensor<1>> {
        out_of_bucket(&bucket, &self.places)
    }
}

/// All tensors in their buckets, each value times a factor.
pub fn gather(buckets: &[Bucket], mut tensors: Vec<Tensor<1>>, factor: f64) -> Vec<Tensor<1>> {
    let of = |bucket: &Bucket| bucket.gather(tensors.split_off(bucket.tensors.start.min(tensors.len())), factor);
    buckets.iter().map(of).collect()
}

/// All tensors of buckets, in their order.
pub fn scatter(buckets: &[Bucket], values: Vec<Tensor<1>>) -> Vec<Tensor<1>> {
    let mut parts: Vec<Vec<Tensor<1>>> =
        buckets.iter().zip(values).map(|(bucket, values)| bucket.scatter(values)).collect();
    parts.reverse();
    parts.into_iter().flatten().collect()
}

/// Of each tensor, the number of its bucket.
pub fn numbers(buckets: &[Bucket]) -> Vec<usize> {
    let mut numbers = vec![0; buckets.first().map_or(0, |last| last.tensors.end)];
    for (number, bucket) in buckets.iter().enumerate() {
        numbers[bucket.tensors.clone()].fill(number);
    }
    numbers
}

/// MiB of all buckets.
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
