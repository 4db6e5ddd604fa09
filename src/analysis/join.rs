//! Joins phases with telemetry: the time and energy of each kind of phase.
//!
//! Knows only a sealed attempt. The energies are those of `energy`, which refuses those that may be another phase's.

use super::energy::Energy;
use super::hardware::{Hardware, gpus_of};
use super::resolution::mean_used;
use super::statistic::{median, real, seconds, share, total};
use super::telemetry::Given;
use super::training::stands;
use super::window::Windows;
use super::work::{samples_of_a_pass, trained_on};
use crate::record::{Phase, Quantity, Sealed, Source, Value};
use std::collections::{BTreeMap, BTreeSet};

/// All phases of one name, of one rank, on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseRow {
    /// The phases' name.
    pub name: String,
    /// The rank that reported them.
    pub rank: u32,
    /// The rank of the GPU; `None` for the processor, and for a rank without a GPU.
    pub gpu: Option<u32>,
    /// The number of phases.
    pub count: usize,
    /// Their time, in seconds.
    pub total_s: f64,
    /// The median time of one, in seconds.
    pub median_s: f64,
    /// Their time as a share of the attempt's.
    pub share: f64,
    /// The device's energy in that time, or why it is unknown.
    pub energy: Result<Energy, String>,
    /// The mean utilization of the GPU in percent, or why it is unknown.
    pub utilization: Result<f64, String>,
    /// NVML's GPM counters: the mean of each, or the reason for its absence; empty without a GPU.
    pub counters: Vec<(Quantity, Result<f64, String>)>,
    /// The number of samples trained on, if it is known for this kind of phase.
    pub samples: Option<f64>,
}

impl PhaseRow {
    /// The energy for one sample, in joules.
    pub fn joules_per_sample(&self) -> Option<f64> {
        let energy = self.energy.as_ref().ok()?;
        Some(energy.joules / self.samples.filter(|samples| *samples > 0.0)?)
    }
}

/// Joins an attempt's phases with its telemetry. Rows are sorted by the first appearance of the phases' name, then by rank.
pub fn join(sealed: &Sealed, telemetry: &dyn Given) -> Vec<PhaseRow> {
    let attempt = &sealed.attempt;
    let gpus = gpus_of(&sealed.run);
    let hardware = Hardware::of(telemetry, &sealed.run, attempt);
    let batch = attempt.facts.get("measure.samples_per_step").and_then(Value::as_int);
    let batch = batch.and_then(|batch| u64::try_from(batch).ok());
    let of_a_pass = samples_of_a_pass(&sealed.run);

    let mut kinds: BTreeMap<(u32, &str), Kind> = BTreeMap::new();
    for (order, phase) in sealed.phases.iter().enumerate() {
        let kind = kinds.entry((phase.rank, phase.name.as_str())).or_insert_with(|| Kind::new(order));
        kind.take(phase, attempt.wall_ns);
    }
    let speaking: BTreeSet<u32> = kinds.keys().map(|(rank, _)| *rank).collect();
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    for ((_, name), kind) in &kinds {
        first.entry(*name).and_modify(|first| *first = kind.order.min(*first)).or_insert(kind.order);
    }
    let mut in_order: Vec<(&(u32, &str), &Kind)> = kinds.iter().collect();
    in_order.sort_by_key(|((rank, name), _)| (first[name], *rank));
    let mut rows = Vec::new();
    for (&(rank, name), kind) in in_order {
        let windows = Windows::new(kind.intervals.iter().copied());
        let samples = kinds.get(&(rank, "step")).zip(batch).and_then(|(steps, batch)| {
            let steps = match name {
                "step" => u64::try_from(steps.intervals.len()).ok()?,
                "epoch" => steps.ends_in(&windows),
                _ => return None,
            };
            Some(trained_on(steps, batch, of_a_pass))
        });
        for gpu in devices_of(rank, gpus, &speaking) {
            let lengths: Vec<u64> = kind.intervals.iter().map(|(start, stop)| stop - start).collect();
            let total_ns = total(lengths.iter().copied());
            let told = kind.alone(&windows).and_then(|()| has_device(rank, gpus));
            rows.push(PhaseRow {
                name: name.to_owned(),
                rank,
                gpu,
                count: lengths.len(),
                total_s: seconds(total_ns),
                median_s: median(&lengths).unwrap_or_default() / 1e9,
                share: share(total_ns, attempt.wall_ns),
                energy: told.clone().and_then(|()| energy(&hardware, gpu, &windows)),
                utilization: told
                    .clone()
                    .and_then(|()| utilization(&hardware, gpu, Quantity::UtilizationGpu, &windows)),
                counters: counters(&told, &hardware, gpu, &windows),
                samples,
            });
        }
    }
    rows
}

