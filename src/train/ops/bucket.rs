//! Packs many tensors in one bucket, and unpacks them.

use crate::native::kernels;
use crate::number::single;
use crate::ops::joined;
use burn::tensor::Tensor;

/// Packs tensors, multiplied by a factor, in a bucket of `len` values. Each lies at its place (start and length), with
/// zeros up to the next one.
pub fn in_bucket(tensors: Vec<Tensor<1>>, places: &[(usize, usize)], len: usize, factor: f64) -> Tensor<1> {
    if let Some(bucket) = kernels::gathered(&tensors, places, len, single(factor)) {
        return bucket;
    }
    let ends = places.iter().skip(1).map(|(start, _)| *start).chain([len]);
    let mut pieces = Vec::with_capacity(2 * tensors.len());
    for ((tensor, (start, length)), end) in tensors.into_iter().zip(places).zip(ends) {
        let (zeros, device) = (end - start - length, tensor.device());
        pieces.push(if factor == 1.0 { tensor } else { tensor * factor });
        if zeros > 0 {
            pieces.push(Tensor::zeros([zeros], &device));
        }
    }
    joined(pieces)
}

/// The tensors at these places (start and length) of a bucket.
pub fn out_of_bucket(bucket: &Tensor<1>, places: &[(usize, usize)]) -> Vec<Tensor<1>> {
    kernels::scattered(bucket, places)
        .unwrap_or_else(|| places.iter().map(|(start, length)| bucket.clone().narrow(0, *start, *length)).collect())
}
