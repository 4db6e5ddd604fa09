//! Rendezvous of ranks in the host's memory: an all-gather of one contribution from each rank, in the order of ranks.
//!
//! Knows threads and time, and nothing of tensors or devices. A rank that comes too late, comes to another point, or
//! ends, ends the rendezvous for all, so that no rank waits forever.

use super::ParallelError;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A point of the run at which ranks synchronise.
#[derive(Clone, Copy, Debug)]
pub struct SyncPoint {
    /// The phase that it belongs to.
    pub what: &'static str,
    /// The index of the phase: the number of a step or of an epoch.
    pub index: u64,
    /// The timeout of the ranks that wait. `None` if only one rank works meanwhile, for any time.
    pub limit: Option<Duration>,
}

impl SyncPoint {
    /// Whether it is the same point, regardless of timeouts.
    pub fn same_as(self, other: Self) -> bool {
        (self.what, self.index) == (other.what, other.index)
    }
}

impl fmt::Display for SyncPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.what, self.index)
    }
}

/// A rank's contribution.
#[derive(Clone, Debug, PartialEq)]
pub enum Contribution {
    /// A few words: numbers as bits, decisions, digests.
    Words(Vec<u64>),
    /// Buckets of values.
    Buckets(Vec<Vec<f32>>),
}

/// A reusable rendezvous of a fixed number of ranks.
pub struct Rendezvous {
    ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The first rank that arrived, and its point.
    point: Option<(usize, SyncPoint)>,
    contributions: Vec<Option<Contribution>>,
    /// The number of complete exchanges.
    rounds: u64,
    /// The contributions of the last complete exchange.
    gathered: Option<Arc<[Contribution]>>,
    ended: bool,
}

impl State {
    /// Returns the ranks that have not contributed yet.
    fn missing(&self, ranks: usize) -> impl Iterator<Item = usize> {
        (0..ranks).filter(|rank| self.contributions.get(*rank).is_none_or(Option::is_none))
    }
}

impl Rendezvous {
    /// A rendezvous of `ranks` ranks.
    pub fn of(ranks: usize) -> Self {
        let state = State { contributions: vec![None; ranks], ..State::default() };
        Self { ranks, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Contributes, waits for the other ranks, and returns the contributions of all.
    ///
    /// # Errors
    /// If another rank ended, is at another point, or does not come before the timeout.
    pub fn exchange(
        &self,
        rank: usize,
        point: SyncPoint,
        contributions: Contribution,
    ) -> Result<Arc<[Contribution]>, ParallelError> {
        let mut state = self.lock();
        if state.ended {
            return Err(ParallelError::Ended);
        }
        let (first, there) = *state.point.get_or_insert((rank, point));
        if !there.same_as(point) {
            self.end_now(state);
            return Err(ParallelError::Elsewhere { rank, here: point, other: first, there });
        }
        if let Some(place) = state.contributions.get_mut(rank) {
            *place = Some(contributions);
        }
        if state.contributions.iter().all(Option::is_some) {
            let all: Arc<[Contribution]> = state.contributions.iter_mut().filter_map(Option::take).collect();
            state.gathered = Some(Arc::clone(&all));
            state.point = None;
            state.rounds += 1;
            self.changed.notify_all();
            return Ok(all);
        }
        self.wait(state, point)
    }

    fn wait(&self, mut state: MutexGuard<'_, State>, point: SyncPoint) -> Result<Arc<[Contribution]>, ParallelError> {
        let (round, start) = (state.rounds, Instant::now());
        loop {
            state = match point.limit.map(|limit| (limit, limit.saturating_sub(start.elapsed()))) {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some((limit, Duration::ZERO)) => {
                    let ranks = state.missing(self.ranks).collect();
                    self.end_now(state);
                    return Err(ParallelError::Late { ranks, point, limit });
                }
                Some((_, left)) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            // The exchange is complete even if a rank ended right afterwards; no other one completes before this rank has left.
            if let Some(gathered) = state.gathered.as_ref().filter(|_| state.rounds > round) {
                return Ok(Arc::clone(gathered));
            }
            if state.ended {
                return Err(ParallelError::Ended);
            }
        }
    }

    /// Returns the ranks that are not waiting here.
    pub fn absent(&self) -> Vec<usize> {
        self.lock().missing(self.ranks).collect()
    }

    /// Ends the rendezvous: ranks that wait or come later get an error.
    pub fn end(&self) {
        self.end_now(self.lock());
    }

    fn end_now(&self, mut state: MutexGuard<'_, State>) {
        state.ended = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn at(index: u64, limit_ms: Option<u64>) -> SyncPoint {
        SyncPoint { what: "all_reduce", index, limit: limit_ms.map(Duration::from_millis) }
    }

    fn words(rank: usize, index: u64) -> Contribution {
        Contribution::Words(vec![u64::try_from(rank).expect("small"), index])
    }

    #[test]
    fn all_ranks_get_all_contributions_in_the_order_of_ranks() {
        for ranks in [1, 2, 4] {
            let rendezvous = Arc::new(Rendezvous::of(ranks));
            let threads: Vec<_> = (0..ranks)
                .map(|rank| {
                    let rendezvous = Arc::clone(&rendezvous);
                    thread::spawn(move || {
                        for index in 0..500 {
                            let gathered = rendezvous
                                .exchange(rank, at(index, Some(10_000)), words(rank, index))
                                .expect("all come");
                            let expected: Vec<Contribution> = (0..ranks).map(|rank| words(rank, index)).collect();
                            assert_eq!(*gathered, *expected);
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        }
    }

    #[test]
    fn a_missing_rank_is_named_and_ends_all_waits() {
        let rendezvous = Arc::new(Rendezvous::of(4));
        let start = Instant::now();
        let other = Arc::clone(&rendezvous);
        let patient = thread::spawn(move || other.exchange(2, at(7, None), words(2, 7)));
        while rendezvous.lock().contributions[2].is_none() {
            thread::yield_now();
        }
        let found = rendezvous.exchange(0, at(7, Some(50)), words(0, 7)).expect_err("two do not come");
        assert_eq!(found.to_string(), "rank 1 and rank 3 did not come to `all_reduce` 7 within 0.05 s");
        assert!(matches!(patient.join().expect("no panic"), Err(ParallelError::Ended)));
        assert!(matches!(rendezvous.exchange(1, at(7, None), words(1, 7)), Err(ParallelError::Ended)), "too late");
        assert!((50..5000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    }

    #[test]
    fn ranks_at_different_points_are_a_fault_and_no_deadlock() {
        let rendezvous = Arc::new(Rendezvous::of(2));
        let other = Arc::clone(&rendezvous);
        let first = thread::spawn(move || other.exchange(1, at(3, None), words(1, 3)));
        while rendezvous.lock().contributions[1].is_none() {
            thread::yield_now();
        }
        let found = rendezvous.exchange(0, at(4, None), words(0, 4)).expect_err("another step");
        assert_eq!(found.to_string(), "rank 0 is at `all_reduce` 4, but rank 1 at `all_reduce` 3");
        assert!(matches!(first.join().expect("no panic"), Err(ParallelError::Ended)));
    }

    #[test]
    fn an_end_wakes_waiting_ranks() {
        let rendezvous = Arc::new(Rendezvous::of(2));
        let other = Arc::clone(&rendezvous);
        let waiting = thread::spawn(move || other.exchange(1, at(1, None), words(1, 1)));
        rendezvous.end();
        assert!(matches!(waiting.join().expect("no panic"), Err(ParallelError::Ended)));
    }
}
