//! What `/proc/PID/stat` says of a process, and lines of other files in `/proc` that count kilobytes.

use rustix::param::clock_ticks_per_second;
use std::io;

/// The fields of `/proc/PID/stat` that the house reads. See proc_pid_stat(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// Field 3: `R`, `S`, `Z` and so on.
    pub state: char,
    /// Field 5: the process group; 0 is that of the kernel's own threads.
    pub group: u32,
    /// Fields 14 to 17 together: user and system time, its own and that of children it has waited for.
    pub cpu_ticks: u64,
    /// Field 22: clock ticks between the boot and the start.
    pub start_ticks: u64,
}

impl Stat {
    /// Reads the line. The second field is the program's name in parentheses, and the name may itself hold spaces and
    /// parentheses: only what follows the **last** `)` is split into fields.
    pub fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        // A process that ignores SIGCHLD can show a negative count of children's time on old kernels; it counts as none.
        let cpu_ticks = number(14)? + number(15)? + number(16).unwrap_or(0) + number(17).unwrap_or(0);
        // It is -1 while a process is being taken away.
        let group = u32::try_from(fields.get(2)?.parse::<i32>().ok()?).unwrap_or(0);
        Some(Self { state: fields.first()?.chars().next()?, group, cpu_ticks, start_ticks: number(22)? })
    }

    /// Reads the line of a process; none where the process is gone or hidden.
    pub fn of(pid: u32) -> io::Result<Option<Self>> {
        match std::fs::read(format!("/proc/{pid}/stat")) {
            Ok(bytes) => Ok(Self::parse(&String::from_utf8_lossy(&bytes))),
            // ESRCH: it went between the opening and the reading.
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(3) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Processor time of a process: user and system, all threads, and the children that it has waited for.
///
/// Works on a process that has ended and has not been waited for. In nanoseconds, by steps of one clock tick (10 ms).
/// None where the process is gone.
pub fn cpu_time_ns(pid: u32) -> Option<u64> {
    let stat = Stat::of(pid).ok()??;
    let per_second = clock_ticks_per_second().max(1);
    Some(stat.cpu_ticks.saturating_mul(1_000_000_000 / per_second))
}

/// The value in bytes of a line such as `MemTotal:     1234 kB`.
pub(super) fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let number = line.trim().strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: &str = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 20 0 1 0 4242 999 1 2";

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let plain = Stat::parse(&format!("77 (bash) {TAIL}")).unwrap();
        assert_eq!(plain, Stat { state: 'S', group: 2, cpu_ticks: 11 + 12 + 13 + 14, start_ticks: 4242 });
        for name in ["a) R 1 (b", ") ) )", "", "x y z", "\u{fffd})"] {
            assert_eq!(Stat::parse(&format!("77 ({name}) {TAIL}")), Some(plain), "{name}");
        }
    }

    #[test]
    fn a_cut_line_is_no_answer() {
        assert_eq!(Stat::parse(""), None);
        assert_eq!(Stat::parse("77 (bash"), None);
        assert_eq!(Stat::parse("77 (bash) S 1 2 3"), None);
    }

    #[test]
    fn this_process_has_used_time() {
        let pid = std::process::id();
        let stat = Stat::of(pid).unwrap().unwrap();
        assert!(stat.start_ticks > 0);
        assert!(cpu_time_ns(pid).is_some());
    }

    #[test]
    fn a_process_that_is_not_there_has_no_time() {
        // Above the kernel's limit of 2^22 for process ids.
        assert_eq!(cpu_time_ns(4_194_305), None);
    }

    #[test]
    fn lines_in_kilobytes() {
        let text = "VmHWMx:\t1 kB\nVmHWM:\t    2048 kB\nVmRSS: 3\n";
        assert_eq!(kilobytes(text, "VmHWM"), Some(2048 * 1024));
        assert_eq!(kilobytes(text, "VmRSS"), None);
        assert_eq!(kilobytes(text, "VmPeak"), None);
    }
}
