//! NVML's GPM counters (GPU performance monitoring): when they are sampled, and their means between two samples.
//!
//! GPUs have them from Hopper on. They are renewed every 100 ms. If they were not renewed between two samples, NVML
//! returns 0 for each.

use super::card::{Seen, lasting};
use super::cost::{Timer, alone};
use super::reason;
use crate::Gpus;
use ledger_record::Quantity::{
    self, DramUtil, NvlinkRxRate, NvlinkTxRate, PcieRxRate, PcieTxRate, SmActive, SmOccupancy, TensorActive,
};
use ledger_record::Reading;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, GpmSample};

/// The shortest time between two samples: 1.5 periods of the counters, in which they are renewed at least once.
const SHORTEST_NS: u64 = 150_000_000;
const MIB: f64 = 1_048_576.0;

/// A counter: its quantity, NVML's metric and name, and how many of the quantity's units make one of NVML's.
struct Counter {
    quantity: Quantity,
    id: GpmMetricId,
    name: &'static str,
    factor: f64,
}

const COUNTERS: [Counter; Quantity::GPM.len()] = [
    Counter { quantity: SmActive, id: GpmMetricId::SmUtil, name: "SM_UTIL", factor: 1.0 },
    Counter { quantity: SmOccupancy, id: GpmMetricId::SmOccupancy, name: "SM_OCCUPANCY", factor: 1.0 },
    Counter { quantity: TensorActive, id: GpmMetricId::AnyTensorUtil, name: "ANY_TENSOR_UTIL", factor: 1.0 },
    Counter { quantity: DramUtil, id: GpmMetricId::DramBwUtil, name: "DRAM_BW_UTIL", factor: 1.0 },
    Counter { quantity: PcieTxRate, id: GpmMetricId::PcieTxPerSec, name: "PCIE_TX_PER_SEC", factor: MIB },
    Counter { quantity: PcieRxRate, id: GpmMetricId::PcieRxPerSec, name: "PCIE_RX_PER_SEC", factor: MIB },
    Counter {
        quantity: NvlinkTxRate,
        id: GpmMetricId::NvlinkTotalTxPerSec,
        name: "NVLINK_TOTAL_TX_PER_SEC",
        factor: MIB,
    },
    Counter {
        quantity: NvlinkRxRate,
        id: GpmMetricId::NvlinkTotalRxPerSec,
        name: "NVLINK_TOTAL_RX_PER_SEC",
        factor: MIB,
    },
];

/// The counters of one GPU.
#[derive(Default)]
pub(super) struct Gpm<'a> {
    is_supported: bool,
    /// The previous sample, and the midpoint of the call that took it.
    before: Option<(GpmSample<'a>, u64)>,
}

impl<'a> Gpm<'a> {
    /// Takes a sample unless the previous one is too recent. Adds each counter's mean between the two samples, as a
    /// reading at the middle of that time. Returns whether another call may succeed.
    pub(super) fn look(&mut self, gpus: &'a Gpus, device: &Device<'a>, timer: &mut Timer, seen: &mut Seen) -> bool {
        if self.before.as_ref().is_some_and(|(_, at)| timer.now().saturating_sub(*at) < SHORTEST_NS) {
            return true;
        }
        if !self.is_supported {
            match timer.time("gpm", || device.gpm_support()).0 {
                Ok(true) => self.is_supported = true,
                Ok(false) => {
                    return refuse("the GPU has no GPM counters (NVIDIA Hopper or newer has them)", seen, false);
                }
                Err(error) => return failed("nvmlGpmQueryDeviceSupport", &error, seen),
            }
        }
        let before = self.before.take();
        let (sample, t_ns) = timer.time("gpm", || device.gpm_sample());
        let sample = match sample {
            Ok(sample) => sample,
            Err(error) => {
                alone(|| drop(before));
                return failed("nvmlGpmSampleGet", &error, seen);
            }
        };
        let may_answer = before.is_none_or(|(before, before_ns)| {
            let ids = COUNTERS.each_ref().map(|counter| counter.id);
            let means = || {
                let means = gpus.gpm_metrics(&before, &sample, &ids);
                drop(before);
                means
            };
            match timer.time("gpm", means).0 {
                Ok(answers) => {
                    let t_ns = before_ns.midpoint(t_ns);
                    COUNTERS.iter().zip(answers).for_each(|(counter, answer)| counter.take(answer, t_ns, seen));
                    true
                }
                Err(error) => failed("nvmlGpmMetricsGet", &error, seen),
            }
        });
        self.before = Some((sample, t_ns));
        may_answer
    }
}

impl Drop for Gpm<'_> {
    fn drop(&mut self) {
        alone(|| drop(self.before.take()));
    }
}

impl Counter {
    fn take(&self, answer: Result<f64, NvmlError>, t_ns: u64, seen: &mut Seen) {
        let quantity = self.quantity;
        match answer {
            Ok(value) if value.is_finite() && value >= 0.0 => {
                seen.readings.push(Reading { quantity, t_ns, value: value * self.factor });
            }
            Ok(value) => seen.unread.push((quantity, format!("`{}`: NVML gave {value}", self.name))),
            Err(error) => seen.unread.push((quantity, reason(self.name, &error))),
        }
    }
}

/// Records that no counter could be read. Returns whether another call may succeed.
fn failed(function: &str, error: &NvmlError, seen: &mut Seen) -> bool {
    seen.lost |= matches!(error, NvmlError::GpuLost);
    refuse(&reason(function, error), seen, !lasting(error))
}

fn refuse(reason: &str, seen: &mut Seen, may_answer: bool) -> bool {
    seen.unread.extend(Quantity::GPM.map(|quantity| (quantity, reason.to_owned())));
    may_answer
}
