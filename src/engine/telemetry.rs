//! Samples the hardware while an attempt runs, on a separate thread, so that neither worker nor journal delays a
//! sample.
//!
//! Knows when to sample and what sampling costs. `gpu` and `host` know what is read, and how.

use super::Stop;
use super::calibrations::KeptCalibration;
use crate::gpu::{GpuInfo, GpuProcess, Gpus, Meter};
use crate::host::clock::{monotonic_ns, thread_cpu_ns};
use crate::host::machine;
use crate::host::meter::{HostMeter, process_is_visible};
use crate::record::{Entry, Quantity, Source, Table, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SECOND_NS: u64 = 1_000_000_000;
/// The interval between two lists of processes, which are expensive.
const PROCESSES_EVERY_NS: u64 = 10 * SECOND_NS;
/// The highest sampling rate of the host. It changes slower than GPUs, and a sample reads a file for each process.
const HOST_MAX_HZ: u32 = 10;
/// The longest wait for the first sample. NVML is initialised before it, which takes seconds on a machine with many
/// GPUs.
const FIRST_LOOK: Duration = Duration::from_secs(60);
/// The observer is informed of the wait after this time.
const SILENT: Duration = Duration::from_secs(3);

/// The sampled devices, and the sampling rate.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    /// The sampling rate. 0 disables sampling.
    pub(super) hz: u32,
    /// The GPUs of the run by rank.
    pub(super) gpus: Vec<GpuInfo>,
    /// The path of NVML, if it is not the usual one.
    pub(super) library: Option<PathBuf>,
    /// The ledger's folder, which may have calibrations of the GPUs' sensors.
    pub(super) ledger: Option<PathBuf>,
    /// Whether the worker is a single process on each GPU, so that every other process is foreign.
    pub(super) is_single: bool,
}

/// A command to the thread.
enum Order {
    /// Take a sample at once, because the attempt begins.
    Look,
    /// From now on sample the processes of this worker too.
    Watch(u32),
}

/// How long the driver may take to clean up after a worker on a GPU.
const CLEARED: Duration = Duration::from_secs(2);
/// The polling interval meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A sampling thread.
pub(super) struct Sampler {
    orders: Sender<Order>,
    entries: Receiver<Vec<Entry>>,
    thread: JoinHandle<()>,
}

impl Sampler {
    /// Starts sampling, and waits for the first sample or a request to stop. Calls `is_slow` once if that takes long.
    /// `None` if sampling is disabled.
    pub(super) fn start(watched: Watched, stop: &dyn Stop, is_slow: &dyn Fn()) -> Option<Self> {
        if watched.hz == 0 {
            return None;
        }
        let (orders, ordered) = channel();
        let (sender, entries) = channel();
        let (first, ready) = channel();
        let thread = std::thread::spawn(move || {
            let gpus = if watched.gpus.is_empty() { None } else { Some(Gpus::load(watched.library.as_deref())) };
            let mut looking = Looking::new(&watched, gpus.as_ref(), sender);
            let driver = gpus.as_ref().and_then(|gpus| gpus.as_ref().ok()?.driver_version().ok());
            looking.first(watched.ledger.as_deref(), driver.as_deref());
            let _ = first.send(());
            looking.go_on(&ordered);
        });
        // A library that hangs must not block the run.
        await_first(&ready, stop, SILENT, is_slow);
        Some(Self { orders, entries, thread })
    }

    /// Takes a sample at once. An attempt begins when its run is locked, and the first sample was before that.
    pub(super) fn look(&self) {
        let _ = self.orders.send(Order::Look);
    }

    /// From now on the processes of this worker are sampled too.
    pub(super) fn watch(&self, worker: u32) {
        let _ = self.orders.send(Order::Watch(worker));
    }

    /// The entries since the last call.
    pub(super) fn receive(&self) -> Vec<Entry> {
        self.entries.try_iter().flatten().collect()
    }

    /// Takes a last sample, and returns the remaining entries with the cost of sampling.
    pub(super) fn finish(self, patience: Duration) -> Vec<Entry> {
        drop(self.orders);
        let mut rest: Vec<Entry> = Vec::new();
        loop {
            match self.entries.recv_timeout(patience) {
                Ok(entries) => rest.extend(entries),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    rest.push(Entry::Warning(
                        "the GPU's library stopped responding; its last samples are missing".to_owned(),
                    ));
                    // The thread is left in its call without waiting for it.
                    return rest;
                }
            }
        }
        if self.thread.join().is_err() {
            rest.push(Entry::Warning("the thread that samples the hardware failed; its samples end early".to_owned()));
        }
        rest
    }
}

