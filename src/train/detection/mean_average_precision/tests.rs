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

/// The detections and the truths of an image.
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

/// By score, the first detection is exactly a truth's box and the second is wrong. The third, shifted by 1 of 10, has an IoU of
/// 90 / 110 = .818: enough for the seven thresholds up to .80. There the precision is 1 at recall 1/2 and 2/3 at recall 1. Of the
/// recalls 0, .01 … 1, 51 are at most 1/2 and 50 above. At higher thresholds only the first truth is found.
#[test]
fn metrics_of_three_boxes_match_values_computed_by_hand() {
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
fn all_detections_in_a_crowd_are_ignored() {
    let crowd = Truth { crowd: true, ..there([0.0, 0.0, 100.0, 100.0]) };
    let truth = there([200.0, 0.0, 10.0, 10.0]);
    let inside = |score, left| found(score, [left, 5.0, 20.0, 20.0]);
    let right = found(0.1, [200.0, 0.0, 10.0, 10.0]);
    let detections = [inside(0.9, 0.0), inside(0.8, 30.0), right.clone()];
    let all = summary(&detections, &[crowd.clone(), truth.clone()]);
    near(all.ap, 1.0);
    // Half of the box lies in the crowd, which is enough for the threshold .50 only. For the nine others it is a wrong detection with
    // a higher score than the right one.
    let half = summary(&[inside(0.9, 90.0), right], &[crowd.clone(), truth]);
    near(half.ap_50, 1.0);
    near(half.ap, (1.0 + 9.0 * 0.5) / 10.0);
    assert_eq!(summary(&detections, &[crowd]).named().map(|(_, value)| value), [None; 12]);
}

/// A truth of 40 × 40 would be medium by its box, but its mask has 1000 pixels: small.
#[test]
fn regions_outside_the_size_range_are_ignored() {
    let truths = [there([0.0, 0.0, 100.0, 100.0]), Truth { area: 1000.0, ..there([200.0, 0.0, 40.0, 40.0]) }];
    let mut detections = vec![
        found(0.9, [0.0, 0.0, 100.0, 100.0]),
        found(0.8, [200.0, 0.0, 40.0, 40.0]),
        found(0.95, [0.0, 200.0, 10.0, 10.0]),
    ];
    let all = summary(&detections, &truths);
    // The wrong detection comes first and has 100 pixels. The precisions are 1/2 and 2/3, and the larger one applies to both recalls.
    near(all.ap, 2.0 / 3.0);
    near(all.ap_small, 0.5);
    near(all.ap_large, 1.0);
    assert_eq!(all.ap_medium, None);
    // The wrong detection is now medium, so it does not affect small and large.
    detections[2].region = Xywh::new([0.0, 200.0, 50.0, 50.0]);
    let all = summary(&detections, &truths);
    near(all.ap, 2.0 / 3.0);
    near(all.ap_small, 1.0);
    near(all.ap_large, 1.0);
}

/// Adjacent ranges share their bound, and an area equal to it is in both.
#[test]
fn an_area_of_1024_is_small_and_medium() {
    let truths = [there([0.0, 0.0, 32.0, 32.0])];
    let all = summary(&[found(0.5, [0.0, 0.0, 32.0, 32.0])], &truths);
    assert_eq!([all.ap_small, all.ap_medium, all.ap_large].map(|ap| ap.is_some()), [true, true, false]);
}

/// The detection at 2 has an IoU of 80 / 120 with both truths, at 0 and at 4. It takes the last and leaves the first to the detection
/// at −2, whose IoU is 80 / 120 with the first and 40 / 160 with the last.
#[test]
fn the_last_of_truths_with_equal_iou_is_matched() {
    let truths = [there([0.0, 0.0, 10.0, 10.0]), there([4.0, 0.0, 10.0, 10.0])];
    let detections = [found(0.9, [2.0, 0.0, 10.0, 10.0]), found(0.8, [-2.0, 0.0, 10.0, 10.0])];
    near(summary(&detections, &truths).ap_50, 1.0);
    let reversed = [truths[1].clone(), truths[0].clone()];
    near(summary(&detections, &reversed).ap_50, 51.0 / 101.0);
}

/// The detection lies entirely in the crowd, and has an IoU of 90 / 110 with the truth.
#[test]
fn truths_that_count_have_priority_in_matching() {
    let truths = [Truth { crowd: true, ..there([0.0, 0.0, 50.0, 50.0]) }, there([10.0, 0.0, 10.0, 10.0])];
    let all = summary(&[found(0.9, [11.0, 0.0, 10.0, 10.0])], &truths);
    // For the three thresholds above 90 / 110 it matches the crowd: no truth is found, and no detection is wrong.
    near(all.ap, 0.7);
    near(all.ar_100, 0.7);
}

#[test]
fn a_truth_matches_only_one_detection() {
    let square = [0.0, 0.0, 10.0, 10.0];
    let second = there([20.0, 0.0, 10.0, 10.0]);
    let detections = [found(0.9, square), found(0.8, square), found(0.7, second.region.array())];
    near(summary(&detections, &[there(square), second]).ap, (51.0 + 50.0 * 2.0 / 3.0) / 101.0);
}

/// The 100th of 101 detections is right: the precision is 1/100 at every recall. As the 101st it would be ignored.
#[test]
fn only_the_best_hundred_detections_are_used() {
    let truths = [there([0.0, 0.0, 10.0, 10.0])];
    let wrong = |n: u8| found(1.0 - f32::from(n) / 200.0, [100.0, 100.0, 10.0, 10.0]);
    let with = |score| (0..100).map(wrong).chain([found(score, [0.0, 0.0, 10.0, 10.0])]).collect::<Vec<_>>();
    let last_but_one = summary(&with(0.507), &truths);
    near(last_but_one.ap, 0.01);
    assert_eq!([last_but_one.ar_1, last_but_one.ar_10, last_but_one.ar_100], [Some(0.0), Some(0.0), Some(1.0)]);
    assert_eq!(summary(&with(0.1), &truths).ar_100, Some(0.0));
}

#[test]
fn equal_scores_keep_the_order_of_the_images() {
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

/// 4 × 4 pixels and the upper 4 × 3 of them have an IoU of 12 / 16 = .75, which equals the threshold .75.
#[test]
fn mask_metrics_match_values_computed_by_hand() {
    let size = Size { width: 8, height: 8 };
    let rows = |rows: u8| Mask::from_part(size, (2, 2), 4, &vec![1; usize::from(rows) * 4]);
    let truth = Truth { class: 0, area: 16.0, crowd: false, region: rows(4) };
    let detection = Detection { class: 0, score: 0.5, region: rows(3) };
    let summary = evaluated(1, &[(&[detection][..], &[truth][..])]).summary;
    near(summary.ap, 0.6);
    near(summary.ap_75, 1.0);
}

#[test]
fn invalid_detections_and_truths_are_errors() {
    let square = [0.0, 0.0, 10.0, 10.0];
    let fault = |detections: &[Detection<Xywh>], truths: &[Truth<Xywh>]| {
        match_picture(3, detections, truths).expect_err("a fault").to_string()
    };
    let odd = [found(0.5, square), Detection { class: 3, ..found(0.5, square) }];
    assert_eq!(fault(&odd, &[]), "detection 1 has the class 3 (there are 3, from 0)");
    assert_eq!(fault(&[], &[Truth { class: 9, ..there(square) }]), "truth 0 has the class 9 (there are 3, from 0)");
    assert_eq!(fault(&[found(f32::NAN, square)], &[]), "detection 0 has the score NaN (it must be finite)");
    // A NaN box is a wrong detection in every range of areas.
    let summary = summary(&[found(0.9, [f64::NAN; 4]), found(0.8, square)], &[there(square)]);
    near(summary.ap_small, 0.5);
}
