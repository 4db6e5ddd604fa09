//! The hardware readings of each device, or the reason for their absence.
//!
//! Knows the names of the series, and of the facts with reasons why something could not be read.

use super::counter::Counter;
use super::energy::{Energy, Meter, Method};
use super::readings::Readings;
use super::sensor::Calibration;
use super::telemetry::Given;
use super::window::Windows;
use crate::record::{Attempt, Quantity, Run, Source, Table, Value};
use std::collections::BTreeSet;

/// The readings of an attempt.
pub(super) struct Hardware<'a> {
    given: &'a dyn Given,
    names: BTreeSet<String>,
    facts: &'a Table,
    nominal_ns: Option<u64>,
    gpus: u32,
    silence: Option<&'static str>,
}

/// The number of GPUs that a run uses.
pub fn gpus_of(run: &Run) -> u32 {
    let gpus = run.config().get("hardware.gpus").and_then(Value::as_int);
    gpus.and_then(|gpus| u32::try_from(gpus).ok()).unwrap_or(0)
}

impl<'a> Hardware<'a> {
    pub(super) fn of(given: &'a dyn Given, run: &Run, attempt: &'a Attempt) -> Self {
        let hz = attempt.settings.get("telemetry.hz").and_then(Value::as_float);
        Self::new(given, &attempt.facts, gpus_of(run), hz)
    }

    /// `hz` is the requested rate of readings.
    pub(super) fn new(given: &'a dyn Given, facts: &'a Table, gpus: u32, hz: Option<f64>) -> Self {
        let names = given.names();
        let readable = Quantity::ALL.map(Quantity::name);
        let read = names.iter().any(|name| name.rsplit_once('.').is_some_and(|(_, last)| readable.contains(&last)));
        let silence = match hz {
            _ if read => None,
            Some(0.0) => Some("telemetry is off (`telemetry.hz` = 0)"),
            _ => Some("no hardware samples"),
        };
        Self { given, names, facts, nominal_ns: hz.and_then(interval_ns), gpus, silence }
    }

    /// Whether anything was read.
    pub(super) fn speaks(&self) -> bool {
        self.silence.is_none()
    }

    /// The GPUs of the run by rank.
    pub(super) fn gpus(&self) -> impl Iterator<Item = Source> + use<> {
        (0..self.gpus).map(Source::Gpu)
    }

    /// The devices whose energy is the run's: its GPUs, or the processor's packages if it uses none.
    pub(super) fn meters(&self) -> Result<Vec<(Source, Meter)>, String> {
        let sources: Vec<Source> = if self.gpus > 0 { self.gpus().collect() } else { self.packages() };
        if sources.is_empty() {
            let reason = self.unread(&[Source::Package(0).series(Quantity::Energy)]);
            return Err(reason
                .unwrap_or("no GPU is used and the processor's energy counter cannot be read")
                .to_owned());
        }
        sources.into_iter().map(|source| Ok((source, self.meter(source)?))).collect()
    }

    /// The processor's packages whose energy was read.
    pub(super) fn packages(&self) -> Vec<Source> {
        let number = |name: &String| name.strip_prefix("package.")?.strip_suffix(".energy")?.parse().ok();
        let mut numbers: Vec<u32> = self.names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        numbers.into_iter().map(Source::Package).collect()
    }

    /// The energy sensors of a device, or why there are none.
    pub(super) fn meter(&self, source: Source) -> Result<Meter, String> {
        let power = [(Quantity::PowerInstant, Method::PowerInstant), (Quantity::PowerAverage, Method::PowerAverage)];
        let mut power = power.into_iter();
        let power = power.find_map(|(quantity, method)| Some((method, self.read(&source.series(quantity))?)));
        let counter = self.read(&source.series(Quantity::Energy)).map(Counter::new);
        let meter = match self.calibration(source) {
            Some(calibration) => Meter::calibrated(power, counter, &calibration),
            None => Meter::new(power, counter),
        };
        meter.ok_or_else(|| {
            let names = [Quantity::PowerInstant, Quantity::PowerAverage, Quantity::Energy];
            let reason = self.unread(&names.map(|quantity| source.series(quantity)));
            reason.map_or_else(|| format!("the power of {} was not read", device(source)), str::to_owned)
        })
    }

    /// The recorded calibration of the device's sensors.
    fn calibration(&self, source: Source) -> Option<Calibration> {
        Calibration::of(self.facts.get(&format!("{source}.calibration"))?.as_table()?)
    }

    /// The readings of a quantity, or why there are none.
    pub(super) fn gauge(&self, source: Source, quantity: Quantity) -> Result<Readings, String> {
        let name = source.series(quantity);
        self.read(&name).ok_or_else(|| match self.given.give(&name).map_or(0, |series| series.positions.len()) {
            0 => {
                let reason = self.unread(std::slice::from_ref(&name)).map(str::to_owned);
                reason.unwrap_or_else(|| format!("`{name}` was not read"))
            }
            1 => format!("`{name}` was read once, and two readings are needed"),
            _ => format!("`{name}` has no two readings that are numbers"),
        })
    }

