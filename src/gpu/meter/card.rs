//! One GPU of the meter: the call that reads each quantity, the quantities that are unavailable, and the reasons
//! reported.

use super::cost::{Mean, Timer};
use super::gpm::Gpm;
use super::reason;
use crate::{GpuInfo, Gpus};
use ledger_record::Quantity::{
    self, ClockMemory, ClockSm, Energy, MemoryUsed, PcieRx, PcieTx, PowerAverage, PowerInstant, Temperature,
    ThrottleReasons, UtilizationGpu, UtilizationMemory,
};
use ledger_record::Reading;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::{Bits, NvmlError};
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;
use std::collections::BTreeMap;

/// A field of the batched call.
struct Field {
    quantity: Quantity,
    id: u32,
    name: &'static str,
    /// How many of NVML's units make one unit of the quantity.
    divisor: f64,
}

const FIELDS: [Field; 5] = [
    Field { quantity: PowerInstant, id: field_id::NVML_FI_DEV_POWER_INSTANT, name: "POWER_INSTANT", divisor: 1e3 },
    Field { quantity: PowerAverage, id: field_id::NVML_FI_DEV_POWER_AVERAGE, name: "POWER_AVERAGE", divisor: 1e3 },
    Field {
        quantity: Energy,
        id: field_id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
        name: "TOTAL_ENERGY_CONSUMPTION",
        divisor: 1e3,
    },
    Field {
        quantity: PcieTx,
        id: field_id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
        name: "PCIE_COUNT_TX_BYTES",
        divisor: 1.0,
    },
    Field {
        quantity: PcieRx,
        id: field_id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
        name: "PCIE_COUNT_RX_BYTES",
        divisor: 1.0,
    },
];

/// The quantities of power and energy.
const POWER: [Quantity; 3] = [PowerInstant, PowerAverage, Energy];

/// A call that reads one or two quantities.
struct Call {
    kind: &'static str,
    function: &'static str,
    gives: &'static [Quantity],
    read: fn(&Device<'_>) -> Result<Vec<f64>, NvmlError>,
}

const SECONDARY: [Call; 6] = [
    Call {
        kind: "temperature",
        function: "nvmlDeviceGetTemperature",
        gives: &[Temperature],
        read: |device| Ok(vec![device.temperature(TemperatureSensor::Gpu)?.into()]),
    },
    Call {
        kind: "utilization",
        function: "nvmlDeviceGetUtilizationRates",
        gives: &[UtilizationGpu, UtilizationMemory],
        read: |device| device.utilization_rates().map(|rates| vec![rates.gpu.into(), rates.memory.into()]),
    },
    Call {
        kind: "memory",
        function: "nvmlDeviceGetMemoryInfo_v2",
        gives: &[MemoryUsed],
        read: |device| Ok(vec![count(device.memory_info()?.used)]),
    },
    Call {
        kind: "clock",
        function: "nvmlDeviceGetClockInfo",
        gives: &[ClockSm],
        read: |device| Ok(vec![device.clock_info(Clock::SM)?.into()]),
    },
    Call {
        kind: "clock",
        function: "nvmlDeviceGetClockInfo",
        gives: &[ClockMemory],
        read: |device| Ok(vec![device.clock_info(Clock::Memory)?.into()]),
    },
    Call {
        kind: "throttle_reasons",
        function: "nvmlDeviceGetCurrentClocksThrottleReasons",
        gives: &[ThrottleReasons],
        read: |device| match device.current_throttle_reasons_strict() {
            Ok(reasons) => Ok(vec![count(reasons.bits())]),
            // Bits that are newer than the bindings.
            Err(NvmlError::IncorrectBits(Bits::U64(bits))) => Ok(vec![count(bits)]),
            Err(error) => Err(error),
        },
    },
];

const ENERGY: Call = Call {
    kind: "energy",
    function: "nvmlDeviceGetTotalEnergyConsumption",
    gives: &[Energy],
    read: |device| Ok(vec![count(device.total_energy_consumption()?) / 1e3]),
};

const POWER_AVERAGE: Call = Call {
    kind: "power",
    function: "nvmlDeviceGetPowerUsage",
    gives: &[PowerAverage],
    read: |device| Ok(vec![f64::from(device.power_usage()?) / 1e3]),
};

const POWER_INSTANT: Call = Call { gives: &[PowerInstant], ..POWER_AVERAGE };

/// How a quantity is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By its first choice: the batched field or its own call.
    Usual,
    /// By a separate call instead of the batched field.
    Instead,
    /// Not at all.
    Never,
}

