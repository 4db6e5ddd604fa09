//! The progress of each rank: its current phase and that phase's time limit.

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

/// The last phases of the first ranks, readable without a lock (from a signal handler). `what` is the phase's place in
/// [`PHASES`] plus one. A process has one set of ranks.
struct Slot {
    what: AtomicUsize,
    index: AtomicU64,
}

static SLOTS: [Slot; 16] = [const { Slot { what: AtomicUsize::new(0), index: AtomicU64::new(0) } }; 16];

thread_local! {
    /// The rank whose thread this is.
    static RANK: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Writes the last phase of the rank whose thread received a fatal signal, or of all ranks if the thread belongs to
/// none. Allocates nothing and takes no lock.
///
/// # Errors
/// If there are no ranks.
pub fn write_last_phases(signal: &str, out: &mut dyn fmt::Write) -> fmt::Result {
    let last_phase = |rank: usize| {
        let slot = SLOTS.get(rank)?;
        let what = PHASES.get(slot.what.load(Ordering::Relaxed).checked_sub(1)?)?;
        Some((what, slot.index.load(Ordering::Relaxed)))
    };
    if let Some((rank, (what, index))) = RANK.get().and_then(|rank| Some((rank, last_phase(rank)?))) {
        return write!(out, "rank {rank} failed, last in `{what}` {index}: {signal} ended its process");
    }
    let mut said = false;
    for (rank, (what, index)) in (0..SLOTS.len()).filter_map(|rank| Some((rank, last_phase(rank)?))) {
        write!(out, "{}rank {rank} in `{what}` {index}", if said { ", " } else { "" })?;
        said = true;
    }
    if said { write!(out, ": {signal} ended their process, in none of their threads") } else { Err(fmt::Error) }
}

/// The current phase of a rank.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    what: &'static str,
    index: u64,
    since: Instant,
    /// The time limit, if known.
    limit: Option<Duration>,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.what, self.index)
    }
}

/// The progress of all ranks.
pub struct RankProgress(Vec<Mutex<Progress>>);

impl RankProgress {
    /// The progress of `ranks` ranks, all in `start`.
    pub fn of(ranks: usize) -> Self {
        let begin = || Mutex::new(Progress { what: "start", index: 1, since: Instant::now(), limit: None });
        Self((0..ranks).map(|_| begin()).collect())
    }

    /// Marks this thread as that of a rank.
    pub fn register_thread(rank: usize) {
        RANK.set(Some(rank));
    }

    /// Sets the phase of a rank, its index and its limit.
    pub fn set(&self, rank: usize, what: &'static str, index: u64, limit: Option<Duration>) {
        if let Some(progress) = self.0.get(rank) {
            *lock(progress) = Progress { what, index, since: Instant::now(), limit };
        }
        if let Some(slot) = SLOTS.get(rank) {
            let number = PHASES.iter().position(|phase| *phase == what).map_or(0, |number| number + 1);
            slot.what.store(number, Ordering::Relaxed);
            slot.index.store(index, Ordering::Relaxed);
        }
    }

    /// Returns the progress of a rank.
    pub fn get(&self, rank: usize) -> Option<Progress> {
        self.0.get(rank).map(|progress| *lock(progress))
    }

    /// Whether a rank has ended.
    pub fn ended(&self, rank: usize) -> bool {
        self.get(rank).is_some_and(|progress| progress.what == "end")
    }

    /// Returns the ranks over their limit, with the limit. If there are any, all ranks in the same phase are included.
    pub fn late(&self) -> Vec<(usize, Duration)> {
        let progress: Vec<Progress> = self.0.iter().map(|progress| *lock(progress)).collect();
        let late = |progress: &Progress| progress.limit.is_some_and(|limit| progress.since.elapsed() > limit);
        let Some(first) = progress.iter().find(|progress| late(progress)) else { return Vec::new() };
        let same = |progress: &Progress| (progress.what, progress.index) == (first.what, first.index);
        let all = progress.iter().enumerate().filter(|(_, progress)| late(progress) || same(progress));
        all.filter_map(|(rank, progress)| Some((rank, progress.limit?))).collect()
    }
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_over_their_limit_are_found() {
        let progress = RankProgress::of(3);
        assert_eq!(progress.get(1).expect("there").to_string(), "`start` 1");
        progress.set(0, "forward", 7, None);
        progress.set(1, "losses", 8, Some(Duration::from_secs(100)));
        assert_eq!(progress.late(), []);
        progress.set(2, "eval", 8, Some(Duration::ZERO));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(progress.late(), [(2, Duration::ZERO)]);
        progress.set(2, "losses", 8, Some(Duration::ZERO));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(
            progress.late(),
            [(1, Duration::from_secs(100)), (2, Duration::ZERO)],
            "who is in the same place may be whom it waits for"
        );
        progress.set(2, "forward", 9, None);
        assert_eq!(progress.late(), []);
        assert_eq!(progress.get(2).expect("there").to_string(), "`forward` 9");
        assert!(progress.get(3).is_none());
    }
}
