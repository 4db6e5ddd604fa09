//! Attempts with their runs: which of them are counted, and which are repetitions of one configuration.
//!
//! Knows records and names of fields. Must not know where attempts are stored, nor for what they are used.

use super::best::{Contender, Measured, newest_run};
use super::work::digest_behind;
use crate::record::{
    Attempt, AttemptId, Digest, GroupId, LeftOut, MetricKind, Names, Part, Replicate, Run, RunId, Value, Why, field,
    unit_mean,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// An attempt and its run.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The attempt's id.
    pub id: AttemptId,
    /// Its run.
    pub run: Run,
    /// The attempt.
    pub attempt: Attempt,
    /// Whether a person hid the attempt or its run.
    pub is_hidden: bool,
}

/// An attempt in the form that queries need, with or without its record in memory.
pub trait Asked {
    /// Its id.
    fn id(&self) -> AttemptId;
    /// Its run.
    fn run_id(&self) -> RunId;
    /// The group of its run: runs that differ only in their seed have the same.
    fn group(&self) -> GroupId;
    /// The digest of its configuration. Attempts that differ only in program, machine, versions or seed have the same digest.
    fn configuration(&self) -> Digest;
    /// When it was started, in milliseconds since the Unix epoch.
    fn started_unix_ms(&self) -> i64;
    /// Its run and its record, which may have to be read from disk; meant for the few that are shown. `None` if they do not decode.
    fn record(&self) -> Option<(Cow<'_, Run>, Cow<'_, Attempt>)>;
    /// Calls `each` for those records that decode, in order. Records on disk are read together and not kept.
    fn each_record(trials: &[&Self], each: &mut dyn FnMut(&Self, &Run, &Attempt))
    where
        Self: Sized,
    {
        for trial in trials {
            if let Some((run, attempt)) = trial.record() {
                each(trial, &run, &attempt);
            }
        }
    }
    /// The unit of a metric, if it has such a metric.
    fn unit(&self, metric: &str) -> Option<String>;
    /// Whether it has such a metric, with or without a value.
    fn has(&self, metric: &str) -> bool;
    /// Whether a person hid the attempt or its run.
    fn is_hidden(&self) -> bool;
    /// The value of a full name; see [`field`].
    fn field(&self, name: &str) -> Option<Value>;
    /// Its seed, execution and machine.
    fn replicate(&self) -> Replicate;
    /// The kind of one of its metrics.
    fn metric_kind(&self, metric: &str) -> MetricKind;
    /// The value of a metric, if it is counted. Reasons in `admitted` do not exclude it.
    ///
    /// # Errors
    /// The reason why it is not counted.
    fn measured(&self, metric: &str, admitted: &BTreeSet<Why>) -> Result<f64, LeftOut>;
}

impl Asked for Trial {
    fn id(&self) -> AttemptId {
        self.id
    }

    fn run_id(&self) -> RunId {
        self.run.id
    }

    fn group(&self) -> GroupId {
        self.run.parts.group_id()
    }

    fn configuration(&self) -> Digest {
        self.run.parts.digest(Part::Config)
    }

    fn started_unix_ms(&self) -> i64 {
        self.attempt.started_unix_ms
    }

    fn record(&self) -> Option<(Cow<'_, Run>, Cow<'_, Attempt>)> {
        Some((Cow::Borrowed(&self.run), Cow::Borrowed(&self.attempt)))
    }

    fn unit(&self, metric: &str) -> Option<String> {
        Some(self.attempt.metrics.get(metric)?.unit.clone())
    }

    fn has(&self, metric: &str) -> bool {
        self.attempt.metrics.contains_key(metric)
    }

    fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    fn field(&self, name: &str) -> Option<Value> {
        self.field(name)
    }

    fn replicate(&self) -> Replicate {
        Replicate::of(&self.run, &self.attempt)
    }

    fn metric_kind(&self, metric: &str) -> MetricKind {
        self.attempt.metric_kind(metric)
    }

    fn measured(&self, metric: &str, admitted: &BTreeSet<Why>) -> Result<f64, LeftOut> {
        self.measured(metric, admitted)
    }
}

impl Trial {
    /// The value of a full name; see [`field`].
    pub fn field(&self, name: &str) -> Option<Value> {
        field(&self.run, Some(&self.attempt), name)
    }

    /// Checks whether the attempt is counted at all. Reasons in `admitted` do not exclude it.
    ///
    /// # Errors
    /// The reason why it is not counted.
    pub fn counts(&self, admitted: &BTreeSet<Why>) -> Result<(), LeftOut> {
        if self.is_hidden && !admitted.contains(&Why::Hidden) {
            return Err(LeftOut { why: Why::Hidden, reason: String::new() });
        }
        match self.attempt.counts() {
            Err(left) if !admitted.contains(&left.why) => Err(left),
            // A failed attempt may be tainted as well, which the reason of its failure hides.
            Err(_) if !admitted.contains(&Why::Tainted) => match self.attempt.taints() {
                taints if taints.is_empty() => Ok(()),
                taints => Err(LeftOut { why: Why::Tainted, reason: taints.join("; ") }),
            },
            _ => Ok(()),
        }
    }

