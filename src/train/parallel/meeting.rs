//! Where ranks meet: each brings something, and all leave with what all brought, in the order of ranks.
//!
//! Knows threads and time, and nothing of tensors or devices. Who does not come in time, comes to another occasion, or ends, ends the meeting for all: nobody
//! waits for ever.

use super::ParallelError;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What ranks meet for.
#[derive(Clone, Copy, Debug)]
pub struct Occasion {
    /// The phase that it belongs to.
    pub what: &'static str,
    /// Which one: the number of a step or of an epoch.
    pub index: u64,
    /// How long the first to come waits for the last; none where only one of them works meanwhile, for as long as it takes.
    pub limit: Option<Duration>,
}

impl Occasion {
    /// Whether it is the same occasion, however long one waits there.
    pub fn is(self, other: Self) -> bool {
        (self.what, self.index) == (other.what, other.index)
    }
}

impl fmt::Display for Occasion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.what, self.index)
    }
}

/// What a rank brings.
#[derive(Clone, Debug, PartialEq)]
pub enum Brought {
    /// A few words: numbers as bits, decisions, digests.
    Words(Vec<u64>),
    /// Buckets of values.
    Buckets(Vec<Vec<f32>>),
}

/// A meeting of so many ranks, again and again.
pub struct Meeting {
    ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What the first to come came for.
    occasion: Option<(usize, Occasion)>,
    brought: Vec<Option<Brought>>,
    /// How often all have met.
    rounds: u64,
    /// What they brought the last time.
    met: Option<Arc<[Brought]>>,
    ended: bool,
}

impl State {
    /// Those of so many ranks that have brought nothing so far.
    fn missing(&self, ranks: usize) -> impl Iterator<Item = usize> {
        (0..ranks).filter(|rank| self.brought.get(*rank).is_none_or(Option::is_none))
    }
}

impl Meeting {
    /// For so many ranks.
    pub fn of(ranks: usize) -> Self {
        let state = State { brought: vec![None; ranks], ..State::default() };
        Self { ranks, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// How many ranks meet.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Brings something and waits for the others.
    ///
    /// # Errors
    /// If another rank ended, is at another occasion, or is not there when the occasion's limit is over.
    pub fn meet(&self, rank: usize, occasion: Occasion, brought: Brought) -> Result<Arc<[Brought]>, ParallelError> {
        let mut state = self.lock();
        if state.ended {
            return Err(ParallelError::Ended);
        }
        let (first, there) = *state.occasion.get_or_insert((rank, occasion));
        if !there.is(occasion) {
            self.end_now(state);
            return Err(ParallelError::Elsewhere { rank, here: occasion, other: first, there });
        }
        if let Some(place) = state.brought.get_mut(rank) {
            *place = Some(brought);
        }
        if state.brought.iter().all(Option::is_some) {
            let all: Arc<[Brought]> = state.brought.iter_mut().filter_map(Option::take).collect();
            state.met = Some(Arc::clone(&all));
            state.occasion = None;
            state.rounds += 1;
            self.changed.notify_all();
            return Ok(all);
        }
        self.wait(state, occasion)
    }

    fn wait(&self, mut state: MutexGuard<'_, State>, occasion: Occasion) -> Result<Arc<[Brought]>, ParallelError> {
        let (round, start) = (state.rounds, Instant::now());
        loop {
            state = match occasion.limit.map(|limit| (limit, limit.saturating_sub(start.elapsed()))) {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some((limit, Duration::ZERO)) => {
                    let ranks = state.missing(self.ranks).collect();
                    self.end_now(state);
                    return Err(ParallelError::Late { ranks, occasion, limit });
                }
                Some((_, left)) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            // All have met even if one of them ended right afterwards; they do not meet again before this rank has left.
            if let Some(met) = state.met.as_ref().filter(|_| state.rounds > round) {
                return Ok(Arc::clone(met));
            }
            if state.ended {
                return Err(ParallelError::Ended);
            }
        }
    }

    /// The ranks that do not wait here for others.
    pub fn elsewhere(&self) -> Vec<usize> {
        self.lock().missing(self.ranks).collect()
    }

    /// Nobody meets here any more: whoever waits is told so, and whoever comes.
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

    fn at(index: u64, limit_ms: Option<u64>) -> Occasion {
        Occasion { what: "all_reduce", index, limit: limit_ms.map(Duration::from_millis) }
    }

    fn words(rank: usize, index: u64) -> Brought {
        Brought::Words(vec![u64::try_from(rank).expect("small"), index])
    }

    #[test]
    fn all_leave_with_what_all_brought_in_the_order_of_ranks_however_often() {
        for ranks in [1, 2, 4] {
            let meeting = Arc::new(Meeting::of(ranks));
            let threads: Vec<_> = (0..ranks)
                .map(|rank| {
                    let meeting = Arc::clone(&meeting);
                    thread::spawn(move || {
                        for index in 0..500 {
                            let met =
                                meeting.meet(rank, at(index, Some(10_000)), words(rank, index)).expect("all come");
                            let expected: Vec<Brought> = (0..ranks).map(|rank| words(rank, index)).collect();
                            assert_eq!(*met, *expected);
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        }
    }

    #[test]
    fn who_does_not_come_is_named_and_nobody_waits_any_longer() {
        let meeting = Arc::new(Meeting::of(4));
        let start = Instant::now();
        let other = Arc::clone(&meeting);
        let patient = thread::spawn(move || other.meet(2, at(7, None), words(2, 7)));
        while meeting.lock().brought[2].is_none() {
            thread::yield_now();
        }
        let found = meeting.meet(0, at(7, Some(50)), words(0, 7)).expect_err("two do not come");
        assert_eq!(found.to_string(), "rank 1 and rank 3 did not come to `all_reduce` 7 within 0.05 s");
        assert!(matches!(patient.join().expect("no panic"), Err(ParallelError::Ended)));
        assert!(matches!(meeting.meet(1, at(7, None), words(1, 7)), Err(ParallelError::Ended)), "too late");
        assert!((50..5000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    }

    #[test]
    fn ranks_at_different_occasions_are_a_fault_and_no_deadlock() {
        let meeting = Arc::new(Meeting::of(2));
        let other = Arc::clone(&meeting);
        let first = thread::spawn(move || other.meet(1, at(3, None), words(1, 3)));
        while meeting.lock().brought[1].is_none() {
            thread::yield_now();
        }
        let found = meeting.meet(0, at(4, None), words(0, 4)).expect_err("another step");
        assert_eq!(found.to_string(), "rank 0 is at `all_reduce` 4, but rank 1 at `all_reduce` 3");
        assert!(matches!(first.join().expect("no panic"), Err(ParallelError::Ended)));
    }

    #[test]
    fn an_end_wakes_who_waits() {
        let meeting = Arc::new(Meeting::of(2));
        let other = Arc::clone(&meeting);
        let waiting = thread::spawn(move || other.meet(1, at(1, None), words(1, 1)));
        meeting.end();
        assert!(matches!(waiting.join().expect("no panic"), Err(ParallelError::Ended)));
    }
}
