//! Whether a process that should work stands still.
//!
//! How long a first step takes on the CPU nobody knows, but whoever works there uses a processor, or would if it had one: where no thread of the process does so for a
//! while, a rank hangs, however long its step may take.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often it is looked at. A longer pause means that the process itself was stopped, or hardly got a processor.
const EVERY: Duration = Duration::from_secs(1);

/// More than threads use that look after others while it stands still for as long as it may.
const LOOKING: Duration = Duration::from_millis(100);

/// How those wait that wait for each other or for a time, by what the kernel calls it.
const RESTS: [&str; 3] = ["futex", "nanosleep", "poll"];

/// What can be seen of a process.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    /// The processor time until now of all its threads but the one that looks, in units of 10 ms.
    pub used: Duration,
    /// One of those that may work has something to do, but no processor, or no answer of a disk or a file system.
    pub held_up: bool,
}

/// Since when a process has done nothing.
#[derive(Debug)]
pub struct Stillness {
    limit: Duration,
    asked: Instant,
    since: Instant,
    /// What it had used then.
    used: Duration,
    /// How often it was looked at since, and how often it was held up.
    looks: u32,
    held_up: u32,
}

impl Stillness {
    /// It may stand still for so long.
    pub fn new(limit: Duration, now: Instant, seen: Sight) -> Self {
        Self { limit, asked: now, since: now, used: seen.used, looks: 0, held_up: 0 }
    }

    /// Whether it is time to look again.
    pub fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) >= EVERY
    }

    /// Whether it stands still for longer than it may.
    pub fn is_over(&mut self, now: Instant, seen: Sight) -> bool {
        let paused = now.saturating_duration_since(self.asked) > 2 * EVERY;
        self.looks += 1;
        self.held_up += u32::from(seen.held_up);
        let over = now.saturating_duration_since(self.since) > self.limit;
        if paused || seen.used.saturating_sub(self.used) > LOOKING || over && 2 * self.held_up > self.looks {
            *self = Self::new(self.limit, now, seen);
            return false;
        }
        self.asked = now;
        over
    }
}

/// This process; none where nobody tells.
pub fn look() -> Option<Sight> {
    let all = Seen::of(Path::new("/proc/self"))?;
    let own = Seen::of(Path::new("/proc/thread-self"))?;
    let this = std::fs::read_link("/proc/thread-self").ok()?;
    let threads = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    let others = threads.filter(|thread| this.file_name() != Some(&thread.file_name())).map(|thread| thread.path());
    // What looks after others has a name of its own. Ranks have theirs, and those that work for them that of the process.
    let may_work = |seen: &Seen| seen.name == all.name || seen.name.starts_with("rank ");
    let works = |path: &PathBuf| Seen::of(path).filter(may_work).is_some_and(|seen| seen.is_held_up(path));
    Some(Sight { used: all.used.saturating_sub(own.used), held_up: others.into_iter().any(|path| works(&path)) })
}

/// What `/proc/PID/stat` says of a process or a thread (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    state: String,
    /// `utime` and `stime`, which Linux gives programs in hundredths of a second.
    used: Duration,
}

impl Seen {
    fn of(path: &Path) -> Option<Self> {
        Self::read(&std::fs::read_to_string(path.join("stat")).ok()?)
    }

    fn read(stat: &str) -> Option<Self> {
        // A name may have anything in it.
        let (named, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let ticks = |place: usize| fields.get(place)?.parse::<u64>().ok();
        Some(Self {
            name: named.split_once('(')?.1.to_owned(),
            state: (*fields.first()?).to_owned(),
            used: Duration::from_millis(10 * ticks(11)?.checked_add(ticks(12)?)?),
        })
    }

    /// Whether it is kept from working by something other than its fellows. Some file systems answer to those that sleep, and the kernel may not tell what a thread
    /// sleeps for.
    fn is_held_up(&self, path: &Path) -> bool {
        let waits_for = || std::fs::read_to_string(path.join("wchan")).unwrap_or_default();
        self.state != "S" || {
            let place = waits_for();
            !["", "0"].contains(&place.trim()) && !RESTS.iter().any(|rest| place.contains(rest))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn seen(used_ms: u64, held_up: bool) -> Sight {
        Sight { used: Duration::from_millis(used_ms), held_up }
    }

    #[test]
    fn who_does_nothing_for_longer_than_it_may_stands_still() {
        let start = Instant::now();
        let mut still = Stillness::new(seconds(6), start, seen(3000, false));
        assert!(!still.is_due(start + seconds(1) / 2) && still.is_due(start + seconds(1)));
        let mut over = |second, used_ms, held_up| still.is_over(start + seconds(second), seen(used_ms, held_up));
        for second in 1..=6 {
            assert!(!over(second, 3000 + 10 * second, second == 4), "{second}");
        }
        assert!(over(7, 3070, false), "what others use who look after it is no work");
    }

    #[test]
    fn who_works_or_is_held_up_or_was_stopped_begins_anew() {
        let start = Instant::now();
        let mut still = Stillness::new(seconds(6), start, seen(0, false));
        let mut over = |second, used_ms, held_up| still.is_over(start + seconds(second), seen(used_ms, held_up));
        for second in 1..=20 {
            assert!(!over(second, 20 * second, false), "a fiftieth of a processor");
        }
        for second in 21..=60 {
            assert!(!over(second, 400, second % 4 > 0), "its threads would run if they could");
        }
        assert!(!over(3600, 400, false), "nobody looked: it was stopped");
        for second in 3601..=3606 {
            assert!(!over(second, 400, false));
        }
        assert!(over(3607, 400, false));
    }

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "7 (a) R 1 (b) S 1 7 7 0 -1 4194560 1 0 0 0 250 31 0 0 20 0 3 0 1";
        let seen = Seen { name: "a) R 1 (b".to_owned(), state: "S".to_owned(), used: Duration::from_millis(2810) };
        assert_eq!(Seen::read(stat), Some(seen));
        assert_eq!(Seen::read("7 (a) S 1 7 7 0 -1 4194560 1 0 0 0 250"), None);
    }

    #[test]
    fn work_of_another_thread_is_seen() {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let work = || {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            std::thread::Builder::new().name("rank 0".to_owned()).spawn_scoped(scope, work).expect("a thread");
            let before = look().expect("told");
            while look().is_none_or(|seen| seen.used == before.used || !seen.held_up) {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
