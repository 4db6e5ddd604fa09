//! The settings of a GPU: power limit and clocks. Reads the allowed and the current values, and makes single changes.
//!
//! When a change is made, and that it is undone, is up to the engine.

use super::{GpuInfo, Gpus};
use ledger_record::{Table, Value};
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::GpuLockedClocksSetting;
use nvml_wrapper::error::NvmlError;
use std::fmt;

const POWER_LIMIT: &str = "hardware.power_limit_w";
const SM_CLOCK: &str = "hardware.sm_clock_mhz";
const MEMORY_CLOCK: &str = "hardware.memory_clock_mhz";

/// The settings that a cell requests for each of its GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The power limit in milliwatts.
    pub power_limit_mw: Option<u32>,
    /// The locked clock of the multiprocessors in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// The locked clock of the memory in MHz.
    pub memory_clock_mhz: Option<u32>,
}

impl Settings {
    /// Returns the settings that a cell's configuration requests, or `None` if it has none.
    pub fn of(config: &Table) -> Option<Self> {
        let number = |key: &str, factor: i64| {
            let value = config.get(key).and_then(Value::as_int)?;
            Some(u32::try_from(value.saturating_mul(factor)).unwrap_or(u32::MAX))
        };
        let asked = Self {
            power_limit_mw: number(POWER_LIMIT, 1000),
            sm_clock_mhz: number(SM_CLOCK, 1),
            memory_clock_mhz: number(MEMORY_CLOCK, 1),
        };
        (asked != Self::default()).then_some(asked)
    }

    /// Returns the changes that apply these settings, in order.
    pub fn changes(self) -> Vec<Change> {
        [
            self.memory_clock_mhz.map(Change::LockMemoryClock),
            self.sm_clock_mhz.map(Change::LockSmClock),
            self.power_limit_mw.map(Change::PowerLimit),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns the changes that undo these settings, given the previous power limit. Clock locks are removed, not
    /// restored: NVML does not report a previous lock.
    pub fn undoing(self, power_limit_before_mw: Option<u32>) -> Vec<Change> {
        [
            self.power_limit_mw.and(power_limit_before_mw).map(Change::PowerLimit),
            self.sm_clock_mhz.map(|_| Change::FreeSmClock),
            self.memory_clock_mhz.map(|_| Change::FreeMemoryClock),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Records a change as applied.
    pub fn note(&mut self, change: Change) {
        match change {
            Change::PowerLimit(mw) => self.power_limit_mw = Some(mw),
            Change::LockSmClock(mhz) => self.sm_clock_mhz = Some(mhz),
            Change::LockMemoryClock(mhz) => self.memory_clock_mhz = Some(mhz),
            Change::FreeSmClock | Change::FreeMemoryClock => self.forget(change),
        }
    }

    /// Removes a change, or the change that `change` undoes, from the record.
    pub fn forget(&mut self, change: Change) {
        match change {
            Change::PowerLimit(_) => self.power_limit_mw = None,
            Change::LockSmClock(_) | Change::FreeSmClock => self.sm_clock_mhz = None,
            Change::LockMemoryClock(_) | Change::FreeMemoryClock => self.memory_clock_mhz = None,
        }
    }
}

/// One change to a GPU's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets the power limit, in milliwatts.
    PowerLimit(u32),
    /// Locks the multiprocessors' clock, in MHz.
    LockSmClock(u32),
    /// Unlocks the multiprocessors' clock.
    FreeSmClock,
    /// Locks the memory's clock, in MHz.
    LockMemoryClock(u32),
    /// Unlocks the memory's clock.
    FreeMemoryClock,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PowerLimit(mw) => write!(f, "setting the power limit to {} W", f64::from(*mw) / 1e3),
            Self::LockSmClock(mhz) => write!(f, "locking the multiprocessors' clock at {mhz} MHz"),
            Self::FreeSmClock => f.write_str("unlocking the multiprocessors' clock"),
            Self::LockMemoryClock(mhz) => write!(f, "locking the memory's clock at {mhz} MHz"),
            Self::FreeMemoryClock => f.write_str("unlocking the memory's clock"),
        }
    }
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// This user lacks the permission.
    #[error("it needs root or the capability CAP_SYS_ADMIN on the machine itself")]
    NoPermission,
    /// The GPU or its driver refused for another reason; nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// The call failed in a way that leaves open whether the change was made.
    #[error("{0}")]
    Unclear(String),
}

/// The settings that a GPU allows. An `Err` holds the reason why they are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The minimum and maximum power limit, in milliwatts.
    power_limit_mw: Result<(u32, u32), String>,
    /// The memory's clocks, each with the multiprocessors' clocks that it supports, in MHz.
    clocks_mhz: Result<Vec<(u32, Vec<u32>)>, String>,
}

impl Allowed {
    /// Returns the value for a GPU that cannot be queried.
    pub fn unknown(why: &str) -> Self {
        Self { power_limit_mw: Err(why.to_owned()), clocks_mhz: Err(why.to_owned()) }
    }

