//! Units for display: those of the record, with prefixes that keep numbers short.

use super::number::significant;
use crate::analysis::Kind;

/// A display unit, and the factor from the record's unit to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shown {
    pub(super) unit: String,
    pub(super) factor: f64,
}

/// Returns the display unit for values up to `largest`; for a counter that of its rate.
pub(super) fn shown(unit: &str, kind: Kind, largest: f64) -> Shown {
    let is_rate = kind == Kind::Counter;
    let (unit, factor) = match unit {
        "B" => fitting(largest, &[("B", 1.0), ("KiB", KIB), ("MiB", KIB * KIB), ("GiB", KIB * KIB * KIB)]),
        "B/s" => fitting(largest, &[("B/s", 1.0), ("KiB/s", KIB), ("MiB/s", KIB * KIB), ("GiB/s", KIB * KIB * KIB)]),
        "ns" => fitting(largest, &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)]),
        "degC" => ("°C", 1.0),
        "J" if is_rate => return Shown { unit: "W".to_owned(), factor: 1.0 },
        "s" if is_rate => return Shown { unit: "cores".to_owned(), factor: 1.0 },
        other => (other, 1.0),
    };
    Shown { unit: if is_rate { format!("{unit}/s") } else { unit.to_owned() }, factor }
}

/// Formats a number of bytes with a binary prefix.
pub(super) fn bytes(value: f64) -> String {
    let shown = shown("B", Kind::Level, value);
    format!("{} {}", significant(value * shown.factor), shown.unit)
}

const KIB: f64 = 1024.0;

/// Returns the largest unit in which the value is at least 1.
fn fitting(largest: f64, units: &[(&'static str, f64)]) -> (&'static str, f64) {
    let fits = units.iter().rev().find(|(_, size)| largest.abs() >= *size).or(units.first());
    fits.map_or(("", 1.0), |(unit, size)| (*unit, 1.0 / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_largest_value() {
        let unit = |unit, kind, largest| shown(unit, kind, largest).unit;
        assert_eq!(unit("B", Kind::Level, 3e9), "GiB");
        assert_eq!(unit("B", Kind::Counter, 2048.0), "KiB/s");
        assert_eq!(unit("B", Kind::Level, 0.0), "B");
        assert_eq!(unit("B/s", Kind::Level, 3e9), "GiB/s");
        assert_eq!(unit("ns", Kind::Level, 3_300_000.0), "ms");
        assert_eq!(unit("J", Kind::Counter, 400.0), "W");
        assert_eq!(unit("s", Kind::Counter, 1.5), "cores");
        assert_eq!(unit("", Kind::Level, 1.5), "");
        assert_eq!(shown("ns", Kind::Level, 2e9), Shown { unit: "s".to_owned(), factor: 1e-9 });
    }
}
