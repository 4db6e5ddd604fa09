//! The processor: its product name, its cores, and how many of them this process may use.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Arm's implementer and part numbers of server processors, which have no product name in `/proc/cpuinfo`.
/// From `lscpu`'s tables (util-linux, `sys-utils/lscpu-arm.c`).
const ARM: &[(u32, u32, &str)] = &[
    (0x41, 0xd08, "Arm Cortex-A72"),
    (0x41, 0xd0b, "Arm Cortex-A76"),
    (0x41, 0xd0c, "Arm Neoverse-N1"),
    (0x41, 0xd40, "Arm Neoverse-V1"),
    (0x41, 0xd49, "Arm Neoverse-N2"),
    (0x41, 0xd4f, "Arm Neoverse-V2"),
    (0x41, 0xd83, "Arm Neoverse-V3"),
    (0x41, 0xd84, "Arm Neoverse-V3"),
    (0x41, 0xd8e, "Arm Neoverse-N3"),
    (0x46, 0x001, "Fujitsu A64FX"),
    (0x48, 0xd01, "HiSilicon Kunpeng-920"),
    (0x4e, 0x004, "NVIDIA Carmel"),
    (0x4e, 0x010, "NVIDIA Olympus"),
    (0xc0, 0xac3, "Ampere-1"),
    (0xc0, 0xac4, "Ampere-1a"),
];

/// Returns the processor's product name with single spaces, or `unknown cpu`.
///
/// Reads only the first processor's lines, so that the cost does not depend on the number of cores.
pub fn cpu_name() -> String {
    let mut text = Vec::with_capacity(4096);
    if let Ok(file) = File::open("/proc/cpuinfo") {
        // If reading fails, the name is unknown.
        let _ = file.take(4096).read_to_end(&mut text);
    }
    name_of(&String::from_utf8_lossy(&text))
}

fn name_of(cpuinfo: &str) -> String {
    let value = |wanted: &[&str]| {
        let pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let mut values = pairs.filter(|(key, _)| wanted.contains(&key.trim())).map(|(_, value)| value.trim());
        values.find(|value| !value.is_empty())
    };
    let hex = |key| u32::from_str_radix(value(&[key])?.strip_prefix("0x")?, 16).ok();
    // `cpu` is POWER's key. Some kernels give a bare number, which is not a product name.
    let named = value(&["model name", "cpu", "cpu model"]).filter(|name| name.contains(char::is_alphabetic));
    if let Some(name) = named {
        return name.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    match (hex("CPU implementer"), hex("CPU part")) {
        (Some(implementer), Some(part)) => match ARM.iter().find(|known| (known.0, known.1) == (implementer, part)) {
            Some((_, _, name)) => (*name).to_owned(),
            None => format!("Arm implementer {implementer:#04x} part {part:#05x}"),
        },
        _ => "unknown cpu".to_owned(),
    }
}

/// Returns the number of online processors, counting each hardware thread.
pub fn logical_cores() -> Option<usize> {
    range_len(&fs::read_to_string("/sys/devices/system/cpu/online").ok()?)
}

/// Returns how many processors this process may use at once, by its affinity and its control group's quota.
pub fn available_cores() -> Option<usize> {
    std::thread::available_parallelism().ok().map(usize::from)
}

/// Returns the number of cores, counting the hardware threads of a core once.
pub fn physical_cores() -> Option<usize> {
    let threads = numbered(Path::new("/sys/devices/system/cpu"), "cpu").into_iter();
    let cores: BTreeSet<String> =
        threads.filter_map(|cpu| fs::read_to_string(cpu.join("topology/thread_siblings_list")).ok()).collect();
    (!cores.is_empty()).then_some(cores.len())
}

/// Returns the number of NUMA nodes.
pub fn numa_nodes() -> Option<usize> {
    let nodes = numbered(Path::new("/sys/devices/system/node"), "node").len();
    (nodes > 0).then_some(nodes)
}

/// Returns the CPU quota of this process's control groups, in processors, or `None` without a limit.
pub fn cgroup_quota_cores() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    quota_under(Path::new("/sys/fs/cgroup"), &groups)
}

