//! Several attempts side by side.
//!
//! Knows attempts and their runs. `difference` compares two attempts in detail.

use super::trials::Trial;
use super::units::standard;
use super::work::{have_alike_samples, unequal_samples};
use crate::record::{Attempt, Direction, Metric, Names, Part, Run, Value, known_metric};
use std::collections::BTreeSet;

/// One field or metric of all attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its full name.
    pub name: String,
    /// The unit; empty for a pure number and for a value that is not a number.
    pub unit: String,
    /// The value of each attempt, in their order.
    pub values: Vec<Option<Value>>,
    /// The indices of the best values; empty if the better direction is unknown.
    pub best: Vec<usize>,
}

impl Line {
    /// Whether the attempts have different values.
    pub fn differs(&self) -> bool {
        let digest = |value: &Option<Value>| value.as_ref().map(Value::digest);
        self.values.windows(2).any(|pair| digest(&pair[0]) != digest(&pair[1]))
    }
}

/// Attempts side by side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideBySide {
    /// The hashed fields.
    pub identity: Vec<Line>,
    /// The metrics.
    pub metrics: Vec<Line>,
    /// The fields that are recorded but not hashed, and how the attempts ended.
    pub recorded: Vec<Line>,
    /// The reasons why numbers of each attempt are invalid, in the order of attempts; empty for a valid attempt.
    pub taints: Vec<Vec<String>>,
}

/// Puts attempts side by side, every field and metric that any of them has.
pub fn side_by_side(trials: &[Trial]) -> SideBySide {
    let mut names = Names::known();
    for trial in trials {
        names.add_run(&trial.run);
        names.add_attempt(&trial.attempt);
    }
    let line = |name: &String| Line {
        name: name.clone(),
        unit: String::new(),
        values: trials.iter().map(|trial| trial.field(name)).collect(),
        best: Vec::new(),
    };
    let there = |line: &Line| line.values.iter().any(Option::is_some);
    // A part that is a table is listed by its fields.
    let whole = |line: &Line| {
        line.name.parse::<Part>().is_err() || !line.values.iter().flatten().any(|value| value.as_table().is_some())
    };
    let identity = names.identity.iter().map(line).filter(|line| there(line) && whole(line));
    let metrics =
        names.metrics.iter().filter(|name| trials.iter().any(|trial| trial.attempt.metrics.contains_key(*name)));
    SideBySide {
        identity: identity.collect(),
        metrics: metrics.map(|name| metric(trials, name)).collect(),
        recorded: names.settings.iter().chain(&names.facts).map(line).filter(there).collect(),
        taints: trials.iter().map(|trial| texts(trial.attempt.all_taints())).collect(),
    }
}

pub(super) fn texts(all: Vec<&str>) -> Vec<String> {
    all.into_iter().map(str::to_owned).collect()
}

/// Returns the line of a metric. A value that is not counted in answers is never the best.
fn metric(trials: &[Trial], name: &str) -> Line {
    let stated: Vec<Option<Metric>> =
        trials.iter().map(|trial| trial.attempt.metrics.get(name).map(|metric| standard(name, metric))).collect();
    let valued = |metric: &&Metric| metric.value.is_some();
    let first = stated.iter().flatten().find(valued).or_else(|| stated.iter().flatten().next());
    let unit = first.map(|metric| metric.unit.clone()).unwrap_or_default();
    let converted: Option<Vec<Option<f64>>> = stated
        .iter()
        .map(|metric| match metric {
            Some(metric) if metric.value.is_some() => metric.in_unit(&unit).map(|metric| metric.value),
            _ => Some(None),
        })
        .collect();
    let Some(values) = converted else {
        // The units cannot be converted: each value has its own, and none is the best.
        let said = |metric: Metric| Some(Value::Str(format!("{} {}", metric.value?, metric.unit)));
        let values = stated.into_iter().map(|metric| metric.and_then(said)).collect();
        return Line { name: name.to_owned(), unit: String::new(), values, best: Vec::new() };
    };
    let nothing = BTreeSet::new();
    let counts = |(trial, value): (&Trial, &Option<f64>)| trial.measured(name, &nothing).ok().and(*value);
    let counting: Vec<Option<f64>> = trials.iter().zip(&values).map(counts).collect();
    let all = counting.iter().flatten().copied();
    let stated = |trial: &Trial| {
        let stated = stated_direction(&trial.attempt, name)?;
        [Direction::Minimize, Direction::Maximize].into_iter().find(|one| one.name() == stated)
    };
    let best = match known_metric(name).map(|known| known.direction).or_else(|| trials.iter().find_map(stated)) {
        Some(Direction::Minimize) => all.reduce(f64::min),
        Some(Direction::Maximize) => all.reduce(f64::max),
        None => None,
    };
    let is_best = |value: &Option<f64>| value.is_some() && *value == best;
    let counted: Vec<&Run> =
        trials.iter().zip(&counting).filter(|(_, value)| value.is_some()).map(|(trial, _)| &trial.run).collect();
    // A value alone is not the best. Values are not comparable if runs did different amounts of work, used different
    // models or data, or answered batches of different sizes.
    let is_told = counting.iter().flatten().count() > 1
        && !counting.iter().all(is_best)
        && unequal_samples(name, counted.iter().copied()).is_none()
        && have_alike_samples(counted.iter().copied())
        && !(is_of_an_answer(name) && of_other_batches(trials));
    let best = counting.iter().enumerate().filter(|(_, value)| is_best(value) && is_told).map(|(at, _)| at).collect();
    Line {
        name: name.to_owned(),
        unit,
        values: values.into_iter().map(|value| value.map(Value::Float)).collect(),
        best,
    }
}

