//! Tests of decoding against numbers computed by hand, and of the loss for large predictions and on GPUs.

use super::object;
use crate::data::objects::Object;
use crate::detection::boxes::Xyxy;
use crate::forward_context::{ForwardContext, ModelState};
use crate::models::detector::{HostTime, Prediction};
use crate::models::parity::value;
use crate::models::yolov3::boxes::joined;
use crate::models::yolov3::{ANCHORS, BOXES, Places, Targets, detections, loss};
use crate::number::{real_len, single};
use crate::parameters::Index;
use crate::precision::{Precision, exact};
use burn::tensor::{Device, Tensor, TensorData};

const CLASSES: usize = 2;
const ENTRIES: usize = 5 + CLASSES;
const SIDE: usize = 32;
const CELLS: [usize; 3] = [1, 2, 4];

/// A twelfth of the published anchors.
fn anchors() -> [[f32; 2]; 9] {
    ANCHORS.map(|anchor| anchor.map(|pixels| pixels / 12.0))
}

fn ctx<'a>(none: &'a Index, taped: bool, device: &Device) -> ForwardContext<'a> {
    let state = ModelState {
        index: none,
        parameters: &[],
        statistics: none,
        running: &mut [],
        precision: Precision::Fp32,
        device: device.clone(),
    };
    if taped { ForwardContext::inference_on_tape(state) } else { ForwardContext::inference(state) }
}

/// Predictions of the three levels for two images, [2, boxes·entries, cells, cells].
fn answers() -> [Vec<f32>; 3] {
    [0, 1, 2].map(|level| {
        let len = 2 * BOXES * ENTRIES * CELLS[level] * CELLS[level];
        (0..len).map(|n| value(&format!("level {level}"), n)).collect()
    })
}

/// Predictions whose exponentials overflow.
fn large(answers: [Vec<f32>; 3]) -> [Vec<f32>; 3] {
    answers.map(|level| level.into_iter().map(|value| value * 200.0).collect())
}

/// The objects of two images. The first has more than are compared at once: some near predicted boxes, two at one
/// place, and a crowd. The second has one and a box without area.
fn objects() -> Vec<Vec<Object>> {
    let answers = answers();
    let told = [(0, 0, 0, 0), (0, 1, 0, 0), (1, 0, 0, 1), (1, 1, 1, 1), (1, 2, 1, 0), (2, 0, 1, 2), (2, 2, 3, 1)];
    let near = |(place, class): ((usize, usize, usize, usize), usize)| {
        let [left, top, right, bottom] = own(&answers, 0, place).map(single);
        object(class, Xyxy::new([left + 0.3, top - 0.2, right + 0.1, bottom]).clipped(32.0, 32.0).array())
    };
    let mut first: Vec<Object> = told.into_iter().zip([0, 1, 1, 0, 1, 0, 1]).map(near).collect();
    first.extend([object(0, [8.0, 8.0, 10.0, 12.0]), object(1, [8.5, 8.2, 10.5, 12.2])]);
    first.push(Object { crowd: true, ..near(((2, 1, 0, 3), 0)) });
    vec![first, vec![object(0, [3.0, 3.0, 3.0, 9.0]), object(1, [20.0, 17.0, 32.0, 32.0])]]
}

/// One entry of an image's prediction at a level, anchor, row and column.
fn answer(answers: &[Vec<f32>; 3], picture: usize, place: (usize, usize, usize, usize), entry: usize) -> f64 {
    let (level, anchor, row, column) = place;
    f64::from(answers[level][(((picture * 3 + anchor) * ENTRIES + entry) * CELLS[level] + row) * CELLS[level] + column])
}

/// The predicted box of an image at a level, anchor, row and column.
fn own(answers: &[Vec<f32>; 3], picture: usize, place: (usize, usize, usize, usize)) -> [f64; 4] {
    let (level, anchor, row, column) = place;
    let of = |entry| answer(answers, picture, place, entry);
    let middle = |logit: f64, cell| (1.0 / (1.0 + (-logit).exp()) + real_len(cell)) * 32.0 / real_len(CELLS[level]);
    let (x, y) = (middle(of(0), column), middle(of(1), row));
    let [width, height] = anchors()[3 * (2 - level) + anchor].map(f64::from);
    let [half_width, half_height] = [of(2).exp() * width / 2.0, of(3).exp() * height / 2.0];
    [x - half_width, y - half_height, x + half_width, y + half_height]
}

