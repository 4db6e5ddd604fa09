//! What each rank is doing, for who asks when one does not come back.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The phases of a rank.
pub const PHASES: [&str; 18] = [
    "start",
    "warm_up",
    "idle",
    "epoch",
    "step",
    "data",
    "forward",
    "backward",
    "all_reduce",
    "wait",
    "together",
    "optimizer",
    "losses",
    "eval",
    "inference",
    "summary",
    "peak",
    "end",
];

/// The last phases of the first ranks once more, for who may not wait for a lock: a number of one and one more, and its index. The process has one crew.
struct Place {
    what: AtomicUsize,
    index: AtomicU64,
}

static PLACES: [Place; 16] = [const { Place { what: AtomicUsize::new(0), index: AtomicU64::new(0) } }; 16];

thread_local! {
    /// The rank whose thread this is.
    static RANK: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Says, when a signal is about to end the process, which rank's thread it came to and what that did last; or what all ranks did, where it came to a thread of a device or to none. An error
/// where there are no ranks. Takes neither memory nor a lock.
pub fn last_words(signal: &str, words: &mut dyn fmt::Write) -> fmt::Result {
    let told = |rank: usize| {
        let place = PLACES.get(rank)?;
        let what = PHASES.get(place.what.load(Ordering::Relaxed).checked_sub(1)?)?;
        Some((what, place.index.load(Ordering::Relaxed)))
    };
    if let Some((rank, (what, index))) = RANK.get().and_then(|rank| Some((rank, told(rank)?))) {
        return write!(words, "rank {rank} failed, last in `{what}` {index}: {signal} ended its process");
    }
    let mut said = false;
    for (rank, (what, index)) in (0..PLACES.len()).filter_map(|rank| Some((rank, told(rank)?))) {
        write!(words, "{}rank {rank} in `{what}` {index}", if said { ", " } else { "" })?;
        said = true;
    }
    if said { write!(words, ": {signal} ended their process, in none of their threads") } else { Err(fmt::Error) }
}

/// The last phase of a rank.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    what: &'static str,
    index: u64,
    since: Instant,
    /// How long it may take, where that is known.
    limit: Option<Duration>,
}

impl fmt::Display for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.what, self.index)
    }
}

/// Those of all ranks.
pub struct Pulses(Vec<Mutex<Pulse>>);

impl Pulses {
    /// So many ranks that are about to begin.
    pub fn of(ranks: usize) -> Self {
        let begin = || Mutex::new(Pulse { what: "start", index: 1, since: Instant::now(), limit: None });
        Self((0..ranks).map(|_| begin()).collect())
    }

    /// This thread is that of a rank.
    pub fn here(rank: usize) {
        RANK.set(Some(rank));
    }

    /// A rank begins something.
    pub fn set(&self, rank: usize, what: &'static str, index: u64, limit: Option<Duration>) {
        if let Some(pulse) = self.0.get(rank) {
            *lock(pulse) = Pulse { what, index, since: Instant::now(), limit };
        }
        if let Some(place) = PLACES.get(rank) {
            let number = PHASES.iter().position(|phase| *phase == what).map_or(0, |number| number + 1);
            place.what.store(number, Ordering::Relaxed);
            place.index.store(index, Ordering::Relaxed);
        }
    }

    /// What a rank does.
    pub fn get(&self, rank: usize) -> Option<Pulse> {
        self.0.get(rank).map(|pulse| *lock(pulse))
    }

    /// Whether a rank has come to its end.
    pub fn ended(&self, rank: usize) -> bool {
        self.get(rank).is_some_and(|pulse| pulse.what == "end")
    }

    /// The ranks that take longer than they may, and how long they might have taken. Where one does, all that are in the same place belong to it.
    pub fn late(&self) -> Vec<(usize, Duration)> {
        let pulses: Vec<Pulse> = self.0.iter().map(|pulse| *lock(pulse)).collect();
        let late = |pulse: &Pulse| pulse.limit.is_some_and(|limit| pulse.since.elapsed() > limit);
        let Some(first) = pulses.iter().find(|pulse| late(pulse)) else { return Vec::new() };
        let same = |pulse: &Pulse| (pulse.what, pulse.index) == (first.what, first.index);
        let all = pulses.iter().enumerate().filter(|(_, pulse)| late(pulse) || same(pulse));
        all.filter_map(|(rank, pulse)| Some((rank, pulse.limit?))).collect()
    }
}

fn lock(pulse: &Mutex<Pulse>) -> MutexGuard<'_, Pulse> {
    pulse.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_longer_than_it_may_is_found() {
        let pulses = Pulses::of(3);
        assert_eq!(pulses.get(1).expect("there").to_string(), "`start` 1");
        pulses.set(0, "forward", 7, None);
        pulses.set(1, "losses", 8, Some(Duration::from_secs(100)));
        assert_eq!(pulses.late(), []);
        pulses.set(2, "eval", 8, Some(Duration::ZERO));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(pulses.late(), [(2, Duration::ZERO)]);
        pulses.set(2, "losses", 8, Some(Duration::ZERO));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(
            pulses.late(),
            [(1, Duration::from_secs(100)), (2, Duration::ZERO)],
            "who is in the same place may be whom it waits for"
        );
        pulses.set(2, "forward", 9, None);
        assert_eq!(pulses.late(), []);
        assert_eq!(pulses.get(2).expect("there").to_string(), "`forward` 9");
        assert!(pulses.get(3).is_none());
    }
}
