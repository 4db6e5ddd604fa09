//! What the reading costs, and how often it may be done for that.

use ledger_record::Table;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The share of the looks' period that the quantities outside of the batched call may take: one part in so many.
const SHARE: u64 = 50;

/// However dear they are, they are read that often.
const LONGEST_NS: u64 = 1_000_000_000;

/// At one look in how many the quantities outside of the batched call are read: the least number with which they take 2% of
/// the time at most, given the mean cost of reading them on a card, how many cards are read one after the other, and the looks'
/// period; but once a second at least.
pub(super) fn every(mean_cost_ns: u64, cards: usize, period_ns: u64) -> u64 {
    if period_ns == 0 {
        return 1;
    }
    let cost_ns = mean_cost_ns.saturating_mul(u64::try_from(cards).unwrap_or(u64::MAX));
    let wanted = cost_ns.saturating_mul(SHARE).div_ceil(period_ns);
    wanted.min(LONGEST_NS / period_ns).max(1)
}

/// A mean of durations but for the first, in which a library warms up.
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

    /// The mean in nanoseconds; 0 before the first.
    pub(super) fn ns(&self) -> u64 {
        self.sum_ns.checked_div(self.number).unwrap_or(0)
    }
}

/// Makes a call while no other thread of this process makes one. NVML's GPM counters are not safe with several threads: with driver 580, two
/// that sampled at once got `In use by another client`, or ended their process by a segmentation fault.
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

/// Times NVML's calls.
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

    /// Makes a call; gives what it gave and the middle of the time that it took, without the time in which it waited for its turn.
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
    fn what_is_cheap_is_read_at_each_look() {
        assert_eq!(every(0, 1, 100_000_000), 1);
        assert_eq!(every(2_000_000, 1, 100_000_000), 1, "2% exactly");
        assert_eq!(every(2_000_001, 1, 100_000_000), 2);
        assert_eq!(every(u64::MAX, 1, 0), 1, "without a period there is no share of it");
    }

    #[test]
    fn the_share_is_that_of_all_cards() {
        assert_eq!(every(600_000, 1, 100_000_000), 1);
        assert_eq!(every(600_000, 4, 100_000_000), 2);
    }

    #[test]
    fn once_a_second_at_least() {
        assert_eq!(every(u64::MAX, 4, 100_000_000), 10);
        assert_eq!(every(u64::MAX, 1, 300_000_000), 3);
        assert_eq!(every(u64::MAX, 1, 1_000_000_000), 1);
        assert_eq!(every(u64::MAX, 1, 60_000_000_000), 1);
    }

    proptest! {
        #[test]
        fn it_is_the_least_number_that_holds_the_share(
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
