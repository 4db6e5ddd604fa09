use super::*;
use crate::precision::Precision;
use burn::tensor::{Device, TensorData};

/// Two places of 16 pixels in a picture of 32 x 32, and one of 32 pixels.
fn anchors() -> Anchors {
    Anchors::new(32, &[(16.0, 2), (32.0, 1)])
}

/// Answers that leave every anchor as it is, with these logits.
fn plain(logits: &[f32]) -> Vec<f32> {
    logits.iter().flat_map(|logit| [*logit, 0.0, 0.0, 0.0, 0.0]).collect()
}

#[test]
fn the_best_of_each_level_are_clipped_and_told_apart() {
    let numbers = ProposalCounts { before: 4, after: 10 };
    // The first level has 12 anchors, of which 4, 3, 8 and 0 are the best; the second has 3, which are all taken.
    let mut logits = [-9.0; 15];
    logits[4] = 3.0;
    logits[3] = 2.0;
    logits[8] = 1.0;
    logits[0] = 0.5;
    logits[13] = 2.5;
    let found = propose(&plain(&logits), &anchors(), 32, numbers);
    let clipped = |place: usize| anchors().boxes[place].clipped(32.0, 32.0);
    // None of those that are left overlap by 0.7: the four of the first level and the three of the second.
    assert_eq!(found[..4], [4, 13, 3, 8].map(clipped));
    assert_eq!(found.len(), 7, "{found:?}");
    assert_eq!(propose(&plain(&logits), &anchors(), 32, ProposalCounts { before: 4, after: 2 }), [4, 13].map(clipped));
    // The same place once more with a smaller logit: its anchor becomes the box of the other.
    let mut answers = plain(&logits);
    let deltas = PROPOSAL.encode(anchors().boxes[3], anchors().boxes[4]);
    answers[3 * ANSWER + 1..4 * ANSWER].copy_from_slice(&deltas);
    let fewer = propose(&answers, &anchors(), 32, numbers);
    assert_eq!(fewer.len(), 6, "{fewer:?}");
}

#[test]
fn what_is_outside_or_no_number_is_no_proposal() {
    let mut answers = plain(&[1.0; 15]);
    // Ten times its width to the left; no number; and everything else of the first level almost without a width.
    answers[1] = -10.0;
    answers[ANSWER + 1] = f32::NAN;
    (2..12).for_each(|place| answers[place * ANSWER + 3] = -20.0);
    let found = propose(&answers, &anchors(), 32, ProposalCounts { before: 100, after: 100 });
    assert!(found.iter().all(|bounds| bounds.width() > 10.0) && !found.is_empty(), "{found:?}");
    assert!(propose(&[f32::NAN; 75], &anchors(), 32, ProposalCounts { before: 100, after: 100 }).is_empty());
}

#[test]
fn losses_are_those_of_plain_loops() {
    let anchors = Anchors::new(64, &[(16.0, 8), (32.0, 4)]);
    let many = anchors.boxes.len();
    let objects = vec![vec![Xyxy::new([3.0, 5.0, 21.0, 19.0]), Xyxy::new([30.0, 20.0, 62.0, 50.0])], vec![]];
    let share = Share { all: 32, objects: 0.5 };
    let ctx = ForwardContext::without_parameters(Precision::Fp32, &Device::flex());
    let values: Vec<f32> =
        (0..2 * many * ANSWER).map(|n| f32::from(u16::try_from(n * 37 % 1013).expect("small")) / 500.0 - 1.0).collect();
    let answers = Tensor::<3>::from_data(TensorData::new(values.clone(), [2, many, ANSWER]), &Device::flex());
    let answers = Tensor::from_inner(answers).require_grad();
    let losses = Lesson::new(&anchors, &objects, share, Some(7)).losses(&ctx, answers.clone());
    let [objectness, deltas] = losses.clone().map(|loss| loss.inner().try_into_scalar::<f32>().expect("readable"));
    let (mut entropy, mut distance, mut counted) = (0.0, 0.0, 0.0);
    let mut touched = vec![false; 2 * many * ANSWER];
    for (row, objects) in objects.iter().enumerate() {
        let found = matches(objects, &anchors.boxes, ANCHORS);
        let one = sample(&found, share, Choice { key: Some(7), row });
        for place in one.objects.iter().chain(&one.background) {
            counted += 1.0;
            let at = (row * many + place) * ANSWER;
            let x = f64::from(values[at]);
            touched[at] = true;
            let Match::Object(object) = found[*place] else {
                entropy += x.exp().ln_1p();
                continue;
            };
            entropy += (-x).exp().ln_1p();
            let right = PROPOSAL.encode(anchors.boxes[*place], objects[object]);
            for (n, right) in right.iter().enumerate() {
                let off = f64::from(values[at + 1 + n] - right).abs();
                distance += if off < 1.0 / 9.0 { 4.5 * off * off } else { off - 0.5 / 9.0 };
                touched[at + 1 + n] = true;
            }
        }
    }
    assert!(counted > 60.0 && distance > 1.0);
    assert!((f64::from(objectness) - entropy / counted).abs() < 1e-5, "{objectness}, not {}", entropy / counted);
    assert!((f64::from(deltas) - distance / counted).abs() < 1e-5, "{deltas}, not {}", distance / counted);
    // Gradients are where something was sampled, and nowhere else.
    let [one, other] = losses;
    let mut tape = (one + other).backward();
    let gradient: Vec<f32> = answers.grad_remove(&mut tape).expect("on the tape").try_into_vec_as().expect("readable");
    for (place, (gradient, touched)) in gradient.iter().zip(touched).enumerate() {
        assert_eq!(*gradient != 0.0, touched, "{gradient} at {place}");
    }
}

#[test]
fn nothing_to_learn_is_no_loss() {
    let ctx = ForwardContext::without_parameters(Precision::Fp32, &Device::flex());
    let answers = Tensor::from_inner(Tensor::<3>::ones([1, 15, ANSWER], &Device::flex()));
    let lesson = Lesson::new(&anchors(), &[vec![]], Share { all: 4, objects: 0.5 }, None);
    let [objectness, deltas] =
        lesson.losses(&ctx, answers).map(|loss| loss.inner().try_into_scalar::<f32>().expect("readable"));
    // Four anchors of the background with logit 1.
    assert!((objectness - 1.0_f32.exp().ln_1p()).abs() < 1e-6);
    assert_eq!(deltas, 0.0);
}
