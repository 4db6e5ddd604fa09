//! Buckets against plain copies.

use super::*;

/// Returns more lengths than a launch can take, below, at and above a block's, each tensor at a multiple of 64 values.
fn lengths() -> Vec<usize> {
    (0..250).map(|n| [1, 3, 4, 63, 64, 65, 16_383, 16_384, 16_385, 40_000][n % 10] + n / 10).collect()
}

fn places(lengths: &[usize]) -> (Vec<(usize, usize)>, usize) {
    let mut start = 0;
    let places = lengths.iter().map(|length| {
        let place = (start, *length);
        start += length.next_multiple_of(64);
        place
    });
    (places.collect(), start)
}

#[test]
#[ignore = "needs a GPU"]
fn buckets_hold_what_was_gathered_and_give_it_back_on_gpu() {
    let lengths = lengths();
    let (places, len) = places(&lengths);
    let tensors: Vec<Tensor<1>> = lengths.iter().map(|length| random([*length])).collect();
    for factor in [1.0, 0.25] {
        let given: Vec<Tensor<1>> = tensors.iter().map(|tensor| moved(tensor, &card())).collect();
        let Some(bucket) = gathered(&given, &places, len, factor) else { panic!("refused") };
        let values = read(bucket.clone());
        let mut expected = vec![0.0; len];
        for ((start, length), tensor) in places.iter().zip(&tensors) {
            expected[*start..start + length].copy_from_slice(&read(tensor.clone() * factor));
        }
        assert!(values == expected, "a bucket times {factor}");
        let Some(back) = scattered(&bucket, &places) else { panic!("refused") };
        for (place, (back, tensor)) in back.into_iter().zip(&tensors).enumerate() {
            same(back, tensor.clone() * factor, &format!("tensor {place} times {factor}"));
        }
    }
}
