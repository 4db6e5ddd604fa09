//! Readings of the hardware, with device, time and cost.

use std::fmt;

/// A measured quantity. The names are NVML's if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// The power that the board draws at this moment (`NVML_FI_DEV_POWER_INSTANT`).
    PowerInstant,
    /// The power averaged over the last second by the board (`NVML_FI_DEV_POWER_AVERAGE`).
    PowerAverage,
    /// The board's energy counter since the driver was loaded, or a processor package's since it overflowed.
    Energy,
    /// The temperature of the GPU's die.
    Temperature,
    /// The share of the last sample period in which a kernel ran.
    UtilizationGpu,
    /// The share of the last sample period in which memory was read or written.
    UtilizationMemory,
    /// Memory in use by any process.
    MemoryUsed,
    /// The clock of the multiprocessors.
    ClockSm,
    /// The clock of the memory.
    ClockMemory,
    /// Why the clocks are lower than they could be: the bits of `nvmlClocksThrottleReasons`.
    ThrottleReasons,
    /// Bytes sent over PCIe, as a counter.
    PcieTx,
    /// Bytes received over PCIe, as a counter.
    PcieRx,
    /// The share of all processors' time that was not idle since the last reading.
    UtilizationCpu,
    /// Processor time of the worker and all processes that it started.
    WorkerCpuTime,
    /// Resident memory of the worker and all processes that it started.
    WorkerMemory,
    /// Bytes that the worker and all processes that it started read from storage.
    WorkerIoRead,
    /// Bytes that the worker and all processes that it started wrote to storage.
    WorkerIoWritten,
    /// The share of the time in which a multiprocessor had a warp, mean over the multiprocessors (`NVML_GPM_METRIC_SM_UTIL`).
    SmActive,
    /// Warps that were resident, as a share of the most that the multiprocessors hold (`NVML_GPM_METRIC_SM_OCCUPANCY`).
    SmOccupancy,
    /// The share of the time in which tensor cores worked, in any number format (`NVML_GPM_METRIC_ANY_TENSOR_UTIL`).
    TensorActive,
    /// The share of the memory's bandwidth that was used (`NVML_GPM_METRIC_DRAM_BW_UTIL`).
    DramUtil,
    /// Bytes sent over PCIe a second, headers of packets included (`NVML_GPM_METRIC_PCIE_TX_PER_SEC`).
    PcieTxRate,
    /// Bytes received over PCIe a second, headers of packets included (`NVML_GPM_METRIC_PCIE_RX_PER_SEC`).
    PcieRxRate,
    /// Bytes sent over all NVLinks a second (`NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC`).
    NvlinkTxRate,
    /// Bytes received over all NVLinks a second (`NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC`).
    NvlinkRxRate,
}

impl Quantity {
    /// Every quantity. The position of each is its code on disk: new ones are added at the end.
    pub const ALL: [Self; 25] = [
        Self::PowerInstant,
        Self::PowerAverage,
        Self::Energy,
        Self::Temperature,
        Self::UtilizationGpu,
        Self::UtilizationMemory,
        Self::MemoryUsed,
        Self::ClockSm,
        Self::ClockMemory,
        Self::ThrottleReasons,
        Self::PcieTx,
        Self::PcieRx,
        Self::UtilizationCpu,
        Self::WorkerCpuTime,
        Self::WorkerMemory,
        Self::WorkerIoRead,
        Self::WorkerIoWritten,
        Self::SmActive,
        Self::SmOccupancy,
        Self::TensorActive,
        Self::DramUtil,
        Self::PcieTxRate,
        Self::PcieRxRate,
        Self::NvlinkTxRate,
        Self::NvlinkRxRate,
    ];

    /// NVML's GPU performance monitoring (GPM): each reading is a mean over the time since the reading before it.
    pub const GPM: [Self; 8] = [
        Self::SmActive,
        Self::SmOccupancy,
        Self::TensorActive,
        Self::DramUtil,
        Self::PcieTxRate,
        Self::PcieRxRate,
        Self::NvlinkTxRate,
        Self::NvlinkRxRate,
    ];

