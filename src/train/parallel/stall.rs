//! Detects a process that stalls.
//!
//! The duration of a first step on the CPU is unknown, but working ranks use processor time, or would if they got a
//! processor. If no thread of the process uses any for a while, a rank hangs, regardless of its step's timeout.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The sampling period. A longer pause means that the process itself was stopped, or hardly got a processor.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// More processor time than the supervising threads use within the limit.
const MONITORING: Duration = Duration::from_millis(100);

/// Kernel functions in which a thread waits for another thread or for a time (`wchan`).
const IDLE_WAITS: [&str; 3] = ["futex", "nanosleep", "poll"];

/// A sample of a process's activity.
#[derive(Clone, Copy, Debug)]
pub struct Activity {
    /// The processor time so far of all its threads but the sampling one, in units of 10 ms.
    pub used: Duration,
    /// Whether a working thread has something to do but waits for a processor, a disk or a file system.
    pub blocked: bool,
}

/// Detects that a process has used no processor time for longer than a limit.
#[derive(Debug)]
pub struct StallDetector {
    limit: Duration,
    sampled: Instant,
    since: Instant,
    /// The processor time used until then.
    used: Duration,
    /// Samples since then, and how many of them were blocked.
    samples: u32,
    blocked: u32,
}

impl StallDetector {
    /// A detector with this limit.
    pub fn new(limit: Duration, now: Instant, activity: Activity) -> Self {
        Self { limit, sampled: now, since: now, used: activity.used, samples: 0, blocked: 0 }
    }

    /// Whether the next sample is due.
    pub fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.sampled) >= SAMPLE_EVERY
    }

    /// Records a sample. Returns whether the process has stalled for longer than the limit.
    pub fn is_stalled(&mut self, now: Instant, activity: Activity) -> bool {
        let paused = now.saturating_duration_since(self.sampled) > 2 * SAMPLE_EVERY;
        self.samples += 1;
        self.blocked += u32::from(activity.blocked);
        let over = now.saturating_duration_since(self.since) > self.limit;
        if paused || activity.used.saturating_sub(self.used) > MONITORING || over && 2 * self.blocked > self.samples {
            *self = Self::new(self.limit, now, activity);
            return false;
        }
        self.sampled = now;
        over
    }
}

/// Samples this process; `None` without `/proc`.
pub fn sample() -> Option<Activity> {
    let all = ThreadStat::of(Path::new("/proc/self"))?;
    let own = ThreadStat::of(Path::new("/proc/thread-self"))?;
    let this = std::fs::read_link("/proc/thread-self").ok()?;
    let threads = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    let others = threads.filter(|thread| this.file_name() != Some(&thread.file_name())).map(|thread| thread.path());
    // Supervising threads have names of their own. Rank threads have theirs, and the ranks' worker threads have the
    // name of the process.
    let may_work = |activity: &ThreadStat| activity.name == all.name || activity.name.starts_with("rank ");
    let works =
        |path: &PathBuf| ThreadStat::of(path).filter(may_work).is_some_and(|activity| activity.is_blocked(path));
    Some(Activity { used: all.used.saturating_sub(own.used), blocked: others.into_iter().any(|path| works(&path)) })
}

/// The fields of `/proc/PID/stat` of a process or a thread (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct ThreadStat {
    name: String,
    state: String,
    /// `utime` and `stime`, which Linux reports in hundredths of a second.
    used: Duration,
}

impl ThreadStat {
    fn of(path: &Path) -> Option<Self> {
        Self::read(&std::fs::read_to_string(path.join("stat")).ok()?)
    }

    fn read(stat: &str) -> Option<Self> {
        // A name may contain any characters.
        let (named, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let ticks = |place: usize| fields.get(place)?.parse::<u64>().ok();
        Some(Self {
            name: named.split_once('(')?.1.to_owned(),
            state: (*fields.first()?).to_owned(),
            used: Duration::from_millis(10 * ticks(11)?.checked_add(ticks(12)?)?),
        })
    }

    /// Whether it waits for something other than another thread. Some file systems let their callers sleep, and the
    /// kernel may not report the reason for a thread's sleep.
    fn is_blocked(&self, path: &Path) -> bool {
        let waits_for = || std::fs::read_to_string(path.join("wchan")).unwrap_or_default();
        self.state != "S" || {
            let place = waits_for();
            !["", "0"].contains(&place.trim()) && !IDLE_WAITS.iter().any(|wait| place.contains(wait))
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

    fn activity(used_ms: u64, blocked: bool) -> Activity {
        Activity { used: Duration::from_millis(used_ms), blocked }
    }

    #[test]
    fn no_processor_time_for_the_limit_is_a_stall() {
        let start = Instant::now();
        let mut detector = StallDetector::new(seconds(6), start, activity(3000, false));
        assert!(!detector.is_due(start + seconds(1) / 2) && detector.is_due(start + seconds(1)));
        let mut over =
            |second, used_ms, blocked| detector.is_stalled(start + seconds(second), activity(used_ms, blocked));
        for second in 1..=6 {
            assert!(!over(second, 3000 + 10 * second, second == 4), "{second}");
        }
        assert!(over(7, 3070, false), "what others use who look after it is no work");
    }

    #[test]
    fn work_blocking_and_pauses_reset_the_detector() {
        let start = Instant::now();
        let mut detector = StallDetector::new(seconds(6), start, activity(0, false));
        let mut over =
            |second, used_ms, blocked| detector.is_stalled(start + seconds(second), activity(used_ms, blocked));
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
        let activity =
            ThreadStat { name: "a) R 1 (b".to_owned(), state: "S".to_owned(), used: Duration::from_millis(2810) };
        assert_eq!(ThreadStat::read(stat), Some(activity));
        assert_eq!(ThreadStat::read("7 (a) S 1 7 7 0 -1 4194560 1 0 0 0 250"), None);
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
            let before = sample().expect("told");
            while sample().is_none_or(|activity| activity.used == before.used || !activity.blocked) {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
