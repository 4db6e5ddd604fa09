//! Repeats a run until the confidence interval of its mean is narrow enough.
//!
//! Everything is read from the settings of the cell and from the ledger.

use super::bound::{Bound, OBSERVE_ONLY};
use super::protocol::CANARY;
use crate::analysis::{Estimate, standard};
use crate::gpu::Settings;
use crate::manifest::percent;
use crate::record::{Attempt, LeftOut, MetricInfo, MetricKind, Outcome, Replicate, Run, Value, Why, known_metric};
use crate::store::{Reader, Store, StoreError};
use std::collections::BTreeMap;

/// The rule for when a run has enough attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct Until {
    /// The smallest number of attempts.
    pub min: usize,
    /// The largest number of attempts.
    pub max: usize,
    /// The half-width of the 95% confidence interval, as a share of the mean.
    pub share: f64,
    /// The metric of the interval.
    pub metric: String,
}

/// The state of a run's repetitions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repeated {
    /// The mean over independent units. `None` if no attempt counts.
    pub estimate: Option<Estimate>,
    /// The number of attempts that use up the budget, including those that do not count.
    pub spent: usize,
    /// The number of these that are canary attempts.
    pub canaries: usize,
    /// The reasons why some of these do not count, with their numbers.
    pub left_out: BTreeMap<LeftOut, u64>,
    /// The same for attempts outside the budget: those that did not finish, and observe-only attempts at other GPU
    /// settings.
    pub beside: BTreeMap<LeftOut, u64>,
    /// The unit of the metric, from an attempt.
    pub unit: Option<String>,
    /// Whether the interval is narrow enough.
    pub is_met: bool,
}

/// Collects the attempts of a run.
#[derive(Default)]
struct Tally {
    kind: Option<MetricKind>,
    values: Vec<(Replicate, f64)>,
    rounds: Vec<Option<u64>>,
    repeated: Repeated,
}

impl Tally {
    fn take(&mut self, attempt: &Attempt, is_hidden: bool, run: &Run, metric: &str) {
        let Self { kind, values, rounds, repeated } = self;
        let is_one = Settings::of(run.config()).is_none() || fills(attempt);
        let is_spent = attempt.outcome == Outcome::Finished && is_one;
        repeated.spent += usize::from(is_spent);
        repeated.canaries += usize::from(is_spent && attempt.settings.contains_key(CANARY));
        repeated.unit = repeated.unit.take().or_else(|| Some(standard(metric, attempt.metrics.get(metric)?).unit));
        let found = if is_hidden {
            Err(LeftOut { why: Why::Hidden, reason: String::new() })
        } else if attempt.outcome == Outcome::Finished && !is_one {
            Err(LeftOut { why: Why::Tainted, reason: attempt.disturbances().join("; ") })
        } else {
            counted(attempt, metric)
        };
        match found {
            Ok(value) => {
                *kind = Some(attempt.metric_kind(metric));
                values.push((Replicate::of(run, attempt), value));
                rounds.push(attempt.round());
            }
            Err(left) => {
                let kind = if is_spent { &mut repeated.left_out } else { &mut repeated.beside };
                *kind.entry(left).or_default() += 1;
            }
        }
    }

    /// The same estimate as in `ledger best`.
    fn estimate(&self) -> Option<Estimate> {
        Estimate::of(self.kind?, &self.values, &self.rounds)
    }
}

impl Until {
    /// The rule in the cell's settings, if there is one.
    pub fn of(bound: &Bound) -> Option<Self> {
        let settings = &bound.cell.settings;
        let share = settings.get("repeats.until").and_then(Value::as_str).and_then(percent)?;
        let number =
            |key: &str| settings.get(key).and_then(Value::as_int).and_then(|number| usize::try_from(number).ok());
        let (min, max) = (number("repeats.min").unwrap_or(2), number("repeats.max").unwrap_or(10));
        Some(Self { min, max, share, metric: metric(bound) })
    }

    /// Whether the run has enough attempts that count, and a narrow enough interval.
    ///
    /// # Errors
    /// If the ledger cannot be read. A missing ledger counts as empty.
    pub fn is_met(&self, store: &Store, bound: &Bound) -> Result<bool, StoreError> {
        Ok(store.if_there(|reader| self.standing(reader, bound))?.is_some_and(|found| found.is_met))
    }

