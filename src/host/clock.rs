//! The two clocks: one that never jumps, for durations, and one that says what day it is.
//!
//! Time is handed down as a [`Clock`] value, so that a test can pin it; nothing else in the house asks for the time.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

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

/// A source of time: the system's, or one that a test moves by hand. Clones share one time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The system's clocks.
    #[default]
    System,
    /// Clocks that stand still until they are moved.
    Fixed(Arc<FixedClock>),
}

/// The hands of a clock that stands still. See [`Clock::fixed`].
#[derive(Debug)]
pub struct FixedClock {
    monotonic_ns: AtomicU64,
    unix_ns: AtomicI64,
}

impl Clock {
    /// A clock that stands still at these times.
    pub fn fixed(monotonic_ns: u64, unix_ms: i64) -> Self {
        let unix_ns = AtomicI64::new(unix_ms.saturating_mul(1_000_000));
        Self::Fixed(Arc::new(FixedClock { monotonic_ns: AtomicU64::new(monotonic_ns), unix_ns }))
    }

    /// As [`monotonic_ns`].
    pub fn monotonic_ns(&self) -> u64 {
        match self {
            Self::System => monotonic_ns(),
            Self::Fixed(hands) => hands.monotonic_ns.load(Ordering::SeqCst),
        }
    }

    /// As [`unix_ms`].
    pub fn unix_ms(&self) -> i64 {
        match self {
            Self::System => unix_ms(),
            Self::Fixed(hands) => hands.unix_ns.load(Ordering::SeqCst).div_euclid(1_000_000),
        }
    }

    /// Moves both hands of a fixed clock forward; the system's clocks are left alone.
    pub fn advance_ns(&self, by_ns: u64) {
        if let Self::Fixed(hands) = self {
            hands.monotonic_ns.fetch_add(by_ns, Ordering::SeqCst);
            hands.unix_ns.fetch_add(i64::try_from(by_ns).unwrap_or(i64::MAX), Ordering::SeqCst);
        }
    }

    /// Lets the day of a fixed clock jump, as a corrected system clock does, while its monotonic hand stays.
    pub fn jump_unix_ms(&self, by_ms: i64) {
        if let Self::Fixed(hands) = self {
            hands.unix_ns.fetch_add(by_ms.saturating_mul(1_000_000), Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_never_goes_back() {
        let first = Clock::System.monotonic_ns();
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

    #[test]
    fn a_fixed_clock_moves_only_by_hand_and_its_clones_with_it() {
        let clock = Clock::fixed(5, 1_000);
        let clone = clock.clone();
        assert_eq!((clock.monotonic_ns(), clock.unix_ms()), (5, 1_000));
        clone.advance_ns(2_000_000);
        assert_eq!((clock.monotonic_ns(), clock.unix_ms()), (2_000_005, 1_002));
        clock.jump_unix_ms(-3_000);
        assert_eq!((clone.monotonic_ns(), clone.unix_ms()), (2_000_005, -1_998));
    }
}