fn levels(answers: &[Vec<f32>; 3], taped: bool, device: &Device) -> Vec<Tensor<4>> {
    let level = |(values, cells): (&Vec<f32>, usize)| {
        let shape = [2, BOXES * ENTRIES, cells, cells];
        let tensor = Tensor::<4>::from_data(TensorData::new(values.clone(), shape), device);
        if taped { Tensor::from_inner(tensor).require_grad() } else { tensor }
    };
    answers.iter().zip(CELLS).map(level).collect()
}

/// The gradients of all predictions, then the loss, both times `factor`.
fn graded(answers: &[Vec<f32>; 3], factor: f64, device: &Device) -> Vec<f32> {
    let none = Index::default();
    let leaves = levels(answers, true, device);
    let places = Places::new(SIDE, anchors());
    let targets = Targets::new(&places, &objects());
    let loss = loss::loss(&ctx(&none, true, device), joined(leaves.clone()), targets, &places) * factor;
    let mut tape = loss.backward();
    let read = |leaf: Tensor<4>| -> Vec<f32> {
        leaf.grad_remove(&mut tape).expect("used").try_into_vec_as().expect("readable")
    };
    let mut values: Vec<f32> = leaves.into_iter().flat_map(read).collect();
    values.push(loss.inner().try_into_scalar().expect("readable"));
    values
}

#[test]
fn large_predictions_give_finite_losses() {
    let found = graded(&large(answers()), 1.0, &Device::flex());
    assert!(found.iter().all(|value| value.is_finite()));
}

#[test]
fn the_gradient_scales_with_the_upstream_gradient() {
    let [once, twice] = [1.0, 2.0].map(|factor| graded(&answers(), factor, &Device::flex()));
    assert_eq!(once.into_iter().map(|value| 2.0 * value).collect::<Vec<f32>>(), twice);
}

/// The detections for the predictions of the three levels, in images of this side.
fn found(levels: Vec<Tensor<4>>, side: usize, anchors: [[f32; 2]; 9]) -> Vec<Vec<Prediction>> {
    let none = Index::default();
    let device = levels[0].device();
    let places = Places::new(side, anchors);
    let ctx = ctx(&none, false, &device);
    let features = detections::scored(&ctx, levels, &places).to_vec();
    detections::detect(&ctx, features, side, &mut HostTime::default()).expect("readable")
}

#[test]
fn boxes_match_those_computed_by_hand() {
    let device = Device::flex();
    let mut answers = answers().map(|level| vec![-20.0; level.len()]);
    assert_eq!(found(levels(&answers, false, &device), SIDE, anchors()), [vec![], vec![]]);
    // Second row, finest level, third anchor (33, 23) / 12, row 3, column 1: x = 8·(1 + 1/2), y = 8·(3 + 3/4); twice as
    // wide and three times as high as the anchor.
    let values = [1.0, 3.0, 2.0, 3.0, 9.0, 4.0, 0.25].map(f32::ln);
    for (entry, logit) in values.into_iter().enumerate() {
        answers[2][(((3 + 2) * ENTRIES + entry) * 4 + 3) * 4 + 1] = logit;
    }
    let found = found(levels(&answers, false, &device), SIDE, anchors());
    assert_eq!(found[0], []);
    // The probability of an object is 9/10, those of the classes 4/5 and 1/5. The box (height 5.75) crosses the border.
    let expected = [(0, 0.72, [9.25, 27.125, 14.75, 32.0]), (1, 0.18, [9.25, 27.125, 14.75, 32.0])];
    assert_eq!(found[1].len(), 2);
    for (found, (class, score, corners)) in found[1].iter().zip(expected) {
        assert_eq!((found.class, &found.mask), (class, &None));
        assert!((found.score - score).abs() < 1e-6, "{found:?}");
        let near = found.bounds.array().into_iter().zip(corners).all(|(found, right)| (found - right).abs() < 1e-4);
        assert!(near, "{found:?}, not {corners:?}");
    }
}