/// Waits for the first sample, and calls `is_slow` once after the time `silent`.
fn await_first(ready: &Receiver<()>, stop: &dyn Stop, silent: Duration, is_slow: &dyn Fn()) {
    let begin = Instant::now();
    let mut told = false;
    while ready.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout)
        && begin.elapsed() < FIRST_LOOK
        && stop.asked() == 0
    {
        if begin.elapsed() >= silent && !std::mem::replace(&mut told, true) {
            is_slow();
        }
    }
}

/// The numbers of samples due and taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    due: u64,
    taken: u64,
}

struct Looking<'a> {
    period_ns: u64,
    host_every: u64,
    ranks: u32,
    /// The machine's index of each rank's GPU.
    numbers: Vec<u32>,
    meter: Option<Meter<'a>>,
    host: HostMeter,
    has_worker: bool,
    is_single: bool,
    /// Foreign processes by rank and pid: all before the worker started, and later those that are not the worker's.
    foreign: BTreeSet<(u32, u32)>,
    /// The largest number of invisible processes that were on the GPUs at once and are certainly not the worker's.
    hidden: usize,
    /// GPUs with a warning that another process may compute there.
    suspected: BTreeSet<u32>,
    /// Since when a process was listed on a GPU but not visible. The driver may list a process of the worker for a
    /// while after its end.
    unseen: BTreeMap<(u32, u32), u64>,
    lost: BTreeSet<u32>,
    /// GPUs whose processes were listed at least once.
    listed: BTreeSet<u32>,
    /// The last reported reason why a GPU's processes could not be listed.
    unlisted: BTreeMap<u32, String>,
    processes_ns: u64,
    /// The memory error counts of each GPU before the attempt.
    errors: Vec<Option<[u64; 2]>>,
    /// The count of pages read back from swap before the attempt.
    swapped: Option<u64>,
    count: Count,
    to: Sender<Vec<Entry>>,
}

impl<'a> Looking<'a> {
    fn new(watched: &Watched, gpus: Option<&'a Result<Gpus, crate::gpu::GpuError>>, to: Sender<Vec<Entry>>) -> Self {
        let period_ns = SECOND_NS / u64::from(watched.hz.max(1));
        let ranks = u32::try_from(watched.gpus.len()).unwrap_or(0);
        let meter = match gpus {
            Some(Ok(gpus)) => {
                let mut meter = Meter::new(gpus, &watched.gpus, monotonic_ns);
                meter.set_period(period_ns);
                Some(meter)
            }
            Some(Err(error)) => {
                let unread = (0..ranks).flat_map(|rank| {
                    [Quantity::PowerInstant, Quantity::Energy].map(|quantity| Entry::Unread {
                        source: Source::Gpu(rank),
                        quantity,
                        reason: error.to_string(),
                    })
                });
                let _ = to.send(unread.collect());
                None
            }
            None => None,
        };
        Self {
            period_ns,
            host_every: u64::from(watched.hz.div_ceil(HOST_MAX_HZ).max(1)),
            ranks,
            numbers: watched.gpus.iter().map(|gpu| gpu.index).collect(),
            meter,
            host: HostMeter::default(),
            has_worker: false,
            is_single: watched.is_single,
            foreign: BTreeSet::new(),
            hidden: 0,
            suspected: BTreeSet::new(),
            unseen: BTreeMap::new(),
            lost: BTreeSet::new(),
            listed: BTreeSet::new(),
            unlisted: BTreeMap::new(),
            processes_ns: 0,
            errors: Vec::new(),
            swapped: None,
            count: Count::default(),
            to,
        }
    }

    fn first(&mut self, ledger: Option<&Path>, driver: Option<&str>) {
        let mut entries = Vec::new();
        if let Some(meter) = &mut self.meter {
            let found = meter.facts();
            if let (Some(ledger), Some(driver)) = (ledger, driver) {
                entries.extend(calibrations(ledger, driver, &found, self.ranks));
            }
            entries.extend(facts(found));
        }
        self.errors = self.memory_errors();
        self.swapped = machine::swapped_in_pages();
        entries.extend(self.processes());
        entries.extend(self.look(true));
        let _ = self.to.send(entries);
    }

