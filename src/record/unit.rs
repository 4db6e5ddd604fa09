//! Units as people and programs state them, and the numbers between them.

/// A unit: what it measures, and how many of the base unit one of it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    measures: Measure,
    factor: f64,
    /// What is added after the multiplication; other than 0 only for temperatures.
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
}

use Measure::{Bytes, Energy, EnergyDelay, Flops, Frequency, Power, Rate, Share, Temperature, Time};

/// Names, what they measure, and the factor to the base unit: s, J, W, B, Hz, degC, J·s, a share of 1, FLOP/s, 1/s.
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
];

impl Unit {
    /// The unit of a name.
    pub fn named(name: &str) -> Option<Self> {
        let (_, measures, factor) = UNITS.iter().find(|(names, ..)| names.contains(&name))?;
        let shift = if name == "K" { -273.15 } else { 0.0 };
        Some(Self { measures: *measures, factor: *factor, shift })
    }

    /// Whether both measure the same.
    pub fn fits(self, other: Self) -> bool {
        self.measures == other.measures
    }

    /// A number of this unit as one of another that measures the same.
    pub fn convert(self, value: f64, to: Self) -> f64 {
        if self == to {
            return value;
        }
        let base = value * self.factor + self.shift;
        // Dividing by a power of ten is exact where multiplying with its inverse is not.
        if to.factor < 1.0 { (base - to.shift) * (1.0 / to.factor) } else { (base - to.shift) / to.factor }
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
        ] {
            let found = convert(value, from, to);
            assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{value} {from} is {found} {to}");
        }
        assert!(!Unit::named("W").unwrap().fits(Unit::named("J").unwrap()));
        assert_eq!(Unit::named("furlong"), None);
        assert!(known_units().contains("kWh"));
    }

    #[test]
    fn every_unit_of_our_metrics_is_known() {
        for metric in super::super::KNOWN_METRICS {
            assert!(Unit::named(metric.unit).is_some(), "{} in {}", metric.name, metric.unit);
        }
    }
}
