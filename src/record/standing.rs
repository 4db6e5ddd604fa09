//! Whether an attempt's value of a metric is counted in answers, and if not, why.
//!
//! Attempts that are left out stay in the ledger: answers state how many they leave out and for what reason.

use super::{Attempt, Metric, MetricInfo, MetricKind, Outcome, Unit, Value, known_metric};

/// The reason for which an attempt is left out of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It could not complete.
    Failed,
    /// A person or a program stopped it.
    Interrupted,
    /// It finished, but its numbers are invalid.
    Tainted,
    /// A person hid it.
    Hidden,
    /// The metric has a reason in place of a value.
    Missing,
    /// The metric is not a finite number.
    NotFinite,
    /// It does not have the metric.
    Absent,
}

impl Why {
    /// Every reason, in the order of output.
    pub const ALL: [Self; 7] =
        [Self::Failed, Self::Interrupted, Self::Tainted, Self::Hidden, Self::Missing, Self::NotFinite, Self::Absent];

    /// The word in arguments and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Tainted => "tainted",
            Self::Hidden => "hidden",
            Self::Missing => "missing",
            Self::NotFinite => "not_finite",
            Self::Absent => "absent",
        }
    }
}

/// An attempt that is left out, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// The kind of reason.
    pub why: Why,
    /// The reason in words; empty if the kind is enough.
    pub reason: String,
}

impl LeftOut {
    /// The largest length of a stored reason, in characters.
    const MOST: usize = 200;

    fn new(why: Why, reason: &str) -> Self {
        Self { why, reason: reason.chars().take(Self::MOST).collect() }
    }
}

const DISAGREE: &str = "the two estimators of energy disagree";

/// Fractions of a time that are pure numbers, like fractions of right answers.
const SHARES_OF_TIME: [&str; 2] = ["bubble_fraction", "matching_share"];
/// Fractions of right answers, and average precisions: pure numbers from 0 to 1.
const SHARES_OF_ANSWERS: [&str; 6] = ["accuracy", "box_ap_50", "box_ap_75", "mask_ap", "mask_ap_50", "mask_ap_75"];

/// Whether a metric comes from power sensors, so that it is invalid if the estimators disagree.
fn is_of_energy(name: &str, metric: &Metric) -> bool {
    let is = |unit: &str| Unit::named(unit).is_some_and(Unit::is_of_energy);
    is(&metric.unit) || known_metric(name).is_some_and(|known| is(known.unit))
}

/// Whether a metric is measured and not computed, by its unit, however that is spelled, or by its name.
fn is_measured(name: &str, metric: &Metric) -> bool {
    is_of_effort(&metric.unit) || known_metric(name).is_some_and(MetricInfo::is_measured)
}

/// Whether the unit is one of measurements during an attempt. Outcomes have other units.
fn is_of_effort(unit: &str) -> bool {
    Unit::named(unit).is_some_and(Unit::is_of_effort)
}

impl MetricInfo {
    /// Whether the metric is an outcome of the computation or a measurement.
    pub fn kind(&self) -> MetricKind {
        if self.is_measured() || self.unit == "B" { MetricKind::Measured } else { MetricKind::Outcome }
    }

    /// Whether it is a fraction of a whole, so that its differences are stated in points.
    pub fn is_share(&self) -> bool {
        self.unit == "%" || SHARES_OF_TIME.contains(&self.name) || SHARES_OF_ANSWERS.contains(&self.name)
    }

    /// Whether it is measured during an attempt and not computed, so that disturbances of the machine change it.
    pub fn is_measured(&self) -> bool {
        is_of_effort(self.unit) || self.unit == "%" || SHARES_OF_TIME.contains(&self.name)
    }
}

impl Attempt {
    /// The prefix of facts that state a metric's kind, `outcome` or `measured`; the metric's name follows. In a
    /// worker's own facts `worker.` precedes it.
    pub const METRIC_KIND: &str = "metric_kind.";