/// Returns the folders of the control groups that can limit a controller, from this process's group up to the root, each
/// with whether it belongs to cgroup version 2.
pub(super) fn limiting_groups(root: &Path, groups: &str, controller: &str) -> Vec<(PathBuf, bool)> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let is_v2 = controllers.is_empty();
        let own = root.join(controller);
        let hierarchy = if is_v2 {
            root.to_owned()
        } else if !controllers.split(',').any(|one| one == controller) {
            continue;
        } else if own.is_dir() {
            own
        } else {
            // The name lists all controllers mounted together. If their order differs here, the link `own` exists.
            root.join(controllers)
        };
        let folder = |above: &Path| (hierarchy.join(above.strip_prefix("/").unwrap_or(above)), is_v2);
        found.extend(Path::new(group).ancestors().map(folder));
    }
    found
}

/// Returns the tightest quota of all groups from this process's up to the root.
fn quota_under(root: &Path, groups: &str) -> Option<f64> {
    let quota = |(group, is_v2): (PathBuf, bool)| if is_v2 { quota_v2(&group) } else { quota_v1(&group) };
    limiting_groups(root, groups, "cpu").into_iter().filter_map(quota).reduce(f64::min)
}

/// Parses `cpu.max`: `max 100000` or `150000 100000`, microseconds of CPU time per period.
fn quota_v2(group: &Path) -> Option<f64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    ratio(quota, period)
}

fn quota_v1(group: &Path) -> Option<f64> {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    ratio(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
}

fn ratio(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.trim().parse().ok()?;
    let period: f64 = period.trim().parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Counts the numbers in a list such as `0-3,8,10-11`.
fn range_len(list: &str) -> Option<usize> {
    let mut len = 0;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        len += last.checked_sub(first)? + 1;
    }
    Some(len)
}

fn numbered(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let is_numbered = |name: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_str().is_some_and(is_numbered)).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_named() {
        let intel = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\nmodel name\t: Intel(R)  Xeon(R) Platinum 8480+ \n";
        assert_eq!(name_of(intel), "Intel(R) Xeon(R) Platinum 8480+");
        let grace =
            "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n";
        assert_eq!(name_of(grace), "Arm Neoverse-V2");
        let strange = "CPU implementer\t: 0x7f\nCPU part\t: 0x12\n";
        assert_eq!(name_of(strange), "Arm implementer 0x7f part 0x012");
        assert_eq!(name_of("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n"), "POWER9, altivec supported");
        assert_eq!(name_of(""), "unknown cpu");
        assert_eq!(name_of("model name\t:\ncpu model\t: 12\n"), "unknown cpu");
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(range_len("0-3,8,10-11\n"), Some(7));
        assert_eq!(range_len("0"), Some(1));
        assert_eq!(range_len("3-1"), None);
        assert_eq!(range_len(""), None);
    }

    #[test]
    fn the_tightest_quota_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let groups = "5:cpu,cpuacct:/slurm/job\n3:memory:/other\n0::/a/b\n";
        assert_eq!(quota_under(root.path(), groups), None);
        write("cpu.max", "max 100000\n");
        write("a/cpu.max", "150000 100000\n");
        write("a/b/cpu.max", "400000 100000\n");
        assert_eq!(quota_under(root.path(), groups), Some(1.5));
        write("cpu,cpuacct/slurm/job/cpu.cfs_quota_us", "-1\n");
        write("cpu,cpuacct/slurm/job/cpu.cfs_period_us", "100000\n");
        assert_eq!(quota_under(root.path(), groups), Some(1.5));
        write("cpu,cpuacct/slurm/job/cpu.cfs_quota_us", "50000\n");
        assert_eq!(quota_under(root.path(), groups), Some(0.5));
        // The kernel may list the controllers in another order than the folder's name. A link then has the controller's
        // name.
        std::os::unix::fs::symlink("cpu,cpuacct", root.path().join("cpu")).unwrap();
        assert_eq!(quota_under(root.path(), "4:cpuacct,cpu:/slurm/job\n"), Some(0.5));
    }

    #[test]
    fn this_machine_has_a_processor() {
        assert!(!cpu_name().is_empty());
        let logical = logical_cores().unwrap();
        assert!(logical >= 1);
        assert!(available_cores().unwrap() <= logical);
        if let Some(physical) = physical_cores() {
            assert!((1..=logical).contains(&physical));
        }
    }
}
