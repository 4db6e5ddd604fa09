//! Reads what the GPUs of a run draw, do and suffer, through NVML, and keeps account of what the reading costs.
//!
//! It knows how each quantity is read, which reading is dear and which this card or driver does not have. It has no clock (one is
//! handed in), no thread and no memory of what was read: when to look, and where a look goes, is the caller's.
//!
//! Power, the energy counter and the counters of PCIe come from one batched call at each look. The rest is one call each, and a
//! call can take milliseconds on a virtual machine: where they cost too much they are read at every k-th look only. The GPM counters
//! are renewed ten times a second, and are read at every second look at that rate.

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

/// What one look at a GPU gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// What was read. A quantity that was not due at this look is neither in it nor in `unread`.
    pub sample: Sample,
    /// What could not be read, and why: at the first time and when the reason changes.
    pub unread: Vec<(Quantity, String)>,
    /// Whether NVML says that the GPU is lost: fallen off the bus, or inaccessible for another reason.
    pub lost: bool,
}

/// A process that computes on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its id, as the driver's own process namespace has it.
    pub pid: u32,
    /// The GPU's memory that it has, where the driver tells.
    pub memory_bytes: Option<u64>,
}

/// Reads the GPUs of a run.
pub struct Meter<'a> {
    gpus: &'a Gpus,
    cards: Vec<Card<'a>>,
    timer: Timer,
    secondary: Mean,
    period_ns: u64,
}

impl<'a> Meter<'a> {
    /// A meter of these GPUs, in the order of the ranks. `clock` gives `CLOCK_MONOTONIC` nanoseconds.
    ///
    /// A GPU that NVML does not find is looked for again at each look.
    pub fn new(gpus: &'a Gpus, used: &[GpuInfo], clock: fn() -> u64) -> Self {
        let mut timer = Timer::new(clock);
        let cards = used.iter().map(|info| Card::new(gpus, info.clone(), &mut timer)).collect();
        Self { gpus, cards, timer, secondary: Mean::default(), period_ns: 0 }
    }

    /// Says how often each GPU will be looked at, so that what is dear can be read less often; unsaid, everything is read at
    /// each look.
    pub fn set_period(&mut self, period_ns: u64) {
        self.period_ns = period_ns;
    }

    /// What is read once: `gpu.<rank>.<name>` for each GPU; of several, `gpu.topology` with the closest common ancestor of
    /// each pair, `0-1`, by NVML's names. What cannot be read is `gpu.<rank>.unread.<name>`, with the reason.
    ///
    /// The link's generation is what it is at this moment: an idle card slows it down, hence its maximum beside it.
    pub fn facts(&mut self) -> Table {
        facts::facts(self.gpus, &mut self.cards, &mut self.timer)
    }

    /// One look at the GPU of a rank.
    ///
    /// A reading's time is the middle of the call that read it. A quantity that this card, its driver or NVML's library does not
    /// have is asked for once; any other failure is tried again at each look. The power of the last second may come from
    /// `nvmlDeviceGetPowerUsage` where the driver has no field for it, but only on Ampere and newer: before, and on the A100's
    /// chip, that function gives the power of the moment, and is read as such. The counters of PCIe have no other source that is
    /// worth its price: `nvmlDeviceGetPcieThroughput` watches the bus for 20 ms at each call.
    pub fn look(&mut self, rank: u32) -> Look {
        self.see(rank, Some(self.secondary_every()))
    }

    /// A look at nothing but the power of a GPU and its counter of energy, which is as fast as NVML gives them.
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

    /// The processes that compute on the GPU of a rank: a call to make rarely, for it takes longer than a look.
    ///
    /// # Errors
    /// If NVML does not tell.
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

    /// Errors in the memory of the GPU of a rank since the driver was loaded, corrected and not. None where the card does not count
    /// them, or NVML does not tell.
    pub fn memory_errors(&mut self, rank: u32) -> Option<[u64; 2]> {
        let card = usize::try_from(rank).ok().and_then(|rank| self.cards.get_mut(rank))?;
        let device = card.device(self.gpus, &mut self.timer).ok()?;
        let mut count = |kind| self.timer.time("ecc", || device.total_ecc_errors(kind, EccCounter::Volatile)).0.ok();
        Some([count(MemoryError::Corrected)?, count(MemoryError::Uncorrected)?])
    }

    /// The power limit of the GPU of a rank, in watts; none where NVML does not tell.
    pub fn power_limit_w(&mut self, rank: u32) -> Option<f64> {
        let card = usize::try_from(rank).ok().and_then(|rank| self.cards.get_mut(rank))?;
        let device = card.device(self.gpus, &mut self.timer).ok()?;
        self.timer.time("facts", || device.power_management_limit()).0.ok().map(|mw| f64::from(mw) / 1e3)
    }

    /// What NVML cost so far: the number of its calls and their time, by kind, as `telemetry.nvml.<kind>.calls` and `.ns`; and
    /// `telemetry.gpu.secondary_every`: at one look in so many the quantities are read that are not part of the batched call.
    pub fn cost(&self) -> Table {
        let mut table = self.timer.table();
        table.insert("telemetry.gpu.secondary_every".to_owned(), self.secondary_every().into());
        table
    }

    fn secondary_every(&self) -> u64 {
        every(self.secondary.ns(), self.cards.len(), self.period_ns)
    }
}

/// What went wrong with a call, for people; the same text for the same fault.
fn reason(what: &str, error: &NvmlError) -> String {
    match error {
        NvmlError::GpuLost => "the GPU is lost: it fell off the bus or is inaccessible".to_owned(),
        // The loader's own text holds the library's path.
        NvmlError::FailedToLoadSymbol(_) => format!("the driver's library has no `{what}`"),
        error => format!("`{what}`: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_may_go_to_the_thread_that_looks() {
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
