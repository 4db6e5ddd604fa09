//! Results that cannot be right, whatever a map says of them.

use crate::record::Metric;
use std::collections::BTreeMap;

/// Metrics that are a share of one.
const SHARES: [&str; 6] = ["accuracy", "box_ap_50", "box_ap_75", "mask_ap", "mask_ap_50", "mask_ap_75"];

/// Why metrics cannot be right, one reason for each fault.
pub(super) fn faults(metrics: &BTreeMap<String, Metric>) -> Vec<String> {
    let values =
        || metrics.iter().filter_map(|(name, metric)| Some((name.as_str(), metric.value?, metric.unit.as_str())));
    let mut found = Vec::new();
    let passed = values().find(|(_, value, unit)| *unit == "s" && *value > 0.0);
    for (name, value, unit) in values() {
        // What was drawn beyond the idle power may be nothing, or less.
        let is_total = matches!(unit, "J" | "W") && name != "energy_net";
        if value < 0.0 && (is_total || matches!(unit, "s" | "B" | "J·s")) {
            found.push(format!("`{name}` is negative"));
        }
        if let Some((time, ..)) = passed.filter(|_| is_total && value == 0.0) {
            found.push(format!("`{name}` is 0 {unit} although `{time}` is not"));
        }
        if SHARES.contains(&name) && !(0.0..=1.0).contains(&value) && !value.is_nan() {
            found.push(format!("`{name}` is no share from 0 to 1"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(metrics: &[(&str, f64, &str)]) -> Vec<String> {
        faults(&metrics.iter().map(|(name, value, unit)| ((*name).to_owned(), Metric::new(*value, *unit))).collect())
    }

    #[test]
    fn what_cannot_be_is_found_and_what_can_is_not() {
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
    }
}