    /// The kind of a metric, from the first of these:
    /// - the statement of the worker, the manifest or the map of an import,
    /// - the table of known metrics,
    /// - the unit: `Measured` for time, energy, power, bytes, rates and other quantities of a machine, otherwise
    ///   `Outcome`.
    pub fn metric_kind(&self, name: &str) -> MetricKind {
        let of_unit = |unit: &str| {
            if Unit::named(unit).is_some_and(Unit::is_of_machine) { MetricKind::Measured } else { MetricKind::Outcome }
        };
        let known = || known_metric(name).map(MetricInfo::kind);
        let by_unit = || self.metrics.get(name).map_or(MetricKind::Outcome, |metric| of_unit(&metric.unit));
        self.stated_kind(name).or_else(known).unwrap_or_else(by_unit)
    }

    fn stated_kind(&self, name: &str) -> Option<MetricKind> {
        let stated = |prefix: &str| {
            let fact = self.facts.get(&format!("{prefix}{}{name}", Self::METRIC_KIND))?;
            fact.as_str().and_then(MetricKind::named)
        };
        stated("").or_else(|| stated("worker."))
    }

    /// The reasons why measurements of time, power and energy are invalid, while outcomes are valid. Empty if there are none.
    pub fn disturbances(&self) -> Vec<&str> {
        texts(self.facts.get(Self::DISTURBED))
    }

    /// The reasons why all numbers of this attempt are invalid; empty if there are none.
    ///
    /// The reasons are the texts of the facts `tainted` and `worker.tainted`: one text or a list of them.
    pub fn taints(&self) -> Vec<&str> {
        [Self::TAINT, "worker.tainted"].into_iter().flat_map(|name| texts(self.facts.get(name))).collect()
    }

    /// All reasons why numbers of this attempt are invalid, for all of them or only for measurements.
    pub fn all_taints(&self) -> Vec<&str> {
        let disagree = self.estimators_disagree().then_some(DISAGREE);
        self.taints().into_iter().chain(self.disturbances()).chain(disagree).collect()
    }

    /// The outcome for people, with a mark if any of the attempt's numbers are invalid.
    pub fn standing(&self) -> String {
        let tainted = if self.all_taints().is_empty() { "" } else { ", tainted" };
        format!("{}{tainted}", self.outcome.name())
    }

    /// Checks whether the attempt is counted in answers at all.
    ///
    /// # Errors
    /// The reason why it is not counted.
    pub fn counts(&self) -> Result<(), LeftOut> {
        match &self.outcome {
            Outcome::Failed { reason } => return Err(LeftOut::new(Why::Failed, reason)),
            Outcome::Interrupted { reason } => return Err(LeftOut::new(Why::Interrupted, reason)),
            Outcome::Finished => {}
        }
        let taints = self.taints();
        if taints.is_empty() { Ok(()) } else { Err(LeftOut::new(Why::Tainted, &taints.join("; "))) }
    }

    /// Returns the value of a metric, if it is counted. The attempt itself is not checked.
    ///
    /// # Errors
    /// The reason why it is not counted.
    pub fn measured(&self, name: &str) -> Result<f64, LeftOut> {
        match self.metrics.get(name) {
            Some(metric) => self.judge(name, metric),
            None => Err(LeftOut::new(Why::Absent, "")),
        }
    }

    /// As [`measured`](Self::measured), for a given metric.
    ///
    /// # Errors
    /// The reason why it is not counted.
    pub fn judge(&self, name: &str, metric: &Metric) -> Result<f64, LeftOut> {
        let Some(value) = metric.value else {
            return Err(LeftOut::new(Why::Missing, metric.reason.as_deref().unwrap_or_default()));
        };
        if !value.is_finite() {
            return Err(LeftOut::new(Why::NotFinite, &format!("it is {value}")));
        }
        if is_of_energy(name, metric) && self.estimators_disagree() {
            return Err(LeftOut::new(Why::Tainted, DISAGREE));
        }
        let is_measured =
            || self.stated_kind(name).map_or_else(|| is_measured(name, metric), |kind| kind == MetricKind::Measured);
        if !self.disturbances().is_empty() && is_measured() {
            return Err(LeftOut::new(Why::Tainted, &self.disturbances().join("; ")));
        }
        Ok(value)
    }

    /// Whether its energies are valid.
    pub fn believes_energies(&self) -> bool {
        !self.estimators_disagree() && self.disturbances().is_empty()
    }

