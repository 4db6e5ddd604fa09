//! A quantity's readings over time, and its values between them.
//!
//! Must not know what is measured. Values between two readings are interpolated linearly. There are no values before
//! the first reading, after the last one, and in long gaps.

use super::statistic::{median_ns, nanoseconds, seconds};
use super::window::Windows;
use crate::record::Series;

/// Neighbouring readings that are farther apart than this many usual intervals have a gap between them.
const GAP_INTERVALS: u64 = 3;
/// The most changes of a value that are too few to show how often it is renewed.
const ENOUGH_CHANGES: usize = 10;

/// The readings of one quantity, at least two, in order.
#[derive(Clone, Debug)]
pub(super) struct Readings {
    points: Vec<(u64, f64)>,
    interval_ns: u64,
    /// A longer time without a reading is a gap.
    gap_ns: u64,
    gaps: Windows,
    /// The time by which the readings were moved.
    moved_ns: u64,
}

/// The times between renewals of a value, as far as its changes show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// Many changes: the times between them.
    Seen(Vec<u64>),
    /// Few changes: a value that is renewed regularly is no older than this.
    Within(u64),
    /// Fewer than two changes.
    Untold,
}

/// A time in which a value did not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Still {
    /// The first reading with the value.
    pub(super) since_ns: u64,
    /// The last reading with the value.
    pub(super) until_ns: u64,
    /// The next reading, which has another value, or the last one if there is none.
    pub(super) changed_ns: u64,
}

impl Still {
    /// The time from the first to the last reading with the value.
    pub(super) fn length_ns(self) -> u64 {
        self.until_ns - self.since_ns
    }
}

/// An integral over windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Integral {
    /// The sum over the covered time: in the quantity's unit times seconds, or the growth of a counter.
    pub(super) area: f64,
    /// The covered part of the windows.
    pub(super) covered_ns: u64,
    /// The number of readings in the windows.
    pub(super) readings: usize,
}

impl Readings {
    /// Takes a series over time. `nominal_ns` is the requested interval. `None` for fewer than two readings.
    pub(super) fn new(series: &Series, nominal_ns: Option<u64>) -> Option<Self> {
        let all = series.positions.iter().copied().zip(series.values.iter().copied());
        let mut points: Vec<(u64, f64)> = all.filter(|(_, value)| value.is_finite()).collect();
        points.sort_by_key(|(at, _)| *at);
        points.dedup_by_key(|(at, _)| *at);
        let intervals: Vec<u64> = points.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        let interval_ns = median_ns(&intervals)?;
        let gap_ns = GAP_INTERVALS * interval_ns.max(nominal_ns.unwrap_or(0));
        let pairs = points.windows(2).map(|pair| (pair[0].0, pair[1].0));
        let gaps = Windows::new(pairs.filter(|(before, after)| after - before > gap_ns));
        Some(Self { points, interval_ns, gap_ns, gaps, moved_ns: 0 })
    }

    /// Moves the readings to earlier times. Of readings that come to lie before the origin, only the value at the
    /// origin is kept. `None` if fewer than two readings are left.
    pub(super) fn earlier(mut self, by_s: f64) -> Option<Self> {
        let by_ns = nanoseconds(by_s);
        if let Some(origin) = self.at(by_ns) {
            let next = self.points.partition_point(|(at, _)| *at < by_ns);
            if self.points.get(next).is_some_and(|(at, _)| *at > by_ns) {
                self.points.insert(next, (by_ns, origin));
            }
        }
        self.points.retain_mut(|(at, _)| at.checked_sub(by_ns).map(|moved| *at = moved).is_some());
        let moved = self.gaps.iter().map(|(start, stop)| (start.saturating_sub(by_ns), stop.saturating_sub(by_ns)));
        self.gaps = Windows::new(moved);
        self.moved_ns += by_ns;
        (self.points.len() > 1).then_some(self)
    }

    /// The median time between two readings, in nanoseconds.
    pub(super) fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// The times between renewals of the value, as its changes show them.
    pub(super) fn renewal(&self) -> Renewal {
        let changes: Vec<(u64, u64)> = self.changes().collect();
        if changes.len() > ENOUGH_CHANGES {
            return Renewal::Seen(changes.windows(2).map(|pair| pair[1].1 - pair[0].1).collect());
        }
        // From one change to the n-th after it there are n renewals or more. The first was at any time since the reading before it.
        let from = |(place, (before, _)): (usize, &(u64, u64))| {
            let later = changes[place + 1..].iter().zip(1u64..);
            later.map(|((_, at), renewals)| (at - before).div_ceil(renewals)).min()
        };
        changes.iter().enumerate().filter_map(from).min().map_or(Renewal::Untold, Renewal::Within)
    }

