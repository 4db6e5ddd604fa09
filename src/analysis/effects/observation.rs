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

/// The observations of a metric. Of a measured metric, each attempt is an observation; where one machine executed a configuration in several
/// rounds, the attempts of one round are averaged. For an outcome, attempts of one configuration, program and seed are averaged,
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
        return Observations { kind: MetricKind::Measured, observations: by_round(counted, axes) };
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

/// Attempts of one configuration, machine and round together, if that machine executed the configuration in several rounds; others each by itself. A
/// round is in the record alone, which is read only where a configuration has several attempts.
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
    let mut places: BTreeMap<_, usize> = BTreeMap::new();
    let mut found: Vec<(Vec<&T>, Vec<f64>)> = Vec::new();
    for ((trial, value), round) in counted.into_iter().zip(rounds) {
        let is_one_of_several = of_place.get(&place(trial)).is_some_and(|rounds| rounds.len() > 1);
        let of_round = round.filter(|_| is_one_of_several).map(|round| {
            let levels: Vec<_> = axes.iter().map(|name| trial.field(name).as_ref().map(Value::digest)).collect();
            (place(trial), round, levels)
        });
        let next = found.len();
        let at = of_round.map_or(next, |key| *places.entry(key).or_insert(next));
        if at == next {
            found.push((Vec::new(), Vec::new()));
        }
        found[at].0.push(trial);
        found[at].1.push(value);
    }
    found.into_iter().map(|(trials, values)| Observation { trials, value: record::mean(&values) }).collect()
}

impl<T: Asked> Observations<'_, T> {
    /// Joins observations of an outcome that computed the same bits with one seed, though they differ in some of the fields, if those fields change
    /// nothing anywhere: they are copies of one result, and no samples.
    #[must_use]
    pub fn joined(self, fields: &[String]) -> Self {
        let computed = |one: &Observation<'_, T>| -> (u64, BTreeSet<u64>) {
            let executions = one.trials.iter().map(|trial| trial.replicate().execution).collect();
            (one.trials.first().map_or(0, |trial| trial.replicate().seed), executions)
        };
        let mut places: BTreeMap<(u64, BTreeSet<u64>), Vec<usize>> = BTreeMap::new();
        for (at, one) in self.observations.iter().enumerate() {
            places.entry(computed(one)).or_default().push(at);
        }
        let level = |at: usize, name: &String| {
            let trial = self.observations.get(at).and_then(|one| one.trials.first());
            trial.and_then(|trial| trial.field(name)).as_ref().map(Value::digest)
        };
        let differs =
            |name: &&String| places.values().any(|same| same.iter().any(|at| level(*at, name) != level(same[0], name)));
        let (idle, others): (Vec<&String>, Vec<&String>) = fields.iter().partition(differs);
        if idle.is_empty() {
            return self;
        }
        // If what is alike in all other fields computed something else, one of the fields does change something.
        let mut seen: BTreeMap<_, &(u64, BTreeSet<u64>)> = BTreeMap::new();
        for (key, same) in &places {
            let alike: Vec<_> = others.iter().map(|name| level(same[0], name)).collect();
            if seen.insert((key.0, alike), key).is_some() {
                return self;
            }
        }
        let mut order: Vec<Vec<usize>> = places.into_values().collect();
        order.sort();
        let join = |same: Vec<usize>| {
            let all = || same.iter().filter_map(|at| self.observations.get(*at));
            let values: Vec<f64> = all().map(|one| one.value).collect();
            Observation { trials: all().flat_map(|one| one.trials.clone()).collect(), value: record::mean(&values) }
        };
        Self { kind: self.kind, observations: order.into_iter().map(join).collect() }
    }
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

    /// An attempt of one seed at `x` with so many workers, whose weights are a digest of `computed`.
    fn computed(x: i64, workers: i64, seed: u64, computed: u8) -> Trial {
        let fields = [("x", x.into()), ("workers", workers.into())];
        let mut one = trial(&fields, seed, &[("accuracy", f64::from(computed))]);
        one.attempt.digests.insert("weights".to_owned(), Digest([computed; 32]));
        Trial { id: one.attempt.id(), ..one }
    }

    #[test]
    fn runs_that_computed_the_same_are_one_observation_where_a_field_changes_nothing() {
        let joined = |trials: &[Trial]| {
            let found = observations(trials, "accuracy", &BTreeSet::new(), &[]);
            let found = found.joined(&["workers".to_owned(), "x".to_owned()]);
            (found.values(), found.attempts())
        };
        let grid = |last: u8| {
            [
                computed(1, 1, 1, 10),
                computed(1, 8, 1, 10),
                computed(2, 1, 1, 20),
                computed(2, 8, 1, last),
                computed(1, 1, 2, 30),
            ]
        };
        assert_eq!(joined(&grid(20)), (vec![10.0, 20.0, 30.0], 5));
        // At 2 it changes something, so that nowhere it is taken for nothing.
        assert_eq!(joined(&grid(21)), (vec![10.0, 10.0, 20.0, 21.0, 30.0], 5));
    }

    #[test]
    fn attempts_of_one_round_are_one_observation_of_what_is_measured() {
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