    /// The state of a run's repetitions in the ledger. A hidden attempt does not count.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub fn standing(&self, reader: &Reader<'_>, bound: &Bound) -> Result<Repeated, StoreError> {
        let hidden = reader.hidden()?;
        let mut tally = Tally::default();
        for (id, _) in reader.attempts_of(bound.run.id)? {
            if let Some(attempt) = reader.readable(id)? {
                // A run that is hidden as a whole should not be executed again, so its attempts count.
                tally.take(&attempt, hidden.contains(&id.0), &bound.run, &self.metric);
            }
        }
        let estimate = tally.estimate();
        let is_met = estimate.as_ref().is_some_and(|estimate| self.is_enough(estimate));
        Ok(Repeated { is_met, estimate, ..tally.repeated })
    }

    /// Whether an estimate suffices. Identical values of an outcome suffice, because another attempt would give the
    /// same.
    fn is_enough(&self, estimate: &Estimate) -> bool {
        let is_narrow = estimate
            .half_width()
            .map_or(estimate.kind == MetricKind::Outcome, |half_width| half_width <= self.share * estimate.mean.abs());
        estimate.attempts >= self.min && is_narrow
    }
}

/// The value of a metric in an attempt, if it counts.
pub(super) fn counted(attempt: &Attempt, metric: &str) -> Result<f64, LeftOut> {
    attempt.counts()?;
    // Older records have known metrics in the unit that the program stated.
    match attempt.metrics.get(metric) {
        Some(stated) => attempt.judge(metric, &standard(metric, stated)),
        None => attempt.measured(metric),
    }
}

/// The default metric, which reacts first to drift and disturbances: energy, or time without a GPU.
pub(super) fn usual_metric(bound: &Bound) -> &'static str {
    if bound.gpus.is_empty() { "train_time" } else { "energy" }
}

/// The metric whose interval counts: a configured one, an objective that can vary, or the default. Learned outcomes are
/// the same for the same seed, so their interval would say nothing about the measurement. For an external program's own
/// metric this is unknown, and the objective is taken.
fn metric(bound: &Bound) -> String {
    let named = |key: &str| bound.cell.settings.get(key).and_then(Value::as_str).map(str::to_owned);
    let can_scatter = |name: &String| known_metric(name).is_none_or(MetricInfo::is_measured);
    let objective = || named("objective.metric").filter(can_scatter);
    named("repeats.metric").or_else(objective).unwrap_or_else(|| usual_metric(bound).to_owned())
}

/// The number of finished attempts of a run that were made with the GPU settings of the run.
///
/// # Errors
/// If the ledger cannot be read.
pub fn filled(reader: &Reader<'_>, run: &Run) -> Result<usize, StoreError> {
    if Settings::of(run.config()).is_none() {
        return reader.finished_count(run.id);
    }
    let mut count = 0;
    for (id, finished) in reader.attempts_of(run.id)? {
        let attempt = if finished { reader.readable(id)? } else { None };
        count += usize::from(attempt.is_some_and(|attempt| fills(&attempt)));
    }
    Ok(count)
}