    /// Whether neighbouring readings always have different values, and none are too close together for this to be significant.
    pub(super) fn change_each_time(&self) -> bool {
        self.points.windows(2).all(|pair| pair[0].1 != pair[1].1 && 2 * (pair[1].0 - pair[0].0) >= self.interval_ns)
    }

    /// The two readings between which the value changed, for each change.
    fn changes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.points.windows(2).filter(|pair| pair[0].1 != pair[1].1).map(|pair| (pair[0].0, pair[1].0))
    }

    /// The times in which the value did not change.
    pub(super) fn still(&self) -> impl Iterator<Item = Still> {
        let (first, last) = self.ends();
        let starts = std::iter::once(first).chain(self.changes().map(|(_, at)| at));
        let still = |(since_ns, (until_ns, changed_ns))| Still { since_ns, until_ns, changed_ns };
        starts.zip(self.changes().chain([(last, last)])).map(still)
    }

    /// The error of the trapezoids from unknown values between readings, as one standard deviation of the area.
    /// Differences of neighbouring readings count as random.
    pub(super) fn roughness(&self, windows: &Windows) -> f64 {
        let pairs = self.known(windows);
        let pairs = pairs.iter().flat_map(|(start, stop)| self.between(start, stop).windows(2));
        let squares = pairs.map(|pair| ((pair[1].1 - pair[0].1) * seconds(pair[1].0 - pair[0].0)).powi(2));
        (squares.sum::<f64>() / 2.0).sqrt()
    }

    /// The times up to a moment without a reading: before the first, in gaps, and after the last.
    pub(super) fn silent(&self, until: u64) -> Windows {
        let (first, last) = self.ends();
        // A value at the origin was read at about that time; all others were read as much later as they were moved.
        let first = if first == 0 { 0 } else { first.saturating_add(self.moved_ns) };
        let ends = [(0, first), (last.saturating_add(self.moved_ns), until)];
        let ends = ends.into_iter().filter(|(start, stop)| stop.saturating_sub(*start) > self.gap_ns);
        Windows::new(self.gaps.iter().chain(ends)).clip(0, until)
    }

    /// The first and the last moment with a known value.
    pub(super) fn ends(&self) -> (u64, u64) {
        let at = |point: Option<&(u64, f64)>| point.map_or(0, |(at, _)| *at);
        (at(self.points.first()), at(self.points.last()))
    }

    /// The value at a moment by linear interpolation; `None` before the first and after the last reading.
    pub(super) fn at(&self, moment: u64) -> Option<f64> {
        let next = self.points.partition_point(|(at, _)| *at < moment);
        let (after, after_value) = *self.points.get(next)?;
        if after == moment {
            return Some(after_value);
        }
        let (before, before_value) = *self.points.get(next.checked_sub(1)?)?;
        let along = seconds(moment - before) / seconds(after - before);
        Some(before_value + (after_value - before_value) * along)
    }

    /// The readings from one moment to another, both included.
    pub(super) fn between(&self, start: u64, stop: u64) -> &[(u64, f64)] {
        let from = self.points.partition_point(|(at, _)| *at < start);
        let to = self.points.partition_point(|(at, _)| *at <= stop);
        self.points.get(from..to).unwrap_or_default()
    }

    /// The number of readings in the windows.
    pub(super) fn count(&self, windows: &Windows) -> usize {
        windows.iter().map(|(start, stop)| self.between(start, stop.saturating_sub(1)).len()).sum()
    }

    /// The parts of the windows that are between readings and not in a gap.
    pub(super) fn known(&self, windows: &Windows) -> Windows {
        let (first, last) = self.ends();
        windows.clip(first, last).subtract(&self.gaps)
    }

    /// The trapezoids under the readings over the known parts of the windows.
    pub(super) fn integral(&self, windows: &Windows) -> Integral {
        let known = self.known(windows);
        let area = known.iter().map(|(start, stop)| self.trapezoids(start, stop)).sum();
        Integral { area, covered_ns: known.length(), readings: self.count(windows) }
    }

    fn trapezoids(&self, start: u64, stop: u64) -> f64 {
        let inner = self.between(start.saturating_add(1), stop.saturating_sub(1)).iter().copied();
        let edge = |moment: u64| self.at(moment).map(|value| (moment, value));
        let corners: Vec<(u64, f64)> = edge(start).into_iter().chain(inner).chain(edge(stop)).collect();
        corners.windows(2).map(|pair| seconds(pair[1].0 - pair[0].0) * f64::midpoint(pair[0].1, pair[1].1)).sum()
    }

    /// The growth of a counter over the windows. A gap inside of a window has no effect. If an edge lies in a gap, the
    /// part of the window in the gap is not covered.
    pub(super) fn growth(&self, windows: &Windows) -> Integral {
        let mut growth = Integral { area: 0.0, covered_ns: 0, readings: self.count(windows) };
        for (start, stop) in self.graspable(windows).iter() {
            if let (Some(before), Some(after)) = (self.at(start), self.at(stop)) {
                growth.area += after - before;
                growth.covered_ns += stop - start;
            }
        }
        growth
    }

    /// The windows with their edges moved inwards to where a counter is known.
    pub(super) fn graspable(&self, windows: &Windows) -> Windows {
        let (first, last) = self.ends();
        let hole = |moment: u64| self.gaps.iter().find(|(start, stop)| *start < moment && moment < *stop);
        let moved = windows.clip(first, last);
        let moved = moved.iter().map(|(start, stop)| {
            (hole(start).map_or(start, |(_, after)| after), hole(stop).map_or(stop, |(before, _)| before))
        });
        Windows::new(moved.filter(|(start, stop)| start < stop))
    }

    /// The time-weighted mean over the windows, or why there is none.
    pub(super) fn mean(&self, windows: &Windows) -> Result<f64, String> {
        let Integral { area, covered_ns, readings } = self.integral(windows);
        if readings < 2 || covered_ns == 0 {
            return Err("has fewer than 2 samples in its time".to_owned());
        }
        Ok(area / seconds(covered_ns))
    }

    pub(super) fn maximum(&self) -> f64 {
        self.points.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::statistic::real;
    use crate::record::Axis;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn readings(points: &[(u64, f64)]) -> Readings {
        let mut series = Series::new("power", "W", Axis::TimeNs);
        points.iter().for_each(|(at, value)| series.push(at * MS, *value));
        Readings::new(&series, None).unwrap()
    }

    fn ms(start: u64, stop: u64) -> Windows {
        Windows::new([(start * MS, stop * MS)])
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
    }

    proptest! {
        #[test]
        fn a_straight_line_is_exact(
            offset in -50.0..500.0f64, slope in -200.0..200.0f64, phase in 0..100u64, start in 100..4000u64, length in 1..5000u64,
        ) {
            let at = |ms: u64| offset + slope * (real(ms) / 1e3);
            let line = readings(&(0..101).map(|i| (phase + 100 * i, at(phase + 100 * i))).collect::<Vec<_>>());
            let integral = line.integral(&ms(start, start + length));
            let exact = real(length) / 1e3 * (at(start) + at(start + length)) / 2.0;
            prop_assert!(close(integral.area, exact), "{} against {exact}", integral.area);
            prop_assert_eq!(integral.covered_ns, length * MS);
        }

        #[test]
        fn parts_of_a_window_add_up(
            values in prop::collection::vec(0.0..700.0f64, 30), start in 0..1000u64, a in 1..1000u64, b in 1..1000u64,
        ) {
            let points: Vec<(u64, f64)> = (0..).map(|i: u64| 100 * i + i % 7).zip(values).collect();
            let some = readings(&points);
            let (middle, stop) = (start + a, start + a + b);
            for over in [Readings::integral, Readings::growth] {
                let (whole, left, right) =
                    (over(&some, &ms(start, stop)), over(&some, &ms(start, middle)), over(&some, &ms(middle, stop)));
                prop_assert!(close(whole.area, left.area + right.area));
                prop_assert_eq!(whole.covered_ns, left.covered_ns + right.covered_ns);
                prop_assert_eq!(whole.readings, left.readings + right.readings);
            }
        }
    }

    #[test]
    fn there_are_no_values_beyond_the_ends_or_in_a_gap() {
        let points: Vec<(u64, f64)> = (0..20).chain(30..50).map(|i| (1000 + 100 * i, 5.0)).collect();
        let some = readings(&points);
        let whole = some.integral(&ms(0, 10_000));
        assert_eq!(whole.covered_ns, (1900 + 1900) * MS);
        assert!(close(whole.area, 5.0 * 3.8));
        assert_eq!(some.gaps.length(), 1100 * MS);
        assert_eq!((some.at(999 * MS), some.at(6000 * MS)), (None, None));
        // A counter is known across a gap, but not in it.
        assert_eq!(some.growth(&ms(0, 10_000)).covered_ns, 4900 * MS);
        assert_eq!(some.growth(&ms(3000, 5000)).covered_ns, 1000 * MS);
        assert_eq!(some.growth(&ms(3000, 3500)).covered_ns, 0);
    }

    #[test]
    fn moved_readings_keep_the_value_at_the_origin() {
        let some = readings(&[(0, 10.0), (100, 20.0), (200, 40.0), (900, 40.0), (1000, 50.0)]);
        assert_eq!(some.clone().earlier(0.0).unwrap().points, some.points);
        let moved = some.clone().earlier(0.15).unwrap();
        assert_eq!(moved.points, [(0, 30.0), (50 * MS, 40.0), (750 * MS, 40.0), (850 * MS, 50.0)]);
        assert_eq!(moved.gaps, ms(50, 750));
        let whole = some.clone().earlier(0.1).unwrap();
        assert_eq!(whole.points[0], (0, 20.0));
        assert_eq!(whole.points.len(), 4, "one at the origin itself is not made twice");
        assert!(some.earlier(1.0).is_none());
    }

    #[test]
    fn few_changes_bound_how_old_a_value_may_be() {
        let every = |apart: u64, held: u64, many: u64| {
            let value = |i: u64| real(i * apart / held);
            readings(&(0..many).map(|i| (i * apart, value(i))).collect::<Vec<_>>())
        };
        // Six renewals of 100 ms each; the first one was up to 10 ms earlier.
        assert_eq!(every(10, 100, 70).renewal(), Renewal::Within(510 * MS / 5));
        assert_eq!(every(100, 100, 4).renewal(), Renewal::Within(150 * MS));
        assert_eq!((every(10, 100, 20).renewal(), every(10, 100, 9).renewal()), (Renewal::Untold, Renewal::Untold));
        assert_eq!(every(10, 100, 121).renewal(), Renewal::Seen(vec![100 * MS; 11]));
        let some = every(10, 100, 25);
        let still = some.still().map(|still| [still.since_ns, still.until_ns, still.changed_ns]);
        let expected = [[0, 90, 100], [100, 190, 200], [200, 240, 240]];
        assert_eq!(still.collect::<Vec<_>>(), expected.map(|times| times.map(|ms| ms * MS)));
    }

    #[test]
    fn times_before_the_first_reading_and_after_the_last_are_silent() {
        let some = readings(&(10..30).map(|i| (100 * i, 5.0)).collect::<Vec<_>>());
        assert_eq!(some.silent(6000 * MS), Windows::new([(0, 1000 * MS), (2900 * MS, 6000 * MS)]));
        assert_eq!(some.silent(3000 * MS), ms(0, 1000), "nothing is late yet");
        assert_eq!(some.earlier(0.8).unwrap().silent(3000 * MS), ms(0, 1000), "they came when they did");
        assert!(readings(&[(0, 1.0), (100, 1.0), (200, 1.0)]).silent(100 * MS).is_empty());
    }

    #[test]
    fn the_requested_interval_is_no_gap() {
        let points: Vec<(u64, f64)> = (0..20).chain(22..40).map(|i| (100 * i, 5.0)).collect();
        assert!(readings(&points).gaps.is_empty(), "two late readings");
        let mut series = Series::new("power", "W", Axis::TimeNs);
        (0..9).chain(100..109).for_each(|i| series.push(i * MS, 1.0));
        assert!(Readings::new(&series, Some(100 * MS)).unwrap().gaps.is_empty());
        assert_eq!(Readings::new(&series, Some(10 * MS)).unwrap().gaps.length(), 92 * MS);
    }

    #[test]
    fn a_mean_is_weighted_by_time_and_needs_two_readings() {
        let some = readings(&[(0, 10.0), (100, 10.0), (200, 50.0), (1000, 50.0)]);
        assert!(close(some.mean(&ms(0, 200)).unwrap(), 20.0));
        assert_eq!(some.mean(&ms(101, 300)), Err("has fewer than 2 samples in its time".to_owned()));
        let mut one = Series::new("power", "W", Axis::TimeNs);
        one.push(1, 2.0);
        one.push(2, f64::NAN);
        assert!(Readings::new(&one, None).is_none());
    }
}
