//! Timeouts: how long ranks wait for each other.

use std::time::Duration;

/// The initial limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A step like those before it.
    pub step: Duration,
    /// A step that may compile and tune kernels, or the first one, whose duration is unknown.
    pub first: Duration,
    /// The end of the run, where ranks read and hash all weights at different speeds.
    pub last: Duration,
}

/// The limits of real runs. A rank that hangs ends the run within 10 s; the rest of that time is for reporting it and
/// for ending the process.
pub const LIMITS: Limits =
    Limits { step: Duration::from_secs(6), first: Duration::from_secs(900), last: Duration::from_secs(30) };

/// The maximum ratio of a step to the longest one before it.
const LONGER: u32 = 4;

/// Which timeout applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The time of a step with a margin.
    Steady,
    /// The time for compiling and tuning.
    First,
    /// The time of a step with a margin, and this time.
    Within(Duration),
    /// No limit: only the first rank works, and the supervisor watches it.
    Alone,
}

/// Timeouts from the limits and the longest step so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    limits: Limits,
    longest: Duration,
}

impl Timeouts {
    /// Timeouts before the first step.
    pub fn new(limits: Limits) -> Self {
        Self { limits, longest: Duration::ZERO }
    }

    /// The initial limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Records the duration of a step.
    pub fn record_step(&mut self, step: Duration) {
        self.longest = self.longest.max(step);
    }

    /// Returns the timeout of `steps` steps at this pace; `None` for no limit.
    pub fn limit(&self, pace: Pace, steps: usize) -> Option<Duration> {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        let steady = || self.limits.step.max(self.longest.saturating_mul(LONGER).saturating_mul(steps));
        match pace {
            Pace::Steady => Some(steady()),
            Pace::Within(time) => Some(steady().saturating_add(time)),
            Pace::First => Some(self.limits.first),
            Pace::Alone => None,
        }
    }
}

impl Pace {
    /// The pace of reading `values` values from a device, at 16 MiB/s: all ranks read at once, and the host may first
    /// have to free memory.
    pub fn reading(values: usize) -> Self {
        Self::Within(Duration::from_millis(u64::try_from(values).unwrap_or(u64::MAX) / 4096))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_steps_get_more_time() {
        let mut timeouts = Timeouts::new(LIMITS);
        assert_eq!(timeouts.limit(Pace::Steady, 1), Some(LIMITS.step));
        timeouts.record_step(Duration::from_secs(3));
        timeouts.record_step(Duration::from_secs(1));
        assert_eq!(timeouts.limit(Pace::Steady, 1), Some(Duration::from_secs(12)));
        assert_eq!(timeouts.limit(Pace::Steady, 50), Some(Duration::from_secs(600)));
        assert_eq!(timeouts.limit(Pace::Within(Duration::from_secs(5)), 1), Some(Duration::from_secs(17)));
        // The largest layer of VGG16, 392 MiB.
        let read = timeouts.limit(Pace::reading(25088 * 4096), 1).unwrap();
        assert_eq!(read, Duration::from_millis(12_000 + 25_088));
        assert_eq!((timeouts.limit(Pace::First, 1), timeouts.limit(Pace::Alone, 1)), (Some(LIMITS.first), None));
    }
}