    /// Returns the energy of each device over the windows and their sum, or why there is none. `what` names the windows
    /// in reasons.
    pub(super) fn energy(
        meters: Result<&[(Source, Meter)], &str>,
        what: &str,
        windows: &Windows,
    ) -> Result<(Vec<(Source, Energy)>, Energy), String> {
        let mut devices = Vec::new();
        for (source, meter) in meters? {
            let energy = meter.energy(windows).map_err(|reason| format!("{what} {reason}"))?;
            devices.push((*source, energy));
        }
        let each: Vec<Energy> = devices.iter().map(|(_, energy)| energy.clone()).collect();
        let sum = Energy::sum(&each).ok_or("there is no device to measure")?;
        Ok((devices, sum))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    fn read(&self, name: &str) -> Option<Readings> {
        self.given.give(name).and_then(|series| Readings::new(&series, self.nominal_ns))
    }

    /// Why none of the series exists, if that was recorded.
    fn unread(&self, names: &[String]) -> Option<&str> {
        let stated = names.iter().find_map(|name| self.facts.get(&format!("telemetry.unread.{name}")));
        stated.and_then(Value::as_str).or(self.silence)
    }
}

/// The name of a device in a sentence.
pub(super) fn device(source: Source) -> String {
    match source {
        Source::Gpu(rank) => format!("GPU {rank}"),
        Source::Package(number) => format!("processor package {number}"),
        Source::Host => "the host".to_owned(),
    }
}

/// The time between two readings at that rate.
fn interval_ns(hz: f64) -> Option<u64> {
    let interval = std::time::Duration::try_from_secs_f64(hz.recip()).ok()?;
    u64::try_from(interval.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Axis, Series};

    fn read(name: &str) -> Series {
        let mut series = Series::new(name, "", Axis::TimeNs);
        (0..20u32).for_each(|i| series.push(u64::from(i) * 100_000_000, 50.0 * f64::from(i)));
        series
    }

    fn reason(series: &[Series], facts: &Table, gpus: u32, hz: Option<f64>) -> String {
        Hardware::new(&series.to_vec(), facts, gpus, hz).meters().unwrap_err()
    }

    #[test]
    fn missing_readings_have_a_reason() {
        let none = Table::new();
        assert_eq!(reason(&[], &none, 1, Some(0.0)), "telemetry is off (`telemetry.hz` = 0)");
        assert_eq!(reason(&[], &none, 0, Some(10.0)), "no hardware samples");
        let host = [read("host.utilization_cpu")];
        assert_eq!(reason(&host, &none, 0, None), "no GPU is used and the processor's energy counter cannot be read");
        assert_eq!(reason(&host, &none, 2, None), "the power of GPU 0 was not read");
        let facts: Table = [
            ("telemetry.unread.gpu.0.power_instant".to_owned(), "no permission".into()),
            ("telemetry.unread.package.0.energy".to_owned(), "only root may".into()),
        ]
        .into();
        assert_eq!(reason(&host, &facts, 1, None), "no permission");
        assert_eq!(reason(&host, &facts, 0, None), "only root may");
    }

    #[test]
    fn a_single_reading_has_its_own_reason() {
        let gauge = |series: Series| {
            let series = vec![series];
            let facts = Table::new();
            Hardware::new(&series, &facts, 0, Some(10.0)).gauge(Source::Host, Quantity::WorkerMemory).unwrap_err()
        };
        let name = Source::Host.series(Quantity::WorkerMemory);
        let mut one = Series::new(&name, "B", Axis::TimeNs);
        assert_eq!(gauge(read("host.utilization_cpu")), format!("`{name}` was not read"));
        one.push(0, 8e6);
        assert_eq!(gauge(one), format!("`{name}` was read once, and two readings are needed"));
    }

    #[test]
    fn the_run_s_devices_are_its_gpus_or_else_the_packages() {
        let series =
            vec![read("gpu.0.power_average"), read("gpu.1.energy"), read("package.1.energy"), read("package.0.energy")];
        let facts = Table::new();
        let sources = |gpus: u32| -> Vec<String> {
            let hardware = Hardware::new(&series, &facts, gpus, Some(10.0));
            hardware.meters().unwrap().iter().map(|(source, _)| device(*source)).collect()
        };
        assert_eq!(sources(2), ["GPU 0", "GPU 1"]);
        assert_eq!(sources(0), ["processor package 0", "processor package 1"]);
        assert_eq!(interval_ns(10.0), Some(100_000_000));
        assert_eq!(interval_ns(0.0), None);
    }
}
