//! Greedy non-maximum suppression on the host, class by class.
//!
//! Knows boxes, scores and classes. The result depends only on the candidates and their order, and is the same on every machine.

use super::Detection;
use super::boxes::{Xyxy, greater, lesser};
use crate::number::{real_len, single, whole};
use std::collections::BTreeMap;
use std::mem;

/// The limits of suppression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suppression {
    /// A candidate needs a score above this; NaN is never above it.
    pub score: f32,
    /// A candidate is dropped if its IoU with a better kept one of its class is above this, 0 to 1.
    pub iou: f32,
    /// Maximum number of kept candidates, over all classes.
    pub max: usize,
}

/// The indices of the kept candidates, best first; of equal scores the earlier one comes first.
///
/// Empty boxes and boxes with a NaN coordinate overlap with nothing, so they are kept.
pub fn nms(candidates: &[Detection<Xyxy>], limits: Suppression) -> Vec<usize> {
    // The lower half of a key is the index, so keys are unique and of equal scores the earlier one has the smaller key.
    let mut keys: Vec<u64> = (0..=u32::MAX)
        .zip(candidates)
        .filter(|(_, candidate)| candidate.score > limits.score)
        .map(|(place, candidate)| u64::from(descending(candidate.score)) << 32 | u64::from(place))
        .collect();
    let mut kept: BTreeMap<usize, Kept> = BTreeMap::new();
    let mut places = Vec::with_capacity(limits.max.min(keys.len()));
    let mut rest = keys.as_mut_slice();
    // Sorts only as many candidates as are needed.
    let mut portion = limits.max.saturating_mul(2).max(LEAST_PORTION);
    while !rest.is_empty() {
        let (best, others) = smallest(rest, portion);
        for key in best {
            if places.len() >= limits.max {
                return places;
            }
            let place = usize::try_from(*key & u64::from(u32::MAX)).unwrap_or(usize::MAX);
            let Detection { class, region, .. } = candidates[place];
            let better = kept.entry(class).or_default();
            if !better.cover(region, limits.iou) {
                better.push(region);
                places.push(place);
            }
        }
        rest = others;
        portion = portion.saturating_mul(2);
    }
    places
}

const LEAST_PORTION: usize = 256;

/// Splits off the `count` smallest keys, sorted.
fn smallest(keys: &mut [u64], count: usize) -> (&[u64], &mut [u64]) {
    let count = count.min(keys.len());
    if count < keys.len() {
        keys.select_nth_unstable(count);
    }
    let (best, others) = keys.split_at_mut(count);
    best.sort_unstable();
    (best, others)
}

/// Maps a number to bits in reverse order; zeros of both signs are equal.
pub fn descending(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    // IEEE 754 orders positive numbers by their bits, and negative ones the other way round.
    if bits >> 31 == 0 { !(bits | 1 << 31) } else { bits }
}

const LANES: usize = 8;

fn centre(bounds: Xyxy) -> [f32; 2] {
    [0.5 * (bounds.left + bounds.right), 0.5 * (bounds.top + bounds.bottom)]
}

/// Kept boxes, in a grid by their centres, in blocks for SIMD comparison. The grid is a single cell while there are few boxes.
struct Kept {
    /// Cells along each axis.
    side: usize,
    /// The start of the grid, and its number of cells per pixel.
    origin: [f32; 2],
    scale: [f32; 2],
    cells: Vec<Cell>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { side: 1, origin: [0.0; 2], scale: [0.0; 2], cells: vec![Cell::default()] }
    }
}

/// The boxes of a cell.
#[derive(Clone, Default)]
struct Cell {
    blocks: Vec<Block>,
    filled: usize,
}

#[derive(Clone)]
struct Block {
    left: [f32; LANES],
    top: [f32; LANES],
    right: [f32; LANES],
    bottom: [f32; LANES],
    area: [f32; LANES],
}

impl Block {
    /// Boxes that overlap with nothing.
    const EMPTY: Self = Self {
        left: [f32::INFINITY; LANES],
        top: [f32::INFINITY; LANES],
        right: [f32::NEG_INFINITY; LANES],
        bottom: [f32::NEG_INFINITY; LANES],
        area: [0.0; LANES],
    };

    fn covers(&self, Xyxy { left, top, right, bottom }: Xyxy, area: f32, iou: f32) -> bool {
        let mut any = false;
        for lane in 0..LANES {
            let width = greater(lesser(self.right[lane], right) - greater(self.left[lane], left), 0.0);
            let height = greater(lesser(self.bottom[lane], bottom) - greater(self.top[lane], top), 0.0);
            let common = width * height;
            // `&` instead of `&&` avoids a branch for each lane.
            any |= (common > 0.0) & (common / (area + self.area[lane] - common) > iou);
        }
        any
    }
}