    /// The value of a metric, if it is counted.
    ///
    /// # Errors
    /// The reason why it is not counted.
    pub fn measured(&self, metric: &str, admitted: &BTreeSet<Why>) -> Result<f64, LeftOut> {
        self.counts(admitted)?;
        match self.attempt.measured(metric) {
            Err(left) if left.why == Why::Tainted && admitted.contains(&Why::Tainted) => {
                self.attempt.metric(metric).ok_or(left)
            }
            found => found,
        }
    }
}

impl Measured {
    /// Creates the measured value of an attempt's metric, with its known uncertainty.
    pub fn of(id: AttemptId, run: &Run, attempt: &Attempt, metric: &str, value: f64) -> Self {
        let half_width = attempt.metrics.get(metric).and_then(|metric| metric.uncertainty);
        let sensors = attempt.sensors().into_iter().map(str::to_owned).collect();
        Self {
            attempt: id,
            run: attempt.run,
            configuration: digest_behind(metric, run),
            started_unix_ms: attempt.started_unix_ms,
            value,
            half_width,
            sensors,
            replicate: Replicate::of(run, attempt),
            round: attempt.round(),
        }
    }
}

/// All names of fields and metrics of the attempts.
pub fn names(trials: &[Trial]) -> Names {
    let mut names = Names::known();
    let mut seen = BTreeSet::new();
    for trial in trials {
        if seen.insert(trial.run.id) {
            names.add_run(&trial.run);
        }
        names.add_attempt(&trial.attempt);
    }
    names
}

/// Repetitions of one configuration, or all attempts with the same values of given fields.
#[derive(Clone, Debug)]
pub struct Configuration<'a, T = Trial> {
    /// The given fields with the attempts' common values.
    pub agreed: Vec<(String, Option<Value>)>,
    /// Its attempts, at least one.
    pub trials: Vec<&'a T>,
}

impl<T: Asked> Configuration<'_, T> {
    /// An attempt of its run with the smallest id.
    pub fn first(&self) -> Option<&T> {
        self.trials.iter().copied().min_by_key(|trial| trial.run_id())
    }

    /// The kind of a metric: measured if that is so for any attempt with a value.
    pub fn metric_kind(&self, metric: &str, admitted: &BTreeSet<Why>) -> MetricKind {
        let has_value = |trial: &&&T| match trial.measured(metric, admitted) {
            Ok(_) => true,
            Err(left) => left.why == Why::NotFinite,
        };
        let kinds = self.trials.iter().filter(has_value).map(|trial| trial.metric_kind(metric));
        kinds.max().unwrap_or(MetricKind::Outcome)
    }

    /// The values of a metric of those attempts in which it is counted. Empty if one is not finite, because no mean is then meaningful.
    pub fn values(&self, metric: &str, admitted: &BTreeSet<Why>) -> Vec<(Replicate, f64)> {
        let mut values = Vec::new();
        for trial in &self.trials {
            match trial.measured(metric, admitted) {
                Ok(value) => values.push((trial.replicate(), value)),
                Err(left) if left.why == Why::NotFinite => return Vec::new(),
                Err(_) => {}
            }
        }
        values
    }

    /// The mean of a metric over its independent units; see [`values`](Self::values).
    pub fn mean(&self, metric: &str, admitted: &BTreeSet<Why>) -> Option<f64> {
        let values = self.values(metric, admitted);
        (!values.is_empty()).then(|| unit_mean(self.metric_kind(metric, admitted), &values))
    }

    /// Its run with the smallest id.
    pub fn run(&self) -> Option<Run> {
        Some(self.first()?.record()?.0.into_owned())
    }

    /// The configuration as a contender in one metric. Reads the records of its attempts.
    pub fn contender(&self, metric: &str, admitted: &BTreeSet<Why>) -> Option<Contender> {
        self.contenders(&[metric], admitted)?.pop()
    }

    /// The configuration as a contender in several metrics; `None` if it lacks one.
    pub fn contenders(&self, metrics: &[&str], admitted: &BTreeSet<Why>) -> Option<Vec<Contender>> {
        if metrics.iter().any(|metric| self.values(metric, admitted).is_empty()) {
            return None;
        }
        let mut measured: Vec<Vec<Measured>> = vec![Vec::new(); metrics.len()];
        T::each_record(&self.trials, &mut |trial, run, attempt| {
            for (metric, found) in metrics.iter().zip(&mut measured) {
                let value = trial.measured(metric, admitted).ok();
                found.extend(value.map(|value| Measured::of(trial.id(), run, attempt, metric, value)));
            }
        });
        let of_metric = |(metric, measured): (&&str, Vec<Measured>)| {
            let newest = newest_run(&measured)?;
            let run = self.trials.iter().find(|trial| trial.run_id() == newest)?.record()?.0.into_owned();
            Some(Contender { run, agreed: self.agreed.clone(), kind: self.metric_kind(metric, admitted), measured })
        };
        metrics.iter().zip(measured).map(of_metric).collect()
    }
}

