//! Dropout with masks that depend only on a key and the place of a value.

use crate::forward_context::ForwardContext;
use crate::native::kernels;
use burn::tensor::{DType, Device, Int, Tensor};

/// Sets a share of the values to zero and scales the others by 1/(1-share); does nothing if the share is 0. The backward pass is the same
/// function of the gradient.
pub fn dropped<const D: usize>(x: Tensor<D>, key: u32, share: f64) -> Tensor<D> {
    if share <= 0.0 {
        return x;
    }
    if let Some(kernel) = kernels::drop(&x, key, share) {
        return kernel(x);
    }
    let dims = x.dims();
    let mask = kept(key, dims.iter().product(), share, &x.device()) * (1.0 / (1.0 - share));
    let mask = mask.cast(x.dtype()).reshape(dims);
    x * mask
}

/// [`dropped`] on the tape.
pub fn dropped_on_tape<const D: usize>(ctx: &ForwardContext<'_>, x: Tensor<D>, key: u32, share: f64) -> Tensor<D> {
    let answer = dropped(ctx.off_tape(x.clone()), key, share);
    ctx.recorded(|| [x.into()], answer, move |gradient, _| [Some(dropped(gradient, key, share).into())])
}

/// The mask: 1 where a value is kept, 0 where it is dropped.
///
/// The random number of value n is a hash of n and the key by MurmurHash3's finaliser (Appleby 2011). Its upper 24 bits
/// are compared with the share.
fn kept(key: u32, len: usize, share: f64, device: &Device) -> Tensor<1> {
    let end = i64::try_from(len).unwrap_or(i64::MAX);
    let n: Tensor<1, Int> = Tensor::arange(0..end, (device, DType::U32));
    let bits = mix(mix(n * 0x9e37_79b9_u32) + key);
    bits.bitwise_right_shift_scalar(8_u32).float().greater_equal_elem(share * 16_777_216.0).float()
}

fn mix(h: Tensor<1, Int>) -> Tensor<1, Int> {
    let shifted = |h: Tensor<1, Int>, by: u32| h.clone().bitwise_xor(h.bitwise_right_shift_scalar(by));
    let h = shifted(h, 16) * 0x85eb_ca6b_u32;
    let h = shifted(h, 13) * 0xc2b2_ae35_u32;
    shifted(h, 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix_of(mut h: u32) -> u32 {
        h ^= h >> 16;
        h = h.wrapping_mul(0x85eb_ca6b);
        h ^= h >> 13;
        h = h.wrapping_mul(0xc2b2_ae35);
        h ^ (h >> 16)
    }

    #[test]
    fn masks_match_32_bit_integer_arithmetic() {
        let mask: Vec<f32> = kept(0xdead_beef, 5000, 0.3, &Device::flex()).try_into_vec_as().expect("readable");
        for (n, kept) in (0_u32..).zip(&mask) {
            let bits = mix_of(mix_of(n.wrapping_mul(0x9e37_79b9)).wrapping_add(0xdead_beef)) >> 8;
            assert_eq!(*kept == 1.0, f64::from(bits) >= 0.3 * 16_777_216.0, "{n}");
        }
    }

    #[test]
    fn a_mask_drops_its_share_and_depends_on_its_key() {
        let mask = |key| -> Vec<f32> { kept(key, 100_000, 0.1, &Device::flex()).try_into_vec_as().expect("readable") };
        for key in 0..20 {
            let mask = mask(key);
            let share = mask.iter().filter(|kept| **kept == 0.0).count();
            // 10,000 with a standard deviation of 95; 5 of them are allowed.
            assert!((9_525..10_475).contains(&share), "{key}: {share}");
            let pairs = mask.windows(2).filter(|pair| pair == &[0.0, 0.0]).count();
            assert!((800..1_200).contains(&pairs), "{key}: {pairs} neighbours are dropped together");
        }
        let [a, b] = [mask(1), mask(2)];
        let both = a.iter().zip(&b).filter(|(a, b)| **a == 0.0 && **b == 0.0).count();
        assert!((800..1_200).contains(&both), "{both} are dropped by both");
    }
}