impl Kept {
    /// Distributes the boxes in a grid over their centres.
    fn spread(self) -> Self {
        let boxes: Vec<Xyxy> = self.cells.iter().flat_map(Cell::boxes).collect();
        let (mut least, mut most) = ([f32::INFINITY; 2], [f32::NEG_INFINITY; 2]);
        for centre in boxes.iter().map(|bounds| centre(*bounds)).filter(|[x, y]| x.is_finite() && y.is_finite()) {
            for axis in 0..2 {
                least[axis] = lesser(least[axis], centre[axis]);
                most[axis] = greater(most[axis], centre[axis]);
            }
        }
        let scale = [0, 1].map(|axis: usize| {
            let length = most[axis] - least[axis];
            if length > 0.0 { single(real_len(SIDE)) / length } else { 0.0 }
        });
        let mut spread = Self { side: SIDE, origin: least, scale, cells: vec![Cell::default(); SIDE * SIDE] };
        boxes.into_iter().for_each(|bounds| spread.push(bounds));
        spread
    }

    /// The cell of a coordinate along an axis, clamped to the grid; the first one for NaN.
    fn cell(&self, axis: usize, coordinate: f32) -> usize {
        let cell = whole(f64::from((coordinate - self.origin[axis]) * self.scale[axis]));
        usize::try_from(cell).unwrap_or(usize::MAX).min(self.side - 1)
    }

    /// Whether the IoU of a box with any kept one is above `iou`.
    ///
    /// Along an axis, boxes of widths w and v have an IoU of at most min(w, v)/max(w, v), and of at most ((w + v)/2 −
    /// d)/max(w, v) if their centres are d apart. An IoU above t requires d < w·max(1 − t, (1 − t)/2t) for any v, so
    /// boxes further away are skipped.
    fn cover(&self, bounds: Xyxy, iou: f32) -> bool {
        let area = bounds.area();
        let reach = (1.0 - iou) * greater(1.0, 0.5 / iou) * ROUNDING;
        let centre = centre(bounds);
        let range = |axis: usize, length: f32| {
            let far = reach * length;
            if far.is_finite() && centre[axis].is_finite() {
                self.cell(axis, centre[axis] - far)..=self.cell(axis, centre[axis] + far)
            } else {
                0..=self.side - 1
            }
        };
        let columns = range(0, bounds.width());
        range(1, bounds.height()).any(|row| {
            let cells = &self.cells[row * self.side..(row + 1) * self.side];
            cells[columns.clone()].iter().any(|cell| cell.blocks.iter().any(|block| block.covers(bounds, area, iou)))
        })
    }

    fn push(&mut self, bounds: Xyxy) {
        if self.side == 1 && self.cells[0].filled == MANY {
            *self = mem::take(self).spread();
        }
        let [x, y] = centre(bounds);
        let place = self.cell(1, y) * self.side + self.cell(0, x);
        self.cells[place].push(bounds);
    }
}

/// Number of boxes from which a grid is used.
const MANY: usize = 128;
/// Cells of a grid along each axis.
const SIDE: usize = 8;
/// A safety factor for rounding.
const ROUNDING: f32 = 1.01;

impl Cell {
    fn boxes(&self) -> impl Iterator<Item = Xyxy> {
        let lane = |n: usize| {
            let (block, lane) = (&self.blocks[n / LANES], n % LANES);
            Xyxy::new([block.left[lane], block.top[lane], block.right[lane], block.bottom[lane]])
        };
        (0..self.filled).map(lane)
    }

