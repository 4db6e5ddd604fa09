//! The result of a run's reruns: identical, equivalent, drifted or failed.
//!
//! Knows only sealed attempts: the same records always get the same verdict.

use super::comparison::{SIGNIFICANCE, Summary, tost};
use super::difference::{CurveDifference, FieldDifference, curves, digests, fields, is_computed, why};
use super::units::standard;
use crate::record::{Attempt, MetricKind, Part, Phase, Run, Sealed, Series, Table, Value, count};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// The result of a rerun, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// Every recorded curve has the same bits at every step, and every digest is the same.
    Identical,
    /// Some differ, but within the allowed tolerance.
    Equivalent,
    /// Some differ by more.
    Drifted,
    /// The rerun did not finish, or there is nothing to compare.
    Failed,
}

impl Grade {
    /// `identical`, `equivalent`, `drifted` or `failed`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identical => "identical",
            Self::Equivalent => "equivalent",
            Self::Drifted => "drifted",
            Self::Failed => "failed",
        }
    }
}

/// The reproducibility class: what a record promises for a rerun.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Class {
    /// The same bits, on the same device with the same program.
    Bits,
    /// The same up to rounding: kernels are selected by timing them, and each rounds in its own order.
    Rounding {
        /// Half the distance from 1 to the next larger number of the arithmetic's format.
        unit: f64,
    },
    /// Nothing, because the program is not the built-in trainer.
    Unknown,
}

impl Class {
    /// The class of a record, by its device, its program and the format of its numbers.
    pub fn of(run: &Run, attempt: &Attempt) -> Self {
        let program = run.parts.program.as_table();
        if program.is_none_or(|program| program.contains_key("command")) {
            return Self::Unknown;
        }
        let is_deterministic = run.config().get("training.deterministic") == Some(&Value::Bool(true));
        if is_deterministic || run.config().get("hardware.device").and_then(Value::as_str) != Some("cuda") {
            return Self::Bits;
        }
        // The worker's statement has priority over the request, because it knows whether products are rounded to TF32.
        let asked = run.config().get("training.precision").and_then(Value::as_str).unwrap_or_default();
        let format = attempt.facts.get("worker.precision").and_then(Value::as_str).unwrap_or(asked);
        let bits = match format {
            format if format.contains("bf16") => 8,
            format if format.contains("fp16") || format.contains("tf32") => 11,
            _ => 24,
        };
        Self::Rounding { unit: 2f64.powi(-bits) }
    }

    /// `same bits`, `rounding` or `unknown`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bits => "same bits",
            Self::Rounding { .. } => "rounding",
            Self::Unknown => "unknown",
        }
    }

    /// The relative tolerance of two values of a curve: half of the digits of the format, which is the square root of
    /// its unit. 0 if no difference is allowed.
    pub fn tolerance(self) -> f64 {
        match self {
            Self::Rounding { unit } => unit.sqrt(),
            Self::Bits | Self::Unknown => 0.0,
        }
    }

    /// Whether two curves differ by no more than that, plus one unit of the curve's largest value. The addition is
    /// needed because the error of a loss near 0 is not near 0.
    fn allows(self, a: &Series, b: &Series) -> bool {
        let Self::Rounding { unit } = self else { return false };
        let largest = a.values.iter().filter(|value| value.is_finite()).fold(0f64, |most, value| most.max(value.abs()));
        let near = |(a, b): (&f64, &f64)| {
            // Relative to an infinity, every difference is allowed.
            let finite = a.is_finite() && b.is_finite();
            a.to_bits() == b.to_bits()
                || finite && (a - b).abs() <= self.tolerance() * a.abs().max(b.abs()) + unit * largest
        };
        a.positions == b.positions && a.values.iter().zip(&b.values).all(near)
    }
}

/// The largest difference of two means that count as equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Margin {
    /// Relative to the original's mean.
    Share(f64),
    /// In the metric's unit.
    Absolute(f64),
}

/// A text that is not a margin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a margin (`1%` is a share of the original's mean, `0.002` is in the metric's unit)")]
pub struct MarginFault(String);

impl FromStr for Margin {
    type Err = MarginFault;

    fn from_str(text: &str) -> Result<Self, MarginFault> {
        let (number, is_share) = text.strip_suffix('%').map_or((text, false), |number| (number, true));
        let number = number.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
        let number = number.ok_or_else(|| MarginFault(text.to_owned()))?;
        Ok(if is_share { Self::Share(number / 100.0) } else { Self::Absolute(number) })
    }
}

impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "{}%", share * 100.0),
            Self::Absolute(margin) => margin.fmt(f),
        }
    }
}

/// The differences of a rerun from the original.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Divergence {
    /// The curve that differs first, with the step; `None` if only digests or metrics differ.
    pub first: Option<CurveDifference>,
    /// Whether there were curves to compare.
    pub has_curves: bool,
    /// The phase of the step, with its number: `epoch 2`.
    pub phase: Option<String>,
    /// Every curve that differs.
    pub curves: Vec<String>,
    /// The other curves that differ first at the same step.
    pub also: Vec<String>,
    /// Every digest that differs.
    pub digests: Vec<String>,
    /// Every metric that an external program stated and that differs.
    pub metrics: Vec<String>,
}

/// The result of one rerun.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Its grade.
    pub grade: Grade,
    /// Its differences; `None` if it is identical or failed.
    pub divergence: Option<Divergence>,
    /// Whether all curves are within the tolerance of the original's class, though bits differ.
    pub is_within_class: bool,
    /// Why it failed.
    pub failure: Option<String>,
    /// The parts of the identity that differ; empty if both are one run.
    pub parts: Vec<Part>,
}

/// The test of a metric over repetitions of the original and the rerun.
#[derive(Clone, Debug, PartialEq)]
pub struct Tested {
    /// The metric.
    pub metric: String,
    /// The numbers of repetitions of the original and of the rerun.
    pub n: (usize, usize),
    /// Their means.
    pub means: (f64, f64),
    /// The largest allowed difference, in the metric's unit.
    pub margin: f64,
    /// The probability that the means are this close by chance if they differ by the margin; `None` if it cannot be computed.
    pub p: Option<f64>,
}

impl Tested {
    fn is_equivalent(&self) -> bool {
        self.p.is_some_and(|p| p < SIGNIFICANCE)
    }
}

/// The result of all reruns.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The worst grade.
    pub grade: Grade,
    /// The first difference, or the tolerance that allows the differences; empty if nothing differs.
    pub detail: String,
    /// Each rerun, in their order.
    pub reruns: Vec<Judged>,
    /// The tests of metrics, if a margin was stated.
    pub tested: Vec<Tested>,
    /// The original's reproducibility class.
    pub class: Class,
}

/// Compares reruns with the original attempt. `earlier` are all counted attempts of the original run, including the original.
///
/// The verdict is
/// - `failed` if any rerun failed,
/// - `identical` if all have the same bits,
/// - `equivalent` if all differences are within the tolerance of the original's class, or if all metrics are within a
///   stated margin by [`tost`],
/// - `drifted` otherwise.
pub fn verdict(original: &Sealed, earlier: &[Attempt], reruns: &[&Sealed], margin: Option<Margin>) -> Verdict {
    let class = Class::of(&original.run, &original.attempt);
    let mut judged: Vec<Judged> = reruns.iter().map(|rerun| judge(original, rerun, class)).collect();
    let tested = margin.map(|margin| test(original, earlier, reruns, margin)).unwrap_or_default();
    let within_margin = !tested.is_empty() && tested.iter().all(Tested::is_equivalent);
    for one in judged.iter_mut().filter(|one| one.grade == Grade::Drifted) {
        if one.is_within_class || within_margin {
            one.grade = Grade::Equivalent;
        }
    }
    let grade = judged.iter().map(|one| one.grade).max().unwrap_or(Grade::Failed);
    let detail = match grade {
        Grade::Identical => String::new(),
        Grade::Equivalent if judged.iter().all(|one| one.grade == Grade::Identical || one.is_within_class) => {
            format!(
                "every curve stays within {:.2e} of the original's, which its class `{}` allows",
                class.tolerance(),
                class.name()
            )
        }
        Grade::Equivalent => format!("{} within {} by two one-sided tests", listed(&tested), margin_text(margin)),
        Grade::Failed => {
            judged.iter().find_map(|one| one.failure.clone()).unwrap_or_else(|| "there is no rerun".to_owned())
        }
        Grade::Drifted => drift(&judged, &tested, margin),
    };
    let detail = judged.first().map_or(detail.clone(), |judged| judged.told_with_parts(detail));
    Verdict { grade, detail, reruns: judged, tested, class }
}

