//! What reruns have shown of a run: identical, equivalent, drifted or failed.
//!
//! Knows sealed attempts alone: the same records always get the same verdict.

use super::comparison::{SIGNIFICANCE, Summary, tost};
use super::difference::{CurveDifference, FieldDifference, curves, digests, fields, is_computed, why};
use super::units::standard;
use crate::record::{Attempt, MetricKind, Part, Phase, Run, Sealed, Series, Table, Value, count};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// How far a rerun came, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// Every recorded curve has the same bits at every step, and every digest is the same.
    Identical,
    /// They part, but by no more than what was allowed.
    Equivalent,
    /// They part.
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

/// What a record promises of its own repetition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Class {
    /// The same bits, on the same device by the same program.
    Bits,
    /// The same up to rounding: which kernel computes a product is chosen by trying, and each rounds in its own order.
    Rounding {
        /// Half the distance of 1 to the next larger number of the arithmetic's format.
        unit: f64,
    },
    /// Nothing: another program computes as it likes.
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
        // What the worker says counts more than what was asked for: it knows whether products are rounded to TF32.
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

    /// By what share two values of a curve may differ: half of the digits of the format, which is the square root of its unit. 0 where
    /// nothing is allowed.
    pub fn tolerance(self) -> f64 {
        match self {
            Self::Rounding { unit } => unit.sqrt(),
            Self::Bits | Self::Unknown => 0.0,
        }
    }

    /// Whether two curves differ by no more than that, plus one unit of the curve's largest value: where a loss comes close to 0, its error does not.
    fn allows(self, a: &Series, b: &Series) -> bool {
        let Self::Rounding { unit } = self else { return false };
        let largest = a.values.iter().filter(|value| value.is_finite()).fold(0f64, |most, value| most.max(value.abs()));
        let near = |(a, b): (&f64, &f64)| {
            // Of an infinity every share is infinite.
            let finite = a.is_finite() && b.is_finite();
            a.to_bits() == b.to_bits()
                || finite && (a - b).abs() <= self.tolerance() * a.abs().max(b.abs()) + unit * largest
        };
        a.positions == b.positions && a.values.iter().zip(&b.values).all(near)
    }
}

/// How far apart two means may lie and still count as equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Margin {
    /// A share of the original's mean.
    Share(f64),
    /// In the metric's unit.
    Absolute(f64),
}

/// A text that is no margin.
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

/// Where a rerun parts from what it repeats.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Divergence {
    /// The curve that parts first, with the step; none where only digests or metrics differ.
    pub first: Option<CurveDifference>,
    /// Whether there were curves to compare.
    pub has_curves: bool,
    /// The phase that the step belongs to, with its number: `epoch 2`.
    pub phase: Option<String>,
    /// Every curve that parts.
    pub curves: Vec<String>,
    /// Those that part at the same step as the first.
    pub also: Vec<String>,
    /// Every digest that differs.
    pub digests: Vec<String>,
    /// Every metric that an external program stated and that differs.
    pub metrics: Vec<String>,
}

/// One rerun beside the original.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// How far it came.
    pub grade: Grade,
    /// Where it parts; none if it is identical or failed.
    pub divergence: Option<Divergence>,
    /// Whether all curves stay within what the original's class allows, though bits differ.
    pub is_within_class: bool,
    /// Why it failed.
    pub failure: Option<String>,
    /// The parts of the identity that differ; none where it is one run.
    pub parts: Vec<Part>,
}

/// A metric over repetitions of both.
#[derive(Clone, Debug, PartialEq)]
pub struct Tested {
    /// The metric.
    pub metric: String,
    /// How many repetitions there are of the original and of the rerun.
    pub n: (usize, usize),
    /// Their means.
    pub means: (f64, f64),
    /// How far apart they may be, in the metric's unit.
    pub margin: f64,
    /// The probability that chance alone brings them this close if they are that far apart; none where it cannot be said.
    pub p: Option<f64>,
}

impl Tested {
    fn is_equivalent(&self) -> bool {
        self.p.is_some_and(|p| p < SIGNIFICANCE)
    }
}

/// What reruns have shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// How far they came together.
    pub grade: Grade,
    /// What differs first, or by what it is allowed; empty if nothing differs.
    pub detail: String,
    /// Each rerun, in their order.
    pub reruns: Vec<Judged>,
    /// The tests of metrics, if a margin was stated.
    pub tested: Vec<Tested>,
    /// What the original promises of its repetition.
    pub class: Class,
}

/// Judges reruns against the attempt that they repeat. `earlier` are all attempts of the original run, the original among them, that count.
///
/// One that failed makes the verdict `failed`. Else, if all have the same bits, they are identical. Else they are equivalent if all that differ stay within the
/// class of the original, or if a margin is stated and all metrics are within it by [`tost`]. Else they have drifted.
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
    /// What is told of it, and of the run that it was: one that was executed though it is another run has to say so, whatever it shows.
    fn told_with_parts(&self, text: String) -> String {
        if self.parts.is_empty() {
            return text;
        }
        let names: Vec<String> = self.parts.iter().map(|part| format!("`{part}`")).collect();
        let parts = format!("another run, by {}", names.join(", "));
        if text.is_empty() { parts } else { format!("{text}; {parts}") }
    }
}