    /// Returns the minimum and maximum power limit, in milliwatts.
    ///
    /// # Errors
    /// Returns the reason if the GPU has no settable limit or does not report it.
    pub fn power_limits_mw(&self) -> Result<(u32, u32), String> {
        self.power_limit_mw.clone()
    }

    /// Returns the multiprocessors' clocks that the memory's highest clock supports, in MHz, ascending.
    ///
    /// # Errors
    /// Returns the reason if the GPU does not report its clocks.
    pub fn sm_clocks_mhz(&self) -> Result<Vec<u32>, String> {
        let all = self.clocks_mhz.as_ref().map_err(String::clone)?;
        let highest = all.iter().max_by_key(|(memory, _)| *memory);
        let mut clocks = highest.map(|(_, sm)| sm.clone()).unwrap_or_default();
        clocks.sort_unstable();
        Ok(clocks)
    }

    /// Checks that the GPU allows these settings.
    ///
    /// # Errors
    /// Returns a text with the requested value and the allowed ones.
    pub fn check(&self, asked: Settings, gpu: &GpuInfo) -> Result<(), String> {
        let card = format!("GPU {} ({})", gpu.index, gpu.name);
        if let Some(mw) = asked.power_limit_mw {
            let (min, max) = self.power_limit_mw.clone().map_err(|why| untold(POWER_LIMIT, &card, &why))?;
            if !(min..=max).contains(&mw) {
                let watts = |mw: u32| f64::from(mw) / 1e3;
                let (mw, min, max) = (watts(mw), watts(min), watts(max));
                return Err(format!("`{POWER_LIMIT}` is {mw}, but {card} takes {min} to {max} W"));
            }
        }
        let clocks = |key: &str| self.clocks_mhz.as_ref().map_err(|why| untold(key, &card, why));
        if let Some(mhz) = asked.memory_clock_mhz {
            let there: Vec<u32> = clocks(MEMORY_CLOCK)?.iter().map(|(memory, _)| *memory).collect();
            one_of(MEMORY_CLOCK, mhz, &there, &card)?;
        }
        if let Some(mhz) = asked.sm_clock_mhz {
            let all = clocks(SM_CLOCK)?;
            let with = |(memory, _): &&(u32, Vec<u32>)| asked.memory_clock_mhz.is_none_or(|asked| *memory == asked);
            let mut there: Vec<u32> = all.iter().filter(with).flat_map(|(_, sm)| sm.iter().copied()).collect();
            there.sort_unstable();
            there.dedup();
            one_of(SM_CLOCK, mhz, &there, &card)?;
        }
        Ok(())
    }
}

fn untold(key: &str, card: &str, why: &str) -> String {
    format!("`{key}` cannot be set on {card}: {why}")
}

fn one_of(key: &str, asked: u32, there: &[u32], card: &str) -> Result<(), String> {
    const FEW: usize = 8;
    if there.contains(&asked) {
        return Ok(());
    }
    let mut there = there.to_vec();
    there.sort_unstable();
    let list = |clocks: &[u32]| clocks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let has = match (there.as_slice(), there.first(), there.last()) {
        (few, Some(_), _) if few.len() <= FEW => format!("{} MHz", list(few)),
        (many, Some(least), Some(most)) => {
            let above = many.partition_point(|clock| *clock < asked);
            let nearest = &many[above.saturating_sub(1)..(above + 1).min(many.len())];
            format!("{least} to {most} MHz in steps; the nearest: {}", list(nearest))
        }
        _ => "no such clocks".to_owned(),
    };
    Err(format!("`{key}` is {asked}, but {card} has {has}"))
}

impl Gpus {
    /// Queries the settings that a GPU allows.
    pub fn allowed(&self, gpu: &GpuInfo) -> Allowed {
        let unknown = |error: NvmlError| error.to_string();
        let device = match self.by_uuid(&gpu.uuid) {
            Ok(device) => device,
            Err(error) => return Allowed::unknown(&unknown(error)),
        };
        let limits = device.power_management_limit_constraints();
        let power_limit_mw = limits.map(|limits| (limits.min_limit, limits.max_limit)).map_err(unknown);
        let with = |memory: u32| device.supported_graphics_clocks(memory).map(|sm| (memory, sm));
        let clocks = device.supported_memory_clocks().and_then(|all| all.into_iter().map(with).collect());
        Allowed { power_limit_mw, clocks_mhz: clocks.map_err(unknown) }
    }

    /// Returns the current power limit of a GPU, in milliwatts.
    ///
    /// # Errors
    /// If NVML does not report it.
    pub fn power_limit_mw(&self, uuid: &str) -> Result<u32, String> {
        let limit = self.by_uuid(uuid).and_then(|device| device.power_management_limit());
        limit.map_err(|error| error.to_string())
    }

    /// Returns the temperature of a GPU, in °C.
    ///
    /// # Errors
    /// If NVML does not report it.
    pub fn temperature_c(&self, uuid: &str) -> Result<u32, String> {
        let told = self.by_uuid(uuid).and_then(|device| device.temperature(TemperatureSensor::Gpu));
        told.map_err(|error| error.to_string())
    }

