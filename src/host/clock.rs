//! The monotonic clock, for durations, and the wall clock, for dates.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`, which is also the clock of Python's `time.monotonic_ns` and of every process on
/// this host.
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Processor time of the calling thread in nanoseconds, user and system.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    let seconds = u64::try_from(tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(tv_nsec).unwrap_or(0))
}

/// Milliseconds since the Unix epoch. This clock may jump either way, so it is not used for durations.
pub fn unix_ms() -> i64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Realtime);
    tv_sec.saturating_mul(1000).saturating_add(tv_nsec / 1_000_000)
}

/// One point in time by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time of the monotonic clock.
    pub monotonic_ns: u64,
    /// Time of the wall clock.
    pub unix_ms: i64,
}

impl Moment {
    /// Returns the current time.
    pub fn now() -> Self {
        Self { monotonic_ns: monotonic_ns(), unix_ms: unix_ms() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_never_goes_back() {
        let first = monotonic_ns();
        assert!(first > 0);
        assert!(monotonic_ns() >= first);
    }

    #[test]
    fn the_wall_clock_agrees_with_the_standard_library() {
        let before = std::time::SystemTime::now();
        let ours = unix_ms();
        let after = std::time::SystemTime::now();
        let ms = |t: std::time::SystemTime| {
            i64::try_from(t.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()).unwrap()
        };
        assert!((ms(before)..=ms(after)).contains(&ours));
    }
}
