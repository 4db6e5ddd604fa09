use super::*;
use crate::detection::mask::Size;
use crate::detection::{Detection, Truth};

fn found(score: f32, bounds: [f64; 4]) -> Detection<Xywh> {
    Detection { class: 0, score, region: Xywh::new(bounds) }
}

fn there(bounds: [f64; 4]) -> Truth<Xywh> {
    let region = Xywh::new(bounds);
    Truth { class: 0, area: region.area(), crowd: false, region }
}

/// What was found in a picture, and what is there.
type Picture<'a, R> = (&'a [Detection<R>], &'a [Truth<R>]);

fn evaluated<R: Region>(classes: usize, pictures: &[Picture<'_, R>]) -> Evaluation {
    let mut evaluation = MeanAveragePrecision::new(classes);
    for (detections, truths) in pictures {
        evaluation.add(match_picture(classes, detections, truths).expect("valid"));
    }
    evaluation.finish()
}

fn summary(detections: &[Detection<Xywh>], truths: &[Truth<Xywh>]) -> Summary {
    evaluated(1, &[(detections, truths)]).summary
}

fn near(found: Option<f64>, expected: f64) {
    assert!(found.is_some_and(|found| (found - expected).abs() < 1e-14), "{found:?}, not {expected}");
}

/// The first detection is a truth's very box, the second is nothing, and the third, shifted by 1 of 10, overlaps by 90 / 110 = .818:
/// enough for the seven thresholds up to .80. There, recall 1/2 comes with precision 1 and recall 1 with 2/3; of the recalls 0,
/// .01 … 1, 51 are at most 1/2 and 50 above. Beyond, the first truth alone is found.
#[test]
fn three_boxes_by_hand() {
    let truths = [there([0.0, 0.0, 10.0, 10.0]), there([20.0, 0.0, 10.0, 10.0])];
    let detections =
        [found(0.7, [21.0, 0.0, 10.0, 10.0]), found(0.9, [0.0, 0.0, 10.0, 10.0]), found(0.8, [50.0, 0.0, 10.0, 10.0])];
    let both = (51.0 + 50.0 * 2.0 / 3.0) / 101.0;
    let one = 51.0 / 101.0;
    let Evaluation { summary, classes } = evaluated(1, &[(&detections, &truths)]);
    near(summary.ap, (7.0 * both + 3.0 * one) / 10.0);
    near(summary.ap_50, both);
    near(summary.ap_75, both);
    near(summary.ar_1, 0.5);
    near(summary.ar_10, (7.0 * 1.0 + 3.0 * 0.5) / 10.0);
    // All areas are 100: small.
    assert_eq!((summary.ap_small, summary.ar_100, summary.ar_small), (summary.ap, summary.ar_10, summary.ar_10));
    let larger = [summary.ap_medium, summary.ap_large, summary.ar_medium, summary.ar_large];
    assert_eq!(larger, [None; 4]);
    assert_eq!(classes, [ClassPrecision { ap: summary.ap, ap_50: summary.ap_50 }]);
}

#[test]
fn any_number_of_detections_may_lie_in_a_crowd_and_none_counts() {
    let crowd = Truth { crowd: true, ..there([0.0, 0.0, 100.0, 100.0]) };
    let truth = there([200.0, 0.0, 10.0, 10.0]);
    let inside = |score, left| found(score, [left, 5.0, 20.0, 20.0]);
    let right = found(0.1, [200.0, 0.0, 10.0, 10.0]);
    let detections = [inside(0.9, 0.0), inside(0.8, 30.0), right.clone()];
    let all = summary(&detections, &[crowd.clone(), truth.clone()]);
    near(all.ap, 1.0);
    // Half of the box lies in the crowd, which is enough for the threshold .50 alone; for the nine others it is wrong, and before the
    // right one.
    let half = summary(&[inside(0.9, 90.0), right], &[crowd.clone(), truth]);
    near(half.ap_50, 1.0);
    near(half.ap, (1.0 + 9.0 * 0.5) / 10.0);
    assert_eq!(summary(&detections, &[crowd]).named().map(|(_, value)| value), [None; 12]);
}

/// A truth of 40 × 40 is medium by its box, but its mask has 1000 pixels: small.
#[test]
fn what_is_of_another_size_is_left_out() {
    let truths = [there([0.0, 0.0, 100.0, 100.0]), Truth { area: 1000.0, ..there([200.0, 0.0, 40.0, 40.0]) }];
    let mut detections = vec![
        found(0.9, [0.0, 0.0, 100.0, 100.0]),
        found(0.8, [200.0, 0.0, 40.0, 40.0]),
        found(0.95, [0.0, 200.0, 10.0, 10.0]),
    ];
    let all = summary(&detections, &truths);
    // The wrong detection comes first and is of 100 pixels: precisions 1/2 and 2/3, of which the larger one holds for both.
    near(all.ap, 2.0 / 3.0);
    near(all.ap_small, 0.5);
    near(all.ap_large, 1.0);
    assert_eq!(all.ap_medium, None);
    // Of medium size, it is not small and not large.
    detections[2].region = Xywh::new([0.0, 200.0, 50.0, 50.0]);
    let all = summary(&detections, &truths);
    near(all.ap, 2.0 / 3.0);
    near(all.ap_small, 1.0);
    near(all.ap_large, 1.0);
}

/// Ranges have an end in common, and what is exactly there is in both.
#[test]
fn an_area_of_1024_is_small_and_medium() {
    let truths = [there([0.0, 0.0, 32.0, 32.0])];
    let all = summary(&[found(0.5, [0.0, 0.0, 32.0, 32.0])], &truths);
    assert_eq!([all.ap_small, all.ap_medium, all.ap_large].map(|ap| ap.is_some()), [true, true, false]);
}

/// Between the truths at 0 and at 4 the detection at 2 overlaps with both by 80 / 120; it takes the last, and leaves the first to the
/// detection at −2, which overlaps by 80 / 120 with that one and by 40 / 160 with the last.
#[test]
fn of_equal_overlaps_the_last_truth_is_taken() {
    let truths = [there([0.0, 0.0, 10.0, 10.0]), there([4.0, 0.0, 10.0, 10.0])];
    let detections = [found(0.9, [2.0, 0.0, 10.0, 10.0]), found(0.8, [-2.0, 0.0, 10.0, 10.0])];
    near(summary(&detections, &truths).ap_50, 1.0);
    let reversed = [truths[1].clone(), truths[0].clone()];
    near(summary(&detections, &reversed).ap_50, 51.0 / 101.0);
}

/// The detection lies in the crowd altogether, and overlaps with the truth by 90 / 110.
#[test]
fn a_truth_that_counts_is_taken_before_one_that_does_not() {
    let truths = [Truth { crowd: true, ..there([0.0, 0.0, 50.0, 50.0]) }, there([10.0, 0.0, 10.0, 10.0])];
    let all = summary(&[found(0.9, [11.0, 0.0, 10.0, 10.0])], &truths);
    // For the three thresholds above 90 / 110 it falls to the crowd: nothing is found, and nothing is wrong.
    near(all.ap, 0.7);
    near(all.ar_100, 0.7);
}

#[test]
fn a_truth_is_found_once() {
    let square = [0.0, 0.0, 10.0, 10.0];
    let second = there([20.0, 0.0, 10.0, 10.0]);
    let detections = [found(0.9, square), found(0.8, square), found(0.7, second.region.array())];
    near(summary(&detections, &[there(square), second]).ap, (51.0 + 50.0 * 2.0 / 3.0) / 101.0);
}

/// The 100th of 101 detections is right: its precision is 1/100 at every recall. As the 101st it is not looked at.
#[test]
fn a_hundred_detections_are_looked_at() {
    let truths = [there([0.0, 0.0, 10.0, 10.0])];
    let wrong = |n: u8| found(1.0 - f32::from(n) / 200.0, [100.0, 100.0, 10.0, 10.0]);
    let with = |score| (0..100).map(wrong).chain([found(score, [0.0, 0.0, 10.0, 10.0])]).collect::<Vec<_>>();
    let last_but_one = summary(&with(0.507), &truths);
    near(last_but_one.ap, 0.01);
    assert_eq!([last_but_one.ar_1, last_but_one.ar_10, last_but_one.ar_100], [Some(0.0), Some(0.0), Some(1.0)]);
    assert_eq!(summary(&with(0.1), &truths).ar_100, Some(0.0));
}

#[test]
fn equal_scores_are_in_the_order_of_the_pictures() {
    let square = [0.0, 0.0, 10.0, 10.0];
    let (right, wrong) = ([found(0.5, square)], [found(0.5, [50.0, 0.0, 10.0, 10.0])]);
    let truths = [there(square)];
    near(evaluated(1, &[(&right[..], &truths[..]), (&wrong, &[])]).summary.ap, 1.0);
    near(evaluated(1, &[(&wrong[..], &[][..]), (&right, &truths)]).summary.ap, 0.5);
}

/// Class 0 is found, class 2 is not, and class 1 has no truths: the mean is over two.
#[test]
fn classes_without_truths_are_left_out() {
    let square = [0.0, 0.0, 10.0, 10.0];
    let truths = [there(square), Truth { class: 2, ..there(square) }];
    let detections = [found(0.5, square), Detection { class: 1, ..found(0.9, square) }];
    let Evaluation { summary, classes } = evaluated(3, &[(&detections, &truths)]);
    near(summary.ap, 0.5);
    let aps: Vec<Option<f64>> = classes.iter().map(|class| class.ap_50).collect();
    assert!(aps[0].is_some_and(|ap| ap > 0.999) && aps[1..] == [None, Some(0.0)], "{aps:?}");
    let nothing = MeanAveragePrecision::new(2).finish();
    assert_eq!(nothing.summary.named().map(|(_, value)| value), [None; 12]);
    assert_eq!(nothing.classes, [ClassPrecision::default(); 2]);
}

/// 4 × 4 pixels and the upper 4 × 3 of them: 12 / 16 = .75, which is enough for the threshold .75 itself.
#[test]
fn masks_by_hand() {
    let size = Size { width: 8, height: 8 };
    let rows = |rows: u8| Mask::from_part(size, (2, 2), 4, &vec![1; usize::from(rows) * 4]);
    let truth = Truth { class: 0, area: 16.0, crowd: false, region: rows(4) };
    let detection = Detection { class: 0, score: 0.5, region: rows(3) };
    let summary = evaluated(1, &[(&[detection][..], &[truth][..])]).summary;
    near(summary.ap, 0.6);
    near(summary.ap_75, 1.0);
}

#[test]
fn what_cannot_be_evaluated_is_an_error() {
    let square = [0.0, 0.0, 10.0, 10.0];
    let fault = |detections: &[Detection<Xywh>], truths: &[Truth<Xywh>]| {
        match_picture(3, detections, truths).expect_err("a fault").to_string()
    };
    let odd = [found(0.5, square), Detection { class: 3, ..found(0.5, square) }];
    assert_eq!(fault(&odd, &[]), "detection 1 has the class 3 (there are 3, from 0)");
    assert_eq!(fault(&[], &[Truth { class: 9, ..there(square) }]), "truth 0 has the class 9 (there are 3, from 0)");
    assert_eq!(fault(&[found(f32::NAN, square)], &[]), "detection 0 has the score NaN (it must be finite)");
    // A box that is none is wrong wherever it counts.
    let summary = summary(&[found(0.9, [f64::NAN; 4]), found(0.8, square)], &[there(square)]);
    near(summary.ap_small, 0.5);
}
