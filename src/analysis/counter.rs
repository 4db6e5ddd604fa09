//! A counter of energy that ticks: what it grew by, how far that may be off, and when it cannot be believed.
//!
//! Knows that the counter is behind the truth by anything up to its period, and nothing of whose counter it is.

use super::readings::{Integral, Readings};
use super::statistic::{CONFIDENCE, mean_ns, median_ns, seconds};
use super::window::Windows;

/// A counter that stands still for so many of its periods, and for a second, is frozen.
const FROZEN_PERIODS: u64 = 10;
const FROZEN_NS: u64 = 1_000_000_000;
/// The spread of a lag that may be anything up to a period is the period divided by this.
const UNIFORM: f64 = 3.464_101_615_137_754_6;

/// A counter of joules.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    readings: Readings,
    period_ns: u64,
}

/// Why a counter cannot be believed over some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterFault {
    /// It went backwards: the driver was loaded again, or the counter overflowed.
    Backwards,
    /// It did not move while power was drawn.
    Frozen,
}

impl CounterFault {
    /// The word in `telemetry.marks`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Backwards => "counter_went_back",
            Self::Frozen => "frozen_counter",
        }
    }
}

impl Counter {
    /// Takes the counter's readings.
    pub(super) fn new(readings: Readings) -> Self {
        // Readings see a tick late, by turns more and less: only the mean is the ticks' own. A time in which it stood still is no tick.
        let between = readings.between_changes();
        let usual = median_ns(&between).unwrap_or(0);
        let ticks: Vec<u64> = between.into_iter().filter(|time| *time <= 3 * usual).collect();
        let period_ns = mean_ns(&ticks).unwrap_or(0).max(readings.interval_ns());
        Self { readings, period_ns }
    }

    /// The same counter as of so many seconds before. None if fewer than two readings are left.
    pub(super) fn earlier(self, by_s: f64) -> Option<Self> {
        Some(Self { readings: self.readings.earlier(by_s)?, period_ns: self.period_ns })
    }

    /// Its readings.
    pub(super) fn readings(&self) -> &Readings {
        &self.readings
    }

    /// The time between its ticks, or between its readings where those are farther apart.
    pub(super) fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// What it grew by over the windows. `power` says whether power was drawn while it stood still; where there is none, it was.
    pub(super) fn growth(&self, windows: &Windows, power: Option<&Readings>) -> Result<Integral, CounterFault> {
        for (start, stop) in self.readings.graspable(windows).iter() {
            self.believe(start, stop, power)?;
        }
        Ok(self.readings.growth(windows))
    }

    fn believe(&self, start: u64, stop: u64, power: Option<&Readings>) -> Result<(), CounterFault> {
        let patience = FROZEN_NS.max(FROZEN_PERIODS.saturating_mul(self.period_ns()));
        let (first, last) = self.readings.ends();
        let reach = |moment: u64| self.readings.between(moment.saturating_sub(patience).max(first), moment);
        let from = reach(start).last().map_or(start, |(at, _)| *at);
        let to = self.readings.between(stop, last).first().map_or(stop, |(at, _)| *at);
        let mut still_since = start;
        for pair in self.readings.between(from, to).windows(2) {
            let ((_, before), (at, after)) = (pair[0], pair[1]);
            if after < before {
                return Err(CounterFault::Backwards);
            }
            if after > before {
                still_since = at;
            } else if at.min(stop).saturating_sub(still_since) > patience {
                let drawn = power.map(|power| power.integral(&Windows::new([(still_since, at.min(stop))])).area);
                if drawn.is_none_or(|joules| joules > 0.0) {
                    return Err(CounterFault::Frozen);
                }
            }
        }
        Ok(())
    }

    /// The power around a moment by the counter alone: over a few periods before it and after it.
    pub(super) fn slopes(&self, moment: u64) -> Option<(f64, f64)> {
        let (first, last) = self.readings.ends();
        let reach = self.period_ns().saturating_mul(4);
        let slope = |from: u64, to: u64| {
            let (from, to) = (from.max(first), to.min(last));
            let power = (self.readings.at(to)? - self.readings.at(from)?) / seconds(to.checked_sub(from)?);
            power.is_finite().then_some(power)
        };
        let (before, after) =
            (slope(moment.saturating_sub(reach), moment), slope(moment, moment.saturating_add(reach)));
        let (one, other) = (before.or(after)?, after.or(before)?);
        Some((one.min(other), one.max(other)))
    }

    /// Half the width of the interval around one edge of a window, in joules, where so much power is drawn.
    pub(super) fn edge(&self, watts: f64) -> f64 {
        CONFIDENCE * watts.abs() * self.lag() / UNIFORM
    }

    /// How far a window may be displaced, in seconds: what was drawn just before its start counts as drawn in it.
    pub(super) fn lag(&self) -> f64 {
        seconds(self.period_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Axis, Series};

    const MS: u64 = 1_000_000;

    fn counter(values: impl IntoIterator<Item = f64>) -> Counter {
        let mut series = Series::new("gpu.0.energy", "J", Axis::TimeNs);
        (0..).zip(values).for_each(|(i, value): (u64, f64)| series.push(i * 50 * MS, value));
        Counter::new(Readings::new(&series, None).unwrap())
    }

    fn over(counter: &Counter, start: u64, stop: u64, power: Option<f64>) -> Result<f64, CounterFault> {
        let power = power.map(|watts| {
            let mut series = Series::new("gpu.0.power_instant", "W", Axis::TimeNs);
            (0..200).for_each(|i| series.push(i * 50 * MS, watts));
            Readings::new(&series, None).unwrap()
        });
        Ok(counter.growth(&Windows::new([(start * MS, stop * MS)]), power.as_ref())?.area)
    }

    #[test]
    fn the_period_is_that_of_the_ticks_or_of_the_readings() {
        assert_eq!(counter((0..100).map(|i| f64::from(i / 2))).period_ns(), 100 * MS);
        assert_eq!(counter((0..100).map(f64::from)).period_ns(), 50 * MS);
        assert_eq!(counter((0..100).map(|_| 7.0)).period_ns(), 50 * MS);
    }

    #[test]
    fn a_counter_that_goes_back_is_not_believed_where_it_did() {
        let reset = counter((0..100).map(|i| if i < 50 { 1000.0 + f64::from(i) } else { f64::from(i) }));
        assert_eq!(over(&reset, 0, 4000, None), Err(CounterFault::Backwards));
        assert!((over(&reset, 0, 2449, None).unwrap() - 48.98).abs() < 1e-9);
        assert_eq!(over(&reset, 2460, 2470, None), Err(CounterFault::Backwards), "between two readings");
        assert_eq!(over(&reset, 2500, 4000, None), Ok(30.0));
    }

    #[test]
    fn a_counter_that_stands_still_under_power_is_frozen() {
        let frozen = counter((0..200).map(|i: i32| f64::from(i.min(60))));
        assert_eq!(over(&frozen, 0, 9000, Some(300.0)), Err(CounterFault::Frozen));
        assert_eq!(over(&frozen, 0, 9000, None), Err(CounterFault::Frozen));
        assert_eq!(over(&frozen, 0, 9000, Some(0.0)), Ok(60.0));
        assert_eq!(over(&frozen, 0, 3900, Some(300.0)), Ok(60.0), "not for a second yet");
        assert_eq!(over(&frozen, 3100, 4000, Some(300.0)), Ok(0.0), "too short to say so");
    }
}
