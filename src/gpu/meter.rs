//! Samples the GPUs of a run through NVML, and accounts for the cost of sampling.
//!
//! It knows how each quantity is read, which calls are expensive, and which quantities this GPU or driver lacks. It has
//! no clock of its own, no thread and no history: the caller decides when to sample and where samples go.
//!
//! Power, the energy counter and the PCIe counters come from one batched call per sample. Every other quantity needs
//! its own call, which can take milliseconds on a virtual machine. If these cost too much, they are read only at every
//! k-th sample. The GPM counters are renewed ten times a second. At that sampling rate they are read at every second
//! sample.

mod card;
mod cost;
mod facts;
mod gpm;

use super::{GpuInfo, Gpus};
use card::Card;
use cost::{Mean, Timer, every};
use ledger_record::{Quantity, Sample, Source, Table};
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

/// The result of sampling one GPU once.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// The readings. A quantity that was not due is neither here nor in `unread`.
    pub sample: Sample,
    /// The quantities that could not be read, with the reason: reported once, and again when the reason changes.
    pub unread: Vec<(Quantity, String)>,
    /// Whether NVML reports the GPU as lost: fallen off the bus, or otherwise inaccessible.
    pub lost: bool,
}

/// A process that computes on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its id in the driver's PID namespace.
    pub pid: u32,
    /// Its GPU memory in bytes, if the driver reports it.
    pub memory_bytes: Option<u64>,
}

/// Samples the GPUs of a run.
pub struct Meter<'a> {
    gpus: &'a Gpus,
    cards: Vec<Card<'a>>,
    timer: Timer,
    secondary: Mean,
    period_ns: u64,
}

impl<'a> Meter<'a> {
    /// Creates a meter for these GPUs, in the order of their ranks. `clock` returns `CLOCK_MONOTONIC` nanoseconds.
    ///
    /// If NVML does not find a GPU, each sample searches for it again.
    pub fn new(gpus: &'a Gpus, used: &[GpuInfo], clock: fn() -> u64) -> Self {
        let mut timer = Timer::new(clock);
        let cards = used.iter().map(|info| Card::new(gpus, info.clone(), &mut timer)).collect();
        Self { gpus, cards, timer, secondary: Mean::default(), period_ns: 0 }
    }

    /// Sets the sampling period, so that expensive quantities are read less often. Without it, every sample reads
    /// everything.
    pub fn set_period(&mut self, period_ns: u64) {
        self.period_ns = period_ns;
    }

    /// Reads the facts that are recorded once: `gpu.<rank>.<name>` for each GPU. With several GPUs, `gpu.topology` has
    /// the closest common ancestor of each pair (`0-1`), by NVML's names. `gpu.<rank>.unread.<name>` has the reason why
    /// a fact could not be read.
    ///
    /// The PCIe generation is the current one. An idle GPU slows its link down, so the maximum is recorded too.
    pub fn facts(&mut self) -> Table {
        facts::facts(self.gpus, &mut self.cards, &mut self.timer)
    }

    /// Samples the GPU of a rank.
    ///
    /// A reading's time is the middle of the call that read it. A quantity that the GPU, driver or NVML library lacks
    /// is requested once; after any other failure it is requested again at each sample.
    ///
    /// If the driver has no field for the average power, it comes from `nvmlDeviceGetPowerUsage`, which averages over 1
    /// s. That holds only for Ampere and newer: on older GPUs and on the A100's chip the function returns instantaneous
    /// power, and is read as such. The PCIe counters have no affordable substitute: `nvmlDeviceGetPcieThroughput` takes
    /// 20 ms per call.
    pub fn look(&mut self, rank: u32) -> Look {
        self.see(rank, Some(self.secondary_every()))
    }

    /// Samples only the power and the energy counter of a GPU, as fast as NVML allows.
    pub fn glance(&mut self, rank: u32) -> Look {
        self.see(rank, None)
    }