/// The result of one sample.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) readings: Vec<Reading>,
    pub(super) unread: Vec<(Quantity, String)>,
    pub(super) lost: bool,
}

impl Seen {
    /// Returns a sample in which nothing could be read.
    pub(super) fn nothing(reason: &str) -> Self {
        Self { unread: quantities().map(|quantity| (quantity, reason.to_owned())).collect(), ..Self::default() }
    }
}

/// Returns all quantities that a GPU is asked for.
fn quantities() -> impl Iterator<Item = Quantity> {
    let secondary = SECONDARY.iter().flat_map(|call| call.gives).copied();
    FIELDS.iter().map(|field| field.quantity).chain(secondary).chain(Quantity::GPM)
}

pub(super) struct Card<'a> {
    pub(super) info: GpuInfo,
    device: Result<Device<'a>, NvmlError>,
    ways: BTreeMap<Quantity, Way>,
    said: BTreeMap<Quantity, String>,
    /// The quantity that `nvmlDeviceGetPowerUsage` returns, once determined; `Some(None)` if the compute capability is
    /// unknown.
    power_usage: Option<Option<Quantity>>,
    looks_since: u64,
    gpm: Gpm<'a>,
}

impl<'a> Card<'a> {
    pub(super) fn new(gpus: &'a Gpus, info: GpuInfo, timer: &mut Timer) -> Self {
        let device = find(gpus, &info, timer);
        let (ways, said) = (BTreeMap::new(), BTreeMap::new());
        // The maximum makes the first sample read everything.
        Self { info, device, ways, said, power_usage: None, looks_since: u64::MAX, gpm: Gpm::default() }
    }

