//! Tests of the scenes: frozen bytes, the parameters that a scene depends on, and the agreement of masks and boxes with
//! pixels.

mod classifier;
mod layout;

use super::*;
use crate::data::planes::size;
use crate::data::scenes::layer::{HALF, Layer};
use crate::data::scenes::place::{PIXELS, Placed, SHARE, place};
use crate::data::shapes::region::{Region, Scratch};
use crate::detection::boxes::Xyxy;
use crate::detection::mask::Mask;
use crate::number::{real, real_len, single};
use crate::rng::Rng;
use proptest::prelude::*;
use rayon::prelude::*;

fn scenes(side: usize, classes: usize) -> Scenes {
    Scenes::new(0, side, classes, 100_000, 100_000).expect("valid")
}

fn mask(object: &Object) -> &Mask {
    object.mask.as_ref().expect("scenes have masks")
}

/// Returns the objects of some scenes, with their placement.
fn placed(seed: u64, side: usize, classes: usize, count: u64) -> Vec<Vec<Placed>> {
    let one = |index| place(&mut Rng::new(seed, Stream::EvalScene, index), side, classes);
    (0..count).into_par_iter().map(one).collect()
}

#[test]
fn the_reference_digest_is_what_is_drawn() {
    let mut bytes = Vec::new();
    for (split, side, classes, count) in
        [(Split::Train, 64, 10, 40), (Split::Eval, 416, 80, 3), (Split::Train, 512, 20, 2), (Split::Eval, 77, 2, 10)]
    {
        for index in 0..count {
            let mut planes = vec![0; size(side)];
            for object in scenes(side, classes).draw_scene(split, index, &mut planes) {
                bytes.push(u8::try_from(object.class).expect("few classes"));
                bytes.extend(mask(&object).counts().iter().flat_map(|count| count.to_le_bytes()));
            }
            bytes.extend(planes);
        }
    }
    assert_eq!(Digest::of_pieces("ledger scenes v1", &[&bytes]).to_hex(), REFERENCE.to_hex());
}

/// Returns the number of the object that each pixel shows, from 1, painted from the back to the front; 0 is background.
fn numbers(objects: &[Placed], side: usize) -> Vec<usize> {
    let mut numbers = vec![0; side * side];
    for (number, object) in objects.iter().enumerate().rev() {
        for y in 0..side {
            let Some((first, cover)) = object.layer.row(y) else { continue };
            let row = numbers[y * side + first..].iter_mut();
            row.zip(cover).filter(|(_, cover)| **cover >= HALF).for_each(|(pixel, _)| *pixel = number + 1);
        }
    }
    numbers
}

#[test]
fn masks_and_boxes_are_what_is_painted_from_the_back_to_the_front() {
    for (side, classes) in [(64, 80), (160, 10), (416, 80)] {
        for objects in placed(1, side, classes, 60) {
            let numbers = numbers(&objects, side);
            for (number, object) in objects.iter().enumerate() {
                let shown: Vec<(usize, usize)> =
                    (0..side * side).filter(|at| numbers[*at] == number + 1).map(|at| (at % side, at / side)).collect();
                let bounds = Xyxy::from(object.mask.bounds());
                let range = |axis: fn(&(usize, usize)) -> usize| {
                    let (least, most) = (shown.iter().map(axis).min(), shown.iter().map(axis).max());
                    (single(real_len(least.expect("seen"))), single(real_len(most.expect("seen") + 1)))
                };
                assert_eq!(
                    [(bounds.left, bounds.right), (bounds.top, bounds.bottom)],
                    [range(|at| at.0), range(|at| at.1)]
                );
                let bitmap: Vec<u8> = numbers.iter().map(|shown| u8::from(*shown == number + 1)).collect();
                assert_eq!(object.mask.to_bitmap(), bitmap);
                let count = u32::try_from(shown.len()).expect("a picture");
                assert_eq!(object.mask.area(), count);
                assert!(count >= PIXELS && single(real(count.into())) >= SHARE * object.spot.size * object.spot.size);
            }
        }
    }
}