/// The intervals of all phases of one name and rank.
struct Kind {
    order: usize,
    intervals: Vec<(u64, u64)>,
    /// The indices of the phases.
    indices: Vec<u64>,
}

impl Kind {
    fn new(order: usize) -> Self {
        Self { order, intervals: Vec::new(), indices: Vec::new() }
    }

    /// Adds a phase. One that was never stopped lasted to the end.
    fn take(&mut self, phase: &Phase, wall_ns: u64) {
        let stop_ns = phase.stop_ns.unwrap_or(wall_ns).max(phase.start_ns);
        self.intervals.push((phase.start_ns, stop_ns));
        self.indices.push(phase.index);
    }

    /// The number of phases that end in the windows, including those before each one that were not logged.
    fn ends_in(&self, windows: &Windows) -> u64 {
        let stands = self.intervals.iter().zip(stands(|| self.indices.iter().copied()));
        total(stands.filter(|((_, stop), _)| windows.holds(stop.saturating_sub(1))).map(|(_, stands)| stands))
    }

    /// Refuses phases that overlap in time: their energy would be that of several phases.
    fn alone(&self, windows: &Windows) -> Result<(), String> {
        let told = total(self.intervals.iter().map(|(start, stop)| stop - start));
        if real(told) > 1.01 * real(windows.length()) {
            return Err("several of them overlap in time".to_owned());
        }
        Ok(())
    }
}

/// The GPUs of a rank's phases: its own, and for the first rank also those of ranks without phases.
fn devices_of(rank: u32, gpus: u32, speaking: &BTreeSet<u32>) -> Vec<Option<u32>> {
    let own = (0..gpus).filter(|gpu| *gpu == rank || rank == 0 && !speaking.contains(gpu));
    let own: Vec<Option<u32>> = own.map(Some).collect();
    if own.is_empty() { vec![None] } else { own }
}

/// Refuses a rank beyond the run's GPUs: their energy is not its own.
fn has_device(rank: u32, gpus: u32) -> Result<(), String> {
    if gpus > 0 && rank >= gpus { Err(format!("rank {rank} has no GPU")) } else { Ok(()) }
}

fn energy(hardware: &Hardware<'_>, gpu: Option<u32>, windows: &Windows) -> Result<Energy, String> {
    let meters = match gpu {
        Some(rank) => hardware.meter(Source::Gpu(rank)).map(|meter| vec![(Source::Gpu(rank), meter)]),
        None => hardware.meters(),
    };
    Hardware::energy(meters.as_deref().map_err(String::as_str), "it", windows).map(|(_, sum)| sum)
}

fn utilization(
    hardware: &Hardware<'_>,
    gpu: Option<u32>,
    quantity: Quantity,
    windows: &Windows,
) -> Result<f64, String> {
    let Some(rank) = gpu else { return Err("no GPU is used".to_owned()) };
    let gauge = hardware.gauge(Source::Gpu(rank), quantity)?;
    mean_used(quantity, &gauge, windows).map_err(|reason| format!("it {reason}"))
}

fn counters(
    told: &Result<(), String>,
    hardware: &Hardware<'_>,
    gpu: Option<u32>,
    windows: &Windows,
) -> Vec<(Quantity, Result<f64, String>)> {
    let of = |quantity| told.clone().and_then(|()| utilization(hardware, gpu, quantity, windows));
    let quantities = Quantity::GPM.into_iter().filter(|_| gpu.is_some());
    quantities.map(|quantity| (quantity, of(quantity))).collect()
}

#[cfg(test)]
mod tests;
