//! What each rank is doing, for who asks when one does not come back.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

    /// A rank begins something.
    pub fn set(&self, rank: usize, what: &'static str, index: u64, limit: Option<Duration>) {
        if let Some(pulse) = self.0.get(rank) {
            *lock(pulse) = Pulse { what, index, since: Instant::now(), limit };
        }
    }

    /// What a rank does.
    pub fn get(&self, rank: usize) -> Option<Pulse> {
        self.0.get(rank).map(|pulse| *lock(pulse))
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
