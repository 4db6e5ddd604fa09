//! The readings of one quantity around one event.

use crate::analysis::statistic::{number, real};

/// The means of readings around an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Around {
    /// The mean of the readings from start to stop, both included; `None` if there are none.
    pub(super) sample: Option<f64>,
    /// The mean over the time, with each reading held until the next. The first reading also holds before its time.
    pub(super) held: f64,
    /// The mean over the time, with linear interpolation. Before the first and after the last reading, their values are used.
    pub(super) linear: f64,
    /// The mean of the readings nearest to start and to stop; of two equally near ones, the earlier is used.
    pub(super) nearest: f64,
    /// The distance of these two readings from start and stop, the larger of the two.
    pub(super) nearest_off_ns: u64,
}

/// Returns the means of readings around an event; `None` without readings.
pub(super) fn around(positions: &[u64], values: &[f64], start_ns: u64, stop_ns: u64) -> Option<Around> {
    let series = Readings { positions, values };
    let (near_start, near_stop) = (series.nearest(start_ns)?, series.nearest(stop_ns)?);
    let from = positions.partition_point(|position| *position < start_ns);
    let to = positions.partition_point(|position| *position <= stop_ns);
    let inside = values.get(from..to)?;
    let length = real(stop_ns - start_ns);
    let (held, linear) = if stop_ns == start_ns {
        (series.held(start_ns), series.linear(start_ns))
    } else {
        // The event is cut at every reading within it.
        let cuts = positions[from..to].iter().copied().filter(|position| *position > start_ns && *position < stop_ns);
        let mut cuts = std::iter::once(start_ns).chain(cuts).chain([stop_ns]);
        let (mut held, mut linear) = (0.0, 0.0);
        let mut last = cuts.next()?;
        for cut in cuts {
            let width = real(cut - last);
            held += series.held(last) * width;
            linear += f64::midpoint(series.linear(last), series.linear(cut)) * width;
            last = cut;
        }
        (held / length, linear / length)
    };
    Some(Around {
        sample: (!inside.is_empty()).then(|| inside.iter().sum::<f64>() / number(inside.len())),
        held,
        linear,
        nearest: f64::midpoint(values[near_start], values[near_stop]),
        nearest_off_ns: positions[near_start].abs_diff(start_ns).max(positions[near_stop].abs_diff(stop_ns)),
    })
}

/// The number of usual intervals after which a held reading is old.
const OLD_AFTER: u64 = 10;

/// The usual time between two readings, by the median; `None` for fewer than two.
pub(super) fn usual_interval_ns(positions: &[u64]) -> Option<u64> {
    let mut intervals: Vec<u64> = positions.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    let middle = intervals.len() / 2;
    (!intervals.is_empty()).then(|| *intervals.select_nth_unstable(middle).1)
}

/// Whether the held reading is old at any time of the event, by the usual interval. The first reading also holds before its time.
pub(super) fn holds_old(positions: &[u64], interval_ns: u64, start_ns: u64, stop_ns: u64) -> bool {
    let fresh_ns = interval_ns.saturating_mul(OLD_AFTER);
    let after = positions.partition_point(|position| *position <= start_ns);
    let Some(first) = after.checked_sub(1) else {
        return positions.first().is_some_and(|first| first - start_ns > fresh_ns);
    };
    let within = positions[after..].iter().copied().take_while(|position| *position < stop_ns);
    let mut held = positions[first];
    for next in within.chain([stop_ns]) {
        if next.saturating_sub(held) > fresh_ns {
            return true;
        }
        held = next;
    }
    false
}

/// At least one reading.
struct Readings<'a> {
    positions: &'a [u64],
    values: &'a [f64],
}

