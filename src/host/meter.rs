//! Samples the host during a run: processor utilization, the worker's processes, and the processors' energy counters.
//!
//! Reads `/proc` and `/sys/class/powercap`, and knows nothing of GPUs. A quantity that cannot be read is absent, and
//! the reason is reported once.

use super::clock::monotonic_ns;
use super::procfs::Stat;
use ledger_record::{Quantity, Reading, Sample, Source};
use rustix::param::{clock_ticks_per_second, page_size};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// How long a list of a worker's processes is reused.
const TREE_EVERY_NS: u64 = 1_000_000_000;
/// The maximum number of processes that are read individually.
const MAX_PROCESSES: usize = 4096;
const POWERCAP: &str = "/sys/class/powercap";

/// A quantity that cannot be read, with the reason.
pub type Unread = (Source, Quantity, String);

/// Samples the host.
#[derive(Debug)]
pub struct HostMeter {
    worker: Option<u32>,
    tree: Vec<u32>,
    tree_ns: Option<u64>,
    busy: Option<Busy>,
    packages: Vec<Package>,
    unread: Vec<Unread>,
    /// The highest values so far: counters must not decrease when a process ends and its share disappears.
    highest: [f64; 3],
}

/// Clock ticks of all processors since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Busy {
    busy: u64,
    all: u64,
}

#[derive(Debug)]
struct Package {
    number: u32,
    file: PathBuf,
    /// The largest value of the counter plus one.
    range_uj: u64,
    last_uj: Option<u64>,
    total_uj: u64,
}

impl Default for HostMeter {
    fn default() -> Self {
        Self::at(Path::new(POWERCAP))
    }
}

impl HostMeter {
    fn at(powercap: &Path) -> Self {
        let (packages, reason) = packages(powercap);
        let unread = reason.map(|reason| (Source::Package(0), Quantity::Energy, reason)).into_iter().collect();
        Self { worker: None, tree: Vec::new(), tree_ns: None, busy: None, packages, unread, highest: [0.0; 3] }
    }

    /// Also samples the processes of this worker from now on.
    pub fn watch(&mut self, worker: u32) {
        self.worker = Some(worker);
        self.tree_ns = None;
    }

    /// Whether a process is the worker or was started by it.
    pub fn is_of_worker(&mut self, pid: u32) -> bool {
        self.refresh_tree(monotonic_ns());
        if !self.tree.contains(&pid) {
            // It may have been started since the last listing.
            self.tree_ns = None;
            self.refresh_tree(monotonic_ns());
        }
        self.tree.contains(&pid)
    }

    /// Takes a sample of everything. The first has no utilization, which is a difference of two samples.
    pub fn look(&mut self) -> (Vec<Sample>, Vec<Unread>) {
        let t_ns = monotonic_ns();
        let mut readings = Vec::new();
        let mut put = |quantity, value: Option<f64>| {
            readings.extend(value.map(|value| Reading { quantity, t_ns: monotonic_ns(), value }));
        };
        put(Quantity::UtilizationCpu, self.utilization());
        if self.worker.is_some() {
            self.refresh_tree(t_ns);
            let usage = Usage::of(&self.tree);
            let [cpu, read, written] =
                [usage.cpu_s, usage.read_bytes, usage.written_bytes].map(|value| value.unwrap_or(f64::NAN));
            let mut highest = |at: usize, value: f64| {
                self.highest[at] = self.highest[at].max(value);
                (!value.is_nan()).then_some(self.highest[at])
            };
            put(Quantity::WorkerCpuTime, highest(0, cpu));
            put(Quantity::WorkerMemory, usage.memory_bytes);
            put(Quantity::WorkerIoRead, highest(1, read));
            put(Quantity::WorkerIoWritten, highest(2, written));
        }
        let mut samples = vec![Sample { source: Source::Host, t_ns, cost_ns: monotonic_ns() - t_ns, readings }];
        samples.extend(self.packages.iter_mut().filter_map(Package::look));
        (samples, std::mem::take(&mut self.unread))
    }

    fn utilization(&mut self) -> Option<f64> {
        let now = Busy::parse(&head("/proc/stat")?)?;
        let before = self.busy.replace(now)?;
        now.percent_since(before)
    }

    fn refresh_tree(&mut self, now_ns: u64) {
        let Some(worker) = self.worker else { return };
        if self.tree_ns.is_none_or(|at| now_ns.saturating_sub(at) >= TREE_EVERY_NS) {
            self.tree = tree(worker);
            self.tree_ns = Some(now_ns);
        }
    }
}

