//! YOLOv3's loss of each place and its gradient against loops in double precision.

use super::*;

const CLASSES: usize = 7;
const PLACES: usize = 130;
const ROWS: usize = 3;
const IGNORED: f64 = 0.5;
const LARGEST: f64 = 20.0;

/// Numbers in [-1, 1).
fn numbers(len: usize) -> Vec<f32> {
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).expect("16 bits")) / 32_768.0 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn vector(values: &[f32]) -> Tensor<1> {
    Tensor::from_data(TensorData::from(values), &card())
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn entropy(x: f64, t: f64) -> f64 {
    x.max(0.0) - x * t + (-x.abs()).exp().ln_1p()
}

/// Answers, targets, boxes and planes. Some places have an object, and some boxes overlap with places.
fn given(most: usize, size: f32) -> [Vec<f32>; 4] {
    let answers: Vec<f32> = numbers(ROWS * (5 + CLASSES) * PLACES).into_iter().map(|value| value * size).collect();
    let mut targets = vec![0.0; ROWS * 7 * PLACES];
    for row in 0..ROWS {
        for place in 0..PLACES {
            let mut put = |plane: usize, value: f32| targets[(row * 7 + plane) * PLACES + place] = value;
            put(6, -1.0);
            if (place + row) % 13 == 0 {
                let class = f32::from(u8::try_from(place % CLASSES).expect("few"));
                for (plane, value) in [0.3, 0.8, -0.4, 0.2, 1.5, 1.0, class].into_iter().enumerate() {
                    put(plane, value);
                }
            }
        }
    }
    let boxes: Vec<f32> = (0..ROWS * most)
        .flat_map(|n| {
            let left = f32::from(u16::try_from(n * 5 % 97).expect("small"));
            // Every third one has no area.
            let side = if n % 3 == 2 { 0.0 } else { 24.0 };
            [left, left, left + side, left + side]
        })
        .collect();
    let planes: Vec<f32> = (0..5 * PLACES)
        .map(|n| {
            let (plane, place) = (n / PLACES, n % PLACES);
            [f32::from(u8::try_from(place % 12).expect("small")), 3.0, 8.0, 22.0, 26.0][plane]
        })
        .collect();
    [answers, targets, boxes, planes]
}

/// The losses, what counts, the gradient, and how near to the threshold the nearest overlap is.
fn by_loops([answers, targets, boxes, planes]: &[Vec<f32>; 4], most: usize) -> ([Vec<f64>; 3], f64) {
    let (mut losses, mut counted) = (Vec::new(), Vec::new());
    let (mut gradient, mut margin) = (vec![0.0; answers.len()], f64::INFINITY);
    for (row, place) in (0..ROWS).flat_map(|row| (0..PLACES).map(move |place| (row, place))) {
        let at = |entry: usize| (row * (5 + CLASSES) + entry) * PLACES + place;
        let a = |entry: usize| f64::from(answers[at(entry)]);
        let t = |plane: usize| f64::from(targets[(row * 7 + plane) * PLACES + place]);
        let p = |plane: usize| f64::from(planes[plane * PLACES + place]);
        let centre = [0, 1].map(|n| (logistic(a(n)) + p(n)) * p(2));
        let half = [2, 3].map(|n| a(n).min(LARGEST).exp() * p(n + 1) * 0.5);
        let area = 4.0 * half[0] * half[1];
        let mut overlaps = 0.0;
        for corners in boxes[row * most * 4..(row + 1) * most * 4].chunks_exact(4) {
            let corner = |n: usize| f64::from(corners[n]);
            let side =
                |n: usize| ((centre[n] + half[n]).min(corner(n + 2)) - (centre[n] - half[n]).max(corner(n))).max(0.0);
            let both = area + (corner(2) - corner(0)) * (corner(3) - corner(1));
            let excess = side(0) * side(1) * (1.0 + IGNORED) - both * IGNORED;
            if both > 1.0 {
                margin = margin.min(excess.abs() / both);
            }
            overlaps = if excess > 0.0 { 1.0 } else { overlaps };
        }
        let (object, counts) = (t(5), overlaps * (t(5) - 1.0) + 1.0);
        let squares = (a(2) - t(2)).powi(2) + (a(3) - t(3)).powi(2);
        let mut loss = (entropy(a(0), t(0)) + entropy(a(1), t(1)) + squares * 0.5) * t(4);
        loss += entropy(a(4), object) * counts;
        for n in 0..2 {
            gradient[at(n)] = (logistic(a(n)) - t(n)) * t(4);
            gradient[at(n + 2)] = (a(n + 2) - t(n + 2)) * t(4);
        }
        gradient[at(4)] = (logistic(a(4)) - object) * counts;
        for class in 0..CLASSES {
            let wanted = if t(6) == f64::from(u8::try_from(class).expect("few")) { 1.0 } else { 0.0 };
            loss += object * entropy(a(5 + class), wanted);
            gradient[at(5 + class)] = object * (logistic(a(5 + class)) - wanted);
        }
        losses.push(loss);
        counted.push(counts);
    }
    ([losses, counted, gradient], margin)
}

#[test]
#[ignore = "needs a GPU"]
fn losses_of_places_and_their_gradients_on_gpu() {
    for (most, size) in [(8, 1.0), (16, 1.0), (16, 200.0)] {
        let given = given(most, size);
        let ([losses, counted, gradient], margin) = by_loops(&given, most);
        // Boxes of large answers overlap too little to be ignored.
        let ignored_as_expected = size > 1.0 || counted.contains(&0.0);
        assert!(ignored_as_expected && counted.contains(&1.0) && margin > 1e-6, "{size}, {margin}");
        let shapes = [[ROWS, 5 + CLASSES, PLACES], [ROWS, 7, PLACES], [ROWS, most, 4], [1, 5, PLACES]];
        let [answers, dense, boxes, planes] = [0, 1, 2, 3].map(|n| vector(&given[n]).reshape(shapes[n]));
        let targets =
            PlaceTargets { dense: &dense, boxes: &boxes, planes: &planes, ignored: IGNORED, largest: LARGEST };
        let [found, counts] = place_losses(&answers, &targets).expect("runs");
        let factor = vector(&[3.0]);
        let slopes = place_losses_back(&answers, &dense, &counts, &factor).expect("runs");
        let tripled = gradient.iter().map(|slope| slope * 3.0).collect();
        for (what, found, expected) in [
            ("losses", read(found), losses),
            ("counted", read(counts.clone()), counted),
            ("gradient", read(slopes), tripled),
        ] {
            assert_eq!(found.len(), expected.len());
            for (place, (found, expected)) in found.into_iter().zip(expected).enumerate() {
                let near = (f64::from(found) - expected).abs() <= 1e-5 * expected.abs().max(1.0);
                assert!(near, "{what} of {most} boxes at {place}: {found}, not {expected}");
            }
        }
        assert!(place_losses_back(&answers, &dense, &counts, &vector(&[1.0, 2.0])).is_none());
    }
    assert_eq!(fault(), None);
}
