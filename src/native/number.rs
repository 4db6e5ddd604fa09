//! Conversions between number types that `From` cannot make.
//!
//! Each documents what it loses. Everything else converts with `From` and `TryFrom`. They are marked for inlining,
//! because inner loops of other crates use them.

/// A count as a real number; exact below 2^53, which no count of ours reaches.
#[expect(clippy::cast_precision_loss, reason = "documented")]
#[inline]
pub fn real(count: u64) -> f64 {
    count as f64
}

/// A length as a real number; see [`real`].
#[expect(clippy::cast_precision_loss, reason = "documented")]
#[inline]
pub fn real_len(len: usize) -> f64 {
    len as f64
}

/// The float32 nearest to `value`; infinite beyond its range.
#[expect(clippy::cast_possible_truncation, reason = "rounding to nearest is what is asked for")]
#[inline]
pub fn single(value: f64) -> f32 {
    value as f32
}

/// The upper 24 bits of `bits` as a float32 in [0, 1): a multiple of 2^-24, exact.
#[expect(clippy::cast_precision_loss, reason = "24 bits fit into a float32's significand")]
#[inline]
pub fn fraction(bits: u64) -> f32 {
    (bits >> 40) as f32 * (1.0 / 16_777_216.0)
}

/// A grey value: `value` clamped to 0..=255, its fraction cut off; NaN becomes 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
#[inline]
pub fn grey(value: f32) -> u8 {
    value.clamp(0.0, 255.0) as u8
}

/// The grey value nearest to `value`, which is clamped to 0..=255 first; of two, the even one. NaN has no particular value.
///
/// Unlike a conversion of floating point to a byte, which no vector unit of x86-64's baseline has, this keeps loops vectorised:
/// a float32 of 2^23 and more has no fraction, so that the last byte of the sum's bits is the rounded value.
#[inline]
pub fn nearest_grey(value: f32) -> u8 {
    (value.clamp(0.0, 255.0) + 8_388_608.0).to_bits().to_le_bytes()[0]
}

/// The whole part of `share` times `len`; 0 for NaN and below 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cut off as documented")]
#[inline]
pub fn part(len: usize, share: f64) -> usize {
    (real_len(len) * share) as usize
}

/// The whole part of a number, clamped to what a u32 holds; NaN becomes 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cut off and clamped as documented")]
#[inline]
pub fn whole(value: f64) -> u32 {
    value as u32
}

/// The whole part of a number, clamped to what an i32 holds; NaN becomes 0.
#[expect(clippy::cast_possible_truncation, reason = "cut off and clamped as documented")]
#[inline]
pub fn truncated(value: f64) -> i32 {
    value as i32
}

/// The pixel that holds a coordinate, clamped to 0..=`last`; NaN becomes 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
#[inline]
pub fn pixel(coordinate: f32, last: u8) -> usize {
    usize::from(coordinate.clamp(0.0, f32::from(last)) as u8)
}

/// A length as the 64 bits that are hashed or counted.
#[inline]
pub fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_grey_value_is_clamped_and_rounded() {
        let cases = [(-3.0, 0), (0.49, 0), (0.5, 0), (0.51, 1), (1.5, 2), (127.49, 127), (254.6, 255), (900.0, 255)];
        for (value, expected) in cases {
            assert_eq!(nearest_grey(value), expected, "{value}");
        }
    }
}