impl Busy {
    /// Parses the line `cpu  user nice system idle iowait irq softirq steal guest guest_nice`. Guest time is already
    /// part of user time.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_ascii_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
        let all: u64 = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4).unwrap_or(&0);
        Some(Self { busy: all.saturating_sub(idle), all })
    }

    /// Returns the utilization in percent, or `None` if no tick has passed.
    fn percent_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        // On some kernels iowait can decrease, so that the difference could be negative.
        let busy = self.busy.saturating_sub(before.busy).min(all);
        Some(100.0 * real(busy) / real(all))
    }
}

/// The joint resource usage of processes; `None` if no process could be read.
#[derive(Debug, Default, PartialEq)]
struct Usage {
    cpu_s: Option<f64>,
    memory_bytes: Option<f64>,
    read_bytes: Option<f64>,
    written_bytes: Option<f64>,
}

impl Usage {
    fn of(pids: &[u32]) -> Self {
        let mut usage = Self::default();
        let add = |sum: &mut Option<f64>, value: Option<f64>| {
            *sum = value.map_or(*sum, |value| Some(sum.unwrap_or(0.0) + value));
        };
        let per_second = real(clock_ticks_per_second().max(1));
        let page = real(u64::try_from(page_size()).unwrap_or(4096));
        for pid in pids {
            let stat = Stat::of(*pid).ok().flatten();
            add(&mut usage.cpu_s, stat.map(|stat| real(stat.cpu_ticks) / per_second));
            let resident = fs::read_to_string(format!("/proc/{pid}/statm")).ok();
            let resident = resident.and_then(|text| text.split(' ').nth(1)?.parse().ok());
            add(&mut usage.memory_bytes, resident.map(|pages| real(pages) * page));
            let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
            add(&mut usage.read_bytes, count_of(&io, "read_bytes"));
            add(&mut usage.written_bytes, count_of(&io, "write_bytes"));
        }
        usage
    }
}

/// Parses the value of a line such as `read_bytes: 4096`.
fn count_of(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().parse().ok().map(real)
}

/// Returns a process and all living processes that it and its threads started, directly or indirectly.
pub(super) fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut known = BTreeSet::from([root]);
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        at += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            for child in children.split_ascii_whitespace().filter_map(|word| word.parse().ok()) {
                if found.len() < MAX_PROCESSES && known.insert(child) {
                    found.push(child);
                }
            }
        }
    }
    found
}

