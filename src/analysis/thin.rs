//! A long series that is thinned for plots while it is read, in memory that does not grow with it.

use crate::record::{Axis, Series};

/// The most points that are all kept.
const EXACT: usize = 8192;
/// The most intervals into which longer series are divided: more than any plot has pixel columns.
const STRETCHES: usize = 4096;

/// A point and its number in the series.
pub(super) type Point = (u64, u64, f64);

/// Neighbouring points, of which those that a plot shows are kept.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) index: u64,
    first: Point,
    last: Point,
    low: Option<Point>,
    high: Option<Point>,
    /// A value that is not finite, which splits a curve.
    gap: Option<Point>,
}

impl Stretch {
    pub(super) fn of(index: u64, point: Point) -> Self {
        let finite = point.2.is_finite().then_some(point);
        let gap = if finite.is_none() { Some(point) } else { None };
        Self { index, first: point, last: point, low: finite, high: finite, gap }
    }

    pub(super) fn join(&mut self, other: Self) {
        let lower = |a: Point, b: Point| if b.2 < a.2 { b } else { a };
        let higher = |a: Point, b: Point| if b.2 > a.2 { b } else { a };
        let both = |a: Option<Point>, b: Option<Point>, pick: fn(Point, Point) -> Point| match (a, b) {
            (Some(a), Some(b)) => Some(pick(a, b)),
            (a, b) => a.or(b),
        };
        self.low = both(self.low, other.low, lower);
        self.high = both(self.high, other.high, higher);
        self.gap = self.gap.or(other.gap);
        self.last = other.last;
    }

    pub(super) fn points(&self) -> Vec<Point> {
        let mut points: Vec<Point> =
            [Some(self.first), self.low, self.high, self.gap, Some(self.last)].into_iter().flatten().collect();
        points.sort_by_key(|(number, ..)| *number);
        points.dedup_by_key(|(number, ..)| *number);
        points
    }
}

/// Collects the points of a series in the order of their positions.
#[derive(Clone, Debug, Default)]
pub struct Thin {
    stretches: Vec<Stretch>,
    /// The binary logarithm of an interval's number of positions.
    width: u32,
    points: u64,
}

impl Thin {
    /// Adds the next point.
    pub fn push(&mut self, position: u64, value: f64) {
        let point = (self.points, position, value);
        self.points += 1;
        // As long as all points are kept, each has its own interval.
        let is_counted = self.points <= EXACT as u64 + 1;
        let index = if is_counted { self.points } else { position >> self.width };
        let next = Stretch::of(index, point);
        match self.stretches.last_mut() {
            Some(last) if last.index >= index => last.join(next),
            _ => self.stretches.push(next),
        }
        if self.points == EXACT as u64 + 1 {
            self.stretches.iter_mut().for_each(|stretch| stretch.index = stretch.first.1);
            self.merge();
        }
        while !self.is_exact() && self.stretches.len() > STRETCHES {
            self.width += 1;
            self.stretches.iter_mut().for_each(|stretch| stretch.index >>= 1);
            self.merge();
        }
    }

    fn is_exact(&self) -> bool {
        self.points <= EXACT as u64
    }

    fn merge(&mut self) {
        let mut merged: Vec<Stretch> = Vec::with_capacity(self.stretches.len());
        for stretch in self.stretches.drain(..) {
            match merged.last_mut() {
                Some(last) if last.index >= stretch.index => last.join(stretch),
                _ => merged.push(stretch),
            }
        }
        self.stretches = merged;
    }

    /// The number of points added.
    pub fn points(&self) -> u64 {
        self.points
    }

    /// The number of intervals whose extremes are kept; `None` if every point is kept.
    pub fn stretches(&self) -> Option<usize> {
        if self.is_exact() { None } else { Some(self.stretches.len()) }
    }

    /// The kept points: all, or for each interval the first, the last, the smallest, the largest and one that is not finite.
    pub fn series(&self, name: &str, unit: &str, axis: Axis) -> Series {
        let mut series = Series::new(name, unit, axis);
        for (_, position, value) in self.stretches.iter().flat_map(Stretch::points) {
            series.push(position, value);
        }
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn thinned(points: &[(u64, f64)]) -> (Thin, Series) {
        let mut thin = Thin::default();
        points.iter().for_each(|(position, value)| thin.push(*position, *value));
        let series = thin.series("loss", "", Axis::Step);
        (thin, series)
    }

    proptest! {
        #[test]
        fn extremes_ends_and_gaps_stay_and_memory_is_bounded(
            steps in prop::collection::vec((0u64..5, prop_oneof![9 => -1e3..1e3, 1 => Just(f64::NAN)]), 1..30_000),
            stride in prop_oneof![Just(1u64), Just(1 << 40)],
        ) {
            let mut at = 0u64;
            let points: Vec<(u64, f64)> = steps.iter().map(|(step, value)| {
                at += step * stride;
                (at, *value)
            }).collect();
            let (thin, series) = thinned(&points);
            let kept: Vec<(u64, u64)> = series.positions.iter().zip(&series.values).map(|(at, v)| (*at, v.to_bits())).collect();
            let all: Vec<(u64, u64)> = points.iter().map(|(at, v)| (*at, v.to_bits())).collect();
            prop_assert_eq!(thin.points(), all.len() as u64);
            if all.len() <= EXACT {
                prop_assert_eq!(&kept, &all);
            } else {
                prop_assert!(thin.stretches().unwrap() <= STRETCHES && kept.len() <= 5 * STRETCHES);
            }
            prop_assert_eq!((kept.first(), kept.last()), (all.first(), all.last()));
            let range = |values: &mut dyn Iterator<Item = f64>| values.filter(|v| v.is_finite()).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
            prop_assert_eq!(range(&mut series.values.iter().copied()), range(&mut points.iter().map(|(_, v)| *v)));
            prop_assert_eq!(series.values.iter().any(|v| v.is_nan()), points.iter().any(|(_, v)| v.is_nan()));
            prop_assert!(series.positions.is_sorted());
            // The kept points are points of the series in order.
            let mut rest = all.iter();
            prop_assert!(kept.iter().all(|one| rest.any(|other| other == one)));
        }
    }

    #[test]
    fn a_spike_of_one_point_among_two_million_is_kept() {
        let mut thin = Thin::default();
        for position in 0..2_000_000 {
            thin.push(position, if position == 1_654_321 { 9.0 } else { 1.0 });
        }
        let series = thin.series("loss", "", Axis::Step);
        assert!(series.positions.iter().zip(&series.values).any(|point| point == (&1_654_321, &9.0)));
        assert!(series.values.len() < 20_000);
    }
}
