//! Mean average precision as COCO's evaluation defines it (Lin et al. 2014, "Microsoft COCO: Common Objects in Context", and the
//! numbers that its challenges rank by), for boxes and for masks.
//!
//! Knows detections and truths as plain regions; nothing of models, files or tensors. Pictures are added one after the other: what
//! is kept of a picture is a few bytes for each detection.
//!
//! The definition. Within a picture and a class the 100 best detections are matched, best first, for each of ten thresholds from .50
//! to .95: a detection takes the free truth of the largest intersection over union at or above the threshold, of equal ones the
//! last, and one that counts before one that does not. Crowds and truths outside the range of areas do not count: what is
//! matched with them is left out, and so is what is unmatched and outside the range. A crowd is never taken. Then, by falling
//! score over all pictures and of equal scores in their order, recall and precision follow; precision at a recall is the largest
//! at that or any higher one, 0 beyond the highest, and its mean over the recalls 0, .01 … 1 is the average precision of a class.
//! The summary means over classes and thresholds, where a class without a truth that counts is left out.
//!
//! One difference to COCO's tools: there a truth with the id 0 is never matched, for 0 also says that there is no match.

mod accumulate;
mod matching;

use super::boxes::Xywh;
use super::mask::Mask;
use accumulate::{Scored, accumulate};
pub use matching::{Matches, match_picture};
use rayon::prelude::*;

/// Detections or truths cannot be evaluated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EvaluationError {
    /// A class is not one of the classes.
    #[error("{what} {index} has the class {class} (there are {classes}, from 0)")]
    Class {
        /// `detection` or `truth`.
        what: &'static str,
        /// Which of the picture, from 0.
        index: usize,
        /// Its class.
        class: usize,
        /// How many there are.
        classes: usize,
    },
    /// A score cannot be ordered.
    #[error("detection {index} has the score {score} (it must be finite)")]
    Score {
        /// Which of the picture, from 0.
        index: usize,
        /// Its score.
        score: f32,
    },
}

/// A part of a picture that can be compared with others: a box or a mask.
pub trait Region: Sized {
    /// Its area in pixels.
    fn area(&self) -> f64;

    /// Intersections over unions, row-major with a row for each detection and a column for each truth. With a crowd it is the share
    /// of the detection that lies in it.
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

/// Number of thresholds of intersection over union.
const THRESHOLDS: usize = 10;

/// The place of .75 among the thresholds; .50 is the first.
const THREE_QUARTERS: usize = 5;

/// How many detections of a picture and a class are looked at; precision is told for the last.
const MOST: [u8; 3] = [1, 10, 100];

/// The numbers that COCO's evaluation ends with; none where no class has a truth that counts, where COCO's tools have −1.
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
    /// Highest recall with one detection for each picture and class, mean over the thresholds.
    pub ar_1: Option<f64>,
    /// Highest recall with 10 detections for each picture and class.
    pub ar_10: Option<f64>,
    /// Highest recall with 100 detections for each picture and class.
    pub ar_100: Option<f64>,
    /// Highest recall of objects of up to 32² pixels.
    pub ar_small: Option<f64>,
    /// Highest recall of objects between 32² and 96² pixels.
    pub ar_medium: Option<f64>,
    /// Highest recall of objects from 96² pixels.
    pub ar_large: Option<f64>,
}

impl Summary {
    /// The numbers with their names, in the order in which COCO's tools tell them.
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

/// Average precision of one class; none if it has no truth that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassPrecision {
    /// Mean over the thresholds .50, .55 … .95.
    pub ap: Option<f64>,
    /// At .50.
    pub ap_50: Option<f64>,
}

/// What an evaluation finds.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Over all classes.
    pub summary: Summary,
    /// For each class, in the order of their numbers.
    pub classes: Vec<ClassPrecision>,
}

/// Gathers the matches of pictures, and tells mean average precision at the end.
///
/// Where detections of different pictures have equal scores, the order in which the pictures are added decides between them; COCO's
/// tools take pictures by ascending id.
#[derive(Clone, Debug)]
pub struct MeanAveragePrecision {
    detections: Vec<Vec<Scored>>,
    /// How many truths count, by class and range of areas.
    truths: Vec<[u64; AREAS.len()]>,
}

impl MeanAveragePrecision {
    /// An evaluation without pictures. A class for the background may be among the classes: without truths it is left out.
    pub fn new(classes: usize) -> Self {
        Self { detections: vec![Vec::new(); classes], truths: vec![[0; AREAS.len()]; classes] }
    }

    /// Takes in a picture that was matched by [`match_picture`] with the same number of classes; of another one, what has a class
    /// beyond ours is left out.
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

    /// The numbers for the pictures that were added. Takes several threads; the numbers are the same for any number of them.
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
