//! What a record keeps of the machine on which an attempt ran. None of it enters an identity.

use super::procfs::kilobytes;
use super::{HostError, cpu, files, owner};
use crate::record::{Digest, Table, Value};
use std::fs;
use std::path::{Path, PathBuf};

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Facts of the machine by dotted name. What cannot be found out is absent.
///
/// The program's own digest is not among them, since it costs as much as reading the program: see [`executable`].
pub fn facts() -> Table {
    let uname = rustix::system::uname();
    let mut table = Table::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            table.insert(name.to_owned(), value);
        }
    };
    put("host.name", Some(owner::host_name().into()));
    put("host.kernel", Some(uname.release().to_string_lossy().into_owned().into()));
    put("host.architecture", Some(uname.machine().to_string_lossy().into_owned().into()));
    put("host.os", os_name().map(Value::from));
    put("cpu.name", Some(cpu::cpu_name().into()));
    put("cpu.logical_cores", cpu::logical_cores().map(Value::from));
    put("cpu.available_cores", cpu::available_cores().map(Value::from));
    put("cpu.physical_cores", cpu::physical_cores().map(Value::from));
    put("cpu.numa_nodes", cpu::numa_nodes().map(Value::from));
    put("cpu.quota_cores", cpu::cgroup_quota_cores().map(Value::from));
    put("memory.total_bytes", memory_total_bytes().map(Value::from));
    put("load_average", load_average().map(|load| load.to_vec().into()));
    put("clock_source", clock_source().map(Value::from));
    put("ledger.version", Some(VERSION.into()));
    table
}

/// The distribution, as it calls itself in `/etc/os-release`.
pub fn os_name() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").or_else(|_| fs::read_to_string("/usr/lib/os-release")).ok()?;
    pretty_name(&text)
}

/// Values are quoted as in a shell; see os-release(5).
fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?.trim();
    let unquoted = value.trim_matches(['"', '\'']);
    (!unquoted.is_empty()).then(|| unquoted.replace('\\', ""))
}

/// The machine's memory in bytes.
pub fn memory_total_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")
}

/// The bytes that programs could still get without swapping.
pub fn memory_available_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

/// The mean number of runnable processes over the last 1, 5 and 15 minutes.
pub fn load_average() -> Option<[f64; 3]> {
    loads(&fs::read_to_string("/proc/loadavg").ok()?)
}

fn loads(loadavg: &str) -> Option<[f64; 3]> {
    let mut numbers = loadavg.split_ascii_whitespace().map_while(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

/// The counter by which the kernel tells the time.
pub fn clock_source() -> Option<String> {
    let text = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

/// This program's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Where it was when it was started.
    pub path: PathBuf,
    /// The digest of its bytes as they were then, whatever lies at the path by now.
    pub digest: Digest,
}

/// This program's path and digest.
///
/// # Errors
/// If `/proc` is not mounted or the program cannot be read.
pub fn executable() -> Result<Executable, HostError> {
    let link = Path::new("/proc/self/exe");
    let path = fs::read_link(link).map_err(|source| HostError::File {
        action: "read",
        path: link.to_owned(),
        remedy: "/proc must be mounted and readable",
        source,
    })?;
    Ok(Executable { path, digest: files::digest_file(link)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_that_every_linux_machine_has() {
        let facts = facts();
        for name in [
            "host.name",
            "host.kernel",
            "host.architecture",
            "cpu.name",
            "cpu.logical_cores",
            "memory.total_bytes",
            "load_average",
            "ledger.version",
        ] {
            assert!(facts.contains_key(name), "{name} is missing in {facts:?}");
        }
        assert!(facts["memory.total_bytes"].as_int().unwrap() > 1 << 20);
        assert!(memory_available_bytes().unwrap() <= memory_total_bytes().unwrap());
    }

    #[test]
    fn names_of_distributions() {
        assert_eq!(pretty_name("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"), Some("Debian GNU/Linux 12".into()));
        assert_eq!(pretty_name("PRETTY_NAME=Alpine\n"), Some("Alpine".into()));
        assert_eq!(pretty_name("PRETTY_NAME=\"\"\n"), None);
        assert_eq!(pretty_name(""), None);
    }

    #[test]
    fn load_averages() {
        assert_eq!(loads("0.10 1.20 2.00 3/99 1234\n"), Some([0.10, 1.20, 2.00]));
        assert_eq!(loads("0.10 x 2.00"), None);
    }

    #[test]
    fn the_executable_is_this_test() {
        let executable = executable().unwrap();
        assert_eq!(executable.path, std::env::current_exe().unwrap());
        assert_eq!(executable.digest, files::digest_file(&executable.path).unwrap());
    }
}
