//! An energy counter that ticks: its growth, the uncertainty of the growth, and when the counter is invalid.
//!
//! Knows that the counter is behind the true energy by up to its period. Must not know whose counter it is.

use super::readings::{Integral, Readings, Renewal};
use super::statistic::{CONFIDENCE, mean_ns, median_ns, seconds};
use super::window::Windows;

/// A counter that does not change for this many periods, and for a second, is frozen.
const FROZEN_PERIODS: u64 = 10;
const FROZEN_NS: u64 = 1_000_000_000;
/// The standard deviation of a lag that is uniform over a period is the period divided by this.
const UNIFORM: f64 = 3.464_101_615_137_754_6;

/// A counter of joules.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    readings: Readings,
    period_ns: u64,
    ticks: Ticks,
    /// The times without a tick that are so long that the counter was frozen if power was drawn.
    still: Windows,
}

/// How many ticks of a counter were observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ticks {
    /// Enough to know its period.
    Many,
    /// Enough for an upper bound of its period only.
    Few,
    /// Fewer than two: nothing is known about its period.
    None,
}

/// Why a counter is invalid over some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterFault {
    /// It went backwards: the driver was reloaded, or the counter overflowed.
    Backwards,
    /// It did not change while power was drawn.
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
    pub(super) fn new(readings: Readings) -> Self {
        let (period_ns, ticks) = match readings.renewal() {
            // Readings see each tick late, by a varying delay: only the mean interval is that of the ticks. Pauses are left out.
            Renewal::Seen(between) => {
                let usual = median_ns(&between).unwrap_or(0);
                let times: Vec<u64> = between.into_iter().filter(|time| *time <= 3 * usual).collect();
                (mean_ns(&times).unwrap_or(0), Ticks::Many)
            }
            Renewal::Within(period_ns) => (period_ns, Ticks::Few),
            Renewal::Untold => (0, Ticks::None),
        };
        let period_ns = period_ns.max(readings.interval_ns());
        Self::of(readings, period_ns, ticks)
    }

    fn of(readings: Readings, period_ns: u64, ticks: Ticks) -> Self {
        let patience = FROZEN_NS.max(FROZEN_PERIODS.saturating_mul(period_ns));
        let still = readings.still().filter(|still| still.length_ns() > patience);
        // A ticking counter keeps its value for up to a period. Energy counted during a pause is in the next reading.
        let still = Windows::new(still.map(|still| (still.since_ns + period_ns, still.changed_ns)));
        Self { readings, period_ns, ticks, still }
    }

    /// Moves the readings to earlier times. `None` if fewer than two readings are left.
    pub(super) fn earlier(self, by_s: f64) -> Option<Self> {
        Some(Self::of(self.readings.earlier(by_s)?, self.period_ns, self.ticks))
    }

    /// How many of its ticks were observed.
    pub(super) fn ticks(&self) -> Ticks {
        self.ticks
    }

    pub(super) fn readings(&self) -> &Readings {
        &self.readings
    }

    /// The time between its ticks, or between its readings if that is longer.
    pub(super) fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// The resolution in time, in nanoseconds. It is the period. If each reading has a new value, it is the
    /// interval between readings, because nothing suggests that ticks are slower. The uncertainty of an edge still
    /// comes from the longest possible period.
    pub(super) fn pace_ns(&self) -> u64 {
        let is_as_read = self.ticks == Ticks::Few && self.readings.change_each_time();
        if is_as_read { self.readings.interval_ns() } else { self.period_ns }
    }

    /// The growth over the windows. `power` shows whether power was drawn while the counter did not change; without it, power is assumed.
    pub(super) fn growth(&self, windows: &Windows, power: Option<&Readings>) -> Result<Integral, CounterFault> {
        for (start, stop) in self.readings.graspable(windows).iter() {
            self.believe(start, stop, power)?;
        }
        Ok(self.readings.growth(windows))
    }

    fn believe(&self, start: u64, stop: u64, power: Option<&Readings>) -> Result<(), CounterFault> {
        let (first, last) = self.readings.ends();
        let from = self.readings.between(first, start).last().map_or(start, |(at, _)| *at);
        let to = self.readings.between(stop, last).first().map_or(stop, |(at, _)| *at);
        if self.readings.between(from, to).windows(2).any(|pair| pair[1].1 < pair[0].1) {
            return Err(CounterFault::Backwards);
        }
        let still = self.still.clip(start, stop);
        let drawn = |power: &Readings| power.integral(&still).area > 0.0;
        if !still.is_empty() && power.is_none_or(drawn) {
            return Err(CounterFault::Frozen);
        }
        Ok(())
    }

    /// The lowest and the highest power around a moment by the counter alone, in watts: over four periods before and after it.
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

    /// Half the width of the interval around one edge of a window, in joules, if this power is drawn there.
    pub(super) fn edge(&self, watts: f64) -> f64 {
        CONFIDENCE * watts.abs() * self.lag() / UNIFORM
    }

    /// The most by which a window may be displaced, in seconds: energy drawn just before its start may count in it.
    pub(super) fn lag(&self) -> f64 {
        seconds(self.period_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::statistic::real;
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
    fn a_counter_that_resumes_is_valid_again() {
        let value = |i: i32| if i < 60 { i } else { (i - 40).max(60) };
        let paused = counter((0..200).map(|i| f64::from(value(i))));
        assert_eq!(over(&paused, 4000, 5040, Some(300.0)), Err(CounterFault::Frozen));
        assert_eq!(over(&paused, 5050, 8000, Some(300.0)), Ok(59.0));
        let moved = paused.earlier(0.5).unwrap();
        assert_eq!(over(&moved, 4550, 7500, Some(300.0)), Ok(59.0));
        assert_eq!(over(&moved, 4000, 4540, Some(300.0)), Err(CounterFault::Frozen));
    }

    #[test]
    fn a_counter_that_was_not_read_is_not_frozen() {
        let mut series = Series::new("gpu.0.energy", "J", Axis::TimeNs);
        (0..100u64).filter(|i| !(40..80).contains(i)).for_each(|i| series.push(i * 50 * MS, 15.0 * real(i)));
        let counter = Counter::new(Readings::new(&series, None).unwrap());
        assert_eq!(over(&counter, 1000, 4500, Some(300.0)), Ok(15.0 * 70.0));
    }

    #[test]
    fn few_ticks_give_an_upper_bound_of_the_period() {
        let ticks = |counter: Counter| (counter.period_ns() / MS, counter.ticks());
        assert_eq!(ticks(counter((0..14).map(|i| f64::from(i / 4)))), (225, Ticks::Few), "ticks of 200 ms");
        assert_eq!(ticks(counter((0..7).map(|i| f64::from(i / 4)))), (50, Ticks::None));
        assert_eq!(ticks(counter((0..100).map(|i| f64::from(i / 4)))), (200, Ticks::Many));
    }

    #[test]
    fn a_counter_is_invalid_where_it_went_backwards() {
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
        assert_eq!(over(&frozen, 0, 3040, Some(300.0)), Ok(60.0), "it may have ticked when it should");
        for (start, stop) in [(0, 3900), (3100, 4000), (8000, 8500)] {
            let seen = over(&frozen, start, stop, Some(300.0));
            assert_eq!(seen, Err(CounterFault::Frozen), "{start} to {stop}, however short");
        }
    }
}
