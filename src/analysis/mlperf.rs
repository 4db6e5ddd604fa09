//! The power measurement rules of MLPerf Training, rule by rule, against recorded attempts.
//!
//! The rules are those of <https://github.com/mlcommons/training_policies>, `power_measurement.adoc`, which has no
//! version number and is identified by its commit. A rule without evidence in the record fails, with the missing
//! evidence as the reason.

use super::hardware::gpus_of;
use super::statistic::{number, seconds};
use crate::record::{Quantity, Sealed, Series, Source, Value, count};
use std::collections::BTreeSet;

/// The text of the rules that is applied.
pub const MLPERF_POWER_RULES: &str =
    "MLPerf Training - Power Measurement Rules (mlcommons/training_policies, power_measurement.adoc, commit 2ddbe8a)";

/// The fewest samples that the rules require.
const SAMPLES: usize = 60;
/// The fewest runs of a result, which leaves out the fastest and the slowest.
const RUNS: usize = 3;
/// The rules require a sample in every second.
const SECOND_NS: u64 = 1_000_000_000;
/// The tolerance for samples that are due each second and come some milliseconds late.
const LATE_NS: u64 = 50_000_000;

/// Why no attempt measures at the power supplies.
const OF_BOARDS: &str =
    "power was read from the sensors of the boards (NVML); power supplies and power distribution units are not read";

/// The result of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The record shows that the attempts comply.
    Pass,
    /// The attempts do not comply, or the record does not show that they do.
    Fail,
    /// The rule does not apply to such attempts.
    NotApplicable,
}

impl Ruling {
    /// `pass`, `fail` or `not applicable`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::NotApplicable => "not applicable",
        }
    }
}

/// A rule and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The rule's heading in the text.
    pub rule: &'static str,
    /// Its result.
    pub ruling: Ruling,
    /// The evidence in the record.
    pub why: String,
}

/// The numbers of attempts of the same runs that are not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unchecked {
    /// Finished attempts.
    pub finished: usize,
    /// Unfinished attempts.
    pub unfinished: usize,
}

/// Applies the rules to finished attempts of one benchmark on one system.
pub fn mlperf_power(attempts: &[Sealed], unchecked: Unchecked) -> Vec<Rule> {
    let rule = |rule: &'static str, (ruling, why): (Ruling, String)| Rule { rule, ruling, why };
    vec![
        rule("Measure at Node Level", node(attempts)),
        rule("Measure All Nodes", all_nodes(attempts)),
        rule("Measure or Estimate Interconnects", interconnects(attempts)),
        rule("Measure at the PSUs", (Ruling::Fail, OF_BOARDS.to_owned())),
        rule("Measure all Runs", all_runs(attempts, unchecked)),
        rule("Report 1 Measurement per Second", each_second(attempts)),
        rule("Measure max(a run, 60 power samples)", enough(attempts)),
        rule("Target 5% Accuracy", accuracy()),
        rule("Scoring: sum of reading x duration", score(attempts)),
        rule("Scoring: Olympic mean of the runs", olympic(attempts)),
    ]
}

/// The timed portion: from the start of the first epoch to the end of the last, or the whole attempt without epochs.
fn timed(sealed: &Sealed) -> (u64, u64) {
    let epochs = || sealed.phases.iter().filter(|phase| phase.name == "epoch" && phase.rank == 0);
    let start = epochs().map(|phase| phase.start_ns).min();
    let stop = epochs().filter_map(|phase| phase.stop_ns).max();
    start.zip(stop).filter(|(start, stop)| start < stop).unwrap_or((0, sealed.attempt.wall_ns))
}

/// The power series of each GPU of an attempt.
fn powers(sealed: &Sealed) -> Vec<Option<&Series>> {
    let named = |name: String| sealed.series.iter().find(|series| series.name == name);
    let of = |rank: u32| {
        let source = Source::Gpu(rank);
        named(source.series(Quantity::PowerInstant)).or_else(|| named(source.series(Quantity::PowerAverage)))
    };
    (0..gpus_of(&sealed.run)).map(of).collect()
}

