use super::*;
use crate::detection::mask::tests::drawn;
use proptest::prelude::*;

fn near(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}, not {expected:?}");
}

/// 2 × 2 cells of 2 × 2 pixels with two samples per axis, at ½ and 1½ pixels of the cell. A sample's value is the mean of its pixel and
/// the next one. In the left cells these are pixels 0 and 1, then 1 and 2. Only column 2 is set: half of the second sample, a quarter
/// of the cell. In the right cells they are 2 and 3, then 3 and the image's edge: a half and nothing.
#[test]
fn targets_match_values_computed_by_hand() {
    let mask = drawn(&["..#.", "..#.", "..#.", "..#."]);
    near(&mask.aligned(Xyxy::new([0.0, 0.0, 4.0, 4.0]), 2), &[0.25, 0.25, 0.25, 0.25]);
    // One sample at (2, 1) is the pixel itself; at (2¼, 1) it is three quarters of it.
    near(&mask.aligned(Xyxy::new([1.5, 0.5, 2.5, 1.5]), 1), &[1.0]);
    near(&mask.aligned(Xyxy::new([1.75, 0.5, 2.75, 1.5]), 1), &[0.75]);
    // The box is at least 1 wide and high: the only sample is at (2.5, 1.5).
    near(&mask.aligned(Xyxy::new([2.0, 1.0, 2.0, 1.0]), 1), &[0.5]);
    // Samples more than a pixel outside the image are 0: those at −2.5, −1.5 and 4.5.
    let full = drawn(&["####"; 4]);
    near(&full.aligned(Xyxy::new([-3.0, 0.0, 5.0, 4.0]), 2), &[0.5, 0.75, 0.5, 0.75]);
    near(&full.aligned(Xyxy::new([f32::NAN, 0.0, 5.0, 4.0]), 2), &[0.0; 4]);
    near(&Mask::clear(full.size()).aligned(Xyxy::new([0.0, 0.0, 4.0, 4.0]), 3), &[0.0; 9]);
    assert!(full.aligned(Xyxy::new([0.0, 0.0, 4.0, 4.0]), 0).is_empty());
}

/// One cell of probability 1 with its padding, over a box of 3 × 3 pixels at (1, 1). The box grows to (−2, −2) … (7, 7), which is 10
/// pixels, so a pixel is 0.3 of a cell. The weight is above ½ from the fourth pixel, at 0.3 · 3.5 − 0.5 = 0.55, to the seventh.
#[test]
fn a_pasted_cell_matches_values_computed_by_hand() {
    let mask = Mask::pasted(Size { width: 8, height: 7 }, Xyxy::new([1.0, 1.0, 4.0, 4.0]), 1, &[1.0]);
    // The weights of both axes are 0.55, 0.85, 0.85 and 0.55, and their product must be above ½: 0.55 · 0.85 is not.
    assert_eq!(mask, drawn(&["........", "........", "..##....", "..##....", "........", "........", "........"]));
}

#[test]
fn pixels_outside_the_image_are_cut_off() {
    let size = Size { width: 6, height: 5 };
    let paste = |array| Mask::pasted(size, Xyxy::new(array), 4, &[1.0; 16]).counts().to_vec();
    assert_eq!(paste([-50.0, -50.0, 60.0, 60.0]), [0, 30]);
    assert_eq!(paste([10.0, 1.0, 20.0, 4.0]), [30]);
    assert_eq!(paste([-1e30, -1e30, 1e30, 1e30]), [0, 30]);
    assert_eq!(paste([f32::NAN; 4]), [30]);
    assert_eq!(paste([4.0, 4.0, 1.0, 1.0]), [30]);
    // Probabilities of at most ½ set no pixel.
    assert_eq!(Mask::pasted(size, Xyxy::new([0.0, 0.0, 6.0, 5.0]), 4, &[0.5; 16]), Mask::clear(size));
    assert_eq!(Mask::pasted(size, Xyxy::new([0.0, 0.0, 6.0, 5.0]), 0, &[]), Mask::clear(size));
}

/// The definition: interpolates every sample of every cell between its four pixels.
fn naive(mask: &Mask, bounds: Xyxy, side: usize) -> Vec<f64> {
    let (width, height) = (f64::from(mask.size().width), f64::from(mask.size().height));
    let pixels = mask.to_bitmap();
    let pixel = |x: f64, y: f64| {
        let at = |value: f64, most: f64| usize::try_from(whole(value.min(most - 1.0))).expect("small");
        f64::from(pixels[at(y, height) * usize::from(mask.size().width) + at(x, width)])
    };
    let value = |x: f64, y: f64| {
        if x < -1.0 || y < -1.0 || x > width || y > height {
            return 0.0;
        }
        let (x, y) = (x.clamp(0.0, width - 1.0), y.clamp(0.0, height - 1.0));
        let (right, below) = (x.fract(), y.fract());
        let upper = pixel(x, y) * (1.0 - right) + pixel(x + 1.0, y) * right;
        let lower = pixel(x, y + 1.0) * (1.0 - right) + pixel(x + 1.0, y + 1.0) * right;
        upper * (1.0 - below) + lower * below
    };
    let [left, top] = [bounds.left, bounds.top].map(f64::from);
    // Rounded to float32 as in the implementation, as the number of samples is rounded up from it.
    let step = |extent: f32| f64::from(extent.max(1.0) / single(real_len(side)));
    let (wide, high) = (step(bounds.width()), step(bounds.height()));
    let mut grid = Vec::new();
    for cell in 0..side * side {
        let (x, y) = (left + real_len(cell % side) * wide, top + real_len(cell / side) * high);
        let mut sum = 0.0;
        for sample in 0..whole(wide.ceil()) * whole(high.ceil()) {
            let (across, down) = (sample % whole(wide.ceil()), sample / whole(wide.ceil()));
            let part = |step: f64, sample: u32| (f64::from(sample) + 0.5) * step / step.ceil();
            sum += value(x + part(wide, across), y + part(high, down));
        }
        grid.push(sum / (wide.ceil() * high.ceil()));
    }
    grid
}

proptest! {
    #[test]
    fn targets_match_the_definition(
        width in 1_u16..20, height in 1_u16..20, of in 1_u64..5, key: u64, side in 1_usize..9,
        left in -20_i16..80, top in -20_i16..80, wide in 0_u16..100, high in 0_u16..100,
    ) {
        let pixel = |at: u64| u8::from((at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33 & 7 < of);
        let pixels: Vec<u8> = (0..u64::from(width) * u64::from(height)).map(pixel).collect();
        let mask = Mask::from_bitmap(Size { width, height }, &pixels);
        let (left, top) = (f32::from(left) / 4.0, f32::from(top) / 4.0);
        let bounds = Xyxy::new([left, top, left + f32::from(wide) / 4.0, top + f32::from(high) / 4.0]);
        // The offset avoids samples exactly one pixel outside the image, which rounding may move to either side of the bound.
        let beside = Xyxy::new(bounds.array().map(|edge| edge + 0.003_141_59));
        for (found, expected) in mask.aligned(beside, side).iter().zip(naive(&mask, beside, side)) {
            prop_assert!((f64::from(*found) - expected).abs() < 1e-5, "{found}, not {expected}");
        }
    }
}
