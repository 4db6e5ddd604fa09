//! Forecasts of attempts that are not made yet, from those that were.
//!
//! Knows runs and the attempts of a ledger. Must not know why the attempts are missing.

use super::comparison::Summary;
use super::distribution::reach;
use super::statistic::{number, quadrature};
use super::trials::Trial;
use crate::record::{Digest, Part, Run, Why};
use std::collections::{BTreeMap, BTreeSet};

/// The basis of a forecast, the most reliable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// Attempts of the same configuration, whatever the seed.
    Same,
    /// Attempts of the same config on the same devices, with another version of the program, driver or libraries.
    OtherSoftware,
    /// Attempts of the same model on the same devices that differ in this many fields of the config, the fewest there are.
    Alike(usize),
}

/// Attempts on which a forecast is based, with their values.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The relation of the attempts to the run.
    pub basis: Basis,
    /// Their values.
    pub values: Vec<f64>,
    /// The ids of the attempts, by which forecasts from the same attempts are recognized.
    key: BTreeSet<Digest>,
}

/// The expected value of one attempt, or of the sum of several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The expected value.
    pub value: f64,
    /// Half the width of its 95% interval. `None` if history has a single attempt, or only attempts with other field values.
    pub half_width: Option<f64>,
}

/// Finds the attempts that best predict a metric of a run; `None` if no attempt of its model on its devices has the metric.
pub fn history(run: &Run, trials: &[Trial], metric: &str) -> Option<History> {
    let device = run.parts.digest(Part::Device);
    let (group, config) = (run.parts.group_id(), run.parts.digest(Part::Config));
    let none = BTreeSet::<Why>::new();
    let mut found: BTreeMap<Basis, Vec<(Digest, f64)>> = BTreeMap::new();
    for trial in trials {
        if trial.run.model() != run.model() || trial.run.parts.digest(Part::Device) != device {
            continue;
        }
        let Ok(value) = trial.measured(metric, &none) else { continue };
        let basis = if trial.run.parts.group_id() == group {
            Basis::Same
        } else if trial.run.parts.digest(Part::Config) == config {
            Basis::OtherSoftware
        } else {
            Basis::Alike(distance(run, &trial.run))
        };
        found.entry(basis).or_default().push((trial.id.0, value));
    }
    let (basis, found) = found.into_iter().next()?;
    let key = found.iter().map(|(id, _)| *id).collect();
    Some(History { basis, values: found.into_iter().map(|(_, value)| value).collect(), key })
}

/// The number of config fields in which two runs differ.
fn distance(a: &Run, b: &Run) -> usize {
    let names: BTreeSet<&String> = a.config().keys().chain(b.config().keys()).collect();
    names.into_iter().filter(|name| a.config().get(*name) != b.config().get(*name)).count()
}

impl History {
    /// Forecasts one more attempt.
    pub fn next(&self) -> Option<Forecast> {
        self.sum_of(1)
    }

    /// Forecasts the sum over `attempts` more attempts. They scatter independently and share the error of the mean.
    pub fn sum_of(&self, attempts: usize) -> Option<Forecast> {
        let summary = Summary::of(&self.values)?;
        let (n, m) = (number(summary.n), number(attempts));
        let half_width = summary.variance.filter(|_| !matches!(self.basis, Basis::Alike(1..))).and_then(|variance| {
            let spread = (m * variance + m * m * variance / n).sqrt();
            Some(reach(n - 1.0)? * spread)
        });
        Some(Forecast { value: m * summary.mean, half_width })
    }
}

/// Forecasts the sum over many attempts, given as pairs of a history and a number of attempts. `None` if there are
/// none. The sum has no interval if any part has none.
pub fn total<'a>(parts: impl IntoIterator<Item = (&'a History, usize)>) -> Option<Forecast> {
    let mut sums: BTreeMap<&BTreeSet<Digest>, (&History, usize)> = BTreeMap::new();
    for (history, attempts) in parts {
        sums.entry(&history.key).or_insert((history, 0)).1 += attempts;
    }
    let sums: Vec<Forecast> = sums.into_values().filter_map(|(history, attempts)| history.sum_of(attempts)).collect();
    let halves: Option<Vec<f64>> = sums.iter().map(|sum| sum.half_width).collect();
    (!sums.is_empty())
        .then(|| Forecast { value: sums.iter().map(|sum| sum.value).sum(), half_width: halves.map(quadrature) })
}

#[cfg(test)]
mod tests {
    use super::super::trials::tests::trial;
    use super::*;
    use crate::record::Value;

    fn of(x: i64, y: &str, seed: u64, time: f64) -> Trial {
        trial(&[("x", Value::Int(x)), ("y", y.into()), ("model.name", "m".into())], seed, &[("wall_time", time)])
    }

    #[test]
    fn the_nearest_history_counts() {
        let trials = [of(1, "a", 1, 10.0), of(1, "a", 2, 12.0), of(2, "a", 1, 30.0), of(3, "b", 1, 90.0)];
        let run = |x, y| of(x, y, 9, 0.0).run;
        let same = history(&run(1, "a"), &trials, "wall_time").unwrap();
        assert_eq!((same.basis, same.values.len()), (Basis::Same, 2));
        let next = same.next().unwrap();
        // t(0.975, 1) = 12.7062047361747, times sqrt(2) * sqrt(1 + 1/2).
        assert!(
            (next.value - 11.0).abs() < 1e-12
                && (next.half_width.unwrap() - 12.7062047361747 * 3f64.sqrt()).abs() < 1e-6
        );
        let alike = history(&run(2, "b"), &trials, "wall_time").unwrap();
        assert_eq!(alike.next().map(|next| (next.value, next.half_width)), Some((60.0, None)), "of another y");
        assert_eq!((alike.basis, alike.values), (Basis::Alike(1), vec![30.0, 90.0]));
        let mut software = run(1, "a").parts;
        software.program = "q".into();
        assert_eq!(history(&Run::new(software.clone()), &trials, "wall_time").unwrap().basis, Basis::OtherSoftware);
        software.device = "H200".into();
        assert_eq!(history(&Run::new(software), &trials, "wall_time"), None);
        assert_eq!(history(&run(1, "a"), &trials, "energy"), None);
    }

    #[test]
    fn sums_share_the_error_of_their_history() {
        let trials = [of(1, "a", 1, 10.0), of(1, "a", 2, 12.0), of(2, "a", 1, 30.0)];
        let of_x = |x| history(&of(x, "a", 9, 0.0).run, &trials, "wall_time").unwrap();
        let (one, other) = (of_x(1), of_x(2));
        let sum = total([(&one, 2), (&one, 1)]).unwrap();
        // Three more attempts: the variance is 3 * 2 + 9 * 2 / 2 = 15.
        assert!(
            (sum.value - 33.0).abs() < 1e-12
                && (sum.half_width.unwrap() - 12.7062047361747 * 15f64.sqrt()).abs() < 1e-6
        );
        let with_single = total([(&one, 1), (&other, 1)]).unwrap();
        assert_eq!((with_single.value, with_single.half_width), (41.0, None));
        assert_eq!(total([]), None);
    }
}
