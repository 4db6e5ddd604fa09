//! Timeouts: how long ranks wait for each other.

use std::time::Duration;

/// The initial limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In a step like those before it.
    pub step: Duration,
    /// In a step in which kernels may be compiled and tuned, or the first one, of which nobody knows how long it takes.
    pub first: Duration,
    /// At the end, where all weights are read and hashed, at which no two ranks are equally fast.
    pub last: Duration,
}

/// A rank that hangs ends the run within 10 s; what is left of them is for saying so and for ending the process.
pub const LIMITS: Limits =
    Limits { step: Duration::from_secs(6), first: Duration::from_secs(900), last: Duration::from_secs(30) };

/// A step may take so many times as long as the longest one before it.
const LONGER: u32 = 4;

/// Which timeout applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As long as a step takes, and some more.
    Steady,
    /// As long as compiling and tuning may take.
    First,
    /// As long as a step takes, and this.
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

    /// Takes in the duration of a step.
    pub fn record_step(&mut self, step: Duration) {
        self.longest = self.longest.max(step);
    }

    /// The timeout of so many steps at this pace; `None` for no limit.
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
    /// That of reading so many values from a device: 16 MiB/s, since all ranks read at once, into memory that their machine may have to make room in.
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
