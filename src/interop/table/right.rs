//! Checks for energies of 0 in rows that did some work. Other implausible values are judged by `analysis`, like those of a worker.

use crate::record::Metric;
use std::collections::BTreeMap;

/// Energies that may be 0: beyond the idle power, and while waiting for other ranks.
const DIFFERENCES: [&str; 2] = ["energy_net", "wait_energy"];

/// Words in names of times.
const TIME: [&str; 12] =
    ["time", "duration", "elapsed", "runtime", "latency", "wall", "seconds", "secs", "sec", "minutes", "hours", "ms"];

/// Words in names of amounts of work.
const AMOUNT: [&str; 14] = [
    "epoch",
    "epochs",
    "step",
    "steps",
    "iteration",
    "iterations",
    "iters",
    "samples",
    "images",
    "tokens",
    "batches",
    "throughput",
    "flops",
    "updates",
];

/// Words in names of starts, limits or energies.
const OTHER: [&str; 14] = [
    "start",
    "started",
    "end",
    "ended",
    "date",
    "timestamp",
    "limit",
    "max",
    "seed",
    "energy",
    "power",
    "joules",
    "watts",
    "kwh",
];

/// The values of a row that show whether its metrics are plausible.
pub(super) struct Row<'a> {
    pub(super) metrics: &'a BTreeMap<String, Metric>,
    /// Returns the source of a metric, such as ` (column `power`)`.
    pub(super) source: &'a dyn Fn(&str) -> String,
    /// Returns fields and columns with numbers, each with its name for a sentence.
    pub(super) numbers: &'a dyn Fn() -> Vec<(String, f64)>,
}

impl Row<'_> {
    /// Returns the reasons why metrics are implausible, one for each fault.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, value, unit) in self.values() {
            if matches!(unit, "J" | "W") && value == 0.0 && !DIFFERENCES.contains(&name) {
                found.extend(self.work().map(|work| format!("{} is 0 {unit}, but {work}", self.named(name))));
            }
        }
        found
    }

    fn values(&self) -> impl Iterator<Item = (&str, f64, &str)> {
        self.metrics.iter().filter_map(|(name, metric)| Some((name.as_str(), metric.value?, metric.unit.as_str())))
    }

    fn named(&self, name: &str) -> String {
        format!("`{name}`{}", (self.source)(name))
    }

    /// Returns the evidence that the row did some work, for which a device draws power. Returns `None` if its times are 0.
    fn work(&self) -> Option<String> {
        let is_energy = |unit: &str| matches!(unit, "J" | "W" | "J·s");
        if let Some((name, ..)) = self.values().find(|(_, value, unit)| *unit == "s" && *value > 0.0) {
            return Some(format!("{} is above 0", self.named(name)));
        }
        let numbers = (self.numbers)();
        let above = |words: &[&str]| numbers.iter().find(|(name, value)| *value > 0.0 && is_of(name, words));
        if let Some((name, _)) = above(&TIME).or_else(|| above(&AMOUNT)) {
            return Some(format!("{name} is above 0"));
        }
        if self.values().any(|(_, value, unit)| unit == "s" && value == 0.0)
            || numbers.iter().any(|(name, value)| *value == 0.0 && is_of(name, &TIME))
        {
            return None;
        }
        let result = self.values().find(|(_, value, unit)| !is_energy(unit) && value.is_finite());
        Some(result.map_or_else(
            || "every run draws power".to_owned(),
            |(name, ..)| format!("the row has a result, {}", self.named(name)),
        ))
    }
}

/// Whether a name contains one of these words, and none of [`OTHER`].
fn is_of(name: &str, words: &[&str]) -> bool {
    let mut plain = String::new();
    let mut was_lower = false;
    for c in name.chars() {
        if was_lower && c.is_uppercase() {
            plain.push('_');
        }
        was_lower = c.is_lowercase();
        plain.extend(c.to_lowercase());
    }
    let has = |words: &[&str]| plain.split(|c: char| !c.is_alphanumeric()).any(|word| words.contains(&word));
    has(words) && !has(&OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(metrics: &[(&str, f64, &str)], numbers: &[(&str, f64)]) -> Vec<String> {
        let metrics =
            metrics.iter().map(|(name, value, unit)| ((*name).to_owned(), Metric::new(*value, *unit))).collect();
        let row = Row {
            metrics: &metrics,
            source: &|name| format!(" (column `{}`)", &name[..1]),
            numbers: &|| numbers.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        };
        row.faults()
    }

    fn of(metrics: &[(&str, f64, &str)]) -> Vec<String> {
        with(metrics, &[])
    }

    #[test]
    fn a_power_of_0_is_found_where_time_passed() {
        assert_eq!(
            of(&[("power_mean", 0.0, "W"), ("epoch_time", 11.0, "s")]),
            ["`power_mean` (column `p`) is 0 W, but `epoch_time` (column `e`) is above 0"]
        );
        assert_eq!(of(&[("power_mean", 0.0, "W"), ("epoch_time", 0.0, "s")]), [""; 0]);
        assert_eq!(of(&[("energy", 5.0, "J"), ("epoch_time", -1.0, "s"), ("accuracy", 71.5, "")]), [""; 0]);
        assert_eq!(of(&[("energy", f64::NAN, "J"), ("accuracy", f64::NAN, ""), ("train_time", 4.0, "s")]), [""; 0]);
        assert_eq!(of(&[("wait_energy", 0.0, "J"), ("train_time", 4.0, "s")]), [""; 0], "one GPU waits for none");
    }

    #[test]
    fn an_energy_of_0_is_a_fault_without_a_time_too() {
        let zero = ("energy", 0.0, "J");
        assert_eq!(of(&[zero]), ["`energy` (column `e`) is 0 J, but every run draws power"]);
        assert_eq!(
            of(&[zero, ("accuracy", 0.7, "")]),
            ["`energy` (column `e`) is 0 J, but the row has a result, `accuracy` (column `a`)"]
        );
        assert_eq!(
            with(&[zero], &[("`training.batch_size`", 64.0), ("column `time_per_epoch`", 11.0)]),
            ["`energy` (column `e`) is 0 J, but column `time_per_epoch` is above 0"]
        );
        // A row with a time of 0 may have no energy.
        assert_eq!(with(&[zero, ("accuracy", 0.1, "")], &[("column `trainTime`", 0.0)]), [""; 0]);
        for (name, value) in [("column `start_time`", 0.0), ("column `energy_per_epoch`", 0.0), ("column `epoch`", 0.0)]
        {
            assert_eq!(with(&[zero], &[(name, value)]).len(), 1, "{name} says nothing of how long it took");
        }
    }
}
