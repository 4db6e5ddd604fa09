use super::*;
use crate::precision::Precision;
use burn::tensor::Device;

/// The anchors of an image of 32 x 32: a level of 2 x 2 cells with size 16 and one of a single cell with size 32.
fn anchors() -> Anchors {
    Anchors::new(32, &[(16.0, 2), (32.0, 1)])
}

/// Predictions with these logits and zero deltas.
fn plain(logits: &[f32]) -> Vec<f32> {
    logits.iter().flat_map(|logit| [*logit, 0.0, 0.0, 0.0, 0.0]).collect()
}

#[test]
fn the_best_of_each_level_are_clipped_and_suppressed() {
    let numbers = ProposalCounts { before: 4, after: 10 };
    // The first level has 12 anchors; 4, 3, 8 and 0 score best. The second level has 3, which are all kept.
    let mut logits = [-9.0; 15];
    logits[4] = 3.0;
    logits[3] = 2.0;
    logits[8] = 1.0;
    logits[0] = 0.5;
    logits[13] = 2.5;
    let found = propose(&plain(&logits), &anchors(), 32, numbers);
    let clipped = |place: usize| anchors().boxes[place].clipped(32.0, 32.0);
    // No two of the remaining boxes (four of the first level, three of the second) have an IoU of 0.7.
    assert_eq!(found[..4], [4, 13, 3, 8].map(clipped));
    assert_eq!(found.len(), 7, "{found:?}");
    assert_eq!(propose(&plain(&logits), &anchors(), 32, ProposalCounts { before: 4, after: 2 }), [4, 13].map(clipped));
    // Anchor 3 now predicts the box of anchor 4 with a smaller logit, and is suppressed.
    let mut answers = plain(&logits);
    let deltas = PROPOSAL.encode(anchors().boxes[3], anchors().boxes[4]);
    answers[3 * ANSWER + 1..4 * ANSWER].copy_from_slice(&deltas);
    let fewer = propose(&answers, &anchors(), 32, numbers);
    assert_eq!(fewer.len(), 6, "{fewer:?}");
}

#[test]
fn boxes_outside_the_image_and_nan_are_no_proposals() {
    let mut answers = plain(&[1.0; 15]);
    // Anchor 0 moves left by ten times its width, anchor 1 has a NaN, and all others of the first level shrink to
    // almost no width.
    answers[1] = -10.0;
    answers[ANSWER + 1] = f32::NAN;
    (2..12).for_each(|place| answers[place * ANSWER + 3] = -20.0);
    let found = propose(&answers, &anchors(), 32, ProposalCounts { before: 100, after: 100 });
    assert!(found.iter().all(|bounds| bounds.width() > 10.0) && !found.is_empty(), "{found:?}");
    assert!(propose(&[f32::NAN; 75], &anchors(), 32, ProposalCounts { before: 100, after: 100 }).is_empty());
}

#[test]
fn without_objects_the_box_loss_is_zero() {
    let ctx = ForwardContext::without_parameters(Precision::Fp32, &Device::flex());
    let answers = Tensor::from_inner(Tensor::<3>::ones([1, 15, ANSWER], &Device::flex()));
    let lesson = Lesson::new(&anchors(), &[vec![]], Share { all: 4, objects: 0.5 }, None);
    let [objectness, deltas] =
        lesson.losses(&ctx, answers).map(|loss| loss.inner().try_into_scalar::<f32>().expect("readable"));
    // Four anchors of the background with logit 1.
    assert!((objectness - 1.0_f32.exp().ln_1p()).abs() < 1e-6);
    assert_eq!(deltas, 0.0);
}
