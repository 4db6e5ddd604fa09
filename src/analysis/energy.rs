//! Energy over windows: two estimators, their uncertainty, and the windows for which neither has a result.
//!
//! Knows power readings and energy counters. Must never give a phase the power of another one: a window that is too
//! short for the readings is refused with the reason. `docs/energy.md` has the details.

use super::counter::{Counter, CounterFault, Ticks};
use super::readings::{Readings, Renewal, Still};
use super::resolution::{COVERED, Pace, RESOLVED_INTERVALS, Resolved, resolve, uncovered};
use super::sensor::{Calibration, Sensor};
use super::statistic::{CONFIDENCE, nanoseconds, nearest_rank, number, quadrature, real, seconds, share};
use super::window::Windows;
use crate::record::{Table, Value};
use timing::{counted_edge, integrated_edge, missed, missed_by_counter, unknown};

mod timing;

/// The best accuracy of the sensors, as a share of the energy.
const SENSOR: f64 = 0.05;
/// The least number of counter ticks in a window for which the counter's difference is the figure.
const COUNTER_PERIODS: f64 = 10.0;
/// A period that exceeds the interval between readings by less than this factor counts as equal to it.
const SLOWER: f64 = 1.1;
/// The longest period of a power sensor.
const SENSOR_PERIOD_NS: u64 = 1_000_000_000;
/// The assumed period of a board's power sensor, if the readings do not show it. No known board has a longer one.
const USUAL_PERIOD_NS: u64 = 100_000_000;
/// The averaging time of `power_average`. A value may be this old, however often it changes.
const AVERAGED_NS: u64 = 1_000_000_000;

/// The estimator of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The difference of the device's own energy counter.
    Counter,
    /// The trapezoids under its readings of instantaneous power.
    PowerInstant,
    /// The trapezoids under its readings of power averaged over a second, if it has no instantaneous ones.
    PowerAverage,
    /// A sum over devices with different estimators.
    Several,
}

impl Method {
    /// The name that is recorded and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::PowerInstant => "integrated power_instant",
            Self::PowerAverage => "integrated power_average",
            Self::Several => "several",
        }
    }
}

/// The parts of an uncertainty, each half the width of a 95% interval, in joules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Uncertainty {
    /// The accuracy of the sensor.
    pub sensor: f64,
    /// Unknown changes of power between the readings around the windows' edges.
    pub edges: f64,
    /// Power that the sensor missed between its readings. A counter has this part only if its sensor is known.
    pub sampling: f64,
    /// Time without readings, which counts like the rest.
    pub gaps: f64,
    /// Short breaks between a phase's intervals that cannot be separated from the phase.
    pub breaks: f64,
}

impl Uncertainty {
    /// Every part with the name by which it is recorded.
    fn parts(self) -> [(&'static str, f64); 5] {
        let Self { sensor, edges, sampling, gaps, breaks } = self;
        [("sensor_j", sensor), ("edges_j", edges), ("sampling_j", sampling), ("gaps_j", gaps), ("breaks_j", breaks)]
    }
}

/// An energy with its sources and uncertainty.
#[derive(Clone, Debug, PartialEq)]
pub struct Energy {
    /// The figure, in joules.
    pub joules: f64,
    /// The length of the windows, in seconds.
    pub length_s: f64,
    /// The estimator of the figure.
    pub method: Method,
    /// The counter's figure, if it could be used or compared.
    pub counter: Option<f64>,
    /// The integrated figure.
    pub integrated: Option<f64>,
    /// Why the counter is invalid.
    pub fault: Option<CounterFault>,
    /// The share of the time that readings cover.
    pub coverage: f64,
    /// The number of readings in the windows.
    pub readings: usize,
    /// The parts of the uncertainty.
    pub uncertainty: Uncertainty,
    /// The digest of the calibration that corrected the sensor's delay. `None` if the usual delay was assumed, or if
    /// the devices have different calibrations.
    pub calibration: Option<String>,
}

impl Energy {
    /// Half the width of the interval in which the true energy lies with 95% confidence, in joules.
    pub fn half_width(&self) -> f64 {
        quadrature(self.uncertainty.parts().map(|(_, part)| part))
    }