impl Verdict {
    /// What is to be told of one of the reruns; empty if nothing differs.
    pub fn detail_of(&self, judged: &Judged) -> String {
        let told = match judged.grade {
            Grade::Identical => String::new(),
            Grade::Failed => judged.failure.clone().unwrap_or_default(),
            Grade::Drifted | Grade::Equivalent => {
                let apart = judged.divergence.as_ref().map(Divergence::to_string).unwrap_or_default();
                if judged.grade == self.grade && self.grade == Grade::Equivalent {
                    // What was allowed is told with the parts.
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
    // Other data are no matter of rounding.
    judged.is_within_class = digests.iter().all(|name| name != "data")
        && class.tolerance() > 0.0
        && parted.iter().all(|curve| match (series(original, &curve.name), series(rerun, &curve.name)) {
            (Some(a), Some(b)) => class.allows(&a, &b),
            _ => false,
        });
    // At one step an evaluation comes after the training that it evaluates, and parts because of it.
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

/// The phase that a curve's step belongs to: of an evaluation the one that follows the step, else the shortest that holds it. None where no phase says when the
/// step was.
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
    /// How far the two are apart, and over how many steps, in words.
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
                write!(f, "`{}` parts at step {}", first.name, first.first_step.unwrap_or_default())?;
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
        for (what, names) in
            [("also", also), ("later", curves), ("other digests of", digests), ("other final values of", metrics)]
        {
            if !names.is_empty() {
                let between = if std::mem::take(&mut is_first) { "" } else { "; " };
                write!(f, "{between}{what} {names}")?;
            }
        }
        Ok(())
    }
}

/// What is told of the host's doing beside what was computed; a rerun need not meet it.
const NOT_COMPUTED: [&str; 3] = ["matching_share", "inference_batch_size", "bubble_fraction"];

/// Metrics that say what was computed: pure numbers that are not stated to be measured.
fn computed(attempt: &Attempt) -> impl Iterator<Item = (&String, f64)> {
    attempt.metrics.iter().filter_map(|(name, metric)| {
        // An older record has a known metric in whatever unit its program stated.
        let metric = standard(name, metric);
        let is_outcome = attempt.metric_kind(name) == MetricKind::Outcome;
        let is_computed = metric.unit.is_empty() && is_outcome && !NOT_COMPUTED.contains(&name.as_str());
        Some((name, metric.value.filter(|_| is_computed)?))
    })
}

/// How many metrics are held against a rerun's, bit by bit: those of the built-in trainer follow from its curves.
pub fn compared_metrics(original: &Sealed) -> usize {
    let is_compared = Class::of(&original.run, &original.attempt) == Class::Unknown;
    if is_compared { computed(&original.attempt).count() } else { 0 }
}

/// The metrics of what was computed that are not the same bits. Those of the built-in trainer follow from its curves.
fn metrics(a: &Attempt, b: &Attempt) -> Vec<String> {
    let bits = |attempt: &Attempt| -> BTreeMap<String, u64> {
        computed(attempt).map(|(name, value)| (name.clone(), value.to_bits())).collect()
    };
    let (a, b) = (bits(a), bits(b));
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names.into_iter().filter(|name| a.get(*name) != b.get(*name)).cloned().collect()
}

/// Tests each metric that says what was computed, which is a pure number, over the repetitions of the original and the reruns.
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
            // A rerun that lacks the metric is no repetition of it.
            let complete = after.len() == reruns.len();
            let summaries = Summary::of(&before).zip(Summary::of(&after)).filter(|_| complete);
            // What is the same bits each time is within any margin: also of a mean of 0, and where one repetition says nothing of scatter.
            let first = value.to_bits();
            let same = value.is_finite() && before.iter().chain(&after).all(|value| value.to_bits() == first);
            let p = summaries.and_then(|(a, b)| if same { Some(0.0) } else { tost(&a, &b, margin) });
            Tested { metric: name.clone(), n: (before.len(), after.len()), means, margin, p }
        })
        .collect()
}

/// Facts that say what surrounded an attempt, and not what became of it.
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

/// Facts that are recorded only where there is something to tell: a limit that is absent is none.
const LIMITS: [&str; 3] = ["cpu.quota_cores", "memory.limit_bytes", "container.kind"];

/// What has changed of the surroundings, of what enters no identity: kernel, memory, versions, environment variables.
pub fn environment_changes(recorded: &Table, here: &Table) -> Vec<FieldDifference> {
    // Variables have upper-case names; a job's own are others each time.
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
    // What is absent on one side was not asked for there; a variable that is absent is not set.
    let is_told = |field: &str| variable(field) || LIMITS.contains(&field);
    // The memory of a virtual machine grows and shrinks.
    let is_memory = |field: &str| field.starts_with("numa.") && field.ends_with(".memory_bytes");
    changes.retain(|change| {
        is_told(&change.field) || change.a.is_some() && change.b.is_some() && !is_memory(&change.field)
    });
    changes
}

#[cfg(test)]
mod tests;
