use super::*;
use crate::detection::mask::{Mask, Size};

fn square(left: f32, side: f32) -> Xyxy {
    Xyxy::new([left, 0.0, left + side, side])
}

/// The IoU of a square of 10 pixels with itself moved by d pixels is (10 − d)/(10 + d): 1, 0.818, 0.538, 0.333 and
/// 0.176 for 0, 1, 3, 5 and 7.
#[test]
fn boxes_match_the_object_with_the_largest_iou() {
    let objects = [square(0.0, 10.0)];
    let boxes = [1.0, 3.0, 5.0, 7.0, 50.0].map(|left| square(left, 10.0));
    let object = Match::Object(0);
    use Match::{Background, Unclear};
    assert_eq!(matches(&objects, &boxes, ANCHORS), [object, Unclear, Unclear, Background, Background]);
    assert_eq!(matches(&objects, &boxes, PROPOSALS), [object, object, Background, Background, Background]);
    // Both boxes with the largest IoU match, even below the thresholds; a box that does not overlap never matches.
    assert_eq!(matches(&objects, &boxes[3..], ANCHORS), [object, Background]);
    let both = [square(7.0, 10.0), square(-7.0, 10.0), square(50.0, 10.0)];
    assert_eq!(matches(&objects, &both, ANCHORS), [object, object, Background]);
    assert_eq!(matches(&objects, &boxes[4..], ANCHORS), [Background]);
    assert_eq!(matches(&[], &boxes[..1], ANCHORS), [Background]);
}

/// The best box of one object matches the other object if its IoU with that one is larger (torchvision's `set_low_quality_matches_`).
#[test]
fn the_best_box_of_one_object_may_match_another() {
    let objects = [square(0.0, 10.0), square(6.0, 10.0)];
    let boxes = [square(4.0, 10.0), square(7.0, 10.0)];
    assert_eq!(matches(&objects, &boxes, ANCHORS), [Match::Object(1), Match::Object(1)]);
}

fn many(objects: usize, background: usize) -> Vec<Match> {
    let unclear = std::iter::repeat_n(Match::Unclear, 5);
    let found = std::iter::repeat_n(Match::Object(0), objects).chain(unclear);
    found.chain(std::iter::repeat_n(Match::Background, background)).collect()
}

#[test]
fn samples_have_the_right_sizes_and_depend_only_on_their_key_and_row() {
    let share = Share { all: 16, objects: 0.25 };
    for (objects, background, expected) in
        [(40, 100, (4, 12)), (2, 100, (2, 14)), (40, 3, (4, 3)), (0, 30, (0, 16)), (0, 0, (0, 0))]
    {
        let found = many(objects, background);
        for key in [None, Some(1)] {
            let one = sample(&found, share, Choice { key, row: 2 });
            assert_eq!((one.objects.len(), one.background.len()), expected);
            assert!(one.objects.iter().all(|place| found[*place] == Match::Object(0)));
            assert!(one.background.iter().all(|place| found[*place] == Match::Background));
            let mut all = [one.objects.clone(), one.background.clone()].concat();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), expected.0 + expected.1, "a box is there twice");
            assert_eq!(one, sample(&found, share, Choice { key, row: 2 }));
        }
    }
    let found = many(40, 1000);
    let of = |key, row| sample(&found, share, Choice { key, row });
    assert_eq!(of(None, 0).objects, [0, 1, 2, 3]);
    assert_ne!(of(Some(1), 0), of(Some(2), 0));
    assert_ne!(of(Some(1), 0), of(Some(1), 1));
}

#[test]
fn every_box_is_drawn_equally_often() {
    let found = many(4, 8);
    let mut counts = [0; 17];
    for key in 0..2000 {
        let one = sample(&found, Share { all: 4, objects: 0.5 }, Choice { key: Some(key), row: 0 });
        one.objects.into_iter().chain(one.background).for_each(|place| counts[place] += 1);
    }
    // Two of four and two of eight: 1000 and 500 times, with standard deviations of 22 and 19; 5 of them are allowed.
    assert!(counts[..4].iter().all(|count| (890..1110).contains(count)), "{counts:?}");
    assert_eq!(counts[4..9], [0; 5]);
    assert!(counts[9..].iter().all(|count| (405..595).contains(count)), "{counts:?}");
}

#[test]
fn crowds_and_empty_boxes_are_not_learnable() {
    let object = |crowd, bounds| Object {
        class: 0,
        bounds,
        area: 1.0,
        crowd,
        mask: Some(Mask::clear(Size { width: 9, height: 9 })),
    };
    let objects = [object(true, square(0.0, 5.0)), object(false, square(1.0, 5.0)), object(false, square(1.0, 0.0))];
    assert_eq!(learnable(&objects), [&objects[1]]);
}