    /// Whether the two estimators of energy disagree, so that neither is valid.
    pub fn estimators_disagree(&self) -> bool {
        self.is_marked("disagreement")
    }

    fn is_marked(&self, mark: &str) -> bool {
        matches!(self.facts.get("telemetry.marks"), Some(Value::List(marks)) if marks.iter().any(|one| one.as_str() == Some(mark)))
    }

    /// The sensors of the attempt's energies: its GPUs' UUIDs, or its host if it used no GPU.
    pub fn sensors(&self) -> Vec<&str> {
        let is_uuid = |name: &str| name.starts_with("gpu.") && name.ends_with(".uuid");
        let uuids = self.facts.iter().filter(|(name, _)| is_uuid(name)).filter_map(|(_, uuid)| uuid.as_str());
        let mut found: Vec<&str> = uuids.collect();
        if found.is_empty() {
            found.extend(self.facts.get("host.name").and_then(Value::as_str));
        }
        if found.is_empty() {
            let import = self.facts.get("import").and_then(Value::as_table);
            found.extend(import.and_then(|import| import.get(Self::IMPORTED_MACHINE)).and_then(Value::as_str));
        }
        found.sort_unstable();
        found
    }
}

/// The texts of a fact: one, or a list of them.
fn texts(fact: Option<&Value>) -> Vec<&str> {
    let all = match fact {
        Some(Value::List(texts)) => texts.iter().filter_map(Value::as_str).collect(),
        other => Vec::from_iter(other.and_then(Value::as_str)),
    };
    all.into_iter().filter(|text| !text.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Table;
    use std::collections::BTreeMap;

    fn attempt(outcome: Outcome, facts: Table) -> Attempt {
        let metrics = [
            ("energy", Metric::new(5.0, "J")),
            ("loss", Metric::new(f64::NAN, "")),
            ("accuracy", Metric::new(0.5, "")),
            ("mfu", Metric::missing("%", "it was not told")),
        ];
        Attempt {
            outcome,
            metrics: BTreeMap::from(metrics.map(|(name, metric)| (name.to_owned(), metric))),
            facts,
            ..Attempt::sample()
        }
    }

    fn why<T>(found: Result<T, LeftOut>) -> Option<(Why, String)> {
        found.err().map(|left| (left.why, left.reason))
    }

    #[test]
    fn a_metric_is_measured_or_an_outcome_as_stated_known_or_by_its_unit() {
        let mut one = attempt(Outcome::Finished, Table::new());
        for (name, unit) in [("latency", "ms"), ("top1", "%"), ("score", ""), ("cache", "MiB")] {
            one.metrics.insert(name.to_owned(), Metric::new(1.0, unit));
        }
        let kinds = |one: &Attempt| {
            ["energy", "accuracy", "mfu", "gpu_mem_peak", "skipped_steps", "latency", "top1", "score", "cache", "none"]
                .map(|name| one.metric_kind(name).name())
        };
        let [m, o] = ["measured", "outcome"];
        assert_eq!(kinds(&one), [m, o, m, m, o, m, o, o, m, o]);
        one.facts.insert("worker.metric_kind.score".to_owned(), m.into());
        one.facts.insert("metric_kind.latency".to_owned(), o.into());
        assert_eq!(kinds(&one), [m, o, m, m, o, o, o, m, m, o]);
    }

    #[test]
    fn counted_metrics_have_a_finite_value_and_no_reason_against_them() {
        let plain = attempt(Outcome::Finished, Table::new());
        assert_eq!((plain.counts(), plain.measured("energy")), (Ok(()), Ok(5.0)));
        assert_eq!(why(plain.measured("loss")), Some((Why::NotFinite, "it is NaN".to_owned())));
        assert_eq!(why(plain.measured("mfu")), Some((Why::Missing, "it was not told".to_owned())));
        assert_eq!(why(plain.measured("edp")), Some((Why::Absent, String::new())));
        let failed = attempt(Outcome::Failed { reason: "the disk is full".to_owned() }, Table::new());
        assert_eq!(why(failed.counts()), Some((Why::Failed, "the disk is full".to_owned())));
    }

    #[test]
    fn taints_come_from_facts_and_marks_taint_only_energies() {
        let facts = [
            ("tainted".to_owned(), vec!["throttled", "hot start"].into()),
            ("worker.tainted".to_owned(), "zero power".into()),
        ];
        let tainted = attempt(Outcome::Finished, facts.into());
        assert_eq!(why(tainted.counts()), Some((Why::Tainted, "throttled; hot start; zero power".to_owned())));
        let empty = attempt(Outcome::Finished, [("tainted".to_owned(), Value::List(Vec::new()))].into());
        assert_eq!(empty.counts(), Ok(()));
        let marked =
            attempt(Outcome::Finished, [("telemetry.marks".to_owned(), vec!["gap", "disagreement"].into())].into());
        assert_eq!((marked.counts(), marked.measured("accuracy")), (Ok(()), Ok(0.5)));
        assert_eq!(why(marked.measured("energy")).map(|(why, _)| why), Some(Why::Tainted));
        assert_eq!(marked.all_taints(), ["the two estimators of energy disagree"]);
    }

    #[test]
    fn disturbances_taint_measurements_and_not_outcomes() {
        let facts = [("validity.reasons".to_owned(), vec!["throttled", "hot start"].into())];
        let mut disturbed = attempt(Outcome::Finished, facts.into());
        let measured = [
            ("train_time", "s"),
            ("throughput", "samples/s"),
            ("gpu_util", "%"),
            ("lat", "ms"),
            ("own", "kJ"),
            ("pace", "samples/min"),
            ("step_time", ""),
            ("matching_share", ""),
            ("bubble_fraction", ""),
        ];
        for (name, unit) in measured.into_iter().chain([("top5", "%"), ("score", "")]) {
            disturbed.metrics.insert(name.to_owned(), Metric::new(1.0, unit));
        }
        assert_eq!((disturbed.counts(), disturbed.measured("accuracy")), (Ok(()), Ok(0.5)));
        for name in measured.map(|(name, _)| name).into_iter().chain(["energy"]) {
            assert_eq!(
                why(disturbed.measured(name)),
                Some((Why::Tainted, "throttled; hot start".to_owned())),
                "{name}"
            );
        }
        assert_eq!(disturbed.measured("top5"), Ok(1.0), "a share of answers, of a program's own");
        assert_eq!(disturbed.measured("score"), Ok(1.0));
        for (name, kind) in [("score", "measured"), ("lat", "outcome")] {
            disturbed.facts.insert(format!("worker.metric_kind.{name}"), kind.into());
        }
        assert_eq!(["score", "lat"].map(|name| disturbed.measured(name).is_ok()), [false, true], "as stated");
        disturbed.facts = [("telemetry.marks".to_owned(), vec!["disagreement"].into())].into();
        assert_eq!(["lat", "own"].map(|name| disturbed.measured(name).is_ok()), [true, false], "an energy alone");
        disturbed.facts = [("validity.reasons".to_owned(), vec!["throttled", "hot start"].into())].into();
        assert_eq!(disturbed.all_taints(), ["throttled", "hot start"]);
        assert_eq!(disturbed.standing(), "finished, tainted");
    }

    #[test]
    fn sensors_are_gpus_or_the_host() {
        let host = ("host.name".to_owned(), Value::from("n1"));
        let gpus = [("gpu.1.uuid", "GPU-b"), ("gpu.0.uuid", "GPU-c"), ("gpu.0.name", "H200")];
        let facts = gpus.map(|(name, text)| (name.to_owned(), Value::from(text))).into_iter().chain([host.clone()]);
        assert_eq!(attempt(Outcome::Finished, facts.collect()).sensors(), ["GPU-b", "GPU-c"]);
        assert_eq!(attempt(Outcome::Finished, [host].into()).sensors(), ["n1"]);
        let row = Table::from([(Attempt::IMPORTED_MACHINE.to_owned(), "gpu7".into())]);
        let facts = Table::from([("import".to_owned(), row.into())]);
        assert_eq!(attempt(Outcome::Finished, facts).sensors(), ["gpu7"]);
    }
}
