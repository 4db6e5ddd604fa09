//! Values that no measurement can have: negative energy, an accuracy of 7.
//!
//! The same bounds apply to workers and to imported tables. Knows names and units; `docs/validity.md` has the details.

use crate::record::{Metric, MetricInfo, Unit, known_metric};
use std::collections::BTreeMap;

/// Metrics that are fractions of 1.
const SHARES: [&str; 8] =
    ["accuracy", "box_ap_50", "box_ap_75", "bubble_fraction", "mask_ap", "mask_ap_50", "mask_ap_75", "matching_share"];
/// Metrics that are percentages. `mfu` may exceed 100, and other tools count `cpu_util` by core.
const PERCENTAGES: [&str; 2] = ["gpu_mem_util", "gpu_util"];
/// Counts and ratios that are never negative.
const COUNTS: [&str; 4] = ["cpu_util", "mfu", "perplexity", "skipped_steps"];
/// A part of a name that marks a difference, which may be negative.
const DIFFERENCES: [&str; 9] = ["change", "delta", "diff", "difference", "drift", "net", "offset", "saved", "saving"];
/// Energies that may be 0: one rank never waits.
const MAY_BE_ZERO: [&str; 1] = ["wait_energy"];

/// An impossible value.
#[derive(Clone, Debug, PartialEq)]
pub struct Implausible {
    /// The metric's name.
    pub metric: String,
    /// Why it is impossible.
    pub reason: String,
    /// The value, and how to state it correctly if that is known.
    pub detail: String,
}

/// The impossible values among metrics in their own units, one for each fault.
pub fn implausible(metrics: &BTreeMap<String, Metric>) -> Vec<Implausible> {
    let values =
        || metrics.iter().filter_map(|(name, metric)| Some((name.as_str(), metric.value?, metric.unit.as_str())));
    let passed = values().find(|(_, value, unit)| *unit == "s" && *value > 0.0);
    let mut found = Vec::new();
    for (name, value, unit) in values() {
        let mut add = |reason: String, hint: &str| {
            let detail = format!("{value} {unit}").trim_end().to_owned() + hint;
            found.push(Implausible { metric: name.to_owned(), reason, detail });
        };
        let is_difference = name.split('_').any(|word| DIFFERENCES.contains(&word));
        let measures = Unit::named(unit).is_some_and(Unit::has_true_zero);
        if value < 0.0 && !is_difference && (measures || COUNTS.contains(&name)) {
            add(format!("`{name}` is negative"), "");
        }
        let is_total = Unit::named(unit).is_some_and(|unit| unit.is_of_energy() && !unit.is_of_energy_delay());
        let has_to_be = is_total && !is_difference && !MAY_BE_ZERO.contains(&name);
        if let Some((time, ..)) = passed.filter(|_| has_to_be && value == 0.0) {
            add(format!("`{name}` is 0 {unit} although `{time}` is not"), "");
        }
        if SHARES.contains(&name) && !(0.0..=1.0).contains(&value) && !value.is_nan() {
            let is_percent = value > 1.0 && value <= 100.0;
            add(
                format!("`{name}` is no share from 0 to 1"),
                if is_percent {
                    "; state a percentage with the unit `%`, in the event or in [program.metrics]"
                } else {
                    ""
                },
            );
        }
        if PERCENTAGES.contains(&name) && unit == "%" && !(0.0..=100.0).contains(&value) && !value.is_nan() {
            add(format!("`{name}` is no percentage from 0 to 100"), "");
        }
    }
    found
}

/// Returns a hint if a stated value looks like a fraction instead of a percentage. The value is kept as stated, because
/// an accuracy of 0.5% is possible.
pub fn share_for_percent(name: &str, stated: &Metric) -> Option<String> {
    let value = stated.value.filter(|value| *value > 0.0 && *value <= 1.0)?;
    let known = known_metric(name)?;
    let is_share = |known: &MetricInfo| known.unit == "%" || SHARES.contains(&known.name);
    let (read_as, fix) = match stated.unit.as_str() {
        "%" if is_share(known) => (format!("{value} %"), "leave the unit out"),
        "" if known.unit == "%" => (format!("{value} %"), "state the unit `1`"),
        _ => return None,
    };
    Some(format!("`{name}` is read as {read_as} ({fix} if {value} is a share of 1)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(metrics: &[(&str, f64, &str)]) -> Vec<String> {
        let metrics = metrics.iter().map(|(name, value, unit)| ((*name).to_owned(), Metric::new(*value, *unit)));
        implausible(&metrics.collect()).into_iter().map(|fault| fault.reason).collect()
    }

    #[test]
    fn impossible_values_are_found_and_possible_ones_are_not() {
        assert_eq!(
            of(&[("power_mean", 0.0, "W"), ("epoch_time", 11.0, "s")]),
            ["`power_mean` is 0 W although `epoch_time` is not"]
        );
        assert_eq!(of(&[("power_mean", 0.0, "W"), ("epoch_time", 0.0, "s")]), [""; 0]);
        assert_eq!(of(&[("energy", 5.0, "J"), ("epoch_time", -1.0, "s")]), ["`epoch_time` is negative"]);
        assert_eq!(
            of(&[("accuracy", 71.5, ""), ("energy_net", -3.0, "J"), ("loss", -2.0, "")]),
            ["`accuracy` is no share from 0 to 1"]
        );
        assert_eq!(of(&[("energy", f64::NAN, "J"), ("accuracy", f64::NAN, ""), ("train_time", 4.0, "s")]), [""; 0]);
        assert_eq!(of(&[("wait_energy", 0.0, "J"), ("train_time", 4.0, "s"), ("edp", 0.0, "J·s")]), [""; 0]);
        assert_eq!(
            of(&[("mine", -1.0, "kWh"), ("throughput", -1.0, "samples/s"), ("skipped_steps", -1.0, "")]),
            ["`mine` is negative", "`skipped_steps` is negative", "`throughput` is negative"]
        );
        assert_eq!(of(&[("time_delta", -1.0, "s"), ("room", -5.0, "degC"), ("gain", -5.0, "%")]), [""; 0]);
        assert_eq!(of(&[("gpu_util", 250.0, "%"), ("mfu", 101.0, "%")]), ["`gpu_util` is no percentage from 0 to 100"]);
    }

    #[test]
    fn a_percentage_without_its_unit_is_named_and_so_is_a_share_with_it() {
        let metrics = BTreeMap::from([("accuracy".to_owned(), Metric::new(97.0, ""))]);
        assert_eq!(
            implausible(&metrics)[0].detail,
            "97; state a percentage with the unit `%`, in the event or in [program.metrics]"
        );
        let metrics = BTreeMap::from([("accuracy".to_owned(), Metric::new(-0.5, ""))]);
        assert_eq!(implausible(&metrics)[0].detail, "-0.5");
        let hint = |name, value, unit| share_for_percent(name, &Metric::new(value, unit));
        assert_eq!(
            hint("accuracy", 0.97, "%").unwrap(),
            "`accuracy` is read as 0.97 % (leave the unit out if 0.97 is a share of 1)"
        );
        assert!(hint("gpu_util", 0.5, "").unwrap().contains("state the unit `1`"));
        for (name, value, unit) in [
            ("accuracy", 0.97, ""),
            ("accuracy", 97.0, "%"),
            ("loss", 0.5, "%"),
            ("gpu_util", 0.0, ""),
            ("gpu_util", 0.5, "1"),
        ] {
            assert_eq!(hint(name, value, unit), None, "{name} {value} {unit}");
        }
    }
}