    fn memory_errors(&mut self) -> Vec<Option<[u64; 2]>> {
        let Some(meter) = &mut self.meter else { return Vec::new() };
        (0..self.ranks).map(|rank| meter.memory_errors(rank)).collect()
    }

    /// Facts about disturbances: memory errors, power limits and swapping.
    fn disturbances(&mut self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (rank, (before, after)) in self.errors.clone().into_iter().zip(self.memory_errors()).enumerate() {
            let Some((before, after)) = before.zip(after) else { continue };
            for (place, kind) in ["corrected", "uncorrected"].into_iter().enumerate() {
                let grown = after[place].saturating_sub(before[place]);
                entries.push(fact(&format!("gpu.{rank}.ecc_{kind}_errors"), grown.into()));
            }
        }
        for rank in 0..self.ranks {
            // A changed power limit has changed the measurement.
            let limit = self.meter.as_mut().and_then(|meter| meter.power_limit_w(rank));
            entries.extend(limit.map(|watts| fact(&format!("gpu.{rank}.power_limit_after_w"), watts.into())));
        }
        let swapped = self.swapped.zip(machine::swapped_in_pages());
        entries
            .extend(swapped.map(|(before, after)| fact("host.swapped_in_pages", after.saturating_sub(before).into())));
        entries
    }