    /// The mean power, in watts.
    pub fn watts(&self) -> f64 {
        self.joules / self.length_s
    }

    /// The counter's figure minus the integrated one, relative to the integrated one.
    pub fn disagreement(&self) -> Option<f64> {
        let integrated = self.integrated.filter(|joules| *joules != 0.0)?;
        Some((self.counter? - integrated) / integrated.abs())
    }

    /// Sums the energy of several devices over the same time. Their uncertainties are added linearly, because they may
    /// have errors in the same direction: they have the same type of sensor, are read at the same moments, and change
    /// at the same edges.
    pub(super) fn sum(devices: &[Self]) -> Option<Self> {
        let (first, others) = devices.split_first()?;
        let mut sum = first.clone();
        for device in others {
            let both = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
            let (a, b) = (sum.uncertainty, device.uncertainty);
            sum.joules += device.joules;
            sum.counter = both(sum.counter, device.counter);
            sum.integrated = both(sum.integrated, device.integrated);
            sum.fault = sum.fault.or(device.fault);
            sum.coverage = sum.coverage.min(device.coverage);
            sum.readings += device.readings;
            sum.calibration = sum.calibration.filter(|digest| Some(digest) == device.calibration.as_ref());
            sum.method = if sum.method == device.method { sum.method } else { Method::Several };
            sum.uncertainty = Uncertainty {
                sensor: a.sensor + b.sensor,
                edges: a.edges + b.edges,
                sampling: a.sampling + b.sampling,
                gaps: a.gaps + b.gaps,
                breaks: a.breaks + b.breaks,
            };
        }
        Some(sum)
    }

    /// All values, for a record.
    pub fn to_table(&self) -> Table {
        let mut table = Table::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                table.insert(name.to_owned(), value);
            }
        };
        put("joules", Some(self.joules.into()));
        put("uncertainty_j", Some(self.half_width().into()));
        put("seconds", Some(self.length_s.into()));
        put("method", Some(self.method.name().into()));
        put("counter_j", self.counter.map(Value::from));
        put("integrated_j", self.integrated.map(Value::from));
        put("disagreement", self.disagreement().map(Value::from));
        put("counter_fault", self.fault.map(|fault| fault.name().into()));
        put("coverage", Some(self.coverage.into()));
        put("readings", Some(self.readings.into()));
        put("calibration", self.calibration.as_deref().map(Value::from));
        for (name, part) in self.uncertainty.parts() {
            put(name, Some(part.into()));
        }
        table
    }
}

/// The sensors of one device: its power readings, its energy counter, or both.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    power: Option<(Method, Readings)>,
    counter: Option<Counter>,
    /// The largest age of a power reading, or the interval between readings if that is longer.
    power_age_ns: u64,
    /// Whether the age is known, and not only bounded or assumed.
    is_age_known: bool,
    /// The known sensors. The times of the readings are already corrected for their delays.
    known: Known,
}

/// The known sensors that a meter reads.
#[derive(Clone, Debug, Default)]
struct Known {
    digest: Option<String>,
    power: Option<Sensor>,
    counter: Option<Sensor>,
}

/// Returns the largest age of a power reading in nanoseconds, and whether enough changes were seen to know it.
fn age(power: &Readings) -> (u64, bool) {
    let longest_ns = power.still().map(Still::length_ns).max().unwrap_or(0);
    let (age_ns, is_known) = match power.renewal() {
        // Steady power repeats a value many times, so only the shortest times between changes show the sensor's period.
        Renewal::Seen(between) => (nearest_rank(&between, 10).unwrap_or(0), true),
        // A value that stays for longer than any sensor's period is steady power, whose few changes show nothing.
        _ if longest_ns > SENSOR_PERIOD_NS => (USUAL_PERIOD_NS, false),
        Renewal::Within(age_ns) => (age_ns, false),
        Renewal::Untold => (longest_ns, false),
    };
    (age_ns.min(SENSOR_PERIOD_NS).max(power.interval_ns()), is_known)
}

