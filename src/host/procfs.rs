//! Parses `/proc/PID/stat`, and lines of other files in `/proc` in kilobytes.

use rustix::param::clock_ticks_per_second;
use std::io;

/// The fields of `/proc/PID/stat` that ledger uses. See proc_pid_stat(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// Field 3: `R`, `S`, `Z` and so on.
    pub state: char,
    /// Field 5: the process group; 0 for the kernel's threads.
    pub group: u32,
    /// Sum of fields 14 to 17: user and system time, its own and that of reaped children.
    pub cpu_ticks: u64,
    /// Field 22: clock ticks between boot and start.
    pub start_ticks: u64,
}

impl Stat {
    /// Parses the line. The second field is the program's name in parentheses, which may itself contain spaces and
    /// parentheses. Therefore only the text after the **last** `)` is split into fields.
    pub fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        // On old kernels the children's time can be negative for a process that ignores SIGCHLD; it counts as 0.
        let cpu_ticks = number(14)? + number(15)? + number(16).unwrap_or(0) + number(17).unwrap_or(0);
        // It is -1 while a process is being removed.
        let group = u32::try_from(fields.get(2)?.parse::<i32>().ok()?).unwrap_or(0);
        Some(Self { state: fields.first()?.chars().next()?, group, cpu_ticks, start_ticks: number(22)? })
    }

    /// Reads the line of a process; `None` if the process has ended or is hidden.
    pub fn of(pid: u32) -> io::Result<Option<Self>> {
        match std::fs::read(format!("/proc/{pid}/stat")) {
            Ok(bytes) => Ok(Self::parse(&String::from_utf8_lossy(&bytes))),
            // ESRCH: it ended between opening and reading.
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(3) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the CPU time of a process in nanoseconds, in steps of one clock tick (10 ms): user and system, all threads,
/// and reaped children.
///
/// It works for a zombie, too. Returns `None` if the process does not exist.
pub fn cpu_time_ns(pid: u32) -> Option<u64> {
    let stat = Stat::of(pid).ok()??;
    let per_second = clock_ticks_per_second().max(1);
    Some(stat.cpu_ticks.saturating_mul(1_000_000_000 / per_second))
}

/// Parses the value of a line such as `MemTotal:     1234 kB`, in bytes.
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
    fn a_truncated_line_is_refused() {
        assert_eq!(Stat::parse(""), None);
        assert_eq!(Stat::parse("77 (bash"), None);
        assert_eq!(Stat::parse("77 (bash) S 1 2 3"), None);
    }

    #[test]
    fn this_process_has_a_cpu_time() {
        let pid = std::process::id();
        let stat = Stat::of(pid).unwrap().unwrap();
        assert!(stat.start_ticks > 0);
        assert!(cpu_time_ns(pid).is_some());
    }

    #[test]
    fn a_missing_process_has_no_cpu_time() {
        // Above the kernel's limit of 2^22 for process ids.
        assert_eq!(cpu_time_ns(4_194_305), None);
    }

    #[test]
    fn lines_in_kilobytes_are_parsed() {
        let text = "VmHWMx:\t1 kB\nVmHWM:\t    2048 kB\nVmRSS: 3\n";
        assert_eq!(kilobytes(text, "VmHWM"), Some(2048 * 1024));
        assert_eq!(kilobytes(text, "VmRSS"), None);
        assert_eq!(kilobytes(text, "VmPeak"), None);
    }
}
