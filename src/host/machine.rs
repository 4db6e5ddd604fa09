//! What a record keeps of the machine on which an attempt ran. None of it enters an identity.

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

/// What this program was compiled by, for what and how, as `build.rs` saw it.
const BUILT: [(&str, &str); 3] = [
    ("ledger.rustc", env!("LEDGER_RUSTC")),
    ("ledger.target", env!("LEDGER_TARGET")),
    ("ledger.profile", env!("LEDGER_PROFILE")),
];

/// The versions and checksums of all that was compiled into this program.
static LOCK: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock"));

/// Facts of the machine and of this program by dotted name. What cannot be found out is absent.
///
/// `ledger.binary_sha256` is that of the program that runs, whatever lies at its path by now; it is computed once for each build and user, in which a second or so
/// may go.
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

/// The least of the memory limits of this process's control groups, in bytes; none where there is no limit.
pub fn cgroup_memory_bytes() -> Option<u64> {
    memory_limit(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// Whether this process has the capability CAP_SYS_ADMIN, without which the driver changes no GPU.
pub fn has_sys_admin() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| sys_admin_of(&status))
}

fn sys_admin_of(status: &str) -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits >> CAP_SYS_ADMIN & 1 == 1)
}

/// Pages that came back from swap since the boot; none where the kernel does not count them.
pub fn swapped_in_pages() -> Option<u64> {
    counted(&fs::read_to_string("/proc/vmstat").ok()?, "pswpin")
}

/// When the kernel started, by its own account; none where it does not say.
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

/// The counter by which the kernel tells the time.
pub fn clock_source() -> Option<String> {
    let text = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The SHA-256 of the program that runs; none if `/proc` is not mounted or it cannot be read.
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
    fn pages_are_counted_by_their_whole_name() {
        let text = "pswpinx 1\npswpin 42\npswpout 7\n";
        assert_eq!((counted(text, "pswpin"), counted(text, "pswp")), (Some(42), None));
    }

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
    fn the_program_and_what_it_was_made_of_have_sums() {
        let facts = facts();
        let sum = |path: &Path| Sums::default().of(path).unwrap().0;
        assert_eq!(facts["ledger.binary_sha256"], sum(&std::env::current_exe().unwrap()).into());
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
        assert_eq!(facts["ledger.cargo_lock_sha256"], sum(&lock).into());
        assert!(facts["ledger.rustc"].as_str().unwrap().starts_with("rustc 1."), "{facts:?}");
        assert!(facts["ledger.target"].as_str().unwrap().contains("linux"));
    }
}
