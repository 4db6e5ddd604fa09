//! What a worker has said and nobody has looked at yet.
//!
//! There is an end to it. Who says more than is kept in the same time waits in its own pipe, so that neither memory nor the time until somebody looks at the clock
//! and at the signals grows with what is said.

use crate::record::Entry;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Some ten thousand lines: a disk or a terminal that is slow for a while slows down nobody.
const MOST_BYTES: usize = 4 << 20;
/// As much as a pipe holds: worked off in some ten milliseconds.
const TURN_BYTES: usize = 64 << 10;

/// Entries that wait, in their order.
#[derive(Default)]
pub(super) struct Backlog {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Each with the bytes that it was said in.
    said: VecDeque<(Vec<Entry>, usize)>,
    bytes: usize,
    is_closed: bool,
}

impl Backlog {
    /// Adds what was said in so many bytes, as soon as there is room for it. Returns false where nobody takes anything any more.
    pub(super) fn add(&self, entries: Vec<Entry>, bytes: usize) -> bool {
        let is_full = |waiting: &mut Waiting| waiting.bytes >= MOST_BYTES && !waiting.is_closed;
        let mut waiting = self.changed.wait_while(self.lock(), is_full).unwrap_or_else(PoisonError::into_inner);
        if waiting.is_closed {
            return false;
        }
        waiting.bytes += bytes;
        waiting.said.push_back((entries, bytes));
        self.changed.notify_all();
        true
    }

    /// Takes the first of what waits, no more than is worked off soon; waits for it up to `patience`.
    pub(super) fn take(&self, patience: Duration) -> Vec<Entry> {
        let is_empty = |waiting: &mut Waiting| waiting.said.is_empty() && !waiting.is_closed;
        let waited = self.changed.wait_timeout_while(self.lock(), patience, is_empty);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let mut taken = 0;
        let mut entries = Vec::new();
        while taken < TURN_BYTES
            && let Some((first, bytes)) = waiting.said.pop_front()
        {
            taken += bytes;
            entries.extend(first);
        }
        waiting.bytes -= taken;
        self.changed.notify_all();
        entries
    }

    /// Lets nobody add anything more, and takes all that waits.
    pub(super) fn close(&self) -> Vec<Entry> {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        waiting.bytes = 0;
        self.changed.notify_all();
        waiting.said.drain(..).flat_map(|(entries, _)| entries).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn said(number: usize) -> Vec<Entry> {
        vec![Entry::Warning(number.to_string())]
    }

    #[test]
    fn who_says_too_much_waits_and_nothing_is_lost() {
        const ALL: usize = 100;
        let backlog = Backlog::default();
        let added = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..ALL {
                    assert!(backlog.add(said(number), TURN_BYTES));
                    added.fetch_add(1, Ordering::SeqCst);
                }
            });
            let mut taken = Vec::new();
            while taken.len() < ALL {
                let turn = backlog.take(Duration::from_secs(30));
                assert_eq!(turn.len(), 1, "a turn is no more than what one pipe holds");
                taken.extend(turn);
                assert!(added.load(Ordering::SeqCst) <= taken.len() + 1 + MOST_BYTES / TURN_BYTES);
            }
            assert_eq!(taken, (0..ALL).flat_map(said).collect::<Vec<_>>());
        });
        assert_eq!(backlog.take(Duration::ZERO), []);
    }

    #[test]
    fn what_is_small_is_taken_together() {
        let backlog = Backlog::default();
        (0..10).for_each(|number| assert!(backlog.add(said(number), 10)));
        assert_eq!(backlog.take(Duration::ZERO).len(), 10);
    }

    #[test]
    fn at_the_end_what_waits_is_taken_and_nobody_waits_any_more() {
        let backlog = Backlog::default();
        assert!(backlog.add(said(0), MOST_BYTES));
        std::thread::scope(|scope| {
            let late = scope.spawn(|| backlog.add(said(1), 1));
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(backlog.close(), said(0));
            assert!(!late.join().unwrap());
        });
        assert_eq!(backlog.take(Duration::from_secs(30)), []);
    }
}
