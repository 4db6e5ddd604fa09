//! The observations of an analysis: the independent values of a metric.

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

/// Observations of one metric, and the kind of metric that determines them.
#[derive(Clone, Debug)]
pub struct Observations<'a, T = Trial> {
    /// The metric's kind. If attempts state different kinds it is `Outcome`, which gives fewer observations.
    pub kind: MetricKind,
    /// The observations, in the order of their first attempts.
    pub observations: Vec<Observation<'a, T>>,
}

impl<T> Observations<'_, T> {
    /// The number of attempts in the observations.
    pub fn attempts(&self) -> usize {
        self.observations.iter().map(|one| one.trials.len()).sum()
    }

    /// The values of the observations.
    pub fn values(&self) -> Vec<f64> {
        self.observations.iter().map(|one| one.value).collect()
    }
}

/// Returns the observations of a metric. A configuration with any value that is not finite has none. Attempts that
/// differ in a field of `axes` are never averaged.
///
/// - Measured metrics: each attempt is an observation. If one machine executed a configuration in several rounds, the
///   attempts of each round are averaged.
/// - Outcomes: attempts of one configuration, program and seed are averaged, even if the machine or a version differs,
///   because they repeat one result. Imported rows without a seed are not averaged.
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
        return Observations { kind: MetricKind::Measured, observations: by_round(counted, axes) };
    }
    let programs = programs(counted.iter().map(|(trial, _)| *trial));
    let keyed = counted.into_iter().map(|(trial, value)| {
        let levels: Vec<_> = axes.iter().map(|name| trial.field(name).as_ref().map(Value::digest)).collect();
        let program = programs.get(&trial.group()).copied();
        (trial, value, Some((trial.configuration(), program, trial.replicate().seed, levels)))
    });
    Observations { kind: MetricKind::Outcome, observations: averaged(keyed) }
}

/// Averages the values with equal keys. A value without a key is an observation by itself.
fn averaged<'a, T: 'a, K: Ord>(keyed: impl Iterator<Item = (&'a T, f64, Option<K>)>) -> Vec<Observation<'a, T>> {
    let mut places: BTreeMap<K, usize> = BTreeMap::new();
    let mut found: Vec<(Vec<&T>, Vec<f64>)> = Vec::new();
    for (trial, value, key) in keyed {
        let next = found.len();
        let at = key.map_or(next, |key| *places.entry(key).or_insert(next));
        if at == next {
            found.push((Vec::new(), Vec::new()));
        }
        found[at].0.push(trial);
        found[at].1.push(value);
    }
    found.into_iter().map(|(trials, values)| Observation { trials, value: record::mean(&values) }).collect()
}

/// Averages attempts of one configuration, machine and round, if that machine executed the configuration in several
/// rounds. Other attempts are observations by themselves. Only the record has the round, so it is read only for
/// configurations with several attempts.
fn by_round<'a, T: Asked>(counted: Vec<(&'a T, f64)>, axes: &[String]) -> Vec<Observation<'a, T>> {
    let mut attempts: BTreeMap<GroupId, usize> = BTreeMap::new();
    counted.iter().for_each(|(trial, _)| *attempts.entry(trial.group()).or_default() += 1);
    let round = |trial: &T| {
        let is_several = attempts.get(&trial.group()).is_some_and(|count| *count > 1);
        is_several.then(|| trial.record().and_then(|(_, attempt)| attempt.round())).flatten()
    };
    let place = |trial: &T| (trial.group(), trial.replicate().machine);
    let rounds: Vec<Option<u64>> = counted.iter().map(|(trial, _)| round(trial)).collect();
    let mut of_place: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
    for ((trial, _), round) in counted.iter().zip(&rounds) {
        of_place.entry(place(trial)).or_default().extend(round);
    }
    averaged(counted.into_iter().zip(rounds).map(|((trial, value), round)| {
        let is_one_of_several = of_place.get(&place(trial)).is_some_and(|rounds| rounds.len() > 1);
        let of_round = round.filter(|_| is_one_of_several).map(|round| {
            let levels: Vec<_> = axes.iter().map(|name| trial.field(name).as_ref().map(Value::digest)).collect();
            (place(trial), round, levels)
        });
        (trial, value, of_round)
    }))
}

/// A seed, and the values of some fields.
type Cell = (u64, Vec<Option<Digest>>);

