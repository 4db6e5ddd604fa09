//! Mean average precision of boxes and masks, as defined by COCO's evaluation (Lin et al. 2014, "Microsoft COCO: Common Objects in
//! Context", and the metrics of its challenges).
//!
//! Knows detections and truths as plain regions; nothing of models, files or tensors. Images are added one after the other; an image
//! takes a few bytes for each detection.
//!
//! The definition:
//! - Within an image and a class, the 100 best detections are matched, best first, for each of ten thresholds from .50 to .95.
//! - A detection takes the free truth with the largest IoU at or above the threshold, of equal ones the last. Truths that count have
//!   priority over those that do not.
//! - Crowds and truths outside the range of areas do not count, and detections matched with them are ignored. Unmatched detections
//!   outside the range are ignored too. A crowd can match any number of detections.
//! - Recall and precision are accumulated by falling score over all images; equal scores keep their order. The precision at a recall
//!   is the largest at that or any higher recall, and 0 beyond the highest.
//! - The average precision of a class is the mean precision over the recalls 0, .01 … 1.
//! - The summary averages over classes and thresholds. Classes without a truth that counts are left out.
//!
//! One difference from COCO's tools: there a truth with id 0 is never matched, as 0 also means "no match".

mod accumulate;
mod matching;

use super::boxes::Xywh;
use super::mask::Mask;
use accumulate::{Scored, accumulate};
pub use matching::{Matches, match_picture};
use rayon::prelude::*;

/// Invalid detections or truths.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EvaluationError {
    /// A class index is out of range.
    #[error("{what} {index} has the class {class} (there are {classes}, from 0)")]
    Class {
        /// `detection` or `truth`.
        what: &'static str,
        /// Its index in the image, from 0.
        index: usize,
        /// Its class.
        class: usize,
        /// The number of classes.
        classes: usize,
    },
    /// A score is not finite.
    #[error("detection {index} has the score {score} (it must be finite)")]
    Score {
        /// Its index in the image, from 0.
        index: usize,
        /// Its score.
        score: f32,
    },
}

/// A region of an image that can be compared with others: a box or a mask.
pub trait Region: Sized {
    /// Its area in pixels.
    fn area(&self) -> f64;

    /// The IoUs, row-major with a row for each detection and a column for each truth. For a crowd, intersection over
    /// the area of the detection.
    fn overlaps(detections: &[&Self], truths: &[&Self], crowd: &[bool]) -> Vec<f64>;
}

impl Region for Xywh {
    fn area(&self) -> f64 {
        Self::area(*self)
    }

    fn overlaps(detections: &[&Self], truths: &[&Self], crowd: &[bool]) -> Vec<f64> {
        let row = |found: &Self| {
            let found = *found;
            truths.iter().zip(crowd).map(move |(truth, crowd)| found.iou(**truth, *crowd))
        };
        detections.iter().flat_map(|found| row(found)).collect()
    }
}

impl Region for Mask {
    fn area(&self) -> f64 {
        f64::from(Self::area(self))
    }

    fn overlaps(detections: &[&Self], truths: &[&Self], crowd: &[bool]) -> Vec<f64> {
        Self::iou_matrix(detections, truths, crowd)
    }
}

/// Ranges of areas: all, small, medium, large. In square pixels, both ends included.
const AREAS: [[f64; 2]; 4] = [[0.0, 1e10], [0.0, 1024.0], [1024.0, 9216.0], [9216.0, 1e10]];

/// Number of IoU thresholds.
const THRESHOLDS: usize = 10;

/// The index of .75 among the thresholds; .50 is the first.
const THREE_QUARTERS: usize = 5;

/// Maximum numbers of detections per image and class; precision uses the last.
const MOST: [u8; 3] = [1, 10, 100];

/// COCO's summary metrics; `None` if no class has a truth that counts, where COCO's tools report −1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Average precision, mean over the thresholds .50, .55 … .95.
    pub ap: Option<f64>,
    /// Average precision at .50.
    pub ap_50: Option<f64>,
    /// Average precision at .75.
    pub ap_75: Option<f64>,
    /// Average precision of objects of up to 32² pixels.
    pub ap_small: Option<f64>,
    /// Average precision of objects between 32² and 96² pixels.
    pub ap_medium: Option<f64>,
    /// Average precision of objects from 96² pixels.
    pub ap_large: Option<f64>,
    /// Highest recall with one detection for each image and class, mean over the thresholds.
    pub ar_1: Option<f64>,
    /// Highest recall with 10 detections for each image and class.
    pub ar_10: Option<f64>,
    /// Highest recall with 100 detections for each image and class.
    pub ar_100: Option<f64>,
    /// Highest recall of objects of up to 32² pixels.
    pub ar_small: Option<f64>,
    /// Highest recall of objects between 32² and 96² pixels.
    pub ar_medium: Option<f64>,
    /// Highest recall of objects from 96² pixels.
    pub ar_large: Option<f64>,
}

