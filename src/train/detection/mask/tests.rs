use super::*;
use proptest::prelude::*;

fn size(width: u16, height: u16) -> Size {
    Size { width, height }
}

/// A mask from rows of `#` and `.`.
pub(super) fn drawn(rows: &[&str]) -> Mask {
    let pixels: Vec<u8> = rows.iter().flat_map(|row| row.bytes()).map(|byte| u8::from(byte == b'#')).collect();
    let side = |len| u16::try_from(len).expect("small");
    Mask::from_bitmap(size(side(rows[0].len()), side(rows.len())), &pixels)
}

#[test]
fn runs_are_in_column_order() {
    let mask = drawn(&[
        "..#.", //
        ".##.", ".#..",
    ]);
    // Column 0: 3 clear; column 1: 1 clear, 2 set; column 2: 2 set (they touch), 1 clear; column 3: 3 clear.
    assert_eq!(mask.counts(), [4, 4, 4]);
    assert_eq!((mask.area(), mask.bounds()), (4, Xywh::new([1.0, 0.0, 2.0, 3.0])));
    assert_eq!(mask.to_bitmap(), [0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0]);
    assert_eq!(drawn(&["#.", "#."]).counts(), [0, 2, 2]);
    assert_eq!(drawn(&["..", ".#"]).counts(), [3, 1]);
    assert_eq!(drawn(&["##"]).counts(), [0, 2]);
}

#[test]
fn bounds_are_the_smallest_box_around_the_set_pixels() {
    assert_eq!(drawn(&["....", ".#..", ".#.#"]).bounds(), Xywh::new([1.0, 1.0, 3.0, 2.0]));
    assert_eq!(Mask::clear(size(5, 4)).bounds(), Xywh::new([0.0; 4]));
    assert_eq!(drawn(&["##", "##"]).bounds(), Xywh::new([0.0, 0.0, 2.0, 2.0]));
}

/// Squares of 2 × 2 and 3 × 3 pixels that share one pixel: the IoU is 1 / (4 + 9 − 1), and with a crowd a quarter or a ninth.
#[test]
fn overlaps_match_values_computed_by_hand() {
    let (a, b) = (drawn(&["##..", "##..", "....", "...."]), drawn(&["....", ".###", ".###", ".###"]));
    assert_eq!((a.intersection(&b), a.iou(&b, false), a.iou(&b, true)), (1, 1.0 / 12.0, 1.0 / 4.0));
    assert_eq!(b.iou(&a, true), 1.0 / 9.0);
    assert_eq!(Mask::union(size(4, 4), [&a, &b]).area(), 12);
    let clear = Mask::clear(size(4, 4));
    assert_eq!((clear.iou(&clear, false), clear.iou(&a, true)), (0.0, 0.0));
    assert_eq!(Mask::iou_matrix(&[&a, &clear], &[&b, &a], &[false, true]), [1.0 / 12.0, 1.0, 0.0, 0.0]);
    assert_eq!(a.intersection(&Mask::clear(size(2, 8))), 0);
}

#[test]
fn run_lengths_must_fill_the_image() {
    let read = |counts: &[u32]| Mask::from_counts(size(3, 2), counts).map(|mask| mask.counts().to_vec());
    assert_eq!(read(&[1, 2, 3]), Ok(vec![1, 2, 3]));
    // Runs of length 0 join their neighbours.
    assert_eq!(read(&[1, 2, 0, 1, 2, 0]), Ok(vec![1, 3, 2]));
    assert_eq!(read(&[0, 0, 6]), Ok(vec![6]));
    let fault = read(&[1, 2]).expect_err("too few").to_string();
    assert_eq!(fault, "the run lengths add up to 3 (a picture of 3 × 2 has 6 pixels)");
    assert!(matches!(read(&[u32::MAX, u32::MAX]), Err(MaskError::Sum { found: 8_589_934_590, .. })));
    assert_eq!(Mask::from_counts(size(0, 5), &[]), Ok(Mask::clear(size(0, 5))));
}

/// 5 is one group, and 40 is 8 and then 1. From the fourth length on the text has differences: 3 − 40 = −37 is 27 (−37 + 64),
/// and the rest −2 is 30.
#[test]
fn the_compressed_form_matches_one_computed_by_hand() {
    let mask = Mask::from_counts(size(5, 10), &[5, 40, 2, 3]).expect("50 pixels");
    let code = |group: u32| char::from_u32(48 + group).expect("ASCII");
    let text: String = [5, 32 + 8, 1, 2, 32 + 27, 30].map(code).into_iter().collect();
    assert_eq!(mask.to_compressed(), text);
    assert_eq!(Mask::from_compressed(size(5, 10), &text), Ok(mask));
}

