use super::*;
use image::Rgb;
use proptest::prelude::*;

fn size_of(width: u16, height: u16) -> Size {
    Size { width, height }
}

fn instance(bounds: [f64; 4], outline: Option<Outline>) -> Instance {
    Instance { id: 1, class: 3, bounds: Xywh::new(bounds), area: 100.0, crowd: false, outline }
}

/// 40 × 30 pixels become 16 × 12 in a square of 16, with 2 rows of the frame above and below. Lengths are multiplied by
/// 0.4.
#[test]
fn a_picture_by_hand() {
    let square = Square::new(size_of(40, 30), 16);
    assert_eq!((square.extent, square.left, square.top), (size_of(16, 12), 0, 2));
    let corners = vec![10.0, 10.0, 30.0, 10.0, 30.0, 25.0, 10.0, 25.0];
    let object = square.object(&instance([10.0, 10.0, 20.0, 15.0], Some(Outline::Polygons(vec![corners]))));
    assert_eq!(object.bounds, Xyxy::new([4.0, 6.0, 12.0, 12.0]));
    assert!((object.area - 16.0).abs() < 1e-12 && object.class == 3);
    let rectangle = Mask::from_part(size_of(16, 16), (4, 6), 8, &[1; 48]);
    assert_eq!(object.mask, Some(rectangle.clone()));
    let runs = Mask::from_part(size_of(40, 30), (10, 10), 20, &[1; 300]);
    assert_eq!(square.object(&instance([0.0; 4], Some(Outline::Runs(runs)))).mask, Some(rectangle));
    // The frame is not part of the picture.
    assert_eq!(square.clipped(Xywh::new([-5.0, -5.0, 10.0, 10.0])), Xyxy::new([0.0, 2.0, 2.0, 4.0]));
    assert!(square.clipped(Xywh::new([40.0, 5.0, 10.0, 10.0])).is_empty());
    assert!(square.clipped(Xywh::new([4.0, 5.0, 10.0, 0.0])).is_empty());
}

#[test]
fn the_shorter_side_is_rounded_and_never_0() {
    let square = |width, height| {
        let square = Square::new(size_of(width, height), 32);
        (square.extent, square.left, square.top)
    };
    assert_eq!(square(640, 427), (size_of(32, 21), 0, 5));
    assert_eq!(square(427, 640), (size_of(21, 32), 5, 0));
    assert_eq!(square(3, 2), (size_of(32, 21), 0, 5));
    assert_eq!(square(65_535, 1), (size_of(32, 1), 0, 15));
    assert_eq!(square(1, 65_535), (size_of(1, 32), 15, 0));
}

#[test]
fn a_picture_is_painted_into_its_frame() {
    let square = Square::new(size_of(8, 4), 4);
    // The left half has one colour, the right half another. Halves of even size keep them apart except for the filter
    // at the border.
    let picture = RgbImage::from_fn(8, 4, |x, _| if x < 4 { Rgb([10, 20, 30]) } else { Rgb([90, 80, 70]) });
    let mut planes = vec![0; size(4)];
    square.paint(&picture, &mut planes);
    for (channel, plane) in planes.chunks(16).enumerate() {
        let (frame, left, right) = (FRAME[channel], [10, 20, 30][channel], [90, 80, 70][channel]);
        assert_eq!((&plane[..4], &plane[12..]), (&[frame; 4][..], &[frame; 4][..]));
        for row in plane[4..12].chunks(4) {
            assert_eq!((row[0], row[3]), (left, right));
            assert!(row[1].abs_diff(left) <= 10 && row[2].abs_diff(right) <= 10, "{row:?}");
        }
    }
}

proptest! {
    #[test]
    fn a_box_stays_the_box_of_its_mask(width in 16_u16..400, height in 16_u16..400, x in 0_u16..300, y in 0_u16..300) {
        let (left, top) = (x % (width - 8), y % (height - 8));
        let square = Square::new(size_of(width, height), 64);
        let [from, above] = [left, top].map(f64::from);
        let corners = vec![from, above, from + 8.0, above, from + 8.0, above + 8.0, from, above + 8.0];
        let object = square.object(&instance([from, above, 8.0, 8.0], Some(Outline::Polygons(vec![corners]))));
        let mask = object.mask.expect("drawn");
        prop_assert_eq!(square.clipped(Xywh::new([from, above, 8.0, 8.0])), object.bounds);
        prop_assume!(mask.area() > 0);
        for (found, expected) in Xyxy::from(mask.bounds()).array().into_iter().zip(object.bounds.array()) {
            prop_assert!((found - expected).abs() <= 1.0, "{found}, not {expected}");
        }
    }
}