impl Judged {
    /// Adds the differing parts of the identity to a text, because a rerun that is another run has to be marked as such.
    fn told_with_parts(&self, text: String) -> String {
        if self.parts.is_empty() {
            return text;
        }
        let names: Vec<String> = self.parts.iter().map(|part| format!("`{part}`")).collect();
        let parts = format!("another run id, by {}", names.join(", "));
        if text.is_empty() { parts } else { format!("{text}; {parts}") }
    }
}

impl Verdict {
    /// Returns the differences of one rerun; empty if nothing differs.
    pub fn detail_of(&self, judged: &Judged) -> String {
        let told = match judged.grade {
            Grade::Identical => String::new(),
            Grade::Failed => judged.failure.clone().unwrap_or_default(),
            Grade::Drifted | Grade::Equivalent => {
                let apart = judged.divergence.as_ref().map(Divergence::to_string).unwrap_or_default();
                if judged.grade == self.grade && self.grade == Grade::Equivalent {
                    // The detail of the verdict states the tolerance and the parts.
                    return format!("{}; {apart}", self.detail);
                }
                apart
            }
        };
        judged.told_with_parts(told)
    }
}

fn margin_text(margin: Option<Margin>) -> String {
    margin.map(|margin| margin.to_string()).unwrap_or_default()
}

fn listed(tested: &[Tested]) -> String {
    let names: Vec<String> = tested.iter().map(|one| format!("`{}`", one.metric)).collect();
    names.join(", ")
}

fn drift(judged: &[Judged], tested: &[Tested], margin: Option<Margin>) -> String {
    let first = judged.iter().filter(|one| one.grade == Grade::Drifted).find_map(|one| one.divergence.as_ref());
    let mut text = first.map(Divergence::to_string).unwrap_or_default();
    let apart: Vec<String> = tested
        .iter()
        .filter(|one| !one.is_equivalent())
        .map(|one| match one.p {
            Some(p) => format!("`{}` (p = {p:.3})", one.metric),
            None => format!("`{}` (two reruns are needed: `--times 2`)", one.metric),
        })
        .collect();
    if !apart.is_empty() {
        text.push_str(&format!("; not shown to be within {}: {}", margin_text(margin), apart.join(", ")));
    } else if margin.is_some() && tested.is_empty() {
        text.push_str("; no metric of the original can be tested");
    }
    text
}

fn judge(original: &Sealed, rerun: &Sealed, class: Class) -> Judged {
    let parts = why(&original.run, &rerun.run).into_iter().map(|part| part.part).collect();
    let mut judged = Judged { grade: Grade::Identical, divergence: None, is_within_class: false, failure: None, parts };
    if let Some(reason) = rerun.attempt.outcome.reason() {
        judged.grade = Grade::Failed;
        judged.failure = Some(format!("the rerun is {}: {reason}", rerun.attempt.outcome.name()));
        return judged;
    }
    let curves = curves(original, rerun);
    let has_curves = !curves.is_empty();
    let parted: Vec<CurveDifference> = curves.into_iter().filter(|curve| curve.first_step.is_some()).collect();
    let digests = digests(&original.attempt, &rerun.attempt);
    let metrics = if class == Class::Unknown { metrics(&original.attempt, &rerun.attempt) } else { Vec::new() };
    if parted.is_empty() && digests.is_empty() && metrics.is_empty() {
        let says = |sealed: &Sealed| {
            let has_curve = sealed.series.iter().any(|series| is_computed(series) && !series.values.is_empty());
            has_curve || !sealed.attempt.digests.is_empty() || computed(&sealed.attempt).next().is_some()
        };
        if !says(original) {
            judged.grade = Grade::Failed;
            judged.failure = Some(
                "nothing can be compared: it has recorded no curve, no digest and no metric of what it computed"
                    .to_owned(),
            );
        }
        return judged;
    }
    judged.grade = Grade::Drifted;
    let series = |sealed: &'_ Sealed, name: &str| {
        sealed.series.iter().filter(|one| is_computed(one)).find(|one| one.name == name).cloned()
    };
    // Different data are not explained by rounding.
    judged.is_within_class = digests.iter().all(|name| name != "data")
        && class.tolerance() > 0.0
        && parted.iter().all(|curve| match (series(original, &curve.name), series(rerun, &curve.name)) {
            (Some(a), Some(b)) => class.allows(&a, &b),
            _ => false,
        });
    // At the same step an evaluation follows the training that it evaluates, and differs because of it.
    let order = |curve: &&CurveDifference| (curve.first_step, is_of_evaluation(&curve.name), curve.name.clone());
    let first = parted.iter().min_by_key(order).cloned();
    let is_beside = |curve: &&CurveDifference| {
        first.as_ref().is_some_and(|first| first.first_step == curve.first_step && first.name != curve.name)
    };
    let also = parted.iter().filter(is_beside).map(|curve| curve.name.clone()).collect();
    let place = first.as_ref().and_then(|curve| phase_of(&original.phases, &curve.name, curve.first_step?));
    judged.divergence = Some(Divergence {
        has_curves,
        phase: place,
        curves: parted.iter().map(|curve| curve.name.clone()).collect(),
        also,
        digests,
        metrics,
        first,
    });
    judged
}