/// The reason if a counter is read often enough but ticks too slowly.
const TICKS: &str = "the counter ticks every";
/// The same reason for a counter with few ticks.
const FEW_TICKS: &str = "the counter's period is at most";

/// The result of one estimator before it is checked.
struct Estimate {
    watts: f64,
    covered: f64,
    readings: usize,
    /// Parts of the uncertainty of the energy over the covered time, in joules.
    edges: f64,
    sampling: f64,
    seen_s: f64,
}

impl Meter {
    /// Returns `None` without power readings and counter.
    pub(super) fn new(power: Option<(Method, Readings)>, counter: Option<Counter>) -> Option<Self> {
        let (power_age_ns, is_age_known) = power.as_ref().map_or((0, true), |(method, power)| {
            let (age_ns, is_known) = age(power);
            let averaged = if *method == Method::PowerAverage { AVERAGED_NS } else { 0 };
            (age_ns.max(averaged), is_known)
        });
        let known = Known::default();
        (power.is_some() || counter.is_some()).then_some(Self { power, counter, power_age_ns, is_age_known, known })
    }

    /// Creates the meter of a device with known sensors. Its readings are moved back by the sensors' delays.
    pub(super) fn calibrated(
        power: Option<(Method, Readings)>,
        counter: Option<Counter>,
        calibration: &Calibration,
    ) -> Option<Self> {
        let of_power = power.as_ref().and_then(|(method, _)| match method {
            Method::PowerInstant => calibration.instant,
            Method::PowerAverage => calibration.average,
            Method::Counter | Method::Several => None,
        });
        let power = power.and_then(|(method, readings)| {
            let delay_s = of_power.map_or(0.0, |sensor| sensor.delay.seconds);
            Some((method, readings.earlier(delay_s)?))
        });
        let of_counter = calibration.counter.filter(|_| counter.is_some());
        let counter =
            counter.and_then(|counter| counter.earlier(of_counter.map_or(0.0, |sensor| sensor.delay.seconds)));
        let mut meter = Self::new(power, counter)?;
        if let (Some(sensor), Some((_, readings))) = (&of_power, &meter.power) {
            let longest_s = sensor.period.seconds.max(sensor.window_s()).max(seconds(readings.interval_ns()));
            (meter.power_age_ns, meter.is_age_known) = (nanoseconds(longest_s), true);
        }
        let used = of_power.is_some() || of_counter.is_some();
        let digest = used.then(|| calibration.digest.clone());
        meter.known = Known { digest, power: of_power, counter: of_counter };
        Some(meter)
    }

    /// All series of readings.
    pub(super) fn readings(&self) -> impl Iterator<Item = &Readings> {
        self.power.iter().map(|(_, readings)| readings).chain(self.counter.iter().map(Counter::readings))
    }

    /// The largest age of readings, or the interval between them, and the reason for it.
    fn pace(&self) -> Pace {
        let slower = |readings: &Readings, ns: u64| real(ns) > SLOWER * real(readings.interval_ns());
        let counter = self.counter.as_ref().filter(|_| self.counts()).map(|counter| {
            let why = match counter.ticks() {
                _ if !slower(counter.readings(), counter.pace_ns()) => "the counter is read every",
                Ticks::Few => FEW_TICKS,
                _ => TICKS,
            };
            Pace { why, ns: counter.pace_ns() }
        });
        let power = self.power.as_ref().map(|(method, power)| {
            let why = match method {
                _ if !slower(power, self.power_age_ns) => "power is read every",
                Method::PowerAverage if !self.is_calibrated() => "power is an average over",
                _ => "readings of power may be as old as",
            };
            Pace { why, ns: self.power_age_ns }
        });
        match (power, counter) {
            (Some(power), Some(counter)) if real(counter.ns) > SLOWER * real(power.ns) => counter,
            (Some(power), counter) => Pace { ns: counter.map_or(0, |counter| counter.ns).max(power.ns), ..power },
            (None, counter) => counter.unwrap_or(Pace { why: "the counter is read every", ns: 0 }),
        }
    }

