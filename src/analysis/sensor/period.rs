//! The times at which a value was renewed, and their period.

use super::Within;
use crate::analysis::statistic::{CONFIDENCE, median_real, number, seconds};
use crate::record::count;

/// The fewest updates from which a period is estimated.
const ENOUGH_UPDATES: usize = 20;
/// If more of the readings than this are new, they miss updates, because steady power gives equal values.
const ALWAYS_NEW: f64 = 0.6;
/// The least deviation from the beat, as a share of the period, of an update that is off the beat.
const OFF_BEAT: f64 = 0.25;
/// The largest share of updates that may be off the beat.
const OFF_BEAT_SHARE: f64 = 0.2;
/// The longest time without a change, in periods, that is used.
const LONGEST_PAUSE: f64 = 10.0;

/// The updates of a value.
pub(super) struct Updates {
    /// The time of each update and its value. The time is in seconds since the origin, in the middle between the
    /// readings before and after the update.
    pub(super) points: Vec<(f64, f64)>,
    /// The time between two updates.
    pub(super) period: Within,
    /// Half of the range of 95% of these times.
    pub(super) spread_s: f64,
    /// The median time between two readings, in seconds.
    pub(super) poll_s: f64,
}

/// Finds the updates in readings, whose times are nanoseconds since the origin.
///
/// A value may be renewed and stay the same. So the times between changes are multiples of one period, which is the sum
/// of these times divided by the sum of the multiples.
///
/// # Errors
/// The reason why there is no result, as the end of a sentence.
pub(super) fn updates(readings: &[(u64, f64)]) -> Result<Updates, String> {
    let pairs = || readings.windows(2).map(|pair| (pair[0], pair[1]));
    let polls: Vec<f64> = pairs().map(|((before, _), (after, _))| seconds(after.saturating_sub(before))).collect();
    let (Some(poll_s), Some((first, _)), Some((last, _))) = (median_real(&polls), readings.first(), readings.last())
    else {
        return Err("it was not read".to_owned());
    };
    let points: Vec<(f64, f64)> = pairs()
        .filter(|((_, old), (_, new))| old != new)
        .map(|((before, _), (after, value))| (f64::midpoint(seconds(before), seconds(after)), value))
        .collect();
    if points.len() < ENOUGH_UPDATES {
        let (times, length_s) = (count(points.len(), "time"), seconds(last - first));
        return Err(format!("it changed {times} in {length_s:.0} s, and {ENOUGH_UPDATES} are needed"));
    }
    if number(points.len()) >= ALWAYS_NEW * number(polls.len()) {
        let poll_ms = poll_s * 1e3;
        return Err(format!("it changes with every reading, and those come every {poll_ms:.1} ms"));
    }
    let between: Vec<f64> = points.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    let period_s = beat(&between).ok_or("it changes at times that have no beat")?;
    let off: Vec<(f64, f64)> = between.iter().map(|time| ((time / period_s).round(), *time)).collect();
    let off: Vec<f64> = off
        .into_iter()
        .filter(|(times, _)| *times <= LONGEST_PAUSE)
        .map(|(times, time)| time - times * period_s)
        .collect();
    let far = off.iter().filter(|off| off.abs() > OFF_BEAT * period_s).count();
    if number(far) > OFF_BEAT_SHARE * number(off.len()) {
        let (far, all) = (far, off.len());
        return Err(format!("{far} of its {all} changes are off any beat"));
    }
    let mut sorted = off.clone();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 40;
    let spread_s = (sorted[sorted.len() - 1 - cut] - sorted[cut]) / 2.0;
    let variance = off.iter().map(|off| off * off).sum::<f64>() / number(off.len());
    let half_width = CONFIDENCE * (variance / number(off.len())).sqrt();
    Ok(Updates { points, period: Within { seconds: period_s, half_width }, spread_s, poll_s })
}

/// Returns the period of which most times are multiples.
fn beat(between: &[f64]) -> Option<f64> {
    let mut sorted = between.to_vec();
    sorted.sort_by(f64::total_cmp);
    let short = *sorted.get(sorted.len() / 10)?;
    let single: Vec<f64> = sorted.into_iter().filter(|time| *time <= 1.5 * short).collect();
    let mut period_s = median_real(&single).filter(|period_s| *period_s > 0.0)?;
    for _ in 0..8 {
        let times = between.iter().map(|time| ((time / period_s).round(), *time));
        let near = times.filter(|(times, time)| {
            (1.0..=LONGEST_PAUSE).contains(times) && (time - times * period_s).abs() <= OFF_BEAT * period_s
        });
        let (times, length) = near.fold((0.0, 0.0), |(times, length), (more, time)| (times + more, length + time));
        if times == 0.0 {
            return None;
        }
        period_s = length / times;
    }
    Some(period_s)
}
