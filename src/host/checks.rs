//! `doctor` checks of the machine without its GPUs.

use super::filesystem::{FileSystemKind, disk_free_bytes, file_system_kind, writable};
use super::{container, cpu, environment, git, machine};
use ledger_record::Check;
use std::path::Path;

const GIB: u64 = 1 << 30;

/// Checks the processor, memory, their limits, the ledger's disk, git, containers, Slurm and the clock.
pub fn checks(ledger_dir: &Path) -> Vec<Check> {
    let kind = file_system_kind(ledger_dir).ok();
    vec![
        processor(&cpu::cpu_name(), cpu::logical_cores(), cpu::available_cores()),
        memory(machine::memory_total_bytes(), machine::memory_available_bytes()),
        control_group(cpu::cgroup_quota_cores(), machine::cgroup_memory_bytes(), machine::memory_total_bytes()),
        ledger(ledger_dir, writable(ledger_dir)),
        disk(disk_free_bytes(ledger_dir).ok()),
        file_system(kind.as_ref()),
        git_check(git::version()),
        containers(&container::TOOLS.into_iter().filter(|tool| environment::which(tool).is_some()).collect::<Vec<_>>()),
        slurm(environment::which("sbatch").is_some(), environment::text_var("SLURM_JOB_ID").as_deref()),
        clock(machine::clock_source().as_deref()),
    ]
}

fn processor(name: &str, logical: Option<usize>, available: Option<usize>) -> Check {
    match (logical, available) {
        (Some(logical), Some(available)) if available < logical => Check::warning(
            "processor",
            format!("{name}, {available} of {logical} cores may be used"),
            "training on the CPU is as slow as these cores are",
            "raise the CPU limit of the container, job or control group, or the affinity (`taskset -p $$` shows it)",
        ),
        (Some(cores), _) | (None, Some(cores)) => Check::ok("processor", format!("{name}, {cores} cores")),
        (None, None) => Check::ok("processor", name),
    }
}

fn memory(total: Option<u64>, available: Option<u64>) -> Check {
    let (Some(total), Some(available)) = (total, available) else {
        let fix = "mount /proc";
        return Check::missing("memory", "/proc/meminfo cannot be read", "records lack the machine's memory", fix);
    };
    let found = format!("{} of {} available", bytes(available), bytes(total));
    if available < GIB {
        let consequence = "a run may be killed when memory runs out";
        return Check::warning("memory", found, consequence, "end other programs, or use a smaller batch");
    }
    Check::ok("memory", found)
}

fn control_group(cores: Option<f64>, memory: Option<u64>, total: Option<u64>) -> Check {
    const NAME: &str = "control group";
    let memory = memory.filter(|limit| total.is_none_or(|total| *limit < total));
    let told = [cores.map(|cores| format!("{cores} cores")), memory.map(|limit| format!("{} of memory", bytes(limit)))];
    let told: Vec<String> = told.into_iter().flatten().collect();
    if told.is_empty() {
        return Check::ok(NAME, "no limits");
    }
    Check::warning(
        NAME,
        format!("limited to {}", told.join(" and ")),
        "a run that wants more is slowed down, or killed for want of memory",
        "raise the limits of the container, job or service (`--cpus`, `--memory`, `--mem`, `CPUQuota`, `MemoryMax`)",
    )
}

fn ledger(path: &Path, writable: bool) -> Check {
    let state = if path.is_dir() { "" } else { ", not made yet" };
    let found = format!("{}{state}", path.display());
    if writable {
        return Check::ok("ledger", found);
    }
    let consequence = "no run is started, since it could not be recorded";
    let fix = "make the directory writable for this user, or name another with --ledger or LEDGER_DIR";
    Check::missing("ledger", format!("{found}, not writable"), consequence, fix)
}

fn disk(free: Option<u64>) -> Check {
    match free {
        Some(free) if free < GIB => {
            let consequence = "a run whose records no longer fit ends as failed";
            Check::warning("disk", format!("{} free", bytes(free)), consequence, "make room, or move the ledger")
        }
        Some(free) => Check::ok("disk", format!("{} free", bytes(free))),
        None => {
            let consequence = "it is unknown whether records will fit";
            Check::missing("disk", "the file system does not report its free space", consequence, "move the ledger")
        }
    }
}

fn file_system(kind: Option<&FileSystemKind>) -> Check {
    const NAME: &str = "file system";
    match kind {
        Some(kind) if kind.network => Check::warning(
            NAME,
            format!("{}, over a network or a user-space program", kind.name),
            "locks and syncs may not hold there: two hosts writing at once can damage the ledger",
            "keep the ledger on a local disk (--ledger or LEDGER_DIR) and combine ledgers with `ledger merge`",
        ),
        Some(kind) if kind.volatile => Check::warning(
            NAME,
            format!("{}, in memory", kind.name),
            "the ledger is lost with the machine's next start",
            "keep the ledger on a disk (--ledger or LEDGER_DIR)",
        ),
        Some(kind) => Check::ok(NAME, kind.name.clone()),
        None => Check::missing(NAME, "unknown", "it is unknown whether locks hold there", "move the ledger"),
    }
}