    /// Returns NVML's handle of the GPU, requesting it again if there is none yet.
    pub(super) fn device(&mut self, gpus: &'a Gpus, timer: &mut Timer) -> Result<&Device<'a>, String> {
        if self.device.is_err() {
            self.device = find(gpus, &self.info, timer);
        }
        self.device.as_ref().map_err(|error| reason(BY_UUID, error))
    }

    /// Samples the GPU. With `every` `None` only power and energy are read. Otherwise the whole batched call is made,
    /// and the other quantities are read at one sample in `every`.
    pub(super) fn look(&mut self, gpus: &'a Gpus, every: Option<u64>, timer: &mut Timer, secondary: &mut Mean) -> Seen {
        let mut seen = Seen::default();
        if let Err(reason) = self.device(gpus, timer) {
            seen = Seen::nothing(&reason);
            seen.lost = matches!(self.device, Err(NvmlError::GpuLost));
            self.say(&mut seen);
            return seen;
        }
        // There is no early return below, so that the handle is always put back.
        let device = std::mem::replace(&mut self.device, Err(NvmlError::NotFound));
        if let Ok(device) = &device {
            self.fields(device, every.is_some(), timer, &mut seen);
            self.looks_since = self.looks_since.saturating_add(u64::from(every.is_some()));
            if every.is_some_and(|every| self.looks_since >= every) {
                self.looks_since = 0;
                let begin = timer.now();
                SECONDARY.iter().for_each(|call| self.ask(call, device, timer, &mut seen));
                self.counters(gpus, device, timer, &mut seen);
                if !seen.lost {
                    secondary.add(timer.now().saturating_sub(begin));
                }
            }
        }
        self.device = device;
        if seen.lost {
            self.lost(&mut seen);
        }
        self.say(&mut seen);
        seen
    }

    fn way(&self, quantity: Quantity) -> Way {
        self.ways.get(&quantity).copied().unwrap_or(Way::Usual)
    }

    /// Makes the batched call, and the calls that replace its unavailable fields.
    fn fields(&mut self, device: &Device<'_>, all: bool, timer: &mut Timer, seen: &mut Seen) {
        let wanted = |field: &&Field| all || POWER.contains(&field.quantity);
        let asked: Vec<&Field> =
            FIELDS.iter().filter(wanted).filter(|field| self.way(field.quantity) == Way::Usual).collect();
        if !asked.is_empty() {
            let ids: Vec<FieldId> = asked.iter().map(|field| FieldId(field.id)).collect();
            let (answer, t_ns) = timer.time("fields", || device.field_values_for(&ids));
            match answer {
                Ok(values) => {
                    for (field, value) in asked.into_iter().zip(values) {
                        match value.and_then(|sample| sample.value) {
                            Ok(value) => self.field(field, &value, t_ns, seen),
                            Err(error) => self.refused(field, field.name, &error, device, timer, seen),
                        }
                    }
                }
                Err(error) => {
                    for field in asked {
                        self.refused(field, "nvmlDeviceGetFieldValues", &error, device, timer, seen);
                    }
                }
            }
        }
        for call in [&POWER_INSTANT, &POWER_AVERAGE, &ENERGY] {
            if self.way(call.gives[0]) == Way::Instead {
                self.ask(call, device, timer, seen);
            }
        }
    }

    fn field(&mut self, field: &Field, value: &SampleValue, t_ns: u64, seen: &mut Seen) {
        match number(value) {
            Some(value) => {
                seen.readings.push(Reading { quantity: field.quantity, t_ns, value: value / field.divisor });
            }
            None => seen.unread.push((field.quantity, format!("`{}`: what NVML gave is no such value", field.name))),
        }
    }

    fn refused(
        &mut self,
        field: &Field,
        what: &str,
        error: &NvmlError,
        device: &Device<'_>,
        timer: &mut Timer,
        seen: &mut Seen,
    ) {
        // The arguments never change, so `InvalidArg` means that the driver does not know the field.
        let lasting = lasting(error) || matches!(error, NvmlError::InvalidArg);
        seen.lost |= matches!(error, NvmlError::GpuLost);
        if lasting && self.has_instead(field.quantity, device, timer) {
            self.ways.insert(field.quantity, Way::Instead);
            return;
        }
        if lasting {
            self.ways.insert(field.quantity, Way::Never);
        }
        seen.unread.push((field.quantity, reason(what, error)));
    }

    fn has_instead(&mut self, quantity: Quantity, device: &Device<'_>, timer: &mut Timer) -> bool {
        match quantity {
            Energy => true,
            PowerInstant | PowerAverage => {
                let given = self.power_usage.get_or_insert_with(|| {
                    let (capability, _) = timer.time("compute_capability", || device.cuda_compute_capability());
                    capability.ok().map(|capability| power_usage_is(capability.major, capability.minor))
                });
                *given == Some(quantity)
            }
            _ => false,
        }
    }

    fn ask(&mut self, call: &Call, device: &Device<'_>, timer: &mut Timer, seen: &mut Seen) {
        if seen.lost || self.way(call.gives[0]) == Way::Never {
            return;
        }
        let (answer, t_ns) = timer.time(call.kind, || (call.read)(device));
        match answer {
            Ok(values) => {
                let readings =
                    call.gives.iter().zip(values).map(|(&quantity, value)| Reading { quantity, t_ns, value });
                seen.readings.extend(readings);
            }
            Err(error) => {
                seen.lost |= matches!(error, NvmlError::GpuLost);
                for &quantity in call.gives {
                    if lasting(&error) {
                        self.ways.insert(quantity, Way::Never);
                    }
                    seen.unread.push((quantity, reason(call.function, &error)));
                }
            }
        }
    }

    /// Reads the GPM counters: how the GPU was used since the previous sample.
    fn counters(&mut self, gpus: &'a Gpus, device: &Device<'a>, timer: &mut Timer, seen: &mut Seen) {
        if seen.lost || self.way(Quantity::GPM[0]) == Way::Never {
            return;
        }
        if !self.gpm.look(gpus, device, timer, seen) {
            self.ways.extend(Quantity::GPM.map(|quantity| (quantity, Way::Never)));
        }
    }

    /// Marks as unread, with the reason that the GPU is lost, all quantities that were not requested because of it.
    fn lost(&self, seen: &mut Seen) {
        for quantity in quantities().filter(|&quantity| self.way(quantity) != Way::Never) {
            let read = seen.readings.iter().any(|reading| reading.quantity == quantity);
            if !read && seen.unread.iter().all(|(unread, _)| *unread != quantity) {
                seen.unread.push((quantity, reason("", &NvmlError::GpuLost)));
            }
        }
    }

    /// Removes reasons that have already been reported.
    fn say(&mut self, seen: &mut Seen) {
        seen.unread.retain(|(quantity, reason)| self.said.insert(*quantity, reason.clone()).as_ref() != Some(reason));
    }
}

pub(super) const BY_UUID: &str = "nvmlDeviceGetHandleByUUID";

pub(super) fn find<'a>(gpus: &'a Gpus, info: &GpuInfo, timer: &mut Timer) -> Result<Device<'a>, NvmlError> {
    timer.time("handle", || gpus.by_uuid(&info.uuid)).0
}