    fn see(&mut self, rank: u32, every: Option<u64>) -> Look {
        let t_ns = self.timer.now();
        let position = usize::try_from(rank).unwrap_or(usize::MAX);
        let seen = match self.cards.get_mut(position) {
            Some(card) => card.look(self.gpus, every, &mut self.timer, &mut self.secondary),
            None => card::Seen::nothing("the run has no GPU of that rank"),
        };
        let cost_ns = self.timer.now().saturating_sub(t_ns);
        let sample = Sample { source: Source::Gpu(rank), t_ns, cost_ns, readings: seen.readings };
        Look { sample, unread: seen.unread, lost: seen.lost }
    }

    /// Returns the processes that compute on the GPU of a rank. The call takes longer than a sample, so call it rarely.
    ///
    /// # Errors
    /// If NVML does not report them.
    pub fn processes(&mut self, rank: u32) -> Result<Vec<GpuProcess>, String> {
        const FUNCTION: &str = "nvmlDeviceGetComputeRunningProcesses_v3";
        let card = usize::try_from(rank).ok().and_then(|rank| self.cards.get_mut(rank));
        let card = card.ok_or_else(|| "the run has no GPU of that rank".to_owned())?;
        let device = card.device(self.gpus, &mut self.timer)?;
        let (answer, _) = self.timer.time("processes", || device.running_compute_processes());
        let processes = answer.map_err(|error| reason(FUNCTION, &error))?;
        let process = |process: nvml_wrapper::struct_wrappers::device::ProcessInfo| GpuProcess {
            pid: process.pid,
            memory_bytes: match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        };
        Ok(processes.into_iter().map(process).collect())
    }

    /// Returns the corrected and uncorrected memory errors of a rank's GPU since the driver was loaded, or `None` if
    /// the GPU does not count them or NVML does not report them.
    pub fn memory_errors(&mut self, rank: u32) -> Option<[u64; 2]> {
        let card = usize::try_from(rank).ok().and_then(|rank| self.cards.get_mut(rank))?;
        let device = card.device(self.gpus, &mut self.timer).ok()?;
        let mut count = |kind| self.timer.time("ecc", || device.total_ecc_errors(kind, EccCounter::Volatile)).0.ok();
        Some([count(MemoryError::Corrected)?, count(MemoryError::Uncorrected)?])
    }

    /// Returns the power limit of a rank's GPU in watts, or `None` if NVML does not report it.
    pub fn power_limit_w(&mut self, rank: u32) -> Option<f64> {
        let card = usize::try_from(rank).ok().and_then(|rank| self.cards.get_mut(rank))?;
        let device = card.device(self.gpus, &mut self.timer).ok()?;
        self.timer.time("facts", || device.power_management_limit()).0.ok().map(|mw| f64::from(mw) / 1e3)
    }

    /// Returns the cost of NVML so far: calls and nanoseconds by type, as `telemetry.nvml.<type>.calls` and `.ns`.
    /// `telemetry.gpu.secondary_every` is k if the quantities outside of the batched call are read at every k-th
    /// sample.
    pub fn cost(&self) -> Table {
        let mut table = self.timer.table();
        table.insert("telemetry.gpu.secondary_every".to_owned(), self.secondary_every().into());
        table
    }

    fn secondary_every(&self) -> u64 {
        every(self.secondary.ns(), self.cards.len(), self.period_ns)
    }
}

/// Describes a failed call; the same fault always gives the same text.
fn reason(what: &str, error: &NvmlError) -> String {
    match error {
        NvmlError::GpuLost => "the GPU is lost: it fell off the bus or is inaccessible".to_owned(),
        // The loader's own text contains the library's path.
        NvmlError::FailedToLoadSymbol(_) => format!("the driver's library has no `{what}`"),
        error => format!("`{what}`: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_is_send() {
        fn sendable<T: Send>() {}
        sendable::<Meter<'_>>();
    }

    #[test]
    fn reasons_name_the_call_and_no_path() {
        let missing = NvmlError::FailedToLoadSymbol("/some/where/libnvidia-ml.so.1: undefined symbol".into());
        assert_eq!(reason("nvmlX", &missing), "the driver's library has no `nvmlX`");
        let expected = "`nvmlX`: the current user does not have permission to perform this operation";
        assert_eq!(reason("nvmlX", &NvmlError::NoPermission), expected);
        assert_eq!(reason("nvmlX", &NvmlError::GpuLost), reason("nvmlY", &NvmlError::GpuLost));
    }
}
