//! Facts about the machine of an attempt for its record. None of them enters an identity.

use super::procfs::kilobytes;
use super::sums::{self, Sums};
use super::{
    cpu, owner,
    platform::{self, memory_limit},
};
use ledger_record::{Table, Value};
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The compiler, target and profile of this program, from `build.rs`.
const BUILT: [(&str, &str); 3] = [
    ("ledger.rustc", env!("LEDGER_RUSTC")),
    ("ledger.target", env!("LEDGER_TARGET")),
    ("ledger.profile", env!("LEDGER_PROFILE")),
];

/// `Cargo.lock`: the versions and checksums of all dependencies of this program.
static LOCK: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock"));

/// Returns facts about the machine and this program by dotted name. Unknown facts are absent.
///
/// `ledger.binary_sha256` is the digest of the running program, even if another file lies at its path by now. It is
/// computed once per build and user, which can take about a second.
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
    for (name, value) in BUILT {
        put(name, Some(value.into()));
    }
    put("ledger.cargo_lock_sha256", Some(sums::sha256(LOCK).into()));
    put("ledger.binary_sha256", binary_sha256().map(Value::from));
    table.extend(platform::facts());
    table
}

/// Returns the distribution's name from `/etc/os-release`.
pub fn os_name() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").or_else(|_| fs::read_to_string("/usr/lib/os-release")).ok()?;
    pretty_name(&text)
}

/// Parses `PRETTY_NAME`, whose value is quoted as in a shell; see os-release(5).
fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?.trim();
    let unquoted = value.trim_matches(['"', '\'']);
    (!unquoted.is_empty()).then(|| unquoted.replace('\\', ""))
}

/// Returns the machine's memory in bytes.
pub fn memory_total_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")
}

/// Returns how many bytes programs can still allocate without swapping.
pub fn memory_available_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

/// Returns the mean number of runnable processes over the last 1, 5 and 15 minutes.
pub fn load_average() -> Option<[f64; 3]> {
    loads(&fs::read_to_string("/proc/loadavg").ok()?)
}

/// Returns the smallest memory limit of this process's control groups, in bytes, or `None` without a limit.
pub fn cgroup_memory_bytes() -> Option<u64> {
    memory_limit(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// Whether this process has the capability CAP_SYS_ADMIN, which the driver requires to change a GPU.
pub fn has_sys_admin() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| sys_admin_of(&status))
}

fn sys_admin_of(status: &str) -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits >> CAP_SYS_ADMIN & 1 == 1)
}

/// Returns the number of pages swapped in since boot, or `None` if the kernel does not report it.
pub fn swapped_in_pages() -> Option<u64> {
    counted(&fs::read_to_string("/proc/vmstat").ok()?, "pswpin")
}

/// Returns the boot time, or `None` if the kernel does not report it.
pub fn booted() -> Option<SystemTime> {
    let seconds = counted(&fs::read_to_string("/proc/stat").ok()?, "btime").filter(|seconds| *seconds > 0)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn counted(vmstat: &str, key: &str) -> Option<u64> {
    let line = vmstat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

fn loads(loadavg: &str) -> Option<[f64; 3]> {
    let mut numbers = loadavg.split_ascii_whitespace().map_while(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

/// Returns the name of the kernel's clock source.
pub fn clock_source() -> Option<String> {
    let text = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Returns the SHA-256 of the running program, or `None` if `/proc/self/exe` cannot be read.
fn binary_sha256() -> Option<String> {
    let mut sums = Sums::of_user();
    let (sum, _) = sums.of(Path::new("/proc/self/exe")).ok()?;
    sums.keep();
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capability_is_a_bit_of_the_effective_set() {
        assert!(sys_admin_of("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!sys_admin_of("CapEff:\t00000000a80425fb\n"), "a container's root, by Docker's default");
        assert!(!sys_admin_of(""));
    }

    #[test]
    fn counters_are_found_by_their_whole_name() {
        let text = "pswpinx 1\npswpin 42\npswpout 7\n";
        assert_eq!((counted(text, "pswpin"), counted(text, "pswp")), (Some(42), None));
    }

    #[test]
    fn every_linux_machine_has_the_basic_facts() {
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
    fn distributions_are_named() {
        assert_eq!(pretty_name("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"), Some("Debian GNU/Linux 12".into()));
        assert_eq!(pretty_name("PRETTY_NAME=Alpine\n"), Some("Alpine".into()));
        assert_eq!(pretty_name("PRETTY_NAME=\"\"\n"), None);
        assert_eq!(pretty_name(""), None);
    }

    #[test]
    fn load_averages_are_parsed() {
        assert_eq!(loads("0.10 1.20 2.00 3/99 1234\n"), Some([0.10, 1.20, 2.00]));
        assert_eq!(loads("0.10 x 2.00"), None);
    }

    #[test]
    fn the_program_and_its_dependencies_have_digests() {
        let facts = facts();
        let sum = |path: &Path| Sums::default().of(path).unwrap().0;
        assert_eq!(facts["ledger.binary_sha256"], sum(&std::env::current_exe().unwrap()).into());
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
        assert_eq!(facts["ledger.cargo_lock_sha256"], sum(&lock).into());
        assert!(facts["ledger.rustc"].as_str().unwrap().starts_with("rustc 1."), "{facts:?}");
        assert!(facts["ledger.target"].as_str().unwrap().contains("linux"));
    }
}
