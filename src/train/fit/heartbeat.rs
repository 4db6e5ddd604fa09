//! Heartbeats of a rank during evaluation and inference: the supervisor learns before each batch how long it may take.
//!
//! A batch of a known size takes about as long as a step; one of a new size may compile and tune kernels, which needs a long limit.

use crate::Sink;
use crate::parallel::{LIMITS, Pace, Timeouts};
use std::collections::BTreeSet;
use std::time::Duration;

/// Reports batches to the supervisor.
pub struct Heartbeat<'a> {
    sink: &'a dyn Sink,
    /// The supervision of its batches.
    watch: Watch,
    timeouts: Timeouts,
    what: &'static str,
    index: u64,
    /// Batch sizes that have been completed before, by phase.
    known: BTreeSet<(&'static str, usize)>,
    /// Sizes that were begun since the last completion.
    begun: BTreeSet<usize>,
    /// The timeout of other ranks that wait for the current batch.
    limit: Option<Duration>,
}

/// How batches are supervised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Whether they have a time limit at all.
    pub watched: bool,
    /// Whether kernels are compiled and tuned for each size.
    pub compiles: bool,
    /// Whether each batch goes through several ranks. The last rank may then still compile for a batch when the first
    /// one is at the next.
    pub shared: bool,
    /// Rows of a training step.
    pub rows: usize,
}

impl<'a> Heartbeat<'a> {
    /// A heartbeat before its first batch.
    pub fn new(sink: &'a dyn Sink, watch: Watch) -> Self {
        let (timeouts, known, begun) = (Timeouts::new(LIMITS), BTreeSet::new(), BTreeSet::new());
        Self { sink, watch, timeouts, what: "eval", index: 1, known, begun, limit: None }
    }

    /// Begins a phase, with a rank's timeouts.
    pub fn begin(&mut self, what: &'static str, index: u64, timeouts: Timeouts) {
        (self.what, self.index, self.timeouts) = (what, index, timeouts);
    }

    /// Reports the beginning of a batch of `rows` rows.
    pub fn beat(&mut self, rows: usize) {
        if !self.watch.shared {
            // No other rank still works on the previous batch.
            self.answered();
        }
        let usual = !self.watch.compiles || self.known.contains(&(self.what, rows));
        let pace = if usual { Pace::Steady } else { Pace::First };
        self.begun.insert(rows);
        self.limit = self.timeouts.limit(pace, rows.div_ceil(self.watch.rows.max(1)));
        // Twice the limit if ranks wait for each other, so that the ranks that wait name the missing one.
        let times = if self.watch.shared { 2 } else { 1 };
        let limit = self.limit.filter(|_| self.watch.watched).map(|limit| limit.saturating_mul(times));
        self.sink.doing(self.what, self.index, limit);
    }

    /// Records that all batches so far are done on all ranks.
    pub fn answered(&mut self) {
        self.known.extend(std::mem::take(&mut self.begun).into_iter().map(|rows| (self.what, rows)));
    }

    /// Reports work on the host alone, without a limit.
    pub fn host(&self) {
        self.sink.doing(self.what, self.index, None);
    }

    /// The timeout of waits for another rank.
    pub fn wait_limit(&self) -> Option<Duration> {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger_record::EventKind;
    use std::sync::Mutex;

    /// A sink that keeps what was reported.
    #[derive(Default)]
    struct Told(Mutex<Vec<(&'static str, u64, Option<Duration>)>>);

    impl Sink for Told {
        fn now_ns(&self) -> u64 {
            0
        }

        fn emit_from(&self, _: usize, _: u64, _: EventKind) {}

        fn doing(&self, what: &'static str, index: u64, limit: Option<Duration>) {
            self.0.lock().expect("no panic").push((what, index, limit));
        }
    }

    impl Told {
        fn last(&self) -> (&'static str, u64, Option<Duration>) {
            *self.0.lock().expect("no panic").last().expect("something was told")
        }
    }

    const WATCH: Watch = Watch { watched: true, compiles: true, shared: false, rows: 8 };

    fn timeouts(longest_s: u64) -> Timeouts {
        let mut timeouts = Timeouts::new(LIMITS);
        timeouts.record_step(Duration::from_secs(longest_s));
        timeouts
    }

    fn seconds(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn a_known_size_has_the_limit_of_steps_and_a_new_one_that_of_compiling() {
        let told = Told::default();
        let mut heartbeat = Heartbeat::new(&told, WATCH);
        heartbeat.begin("eval", 2, timeouts(3));
        heartbeat.beat(8);
        assert_eq!(told.last(), ("eval", 2, Some(LIMITS.first)));
        heartbeat.beat(8);
        assert_eq!(told.last(), ("eval", 2, seconds(12)));
        assert_eq!(heartbeat.wait_limit(), seconds(12));
        heartbeat.beat(20);
        assert_eq!(told.last().2, Some(LIMITS.first), "another size");
        heartbeat.beat(20);
        assert_eq!(told.last().2, seconds(36), "as long as three steps");
        heartbeat.begin("inference", 1, timeouts(3));
        heartbeat.beat(8);
        assert_eq!(told.last(), ("inference", 1, Some(LIMITS.first)), "other kernels");
        heartbeat.host();
        assert_eq!(told.last(), ("inference", 1, None));
    }

    #[test]
    fn with_several_ranks_a_size_is_known_after_all_answered_and_the_supervisor_waits_twice_as_long() {
        let told = Told::default();
        let mut heartbeat = Heartbeat::new(&told, Watch { shared: true, ..WATCH });
        heartbeat.begin("eval", 1, timeouts(1));
        for rows in [8, 8, 3] {
            heartbeat.beat(rows);
            assert_eq!((heartbeat.wait_limit(), told.last().2), (Some(LIMITS.first), Some(LIMITS.first * 2)));
        }
        heartbeat.answered();
        for rows in [8, 3] {
            heartbeat.beat(rows);
            assert_eq!((heartbeat.wait_limit(), told.last().2), (seconds(6), seconds(12)), "{rows}");
        }
    }

    #[test]
    fn without_compiling_every_size_is_known_and_without_supervision_there_is_no_limit() {
        let told = Told::default();
        let mut heartbeat = Heartbeat::new(&told, Watch { compiles: false, ..WATCH });
        heartbeat.beat(8);
        assert_eq!(told.last().2, Some(LIMITS.step));
        let mut heartbeat = Heartbeat::new(&told, Watch { watched: false, ..WATCH });
        heartbeat.beat(8);
        assert_eq!(told.last(), ("eval", 1, None));
    }
}