    /// Whether the counter's difference may be a figure. A counter with few ticks is used only if there is no power to integrate.
    fn counts(&self) -> bool {
        match self.counter.as_ref().map(Counter::ticks) {
            Some(Ticks::Many) => true,
            Some(Ticks::Few) => self.power.is_none(),
            Some(Ticks::None) | None => false,
        }
    }

    fn is_calibrated(&self) -> bool {
        self.known.power.is_some()
    }

    /// Returns the energy over the windows, or the reason why there is none.
    pub(super) fn energy(&self, windows: &Windows) -> Result<Energy, String> {
        match resolve(windows, self.pace()) {
            Ok(resolved) => self.judged(windows, &resolved),
            // Power that hardly changed may be as old as all of its readings. The counter has a finer resolution with each tick.
            Err(reason)
                if !self.is_age_known
                    && self.counter.as_ref().is_some_and(|counter| counter.ticks() != Ticks::None) =>
            {
                let alone = Self { power: None, power_age_ns: 0, is_age_known: true, ..self.clone() };
                let of_counter = [TICKS, FEW_TICKS].contains(&alone.pace().why);
                alone.energy(windows).map_err(|why| if of_counter { why } else { reason })
            }
            Err(reason) => Err(reason),
        }
    }

    fn judged(&self, windows: &Windows, resolved: &Resolved) -> Result<Energy, String> {
        let integrated = self.power.as_ref().map(|(_, power)| self.integrated(power, resolved));
        let counted = self.counter.as_ref().map(|counter| self.counted(counter, resolved));
        let fault = counted.as_ref().and_then(|counted| counted.as_ref().err().copied());
        let counted = counted.and_then(Result::ok).filter(|_| self.counts());
        let good = |estimate: &Estimate| estimate.covered >= COVERED;
        let best = [&integrated, &counted].into_iter().flatten().map(|estimate| estimate.covered).fold(0.0, f64::max);
        let (integrated, counted) = (integrated.filter(good), counted.filter(good));

        let method = self.power.as_ref().map_or(Method::Counter, |(method, _)| *method);
        let length_s = seconds(windows.length());
        let (method, figure) = match (&counted, &integrated) {
            (Some(counted), _) if self.ticks_often(&resolved.windows) => (Method::Counter, counted),
            (_, Some(integrated)) => (method, integrated),
            (Some(counted), None) => (Method::Counter, counted),
            (None, None) => return Err(self.refusal(best, fault)),
        };
        let joules = figure.watts * length_s;
        Ok(Energy {
            joules,
            length_s,
            method,
            counter: counted.as_ref().map(|estimate| estimate.watts * length_s),
            integrated: integrated.as_ref().map(|estimate| estimate.watts * length_s),
            fault,
            coverage: figure.covered,
            readings: figure.readings,
            calibration: self.known.digest.clone(),
            uncertainty: Uncertainty {
                sensor: SENSOR * joules.abs(),
                edges: figure.edges * length_s / figure.seen_s,
                sampling: figure.sampling * length_s / figure.seen_s,
                gaps: (1.0 - figure.covered) * joules.abs(),
                breaks: (1.0 / resolved.own - 1.0) * length_s * self.spread(&resolved.windows).max(figure.watts.abs()),
            },
        })
    }