#[test]
fn damaged_text_is_an_error() {
    let fault = |text: &str| Mask::from_compressed(size(5, 10), text).expect_err("damaged").to_string();
    assert_eq!(
        fault("5 5"),
        "the compressed run lengths have ' ' at character 1 (only `0` to `o` of ASCII can be there)"
    );
    assert_eq!(
        fault("5é"),
        "the compressed run lengths have 'é' at character 1 (only `0` to `o` of ASCII can be there)"
    );
    assert_eq!(fault("5X"), "the compressed run lengths end within a number (the text is cut off)");
    let damaged = "of the compressed form is below 0 or has more than 32 bits (the text is damaged)";
    assert_eq!(fault("5O"), format!("run length 1 {damaged}"));
    assert_eq!(fault("oooooo?"), format!("run length 0 {damaged}"));
    assert_eq!(fault(&"o".repeat(100)), format!("run length 0 {damaged}"));
    assert_eq!(fault("5"), "the run lengths add up to 5 (a picture of 5 × 10 has 50 pixels)");
    assert!(fault("").contains("add up to 0"));
}

/// A pixel is drawn if the middle of its column is inside, from the first row that begins below the edge's row minus a half.
#[test]
fn rectangles_with_integer_corners_are_exact() {
    let rectangle = |[left, top, right, bottom]: [f64; 4]| {
        Mask::from_polygon(size(6, 5), &[left, top, right, top, right, bottom, left, bottom])
    };
    let expected = drawn(&["......", ".###..", ".###..", "......", "......"]);
    assert_eq!(rectangle([1.0, 1.0, 4.0, 3.0]), expected);
    assert_eq!(rectangle([0.0, 0.0, 6.0, 5.0]).counts(), [0, 30]);
    // Pixels outside the image are cut off, at any distance.
    assert_eq!(rectangle([-3.0, -3.0, 60.0, 50.0]).counts(), [0, 30]);
    assert_eq!(rectangle([-1e300, -1e300, 1e300, 1e300]).counts(), [0, 30]);
    assert_eq!(rectangle([7.0, 1.0, 9.0, 3.0]), Mask::clear(size(6, 5)));
}

#[test]
fn degenerate_polygons_have_no_pixels() {
    let clear = Mask::clear(size(6, 5));
    for corners in [&[][..], &[1.0], &[1.0, 1.0], &[1.0, 1.0, 4.0, 4.0], &[f64::NAN; 6], &[2.0; 8]] {
        assert_eq!(Mask::from_polygon(size(6, 5), corners), clear, "{corners:?}");
    }
    assert_eq!(Mask::from_polygons(size(6, 5), &[[0.0; 6]; 0]), clear);
    assert_eq!(Mask::from_polygon(size(0, 0), &[0.0, 0.0, 4.0, 0.0, 4.0, 4.0]).area(), 0);
}

#[test]
fn a_part_is_placed_at_its_position() {
    let part = [0, 1, 1, 1, 0, 1];
    let put = |at| Mask::from_part(size(4, 3), at, 3, &part);
    assert_eq!(put((1, 1)), drawn(&["....", "..##", ".#.#"]));
    assert_eq!(put((2, 2)), drawn(&["....", "....", "...#"]));
    assert_eq!(put((4, 0)), Mask::clear(size(4, 3)));
    assert_eq!(put((0, 9)), Mask::clear(size(4, 3)));
    assert_eq!(Mask::from_part(size(4, 3), (0, 0), 0, &part), Mask::clear(size(4, 3)));
    let edge = size(u16::MAX, 1);
    assert_eq!(Mask::from_part(edge, (u16::MAX - 1, 0), 9, &[1; 9]).counts(), [65_534, 1]);
}

/// Each pixel becomes four, of which the lowest lie outside the new image.
#[test]
fn masks_are_flipped_and_scaled_like_their_images() {
    let mask = drawn(&["#..", ".##"]);
    assert_eq!(mask.mirrored(), drawn(&["..#", "##."]));
    let doubled = mask.scaled_into(size(8, 4), size(6, 4), (1, 1));
    assert_eq!(doubled, drawn(&["........", ".##.....", ".##.....", "...####."]));
    // Scaled by a third: the centres lie in pixels 1 and 4.
    let wide = drawn(&[".#..#.", ".#....", "######"]);
    assert_eq!(wide.scaled_into(size(2, 1), size(2, 1), (0, 0)), drawn(&["#."]));
    assert_eq!(mask.scaled_into(size(3, 2), size(3, 2), (0, 0)), mask);
    assert_eq!(mask.scaled_into(size(3, 2), size(3, 2), (5, 0)), Mask::clear(size(3, 2)));
}

