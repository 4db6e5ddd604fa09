//! Units as people and programs state them, and conversions between them.

use super::{Attempt, Metric, MetricInfo, known_metric};

/// A unit: its quantity, and its factor and shift to the base unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    measures: Measure,
    factor: f64,
    /// The number that is added after the multiplication; 0 except for temperatures.
    shift: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Time,
    Energy,
    Power,
    Bytes,
    Frequency,
    Temperature,
    EnergyDelay,
    Share,
    Flops,
    Rate,
    /// Tokens per time. They are not a rate of samples, because a sample has many tokens.
    Tokens,
    Bandwidth,
}

use Measure::{Bandwidth, Bytes, Energy, EnergyDelay, Flops, Frequency, Power, Rate, Share, Temperature, Time, Tokens};

/// Names, quantities, and factors to the base units: s, J, W, B, Hz, degC, J·s, a fraction of 1, FLOP/s, 1/s, tokens/s, B/s.
const UNITS: &[(&[&str], Measure, f64)] = &[
    (&["ns"], Time, 1e-9),
    (&["us", "µs"], Time, 1e-6),
    (&["ms"], Time, 1e-3),
    (&["s", "sec", "seconds"], Time, 1.0),
    (&["min", "minutes"], Time, 60.0),
    (&["h", "hours"], Time, 3600.0),
    (&["d", "days"], Time, 86_400.0),
    (&["mJ"], Energy, 1e-3),
    (&["J", "Ws"], Energy, 1.0),
    (&["kJ"], Energy, 1e3),
    (&["MJ"], Energy, 1e6),
    (&["mWh"], Energy, 3.6),
    (&["Wh"], Energy, 3600.0),
    (&["kWh"], Energy, 3.6e6),
    (&["MWh"], Energy, 3.6e9),
    (&["mW"], Power, 1e-3),
    (&["W"], Power, 1.0),
    (&["kW"], Power, 1e3),
    (&["B", "bytes"], Bytes, 1.0),
    (&["kB"], Bytes, 1e3),
    (&["MB"], Bytes, 1e6),
    (&["GB"], Bytes, 1e9),
    (&["KiB"], Bytes, 1024.0),
    (&["MiB"], Bytes, 1_048_576.0),
    (&["GiB"], Bytes, 1_073_741_824.0),
    (&["Hz"], Frequency, 1.0),
    (&["kHz"], Frequency, 1e3),
    (&["MHz"], Frequency, 1e6),
    (&["GHz"], Frequency, 1e9),
    (&["degC", "°C", "C"], Temperature, 1.0),
    (&["K"], Temperature, 1.0),
    (&["J·s", "J*s", "Js"], EnergyDelay, 1.0),
    (&["", "1"], Share, 1.0),
    (&["%"], Share, 0.01),
    (&["GFLOP/s"], Flops, 1e9),
    (&["TFLOP/s"], Flops, 1e12),
    (&["samples/s", "1/s"], Rate, 1.0),
    (&["samples/min"], Rate, 1.0 / 60.0),
    (&["images/s"], Rate, 1.0),
    (&["tokens/s"], Tokens, 1.0),
    (&["B/s"], Bandwidth, 1.0),
    (&["MB/s"], Bandwidth, 1e6),
    (&["GB/s"], Bandwidth, 1e9),
    (&["MiB/s"], Bandwidth, 1_048_576.0),
    (&["GiB/s"], Bandwidth, 1_073_741_824.0),
];

impl Unit {
    /// Returns the unit with a name.
    pub fn named(name: &str) -> Option<Self> {
        let (_, measures, factor) = UNITS.iter().find(|(names, ..)| names.contains(&name))?;
        let shift = if name == "K" { -273.15 } else { 0.0 };
        Some(Self { measures: *measures, factor: *factor, shift })
    }

    /// Whether both are units of the same quantity.
    pub fn fits(self, other: Self) -> bool {
        self.measures == other.measures
    }

    /// Whether it is a unit of what power sensors measure: power, energy, or energy times time.
    pub fn is_of_energy(self) -> bool {
        matches!(self.measures, Energy | Power | EnergyDelay)
    }

    /// Whether it is a unit of a machine's effort, which grows with disturbances: time, energy, and work per time.
    pub fn is_of_effort(self) -> bool {
        self.is_of_energy() || matches!(self.measures, Time | Flops | Rate | Tokens | Bandwidth)
    }

    /// Whether it is a unit of energy times time.
    pub fn is_of_energy_delay(self) -> bool {
        self.measures == EnergyDelay
    }

    /// Whether it is a unit of a machine's quantity and not a fraction.
    pub fn is_of_machine(self) -> bool {
        self.measures != Share
    }

    /// Whether it has a true zero, so that values are never negative and one can be a multiple of another. Temperatures
    /// have none, and fractions are compared in points and may be negative.
    pub fn has_true_zero(self) -> bool {
        !matches!(self.measures, Share | Temperature)
    }