/// Whether a finished attempt has the GPU settings that its cell asks for. An observe-only attempt on a GPU with other
/// settings does not.
fn fills(attempt: &Attempt) -> bool {
    !attempt.settings.contains_key(OBSERVE_ONLY) || attempt.disturbances().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Metric, Parts, Table};

    fn attempt(energy_j: f64, outcome: Outcome, facts: Table) -> Attempt {
        Attempt {
            outcome,
            metrics: [("energy".to_owned(), Metric::new(energy_j, "J"))].into(),
            facts,
            ..Attempt::sample()
        }
    }

    #[test]
    fn attempts_that_do_not_count_have_no_value() {
        let finished = || Outcome::Finished;
        let cut_short = Outcome::Interrupted { reason: "it was stopped on request".to_owned() };
        let tainted: Table = [("worker.tainted".to_owned(), "the fan failed".into())].into();
        assert_eq!(counted(&attempt(5.0, finished(), Table::new()), "energy"), Ok(5.0));
        let mut older = attempt(5.0, finished(), Table::new());
        older.metrics.insert("energy".to_owned(), Metric::new(5.0, "kJ"));
        assert_eq!(counted(&older, "energy"), Ok(5000.0), "in the unit of all others");
        assert!(counted(&attempt(2.5, cut_short, Table::new()), "energy").is_err());
        assert!(counted(&attempt(5.0, finished(), tainted), "energy").is_err());
    }

    #[test]
    fn each_attempt_has_its_reason_and_only_finished_ones_use_the_budget() {
        let run = |config: Table| Run::new(Parts { config: config.into(), ..Parts::sample() });
        let reason = |text: &str| -> Table { [("validity.reasons".to_owned(), vec![text].into())].into() };
        let cut_short = Outcome::Interrupted { reason: "it was stopped on request".to_owned() };
        let mut watched = attempt(5.0, Outcome::Finished, reason("power limit"));
        watched.settings.insert(OBSERVE_ONLY.to_owned(), true.into());
        let mut canary = attempt(5.0, Outcome::Finished, Table::new());
        canary.settings.insert(CANARY.to_owned(), true.into());
        let all = [
            attempt(2.5, cut_short, Table::new()),
            canary,
            attempt(5.5, Outcome::Finished, Table::new()),
            attempt(5.0, Outcome::Finished, reason("host overloaded")),
            watched,
        ];
        let told = |kind: &BTreeMap<LeftOut, u64>| -> Vec<String> {
            kind.iter().map(|(left, count)| format!("{count} {} {}", left.why.name(), left.reason)).collect()
        };
        let tally = |run: &Run| {
            let mut tally = Tally::default();
            all.iter().for_each(|attempt| tally.take(attempt, false, run, "energy"));
            let Repeated { spent, canaries, left_out, beside, .. } = tally.repeated;
            let values: Vec<f64> = tally.values.iter().map(|(_, value)| *value).collect();
            (values, spent, canaries, told(&left_out), told(&beside))
        };
        let limited = run([("hardware.power_limit_w".to_owned(), Value::Int(300))].into());
        let beside = ["1 interrupted it was stopped on request", "1 tainted power limit"].map(str::to_owned).to_vec();
        let expected = (vec![5.0, 5.5], 3, 1, vec!["1 tainted host overloaded".to_owned()], beside);
        assert_eq!(tally(&limited), expected);
        assert_eq!(tally(&run(Table::new())).1, 4, "nothing is set, so that nobody only watched");
    }

    #[test]
    fn repetitions_end_with_a_narrow_interval() {
        let until = Until { min: 3, max: 9, share: 0.02, metric: "energy".to_owned() };
        let measured = |values: &[f64], rounds: &[Option<u64>]| {
            let one = |(at, value): (usize, &f64)| {
                let execution = at as u64;
                (Replicate { seed: 1, execution, machine: 7 }, *value)
            };
            let values: Vec<_> = values.iter().enumerate().map(one).collect();
            Estimate::of(MetricKind::Measured, &values, rounds).is_some_and(|estimate| until.is_enough(&estimate))
        };
        assert!(!measured(&[], &[]));
        assert!(!measured(&[100.0, 100.0], &[]), "too few, however alike");
        assert!(measured(&[100.0, 100.0, 100.0], &[]));
        // Deviation 1, three values: 4.3027 * 1 / sqrt(3) = 2.484.
        assert!(!measured(&[99.0, 100.0, 101.0], &[]));
        // Five values: deviation 0.7071 * 2.776 / sqrt(5) = 0.878.
        let five = [99.0, 100.0, 101.0, 100.0, 100.0];
        assert!(measured(&five, &[]));
        // If rounds differ, attempts of one round are not independent.
        let six = [99.0, 99.1, 98.9, 101.0, 101.1, 100.9];
        assert!(measured(&six, &[1, 2, 3, 4, 5, 6].map(Some)));
        assert!(!measured(&six, &[1, 1, 1, 2, 2, 2].map(Some)));
        let copies = [1, 2, 3].map(|_| (Replicate { seed: 1, execution: 5, machine: 7 }, 0.75));
        let outcome = Estimate::of(MetricKind::Outcome, &copies, &[]).unwrap();
        assert!(until.is_enough(&outcome), "identical bit for bit");
        assert!(!until.is_enough(&Estimate::of(MetricKind::Outcome, &copies[..2], &[]).unwrap()));
    }
}