/// Returns the fault of the first attempt that has one, with the attempt's number from 1.
fn first_fault(attempts: &[Sealed], fault: impl Fn(&Sealed) -> Option<String>) -> Option<String> {
    let faults: Vec<(usize, String)> =
        (1..).zip(attempts).filter_map(|(place, sealed)| Some((place, fault(sealed)?))).collect();
    let (place, first) = faults.first()?;
    let more = if faults.len() > 1 { format!("; {} attempts have such a fault", faults.len()) } else { String::new() };
    Some(format!("attempt {place} of {}: {first}{more}", attempts.len()))
}

fn node(attempts: &[Sealed]) -> (Ruling, String) {
    let gpus = attempts.iter().all(|sealed| !powers(sealed).is_empty());
    let seen = if gpus { "the boards of the GPUs" } else { "at most the processor's packages" };
    (Ruling::Fail, format!("{seen} were measured; memory, mainboard, fans, drives and power supply were not"))
}

fn hosts(attempts: &[Sealed]) -> BTreeSet<&str> {
    attempts.iter().filter_map(|sealed| sealed.attempt.facts.get("host.name").and_then(Value::as_str)).collect()
}

fn all_nodes(attempts: &[Sealed]) -> (Ruling, String) {
    match hosts(attempts).len() {
        0 => (Ruling::Fail, "the records do not name their hosts".to_owned()),
        1 => (Ruling::Pass, "each run is one supervisor on one host, which was measured".to_owned()),
        hosts => (Ruling::Fail, format!("the attempts ran on {hosts} hosts, and a system is one")),
    }
}

fn interconnects(attempts: &[Sealed]) -> (Ruling, String) {
    if attempts.iter().all(|sealed| gpus_of(&sealed.run) <= 1) {
        return (Ruling::NotApplicable, "one GPU exchanges no weights with others".to_owned());
    }
    (
        Ruling::Fail,
        "the links between the GPUs are within the node; their power is neither measured nor estimated apart"
            .to_owned(),
    )
}

fn all_runs(attempts: &[Sealed], unchecked: Unchecked) -> (Ruling, String) {
    let fault = |sealed: &Sealed| {
        let powers = powers(sealed);
        let silent =
            powers.is_empty() || powers.iter().any(|series| series.is_none_or(|series| series.values.is_empty()));
        silent.then(|| "no power was read of its GPUs".to_owned())
    };
    if let Some(fault) = first_fault(attempts, fault) {
        return (Ruling::Fail, fault);
    }
    let left_out = match unchecked.unfinished {
        0 => String::new(),
        unfinished => format!("; {unfinished} of these runs' attempts did not finish and are left out"),
    };
    if unchecked.finished > 0 {
        let finished = count(unchecked.finished, "finished attempt");
        let text = format!("not among the checked ones: {finished} of these runs");
        return (Ruling::Fail, format!("{text}{left_out}"));
    }
    if attempts.len() < RUNS {
        let text = format!("{} of {RUNS} runs or more, of which a result is made", attempts.len());
        return (Ruling::Fail, format!("{text}{left_out}"));
    }
    (Ruling::Pass, format!("power was read in every attempt{left_out}"))
}

fn each_second(attempts: &[Sealed]) -> (Ruling, String) {
    let longest = |sealed: &Sealed| {
        let (start, stop) = timed(sealed);
        let gap = |series: &Series| {
            let within = series.positions.iter().copied().filter(|at| (start..=stop).contains(at));
            let edges: Vec<u64> = [start].into_iter().chain(within).chain([stop]).collect();
            edges.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or(u64::MAX)
        };
        let powers = powers(sealed);
        let gaps = powers.iter().map(|series| series.map_or(u64::MAX, gap));
        gaps.max().unwrap_or(u64::MAX)
    };
    let fault = |sealed: &Sealed| match longest(sealed) {
        u64::MAX => Some("no power was read of its GPUs".to_owned()),
        gap if gap > SECOND_NS + LATE_NS => Some(format!("{:.2} s of the timed portion have no sample", seconds(gap))),
        _ => None,
    };
    match first_fault(attempts, fault) {
        Some(fault) => (Ruling::Fail, fault),
        None => {
            let gap = attempts.iter().map(longest).max().unwrap_or(0);
            (Ruling::Pass, format!("the longest time without a sample was {:.3} s", seconds(gap)))
        }
    }
}

