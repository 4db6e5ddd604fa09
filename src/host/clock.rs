//! The two clocks: one that never jumps, for durations, and one that says what day it is.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of Python's `time.monotonic_ns` and of every process of this host.
pub fn monotonic_ns() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// Processor time of the calling thread in nanoseconds, user and system.
pub fn thread_cpu_ns() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(tv_nsec).unwrap_or(0))
}

/// Milliseconds since the Unix epoch. This clock may jump either way; durations do not come from it.
pub fn unix_ms() -> i64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Realtime);
    tv_sec.saturating_mul(1000).saturating_add(tv_nsec / 1_000_000)
}

/// One moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By the one that never jumps.
    pub monotonic_ns: u64,
    /// By the one that says what day it is.
    pub unix_ms: i64,
}

impl Moment {
    /// This one.
    pub fn now() -> Self {
        Self { monotonic_ns: monotonic_ns(), unix_ms: unix_ms() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_never_goes_back() {
        let first = monotonic_ns();
        assert!(first > 0);
        assert!(monotonic_ns() >= first);
    }

    #[test]
    fn the_day_agrees_with_the_standard_library() {
        let before = std::time::SystemTime::now();
        let ours = unix_ms();
        let after = std::time::SystemTime::now();
        let ms = |t: std::time::SystemTime| {
            i64::try_from(t.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()).unwrap()
        };
        assert!((ms(before)..=ms(after)).contains(&ours));
    }
}