fn git_check(version: Option<String>) -> Check {
    match version {
        Some(version) => Check::ok("git", version),
        None => {
            let consequence = "records do not name the commit of a run";
            Check::missing("git", "not on PATH", consequence, "install git")
        }
    }
}

fn containers(tools: &[&str]) -> Check {
    if !tools.iter().any(|tool| ["apptainer", "singularity"].contains(tool)) {
        let consequence = "runs that name an image cannot be started; others run on the host as it is";
        let fix = "install Apptainer, or load its module";
        return Check::missing("containers", "neither apptainer nor singularity", consequence, fix);
    }
    Check::ok("containers", tools.join(", "))
}

fn slurm(sbatch: bool, job: Option<&str>) -> Check {
    match (sbatch, job) {
        (_, Some(job)) => Check::ok("slurm", format!("inside job {job}")),
        (true, None) => Check::ok("slurm", "sbatch"),
        (false, None) => {
            let consequence = "runs cannot be submitted to a cluster from here; they run on this machine";
            Check::missing("slurm", "no sbatch on PATH", consequence, "work on a login node of the cluster")
        }
    }
}

/// Clock sources that are read with one instruction, without a system call or a device access.
const FAST_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

fn clock(source: Option<&str>) -> Check {
    match source {
        Some(source) if FAST_CLOCKS.contains(&source) => Check::ok("clock", source),
        Some(source) => Check::warning(
            "clock",
            source,
            "each reading of the clock costs microseconds, which affects very short phases",
            "boot with clocksource=tsc where the machine's TSC is stable",
        ),
        None => {
            let consequence = "the resolution of measured times is unknown";
            Check::missing("clock", "the kernel does not name its source", consequence, "mount /sys")
        }
    }
}

/// Formats a number of bytes in the largest binary unit that leaves at least 1.
fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut shown = (number, 0, "B");
    for unit in UNITS {
        if shown.0 < 1024 {
            break;
        }
        shown = (shown.0 / 1024, shown.0 % 1024 * 10 / 1024, unit);
    }
    match shown {
        (whole, _, "B") => format!("{whole} B"),
        (whole, tenth, unit) => format!("{whole}.{tenth} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger_record::CheckState::{Missing, Ok, Warning};

    #[test]
    fn every_fault_has_a_consequence_and_a_fix() {
        let nfs = FileSystemKind { name: "nfs".into(), network: true, volatile: false };
        let tmpfs = FileSystemKind { name: "tmpfs".into(), network: false, volatile: true };
        let ext4 = FileSystemKind { name: "ext4".into(), network: false, volatile: false };
        let cases = [
            (processor("cpu", Some(8), Some(8)), Ok),
            (processor("cpu", Some(8), Some(2)), Warning),
            (memory(Some(8 * GIB), Some(4 * GIB)), Ok),
            (memory(Some(8 * GIB), Some(GIB / 2)), Warning),
            (memory(None, None), Missing),
            (control_group(None, Some(8 * GIB), Some(8 * GIB)), Ok),
            (control_group(Some(1.5), None, Some(8 * GIB)), Warning),
            (control_group(None, Some(GIB), Some(8 * GIB)), Warning),
            (ledger(Path::new("x"), true), Ok),
            (ledger(Path::new("x"), false), Missing),
            (disk(Some(2 * GIB)), Ok),
            (disk(Some(5)), Warning),
            (disk(None), Missing),
            (file_system(Some(&ext4)), Ok),
            (file_system(Some(&nfs)), Warning),
            (file_system(Some(&tmpfs)), Warning),
            (file_system(None), Missing),
            (git_check(Some("2.39".into())), Ok),
            (git_check(None), Missing),
            (containers(&["apptainer", "podman"]), Ok),
            (containers(&["podman"]), Missing),
            (containers(&[]), Missing),
            (slurm(false, Some("3")), Ok),
            (slurm(true, None), Ok),
            (slurm(false, None), Missing),
            (clock(Some("tsc")), Ok),
            (clock(Some("hpet")), Warning),
            (clock(None), Missing),
        ];
        for (check, state) in cases {
            assert_eq!(check.state, state, "{check:?}");
            assert!(!check.found.is_empty(), "{check:?}");
            assert_eq!(check.fix.is_empty(), state == Ok, "{check:?}");
            assert_eq!(check.consequence.is_empty(), state == Ok, "{check:?}");
        }
    }

    #[test]
    fn checks_write_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let checks = checks(&dir.path().join("ledger"));
        let names: Vec<_> = checks.iter().map(|check| check.name).collect();
        let expected = [
            "processor",
            "memory",
            "control group",
            "ledger",
            "disk",
            "file system",
            "git",
            "containers",
            "slurm",
            "clock",
        ];
        assert_eq!(names, expected);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn bytes_are_formatted_in_binary_units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(GIB), "1.0 GiB");
        assert_eq!(bytes(5000 << 40), "5000.0 TiB");
    }
}
