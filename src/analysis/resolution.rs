//! The resolution of readings: how long windows have to last, and how much of them has to be covered.
//!
//! Knows how often something is read, but not what it is. Must never attribute readings outside a window to it.

use super::readings::Readings;
use super::statistic::{median_ns, share, span};
use super::window::Windows;
use crate::record::Quantity;

/// The fewest intervals of the readings for which a window has to last.
pub(super) const RESOLVED_INTERVALS: u64 = 2;
/// The least share of a window that has to be covered, and the least share of merged windows that has to be the phase's
/// own.
pub(super) const COVERED: f64 = 0.9;
/// Windows shorter than the longest one by this factor are slivers. Refusals leave them out if they add up to little.
const SLIVER: u64 = 100;

/// The shortest time that can be resolved, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// The reason, as the words before the time.
    pub(super) why: &'static str,
    /// The time in nanoseconds.
    pub(super) ns: u64,
}

/// The windows over which a phase is measured instead of its own.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resolved {
    /// The windows.
    pub(super) windows: Windows,
    /// The share of the candidate windows that is long enough.
    pub(super) kept: f64,
    /// The share of the merged windows that is the phase's own.
    pub(super) own: f64,
}

/// Finds the windows that readings of this pace can resolve, or returns why there are none.
pub(super) fn resolve(windows: &Windows, pace: Pace) -> Result<Resolved, String> {
    let shortest = RESOLVED_INTERVALS.saturating_mul(pace.ns);
    let merged = windows.merge(pace.ns);
    let own = share(windows.length(), merged.length());
    let (candidate, own) = if own >= COVERED { (merged, own) } else { (windows.clone(), 1.0) };
    let long = candidate.at_least(shortest);
    let kept = share(long.length(), candidate.length());
    if kept >= COVERED {
        return Ok(Resolved { windows: long, kept, own });
    }
    let longest = windows.iter().map(|(start, stop)| stop - start).max().unwrap_or(0);
    let told = windows.at_least(longest / SLIVER);
    // If there are many, the phase consists of them.
    let told = if share(told.length(), windows.length()) >= COVERED { &told } else { windows };
    let lengths: Vec<u64> = told.iter().map(|(start, stop)| stop - start).collect();
    let needed = format!("but {} {}, and twice that is needed", pace.why, span(pace.ns));
    Err(match (lengths.as_slice(), median_ns(&lengths)) {
        ([], _) | (_, None) => "lasts no time".to_owned(),
        ([one], _) => format!("lasts {}, {needed}", span(*one)),
        (many, Some(median)) => format!("occurs {} times, each for about {}, {needed}", many.len(), span(median)),
    })
}

/// The time-weighted mean of a GPU's utilization over windows, or why there is none.
pub(super) fn mean_used(quantity: Quantity, gauge: &Readings, windows: &Windows) -> Result<f64, String> {
    let (what, why) = if Quantity::GPM.contains(&quantity) {
        ("the GPM counters", "the GPM counters are read every")
    } else {
        ("utilization", "utilization is read every")
    };
    let resolved = resolve(windows, Pace { why, ns: gauge.interval_ns() })?;
    let covered = gauge.integral(&resolved.windows).covered_ns;
    let covered = resolved.kept * share(covered, resolved.windows.length());
    if covered < COVERED {
        return Err(uncovered(what, covered));
    }
    gauge.mean(&resolved.windows)
}

/// Returns the reason that readings cover too little of a time.
pub(super) fn uncovered(what: &str, covered: f64) -> String {
    if covered <= 0.0 {
        return format!("has no samples of {what} in its time");
    }
    let (covered, needed) = ((covered * 100.0).floor(), COVERED * 100.0);
    format!("has samples of {what} for only {covered:.0}% of its time, but {needed:.0}% are needed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Axis, Series};

    const MS: u64 = 1_000_000;

    fn ms(intervals: &[(u64, u64)]) -> Windows {
        Windows::new(intervals.iter().map(|(start, stop)| (start * MS, stop * MS)))
    }

    #[test]
    fn a_refusal_states_the_interval_and_the_needed_length() {
        let refused = |intervals: &[(u64, u64)], why, ms_apart: u64| {
            resolve(&ms(intervals), Pace { why, ns: ms_apart * MS }).unwrap_err()
        };
        assert_eq!(
            refused(&[(0, 1000)], "power is read every", 600),
            "lasts 1 s, but power is read every 600 ms, and twice that is needed"
        );
        assert_eq!(
            refused(&[(0, 1200), (3000, 3001), (4000, 5600), (6000, 6001)], "the counter ticks every", 1000),
            "occurs 2 times, each for about 1.4 s, but the counter ticks every 1 s, and twice that is needed",
            "slivers are no occurrences"
        );
        let evaluations: Vec<(u64, u64)> =
            [(0, 4200)].into_iter().chain((0..100).map(|i| (5000 + 100 * i, 5006 + 100 * i))).collect();
        assert_eq!(
            refused(&evaluations, "power is read every", 100),
            "occurs 101 times, each for about 6 ms, but power is read every 100 ms, and twice that is needed",
            "so many of them are"
        );
        assert_eq!(refused(&[], "power is read every", 1), "lasts no time");
    }

    #[test]
    fn a_mean_needs_readings_of_nine_tenths_of_its_time() {
        let mut series = Series::new("gpu.0.utilization_gpu", "%", Axis::TimeNs);
        (0..=7).for_each(|i| series.push(100 * i * MS, 90.0));
        let gauge = Readings::new(&series, None).unwrap();
        let of = |stop: u64| mean_used(Quantity::UtilizationGpu, &gauge, &ms(&[(0, stop)]));
        assert_eq!(of(700), Ok(90.0));
        assert_eq!(of(760), Ok(90.0));
        assert_eq!(of(3000), Err("has samples of utilization for only 23% of its time, but 90% are needed".to_owned()));
        assert_eq!(
            mean_used(Quantity::UtilizationGpu, &gauge, &ms(&[(800, 3000)])),
            Err("has no samples of utilization in its time".to_owned())
        );
        assert_eq!(
            mean_used(Quantity::TensorActive, &gauge, &ms(&[(0, 150)])),
            Err("lasts 150 ms, but the GPM counters are read every 100 ms, and twice that is needed".to_owned())
        );
    }
}
