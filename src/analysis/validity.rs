//! Whether the measurements of an attempt are valid: the validity flag `valid`, or `tainted` with reasons.
//!
//! Knows the rules and their bounds; `docs/validity.md` has the details. A rule without the needed readings gives no
//! reason, unless a protocol requires the readings.

use super::statistic::{median_real, number, seconds};
use super::telemetry::{Given, has_bit};
use super::window::Windows;
use crate::record::{Attempt, Quantity, Series, Source, Table, Value, count};
use std::borrow::Cow;

/// NVML's reasons for low clocks that no setting of the GPU explains, by their bits.
const THROTTLES: [(i32, &str); 4] = [(3, "hw_slowdown"), (5, "sw_thermal"), (6, "hw_thermal"), (7, "hw_power_brake")];
/// A throttle in a smaller share of the readings changes no reported figure.
const THROTTLED_SHARE: f64 = 0.01;
/// The largest deviation of a locked clock, and the share of readings that may exceed it.
const CLOCK_OFF: f64 = 0.01;
const CLOCK_OFF_SHARE: f64 = 0.05;
/// The largest deviation of the second half's median clock from the first half's.
const CLOCK_DRIFT: f64 = 0.03;
/// The fewest readings of a half from which drift is tested.
const DRIFT_READINGS: usize = 10;
/// The least percentages of all processors' time that are busy, and that others than the worker use, on an overloaded host.
const BUSY: f64 = 90.0;
const OTHERS: f64 = 10.0;
/// The fewest readings of the host from which its load is tested.
const HOST_READINGS: usize = 5;
/// The bit of a GPU at its power limit, whatever clock was requested.
const POWER_CAPPED: i32 = 2;
/// The most pages that may come back from swap: in all, and per second. They are counted for the whole host.
const SWAPPED: f64 = 1024.0;
const SWAPPED_EACH_SECOND: f64 = 100.0;

/// The limits for an attempt: the hardware settings of its cell, and the bounds of its protocol.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounds {
    power_limit_w: Option<f64>,
    sm_clock_mhz: Option<f64>,
    memory_clock_mhz: Option<f64>,
    min_window_s: Option<f64>,
    min_readings: Option<f64>,
    /// The highest and the lowest temperature at which an attempt may begin.
    start_c: Option<f64>,
    least_start_c: Option<f64>,
    /// Whether the supervisor has to be in a container: one is required, and the worker is started in none.
    container: bool,
    /// The coefficient of variation at which steps are steady, and the number of steps over which it is taken.
    pub(super) steady: Option<(f64, usize)>,
}

impl Bounds {
    /// The bounds of a cell.
    pub fn of(config: &Table, settings: &Table) -> Self {
        let asked = |key: &str| config.get(key).and_then(Value::as_float);
        let bound = |key: &str| settings.get(key).and_then(Value::as_float);
        Self {
            power_limit_w: asked("hardware.power_limit_w"),
            sm_clock_mhz: asked("hardware.sm_clock_mhz"),
            memory_clock_mhz: asked("hardware.memory_clock_mhz"),
            min_window_s: bound("protocol.min_window_s"),
            min_readings: bound("protocol.min_readings"),
            start_c: bound("protocol.cool_to_c"),
            least_start_c: bound("protocol.min_start_c"),
            steady: bound("protocol.warmup_cv").zip(
                settings
                    .get("protocol.warmup_over")
                    .and_then(Value::as_int)
                    .and_then(|over| usize::try_from(over).ok()),
            ),
            container: settings.get("protocol.container") == Some(&"required".into())
                && settings.get("container.image").is_none_or(|image| *image == "host".into()),
        }
    }

    fn is_protocol(&self) -> bool {
        self.min_window_s.is_some() || self.min_readings.is_some()
    }
}

/// The input of the validity flag.
pub(super) struct Evidence<'a> {
    pub(super) bounds: &'a Bounds,
    pub(super) facts: &'a Table,
    pub(super) telemetry: &'a dyn Given,
    /// The measured windows: the training, or the whole attempt if it reported no training.
    pub(super) measured: &'a Windows,
    /// Whether the windows are training.
    pub(super) trained: bool,
    /// The duration of the attempt.
    pub(super) wall_ns: u64,
    pub(super) gpus: u32,
    /// Why the end of the warm-up is unknown, if a protocol asks for it.
    pub(super) unsteady: Option<&'a str>,
    /// Whether there is any hardware telemetry.
    pub(super) speaks: bool,
}

