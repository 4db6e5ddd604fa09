//! The cost of sampling, and how often it may be paid.

use ledger_record::Table;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The quantities outside of the batched call may take 1/`SHARE` of the sampling period.
const SHARE: u64 = 50;

/// The longest time between two readings of these quantities, whatever they cost.
const LONGEST_NS: u64 = 1_000_000_000;

/// Returns k: every k-th sample reads the quantities outside of the batched call. k is the smallest number that keeps
/// their cost at 2% of the time or less, but never so large that more than a second passes between two readings.
/// `mean_cost_ns` is the mean cost on one GPU; the `cards` GPUs are read in sequence.
pub(super) fn every(mean_cost_ns: u64, cards: usize, period_ns: u64) -> u64 {
    if period_ns == 0 {
        return 1;
    }
    let cost_ns = mean_cost_ns.saturating_mul(u64::try_from(cards).unwrap_or(u64::MAX));
    let wanted = cost_ns.saturating_mul(SHARE).div_ceil(period_ns);
    wanted.min(LONGEST_NS / period_ns).max(1)
}

/// The mean of durations without the first, which includes the library's warm-up.
#[derive(Debug, Default)]
pub(super) struct Mean {
    warm: bool,
    sum_ns: u64,
    number: u64,
}

impl Mean {
    pub(super) fn add(&mut self, ns: u64) {
        if std::mem::replace(&mut self.warm, true) {
            self.sum_ns = self.sum_ns.saturating_add(ns);
            self.number += 1;
        }
    }

    /// The mean in nanoseconds; 0 if there is none yet.
    pub(super) fn ns(&self) -> u64 {
        self.sum_ns.checked_div(self.number).unwrap_or(0)
    }
}

/// Makes a call under a process-wide lock. NVML's GPM counters are not thread-safe: with driver 580, two threads that
/// sampled at once got `In use by another client`, or a segmentation fault.
pub(super) fn alone<T>(call: impl FnOnce() -> T) -> T {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    call()
}

#[derive(Debug, Default)]
struct Spent {
    calls: u64,
    ns: u64,
}

/// Measures the time of NVML's calls.
#[derive(Debug)]
pub(super) struct Timer {
    clock: fn() -> u64,
    spent: BTreeMap<&'static str, Spent>,
}

impl Timer {
    pub(super) fn new(clock: fn() -> u64) -> Self {
        Self { clock, spent: BTreeMap::new() }
    }

    pub(super) fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Makes a call. Returns its result and the midpoint of its time, without the wait for the lock.
    pub(super) fn time<T>(&mut self, kind: &'static str, call: impl FnOnce() -> T) -> (T, u64) {
        let (given, begin, took) = alone(|| {
            let begin = self.now();
            let given = call();
            (given, begin, self.now().saturating_sub(begin))
        });
        let spent = self.spent.entry(kind).or_default();
        spent.calls += 1;
        spent.ns = spent.ns.saturating_add(took);
        (given, begin + took / 2)
    }

    pub(super) fn table(&self) -> Table {
        let rows = self.spent.iter().flat_map(|(kind, spent)| {
            let name = |what: &str| format!("telemetry.nvml.{kind}.{what}");
            [(name("calls"), spent.calls.into()), (name("ns"), spent.ns.into())]
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cheap_quantities_are_read_at_each_sample() {
        assert_eq!(every(0, 1, 100_000_000), 1);
        assert_eq!(every(2_000_000, 1, 100_000_000), 1, "2% exactly");
        assert_eq!(every(2_000_001, 1, 100_000_000), 2);
        assert_eq!(every(u64::MAX, 1, 0), 1, "without a period there is no share of it");
    }

    #[test]
    fn the_cost_of_all_gpus_counts() {
        assert_eq!(every(600_000, 1, 100_000_000), 1);
        assert_eq!(every(600_000, 4, 100_000_000), 2);
    }

    #[test]
    fn quantities_are_read_at_least_once_a_second() {
        assert_eq!(every(u64::MAX, 4, 100_000_000), 10);
        assert_eq!(every(u64::MAX, 1, 300_000_000), 3);
        assert_eq!(every(u64::MAX, 1, 1_000_000_000), 1);
        assert_eq!(every(u64::MAX, 1, 60_000_000_000), 1);
    }

    proptest! {
        #[test]
        fn k_is_the_smallest_that_keeps_the_share(
            cost in 0..50_000_000_u64,
            cards in 1..=4_u8,
            period in 1_000_000..2_000_000_000_u64,
        ) {
            let k = every(cost, cards.into(), period);
            let holds = |k: u64| u64::from(cards) * cost * 50 <= k * period;
            prop_assert!(k == 1 || (k * period <= 1_000_000_000 && !holds(k - 1)));
            prop_assert!(holds(k) || (k + 1) * period > 1_000_000_000);
        }
    }

    #[test]
    fn calls_are_counted_by_kind_and_timed_by_the_clock_handed_in() {
        thread_local!(static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
        let mut timer = Timer::new(|| NOW.replace(NOW.get() + 10));
        assert_eq!(timer.time("a", || 7), (7, 5));
        assert_eq!(timer.time("a", || 8), (8, 25));
        assert_eq!(timer.time("b", || 9), (9, 45));
        let table: Vec<(String, i64)> =
            timer.table().into_iter().map(|(name, value)| (name, value.as_int().unwrap())).collect();
        let expected = [("a.calls", 2), ("a.ns", 20), ("b.calls", 1), ("b.ns", 10)];
        assert_eq!(table, expected.map(|(name, value)| (format!("telemetry.nvml.{name}"), value)));
    }
}