    /// The name in a series' name.
    pub fn name(self) -> &'static str {
        match self {
            Self::PowerInstant => "power_instant",
            Self::PowerAverage => "power_average",
            Self::Energy => "energy",
            Self::Temperature => "temperature",
            Self::UtilizationGpu => "utilization_gpu",
            Self::UtilizationMemory => "utilization_memory",
            Self::MemoryUsed => "memory_used",
            Self::ClockSm => "clock_sm",
            Self::ClockMemory => "clock_memory",
            Self::ThrottleReasons => "throttle_reasons",
            Self::PcieTx => "pcie_tx",
            Self::PcieRx => "pcie_rx",
            Self::UtilizationCpu => "utilization_cpu",
            Self::WorkerCpuTime => "worker_cpu_time",
            Self::WorkerMemory => "worker_memory",
            Self::WorkerIoRead => "worker_io_read",
            Self::WorkerIoWritten => "worker_io_written",
            Self::SmActive => "sm_active",
            Self::SmOccupancy => "sm_occupancy",
            Self::TensorActive => "tensor_active",
            Self::DramUtil => "dram_util",
            Self::PcieTxRate => "pcie_tx_rate",
            Self::PcieRxRate => "pcie_rx_rate",
            Self::NvlinkTxRate => "nvlink_tx_rate",
            Self::NvlinkRxRate => "nvlink_rx_rate",
        }
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Self::PowerInstant | Self::PowerAverage => "W",
            Self::Energy => "J",
            Self::Temperature => "degC",
            Self::UtilizationGpu
            | Self::UtilizationMemory
            | Self::UtilizationCpu
            | Self::SmActive
            | Self::SmOccupancy
            | Self::TensorActive
            | Self::DramUtil => "%",
            Self::PcieTxRate | Self::PcieRxRate | Self::NvlinkTxRate | Self::NvlinkRxRate => "B/s",
            Self::ClockSm | Self::ClockMemory => "MHz",
            Self::ThrottleReasons => "",
            Self::WorkerCpuTime => "s",
            Self::MemoryUsed
            | Self::PcieTx
            | Self::PcieRx
            | Self::WorkerMemory
            | Self::WorkerIoRead
            | Self::WorkerIoWritten => "B",
        }
    }
}

/// The device of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The GPU of a rank of the run.
    Gpu(u32),
    /// The host, and the worker's processes on it.
    Host,
    /// A processor package of the host.
    Package(u32),
}

impl Source {
    /// The name of the series of one of its quantities: `gpu.0.power_instant`, `host.utilization_cpu`, `package.0.energy`.
    pub fn series(self, quantity: Quantity) -> String {
        format!("{self}.{}", quantity.name())
    }

    /// The name of the series of each reading's cost, in nanoseconds: `gpu.0.read_time`.
    pub fn read_time_series(self) -> String {
        format!("{self}.read_time")
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(rank) => write!(f, "gpu.{rank}"),
            Self::Host => f.write_str("host"),
            Self::Package(number) => write!(f, "package.{number}"),
        }
    }
}

/// One value with its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The quantity.
    pub quantity: Quantity,
    /// `CLOCK_MONOTONIC` nanoseconds: the middle of the call that read it, or for a mean over time ([`Quantity::GPM`])
    /// the middle of that time.
    pub t_ns: u64,
    /// The value, in the quantity's unit.
    pub value: f64,
}

/// The readings of one device at one time. A quantity that could not be read is absent, and never zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The device.
    pub source: Source,
    /// `CLOCK_MONOTONIC` nanoseconds at the start of the reading.
    pub t_ns: u64,
    /// The duration of the reading, in nanoseconds.
    pub cost_ns: u64,
    /// The readings.
    pub readings: Vec<Reading>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_codes_are_positions() {
        let names: std::collections::BTreeSet<_> = Quantity::ALL.iter().map(|quantity| quantity.name()).collect();
        assert_eq!(names.len(), Quantity::ALL.len());
        assert_eq!(Source::Gpu(3).series(Quantity::Energy), "gpu.3.energy");
        assert_eq!(Source::Host.read_time_series(), "host.read_time");
    }
}