    fn go_on(&mut self, orders: &Receiver<Order>) {
        let mut due_ns = monotonic_ns() + self.period_ns;
        loop {
            let patience = Duration::from_nanos(due_ns.saturating_sub(monotonic_ns()));
            match orders.recv_timeout(patience) {
                Ok(Order::Watch(worker)) => {
                    self.has_worker = true;
                    self.host.watch(worker);
                    continue;
                }
                Ok(Order::Look) => {
                    due_ns = monotonic_ns() + self.period_ns;
                    let entries = self.look(true);
                    if self.to.send(entries).is_err() {
                        return;
                    }
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let (late, next_ns) = next_due(due_ns, monotonic_ns(), self.period_ns);
            due_ns = next_ns;
            self.count.due += late;
            let mut entries = self.look(false);
            if monotonic_ns().saturating_sub(self.processes_ns) >= PROCESSES_EVERY_NS {
                entries.extend(self.processes());
            }
            if self.to.send(entries).is_err() {
                return;
            }
        }
        let mut entries = self.left();
        entries.extend(self.look(true));
        entries.extend(self.disturbances());
        entries.extend(self.cost());
        let _ = self.to.send(entries);
    }

    fn look(&mut self, whole: bool) -> Vec<Entry> {
        let mut entries = Vec::new();
        if let Some(meter) = &mut self.meter {
            for rank in 0..self.ranks {
                let look = meter.look(rank);
                let source = Source::Gpu(rank);
                entries.push(Entry::Sample(look.sample));
                entries.extend(look.unread.into_iter().map(|(quantity, reason)| Entry::Unread {
                    source,
                    quantity,
                    reason,
                }));
                if look.lost && self.lost.insert(rank) {
                    let lost: Vec<Value> = self.lost.iter().map(|rank| Value::from(*rank)).collect();
                    entries.push(fact("telemetry.lost_gpus", Value::List(lost)));
                    entries.push(Entry::Warning(format!(
                        "{} was lost (it fell off the bus or was reset: see `dmesg` and `nvidia-smi`)",
                        named(&self.numbers, rank)
                    )));
                }
            }
        }
        if whole || self.count.taken.is_multiple_of(self.host_every) {
            let (samples, unread) = self.host.look();
            entries.extend(samples.into_iter().map(Entry::Sample));
            entries.extend(unread.into_iter().map(|(source, quantity, reason)| Entry::Unread {
                source,
                quantity,
                reason,
            }));
        }
        self.count.due += 1;
        self.count.taken += 1;
        entries
    }

    /// Checks for foreign processes on the GPUs.
    fn processes(&mut self) -> Vec<Entry> {
        let mut entries = Vec::new();
        if self.meter.is_none() {
            return entries;
        }
        let mut several = BTreeMap::new();
        for rank in 0..self.ranks {
            let gpu = named(&self.numbers, rank);
            // Only of this list, because the worker's own processes may come and go.
            let mut hidden = Vec::new();
            let listed = self.list(rank, &mut entries);
            let seen: Vec<Seen> = listed.iter().map(|process| self.seen(process.pid)).collect();
            let now_ns = monotonic_ns();
            let pids = listed.iter().map(|process| process.pid);
            let lingers = lingering(&mut self.unseen, rank, pids.zip(&seen), now_ns);
            for (process, whose) in listed.iter().zip(whose(&seen, &lingers)) {
                let known = (rank, process.pid);
                if whose == Whose::Unknown {
                    if !self.foreign.contains(&known) {
                        hidden.push(process.pid);
                    }
                } else if whose == Whose::Foreign && self.foreign.insert(known) {
                    let memory = process.memory_bytes.map_or(String::new(), |bytes| format!(", {} MiB", bytes >> 20));
                    entries.push(Entry::Warning(format!(
                        "process {}{memory} uses {gpu} too: the samples include its power and its utilization",
                        process.pid
                    )));
                }
            }
            // All of them may belong to an external program's worker, so this is a warning and no taint.
            if hidden.len() > 1 && self.suspected.insert(rank) {
                let other =
                    if self.is_single { "one of them alone is the worker's" } else { "one of them may be foreign" };
                entries.push(Entry::Warning(format!(
                    "{} processes that are not visible from here use {gpu} at once: {other}",
                    hidden.len()
                )));
            }
            if self.is_single && hidden.len() > 1 {
                raise(&mut several, &hidden);
            }
        }
        self.hidden = self.hidden.max(several.values().sum::<usize>().saturating_sub(1));
        self.processes_ns = monotonic_ns();
        entries.extend(self.others());
        entries
    }

    /// The visibility of a process that NVML lists.
    fn seen(&mut self, pid: u32) -> Seen {
        match (self.has_worker, process_is_visible(pid)) {
            (false, _) => Seen::Another,
            (true, false) => Seen::Nothing,
            (true, true) if self.host.is_of_worker(pid) => Seen::Workers,
            (true, true) => Seen::Another,
        }
    }

    /// The processes on a GPU. Empty if NVML cannot list them: the reason is then recorded once.
    fn list(&mut self, rank: u32, entries: &mut Vec<Entry>) -> Vec<GpuProcess> {
        let told = self.meter.as_mut().map_or_else(|| Ok(Vec::new()), |meter| meter.processes(rank));
        match told {
            Ok(processes) => {
                self.listed.insert(rank);
                processes
            }
            Err(reason) => {
                if self.unlisted.get(&rank) != Some(&reason) {
                    entries.push(fact(&format!("telemetry.unread.gpu.{rank}.processes"), reason.as_str().into()));
                    self.unlisted.insert(rank, reason);
                }
                Vec::new()
            }
        }
    }

    /// The number of foreign processes, each counted once whatever its GPUs. Unknown if none was seen and a GPU's
    /// processes could never be listed.
    fn others(&self) -> Option<Entry> {
        let visible: BTreeSet<u32> = self.foreign.iter().map(|(_, pid)| *pid).collect();
        let seen = visible.len() + self.hidden;
        let is_known = seen > 0 || (0..self.ranks).all(|rank| self.listed.contains(&rank));
        is_known.then(|| fact("telemetry.foreign_processes", seen.into()))
    }

    /// Checks for processes on the GPUs after the worker has ended and the driver had time to clean up. There should be
    /// none.
    fn left(&mut self) -> Vec<Entry> {
        let mut entries = self.processes();
        if self.meter.is_none() || !self.has_worker {
            return entries;
        }
        let begin = Instant::now();
        let mut found: Vec<(u32, Vec<u32>)> = Vec::new();
        loop {
            found.clear();
            for rank in 0..self.ranks {
                let there = self.list(rank, &mut entries);
                let new = |pid: &u32| !self.foreign.contains(&(rank, *pid)) && !process_is_visible(*pid);
                let there: Vec<u32> = there.iter().map(|process| process.pid).filter(new).collect();
                found.extend((!there.is_empty()).then_some((rank, there)));
            }
            if found.is_empty() || begin.elapsed() > CLEARED {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let mut several = BTreeMap::new();
        for (rank, there) in &found {
            raise(&mut several, there);
            entries.push(Entry::Warning(format!(
                "after the worker has ended {} is in use by {} not visible from here: not the worker's",
                named(&self.numbers, *rank),
                crate::record::count(there.len(), "process")
            )));
        }
        self.hidden = self.hidden.max(several.values().sum());
        entries.extend(self.others());
        entries
    }

    fn cost(&self) -> Vec<Entry> {
        let Count { due, taken } = self.count;
        let mut entries = vec![
            fact("telemetry.period_ns", self.period_ns.into()),
            fact("telemetry.samples_due", due.into()),
            fact("telemetry.samples_taken", taken.into()),
            fact("telemetry.samples_dropped", (due - taken).into()),
            fact("telemetry.cpu_ns", thread_cpu_ns().into()),
        ];
        entries.extend(self.meter.iter().flat_map(|meter| facts(meter.cost())));
        entries
    }
}

/// The calibrations of the GPUs as facts. An unreadable file is a warning, and the defaults are assumed.
fn calibrations(ledger: &Path, driver: &str, facts: &Table, ranks: u32) -> Vec<Entry> {
    let text = |rank: u32, name: &str| facts.get(&format!("gpu.{rank}.{name}")).and_then(Value::as_str);
    let of_rank = |rank: u32| match KeptCalibration::find(ledger, text(rank, "name")?, text(rank, "vbios"), driver) {
        Ok(kept) => Some(fact(&format!("gpu.{rank}.calibration"), kept?.table.into())),
        Err(error) => Some(Entry::Warning(format!("{error}; energies assume default sensor timing for GPU {rank}"))),
    };
    (0..ranks).filter_map(of_rank).collect()
}

/// The number of missed samples if one that was due comes this late, and the time of the next. The phase of the period
/// is kept.
fn next_due(due_ns: u64, now_ns: u64, period_ns: u64) -> (u64, u64) {
    let period_ns = period_ns.max(1);
    let missed = now_ns.saturating_sub(due_ns) / period_ns;
    (missed, due_ns + (missed + 1) * period_ns)
}

fn fact(name: &str, value: Value) -> Entry {
    Entry::Fact { name: name.to_owned(), value }
}

/// Turns facts into entries.
pub(super) fn facts(table: Table) -> Vec<Entry> {
    table.into_iter().map(|(name, value)| Entry::Fact { name, value }).collect()
}

/// Adds the processes of one more GPU. A pid counts once, whatever its GPUs. NVML may list hidden processes with the
/// same pid: then the largest number on one GPU counts.
fn raise(most: &mut BTreeMap<u32, usize>, pids: &[u32]) {
    for pid in pids {
        let many = pids.iter().filter(|other| *other == pid).count();
        let most = most.entry(*pid).or_default();
        *most = many.max(*most);
    }
}

/// The name of a GPU for messages: its rank, and the machine's index if that differs.
fn named(numbers: &[u32], rank: u32) -> String {
    let number = usize::try_from(rank).ok().and_then(|rank| numbers.get(rank));
    match number {
        Some(number) if *number != rank => format!("GPU {rank} (number {number} of the machine)"),
        _ => format!("GPU {rank}"),
    }
}

/// The visibility of a process on a GPU from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Workers,
    Another,
    Nothing,
}

/// The owner of a process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Workers,
    Foreign,
    Unknown,
}

/// Determines the owners of the processes on one GPU.
///
/// In a container NVML lists the host's pids, which mean nothing here: one of them is the worker. If it lists a pid of
/// the worker, its pids are valid here. Then a process that stays invisible for longer than the driver needs to clean
/// up belongs to another user, whose processes are hidden.
fn whose(seen: &[Seen], lingers: &[bool]) -> Vec<Whose> {
    let is_told_by_our_numbers = seen.contains(&Seen::Workers);
    let of = |(seen, lingers): (&Seen, &bool)| match seen {
        Seen::Workers => Whose::Workers,
        Seen::Another => Whose::Foreign,
        Seen::Nothing if is_told_by_our_numbers && *lingers => Whose::Foreign,
        Seen::Nothing => Whose::Unknown,
    };
    seen.iter().zip(lingers).map(of).collect()
}

/// For each listed process, whether it was invisible in every list for longer than [`CLEARED`].
fn lingering<'a>(
    unseen: &mut BTreeMap<(u32, u32), u64>,
    rank: u32,
    listed: impl Iterator<Item = (u32, &'a Seen)>,
    now_ns: u64,
) -> Vec<bool> {
    let mut now = BTreeMap::new();
    let of = |(pid, seen): (u32, &Seen)| {
        let since = unseen.get(&(rank, pid)).copied().unwrap_or(now_ns);
        let is_unseen = *seen == Seen::Nothing;
        is_unseen.then(|| now.insert((rank, pid), since));
        is_unseen && Duration::from_nanos(now_ns.saturating_sub(since)) > CLEARED
    };
    let lingers = listed.map(of).collect();
    unseen.retain(|(other, _), _| *other != rank);
    unseen.extend(now);
    lingers
}

#[cfg(test)]
mod tests;