fn bitmap() -> impl Strategy<Value = (Size, Vec<u8>, Vec<u8>)> {
    (1_u16..80, 1_u16..9, 1_u8..9).prop_flat_map(|(width, height, of)| {
        let pixels = usize::from(width) * usize::from(height);
        let pixel = || (0..of).prop_map(|rng| u8::from(rng == 0));
        (Just(size(width, height)), prop::collection::vec(pixel(), pixels), prop::collection::vec(pixel(), pixels))
    })
}

proptest! {
    #[test]
    fn every_representation_of_a_mask_round_trips((size, pixels, _) in bitmap()) {
        let mask = Mask::from_bitmap(size, &pixels);
        prop_assert_eq!(&mask.to_bitmap(), &pixels);
        prop_assert!(mask.counts().iter().skip(1).all(|count| *count > 0));
        prop_assert_eq!(Mask::from_counts(size, mask.counts()), Ok(mask.clone()));
        prop_assert_eq!(Mask::from_compressed(size, &mask.to_compressed()), Ok(mask));
    }

    #[test]
    fn union_and_overlap_match_counted_pixels((size, a, b) in bitmap()) {
        let both = a.iter().zip(&b).filter(|(a, b)| **a + **b == 2).count();
        let any: Vec<u8> = a.iter().zip(&b).map(|(a, b)| a | b).collect();
        let [one, two] = [&a, &b].map(|pixels| Mask::from_bitmap(size, pixels));
        prop_assert_eq!(usize::try_from(one.intersection(&two)), Ok(both));
        prop_assert_eq!(one.area(), a.iter().copied().map(u32::from).sum::<u32>());
        let union = Mask::union(size, [&one, &two]);
        prop_assert_eq!(&union.to_bitmap(), &any);
        let share = if both == 0 { 0.0 } else { f64::from(one.intersection(&two)) / f64::from(union.area()) };
        prop_assert_eq!(one.iou(&two, false), share);
        prop_assert_eq!(Mask::iou_matrix(&[&one], &[&two], &[false]), vec![share]);
    }

    #[test]
    fn bounds_enclose_all_pixels_tightly((size, pixels, _) in bitmap()) {
        let places = (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x, y)));
        let set: Vec<(u16, u16)> = places.zip(&pixels).filter(|(_, pixel)| **pixel > 0).map(|(place, _)| place).collect();
        let range = |values: Vec<u16>| {
            let (least, most) = (values.iter().min().copied(), values.iter().max().copied());
            (f64::from(least.unwrap_or(0)), most.map_or(0.0, |most| f64::from(most - least.unwrap_or(0) + 1)))
        };
        let (left, width) = range(set.iter().map(|place| place.0).collect());
        let (top, height) = range(set.iter().map(|place| place.1).collect());
        prop_assert_eq!(Mask::from_bitmap(size, &pixels).bounds().array(), [left, top, width, height]);
    }

    #[test]
    fn mirroring_swaps_left_and_right((size, mut pixels, _) in bitmap()) {
        let mask = Mask::from_bitmap(size, &pixels);
        pixels.chunks_exact_mut(usize::from(size.width)).for_each(<[u8]>::reverse);
        prop_assert_eq!(mask.mirrored(), Mask::from_bitmap(size, &pixels));
        prop_assert_eq!(mask.mirrored().mirrored(), mask);
    }

    #[test]
    fn a_scaled_mask_has_the_nearest_pixels((from, pixels, _) in bitmap(), width in 1_u16..60, height in 1_u16..20, left in 0_u16..9, top in 0_u16..9) {
        let to = size(60, 20);
        let scaled = Mask::from_bitmap(from, &pixels).scaled_into(to, size(width, height), (left, top)).to_bitmap();
        let source = |pixel: usize, from: u16, to: u16| (2 * pixel + 1) * usize::from(from) / (2 * usize::from(to));
        for (at, found) in scaled.into_iter().enumerate() {
            let inside = (at % 60).checked_sub(left.into()).zip((at / 60).checked_sub(top.into()));
            let inside = inside.filter(|(x, y)| *x < usize::from(width) && *y < usize::from(height));
            let expected = inside.map_or(0, |(x, y)| {
                pixels[source(y, from.height, height) * usize::from(from.width) + source(x, from.width, width)]
            });
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn any_text_gives_a_mask_or_an_error(text in "[0-p]{0,12}") {
        if let Ok(mask) = Mask::from_compressed(size(7, 9), &text) {
            prop_assert_eq!(Mask::from_compressed(size(7, 9), &mask.to_compressed()), Ok(mask));
        }
    }

    #[test]
    fn any_corners_give_a_mask(corners in prop::collection::vec(prop::num::f64::ANY, 0..20)) {
        let mask = Mask::from_polygon(size(9, 7), &corners);
        prop_assert_eq!(mask.counts().iter().sum::<u32>(), 63);
    }
}
