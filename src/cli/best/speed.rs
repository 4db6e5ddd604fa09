//! Which configuration is the fastest: by a time where all do the same, by the throughput where they do not.

use crate::analysis::{Place, samples_behind};
use crate::record::Direction;

/// The metrics that say how long a configuration takes; the first that both have is told.
pub(in crate::cli) const TIMES: [&str; 4] = ["train_time", "epoch_time", "step_time", "wall_time"];
/// What compares configurations that trained on different numbers of samples.
const THROUGHPUT: &str = "throughput";
/// The metrics where they did: a time is better than nothing.
const OF_UNEQUAL: [&str; 5] = [THROUGHPUT, TIMES[0], TIMES[1], TIMES[2], TIMES[3]];

/// All metrics that may say which one is faster.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    OF_UNEQUAL.into_iter()
}

/// The metrics that say which of these configurations is faster, the first choice first.
pub(super) fn of(places: &[Place]) -> &'static [&'static str] {
    let mut samples = places.iter().filter_map(|place| samples_behind(TIMES[0], &place.contender.run));
    let first = samples.next();
    if samples.any(|other| Some(other) != first) { &OF_UNEQUAL } else { &TIMES }
}

/// Which way such a metric is faster.
pub(super) fn direction(speed: &str) -> Direction {
    if speed == THROUGHPUT { Direction::Maximize } else { Direction::Minimize }
}

/// Whether one value of such a metric is at least as fast as another one.
pub(super) fn is_as_fast(speed: &str, one: f64, other: f64) -> bool {
    match direction(speed) {
        Direction::Minimize => one <= other,
        Direction::Maximize => one >= other,
    }
}

/// A metric that says how fast, and its means of two configurations.
pub(super) type Speeds = (&'static str, (f64, f64));

/// The first of these metrics that both have, and both values.
pub(super) fn common<E>(
    speeds: &[&'static str],
    mut both: impl FnMut(&str) -> Result<(Option<f64>, Option<f64>), E>,
) -> Result<Option<Speeds>, E> {
    for speed in speeds {
        if let (Some(own), Some(other)) = both(speed)? {
            return Ok(Some((speed, (own, other))));
        }
    }
    Ok(None)
}
