//! Matches the detections of an image with its truths, for each threshold and each range of areas.

use super::accumulate::Scored;
use super::{AREAS, EvaluationError, MOST, Region, THRESHOLDS};
use crate::detection::{Detection, Truth};
use crate::number::real_len;
use std::collections::BTreeSet;

/// The matches of an image: the score and correctness of each detection, and the numbers of truths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matches {
    /// The class and the matched detection.
    pub(super) detections: Vec<(usize, Scored)>,
    /// The class, and the number of its truths that count in each range of areas.
    pub(super) truths: Vec<(usize, [u64; AREAS.len()])>,
}

/// Matches the detections of one image with its truths. Images are independent, so they can be matched on several threads and
/// added in order. An IoU of NaN matches nothing.
pub fn match_picture<R: Region>(
    classes: usize,
    detections: &[Detection<R>],
    truths: &[Truth<R>],
) -> Result<Matches, EvaluationError> {
    check(classes, detections, truths)?;
    let present: BTreeSet<usize> =
        detections.iter().map(|found| found.class).chain(truths.iter().map(|truth| truth.class)).collect();
    let mut matches = Matches::default();
    for class in present {
        let there: Vec<&Truth<R>> = truths.iter().filter(|truth| truth.class == class).collect();
        let mut found: Vec<&Detection<R>> = detections.iter().filter(|found| found.class == class).collect();
        // A stable sort: of equal scores the earlier one is matched first.
        found.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap_or(std::cmp::Ordering::Equal));
        found.truncate(usize::from(MOST[2]));
        let matched = match_class(&found, &there);
        matches.detections.extend(matched.into_iter().map(|scored| (class, scored)));
        if !there.is_empty() {
            let counted = |area: usize| there.iter().map(|truth| u64::from(counts(truth, area))).sum();
            matches.truths.push((class, [0, 1, 2, 3].map(counted)));
        }
    }
    Ok(matches)
}

fn check<R>(classes: usize, detections: &[Detection<R>], truths: &[Truth<R>]) -> Result<(), EvaluationError> {
    let class = |what, index, class| {
        if class < classes { Ok(()) } else { Err(EvaluationError::Class { what, index, class, classes }) }
    };
    for (index, found) in detections.iter().enumerate() {
        class("detection", index, found.class)?;
        if !found.score.is_finite() {
            return Err(EvaluationError::Score { index, score: found.score });
        }
    }
    truths.iter().enumerate().try_for_each(|(index, truth)| class("truth", index, truth.class))
}

fn outside(size: f64, area: usize) -> bool {
    let [least, most] = AREAS[area];
    size < least || size > most
}

fn counts<R>(truth: &Truth<R>, area: usize) -> bool {
    !truth.crowd && !outside(truth.area, area)
}

/// COCO's ten thresholds, rounded as in its tools, as an IoU may equal one of them.
pub(super) fn thresholds() -> [f64; THRESHOLDS] {
    let step = (0.95 - 0.5) / 9.0;
    let mut thresholds = [0.95; THRESHOLDS];
    for (n, threshold) in thresholds.iter_mut().enumerate().take(THRESHOLDS - 1) {
        *threshold = real_len(n) * step + 0.5;
    }
    thresholds
}

/// A truth whose IoU with a detection reaches the lowest threshold.
struct Candidate {
    truth: usize,
    iou: f64,
}

fn match_class<R: Region>(found: &[&Detection<R>], there: &[&Truth<R>]) -> Vec<Scored> {
    let thresholds = thresholds();
    let candidates = candidates(found, there, thresholds[0]);
    let areas: Vec<f64> = found.iter().map(|found| found.region.area()).collect();
    let mut scored: Vec<Scored> = (0_u8..).zip(found).map(|(rank, found)| Scored::new(found.score, rank)).collect();
    for area in 0..AREAS.len() {
        let countable: Vec<bool> = there.iter().map(|truth| counts(truth, area)).collect();
        let beyond: Vec<bool> = areas.iter().map(|size| outside(*size, area)).collect();
        for (n, threshold) in thresholds.iter().enumerate() {
            let mut taken = vec![false; there.len()];
            for ((scored, candidates), beyond) in scored.iter_mut().zip(&candidates).zip(&beyond) {
                let free = |candidate: &&Candidate| !taken[candidate.truth] && candidate.iou >= *threshold;
                let best = |counting| {
                    let fit = candidates.iter().filter(free).filter(|one| countable[one.truth] == counting);
                    fit.reduce(|best, next| if next.iou >= best.iou { next } else { best })
                };
                match best(true).or_else(|| best(false)) {
                    Some(Candidate { truth, .. }) => {
                        let truth = *truth;
                        taken[truth] = !there[truth].crowd;
                        scored.set(area, n, countable[truth], !countable[truth]);
                    }
                    None => scored.set(area, n, false, *beyond),
                }
            }
        }
    }
    scored
}

/// For each detection the truths that it may match, in their order.
fn candidates<R: Region>(found: &[&Detection<R>], there: &[&Truth<R>], least: f64) -> Vec<Vec<Candidate>> {
    let regions: Vec<&R> = found.iter().map(|found| &found.region).collect();
    let truths: Vec<&R> = there.iter().map(|truth| &truth.region).collect();
    let crowd: Vec<bool> = there.iter().map(|truth| truth.crowd).collect();
    let overlaps = R::overlaps(&regions, &truths, &crowd);
    let near = |row: &[f64]| {
        let all = row.iter().enumerate().map(|(truth, iou)| Candidate { truth, iou: *iou });
        all.filter(|candidate| candidate.iou >= least).collect()
    };
    (0..found.len()).map(|n| near(&overlaps[n * there.len()..(n + 1) * there.len()])).collect()
}