/// Groups attempts that differ only in their seed or, if full names of fields are given, that have the same values of these.
pub fn configurations<'a, T: Asked>(
    trials: impl IntoIterator<Item = &'a T>,
    by: &[String],
) -> Vec<Configuration<'a, T>> {
    let mut found: BTreeMap<Vec<Option<Digest>>, Configuration<'a, T>> = BTreeMap::new();
    for trial in trials {
        let agreed: Vec<(String, Option<Value>)> = by.iter().map(|name| (name.clone(), trial.field(name))).collect();
        let key = if by.is_empty() {
            vec![Some(trial.group().0)]
        } else {
            agreed.iter().map(|(_, value)| value.as_ref().map(Value::digest)).collect()
        };
        let one = found.entry(key).or_insert_with(|| Configuration { agreed, trials: Vec::new() });
        one.trials.push(trial);
    }
    found.into_values().collect()
}

/// Returns how many attempts are counted in a metric, and how many are not, by reason.
pub fn count_left_out<T: Asked>(trials: &[T], metric: &str, admitted: &BTreeSet<Why>) -> (u64, BTreeMap<LeftOut, u64>) {
    let mut counted = 0;
    let mut left_out: BTreeMap<LeftOut, u64> = BTreeMap::new();
    for trial in trials {
        match trial.measured(metric, admitted) {
            Ok(_) => counted += 1,
            Err(left) => *left_out.entry(left).or_default() += 1,
        }
    }
    (counted, left_out)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::record::{Metric, Outcome, Parts, Table};

    /// A finished attempt of a run with these fields, this seed and these metrics without units.
    pub(in crate::analysis) fn trial(fields: &[(&str, Value)], seed: u64, metrics: &[(&str, f64)]) -> Trial {
        let config: Table = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let run = Run::new(Parts { config: config.into(), seed, ..Parts::sample() });
        let metrics = metrics.iter().map(|(name, value)| ((*name).to_owned(), Metric::new(*value, "")));
        let attempt = Attempt { run: run.id, metrics: metrics.collect(), ..Attempt::sample() };
        Trial { id: attempt.id(), run, attempt, is_hidden: false }
    }

    #[test]
    fn seeds_are_repetitions_and_fields_group_attempts_with_equal_values() {
        let of = |x: i64, y: &str, seed, loss| trial(&[("x", x.into()), ("y", y.into())], seed, &[("loss", loss)]);
        let trials =
            [of(1, "a", 1, 2.0), of(1, "a", 2, 4.0), of(1, "b", 1, 9.0), of(2, "a", 1, f64::NAN), of(2, "a", 2, 1.0)];
        let none = BTreeSet::new();
        let mut sizes: Vec<(usize, Option<f64>)> =
            configurations(&trials, &[]).iter().map(|one| (one.trials.len(), one.mean("loss", &none))).collect();
        sizes.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert_eq!(sizes, [(1, Some(9.0)), (2, None), (2, Some(3.0))]);
        let by_x = configurations(&trials, &["x".to_owned()]);
        let mut means: Vec<_> =
            by_x.iter().map(|one| (one.agreed[0].1.clone().unwrap().as_int(), one.mean("loss", &none))).collect();
        means.sort_by(|a, b| a.partial_cmp(b).unwrap());
        // Attempts of one seed are averaged first.
        assert_eq!(means, [(Some(1), Some(4.75)), (Some(2), None)]);
        let (counted, left_out) = count_left_out(&trials, "loss", &none);
        assert_eq!((counted, left_out.len()), (4, 1));
    }

    #[test]
    fn only_admitted_reasons_do_not_exclude_an_attempt() {
        let mut one = trial(&[], 1, &[("loss", 2.0)]);
        one.attempt.facts.insert("tainted".to_owned(), "throttled".into());
        let why = |one: &Trial, admitted: &[Why]| {
            one.measured("loss", &admitted.iter().copied().collect()).map_err(|left| left.why)
        };
        assert_eq!(why(&one, &[]), Err(Why::Tainted));
        assert_eq!(why(&one, &[Why::Tainted]), Ok(2.0));
        one.is_hidden = true;
        assert_eq!(why(&one, &[Why::Tainted]), Err(Why::Hidden));
        one.attempt.outcome = Outcome::Failed { reason: "no".to_owned() };
        assert_eq!(why(&one, &[Why::Hidden]), Err(Why::Failed));
        assert_eq!(why(&one, &[Why::Hidden, Why::Failed]), Err(Why::Tainted));
        assert_eq!(why(&one, &[Why::Hidden, Why::Failed, Why::Tainted]), Ok(2.0));
        one.attempt.facts.clear();
        assert_eq!(why(&one, &[Why::Hidden, Why::Failed]), Ok(2.0));
    }
}
