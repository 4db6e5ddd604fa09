//! Tests of the generated shapes: frozen bytes, features that must not reveal the class, and the parameters that a
//! drawing depends on.

use super::*;
use crate::data::planes::size;
use crate::rng::Rng;
use proptest::prelude::*;
use rayon::prelude::*;

/// Returns pictures of one side and split, and their classes.
fn pictures(seed: u64, split: Split, side: usize, count: usize) -> Vec<(Vec<u8>, usize)> {
    let one = |index| {
        let mut planes = vec![0; size(side)];
        let class = draw_image(seed, split, index, side, &mut planes);
        (planes, class)
    };
    (0..count).into_par_iter().map(one).collect()
}

#[test]
fn the_reference_digest_is_what_is_drawn() {
    let mut bytes = Vec::new();
    for (split, side, count) in [(Split::Train, 32, 200), (Split::Eval, 64, 20), (Split::Train, 224, 4)] {
        for (planes, class) in pictures(0, split, side, count) {
            bytes.extend(planes);
            bytes.push(u8::try_from(class).expect("ten classes"));
        }
    }
    assert_eq!(Digest::of_pieces("ledger shapes v1", &[&bytes]).to_hex(), REFERENCE.to_hex());
}

#[test]
fn classes_are_balanced() {
    let drawn = pictures(3, Split::Train, 16, 5000);
    for class in 0..CLASSES {
        // 500 expected with a standard deviation of 21; 5 of them are allowed.
        let count = drawn.iter().filter(|(_, label)| *label == class).count();
        assert!((394..606).contains(&count), "{count} of class {class}");
    }
}

/// These are the features of a linear model: a class whose pictures are brighter, redder, or have more of anything at
/// some place.
#[test]
fn neither_the_mean_colour_nor_the_mean_picture_reveals_the_class() {
    const SIDE: usize = 16;
    let train = pictures(5, Split::Train, SIDE, 5000);
    let mut means = vec![vec![0.0_f64; size(SIDE)]; CLASSES];
    for (class, mean) in means.iter_mut().enumerate() {
        let of_class: Vec<&Vec<u8>> =
            train.iter().filter(|(_, label)| *label == class).map(|(planes, _)| planes).collect();
        for planes in &of_class {
            mean.iter_mut().zip(*planes).for_each(|(mean, byte)| *mean += f64::from(*byte));
        }
        mean.iter_mut().for_each(|mean| *mean /= real_len(of_class.len()));
        for (channel, plane) in mean.chunks_exact(SIDE * SIDE).enumerate() {
            // A picture's mean of a channel has a standard deviation of about 70 grey values, that of 500 pictures
            // about 3; 5 of them are allowed.
            let colour = plane.iter().sum::<f64>() / real_len(plane.len());
            assert!((colour - 127.5).abs() < 16.0, "{colour} of channel {channel} in class {class}");
        }
    }
    let far = |planes: &[u8], mean: &[f64]| -> f64 {
        planes.iter().zip(mean).map(|(byte, mean)| (f64::from(*byte) - mean).powi(2)).sum()
    };
    let held = pictures(5, Split::Eval, SIDE, 1000);
    let right = held.iter().filter(|(planes, label)| {
        let nearest = means.iter().enumerate().min_by(|(_, a), (_, b)| far(planes, a).total_cmp(&far(planes, b)));
        nearest.is_some_and(|(class, _)| class == *label)
    });
    // Guessing gets 100 right with a standard deviation of 9.5; 5 of them are allowed.
    let right = right.count();
    assert!(right < 148, "the nearest mean picture names the class of {right} in 1000");
}

#[test]
fn a_shape_lies_within_its_picture_and_covers_its_area() {
    const SIDE: usize = 48;
    for (class, name) in NAMES.iter().enumerate() {
        for index in 0..40 {
            let mut rng = Rng::new(index, Stream::EvalPicture, 1);
            let mut again = rng.clone();
            let expected = (48.0 * again.range(SIZE.0, SIZE.1)).powi(2);
            let figure = shape(&mut rng, 48.0, class, [1.0; CHANNELS]);
            let mut covered = 0.0;
            for row in 0..48_u8 {
                // For any colour a fraction of the background remains: painted once over black, once over a background
                // of 1.
                let mut lines = [vec![0.0; SIDE], vec![0.0; SIDE], vec![0.0; SIDE]];
                figure.paint(f32::from(row), &mut lines, &mut Scratch::default());
                let mut over = [vec![1.0; SIDE], vec![0.0; SIDE], vec![0.0; SIDE]];
                figure.paint(f32::from(row), &mut over, &mut Scratch::default());
                covered += lines[0].iter().zip(&over[0]).map(|(black, one)| 1.0 - (one - black)).sum::<f32>();
            }
            assert!((covered / expected - 1.0).abs() < 0.03, "{name}: {covered} instead of {expected}");
        }
    }
}

#[test]
fn a_shape_differs_from_its_ground() {
    for index in 0..500 {
        let mut rng = Rng::new(9, Stream::TrainPicture, index);
        let ground = colour(&mut rng);
        let drawn = contrasting(&mut rng, ground);
        let square: f32 = drawn.iter().zip(ground).map(|(a, b)| (a - b) * (a - b)).sum();
        assert!(square.sqrt() >= CONTRAST, "{drawn:?} on {ground:?}");
    }
}

#[test]
fn the_digest_depends_on_every_number() {
    let shapes = Shapes { seed: 1, side: 32, train_count: 10, eval_count: 5 };
    let others = [
        Shapes { seed: 2, ..shapes.clone() },
        Shapes { side: 64, ..shapes.clone() },
        Shapes { train_count: 11, ..shapes.clone() },
        Shapes { eval_count: 6, ..shapes.clone() },
    ];
    assert!(others.iter().all(|other| other.digest() != shapes.digest()));
    assert_eq!(shapes.clone().digest(), shapes.digest());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn a_picture_depends_on_its_index_alone(seed: u64, short in 1..10_usize, more in 0..10_usize, side in 4..40_usize) {
        let set = pictures(seed, Split::Train, side, short);
        let longer = pictures(seed, Split::Train, side, short + more);
        prop_assert_eq!(&set[..], &longer[..short]);
        prop_assert_ne!(&pictures(seed, Split::Eval, side, short)[..], &set[..]);
    }
}
