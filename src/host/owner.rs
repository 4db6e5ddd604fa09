//! The process that executes an attempt, and whether it is still alive.

use super::HostError;
use super::procfs::Stat;
use ledger_record::Owner;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::path::Path;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const SELF_STAT: &str = "/proc/self/stat";

/// Whether the process of an [`Owner`] is still alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs on this host.
    Alive,
    /// It has ended, or this host was rebooted.
    Gone,
    /// It ran on another host, or on this host under another name before a reboot. Only that host can tell.
    Elsewhere,
}

/// Returns this host's name, as `uname -n` does.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the effective user id of this process.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the owner record of the calling process.
///
/// # Errors
/// If the kernel's files under `/proc` cannot be read.
pub fn this_owner() -> Result<Owner, HostError> {
    let form = || HostError::Form { path: SELF_STAT.into(), what: "start time" };
    owner_of(std::process::id())?.ok_or_else(form)
}

/// Returns the owner record of a process, or `None` if there is no such process.
///
/// # Errors
/// If the kernel's files under `/proc` cannot be read.
pub fn owner_of(pid: u32) -> Result<Option<Owner>, HostError> {
    let stat = Stat::of(pid).map_err(|source| unreadable(&format!("/proc/{pid}/stat"), source))?;
    let Some(stat) = stat else { return Ok(None) };
    Ok(Some(Owner { host: host_name(), boot_id: boot_id()?, pid, start_ticks: stat.start_ticks }))
}

/// Returns whether a process is still alive.
///
/// A zombie counts as gone, and so does a process whose id another process has by now. The machine is identified by its
/// boot id, because a container has its own host name. Therefore a process in another container counts as gone here,
/// even if it is alive; a lock that it holds is more reliable.
///
/// # Errors
/// If the kernel's files under `/proc` cannot be read.
pub fn liveness(owner: &Owner) -> Result<Liveness, HostError> {
    if owner.boot_id != boot_id()? {
        return Ok(if owner.host == host_name() { Liveness::Gone } else { Liveness::Elsewhere });
    }
    let path = || format!("/proc/{}/stat", owner.pid);
    match Stat::of(owner.pid).map_err(|source| unreadable(&path(), source))? {
        Some(stat) if matches!(stat.state, 'Z' | 'X' | 'x') => Ok(Liveness::Gone),
        Some(stat) if stat.start_ticks != owner.start_ticks => Ok(Liveness::Gone),
        Some(_) => Ok(Liveness::Alive),
        None => Ok(hidden_or_gone(owner.pid)),
    }
}

/// Decides for a process without a directory in `/proc`. With `hidepid=2`, processes of other users have none. Such a
/// process counts as alive, because sealing the journal of a living process is worse than waiting for a dead one.
fn hidden_or_gone(pid: u32) -> Liveness {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match pid.map(test_kill_process) {
        Some(Err(Errno::PERM)) => Liveness::Alive,
        _ => Liveness::Gone,
    }
}

fn boot_id() -> Result<String, HostError> {
    let text = std::fs::read_to_string(BOOT_ID).map_err(|source| unreadable(BOOT_ID, source))?;
    Ok(text.trim().to_owned())
}

fn unreadable(path: &str, source: std::io::Error) -> HostError {
    let remedy = "/proc must be mounted and readable";
    HostError::File { action: "read", path: Path::new(path).to_owned(), remedy, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_is_alive() {
        let owner = this_owner().unwrap();
        assert!(!owner.host.is_empty());
        assert_eq!(owner.boot_id.len(), 36);
        assert_eq!(owner, this_owner().unwrap());
        assert_eq!(liveness(&owner).unwrap(), Liveness::Alive);
    }

    #[test]
    fn other_hosts_boots_and_starts_are_distinguished() {
        let owner = this_owner().unwrap();
        let elsewhere = Owner { host: "another".into(), boot_id: "another".into(), ..owner.clone() };
        assert_eq!(liveness(&elsewhere).unwrap(), Liveness::Elsewhere);
        let renamed = Owner { host: "another".into(), ..owner.clone() };
        assert_eq!(liveness(&renamed).unwrap(), Liveness::Alive);
        let contained = Owner { start_ticks: owner.start_ticks + 1, ..renamed };
        assert_eq!(liveness(&contained).unwrap(), Liveness::Gone);
        let booted = Owner { boot_id: "another".into(), ..owner.clone() };
        assert_eq!(liveness(&booted).unwrap(), Liveness::Gone);
        let reused = Owner { start_ticks: owner.start_ticks + 1, ..owner };
        assert_eq!(liveness(&reused).unwrap(), Liveness::Gone);
    }

    #[test]
    fn a_zombie_is_gone() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let owner = owner_of(child.id()).unwrap().unwrap();
        assert_eq!(liveness(&owner).unwrap(), Liveness::Alive);
        drop(child.stdin.take());
        crate::process::await_end(child.id()).unwrap();
        assert_eq!(liveness(&owner).unwrap(), Liveness::Gone);
        child.wait().unwrap();
        assert_eq!(liveness(&owner).unwrap(), Liveness::Gone);
    }

    #[test]
    fn impossible_process_ids_are_gone() {
        for pid in [0, 4_194_305, u32::MAX] {
            let owner = Owner { pid, ..this_owner().unwrap() };
            assert_eq!(liveness(&owner).unwrap(), Liveness::Gone, "{pid}");
        }
    }
}
