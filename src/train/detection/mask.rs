//! Masks of images as column-major run lengths, as in COCO.
//!
//! Joins, compares, flips and scales masks, and converts them to and from the grids of a mask head. Knows nothing of files, models
//! or classes. The representation is unique, so equal masks are equal values: runs of clear and set pixels alternate. The first
//! run is clear, and has length 0 if the first pixel is set. No other run has length 0.

mod bitmap;
mod code;
mod grid;
mod moved;
mod polygon;

use super::boxes::Xywh;
use std::ops::Range;

/// Width and height of an image in pixels. JPEG has 16 bits for each, and the number of pixels fits into 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    /// Number of columns.
    pub width: u16,
    /// Number of rows.
    pub height: u16,
}

impl Size {
    /// Number of pixels.
    pub fn pixels(self) -> u32 {
        u32::from(self.width) * u32::from(self.height)
    }

    /// The size as text: width × height.
    pub fn text(self) -> String {
        format!("{} × {}", self.width, self.height)
    }
}

/// Invalid run lengths of a mask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    /// The sum of the runs is not the number of pixels.
    #[error("the run lengths add up to {found} (a picture of {size} has {pixels} pixels)", size = size.text(), pixels = size.pixels())]
    Sum {
        /// Their sum.
        found: u64,
        /// The image's size.
        size: Size,
    },
    /// The compressed form has an invalid character.
    #[error("the compressed run lengths have {found:?} at character {place} (only `0` to `o` of ASCII can be there)")]
    Character {
        /// The character.
        found: char,
        /// Its index, from 0.
        place: usize,
    },
    /// The compressed form ends within a number.
    #[error("the compressed run lengths end within a number (the text is cut off)")]
    CutOff,
    /// The compressed form has a number that is not a valid length.
    #[error("run length {place} of the compressed form is below 0 or has more than 32 bits (the text is damaged)")]
    Length {
        /// The index of the length, from 0.
        place: usize,
    },
}

/// The pixels of an image that belong to an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mask {
    size: Size,
    counts: Vec<u32>,
}

impl Mask {
    /// A mask with no pixel set.
    #[cfg(test)]
    pub fn clear(size: Size) -> Self {
        Self::from_runs(size, [])
    }

    /// A mask from run lengths in column-major order, starting with clear pixels: COCO's uncompressed form. Runs of length 0 are
    /// dropped. Fails unless the lengths add up to the number of pixels.
    pub fn from_counts(size: Size, counts: &[u32]) -> Result<Self, MaskError> {
        let found = counts.iter().map(|count| u64::from(*count)).sum();
        if found != u64::from(size.pixels()) {
            return Err(MaskError::Sum { found, size });
        }
        let mut at = 0;
        let ranges = counts.iter().map(|count| {
            let start = at;
            at += count;
            start..at
        });
        Ok(Self::from_runs(size, ranges.skip(1).step_by(2)))
    }

    /// A mask from runs of set pixels, which must ascend and not overlap; they may touch or be empty.
    fn from_runs(size: Size, runs: impl IntoIterator<Item = Range<u32>>) -> Self {
        let mut counts: Vec<u32> = Vec::new();
        let mut end = 0;
        for run in runs.into_iter().filter(|run| !run.is_empty()) {
            match counts.last_mut() {
                Some(last) if run.start == end => *last += run.end - run.start,
                _ => counts.extend([run.start - end, run.end - run.start]),
            }
            end = run.end;
        }
        if end < size.pixels() || counts.is_empty() {
            counts.push(size.pixels() - end);
        }
        counts.shrink_to_fit();
        Self { size, counts }
    }

    /// The image's size.
    #[cfg(test)]
    pub fn size(&self) -> Size {
        self.size
    }

    /// The run lengths in column-major order, starting with clear pixels.
    #[cfg(test)]
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// The runs of set pixels in ascending order. None is empty, and no two touch.
    fn runs(&self) -> impl Iterator<Item = Range<u32>> {
        let mut at = 0;
        self.counts.chunks_exact(2).map(move |pair| {
            let start = at + pair[0];
            at = start + pair[1];
            start..at
        })
    }