    fn push(&mut self, bounds: Xyxy) {
        let lane = self.filled % LANES;
        if lane == 0 {
            self.blocks.push(Block::EMPTY);
        }
        if let Some(block) = self.blocks.last_mut() {
            [block.left[lane], block.top[lane], block.right[lane], block.bottom[lane]] = bounds.array();
            block.area[lane] = bounds.area();
        }
        self.filled += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(class: usize, score: f32, array: [f32; 4]) -> Detection<Xyxy> {
        Detection { class, score, region: Xyxy::new(array) }
    }

    const ALL: Suppression = Suppression { score: 0.0, iou: 0.5, max: usize::MAX };

    /// Boxes of 10 × 10 shifted by 1, 5 and 20 have IoUs of 90 / 110, 50 / 150 and 0 with the first.
    #[test]
    fn the_better_of_two_overlapping_boxes_is_kept() {
        let row = |score, left: f32| found(0, score, [left, 0.0, left + 10.0, 10.0]);
        let candidates = [row(0.3, 1.0), row(0.9, 0.0), row(0.5, 5.0), row(0.1, 20.0)];
        assert_eq!(nms(&candidates, ALL), [1, 2, 3]);
        assert_eq!(nms(&candidates, Suppression { iou: 0.9, ..ALL }), [1, 2, 0, 3]);
        assert_eq!(nms(&candidates, Suppression { iou: 0.3, ..ALL }), [1, 3]);
        assert_eq!(nms(&candidates, Suppression { score: 0.1, ..ALL }), [1, 2]);
        assert_eq!(nms(&candidates, Suppression { max: 1, ..ALL }), [1]);
        assert_eq!(nms(&candidates, Suppression { max: 0, ..ALL }), [0_usize; 0]);
        assert_eq!(nms(&[], ALL), [0_usize; 0]);
    }

    /// The first box covers half of the second: an IoU of exactly 1/2 is not above 1/2.
    #[test]
    fn an_iou_equal_to_the_threshold_does_not_suppress() {
        let candidates = [found(0, 0.9, [0.0, 0.0, 4.0, 4.0]), found(0, 0.8, [0.0, 0.0, 4.0, 8.0])];
        assert_eq!(nms(&candidates, ALL), [0, 1]);
        assert_eq!(nms(&candidates, Suppression { iou: 0.499, ..ALL }), [0]);
    }

    #[test]
    fn classes_do_not_suppress_each_other() {
        let same = [0.0, 0.0, 4.0, 4.0];
        let candidates = [found(7, 0.5, same), found(usize::MAX, 0.5, same), found(7, 0.5, same)];
        assert_eq!(nms(&candidates, ALL), [0, 1]);
    }

    #[test]
    fn nan_empty_and_infinite_candidates_are_handled() {
        let square = [0.0, 0.0, 4.0, 4.0];
        let candidates = [
            found(0, f32::NAN, square),
            found(0, -0.0, [2.0, 2.0, 2.0, 2.0]),
            found(0, 0.0, square),
            found(0, f32::INFINITY, [f32::NAN, 0.0, 1.0, 1.0]),
            found(0, -1.0, square),
        ];
        // Zeros of both signs are equal, so the earlier one comes first. The third box suppresses the last.
        assert_eq!(nms(&candidates, Suppression { score: -2.0, ..ALL }), [3, 1, 2]);
    }

    /// The definition, without optimisations.
    fn naive(candidates: &[Detection<Xyxy>], limits: Suppression) -> Vec<usize> {
        let mut order: Vec<usize> = (0..candidates.len()).filter(|n| candidates[*n].score > limits.score).collect();
        order.sort_by(|a, b| candidates[*b].score.partial_cmp(&candidates[*a].score).expect("numbers"));
        let mut kept: Vec<usize> = Vec::new();
        for place in order {
            let here = &candidates[place];
            let beaten = kept
                .iter()
                .map(|n| &candidates[*n])
                .any(|better| better.class == here.class && better.region.iou(here.region) > limits.iou);
            if !beaten {
                kept.push(place);
            }
        }
        kept.truncate(limits.max);
        kept
    }

    /// More candidates than are sorted at once, in pairs of which the first suppresses the second.
    #[test]
    fn many_candidates_are_sorted_in_portions() {
        let row = |n: u16| {
            let left = f32::from(n / 2) * 10.0;
            found(0, 1.0 - f32::from(n) / 8192.0, [left, 0.0, left + 10.0, 10.0])
        };
        let candidates: Vec<Detection<Xyxy>> = (0..5000).rev().map(row).collect();
        let all: Vec<usize> = (0..2500).map(|n| 4999 - 2 * n).collect();
        assert_eq!(nms(&candidates, ALL), all);
        assert_eq!(nms(&candidates, Suppression { max: 700, ..ALL }), all[..700]);
    }

    fn candidate() -> impl Strategy<Value = Detection<Xyxy>> {
        (0_usize..3, -4_i8..12, 0_u8..40, 0_u8..40, 0_u8..30, 0_u8..30).prop_map(|(class, score, left, top, w, h)| {
            found(class, f32::from(score) / 8.0, [left, top, left + w, top + h].map(f32::from))
        })
    }

    /// Enough boxes for a grid, of many sizes, some with NaN or infinite coordinates.
    #[test]
    fn the_grid_does_not_change_the_result() {
        let mut state = 1_u32;
        let mut rng = |below: u16| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from(u16::try_from(state >> 16).expect("16 bits") % below) / 8.0
        };
        for iou in [0.0, 0.05, 0.3, 0.5, 0.7, 0.95] {
            let mut candidates: Vec<Detection<Xyxy>> = (0..1500)
                .map(|n| {
                    let (left, top, width, height) = (rng(3000), rng(800), rng(900), rng(600));
                    found(n % 2, rng(8000), [left, top, left + width, top + height])
                })
                .collect();
            let inf = f32::INFINITY;
            let odd = [[f32::NAN, 0.0, 5.0, 5.0], [-inf, 0.0, inf, 50.0], [0.0, 0.0, inf, 9.0], [9.0, 9.0, 1.0, 1.0]];
            candidates.extend(odd.into_iter().cycle().take(40).map(|array| found(0, rng(8000), array)));
            let limits = Suppression { score: 0.0, iou, max: usize::MAX };
            assert_eq!(nms(&candidates, limits), naive(&candidates, limits), "{iou}");
        }
    }

    proptest! {
        #[test]
        fn the_result_matches_the_definition(
            candidates in proptest::collection::vec(candidate(), 0..60), score in -4_i8..8, iou in 0_u8..10, max in 0_usize..40,
        ) {
            let limits = Suppression { score: f32::from(score) / 8.0, iou: f32::from(iou) / 10.0, max };
            prop_assert_eq!(nms(&candidates, limits), naive(&candidates, limits));
        }
    }
}