fn enough(attempts: &[Sealed]) -> (Ruling, String) {
    let fewest = |sealed: &Sealed| {
        let (start, stop) = timed(sealed);
        let count = |series: &Series| series.positions.iter().filter(|at| (start..=stop).contains(*at)).count();
        powers(sealed).iter().map(|series| series.map_or(0, count)).min().unwrap_or(0)
    };
    let fault = |sealed: &Sealed| {
        let (fewest, (start, stop)) = (fewest(sealed), timed(sealed));
        (fewest < SAMPLES).then(|| {
            format!(
                "{} in the {:.1} s of its timed portion, and {SAMPLES} are needed (train longer)",
                count(fewest, "sample"),
                seconds(stop - start)
            )
        })
    };
    match first_fault(attempts, fault) {
        Some(fault) => (Ruling::Fail, fault),
        None => {
            let fewest = attempts.iter().map(fewest).min().unwrap_or(0);
            (Ruling::Pass, format!("each has {fewest} samples or more, over the whole of its timed portion"))
        }
    }
}

fn accuracy() -> (Ruling, String) {
    (
        Ruling::Fail,
        "no meter of specified accuracy, and no comparison of the sensors with one, is in the records".to_owned(),
    )
}

/// The energy of all GPUs over the timed portion, in joules: the sum of each reading times the time since the one before.
fn joules(sealed: &Sealed) -> Option<f64> {
    let (start, stop) = timed(sealed);
    let powers = powers(sealed);
    if powers.is_empty() {
        return None;
    }
    let mut sum = 0.0;
    for series in powers {
        let series = series?;
        let mut before = start;
        for (at, watts) in series.positions.iter().zip(&series.values) {
            if *at >= start && before < stop && watts.is_finite() {
                sum += watts * seconds((*at).min(stop).saturating_sub(before));
                before = (*at).min(stop);
            }
        }
    }
    Some(sum)
}

fn score(attempts: &[Sealed]) -> (Ruling, String) {
    let all: Option<Vec<f64>> = attempts.iter().map(joules).collect();
    match all.filter(|all| !all.is_empty()) {
        Some(all) => {
            let listed: Vec<String> = all.iter().map(|joules| format!("{joules:.1}")).collect();
            (Ruling::Pass, format!("{} J by that sum, of the GPUs' boards alone", listed.join(", ")))
        }
        None => (Ruling::Fail, "an attempt has no samples of power to sum".to_owned()),
    }
}

fn olympic(attempts: &[Sealed]) -> (Ruling, String) {
    let of_run = |sealed: &Sealed| {
        let (start, stop) = timed(sealed);
        Some((stop.saturating_sub(start), joules(sealed)?))
    };
    let all: Option<Vec<(u64, f64)>> = attempts.iter().map(of_run).collect();
    match all.and_then(of_middle) {
        Some(mean) => {
            let kept = number(attempts.len().saturating_sub(2));
            (
                Ruling::Pass,
                format!(
                    "{mean:.1} J, the mean of {kept} without the fastest and the slowest; how many runs a benchmark needs is in the training rules"
                ),
            )
        }
        None => (
            Ruling::Fail,
            format!(
                "of {}: leaving out the fastest and the slowest takes {RUNS} or more (repeats = {RUNS})",
                count(attempts.len(), "attempt")
            ),
        ),
    }
}

/// The mean energy without the fastest and the slowest run; `None` for fewer than three.
fn of_middle(mut runs: Vec<(u64, f64)>) -> Option<f64> {
    runs.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
    match runs.as_slice() {
        [_, middle @ .., _] if !middle.is_empty() => {
            Some(middle.iter().map(|(_, joules)| joules).sum::<f64>() / number(middle.len()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_and_the_slowest_are_left_out_whatever_they_took() {
        let runs = vec![(30, 500.0), (10, 700.0), (20, 900.0), (25, 100.0)];
        assert_eq!(of_middle(runs), Some(500.0), "of 900 J and 100 J");
        assert_eq!(of_middle(vec![(1, 1.0), (2, 2.0)]), None);
    }
}