/// Whether the error is permanent, so that the call need not be repeated.
pub(super) fn lasting(error: &NvmlError) -> bool {
    matches!(error, NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound)
}

/// Returns the quantity that `nvmlDeviceGetPowerUsage` gives at a compute capability. `nvml.h`: "On Ampere (except
/// GA100) or newer GPUs, the API returns power averaged over 1 sec interval. On GA100 and older architectures,
/// instantaneous power is returned."
fn power_usage_is(major: i32, minor: i32) -> Quantity {
    // GA100 has 8.0; the other Ampere chips have 8.6 and 8.7.
    if (major, minor) > (8, 0) { PowerAverage } else { PowerInstant }
}

/// Returns a field's value as a number, or `None` if it is negative or not finite.
fn number(value: &SampleValue) -> Option<f64> {
    match *value {
        SampleValue::F64(value) => Some(value).filter(|value| value.is_finite() && *value >= 0.0),
        SampleValue::U32(value) => Some(value.into()),
        SampleValue::U64(value) => Some(count(value)),
        SampleValue::I64(value) => u64::try_from(value).ok().map(count),
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53: 285 years at 1 kW in mJ, 8 PiB in bytes")]
fn count(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_type_are_read_and_impossible_ones_refused() {
        assert_eq!(number(&SampleValue::U32(u32::MAX)), Some(4_294_967_295.0));
        assert_eq!(number(&SampleValue::U64(9_007_199_254_740_991)), Some(9_007_199_254_740_991.0));
        assert_eq!(number(&SampleValue::I64(5)), Some(5.0));
        assert_eq!(number(&SampleValue::F64(0.5)), Some(0.5));
        for impossible in [SampleValue::I64(-1), SampleValue::F64(-0.5), SampleValue::F64(f64::NAN)] {
            assert_eq!(number(&impossible), None, "{impossible:?}");
        }
    }

    #[test]
    fn quantity_of_the_power_function_depends_on_the_chip() {
        let of = |capabilities: &[(i32, i32)]| -> Vec<Quantity> {
            capabilities.iter().map(|&(major, minor)| power_usage_is(major, minor)).collect()
        };
        assert_eq!(of(&[(6, 0), (7, 0), (7, 5), (8, 0)]), [PowerInstant; 4]);
        assert_eq!(of(&[(8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]), [PowerAverage; 5]);
    }

    #[test]
    fn no_quantity_is_requested_twice() {
        let all: Vec<Quantity> = quantities().collect();
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!((all.len(), distinct.len()), (20, 20));
    }
}