fn is_of_evaluation(curve: &str) -> bool {
    curve.starts_with("eval")
}

/// Returns the phase of a curve's step: for an evaluation the one after the step, otherwise the shortest around it.
/// `None` if no phase has the time of the step.
fn phase_of(phases: &[Phase], curve: &str, step: u64) -> Option<String> {
    let of_rank_0 = || phases.iter().filter(|phase| phase.rank == 0);
    let end = |phase: &Phase| phase.stop_ns.unwrap_or(u64::MAX);
    let at = of_rank_0().find(|phase| phase.name == "step" && phase.index == step)?;
    let found = if is_of_evaluation(curve) {
        of_rank_0().filter(|phase| phase.name == "eval" && end(phase) > end(at)).min_by_key(|phase| phase.start_ns)
    } else {
        let holds = |phase: &&Phase| phase.name != "step" && phase.start_ns <= at.start_ns && end(at) <= end(phase);
        of_rank_0().filter(holds).min_by_key(|phase| end(phase) - phase.start_ns)
    };
    found.map(|phase| format!("{} {}", phase.name, phase.index))
}

impl CurveDifference {
    /// The largest distance of the two curves and the number of common steps, in words.
    fn extent(&self) -> String {
        let steps = count(self.common, "logged step");
        match self.max_distance {
            None => "they have no step in common".to_owned(),
            Some(apart) if apart.is_infinite() => format!("infinitely far apart, over {steps}"),
            Some(0.0) => format!("equal over {steps}"),
            Some(apart) => format!("at most {apart:.1e} apart over {steps}"),
        }
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<f64>| value.map_or("no value".to_owned(), |value| format!("{value:?}"));
        match &self.first {
            Some(first) => {
                write!(f, "`{}` first differs at step {}", first.name, first.first_step.unwrap_or_default())?;
                if let Some(phase) = &self.phase {
                    write!(f, ", in {phase}")?;
                }
                let (a, b) = (number(first.values.0), number(first.values.1));
                write!(f, ": the original has {a}, the rerun {b} ({})", first.extent())?;
            }
            None if self.has_curves => write!(f, "all recorded curves are identical")?,
            None => {}
        }
        let mut is_first = self.first.is_none() && !self.has_curves;
        let others = |names: &mut dyn Iterator<Item = &str>| {
            names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        let first = self.first.as_ref().map(|first| first.name.as_str());
        let also = others(&mut self.also.iter().map(String::as_str));
        let is_later = |name: &&str| Some(*name) != first && self.also.iter().all(|also| also != name);
        let curves = others(&mut self.curves.iter().map(String::as_str).filter(is_later));
        let digests = others(&mut self.digests.iter().map(String::as_str));
        let metrics = others(&mut self.metrics.iter().map(String::as_str));
        for (what, names) in [
            ("also", also),
            ("later", curves),
            ("different digests of", digests),
            ("different final values of", metrics),
        ] {
            if !names.is_empty() {
                let between = if std::mem::take(&mut is_first) { "" } else { "; " };
                write!(f, "{between}{what} {names}")?;
            }
        }
        Ok(())
    }
}

/// Pure numbers that describe the host or the request and not the result; a rerun need not reproduce them.
const NOT_COMPUTED: [&str; 3] = ["matching_share", "inference_batch_size", "bubble_fraction"];

/// The computed metrics: pure numbers that are not stated to be measured.
fn computed(attempt: &Attempt) -> impl Iterator<Item = (&String, f64)> {
    attempt.metrics.iter().filter_map(|(name, metric)| {
        // An older record has known metrics in the units that the program stated.
        let metric = standard(name, metric);
        let is_outcome = attempt.metric_kind(name) == MetricKind::Outcome;
        let is_computed = metric.unit.is_empty() && is_outcome && !NOT_COMPUTED.contains(&name.as_str());
        Some((name, metric.value.filter(|_| is_computed)?))
    })
}

/// The number of metrics that a rerun has to reproduce bit by bit; 0 for the built-in trainer, whose metrics follow from its curves.
pub fn compared_metrics(original: &Sealed) -> usize {
    let is_compared = Class::of(&original.run, &original.attempt) == Class::Unknown;
    if is_compared { computed(&original.attempt).count() } else { 0 }
}

/// The computed metrics that differ in their bits.
fn metrics(a: &Attempt, b: &Attempt) -> Vec<String> {
    let bits = |attempt: &Attempt| -> BTreeMap<String, u64> {
        computed(attempt).map(|(name, value)| (name.clone(), value.to_bits())).collect()
    };
    let (a, b) = (bits(a), bits(b));
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names.into_iter().filter(|name| a.get(*name) != b.get(*name)).cloned().collect()
}

/// Tests each computed metric over the repetitions of the original and the reruns.
fn test(original: &Sealed, earlier: &[Attempt], reruns: &[&Sealed], margin: Margin) -> Vec<Tested> {
    computed(&original.attempt)
        .map(|(name, value)| {
            let of = |attempt: &Attempt| standard(name, attempt.metrics.get(name)?).value;
            let mut before: Vec<f64> = earlier.iter().filter_map(of).collect();
            if before.is_empty() {
                before.push(value);
            }
            let after: Vec<f64> = reruns.iter().filter_map(|rerun| of(&rerun.attempt)).collect();
            let mean = |values: &[f64]| Summary::of(values).map_or(f64::NAN, |summary| summary.mean);
            let means = (mean(&before), mean(&after));
            let margin = match margin {
                Margin::Share(share) => share * means.0.abs(),
                Margin::Absolute(margin) => margin,
            };
            // If a rerun lacks the metric, the reruns are not repetitions of it.
            let complete = after.len() == reruns.len();
            let summaries = Summary::of(&before).zip(Summary::of(&after)).filter(|_| complete);
            // Bitwise equal values are within any margin, also if the mean is 0, and if a single repetition has no known scatter.
            let first = value.to_bits();
            let same = value.is_finite() && before.iter().chain(&after).all(|value| value.to_bits() == first);
            let p = summaries.and_then(|(a, b)| if same { Some(0.0) } else { tost(&a, &b, margin) });
            Tested { metric: name.clone(), n: (before.len(), after.len()), means, margin, p }
        })
        .collect()
}

/// Prefixes of facts that describe an attempt's environment.
const SURROUNDINGS: [&str; 12] = [
    "host.",
    "cpu.",
    "memory.",
    "gpu.",
    "container.",
    "git.",
    "ledger.",
    "clock_source",
    "library.",
    "limit.",
    "numa.",
    "program.read.",
];

/// Facts that are recorded only if there is a limit or a container.
const LIMITS: [&str; 3] = ["cpu.quota_cores", "memory.limit_bytes", "container.kind"];

/// Returns the changes of the environment that are not part of the identity: kernel, memory, versions, environment variables.
pub fn environment_changes(recorded: &Table, here: &Table) -> Vec<FieldDifference> {
    // Environment variables have upper-case names. Those of a job differ each time.
    let of_host = |name: &str| name.strip_prefix("host.env.").map(str::to_owned);
    let variable = |name: &str| {
        let name = of_host(name).unwrap_or_else(|| name.to_owned());
        name.starts_with(|first: char| first.is_ascii_uppercase()) && !name.starts_with("SLURM_") && name != "HOSTNAME"
    };
    let told = |name: &str| {
        variable(name) || of_host(name).is_none() && SURROUNDINGS.iter().any(|kind| name.starts_with(kind))
    };
    let of = |facts: &Table| -> Value {
        let facts = facts.iter().filter(|(name, _)| told(name)).map(|(name, value)| (name.clone(), value.clone()));
        Value::Table(facts.collect())
    };
    let mut changes = fields(&of(recorded), &of(here), "");
    // A fact that is missing on one side was not recorded there. A missing variable is not set.
    let is_told = |field: &str| variable(field) || LIMITS.contains(&field);
    // The memory of a virtual machine may change.
    let is_memory = |field: &str| field.starts_with("numa.") && field.ends_with(".memory_bytes");
    changes.retain(|change| {
        is_told(&change.field) || change.a.is_some() && change.b.is_some() && !is_memory(&change.field)
    });
    changes
}

#[cfg(test)]
mod tests;