/// A picture is painted with and without an object. The two differ only where the object is visible.
#[test]
fn an_object_is_painted_where_its_mask_says() {
    const SIDE: usize = 160;
    let (mut differing, mut seen) = (0, 0);
    for (index, objects) in (0..).zip(placed(2, SIDE, 80, 30)) {
        let paint = |objects: &[Placed]| {
            let mut planes = vec![0; size(SIDE)];
            paint::paint(&mut Rng::new(2, Stream::TrainScene, index), objects, SIDE, &mut planes);
            planes
        };
        let whole = paint(&objects);
        for (number, object) in objects.iter().enumerate() {
            let mut without = objects.clone();
            without[number].layer = Layer::new(&Region::new(&[]), SIDE, &mut Scratch::default());
            let rest = paint(&without);
            for at in 0..SIDE * SIDE {
                let differs =
                    (0..3).any(|channel| whole[channel * SIDE * SIDE + at] != rest[channel * SIDE * SIDE + at]);
                let cover = |object: &Placed| {
                    let (first, cover) = object.layer.row(at / SIDE)?;
                    cover.get((at % SIDE).checked_sub(first)?).copied()
                };
                let own = cover(object).unwrap_or(0);
                let front = objects[..number].iter().filter_map(cover).max().unwrap_or(0);
                assert!(!differs || (own > 0 && front < 255), "pixel {at} of object {number} in scene {index}");
                if own >= HALF && front < HALF {
                    seen += 1;
                    differing += usize::from(differs);
                }
            }
        }
    }
    // By chance a colour may equal that of the pixels behind it, or both may be beyond white or black.
    assert!(real_len(differing) > 0.97 * real_len(seen), "{differing} of {seen}");
}

#[test]
fn a_scene_depends_on_everything_but_the_counts() {
    let scenes = scenes(64, 10);
    let eval = |scenes: &Scenes| {
        let mut planes = vec![0; size(scenes.side)];
        let objects = scenes.eval(3, &mut planes).expect("there");
        (planes, objects)
    };
    assert_eq!(eval(&Scenes { train_count: 1, eval_count: 4, ..scenes.clone() }), eval(&scenes));
    let others = [
        Scenes { seed: 1, ..scenes.clone() },
        Scenes { side: 65, ..scenes.clone() },
        Scenes { classes: 9, ..scenes.clone() },
    ];
    others.iter().for_each(|other| assert_ne!(eval(other), eval(&scenes)));
    let mut planes = vec![0; size(64)];
    assert_ne!(scenes.train(3, &mut planes), Some(eval(&scenes).1));
}

#[test]
fn requests_out_of_range_are_errors() {
    let fault = |side, classes| Scenes::new(0, side, classes, 1, 1).expect_err("out of range").to_string();
    insta::assert_snapshot!(fault(63, 10), @"the side of scenes is 63 (it must be 64 to 1024)");
    insta::assert_snapshot!(fault(1025, 10), @"the side of scenes is 1025 (it must be 64 to 1024)");
    insta::assert_snapshot!(fault(64, 1), @"scenes cannot have 1 classes (it must be 2 to 80)");
    insta::assert_snapshot!(fault(64, 81), @"scenes cannot have 81 classes (it must be 2 to 80)");
    let few = Scenes::new(0, 64, 10, 12, 6).expect("valid");
    let mut planes = vec![0; size(64)];
    assert!(few.train(11, &mut planes).is_some() && few.train(12, &mut planes).is_none());
    assert!(few.eval(5, &mut planes).is_some() && few.eval(6, &mut planes).is_none());
}

#[test]
fn the_digest_depends_on_every_number() {
    let scenes = scenes(64, 10);
    let others = [
        Scenes { seed: 2, ..scenes.clone() },
        Scenes { side: 65, ..scenes.clone() },
        Scenes { classes: 11, ..scenes.clone() },
        Scenes { train_count: 11, ..scenes.clone() },
        Scenes { eval_count: 6, ..scenes.clone() },
    ];
    assert!(others.iter().all(|other| other.digest() != scenes.digest()));
    assert_eq!(scenes.clone().digest(), scenes.digest());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_scene_has_objects_within_the_picture(seed: u64, index: usize, side in 64..300_usize, classes in 2..=80_usize) {
        let scenes = Scenes::new(seed, side, classes, 0, usize::MAX).expect("valid");
        prop_assume!(index < usize::MAX);
        let mut planes = vec![0; size(side)];
        let objects = scenes.eval(index, &mut planes).expect("there");
        prop_assert!((1..=8).contains(&objects.len()));
        for (place, object) in objects.iter().enumerate() {
            prop_assert_eq!(usize::from(mask(object).size().width), side);
            prop_assert!(object.class < classes && mask(object).area() >= PIXELS);
            for other in &objects[..place] {
                prop_assert_eq!(mask(object).intersection(mask(other)), 0);
            }
        }
    }
}