impl Summary {
    /// The metrics with their names, in the order of COCO's tools.
    #[cfg(test)]
    pub fn named(&self) -> [(&'static str, Option<f64>); 12] {
        [
            ("ap", self.ap),
            ("ap_50", self.ap_50),
            ("ap_75", self.ap_75),
            ("ap_small", self.ap_small),
            ("ap_medium", self.ap_medium),
            ("ap_large", self.ap_large),
            ("ar_1", self.ar_1),
            ("ar_10", self.ar_10),
            ("ar_100", self.ar_100),
            ("ar_small", self.ar_small),
            ("ar_medium", self.ar_medium),
            ("ar_large", self.ar_large),
        ]
    }
}

/// Average precision of one class; `None` if it has no truth that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassPrecision {
    /// Mean over the thresholds .50, .55 … .95.
    pub ap: Option<f64>,
    /// At .50.
    pub ap_50: Option<f64>,
}

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Over all classes.
    pub summary: Summary,
    /// For each class, in the order of the class indices.
    pub classes: Vec<ClassPrecision>,
}

/// Collects the matches of images and computes mean average precision.
///
/// Detections with equal scores are ordered by the order in which their images were added; COCO's tools take images by ascending id.
#[derive(Clone, Debug)]
pub struct MeanAveragePrecision {
    detections: Vec<Vec<Scored>>,
    /// Number of truths that count, by class and range of areas.
    truths: Vec<[u64; AREAS.len()]>,
}

impl MeanAveragePrecision {
    /// An evaluation without images. The classes may include the background, which is left out as it has no truths.
    pub fn new(classes: usize) -> Self {
        Self { detections: vec![Vec::new(); classes], truths: vec![[0; AREAS.len()]; classes] }
    }

    /// Adds the matches of an image from [`match_picture`] with the same number of classes. Classes out of range are ignored.
    pub fn add(&mut self, picture: Matches) {
        for (class, scored) in picture.detections {
            if let Some(detections) = self.detections.get_mut(class) {
                detections.push(scored);
            }
        }
        for (class, counted) in picture.truths {
            let truths = self.truths.get_mut(class).into_iter().flatten();
            truths.zip(counted).for_each(|(sum, count)| *sum += count);
        }
    }

    /// Computes the metrics of the added images on several threads. The number of threads does not change the result.
    pub fn finish(self) -> Evaluation {
        let Self { mut detections, truths } = self;
        let tables = detections.par_iter_mut().zip(&truths).map(|(detections, truths)| accumulate(detections, *truths));
        let tables: Vec<_> = tables.collect();
        let precision = |area: usize, thresholds: std::ops::Range<usize>| {
            let of_class =
                |table: &accumulate::Table| table.precision[area].map(|all| all[thresholds.clone()].to_vec());
            mean(tables.iter().filter_map(of_class).flatten())
        };
        let recall = |row: usize| mean(tables.iter().filter_map(|table| table.recall[row]).flatten());
        let (all, first, middle) = (0..THRESHOLDS, 0..1, THREE_QUARTERS..THREE_QUARTERS + 1);
        let summary = Summary {
            ap: precision(0, all.clone()),
            ap_50: precision(0, first),
            ap_75: precision(0, middle),
            ap_small: precision(1, all.clone()),
            ap_medium: precision(2, all.clone()),
            ap_large: precision(3, all),
            ar_1: recall(0),
            ar_10: recall(1),
            ar_100: recall(2),
            ar_small: recall(3),
            ar_medium: recall(4),
            ar_large: recall(5),
        };
        let of_class = |table: &accumulate::Table| {
            let of_all = table.precision[0];
            ClassPrecision { ap: of_all.and_then(mean), ap_50: of_all.map(|precision| precision[0]) }
        };
        Evaluation { summary, classes: tables.iter().map(of_class).collect() }
    }
}

fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.into_iter().fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod parity;
#[cfg(test)]
mod tests;
