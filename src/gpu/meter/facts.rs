//! Facts that are read once: what the GPUs are, their settings, and how they are connected.

use super::card::{BY_UUID, Card, find};
use super::cost::Timer;
use super::reason;
use crate::Gpus;
use ledger_record::{Table, Value};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, TopologyLevel};
use nvml_wrapper::error::NvmlError;

/// A call that reads one or two facts.
struct Fact {
    names: &'static [&'static str],
    function: &'static str,
    read: fn(&Device<'_>) -> Result<Vec<Value>, NvmlError>,
}

const FACTS: [Fact; 16] = [
    Fact {
        names: &["vbios"],
        function: "nvmlDeviceGetVbiosVersion",
        read: |device| Ok(vec![device.vbios_version()?.into()]),
    },
    Fact {
        names: &["power_limit_w"],
        function: "nvmlDeviceGetPowerManagementLimit",
        read: |device| Ok(vec![watts(device.power_management_limit()?)]),
    },
    Fact {
        names: &["enforced_power_limit_w"],
        function: "nvmlDeviceGetEnforcedPowerLimit",
        read: |device| Ok(vec![watts(device.enforced_power_limit()?)]),
    },
    Fact {
        names: &["power_limit_default_w"],
        function: "nvmlDeviceGetPowerManagementDefaultLimit",
        read: |device| Ok(vec![watts(device.power_management_limit_default()?)]),
    },
    Fact {
        names: &["power_limit_min_w", "power_limit_max_w"],
        function: "nvmlDeviceGetPowerManagementLimitConstraints",
        read: |device| {
            let limits = device.power_management_limit_constraints()?;
            Ok(vec![watts(limits.min_limit), watts(limits.max_limit)])
        },
    },
    Fact {
        names: &["ecc"],
        function: "nvmlDeviceGetEccMode",
        read: |device| Ok(vec![device.is_ecc_enabled()?.currently_enabled.into()]),
    },
    Fact {
        names: &["persistence"],
        function: "nvmlDeviceGetPersistenceMode",
        read: |device| Ok(vec![device.is_in_persistent_mode()?.into()]),
    },
    Fact {
        names: &["compute_capability"],
        function: "nvmlDeviceGetCudaComputeCapability",
        read: |device| {
            let capability = device.cuda_compute_capability()?;
            Ok(vec![format!("{}.{}", capability.major, capability.minor).into()])
        },
    },
    Fact {
        names: &["pcie_generation"],
        function: "nvmlDeviceGetCurrPcieLinkGeneration",
        read: |device| Ok(vec![device.current_pcie_link_gen()?.into()]),
    },
    Fact {
        names: &["pcie_width"],
        function: "nvmlDeviceGetCurrPcieLinkWidth",
        read: |device| Ok(vec![device.current_pcie_link_width()?.into()]),
    },
    Fact {
        names: &["pcie_generation_max"],
        function: "nvmlDeviceGetMaxPcieLinkGeneration",
        read: |device| Ok(vec![device.max_pcie_link_gen()?.into()]),
    },
    Fact {
        names: &["pcie_width_max"],
        function: "nvmlDeviceGetMaxPcieLinkWidth",
        read: |device| Ok(vec![device.max_pcie_link_width()?.into()]),
    },
    Fact {
        names: &["clock_sm_max_mhz", "clock_memory_max_mhz"],
        function: "nvmlDeviceGetMaxClockInfo",
        read: |device| two_clocks(|clock| device.max_clock_info(clock)),
    },
    Fact {
        names: &["clock_sm_set_mhz", "clock_memory_set_mhz"],
        function: "nvmlDeviceGetApplicationsClock",
        read: |device| two_clocks(|clock| device.applications_clock(clock)),
    },
    Fact {
        names: &["clock_sm_default_mhz", "clock_memory_default_mhz"],
        function: "nvmlDeviceGetDefaultApplicationsClock",
        read: |device| two_clocks(|clock| device.default_applications_clock(clock)),
    },
    Fact {
        names: &["compute_mode"],
        function: "nvmlDeviceGetComputeMode",
        read: |device| Ok(vec![format!("{:?}", device.compute_mode()?).to_lowercase().into()]),
    },
];

/// Returns the clocks of the multiprocessors (which NVML sets by the graphics clock) and of the memory.
fn two_clocks(read: impl Fn(Clock) -> Result<u32, NvmlError>) -> Result<Vec<Value>, NvmlError> {
    Ok(vec![read(Clock::Graphics)?.into(), read(Clock::Memory)?.into()])
}

fn watts(milliwatts: u32) -> Value {
    (f64::from(milliwatts) / 1e3).into()
}

pub(super) fn facts<'a>(gpus: &'a Gpus, cards: &mut [Card<'a>], timer: &mut Timer) -> Table {
    let mut table = Table::new();
    for (rank, card) in cards.iter_mut().enumerate() {
        let mut put = |name: &str, value: Value| {
            table.insert(format!("gpu.{rank}.{name}"), value);
        };
        let info = &card.info;
        put("name", info.name.as_str().into());
        put("uuid", info.uuid.as_str().into());
        put("index", info.index.into());
        put("pci_bus_id", info.pci_bus_id.as_str().into());
        match info.memory_total_bytes {
            Some(bytes) => put("memory_total_bytes", bytes.into()),
            None => put("unread.memory_total_bytes", "`nvmlDeviceGetMemoryInfo_v2` does not tell".into()),
        }
        put("mig", info.mig.into());
        let device = card.device(gpus, timer);
        for fact in &FACTS {
            let read = device.as_ref().map_err(String::clone).and_then(|device| {
                timer.time("facts", || (fact.read)(device)).0.map_err(|error| reason(fact.function, &error))
            });
            match read {
                Ok(values) => fact.names.iter().zip(values).for_each(|(name, value)| put(name, value)),
                Err(reason) => {
                    fact.names.iter().for_each(|name| put(&format!("unread.{name}"), reason.as_str().into()));
                }
            }
        }
    }
    topology(gpus, cards, timer, &mut table);
    table
}

fn topology(gpus: &Gpus, cards: &[Card<'_>], timer: &mut Timer, table: &mut Table) {
    let mut levels = Table::new();
    for second in 1..cards.len() {
        for first in 0..second {
            match ancestor(gpus, [&cards[first], &cards[second]], timer) {
                Ok(level) => levels.insert(format!("{first}-{second}"), name(&level).into()),
                Err(reason) => table.insert(format!("gpu.{first}.unread.topology_{second}"), reason.into()),
            };
        }
    }
    if !levels.is_empty() {
        table.insert("gpu.topology".to_owned(), levels.into());
    }
}

fn ancestor(gpus: &Gpus, pair: [&Card<'_>; 2], timer: &mut Timer) -> Result<TopologyLevel, String> {
    const FUNCTION: &str = "nvmlDeviceGetTopologyCommonAncestor";
    // The call consumes the second handle, so both are requested again.
    let [first, second] = pair.map(|card| find(gpus, &card.info, timer).map_err(|error| reason(BY_UUID, &error)));
    let (first, second) = (first?, second?);
    timer.time("facts", || first.topology_common_ancestor(second)).0.map_err(|error| reason(FUNCTION, &error))
}

/// Returns NVML's own name of a level, `NVML_TOPOLOGY_…`, in lower case.
fn name(level: &TopologyLevel) -> &'static str {
    match level {
        TopologyLevel::Internal => "internal",
        TopologyLevel::Single => "single",
        TopologyLevel::Multiple => "multiple",
        TopologyLevel::HostBridge => "hostbridge",
        TopologyLevel::Node => "node",
        TopologyLevel::System => "system",
    }
}
