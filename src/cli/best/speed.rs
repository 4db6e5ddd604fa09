//! The metric that decides which configuration is the fastest: a time if all trained on as many samples, as far as is
//! known, else the throughput.

use crate::analysis::samples_behind;
use crate::record::{Direction, Run};

/// Times of a configuration. The first one that both configurations have is compared.
pub(in crate::cli) const TIMES: [&str; 4] = ["train_time", "epoch_time", "step_time", "wall_time"];
/// Compares configurations whose numbers of training samples differ, or are known for only some of them.
const THROUGHPUT: &str = "throughput";
/// The metrics for such configurations: the throughput, or times if it is missing.
const OF_UNEQUAL: [&str; 5] = [THROUGHPUT, TIMES[0], TIMES[1], TIMES[2], TIMES[3]];

/// All metrics of speed.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    OF_UNEQUAL.into_iter()
}

/// The metrics of speed for these configurations, the preferred one first.
pub(super) fn of<'a>(runs: impl Iterator<Item = &'a Run>) -> &'static [&'static str] {
    // If the number of samples is known for one run only, the other run may have used any number.
    let mut samples = runs.map(|run| samples_behind(TIMES[0], run));
    let first = samples.next();
    if samples.any(|other| Some(other) != first) { &OF_UNEQUAL } else { &TIMES }
}

/// The direction in which a metric of speed is faster.
pub(super) fn direction(speed: &str) -> Direction {
    if speed == THROUGHPUT { Direction::Maximize } else { Direction::Minimize }
}

/// Whether the first value of a metric of speed is at least as fast as the second.
pub(super) fn is_as_fast(speed: &str, one: f64, other: f64) -> bool {
    match direction(speed) {
        Direction::Minimize => one <= other,
        Direction::Maximize => one >= other,
    }
}

/// A metric of speed, and its means for two configurations.
pub(super) type Speeds = (&'static str, (f64, f64));

/// The first of these metrics that both configurations have, and its means.
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