    /// Returns the ids of the processes that compute on a GPU, in the driver's PID namespace.
    ///
    /// # Errors
    /// If NVML does not report them.
    pub fn compute_processes(&self, uuid: &str) -> Result<Vec<u32>, String> {
        let processes = self.by_uuid(uuid).and_then(|device| device.running_compute_processes());
        let processes = processes.map_err(|error| error.to_string())?;
        Ok(processes.into_iter().map(|process| process.pid).collect())
    }

    /// Changes a setting of a GPU. Nothing else in this program changes a GPU through NVML.
    ///
    /// # Errors
    /// The reason why the change was not made, or may not have been.
    pub fn change(&self, uuid: &str, change: Change) -> Result<(), ChangeError> {
        let done = self.by_uuid(uuid).and_then(|mut device| match change {
            Change::PowerLimit(mw) => device.set_power_management_limit(mw),
            Change::LockSmClock(mhz) => {
                device.set_gpu_locked_clocks(GpuLockedClocksSetting::Numeric { min_clock_mhz: mhz, max_clock_mhz: mhz })
            }
            Change::FreeSmClock => device.reset_gpu_locked_clocks(),
            Change::LockMemoryClock(mhz) => device.set_mem_locked_clocks(mhz, mhz),
            Change::FreeMemoryClock => device.reset_mem_locked_clocks(),
        });
        done.map_err(|error| match error {
            NvmlError::NoPermission => ChangeError::NoPermission,
            // The driver detects these before it changes anything. An old driver lacks the function or its arguments.
            known @ (NvmlError::InvalidArg
            | NvmlError::FunctionNotFound
            | NvmlError::NotSupported
            | NvmlError::NotFound
            | NvmlError::Uninitialized
            | NvmlError::FailedToLoadSymbol(_)) => ChangeError::Refused(known.to_string()),
            other => ChangeError::Unclear(other.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu() -> GpuInfo {
        GpuInfo { index: 1, name: "H200".into(), ..GpuInfo::default() }
    }

    fn config(pairs: &[(&str, i64)]) -> Table {
        pairs.iter().map(|(key, value)| (format!("hardware.{key}"), Value::Int(*value))).collect()
    }

    #[test]
    fn a_cell_sets_only_the_settings_that_it_names() {
        assert_eq!(Settings::of(&config(&[("gpus", 2)])), None);
        let asked = Settings::of(&config(&[("power_limit_w", 300), ("sm_clock_mhz", 1500)])).unwrap();
        assert_eq!(asked.changes(), [Change::LockSmClock(1500), Change::PowerLimit(300_000)]);
        assert_eq!(asked.undoing(Some(700_000)), [Change::PowerLimit(700_000), Change::FreeSmClock]);
        assert_eq!(asked.undoing(None), [Change::FreeSmClock]);
        let beyond = Settings::of(&config(&[("power_limit_w", i64::MAX)])).unwrap();
        assert_eq!(beyond.power_limit_mw, Some(u32::MAX));
    }

    #[test]
    fn refused_settings_are_reported_with_the_allowed_values() {
        let allowed = Allowed {
            power_limit_mw: Ok((200_000, 700_000)),
            clocks_mhz: Ok(vec![
                (3201, (0..100).map(|step| 1980 - 15 * step).collect()),
                (2619, vec![1980, 1500]),
                (1593, vec![345]),
            ]),
        };
        let check = |pairs: &[(&str, i64)]| allowed.check(Settings::of(&config(pairs)).unwrap(), &gpu());
        for fine in [("power_limit_w", 200), ("power_limit_w", 700), ("sm_clock_mhz", 1980), ("memory_clock_mhz", 2619)]
        {
            assert_eq!(check(&[fine]), Ok(()), "{fine:?}");
        }
        let refused = |pairs: &[(&str, i64)]| check(pairs).unwrap_err();
        let card = "GPU 1 (H200)";
        assert_eq!(
            refused(&[("power_limit_w", 900)]),
            format!("`hardware.power_limit_w` is 900, but {card} takes 200 to 700 W")
        );
        assert_eq!(
            refused(&[("sm_clock_mhz", 1000)]),
            format!("`hardware.sm_clock_mhz` is 1000, but {card} has 345 to 1980 MHz in steps; the nearest: 990, 1005")
        );
        assert!(refused(&[("sm_clock_mhz", 1)]).ends_with("the nearest: 345"));
        assert!(refused(&[("sm_clock_mhz", 5000)]).ends_with("the nearest: 1980"));
        assert_eq!(
            refused(&[("sm_clock_mhz", 990), ("memory_clock_mhz", 2619)]),
            format!("`hardware.sm_clock_mhz` is 990, but {card} has 1500, 1980 MHz")
        );
        assert_eq!(
            refused(&[("memory_clock_mhz", 3000)]),
            format!("`hardware.memory_clock_mhz` is 3000, but {card} has 1593, 2619, 3201 MHz")
        );
        let silent = Allowed { power_limit_mw: Err("not supported".into()), clocks_mhz: Err("not supported".into()) };
        let told = silent.check(Settings::of(&config(&[("power_limit_w", 300)])).unwrap(), &gpu());
        assert_eq!(told, Err(format!("`hardware.power_limit_w` cannot be set on {card}: not supported")));
    }
}
