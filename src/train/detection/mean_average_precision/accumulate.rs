//! Precision and recall of one class over all images.

use super::{AREAS, MOST, THRESHOLDS};
use crate::number::{real, real_len};

/// A detection after matching. Each bit of the bit masks is for one threshold, the lowest bit for the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scored {
    score: f32,
    /// Number of better detections of its image and class.
    rank: u8,
    /// Whether it matched a truth that counts, by range of areas.
    right: [u16; AREAS.len()],
    /// Whether it is ignored, by range of areas.
    ignored: [u16; AREAS.len()],
}

impl Scored {
    pub(super) fn new(score: f32, rank: u8) -> Self {
        Self { score, rank, right: [0; AREAS.len()], ignored: [0; AREAS.len()] }
    }

    pub(super) fn set(&mut self, area: usize, threshold: usize, right: bool, ignored: bool) {
        self.right[area] |= u16::from(right) << threshold;
        self.ignored[area] |= u16::from(ignored) << threshold;
    }
}

/// The metrics of one class for every threshold; `None` if no truth counts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    /// Average precision by range of areas.
    pub(super) precision: [Option<[f64; THRESHOLDS]>; AREAS.len()],
    /// Highest recall: over all areas with 1, 10 and 100 detections, then for the other ranges with 100.
    pub(super) recall: [Option<[f64; THRESHOLDS]>; MOST.len() + AREAS.len() - 1],
}

/// The rows of [`Table::recall`]: range of areas, and maximum number of detections.
const RECALLS: [(usize, u8); 6] = [(0, MOST[0]), (0, MOST[1]), (0, MOST[2]), (1, MOST[2]), (2, MOST[2]), (3, MOST[2])];

/// Computes the metrics of one class. Sorts its detections by score. `truths` are the numbers of truths that count.
pub(super) fn accumulate(detections: &mut [Scored], truths: [u64; AREAS.len()]) -> Table {
    // A stable sort: of equal scores the one of the earlier image comes first.
    detections.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap_or(std::cmp::Ordering::Equal));
    let each = |area: usize, of_threshold: &dyn Fn(usize) -> f64| {
        let mut values = [0.0; THRESHOLDS];
        values.iter_mut().enumerate().for_each(|(threshold, value)| *value = of_threshold(threshold));
        (truths[area] > 0).then_some(values)
    };
    let precision = |area: usize| each(area, &|threshold| average_precision(detections, area, threshold, truths[area]));
    let recall = |(area, most): (usize, u8)| {
        each(area, &|threshold| {
            let among = detections.iter().filter(|one| one.rank < most);
            real_len(among.filter(|one| one.right[area] >> threshold & 1 == 1).count()) / real(truths[area])
        })
    };
    Table { precision: [0, 1, 2, 3].map(precision), recall: RECALLS.map(recall) }
}

/// Mean precision over the recalls 0, .01 … 1.
fn average_precision(detections: &[Scored], area: usize, threshold: usize, truths: u64) -> f64 {
    let (mut right, mut wrong) = (0.0, 0.0);
    // Only the precision after each right detection: after a wrong one it is lower at the same recall.
    let mut precisions: Vec<f64> = Vec::new();
    for one in detections {
        if one.ignored[area] >> threshold & 1 == 1 {
            continue;
        }
        if one.right[area] >> threshold & 1 == 1 {
            right += 1.0;
            // COCO's tools avoid 0 / 0 this way; it changes the last bit of the first precision.
            precisions.push(right / (wrong + right + f64::EPSILON));
        } else {
            wrong += 1.0;
        }
    }
    let mut best: f64 = 0.0;
    for precision in precisions.iter_mut().rev() {
        best = best.max(*precision);
        *precision = best;
    }
    let (mut sum, mut reached) = (0.0, 0);
    for n in 0..=100_u8 {
        let recall = if n == 100 { 1.0 } else { f64::from(n) * 0.01 };
        while reached < precisions.len() && real_len(reached + 1) / real(truths) < recall {
            reached += 1;
        }
        sum += precisions.get(reached).copied().unwrap_or(0.0);
    }
    sum / 101.0
}
