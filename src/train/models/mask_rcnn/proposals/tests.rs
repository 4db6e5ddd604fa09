use super::*;
use crate::precision::Precision;
use burn::tensor::Device;

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