/// Whether a process with that id is visible from here.
pub fn process_is_visible(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Returns the processor packages with a readable energy counter, or the reason why there are none.
fn packages(powercap: &Path) -> (Vec<Package>, Option<String>) {
    let mut found = Vec::new();
    let mut reason = None;
    for directory in fs::read_dir(powercap).into_iter().flatten().flatten() {
        let name = directory.file_name().to_string_lossy().into_owned();
        // `intel-rapl:0` is a package, `intel-rapl:0:0` a part of one. The whole platform may have its own entry
        // besides its packages. AMD's processors use the same names.
        let Some(number) = name.strip_prefix("intel-rapl:").and_then(|number| number.parse().ok()) else { continue };
        if !fs::read_to_string(directory.path().join("name")).is_ok_and(|name| name.starts_with("package")) {
            continue;
        }
        let file = directory.path().join("energy_uj");
        let range_uj = read_count(&directory.path().join("max_energy_range_uj")).unwrap_or(u64::MAX - 1);
        match read_count(&file) {
            Ok(_) => {
                let range_uj = range_uj.saturating_add(1);
                found.push(Package { number, file, range_uj, last_uj: None, total_uj: 0 });
            }
            Err(error) => {
                let remedy = "root may read it; `chmod a+r` on it lets others";
                reason = Some(format!("`{}` cannot be read: {error} ({remedy})", file.display()));
            }
        }
    }
    found.sort_by_key(|package| package.number);
    // The energy of only some packages would not be that of all processors.
    if reason.is_some() {
        return (Vec::new(), reason);
    }
    if found.is_empty() {
        let place = powercap.display();
        reason = Some(format!("the kernel shows no energy counter of the processor (`{place}/intel-rapl:0`)"));
    }
    (found, reason)
}

impl Package {
    /// Returns the energy that the package has used since the first sample.
    fn look(&mut self) -> Option<Sample> {
        let t_ns = monotonic_ns();
        let now_uj = read_count(&self.file).ok()?;
        let end_ns = monotonic_ns();
        if let Some(last_uj) = self.last_uj.replace(now_uj) {
            self.total_uj += passed(last_uj, now_uj, self.range_uj);
        }
        let value = real(self.total_uj) / 1e6;
        let reading = Reading { quantity: Quantity::Energy, t_ns: t_ns + (end_ns - t_ns) / 2, value };
        Some(Sample { source: Source::Package(self.number), t_ns, cost_ns: end_ns - t_ns, readings: vec![reading] })
    }
}

/// Returns the increase of a counter that wraps around at `range`.
fn passed(last: u64, now: u64, range: u64) -> u64 {
    if now >= last { now - last } else { range.saturating_sub(last).saturating_add(now) }
}

fn read_count(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
}

/// Returns the beginning of a kernel file.
fn head(path: &str) -> Option<String> {
    let mut bytes = [0; 512];
    let read = fs::File::open(path).ok()?.read(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..read]).into_owned())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of bytes, ticks and microjoules stay far below 2^53 within an attempt"
)]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn utilization_is_a_difference() {
        let before = Busy::parse("cpu  100 0 50 800 50 0 0 0 30 0\ncpu0 1 2\n").unwrap();
        assert_eq!(before, Busy { busy: 150, all: 1000 });
        let after = Busy::parse("cpu  160 0 60 820 60 0 0 0 90 0\n").unwrap();
        assert_eq!(after.percent_since(before), Some(70.0));
        assert_eq!(before.percent_since(before), None);
        assert_eq!(before.percent_since(after), None);
        assert_eq!(Busy::parse("intr 1 2 3"), None);
    }

    #[test]
    fn a_process_just_started_by_the_worker_belongs_to_it() {
        let mut meter = HostMeter::at(Path::new("/nowhere"));
        meter.watch(std::process::id());
        assert!(meter.is_of_worker(std::process::id()) && !meter.is_of_worker(1));
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        assert!(meter.is_of_worker(child.id()));
        child.kill().and_then(|()| child.wait()).unwrap();
    }

    #[test]
    fn a_wrapped_counter_continues() {
        assert_eq!(passed(10, 30, 100), 20);
        assert_eq!(passed(90, 5, 100), 15);
        assert_eq!(passed(7, 7, 100), 0);
    }

    #[test]
    fn energy_of_packages_counts_from_the_first_sample() {
        let dir = tempfile::tempdir().unwrap();
        let package = |name: &str, energy: &str| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("name"), if name.ends_with('2') { "psys\n" } else { "package-0\n" }).unwrap();
            fs::write(path.join("energy_uj"), energy).unwrap();
            fs::write(path.join("max_energy_range_uj"), "9999999\n").unwrap();
            path
        };
        let first = package("intel-rapl:0", "9000000\n");
        package("intel-rapl:1", "5\n");
        package("intel-rapl:0:0", "7\n");
        package("intel-rapl:2", "9\n");
        let mut meter = HostMeter::at(dir.path());
        let energies = |meter: &mut HostMeter| -> Vec<(Source, f64)> {
            let (samples, unread) = meter.look();
            assert!(unread.is_empty());
            samples[1..].iter().map(|sample| (sample.source, sample.readings[0].value)).collect()
        };
        assert_eq!(energies(&mut meter), [(Source::Package(0), 0.0), (Source::Package(1), 0.0)]);
        fs::write(first.join("energy_uj"), "500000\n").unwrap();
        assert_eq!(energies(&mut meter), [(Source::Package(0), 1.5), (Source::Package(1), 0.0)]);
    }

    #[test]
    fn missing_energy_counters_are_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut meter = HostMeter::at(&dir.path().join("none"));
        let (_, unread) = meter.look();
        assert_eq!(unread.len(), 1);
        assert!(unread[0].2.starts_with("the kernel shows no energy counter of the processor"), "{unread:?}");
        assert!(meter.look().1.is_empty());
    }

    #[test]
    fn a_worker_is_sampled_with_its_children() {
        let mut worker =
            Command::new("sh").args(["-c", "sleep 600 & echo; wait"]).stdout(Stdio::piped()).spawn().unwrap();
        // The line is written after the child has been started.
        io::BufRead::read_line(&mut io::BufReader::new(worker.stdout.take().unwrap()), &mut String::new()).unwrap();
        let found = tree(worker.id());
        let mut meter = HostMeter::default();
        meter.watch(worker.id());
        let (samples, _) = meter.look();
        let quantities: Vec<Quantity> = samples[0].readings.iter().map(|reading| reading.quantity).collect();
        let child = found.get(1).copied();
        let knows_child = child.is_some_and(|child| meter.is_of_worker(child));
        let knows_itself = meter.is_of_worker(std::process::id());
        for pid in found {
            Command::new("kill").arg(pid.to_string()).status().unwrap();
        }
        worker.wait().unwrap();
        assert!(knows_child && !knows_itself);
        assert!(quantities.contains(&Quantity::WorkerCpuTime) && quantities.contains(&Quantity::WorkerMemory));
        assert!(process_is_visible(std::process::id()) && !process_is_visible(4_194_305));
    }

    #[test]
    fn missing_processes_have_no_usage() {
        assert_eq!(Usage::of(&[4_194_305]), Usage::default());
    }
}