    /// The runs, split at the ends of columns: column and range of rows, in ascending order.
    fn stretches(&self) -> impl Iterator<Item = (u32, Range<u32>)> {
        let height = u32::from(self.size.height).max(1);
        self.runs().flat_map(move |run| {
            (run.start / height..run.end.div_ceil(height)).map(move |column| {
                let begin = column * height;
                (column, run.start.max(begin) - begin..run.end.min(begin + height) - begin)
            })
        })
    }

    /// Number of set pixels.
    pub fn area(&self) -> u32 {
        self.counts.iter().skip(1).step_by(2).sum()
    }

    /// The smallest box around the set pixels; an empty box at the origin if there are none.
    pub fn bounds(&self) -> Xywh {
        let height = u32::from(self.size.height);
        let mut found: Option<[u32; 4]> = None;
        for run in self.runs() {
            let last = run.end - 1;
            let (left, right) = (run.start / height, last / height);
            // A run that continues in the next column contains the bottom and the top pixel of a column.
            let (top, bottom) = if left == right { (run.start % height, last % height) } else { (0, height - 1) };
            let [l, t, r, b] = found.unwrap_or([left, top, right, bottom]);
            found = Some([l.min(left), t.min(top), r.max(right), b.max(bottom)]);
        }
        let [left, top, right, bottom] = match found {
            Some([left, top, right, bottom]) => [left, top, right + 1, bottom + 1],
            None => [0; 4],
        };
        Xywh::new([left, top, right - left, bottom - top].map(f64::from))
    }

    /// The pixels that are set in any of the masks; masks of other sizes are ignored.
    pub fn union<'a>(size: Size, masks: impl IntoIterator<Item = &'a Self>) -> Self {
        let same_size = masks.into_iter().filter(|mask| mask.size == size);
        let mut runs: Vec<Range<u32>> = same_size.flat_map(Self::runs).collect();
        runs.sort_unstable_by_key(|run| run.start);
        let mut end = 0;
        let apart = runs.into_iter().map(|run| {
            let start = run.start.max(end);
            end = end.max(run.end);
            start..end
        });
        Self::from_runs(size, apart)
    }

    /// Number of pixels that are set in both; 0 for masks of different sizes.
    pub fn intersection(&self, other: &Self) -> u32 {
        if self.size != other.size {
            return 0;
        }
        let (mut ours, mut theirs) = (self.runs(), other.runs());
        let (mut a, mut b) = (ours.next(), theirs.next());
        let mut common = 0;
        while let (Some(one), Some(two)) = (&a, &b) {
            common += one.end.min(two.end).saturating_sub(one.start.max(two.start));
            if one.end <= two.end {
                a = ours.next();
            } else {
                b = theirs.next();
            }
        }
        common
    }

    /// Intersection over union, 0 to 1, with `other` from the ground truth. For a crowd, intersection over the area of this mask.
    /// 0 if the masks do not overlap.
    #[cfg(test)]
    pub fn iou(&self, other: &Self, crowd: bool) -> f64 {
        over(self.intersection(other), self.area(), other.area(), crowd)
    }

    /// The IoU of every detection with every truth, row-major with a row for each detection. For a crowd, intersection over the
    /// area of the detection. Masks whose boxes do not overlap are not compared pixel by pixel.
    pub fn iou_matrix(detections: &[&Self], truths: &[&Self], crowd: &[bool]) -> Vec<f64> {
        let known = |masks: &[&Self]| masks.iter().map(|mask| (mask.area(), mask.bounds())).collect::<Vec<_>>();
        let (found, there) = (known(detections), known(truths));
        let mut matrix = Vec::with_capacity(found.len() * there.len());
        for (mask, (area, bounds)) in detections.iter().zip(&found) {
            for ((truth, (truth_area, truth_bounds)), crowd) in truths.iter().zip(&there).zip(crowd) {
                let near = bounds.iou(*truth_bounds, false) > 0.0;
                let common = if near { mask.intersection(truth) } else { 0 };
                matrix.push(over(common, *area, *truth_area, *crowd));
            }
        }
        matrix
    }
}

fn over(common: u32, detection: u32, truth: u32, crowd: bool) -> f64 {
    if common == 0 {
        return 0.0;
    }
    let whole = if crowd { detection } else { detection - common + truth };
    f64::from(common) / f64::from(whole)
}

#[cfg(test)]
mod parity;
#[cfg(test)]
mod tests;