    /// The range of power in the windows, in watts: in a break the device may have drawn this much more or less.
    fn spread(&self, windows: &Windows) -> f64 {
        let readings = self.power.iter().flat_map(|(_, power)| {
            windows.iter().flat_map(|(start, stop)| power.between(start, stop)).map(|(_, watts)| *watts)
        });
        let (low, high) =
            readings.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), watts| (low.min(watts), high.max(watts)));
        if low <= high { high - low } else { 0.0 }
    }

    fn ticks_often(&self, windows: &Windows) -> bool {
        let period = self.counter.as_ref().map_or(0, Counter::period_ns);
        real(windows.length()) >= COUNTER_PERIODS * real(period) * number(windows.count())
    }

    fn integrated(&self, power: &Readings, resolved: &Resolved) -> Estimate {
        let integral = power.integral(&resolved.windows);
        let known = power.known(&resolved.windows);
        let changes = || known.iter().flat_map(|(start, stop)| [start, stop]).map(|edge| self.change(edge));
        let roughness = CONFIDENCE * power.roughness(&resolved.windows);
        let (edges, sampling) = match &self.known.power {
            Some(sensor) => {
                let interval_s = seconds(power.interval_ns());
                let edges = changes().map(|change| integrated_edge(sensor, interval_s, change));
                (unknown(edges, CONFIDENCE), missed(sensor, power))
            }
            // If the power changes at an edge, the change may be displaced by up to the age of a reading.
            None => (changes().map(|change| change * seconds(self.power_age_ns)).sum(), 1.0),
        };
        Estimate {
            watts: integral.area / seconds(integral.covered_ns),
            covered: resolved.kept * share(integral.covered_ns, resolved.windows.length()),
            readings: integral.readings,
            edges,
            sampling: sampling * roughness,
            seen_s: seconds(integral.covered_ns),
        }
    }

    fn counted(&self, counter: &Counter, resolved: &Resolved) -> Result<Estimate, CounterFault> {
        let power = self.power.as_ref().map(|(_, power)| power);
        let growth = counter.growth(&resolved.windows, power)?;
        let seen_s = seconds(growth.covered_ns);
        let watts = growth.area / seen_s;
        let mut chance = Vec::new();
        let mut displaced = 0.0;
        let mut found = Vec::new();
        for (start, stop) in counter.readings().graspable(&resolved.windows).iter() {
            for edge in [start, stop] {
                let (low, high) = self.around(edge).unwrap_or((watts, watts));
                if let Some(sensor) = &self.known.counter {
                    let interval_s = seconds(counter.readings().interval_ns());
                    found.push(counted_edge(sensor, interval_s, high.max(watts), high - low));
                    continue;
                }
                chance.push(counter.edge(high.max(watts)));
                // Both edges have the same lag, which cancels if they have the same power. Otherwise energy moves across the edge.
                displaced += (high - low) * counter.lag() / 2.0;
            }
        }
        Ok(Estimate {
            watts,
            covered: resolved.kept * share(growth.covered_ns, resolved.windows.length()),
            readings: growth.readings,
            edges: quadrature(chance) + displaced + unknown(found, CONFIDENCE),
            sampling: self.known.counter.as_ref().map_or(0.0, |sensor| {
                let roughness = power.map_or(0.0, |power| power.roughness(&resolved.windows));
                CONFIDENCE * roughness * missed_by_counter(sensor)
            }),
            seen_s,
        })
    }

    /// The range of power around a moment, in watts.
    fn change(&self, moment: u64) -> f64 {
        let (low, high) = self.around(moment).unwrap_or_default();
        high - low
    }

    /// The lowest and the highest power around a moment.
    fn around(&self, moment: u64) -> Option<(f64, f64)> {
        let read = self.power.as_ref().and_then(|(_, power)| {
            let reach = RESOLVED_INTERVALS.saturating_mul(self.pace().ns);
            let near = power.between(moment.saturating_sub(reach), moment.saturating_add(reach)).iter();
            let values = || near.clone().map(|(_, watts)| *watts).chain(power.at(moment));
            let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
            (low <= high).then_some((low, high))
        });
        read.or_else(|| self.counter.as_ref()?.slopes(moment))
    }

    fn refusal(&self, covered: f64, fault: Option<CounterFault>) -> String {
        match (fault, &self.power) {
            (Some(CounterFault::Backwards), None) => "has a counter of energy that went backwards".to_owned(),
            (Some(CounterFault::Frozen), None) => "has a counter of energy that stood still".to_owned(),
            (None, None) if !self.counts() => "has a counter of energy that hardly ticked".to_owned(),
            _ => uncovered("power", covered),
        }
    }
}

#[cfg(test)]
mod tests;