/// The better direction of a metric, if it is the objective that the attempt's manifest states.
pub fn stated_direction<'a>(attempt: &'a Attempt, metric: &str) -> Option<&'a str> {
    let setting = |name: &str| attempt.settings.get(name).and_then(Value::as_str);
    setting("objective.direction").filter(|_| setting("objective.metric") == Some(metric))
}

/// Whether an inference metric is for the attempt's own batch size. Metrics of other sizes name them (`inference_time@8`).
pub fn is_of_an_answer(metric: &str) -> bool {
    metric.starts_with("inference_") && !metric.contains('@')
}

fn of_other_batches(trials: &[Trial]) -> bool {
    let batch = |trial: &Trial| trial.attempt.metric("inference_batch_size").map(f64::to_bits);
    trials.iter().any(|trial| batch(trial) != batch(&trials[0]))
}

#[cfg(test)]
mod tests {
    use super::super::trials::tests::trial;
    use super::*;

    #[test]
    fn the_best_of_each_metric_is_marked_and_equal_fields_are_found() {
        let of = |x: i64, accuracy, own| {
            trial(&[("x", x.into()), ("y", "a".into())], 1, &[("accuracy", accuracy), ("own", own)])
        };
        let found = side_by_side(&[of(1, 0.5, 1.0), of(2, 0.7, 2.0), of(3, f64::NAN, 2.0)]);
        let line = |lines: &[Line], name: &str| lines.iter().find(|line| line.name == name).unwrap().clone();
        assert_eq!(line(&found.metrics, "accuracy").best, [1]);
        assert!(line(&found.metrics, "own").best.is_empty());
        assert!(line(&found.identity, "x").differs() && !line(&found.identity, "y").differs());
        assert!(!line(&found.identity, "seed").differs() && !line(&found.recorded, "outcome").differs());
        let mut tainted = of(3, 0.9, 1.0);
        tainted.attempt.facts.insert("tainted".to_owned(), "the fan failed".into());
        let beside = side_by_side(&[of(1, 0.5, 1.0), tainted, of(2, 0.7, 2.0)]);
        assert_eq!(line(&beside.metrics, "accuracy").best, [2], "what does not count is not the best");
        assert_eq!(beside.taints, [vec![], vec!["the fan failed".to_owned()], vec![]]);
        let stated = |value, unit: &str| {
            let mut one = of(1, 0.5, 1.0);
            one.attempt.metrics.insert("energy".to_owned(), Metric::new(value, unit));
            one.attempt.metrics.insert("lat".to_owned(), Metric::new(value, unit));
            one
        };
        let beside = side_by_side(&[stated(5.0, "kJ"), stated(6.0, "J")]).metrics;
        let (energy, lat) = (line(&beside, "energy"), line(&beside, "lat"));
        assert_eq!(
            (energy.values, energy.unit.as_str(), energy.best),
            (vec![Some(5000.0.into()), Some(6.0.into())], "J", vec![1])
        );
        assert_eq!((lat.values, lat.unit.as_str()), (vec![Some(5.0.into()), Some(0.006.into())], "kJ"));
        let apart = line(&side_by_side(&[stated(5.0, "kJ"), stated(6.0, "s")]).metrics, "lat");
        assert_eq!((apart.values, apart.unit.as_str()), (vec![Some("5 kJ".into()), Some("6 s".into())], ""));
        let answered =
            |time: f64, batch: f64| trial(&[], 1, &[("inference_p99", time), ("inference_batch_size", batch)]);
        let best = |one, other| line(&side_by_side(&[one, other]).metrics, "inference_p99").best;
        assert_eq!(best(answered(1.0, 8.0), answered(2.0, 8.0)), [0]);
        assert!(best(answered(1.0, 1.0), answered(2.0, 8.0)).is_empty(), "of other batches");
        let alone = side_by_side(&[of(1, 0.5, 1.0), trial(&[], 1, &[("own", 1.0)])]);
        assert!(line(&alone.metrics, "accuracy").best.is_empty(), "nothing is beside it");
        let aimed = |own| {
            let mut one = of(1, 0.5, own);
            let objective = [("objective.metric", "own"), ("objective.direction", "minimize")];
            one.attempt.settings.extend(objective.map(|(name, value)| (name.to_owned(), value.into())));
            one
        };
        assert_eq!(line(&side_by_side(&[aimed(2.0), aimed(1.0)]).metrics, "own").best, [1]);
        let same = side_by_side(&[of(1, 0.5, 1.0), of(1, 0.5, 1.0)]);
        assert!(
            [same.identity, same.metrics, same.recorded]
                .concat()
                .iter()
                .all(|line| !line.differs() && line.best.is_empty())
        );
    }
}