impl<T: Asked> Observations<'_, T> {
    /// Joins observations of an outcome with equal seeds and bitwise equal values that differ only in fields that never
    /// change a value. They are copies of one result and not independent. `fields` are all fields that differ; those in
    /// `kept` are never joined over.
    #[must_use]
    pub fn joined(self, fields: &[String], kept: &[String]) -> Self {
        let unit = |one: &Observation<'_, T>| {
            (one.trials.first().map_or(0, |trial| trial.replicate().seed), one.value.to_bits())
        };
        let units: Vec<(u64, u64)> = self.observations.iter().map(unit).collect();
        if units.iter().collect::<BTreeSet<_>>().len() == units.len() {
            return self;
        }
        let level = |one: &Observation<'_, T>, name: &String| {
            one.trials.first().and_then(|trial| trial.field(name)).as_ref().map(Value::digest)
        };
        let levels_of = |one: &Observation<'_, T>| fields.iter().map(|name| level(one, name)).collect();
        let levels: Vec<Vec<Option<Digest>>> = self.observations.iter().map(levels_of).collect();
        let is_idle = |field: usize| {
            let mut seen: BTreeMap<Cell, (Option<Digest>, u64)> = BTreeMap::new();
            let mut is_seen = false;
            for (levels, (seed, bits)) in levels.iter().zip(&units) {
                let mut others = levels.clone();
                let own = others.remove(field);
                let (level, value) = *seen.entry((*seed, others)).or_insert((own, *bits));
                if value != *bits {
                    return false;
                }
                is_seen |= level != own;
            }
            is_seen
        };
        let told: Vec<usize> = (0..fields.len()).filter(|at| kept.contains(&fields[*at]) || !is_idle(*at)).collect();
        let mut places: BTreeMap<Cell, usize> = BTreeMap::new();
        let mut joined: Vec<Vec<usize>> = Vec::new();
        for (at, (levels, (seed, bits))) in levels.iter().zip(&units).enumerate() {
            let place = *places.entry((*seed, told.iter().map(|at| levels[*at]).collect())).or_insert(joined.len());
            match joined.get_mut(place) {
                Some(same) if units[same[0]].1 == *bits => same.push(at),
                // Something other than these fields changed the value.
                Some(_) => return self,
                None => joined.push(vec![at]),
            }
        }
        let join = |same: Vec<usize>| Observation {
            value: self.observations[same[0]].value,
            trials: same.iter().flat_map(|at| self.observations[*at].trials.clone()).collect(),
        };
        Self { kind: self.kind, observations: joined.into_iter().map(join).collect() }
    }
}

/// Returns the program digests of configurations that were executed by several programs, or on several machines.
/// Records of other configurations need not be read.
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
    use crate::record::Attempt;

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

    #[test]
    fn a_field_that_changes_no_value_adds_no_observations() {
        let joined = |cells: &[(i64, i64, u64, f64)], kept: &[String]| {
            let of = |(x, workers, seed, accuracy): &(i64, i64, u64, f64)| {
                trial(&[("x", (*x).into()), ("workers", (*workers).into())], *seed, &[("accuracy", *accuracy)])
            };
            let trials: Vec<Trial> = cells.iter().map(of).collect();
            let found = observations(&trials, "accuracy", &BTreeSet::new(), &[]);
            let found = found.joined(&["workers".to_owned(), "x".to_owned()], kept);
            (found.values(), found.attempts())
        };
        // The values of both levels of `x` are the same with seed 2 by chance.
        let mut cells =
            [(1, 1, 1, 0.1), (1, 8, 1, 0.1), (2, 1, 1, 0.2), (2, 8, 1, 0.2), (1, 1, 2, 0.3), (2, 1, 2, 0.3)];
        assert_eq!(joined(&cells, &[]), (vec![0.1, 0.2, 0.3, 0.3], 6));
        assert_eq!(joined(&cells, &["workers".to_owned()]).0.len(), 6);
        // At 2 the workers change a value, so they are kept everywhere.
        cells[3].3 = 0.25;
        assert_eq!(joined(&cells, &[]).0.len(), 6);
    }

    #[test]
    fn attempts_of_one_round_are_one_observation_of_a_measurement() {
        let of = |x: i64, round: Option<&str>, energy| {
            let mut one = trial(&[("x", x.into())], 1, &[("energy", energy)]);
            one.attempt.facts.extend(round.map(|round| (Attempt::ROUND.to_owned(), round.into())));
            one
        };
        let trials = [
            of(1, Some("a 1"), 10.0),
            of(1, Some("a 1"), 12.0),
            of(1, Some("a 2"), 20.0),
            of(2, Some("a 1"), 30.0),
            of(1, None, 40.0),
        ];
        let found = observations(&trials, "energy", &BTreeSet::new(), &[]);
        assert_eq!((found.values(), found.attempts()), (vec![11.0, 20.0, 30.0, 40.0], 5));
    }
}