/// Adds the validity flag to the facts: `validity`, and `validity.reasons` if there are any. An attempt without
/// telemetry and without a protocol has no flag.
pub(super) fn stamp(evidence: &Evidence<'_>, facts: &mut Table) {
    let reasons = evidence.reasons();
    if reasons.is_empty() && !evidence.speaks {
        return;
    }
    facts.insert(Attempt::VALIDITY.to_owned(), if reasons.is_empty() { "valid" } else { "tainted" }.into());
    if !reasons.is_empty() {
        facts.insert(Attempt::DISTURBED.to_owned(), reasons.into());
    }
}

impl Evidence<'_> {
    fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for rank in 0..self.gpus {
            reasons.extend(self.power_limit(rank));
            reasons.extend(self.throttled(rank));
            reasons.extend(self.clock_moved(rank, Quantity::ClockSm, "multiprocessors", self.bounds.sm_clock_mhz));
            reasons.extend(self.clock_moved(rank, Quantity::ClockMemory, "memory", self.bounds.memory_clock_mhz));
            reasons.extend(self.ecc(rank));
        }
        reasons.extend(self.lost());
        reasons.extend(self.left_set());
        reasons.extend(self.foreign());
        reasons.extend(self.unsteady.map(str::to_owned));
        reasons.extend(self.hot_start());
        reasons.extend(self.cold_start());
        reasons.extend(self.too_little());
        reasons.extend(self.overloaded());
        reasons.extend(self.swapped());
        reasons.extend(self.container_missing());
        reasons
    }

    /// The worker is not started in an image, and the supervisor's image is unknown: the environment cannot be reproduced.
    fn container_missing(&self) -> Option<String> {
        let text = |fact: &str| self.facts.get(fact).and_then(Value::as_str);
        if !self.bounds.container || text("container.image").is_some_and(|image| image != "host") {
            return None;
        }
        let ran_in = match text("container.kind") {
            Some(kind) => format!("ran in one ({kind}) of which no image is known (`container.image` names one)"),
            None => "ran in none".to_owned(),
        };
        Some(format!("container missing: the protocol requires one, but the attempt {ran_in}"))
    }

    fn fact(&self, rank: u32, name: &str) -> Option<f64> {
        self.facts.get(&format!("gpu.{rank}.{name}")).and_then(Value::as_float)
    }

    fn series(&self, source: Source, quantity: Quantity) -> Option<Cow<'_, Series>> {
        self.telemetry.give(&source.series(quantity))
    }

    /// The finite readings in the measured windows, with their times.
    fn readings(&self, source: Source, quantity: Quantity) -> Vec<(u64, f64)> {
        let Some(series) = self.series(source, quantity) else { return Vec::new() };
        let readings = series.positions.iter().copied().zip(series.values.iter().copied());
        readings.filter(|(position, value)| value.is_finite() && self.measured.holds(*position)).collect()
    }

    /// The finite values in the measured windows.
    fn values(&self, source: Source, quantity: Quantity) -> Vec<f64> {
        self.readings(source, quantity).into_iter().map(|(_, value)| value).collect()
    }

    /// The clock readings outside of times at the power limit. A GPU at the power limit that its cell requests is in
    /// its requested state, whatever its clock. The readings of throttle reasons just before and after decide.
    fn clocks(&self, rank: u32, quantity: Quantity) -> Vec<f64> {
        let readings = self.readings(Source::Gpu(rank), quantity);
        let limited = self.bounds.power_limit_w.and_then(|_| self.series(Source::Gpu(rank), Quantity::ThrottleReasons));
        let Some(reasons) = limited else { return readings.into_iter().map(|(_, value)| value).collect() };
        let is_capped = |at: u64| {
            // Both are read one after the other, and one of them maybe less often.
            let next = reasons.positions.partition_point(|position| *position < at);
            let around = [next.checked_sub(1), Some(next)];
            let around = around.into_iter().flatten().filter_map(|place| reasons.values.get(place));
            around.copied().any(|value| has_bit(value, POWER_CAPPED))
        };
        readings.into_iter().filter(|(at, _)| !is_capped(*at)).map(|(_, value)| value).collect()
    }

    fn power_limit(&self, rank: u32) -> Option<String> {
        let had = self.fact(rank, "power_limit_w");
        if let Some((had, after)) = had.zip(self.fact(rank, "power_limit_after_w"))
            && (had - after).abs() >= 0.5
        {
            return Some(format!("power limit: GPU {rank} had {had} W at the beginning and {after} W at the end"));
        }
        let asked = self.bounds.power_limit_w?;
        match had {
            Some(had) if (had - asked).abs() < 0.5 => None,
            Some(had) => Some(format!("power limit: {asked} W were requested, but GPU {rank} had {had} W")),
            None => Some(format!("power limit: {asked} W were requested, but the limit of GPU {rank} was not read")),
        }
    }

    fn throttled(&self, rank: u32) -> Option<String> {
        let values = self.values(Source::Gpu(rank), Quantity::ThrottleReasons);
        let part =
            |bit: i32| number(values.iter().filter(|value| has_bit(**value, bit)).count()) / number(values.len());
        let seen = THROTTLES.into_iter().map(|(bit, name)| (name, part(bit)));
        let told: Vec<String> = seen
            .filter(|(_, part)| *part > THROTTLED_SHARE)
            .map(|(name, part)| format!("{name} in {:.0}% of the samples", 100.0 * part))
            .collect();
        (!told.is_empty()).then(|| format!("throttled: GPU {rank}, {}", told.join(", ")))
    }

    fn clock_moved(&self, rank: u32, quantity: Quantity, what: &str, asked: Option<f64>) -> Option<String> {
        let values = self.clocks(rank, quantity);
        if let Some(asked) = asked {
            if values.is_empty() {
                if !self.values(Source::Gpu(rank), quantity).is_empty() {
                    // The GPU was at its power limit all the time.
                    return None;
                }
                let was_set = self.facts.contains_key("hardware.set");
                return (!was_set)
                    .then(|| format!("clocks moved: whether GPU {rank}'s {what} ran at {asked} MHz was not read"));
            }
            let is_off = |value: f64| (value - asked).abs() > CLOCK_OFF * asked;
            let off = number(values.iter().filter(|value| is_off(**value)).count()) / number(values.len());
            let usual = median_real(&values)?;
            // Without training, the readings include times before and after the work.
            let moved = if self.trained { off > CLOCK_OFF_SHARE } else { is_off(usual) };
            return moved.then(|| {
                let percent = 100.0 * off;
                format!("clocks moved: GPU {rank}'s {what} were to run at {asked} MHz, but {percent:.0}% of the samples differ (median {usual} MHz)")
            });
        }
        let (first, second) = values.split_at(values.len() / 2);
        // A GPU that is idle at the start or the end has other clocks then. Without training, the times of work are unknown.
        if first.len() < DRIFT_READINGS || !self.trained {
            return None;
        }
        let (first, second) = (median_real(first)?, median_real(second)?);
        let drift = (second - first).abs() / first.max(1.0);
        (drift > CLOCK_DRIFT).then(|| {
            format!("clocks moved: GPU {rank}'s {what} ran at {first} MHz in the first half of the training and at {second} MHz in the second")
        })
    }

    fn ecc(&self, rank: u32) -> Option<String> {
        let told: Vec<String> = ["corrected", "uncorrected"]
            .into_iter()
            .filter_map(|kind| Some((kind, self.fact(rank, &format!("ecc_{kind}_errors"))?)))
            .filter(|(_, count)| *count > 0.0)
            .map(|(kind, errors)| count(errors, &format!("{kind} error")))
            .collect();
        (!told.is_empty()).then(|| format!("ECC event: {} in GPU {rank}'s memory", told.join(" and ")))
    }

    /// The work of a GPU that did not respond is unknown, and a GPU that was reset has lost its settings.
    fn lost(&self) -> Option<String> {
        let Some(Value::List(ranks)) = self.facts.get("telemetry.lost_gpus") else { return None };
        let names: Vec<String> = ranks.iter().map(|rank| format!("GPU {rank}")).collect();
        (!names.is_empty()).then(|| format!("GPU lost: {} fell off the bus or was reset meanwhile", names.join(", ")))
    }

    fn left_set(&self) -> Option<String> {
        let file = self.facts.get("hardware.left_set").and_then(Value::as_str)?;
        Some(format!(
            "settings of others: `{file}` names a GPU of this attempt that another one has set, or cannot be read"
        ))
    }

    fn foreign(&self) -> Option<String> {
        let count = self.facts.get("telemetry.foreign_processes").and_then(Value::as_int).filter(|count| *count > 0)?;
        let verb = if count == 1 { "process computes" } else { "processes compute" };
        Some(format!("foreign process on the GPU: {count} other {verb} there"))
    }

    /// The first temperature reading of each GPU.
    fn starts_c(&self) -> Vec<(u32, Option<f64>)> {
        let first = |rank: u32| {
            let temperature = self.series(Source::Gpu(rank), Quantity::Temperature)?;
            temperature.values.iter().copied().find(|value| value.is_finite())
        };
        (0..self.gpus).map(|rank| (rank, first(rank))).collect()
    }

    /// A cold GPU has lower leakage and draws less power.
    fn cold_start(&self) -> Option<String> {
        let bound = self.bounds.least_start_c?;
        let all = self.starts_c();
        let read = all.iter().filter_map(|(rank, first)| Some((*rank, (*first)?)));
        let coldest = read.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, coldest)| *coldest < bound);
        start_fault("cold start", &all, coldest, &format!("requires at least {bound} °C"))
    }

    fn hot_start(&self) -> Option<String> {
        let bound = self.bounds.start_c?;
        let all = self.starts_c();
        // An attempt that waited knows the temperature at its start: one more degree a second later is noise.
        let waited = self.facts.get("protocol.start_c").and_then(Value::as_float).is_some_and(|c| c <= bound);
        let read = all.iter().filter_map(|(rank, first)| Some((*rank, (*first)?))).filter(|_| !waited);
        let hottest = read.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, hottest)| *hottest > bound);
        start_fault("hot start", &all, hottest, &format!("allows at most {bound} °C"))
    }

    fn too_little(&self) -> Option<String> {
        if !self.bounds.is_protocol() {
            return None;
        }
        let length = seconds(self.measured.length());
        let source = |rank: u32| {
            let powers = [Quantity::PowerInstant, Quantity::PowerAverage];
            powers.map(|quantity| self.values(Source::Gpu(rank), quantity).len()).into_iter().max().unwrap_or(0)
        };
        let fewest = (0..self.gpus).map(source).min();
        let readings = fewest.unwrap_or_else(|| self.values(Source::Host, Quantity::UtilizationCpu).len());
        let wanted_s = self.bounds.min_window_s.unwrap_or(0.0);
        let wanted = self.bounds.min_readings.unwrap_or(0.0);
        (length < wanted_s || number(readings) < wanted).then(|| {
            let readings = count(readings, "reading");
            format!("too few samples: {length:.1} s with {readings} were measured, but the protocol requires {wanted_s} s and {wanted}")
        })
    }

    /// The processors were fully used, partly by others than the worker.
    fn overloaded(&self) -> Option<String> {
        let busy = self.values(Source::Host, Quantity::UtilizationCpu);
        if busy.len() < HOST_READINGS {
            return None;
        }
        let busy = busy.iter().sum::<f64>() / number(busy.len());
        let cores = self.facts.get("cpu.logical_cores").and_then(Value::as_float).filter(|cores| *cores >= 1.0)?;
        let time = self.series(Source::Host, Quantity::WorkerCpuTime)?;
        let mut within = time
            .positions
            .iter()
            .copied()
            .zip(time.values.iter().copied())
            .filter(|point| self.measured.holds(point.0));
        let (from, to) = (within.next()?, within.next_back()?);
        let worker = 100.0 * (to.1 - from.1) / seconds(to.0.saturating_sub(from.0)) / cores;
        let others = busy - worker;
        (busy >= BUSY && others >= OTHERS).then(|| {
            format!("host overloaded: its processors were {busy:.0}% busy, {others:.0}% of their time with other work")
        })
    }

    fn swapped(&self) -> Option<String> {
        let pages = self.facts.get("host.swapped_in_pages").and_then(Value::as_float)?;
        let most = SWAPPED.max(SWAPPED_EACH_SECOND * seconds(self.wall_ns));
        (pages > most).then(|| format!("page faults to swap: {} came back from swap meanwhile", count(pages, "page")))
    }
}

/// The reason about temperatures at the start: a GPU that breaks the rule, or one that was not read.
fn start_fault(name: &str, all: &[(u32, Option<f64>)], found: Option<(u32, f64)>, rule: &str) -> Option<String> {
    if let Some((rank, found)) = found {
        return Some(format!("{name}: GPU {rank} began at {found} °C, but the protocol {rule}"));
    }
    let (rank, _) = all.iter().find(|(_, first)| first.is_none())?;
    Some(format!("{name}: the temperature of GPU {rank} at the start was not read, but the protocol {rule}"))
}

#[cfg(test)]
mod tests;
