//! A bounded queue of the worker's entries that the supervisor has not processed yet.
//!
//! If it is full, the worker waits in its own pipe. So neither memory nor the time until the supervisor checks the
//! clock and the signals grows with the number of entries.

use crate::record::Entry;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Capacity, some ten thousand lines: a disk or terminal that is slow for a while does not delay the worker.
const MOST_BYTES: usize = 4 << 20;
/// Bytes per turn, as much as a pipe holds. Processing them takes some ten milliseconds.
const TURN_BYTES: usize = 64 << 10;

/// The queue.
#[derive(Default)]
pub(super) struct Backlog {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Entries, with the number of bytes that they were read from.
    said: VecDeque<(Vec<Entry>, usize)>,
    bytes: usize,
    is_closed: bool,
}

impl Backlog {
    /// Adds entries that were read from `bytes` bytes. Waits until there is room. Returns false if the queue is closed.
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

    /// Takes the first entries, up to one turn. Waits for them up to `patience`.
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

    /// Closes the queue and returns all entries in it.
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
    fn a_full_backlog_blocks_its_writer_and_loses_nothing() {
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
    fn small_entries_are_taken_in_one_turn() {
        let backlog = Backlog::default();
        (0..10).for_each(|number| assert!(backlog.add(said(number), 10)));
        assert_eq!(backlog.take(Duration::ZERO).len(), 10);
    }

    #[test]
    fn closing_returns_all_entries_and_unblocks_writers() {
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
