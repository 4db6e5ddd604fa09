//! The machine's setup: its C library, instruction sets, NUMA nodes, limits and kernel options.

use super::cpu::limiting_groups;
use super::procfs::kilobytes;
use super::{environment, secrets};
use ledger_record::{Table, Value};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum length of a text that is read; the kernel's command line can have up to 4 KiB.
const MOST_TEXT: usize = 4096;
/// The maximum number of NUMA nodes, more than any training machine has.
const MOST_NODES: u32 = 64;

/// Instruction sets by which linear algebra libraries select their kernels, with the names of `/proc/cpuinfo`.
const FEATURES: [&str; 24] = [
    "amx_bf16",
    "amx_int8",
    "amx_tile",
    "asimd",
    "asimddp",
    "asimdhp",
    "avx",
    "avx2",
    "avx512_bf16",
    "avx512_fp16",
    "avx512_vnni",
    "avx512bw",
    "avx512cd",
    "avx512dq",
    "avx512f",
    "avx512vl",
    "avx_vnni",
    "bf16",
    "f16c",
    "fma",
    "i8mm",
    "sse4_2",
    "sve",
    "sve2",
];

/// Returns facts by dotted name. Unknown facts are absent.
///
/// - `host.libc`: the C library of this process;
/// - `host.kernel_version`, `host.kernel_command_line` (without secrets);
/// - `cpu.features` (those that affect the speed and precision of computations), `cpu.microcode`, `cpu.sockets`,
///   `cpu.governor`, `cpu.max_mhz`, `cpu.affinity`;
/// - `numa.N`: processors, memory and distances of each node;
/// - `memory.transparent_hugepages`, `memory.overcommit`, `memory.limit_bytes` (of the control groups);
/// - `limit.NAME`: the soft limits of this process, or `unlimited`.
pub fn facts() -> Table {
    facts_under(Path::new("/"))
}

fn facts_under(root: &Path) -> Table {
    let read = |path: &str| {
        let text = fs::read_to_string(root.join(path)).ok()?;
        let text: String = text.trim().chars().take(MOST_TEXT).collect();
        (!text.is_empty()).then_some(text)
    };
    let mut table = Table::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            table.insert(name.to_owned(), value);
        }
    };
    put("host.libc", libc_version().map(Value::from));
    put("host.kernel_version", read("proc/sys/kernel/version").map(Value::from));
    let line = read("proc/cmdline").map(|line| secrets::redact(without_named_secrets(&line).as_bytes()).0);
    put("host.kernel_command_line", line.map(|line| String::from_utf8_lossy(&line).into_owned().into()));
    let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    put("cpu.features", features(&cpuinfo).map(Value::from));
    put("cpu.microcode", value_of(&cpuinfo, "microcode").map(Value::from));
    put("cpu.sockets", sockets(&cpuinfo).map(Value::from));
    let cpu = "sys/devices/system/cpu/cpu0/cpufreq";
    put("cpu.governor", read(&format!("{cpu}/scaling_governor")).map(Value::from));
    let khz = read(&format!("{cpu}/cpuinfo_max_freq")).and_then(|khz| khz.parse::<i64>().ok());
    put("cpu.max_mhz", khz.map(|khz| (khz / 1000).into()));
    let status = read("proc/self/status").unwrap_or_default();
    put("cpu.affinity", value_of(&status, "Cpus_allowed_list").map(Value::from));
    put("memory.transparent_hugepages", read("sys/kernel/mm/transparent_hugepage/enabled").map(|text| chosen(&text)));
    put("memory.overcommit", read("proc/sys/vm/overcommit_memory").map(Value::from));
    let groups = read("proc/self/cgroup").unwrap_or_default();
    put("memory.limit_bytes", memory_limit(&root.join("sys/fs/cgroup"), &groups).map(Value::from));
    for (name, value) in limits() {
        put(&format!("limit.{name}"), Some(value));
    }
    for number in 0..MOST_NODES {
        put(&format!("numa.{number}"), numa_node(&root.join("sys/devices/system/node"), number).map(Value::from));
    }
    table
}

/// Returns `glibc 2.36`, or the file name of another C library.
fn libc_version() -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let file = maps
        .lines()
        .filter_map(|line| line.rsplit_once('/'))
        .map(|(_, name)| name)
        .find(|name| ["libc.so", "libc-", "ld-musl"].iter().any(|known| name.starts_with(known)))?;
    let path = maps
        .lines()
        .find(|line| line.ends_with(&format!("/{file}")))
        .and_then(|line| line.find('/').map(|at| &line[at..]))?;
    Some(glibc_of(&fs::read(path).ok()?).map_or_else(|| file.to_owned(), |version| format!("glibc {version}")))
}

/// Reads glibc's release from its own text: `GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.`
fn glibc_of(library: &[u8]) -> Option<String> {
    const BEFORE: &[u8] = b"release version ";
    let at = library.windows(BEFORE.len()).position(|window| window == BEFORE)? + BEFORE.len();
    let version: Vec<u8> =
        library[at..].iter().copied().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').collect();
    let version = String::from_utf8(version).ok()?;
    Some(version.trim_end_matches('.').to_owned()).filter(|version| !version.is_empty())
}

/// Returns the value of the first line with that key.
fn value_of(cpuinfo: &str, key: &str) -> Option<String> {
    let mut pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
}

fn features(cpuinfo: &str) -> Option<Vec<String>> {
    let flags = value_of(cpuinfo, "flags").or_else(|| value_of(cpuinfo, "Features"))?;
    let known = flags.split_ascii_whitespace().filter(|flag| FEATURES.contains(flag)).map(str::to_owned);
    Some(known.collect::<BTreeSet<_>>().into_iter().collect())
}