#[test]
fn at_most_the_best_hundred_candidates_are_returned() {
    let level =
        |cells: usize, logit: f32| Tensor::<4>::full([1, BOXES * ENTRIES, cells, cells], logit, &Device::flex());
    // Every place predicts both classes with a score of a quarter, and more on the coarsest level, whose 507 places come first.
    let found = found(vec![level(13, 0.5), level(26, 0.0), level(52, 0.0)], 416, ANCHORS);
    assert_eq!(found[0].len(), 100);
    let best = (1.0_f32 / (1.0 + (-0.5_f32).exp())).powi(2);
    assert!((found[0][0].score - best).abs() < 1e-6);
    assert!(found[0].windows(2).all(|pair| pair[0].score >= pair[1].score));
    let overlap = |a: &Prediction, b: &Prediction| a.class == b.class && a.bounds.iou(b.bounds) > 0.7;
    let pairs = (0..100).flat_map(|a| (0..a).map(move |b| (a, b)));
    assert_eq!(pairs.filter(|(a, b)| overlap(&found[0][*a], &found[0][*b])).count(), 0);
}

#[test]
#[ignore = "needs a GPU"]
fn loss_gradient_and_boxes_are_those_of_the_cpu_on_gpu() {
    let answers = answers();
    let near = |a: f32, b: f32| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
    for answers in [answers.clone(), large(answers.clone())] {
        let (theirs, [ours, again]) =
            (graded(&answers, 1.0, &Device::flex()), [(); 2].map(|()| graded(&answers, 1.0, &Device::cuda(0))));
        assert_eq!(crate::native::fault(), None);
        assert_eq!(ours, again, "other bits");
        assert_eq!(ours.len(), theirs.len());
        assert!(ours.iter().zip(&theirs).all(|(a, b)| near(*a, *b)), "{ours:?}, not {theirs:?}");
    }
    let boxes = |device: &Device| found(levels(&answers, false, device), SIDE, anchors());
    let (theirs, [ours, again]) = (boxes(&Device::flex()), [(); 2].map(|()| boxes(&Device::cuda(0))));
    assert_eq!(crate::native::fault(), None);
    assert_eq!(ours, again, "other bits");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours.len(), theirs.len());
        for (a, b) in ours.iter().zip(theirs) {
            let corners = a.bounds.array().into_iter().zip(b.bounds.array());
            assert!(a.class == b.class && near(a.score, b.score), "{a:?}, not {b:?}");
            assert!(corners.into_iter().all(|(a, b)| near(a, b)), "{a:?}, not {b:?}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn boxes_and_scores_in_all_formats_are_those_of_the_cpu_on_gpu() {
    let (none, places) = (Index::default(), Places::new(SIDE, anchors()));
    let read = |tensor: Tensor<4>| tensor.try_into_vec_as::<f32>().expect("readable");
    let there = |values: Vec<f32>, shape: [usize; 4], device: &Device| {
        Tensor::<4>::from_data(TensorData::new(values, shape), device)
    };
    for (classes, precision) in [
        (80, Precision::Fp32),
        (80, Precision::Fp16),
        (80, Precision::Bf16),
        (1, Precision::Bf16),
        (33, Precision::Fp32),
    ] {
        // Rounded once, so that both devices have the same values.
        let level = |cells: usize| {
            let shape = [3, BOXES * (5 + classes), cells, cells];
            let numbers = 0..shape.iter().product();
            let values: Vec<f32> = numbers.map(|n| 4.0 * value(&format!("level of {cells}"), n)).collect();
            (read(exact(precision.round(there(values, shape, &Device::flex())))), shape)
        };
        let levels = CELLS.map(level);
        let scored = |device: &Device| {
            let levels = levels.iter().map(|(values, shape)| {
                let level = precision.round(there(values.clone(), *shape, device));
                assert!(read(exact(level.clone())) == *values, "{precision:?}: other values");
                level
            });
            detections::scored(&ctx(&none, false, device), levels.collect(), &places).map(read).concat()
        };
        let (ours, theirs) = (scored(&Device::cuda(0)), scored(&Device::flex()));
        assert_eq!(crate::native::fault(), None);
        assert_eq!(ours.len(), 3 * places.count() * (5 + classes));
        assert_eq!(ours.len(), theirs.len());
        for (place, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{classes}, {precision:?}, {place}: {a}, not {b}");
        }
    }
}
