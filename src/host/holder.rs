//! The processes that hold the lock of a file.

use super::procfs::Stat;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The maximum length of a displayed command line, in characters.
const SHOWN_CHARS: usize = 80;

/// A process that holds the lock of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its id in this process's PID namespace.
    pub pid: u32,
    /// Its command line, truncated after 80 characters, or its name if the command line is hidden.
    pub command: String,
    /// Whether a signal has stopped it (SIGSTOP, Ctrl-Z).
    pub is_stopped: bool,
}

impl Holder {
    fn of(pid: u32) -> Self {
        let stat = Stat::of(pid).ok().flatten();
        Self { pid, command: command(pid), is_stopped: stat.is_some_and(|stat| matches!(stat.state, 'T' | 't')) }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, command, is_stopped } = self;
        write!(f, "pid {pid}")?;
        if !command.is_empty() {
            write!(f, " (`{command}`)")?;
        }
        if *is_stopped { write!(f, ", which is stopped: `kill -CONT {pid}` lets it continue") } else { Ok(()) }
    }
}

/// Returns the other processes that hold a `flock` lock of a file, in the order of `/proc/locks`. Processes of other
/// hosts and other PID namespaces are not visible there.
pub fn holders(file: &Path) -> Vec<Holder> {
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else { return Vec::new() };
    let Ok(found) = std::fs::metadata(file) else { return Vec::new() };
    let own = std::process::id();
    let mut pids: Vec<u32> = Vec::new();
    for lock in locks.lines().filter_map(Lock::parse) {
        let is_device = lock.device == (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
        // Some file systems report another device number here than in the file's metadata.
        let is_same = lock.inode == found.ino() && (is_device || has_open(lock.pid, &found));
        if is_same && lock.pid != own && !pids.contains(&lock.pid) {
            pids.push(lock.pid);
        }
    }
    pids.into_iter().map(Holder::of).collect()
}

/// A line of `/proc/locks`, see proc_locks(5).
#[derive(Debug, PartialEq, Eq)]
struct Lock {
    pid: u32,
    device: (u32, u32),
    inode: u64,
}

impl Lock {
    /// Returns `None` for other types of locks and for waiting processes (`->`).
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = fields.as_slice() else { return None };
        let mut parts = file.split(':');
        let mut hex = || u32::from_str_radix(parts.next()?, 16).ok();
        let device = (hex()?, hex()?);
        Some(Self { pid: pid.parse().ok()?, device, inode: parts.next()?.parse().ok()? })
    }
}

fn has_open(pid: u32, file: &std::fs::Metadata) -> bool {
    let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|entry| {
        std::fs::metadata(entry.path()).is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino()))
    })
}

fn command(pid: u32) -> String {
    let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let line = read("cmdline");
    let line = if line.is_empty() { read("comm") } else { line };
    let text = String::from_utf8_lossy(&line).replace('\0', " ");
    let text = text.trim();
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn only_held_flock_locks_are_parsed() {
        let lock = Lock { pid: 20746, device: (0xfe, 0), inode: 5_309_609 };
        assert_eq!(Lock::parse("1: FLOCK  ADVISORY  WRITE 20746 fe:00:5309609 0 EOF"), Some(lock));
        for other in
            ["1: -> FLOCK  ADVISORY  WRITE 20746 fe:00:5309609 0 EOF", "2: POSIX  ADVISORY  READ 7 fe:00:9 0 EOF", ""]
        {
            assert_eq!(Lock::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_process_that_holds_a_lock_is_named_with_its_command() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(holders(file.path()), []);
        let path = file.path().to_str().unwrap();
        let mut command = Command::new("flock");
        command.args([path, "sh", "-c", "echo; read x"]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        // util-linux may be missing.
        let Ok(mut child) = child else { return };
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let found = holders(file.path());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(
            matches!(found.as_slice(), [holder] if holder.command.contains(path) && !holder.is_stopped),
            "{found:?}"
        );
    }
}
