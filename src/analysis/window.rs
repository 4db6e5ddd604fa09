//! Sets of time: sorted intervals that neither touch nor overlap.
//!
//! Must not know what happened in them.

/// A set of moments, as sorted half-open intervals in nanoseconds since the attempt's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Windows(Vec<(u64, u64)>);

impl Windows {
    /// The union of intervals in any order; empty ones are dropped.
    pub(super) fn new(intervals: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut sorted: Vec<(u64, u64)> = intervals.into_iter().filter(|(start, stop)| start < stop).collect();
        sorted.sort_unstable();
        Self(joined(sorted, 1))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn length(&self) -> u64 {
        self.iter().map(|(start, stop)| stop - start).sum()
    }

    pub(super) fn holds(&self, moment: u64) -> bool {
        let next = self.0.partition_point(|(start, _)| *start <= moment);
        next.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|(_, stop)| moment < *stop)
    }

    /// The part of the set from `start` to `stop`.
    pub(super) fn clip(&self, start: u64, stop: u64) -> Self {
        let inside = self.iter().map(|(from, to)| (from.max(start), to.min(stop)));
        Self(inside.filter(|(from, to)| from < to).collect())
    }

    /// The part of the set that is not in `other`.
    pub(super) fn subtract(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut first = 0;
        for (mut start, stop) in self.iter() {
            while other.0.get(first).is_some_and(|(_, hole_stop)| *hole_stop <= start) {
                first += 1;
            }
            for (hole_start, hole_stop) in other.0[first..].iter().take_while(|(hole_start, _)| *hole_start < stop) {
                if start < *hole_start {
                    left.push((start, *hole_start));
                }
                start = start.max(*hole_stop);
            }
            if start < stop {
                left.push((start, stop));
            }
        }
        Self(left)
    }

    /// The set with every hole filled that is shorter than `gap`.
    pub(super) fn merge(&self, gap: u64) -> Self {
        Self(joined(self.0.clone(), gap.max(1)))
    }

    pub(super) fn at_least(&self, length: u64) -> Self {
        Self(self.iter().filter(|(start, stop)| stop - start >= length).collect())
    }
}

/// Joins sorted intervals with a distance of less than `gap`.
fn joined(sorted: Vec<(u64, u64)>, gap: u64) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
    for (start, stop) in sorted {
        match out.last_mut() {
            Some(last) if start < last.1.saturating_add(gap) => last.1 = last.1.max(stop),
            _ => out.push((start, stop)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_windows() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0..60u64, 0..12u64).prop_map(|(start, length)| (start, start + length)), 0..8)
    }

    /// The oracle: a set as a list of moments.
    fn moments(intervals: &[(u64, u64)]) -> Vec<bool> {
        (0..100).map(|at| intervals.iter().any(|(start, stop)| (*start..*stop).contains(&at))).collect()
    }

    fn held(windows: &Windows) -> Vec<bool> {
        (0..100).map(|at| windows.holds(at)).collect()
    }

    proptest! {
        #[test]
        fn windows_are_sets_of_moments(a in any_windows(), b in any_windows(), from in 0..70u64, length in 0..30u64) {
            let (x, y) = (Windows::new(a.clone()), Windows::new(b.clone()));
            let (in_a, in_b) = (moments(&a), moments(&b));
            prop_assert_eq!(held(&x), in_a.clone());
            prop_assert_eq!(x.length(), in_a.iter().filter(|held| **held).count() as u64);
            prop_assert!(x.0.windows(2).all(|pair| pair[0].1 < pair[1].0), "sorted, and no two touch");
            let expected: Vec<bool> = in_a.iter().zip(&in_b).map(|(a, b)| *a && !*b).collect();
            prop_assert_eq!(held(&x.subtract(&y)), expected);
            let inside = |at: u64| (from..from + length).contains(&at);
            let expected: Vec<bool> = (0..100).map(|at| inside(at) && x.holds(at)).collect();
            prop_assert_eq!(held(&x.clip(from, from + length)), expected);
            prop_assert_eq!(x.subtract(&y).length() + x.subtract(&x.subtract(&y)).length(), x.length());
        }

        #[test]
        fn merging_fills_short_holes_and_no_others(a in any_windows(), gap in 0..10u64) {
            let x = Windows::new(a);
            let merged = x.merge(gap);
            prop_assert!(x.subtract(&merged).is_empty());
            prop_assert!(merged.subtract(&x).iter().all(|(start, stop)| stop - start < gap));
            prop_assert!(merged.0.windows(2).all(|pair| pair[1].0 - pair[0].1 >= gap));
        }
    }
}