fn sockets(cpuinfo: &str) -> Option<usize> {
    let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let ids: BTreeSet<&str> = lines.filter(|(name, _)| name.trim() == "physical id").map(|(_, id)| id.trim()).collect();
    (!ids.is_empty()).then_some(ids.len())
}

/// Returns the bracketed choice of `always [madvise] never`.
fn chosen(text: &str) -> Value {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text, |(chosen, _)| chosen).into()
}

/// Returns the tightest memory limit of all groups from this process's up to the root, in bytes.
pub(super) fn memory_limit(root: &Path, groups: &str) -> Option<u64> {
    let limit = |(group, is_v2): (PathBuf, bool)| {
        let file = if is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        let bytes: u64 = fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()?;
        // cgroup version 1 shows a number near the maximum if there is no limit.
        (bytes < 1 << 60).then_some(bytes)
    };
    limiting_groups(root, groups, "memory").into_iter().filter_map(limit).min()
}

fn limits() -> Vec<(&'static str, Value)> {
    let of = [
        ("open_files", Resource::Nofile),
        ("locked_memory_bytes", Resource::Memlock),
        ("stack_bytes", Resource::Stack),
        ("address_space_bytes", Resource::As),
        ("processes", Resource::Nproc),
        ("core_bytes", Resource::Core),
    ];
    of.into_iter()
        .map(|(name, resource)| (name, getrlimit(resource).current.map_or("unlimited".into(), Value::from)))
        .collect()
}

fn numa_node(nodes: &Path, number: u32) -> Option<Table> {
    let folder = nodes.join(format!("node{number}"));
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
    let mut table: Table = [("cpus".to_owned(), read("cpulist")?.into())].into();
    // Lines of a node begin with its name: `Node 0 MemTotal:  1234 kB`.
    let memory = read("meminfo").unwrap_or_default().replace(&format!("Node {number} "), "");
    table.extend(kilobytes(&memory, "MemTotal").map(|bytes| ("memory_bytes".to_owned(), bytes.into())));
    table.extend(read("distance").map(|text| ("distances".to_owned(), text.into())));
    Some(table)
}

/// Removes the values of kernel options whose names mark them as secrets, however short the values are.
fn without_named_secrets(line: &str) -> String {
    let word = |word: &str| match word.split_once('=') {
        Some((name, _)) if environment::is_secret(name) => format!("{name}={}", environment::REDACTED),
        _ => word.to_owned(),
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_a_made_up_machine() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "proc/cpuinfo",
            "processor: 0\nphysical id: 0\nmicrocode\t: 0x2b\nflags\t\t: fpu avx2 fma avx2 amx_bf16 vme\n\nprocessor: 1\nphysical id: 1\nflags: sse4_2\n",
        );
        write("proc/cmdline", "root=/dev/sda1 quiet api_key=hunter2hunter2x9 foo.password=short isolcpus=2\n");
        write("proc/self/status", "Name:\tledger\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n");
        write("proc/self/cgroup", "0::/a/b\n4:memory:/c\n");
        write("sys/fs/cgroup/a/memory.max", "1000000\n");
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        write("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "9223372036854771712\n");
        write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
        write("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3800000\n");
        write("sys/devices/system/node/node0/cpulist", "0-3\n");
        write("sys/devices/system/node/node0/distance", "10 21\n");
        write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  2048 kB\nNode 0 MemFree: 1 kB\n");
        let facts = facts_under(root.path());
        let told: Vec<String> = facts
            .iter()
            .filter(|(name, _)| name.as_str() != "host.libc" && !name.starts_with("limit."))
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        assert_eq!(
            told,
            [
                "cpu.affinity = 0-1",
                "cpu.features = [amx_bf16, avx2, fma]",
                "cpu.governor = performance",
                "cpu.max_mhz = 3800",
                "cpu.microcode = 0x2b",
                "cpu.sockets = 2",
                "host.kernel_command_line = root=/dev/sda1 quiet api_key=(redacted) foo.password=(redacted) isolcpus=2",
                "memory.limit_bytes = 1000000",
                "memory.transparent_hugepages = madvise",
                "numa.0 = {cpus = 0-3, distances = 10 21, memory_bytes = 2097152}",
            ]
        );
        let empty = tempfile::tempdir().unwrap();
        let rest: Vec<String> =
            facts_under(empty.path()).into_keys().filter(|name| !name.starts_with("limit.")).collect();
        assert_eq!(rest, ["host.libc"]);
    }

    #[test]
    fn this_machine() {
        let facts = facts();
        for name in ["host.kernel_version", "cpu.affinity", "limit.open_files", "limit.stack_bytes"] {
            assert!(facts.contains_key(name), "{name} is missing in {facts:?}");
        }
        assert!(facts["host.libc"].as_str().unwrap().starts_with("glibc 2."));
        assert!(facts.values().all(|value| value.to_string().len() <= MOST_TEXT + 64));
    }

    #[test]
    fn the_release_of_glibc_is_read() {
        let text = b"\0GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\nCopyright";
        assert_eq!(glibc_of(text).as_deref(), Some("2.36"));
        assert_eq!(glibc_of(b"release version "), None);
    }

    #[test]
    fn the_tightest_limit_of_memory_counts() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        write("a/memory.max", "4096\n");
        write("a/b/memory.max", "max\n");
        assert_eq!(memory_limit(root.path(), "0::/a/b\n"), Some(4096));
        write("a/b/memory.max", "1024\n");
        assert_eq!(memory_limit(root.path(), "1:cpu:/x\n0::/a/b\n"), Some(1024));
        assert_eq!(memory_limit(root.path(), "0::/\n"), None);
    }
}
