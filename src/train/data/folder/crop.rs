//! Crops of a picture: torchvision's `RandomResizedCrop`, and `Resize` with `CenterCrop`.
//!
//! Knows sizes and nothing of pixels. Uses only operations that IEEE 754 rounds in one way, so that every machine gets
//! the same crops.

use crate::number::whole;
use crate::rng::Rng;

/// The minimum fraction of the area that a crop covers; the maximum is 1.
const SCALE: f64 = 0.08;

/// The aspect ratio of a crop is between 3/4 and 4/3; this is the natural logarithm of the latter.
const LOG_RATIO: f64 = 0.287_682_072_451_780_96;

/// The number of tries for a crop that fits.
const TRIES: usize = 10;

/// A part of a picture in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crop {
    /// Pixels to its left.
    pub left: u32,
    /// Pixels above it.
    pub top: u32,
    /// Its width.
    pub width: u32,
    /// Its height.
    pub height: u32,
}

/// Returns a random part of 8% to 100% of the area, at most a third wider than high or higher than wide. If none of ten
/// tries fits, returns the largest such part in the middle.
pub fn random(width: u32, height: u32, rng: &mut Rng) -> Crop {
    let (wide, high) = (f64::from(width), f64::from(height));
    for _ in 0..TRIES {
        let area = wide * high * (SCALE + (1.0 - SCALE) * f64::from(rng.unit()));
        let ratio = exp(LOG_RATIO * (2.0 * f64::from(rng.unit()) - 1.0));
        let (w, h) = (rounded((area * ratio).sqrt()), rounded((area / ratio).sqrt()));
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            let (top, left) = (below(rng, height - h), below(rng, width - w));
            return Crop { left, top, width: w, height: h };
        }
    }
    if wide / high < 0.75 {
        return middle(width, height, width, rounded(wide / 0.75).min(height));
    }
    if wide / high > 4.0 / 3.0 {
        return middle(width, height, rounded(high * (4.0 / 3.0)).min(width), height);
    }
    Crop { left: 0, top: 0, width, height }
}

fn middle(width: u32, height: u32, w: u32, h: u32) -> Crop {
    Crop { left: (width - w) / 2, top: (height - h) / 2, width: w, height: h }
}

/// Returns the size to which an evaluation picture is scaled: the shorter side is 256/224 of `side`, the other is in
/// proportion and rounded down.
pub fn resized(width: u32, height: u32, side: u32) -> (u32, u32) {
    let short = rounded(f64::from(side) * 256.0 / 224.0);
    let long = |long: u32, by: u32| whole(f64::from(short) * f64::from(long) / f64::from(by));
    if width <= height { (short, long(height, width)) } else { (long(width, height), short) }
}

/// Returns the start of the middle `side` of `length`, with a half rounded to the even number.
pub fn centred(length: u32, side: u32) -> u32 {
    rounded(f64::from(length.saturating_sub(side)) / 2.0)
}

/// Returns the part of a strip that can affect the middle of the scaled picture; the whole of other pictures. It bounds
/// the memory that a picture of 65535 × 1 would take.
pub fn unstripped(width: u32, height: u32) -> Crop {
    const LONGEST: u32 = 4;
    middle(width, height, width.min(height.saturating_mul(LONGEST)), height.min(width.saturating_mul(LONGEST)))
}

fn rounded(value: f64) -> u32 {
    whole(value.round_ties_even())
}

/// Returns a whole number from 0 to `last`.
fn below(rng: &mut Rng, last: u32) -> u32 {
    let bound = usize::try_from(last).unwrap_or(usize::MAX - 1) + 1;
    u32::try_from(rng.below(bound)).unwrap_or(0)
}

/// Returns the exponential of a number between -0.3 and 0.3 to 13 digits, by its Taylor series: the standard library's
/// own may differ between machines.
fn exp(x: f64) -> f64 {
    (1..=10_u8).rev().fold(1.0, |sum, n| 1.0 + sum * x / f64::from(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Rng, Stream};
    use proptest::prelude::*;

    #[test]
    fn evaluation_sizes_are_those_of_torchvision() {
        assert_eq!(resized(500, 375, 224), (341, 256));
        assert_eq!(resized(333, 500, 224), (256, 384));
        assert_eq!(resized(40, 40, 32), (37, 37));
        assert_eq!((centred(341, 224), centred(256, 224), centred(37, 32), centred(227, 224)), (58, 16, 2, 2));
    }

    #[test]
    fn only_strips_are_shortened() {
        assert_eq!(unstripped(500, 375), Crop { left: 0, top: 0, width: 500, height: 375 });
        assert_eq!(unstripped(65_535, 1), Crop { left: 32_765, top: 0, width: 4, height: 1 });
    }

    #[test]
    fn a_strip_falls_back_to_its_middle() {
        let crop = |width, height| random(width, height, &mut Rng::new(1, Stream::Augment, 2));
        assert_eq!(crop(30, 3000), Crop { left: 0, top: 1480, width: 30, height: 40 });
        assert_eq!(crop(3000, 30), Crop { left: 1480, top: 0, width: 40, height: 30 });
    }

    #[test]
    fn the_series_is_the_exponential() {
        for x in [-LOG_RATIO, -0.1, 0.0, 0.2, LOG_RATIO] {
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-13, "{x}");
        }
    }

    #[test]
    fn areas_and_ratios_spread_over_what_is_allowed() {
        let mut rng = Rng::new(3, Stream::Augment, 1);
        let crops: Vec<Crop> = (0..4000).map(|_| random(1000, 1000, &mut rng)).collect();
        let area = |crop: &Crop| f64::from(crop.width) * f64::from(crop.height) / 1e6;
        let ratio = |crop: &Crop| f64::from(crop.width) / f64::from(crop.height);
        assert!(crops.iter().all(|crop| (0.0799..=1.0).contains(&area(crop)) && (0.745..1.345).contains(&ratio(crop))));
        let part = |of: &dyn Fn(&Crop) -> bool| crops.iter().filter(|crop| of(crop)).count();
        // Almost every crop of up to half the area fits, and 46% of the tries have at most that. As many are wide as
        // high.
        assert!((1800..2300).contains(&part(&|crop| area(crop) < 0.5)), "{}", part(&|crop| area(crop) < 0.5));
        assert!((1800..2200).contains(&part(&|crop| ratio(crop) < 1.0)), "{}", part(&|crop| ratio(crop) < 1.0));
        assert!(part(&|crop| area(crop) > 0.9) > 40 && part(&|crop| area(crop) < 0.1) > 40);
    }

    proptest! {
        #[test]
        fn a_crop_lies_within_the_picture(seed: u64, width in 1..3000_u32, height in 1..3000_u32) {
            let crop = random(width, height, &mut Rng::new(seed, Stream::Augment, 0));
            prop_assert!(crop.width > 0 && crop.left + crop.width <= width);
            prop_assert!(crop.height > 0 && crop.top + crop.height <= height);
        }
    }
}