    /// Converts a number from this unit to another one of the same quantity.
    pub fn convert(self, value: f64, to: Self) -> f64 {
        if self == to {
            return value;
        }
        let base = value * self.factor + self.shift;
        // Division by a power of ten is exact, and multiplication by its inverse is not.
        if to.factor < 1.0 { (base - to.shift) * (1.0 / to.factor) } else { (base - to.shift) / to.factor }
    }
}

impl Metric {
    /// The metric in another unit, with its uncertainty; `None` if the units are of different quantities.
    pub fn in_unit(&self, wanted: &str) -> Option<Self> {
        if self.unit == wanted {
            return Some(self.clone());
        }
        let (from, to) = (Unit::named(&self.unit)?, Unit::named(wanted)?);
        from.fits(to).then(|| Self {
            value: self.value.map(|value| from.convert(value, to)),
            uncertainty: self.uncertainty.map(|half| from.convert(half, to) - from.convert(0.0, to)),
            unit: wanted.to_owned(),
            reason: self.reason.clone(),
        })
    }
}

impl MetricInfo {
    /// Converts a stated metric of this name to its own unit, which is also used if none is stated. `None` if the units
    /// are of different quantities.
    pub fn standard(&self, stated: &Metric) -> Option<Metric> {
        if stated.unit.is_empty() {
            return Some(Metric { unit: self.unit.to_owned(), ..stated.clone() });
        }
        stated.in_unit(self.unit)
    }
}

impl Attempt {
    /// The metrics whose units do not follow from their names, with the units: a program's own metrics, and known ones in another unit.
    pub fn told_units(&self) -> impl Iterator<Item = (&str, &str)> {
        let told =
            |name: &str, unit: &str| known_metric(name).is_none_or(|known| !unit.is_empty() && unit != known.unit);
        let metrics = self.metrics.iter().filter(|(name, metric)| !name.is_empty() && metric.value.is_some());
        metrics.map(|(name, metric)| (name.as_str(), metric.unit.as_str())).filter(move |(name, unit)| told(name, unit))
    }
}

/// The names of all units, for messages.
pub fn known_units() -> String {
    UNITS
        .iter()
        .filter_map(|(names, ..)| names.first())
        .filter(|name| !name.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(value: f64, from: &str, to: &str) -> f64 {
        let (from, to) = (Unit::named(from).unwrap(), Unit::named(to).unwrap());
        assert!(from.fits(to));
        from.convert(value, to)
    }

    #[test]
    fn units_convert_as_on_paper() {
        for (value, from, to, expected) in [
            (2.0, "kWh", "J", 7.2e6),
            (250_000.0, "mW", "W", 250.0),
            (90.0, "min", "h", 1.5),
            (71.5, "%", "", 0.715),
            (0.25, "", "%", 25.0),
            (300.0, "K", "degC", 26.850_000_000_000_023),
            (16.0, "GiB", "B", 17_179_869_184.0),
            (1.1, "s", "ms", 1100.0),
            (0.1, "J", "J", 0.1),
            (5.0, "images/s", "samples/s", 5.0),
            (2.0, "MiB/s", "B/s", 2_097_152.0),
        ] {
            let found = convert(value, from, to);
            assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{value} {from} is {found} {to}");
        }
        assert!(!Unit::named("W").unwrap().fits(Unit::named("J").unwrap()));
        assert_eq!(Unit::named("furlong"), None);
        let of = |names: &[&str], is: fn(Unit) -> bool| names.iter().all(|name| Unit::named(name).is_some_and(is));
        assert!(of(&["J", "kWh", "mW", "J*s"], Unit::is_of_energy) && !of(&["s"], Unit::is_of_energy));
        assert!(of(&["ms", "min", "kW", "GFLOP/s", "samples/min", "images/s", "tokens/s"], Unit::is_of_effort));
        assert!(!Unit::named("tokens/s").unwrap().fits(Unit::named("samples/s").unwrap()), "a sample has many tokens");
        assert!(["", "%", "GiB", "MHz", "degC"].iter().all(|name| !of(&[*name], Unit::is_of_effort)));
        assert!(known_units().contains("kWh"));
    }

    #[test]
    fn a_metric_changes_its_unit_with_its_uncertainty() {
        let known = known_metric("energy").unwrap();
        assert_eq!(known.standard(&Metric::within(5.0, 0.25, "kJ")), Some(Metric::within(5000.0, 250.0, "J")));
        assert_eq!(known.standard(&Metric::new(5.0, "")), Some(Metric::new(5.0, "J")));
        assert_eq!(known.standard(&Metric::new(5.0, "s")), None);
        let degrees = Metric::within(300.0, 2.0, "K").in_unit("degC").unwrap();
        assert!((degrees.uncertainty.unwrap() - 2.0).abs() < 1e-9, "{degrees:?}");
        assert_eq!(Metric::new(1.0, "furlong").in_unit("furlong"), Some(Metric::new(1.0, "furlong")));
        assert_eq!(Metric::new(1.0, "furlong").in_unit("s"), None);
    }

    #[test]
    fn every_unit_of_our_metrics_is_known() {
        for metric in super::super::KNOWN_METRICS {
            assert!(Unit::named(metric.unit).is_some(), "{} in {}", metric.name, metric.unit);
        }
    }
}
