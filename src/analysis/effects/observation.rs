//! The observations of an analysis: what counts as one independent value of a metric.

use crate::analysis::trials::{Asked, Trial};
use crate::record::{self, Digest, GroupId, MetricKind, Part, Value, Why};
use std::collections::{BTreeMap, BTreeSet};

/// One value of a metric, and the attempts that it comes from.
#[derive(Clone, Debug)]
pub struct Observation<'a, T = Trial> {
    /// The attempts, at least one.
    pub trials: Vec<&'a T>,
    /// The metric, averaged over the attempts.
    pub value: f64,
}

/// Observations of one metric, and the kind that decided what counts as one.
#[derive(Clone, Debug)]
pub struct Observations<'a, T = Trial> {
    /// The metric's kind. Where attempts state different kinds it is `Outcome`, which gives fewer observations.
    pub kind: MetricKind,
    /// The observations, in the order of their first attempts.
    pub observations: Vec<Observation<'a, T>>,
}

impl<T> Observations<'_, T> {
    /// How many attempts are behind the observations.
    pub fn attempts(&self) -> usize {
        self.observations.iter().map(|one| one.trials.len()).sum()
    }

    /// The values of the observations.
    pub fn values(&self) -> Vec<f64> {
        self.observations.iter().map(|one| one.value).collect()
    }
}

/// The observations of a metric. Each attempt is an observation of a measured metric. For an outcome, attempts of one configuration, program and seed are averaged,
/// also where the machine or a version differs: they repeat one result; imported rows without a seed are not. Attempts that differ in a field of `axes`
/// are never averaged. A configuration of which any attempt has a value that is not finite has no observation.
pub fn observations<'a, T: Asked>(
    trials: &'a [T],
    metric: &str,
    admitted: &BTreeSet<Why>,
    axes: &[String],
) -> Observations<'a, T> {
    let group = |trial: &T| trial.group();
    let is_finite = |trial: &&T| trial.measured(metric, admitted).err().is_none_or(|left| left.why != Why::NotFinite);
    let diverged: BTreeSet<GroupId> = trials.iter().filter(|trial| !is_finite(trial)).map(group).collect();
    let kept = trials.iter().filter(|trial| !diverged.contains(&group(trial)));
    let counted: Vec<(&T, f64)> =
        kept.filter_map(|trial| Some((trial, trial.measured(metric, admitted).ok()?))).collect();
    let is_outcome = |(trial, _): &(&T, f64)| trial.metric_kind(metric) == MetricKind::Outcome;
    if !counted.iter().any(is_outcome) {
        let single = |(trial, value)| Observation { trials: vec![trial], value };
        return Observations { kind: MetricKind::Measured, observations: counted.into_iter().map(single).collect() };
    }
    let programs = programs(counted.iter().map(|(trial, _)| *trial));
    let mut places: BTreeMap<(_, u64, Vec<Option<Digest>>), usize> = BTreeMap::new();
    let mut groups: Vec<(Vec<&T>, Vec<f64>)> = Vec::new();
    for (trial, value) in counted {
        let levels = axes.iter().map(|name| trial.field(name).as_ref().map(Value::digest)).collect();
        let program = programs.get(&trial.group()).copied();
        let key = ((trial.configuration(), program), trial.replicate().seed, levels);
        let at = *places.entry(key).or_insert(groups.len());
        if at == groups.len() {
            groups.push((Vec::new(), Vec::new()));
        }
        groups[at].0.push(trial);
        groups[at].1.push(value);
    }
    let averaged = |(trials, values): (Vec<&'a T>, Vec<f64>)| Observation { trials, value: record::mean(&values) };
    Observations { kind: MetricKind::Outcome, observations: groups.into_iter().map(averaged).collect() }
}

/// The digests of the programs of configurations that were executed by several programs, or on several machines: only there a record has to be read.
fn programs<'a, T: Asked + 'a>(trials: impl Iterator<Item = &'a T>) -> BTreeMap<GroupId, Digest> {
    let mut groups: BTreeMap<Digest, BTreeMap<GroupId, &T>> = BTreeMap::new();
    for trial in trials {
        groups.entry(trial.configuration()).or_default().insert(trial.group(), trial);
    }
    let several = groups.into_values().filter(|groups| groups.len() > 1).flatten();
    let program = |(group, trial): (GroupId, &T)| Some((group, trial.record()?.0.parts.digest(Part::Program)));
    several.filter_map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::trials::tests::trial;

    fn found(metric: &str, axes: &[&str]) -> (MetricKind, Vec<f64>, usize) {
        let of = |seed, host: &str, accuracy, energy| {
            let mut one = trial(&[("x", 1i64.into())], seed, &[("accuracy", accuracy), ("energy", energy)]);
            one.attempt.facts.insert("host.name".to_owned(), host.into());
            one
        };
        let trials = [of(1, "a", 0.5, 10.0), of(2, "a", 0.9, 11.0), of(1, "a", 0.5, 12.0), of(1, "b", 0.7, 13.0)];
        let axes: Vec<String> = axes.iter().map(|axis| (*axis).to_owned()).collect();
        let found = observations(&trials, metric, &BTreeSet::new(), &axes);
        (found.kind, found.values(), found.attempts())
    }

    #[test]
    fn attempts_of_one_seed_are_one_observation_of_an_outcome() {
        assert_eq!(found("accuracy", &[]), (MetricKind::Outcome, vec![1.7 / 3.0, 0.9], 4));
        assert_eq!(found("energy", &[]), (MetricKind::Measured, vec![10.0, 11.0, 12.0, 13.0], 4));
    }

    #[test]
    fn attempts_at_different_levels_of_an_axis_are_not_averaged() {
        assert_eq!(found("accuracy", &["host.name"]), (MetricKind::Outcome, vec![0.5, 0.9, 0.7], 4));
    }

    #[test]
    fn a_configuration_with_a_value_that_is_not_finite_has_no_observation() {
        let of = |x: i64, seed, accuracy| trial(&[("x", x.into())], seed, &[("accuracy", accuracy)]);
        let trials = [of(1, 1, 0.5), of(1, 2, f64::NAN), of(2, 1, 0.7)];
        assert_eq!(observations(&trials, "accuracy", &BTreeSet::new(), &[]).values(), [0.7]);
    }
}
