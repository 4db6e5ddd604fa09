//! The GPUs that belong to a rank's phases, and the names of hosts, GPUs and tasks.

use super::EVENT_QUANTITIES;
use super::around::{holds_old, usual_interval_ns};
use crate::record::{Quantity, Sealed, Series, Source, Table, Value};
use std::collections::{BTreeMap, BTreeSet};

/// A GPU and its readings.
pub(super) struct Gpu<'a> {
    /// The rank of its host.
    pub(super) host: u32,
    /// Its serial number; if none is recorded, its UUID, or else `gpu.N`.
    pub(super) serial: String,
    pub(super) uuid: String,
    pub(super) series: [Option<&'a Series>; EVENT_QUANTITIES.len()],
    /// The usual time between two readings of its power, in nanoseconds.
    interval_ns: Option<u64>,
}

/// Hosts, GPUs and tasks of an attempt.
pub(super) struct Machines<'a> {
    hosts: Vec<String>,
    gpus: Vec<Gpu<'a>>,
    of_rank: BTreeMap<u32, Vec<usize>>,
    /// The level of each task, by the index of its phase.
    pub(super) levels: Option<Vec<String>>,
}

impl<'a> Machines<'a> {
    pub(super) fn new(sealed: &'a Sealed) -> Self {
        let series: BTreeMap<&str, &Series> =
            sealed.series.iter().map(|series| (series.name.as_str(), series)).collect();
        match sealed.attempt.facts.get("cluster").and_then(Value::as_table) {
            Some(cluster) => Self::of_cluster(cluster, &series),
            None => Self::of_run(sealed, &series),
        }
    }

    /// Those of an imported cluster: a rank is a host with its GPUs.
    fn of_cluster(cluster: &Table, series: &BTreeMap<&str, &'a Series>) -> Self {
        let (serials, uuids) = (texts(cluster, "gpu_serials"), texts(cluster, "gpu_uuids"));
        let rank = |item: &Value| item.as_int().and_then(|host| u32::try_from(host).ok()).unwrap_or(u32::MAX);
        let hosts_of: Vec<u32> = match cluster.get("gpu_hosts") {
            Some(Value::List(items)) => items.iter().map(rank).collect(),
            _ => Vec::new(),
        };
        let gpus: Vec<Gpu<'_>> = (0..)
            .zip(hosts_of.into_iter().zip(serials.into_iter().zip(uuids)))
            .map(|(number, (host, (serial, uuid)))| Gpu::new(number, host, serial, uuid, series))
            .collect();
        let levels = cluster.contains_key("task_levels").then(|| texts(cluster, "task_levels"));
        let mut of_rank: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        gpus.iter().enumerate().for_each(|(place, gpu)| of_rank.entry(gpu.host).or_default().push(place));
        Self { hosts: texts(cluster, "hosts"), gpus, of_rank, levels }
    }

    /// Those of a run: each rank has the GPU of its number. The first rank also has the GPUs of ranks without phases.
    fn of_run(sealed: &Sealed, series: &BTreeMap<&str, &'a Series>) -> Self {
        let facts = &sealed.attempt.facts;
        let text = |name: &str| facts.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let numbers = (0..).take_while(|number: &u32| {
            EVENT_QUANTITIES.iter().any(|quantity| find(series, *number, *quantity).is_some())
        });
        let gpus: Vec<Gpu<'_>> = numbers
            .map(|number| Gpu::new(number, number, String::new(), text(&format!("gpu.{number}.uuid")), series))
            .collect();
        let speaking: BTreeSet<u32> = sealed.phases.iter().map(|phase| phase.rank).collect();
        let mut of_rank: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (place, gpu) in gpus.iter().enumerate() {
            let rank = if speaking.contains(&gpu.host) { gpu.host } else { 0 };
            of_rank.entry(rank).or_default().push(place);
        }
        let host = text("host.name");
        let host = if host.is_empty() { "this host".to_owned() } else { host };
        let ranks = speaking.iter().next_back().map_or(1, |rank| rank.saturating_add(1)).min(1 << 16);
        Self { hosts: (0..ranks.max(1)).map(|_| host.clone()).collect(), gpus, of_rank, levels: None }
    }

    /// The number of different hosts.
    pub(super) fn hosts(&self) -> usize {
        self.hosts.iter().collect::<BTreeSet<_>>().len()
    }

    pub(super) fn gpus(&self) -> usize {
        self.gpus.len()
    }

    pub(super) fn gpus_of(&self, rank: u32) -> &[usize] {
        self.of_rank.get(&rank).map_or(&[], Vec::as_slice)
    }

    pub(super) fn gpu(&self, place: usize) -> &Gpu<'a> {
        &self.gpus[place]
    }

    pub(super) fn find(&self, number: u32) -> Option<&Gpu<'a>> {
        self.gpus.get(usize::try_from(number).ok()?)
    }

    /// The rank that a GPU belongs to.
    pub(super) fn rank_beside(&self, number: u32) -> Option<u32> {
        let place = usize::try_from(number).ok()?;
        self.of_rank.iter().find(|(_, places)| places.contains(&place)).map(|(rank, _)| *rank)
    }

    pub(super) fn has_twice(&self, serial: &str) -> bool {
        self.gpus.iter().filter(|gpu| gpu.serial == serial).nth(1).is_some()
    }

    pub(super) fn host(&self, rank: u32) -> &str {
        usize::try_from(rank).ok().and_then(|rank| self.hosts.get(rank)).map_or("?", String::as_str)
    }

    /// The level of the task with that index; empty if it has none.
    pub(super) fn level(&self, index: u64) -> &str {
        let levels = self.levels.as_deref().unwrap_or_default();
        usize::try_from(index).ok().and_then(|index| levels.get(index)).map_or("", String::as_str)
    }
}

impl<'a> Gpu<'a> {
    fn new(number: u32, host: u32, serial: String, uuid: String, series: &BTreeMap<&str, &'a Series>) -> Self {
        let called = [serial, uuid.clone(), format!("gpu.{number}")].into_iter().find(|name| !name.is_empty());
        let series = EVENT_QUANTITIES.map(|quantity| find(series, number, quantity));
        let interval_ns = series[0].and_then(|power| usual_interval_ns(&power.positions));
        Self { host, serial: called.unwrap_or_default(), uuid, series, interval_ns }
    }

    /// Whether an event's energy uses an old power reading. A single reading has no interval, and is never old.
    pub(super) fn holds_old_power(&self, start_ns: u64, stop_ns: u64) -> bool {
        let power = self.series[0].zip(self.interval_ns);
        power.is_some_and(|(power, interval_ns)| holds_old(&power.positions, interval_ns, start_ns, stop_ns))
    }
}

/// Finds a quantity of a GPU. For power, the instantaneous one is preferred to the average.
fn find<'a>(series: &BTreeMap<&str, &'a Series>, gpu: u32, quantity: Quantity) -> Option<&'a Series> {
    let of = |quantity| series.get(Source::Gpu(gpu).series(quantity).as_str()).copied();
    let other = || if quantity == Quantity::PowerInstant { of(Quantity::PowerAverage) } else { None };
    of(quantity).or_else(other)
}

fn texts(table: &Table, name: &str) -> Vec<String> {
    match table.get(name) {
        Some(Value::List(items)) => items.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}