impl Readings<'_> {
    /// The index of the reading nearest to a moment.
    fn nearest(&self, moment: u64) -> Option<usize> {
        let after = self.positions.partition_point(|position| *position < moment);
        let off = |place: usize| self.positions.get(place).map(|position| position.abs_diff(moment));
        match (after.checked_sub(1), off(after)) {
            (None, off) => off.map(|_| after),
            (Some(before), Some(off_after)) if off(before) > Some(off_after) => Some(after),
            (Some(before), _) => Some(before),
        }
    }

    /// The index of the last reading up to a moment.
    fn last(&self, moment: u64) -> Option<usize> {
        self.positions.partition_point(|position| *position <= moment).checked_sub(1)
    }

    fn held(&self, moment: u64) -> f64 {
        self.values[self.last(moment).unwrap_or(0)]
    }

    fn linear(&self, moment: u64) -> f64 {
        let Some(before) = self.last(moment) else { return self.values[0] };
        let (at, value) = (self.positions[before], self.values[before]);
        match (self.positions.get(before + 1), self.values.get(before + 1)) {
            (Some(next_at), Some(next)) if *next_at > at => {
                value + (next - value) * real(moment - at) / real(next_at - at)
            }
            _ => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POSITIONS: [u64; 3] = [10, 20, 40];
    const VALUES: [f64; 3] = [1.0, 3.0, 7.0];

    fn at(start_ns: u64, stop_ns: u64) -> Around {
        around(&POSITIONS, &VALUES, start_ns, stop_ns).unwrap()
    }

    #[test]
    fn an_event_is_seen_in_four_ways() {
        // 15 to 20 holds 1, 20 to 30 holds 3; the line goes 2, 3, 5.
        let seen = at(15, 30);
        assert_eq!(seen.sample, Some(3.0));
        assert_eq!((seen.held, seen.linear), ((5.0 + 30.0) / 15.0, (2.5 * 5.0 + 4.0 * 10.0) / 15.0));
        assert_eq!((seen.nearest, seen.nearest_off_ns), (2.0, 10));
        // Both ends are included, and a reading at a border is in the window.
        assert_eq!(at(10, 20).sample, Some(2.0));
        assert_eq!(at(11, 19).sample, None);
        // Before the first reading and after the last one there is only that one.
        let before = at(0, 5);
        assert_eq!((before.sample, before.held, before.linear, before.nearest), (None, 1.0, 1.0, 1.0));
        let after = at(50, 60);
        assert_eq!((after.held, after.linear, after.nearest, after.nearest_off_ns), (7.0, 7.0, 7.0, 20));
        // An event without duration.
        let moment = at(15, 15);
        assert_eq!((moment.held, moment.linear, moment.nearest), (1.0, 2.0, 1.0));
        assert_eq!(around(&[], &[], 0, 1), None);
    }

    #[test]
    fn a_reading_is_old_after_ten_usual_intervals() {
        let mut positions: Vec<u64> = (0..20).map(|at| at * 10).collect();
        positions.extend([1000, 1010]);
        assert_eq!(
            (usual_interval_ns(&positions), usual_interval_ns(&[7]), usual_interval_ns(&[])),
            (Some(10), None, None)
        );
        let old = |start_ns, stop_ns| holds_old(&positions, 10, start_ns, stop_ns);
        assert!(!old(15, 180) && !old(180, 290) && !old(1000, 1110));
        assert!(old(180, 291), "the last reading before the gap is of 190");
        assert!(old(900, 1005) && old(1000, 1111));
        assert!(holds_old(&positions[20..], 10, 800, 1005) && !holds_old(&positions[20..], 10, 900, 1005));
    }

    proptest! {
        /// Compares with the mean over a fine grid of moments.
        #[test]
        fn means_over_time_are_integrals(steps in prop::collection::vec((1..30u64, -50i32..50), 1..12), start in 0..150u64, length in 1..80u64) {
            let mut at = 0;
            let (mut positions, mut values) = (Vec::new(), Vec::new());
            for (step, value) in steps {
                at += step;
                positions.push(at * 100);
                values.push(f64::from(value));
            }
            let (start, stop) = (start * 100, (start + length) * 100);
            let seen = around(&positions, &values, start, stop).unwrap();
            let series = Readings { positions: &positions, values: &values };
            let middles = (start..stop).step_by(2).map(|moment| moment + 1);
            let (mut held, mut linear, mut n) = (0.0, 0.0, 0.0);
            for moment in middles {
                held += series.held(moment);
                linear += series.linear(moment);
                n += 1.0;
            }
            prop_assert!((seen.held - held / n).abs() < 1e-9, "{} {}", seen.held, held / n);
            prop_assert!((seen.linear - linear / n).abs() < 1e-9, "{} {}", seen.linear, linear / n);
            let near = |moment: u64| (0..positions.len()).min_by_key(|place| positions[*place].abs_diff(moment)).unwrap();
            prop_assert_eq!(seen.nearest, f64::midpoint(values[near(start)], values[near(stop)]));
        }
    }
}
