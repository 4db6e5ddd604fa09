//! Compares measurements of two attempts: metrics, with tests of significance, phases and hardware telemetry.
//!
//! Knows two sealed attempts and the repetitions of each. `difference` compares inputs and results.

use super::best::{Contender, scale_named, scale_of};
use super::comparison::{SIGNIFICANCE, holm_possible};
use super::join::{PhaseRow, join};
use super::pairwise::{Comparison, Scale, compared};
use super::telemetry::{Curve, Kind, quantity};
use crate::record::{AttemptId, Axis, Direction, Sealed, Series};
use std::collections::{BTreeMap, BTreeSet};

/// Whether the repetitions of two configurations differ in a metric by more than chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Significance {
    /// The number of repetitions of each.
    pub n: (usize, usize),
    /// Their means.
    pub means: (f64, f64),
    /// The estimated difference and its test.
    pub comparison: Comparison,
    /// The p-value, corrected for the number of metrics that were tested.
    pub corrected: Option<f64>,
    /// The limits of the intervals, if they do not hold for any seed and any machine.
    pub covers: Option<&'static str>,
}

impl Significance {
    /// Whether the comparison uses only common seeds, machines or rounds, so that it is not that of the means.
    pub fn is_of_common_blocks(&self) -> bool {
        let of_means = Comparison::of_means(self.means.0, self.means.1, self.comparison.scale).estimate;
        let found = self.comparison.estimate;
        (of_means - found).abs() > 1e-9 * of_means.abs().max(found.abs())
    }

    /// Whether the difference is significant; `None` if it was not tested.
    pub fn is_significant(&self) -> Option<bool> {
        self.corrected.map(|p| p < SIGNIFICANCE)
    }
}

/// Compares the means of each metric over the repetitions of two configurations. Holm's method corrects all tests
/// together. A test that cannot be significant after the correction is not made. Proportional metrics, such as `energy`
/// and `energy_per_sample` of the same number of samples, count as one test. A metric is left out if either
/// configuration lacks a finite value of it, or if both have a single one.
///
/// Sensor uncertainty widens an interval unless the same sensors measured all repetitions of both configurations.
/// `described` returns a metric's unit and, if known, its better direction.
pub fn significance(
    repetitions: &BTreeMap<String, (Contender, Contender)>,
    described: &dyn Fn(&str) -> (String, Option<Direction>),
) -> BTreeMap<String, Significance> {
    let beside = |(name, (a, b)): (&String, &(Contender, Contender))| {
        let values = || a.measured.iter().chain(&b.measured).map(|one| one.value);
        if a.measured.len().max(b.measured.len()) < 2 || !values().all(f64::is_finite) {
            return None;
        }
        let (of_a, of_b) = (a.estimate()?, b.estimate()?);
        let (unit, direction) = described(name);
        let scale = scale_named(name, &unit).unwrap_or_else(|| scale_of(&[&of_a, &of_b], direction));
        let comparison = compared(a, b, scale)?;
        let (n, means) = ((a.measured.len(), b.measured.len()), (of_a.mean, of_b.mean));
        Some((
            name.clone(),
            Significance { n, means, comparison, corrected: None, covers: of_a.covers().or(of_b.covers()) },
        ))
    };
    let mut found: BTreeMap<String, Significance> = repetitions.iter().filter_map(beside).collect();
    // One test for each group of proportional metrics: that of the first metric. `asked` has the group of each tested metric.
    let mut questions: Vec<(&str, Scale, (f64, f64))> = Vec::new();
    let mut asked: Vec<usize> = Vec::new();
    for (name, Significance { comparison, .. }) in &found {
        let (Ok((p, _)), scale) = (comparison.test, comparison.scale) else { continue };
        let is_same = |known: &str| are_proportional(&repetitions[known], &repetitions[name], scale == Scale::Ratio);
        let known = questions.iter().position(|(known, of, _)| *of == scale && is_same(known));
        asked.push(known.unwrap_or(questions.len()));
        if known.is_none() {
            questions.push((name, scale, (p, comparison.least)));
        }
    }
    let tests: Vec<(f64, f64)> = questions.iter().map(|(.., test)| *test).collect();
    let corrected = holm_possible(&tests, |tests| tests);
    let mut asked = asked.into_iter();
    for one in found.values_mut() {
        one.corrected = one.comparison.test.is_ok().then(|| asked.next()).flatten().and_then(|at| corrected[at]);
        one.comparison = one.comparison.of_family(one.corrected);
    }
    found
}

/// Whether two metrics have the same values in all repetitions, up to rounding. With `scaled`, they may differ by a constant factor.
fn are_proportional(one: &(Contender, Contender), other: &(Contender, Contender), scaled: bool) -> bool {
    let all = |pair: &(Contender, Contender)| -> Vec<(bool, AttemptId, f64)> {
        let of = |side: &Contender, is_first: bool| {
            side.measured.iter().map(|one| (is_first, one.attempt, one.value)).collect::<Vec<_>>()
        };
        [of(&pair.0, true), of(&pair.1, false)].concat()
    };
    let (one, other) = (all(one), all(other));
    let factor = match (one.first(), other.first()) {
        (Some((.., a)), Some((.., b))) if scaled => b / a,
        _ => 1.0,
    };
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    let is_same = |(a, b): (&(bool, AttemptId, f64), &(bool, AttemptId, f64))| {
        (a.0, a.1) == (b.0, b.1) && near(factor * a.2, b.2)
    };
    one.len() == other.len() && one.iter().zip(&other).all(is_same)
}

/// Time and energy of all phases with one name, of one rank and on one GPU, in two attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseDifference {
    /// The phases' name.
    pub name: String,
    /// The rank that reported them.
    pub rank: u32,
    /// The rank of the GPU.
    pub gpu: Option<u32>,
    /// The number of phases; `None` if there is no such phase.
    pub count: (Option<usize>, Option<usize>),
    /// Their time, in seconds.
    pub time_s: (Option<f64>, Option<f64>),
    /// The device's energy in that time, in joules; `None` if it is unknown.
    pub energy_j: (Option<f64>, Option<f64>),
}

/// Compares the phases. Those with the same number, time and energy in both are left out.
pub fn phases(a: &Sealed, b: &Sealed) -> Vec<PhaseDifference> {
    let (a, b) = (join(a, &a.series), join(b, &b.series));
    let key = |row: &PhaseRow| (row.name.clone(), row.rank, row.gpu);
    let mut keys: Vec<_> = a.iter().map(key).collect();
    keys.extend(b.iter().map(key));
    let mut seen = BTreeSet::new();
    keys.retain(|key| seen.insert(key.clone()));
    let find =
        |rows: &'_ [PhaseRow], wanted: &(String, u32, Option<u32>)| -> (Option<usize>, Option<f64>, Option<f64>) {
            let row = rows.iter().find(|row| key(row) == *wanted);
            let energy = row.and_then(|row| row.energy.as_ref().ok()).map(|energy| energy.joules);
            (row.map(|row| row.count), row.map(|row| row.total_s), energy)
        };
    let rows = keys.into_iter().map(|wanted| {
        let (x, y) = (find(&a, &wanted), find(&b, &wanted));
        let (name, rank, gpu) = wanted;
        PhaseDifference { name, rank, gpu, count: (x.0, y.0), time_s: (x.1, y.1), energy_j: (x.2, y.2) }
    });
    rows.filter(|row| row.count.0 != row.count.1 || row.time_s.0 != row.time_s.1 || row.energy_j.0 != row.energy_j.1)
        .collect()
}

/// The means of one hardware quantity in two attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetryDifference {
    /// The series' name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The kind of quantity. For a counter, the means are rates per second; for flags, the share of time in which any was set.
    pub kind: Kind,
    /// The means over the time covered by readings; `None` if there are none.
    pub means: (Option<f64>, Option<f64>),
}

/// Compares the hardware telemetry. Quantities with the same mean in both are left out.
pub fn telemetry(a: &Sealed, b: &Sealed) -> Vec<TelemetryDifference> {
    let read = |series: &&Series| series.axis == Axis::TimeNs && quantity(&series.name).is_some();
    let mut units: BTreeMap<&str, &str> = BTreeMap::new();
    for series in a.series.iter().chain(&b.series).filter(read) {
        units.insert(&series.name, &series.unit);
    }
    let mean = |sealed: &Sealed, name: &str| {
        sealed.series.iter().find(|series| series.name == name).and_then(|series| Curve::of(series).mean())
    };
    let rows = units.into_iter().map(|(name, unit)| TelemetryDifference {
        name: name.to_owned(),
        unit: unit.to_owned(),
        kind: Kind::of(name),
        means: (mean(a, name), mean(b, name)),
    });
    rows.filter(|row| row.means.0.map(f64::to_bits) != row.means.1.map(f64::to_bits)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::best::Measured;
    use super::super::trials::tests::trial;
    use super::*;
    use crate::analysis::pairwise::Untested;
    use crate::record::{MetricKind, Part, Phase, Replicate};

    fn sealed(power: &[f64], epochs: u64) -> Sealed {
        let mut series = Series::new("gpu.0.power_instant", "W", Axis::TimeNs);
        (0u64..).zip(power).for_each(|(at, value)| series.push(at * 1_000_000_000, *value));
        let one = trial(&[], 1, &[]);
        let phase = |index| Phase {
            name: "epoch".to_owned(),
            index,
            rank: 0,
            start_ns: index * 1_000_000_000,
            stop_ns: Some((index + 1) * 1_000_000_000),
        };
        Sealed { run: one.run, attempt: one.attempt, series: vec![series], phases: (0..epochs).map(phase).collect() }
    }

    #[test]
    fn phases_and_telemetry_are_compared_and_equal_attempts_do_not_differ() {
        let (a, b) = (sealed(&[100.0, 200.0, 100.0], 2), sealed(&[100.0, 300.0, 100.0], 3));
        let found = phases(&a, &b);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].count, found[0].time_s), ((Some(2), Some(3)), (Some(2.0), Some(3.0))));
        let read = telemetry(&a, &b);
        // Trapezoids: (150 + 150) / 2 and (200 + 200) / 2.
        assert_eq!((read[0].name.as_str(), read[0].means), ("gpu.0.power_instant", (Some(150.0), Some(200.0))));
        assert_eq!((phases(&a, &a), telemetry(&a, &a)), (vec![], vec![]));
    }

    /// Repetitions with these values, measured by these sensors in turn. Each sensor has an uncertainty of a tenth.
    fn contender(values: &[f64], sensors: &[&str]) -> Contender {
        let one = trial(&[], 1, &[]);
        let measured = values.iter().zip(sensors.iter().cycle()).map(|(value, sensor)| Measured {
            attempt: one.id,
            run: one.run.id,
            configuration: one.run.parts.digest(Part::Config),
            started_unix_ms: 0,
            value: *value,
            half_width: (!sensor.is_empty()).then(|| value / 10.0),
            sensors: if sensor.is_empty() { BTreeSet::new() } else { [(*sensor).to_owned()].into() },
            replicate: Replicate { seed: 1, execution: 0, machine: 0 },
            round: None,
        });
        let measured = measured.collect();
        Contender { run: one.run.clone(), agreed: Vec::new(), kind: MetricKind::Measured, measured }
    }

    #[test]
    fn tests_that_cannot_be_significant_after_correction_are_not_made() {
        let pair = |at: usize| {
            let shift = [0.0, 3.0, 7.0][at];
            let of = |values: &[f64]| contender(&values.iter().map(|one| one + shift).collect::<Vec<f64>>(), &[""]);
            (of(&[1.0, 1.1, 1.2, 1.3, 1.4, 1.5]), of(&[9.0, 9.1 + shift]))
        };
        let judged = |metrics: usize| {
            let all = (0..metrics).map(|at| (format!("m{at}"), pair(at))).collect();
            significance(&all, &|_| ("u".to_owned(), Some(Direction::Minimize)))
        };
        // Six and two values have 28 exchanges: one test can give 1/28, two cannot give a p below 0.05.
        assert_eq!(judged(1)["m0"].is_significant(), Some(true));
        let both = judged(2);
        assert!(both.values().all(|one| one.is_significant().is_none()), "{both:?}");
        assert!(both.values().all(|one| one.comparison.test == Err(Untested::TooFew)), "{both:?}");
        assert_eq!(both["m0"].means, (1.25, 9.05));
    }

    #[test]
    fn sensors_are_those_of_all_repetitions() {
        let (x, y) = ([12.1, 12.9, 11.4, 12.6, 12.2], [13.4, 14.1, 13.0]);
        let p = |a: &[&str], b: &[&str]| {
            let all = BTreeMap::from([("energy".to_owned(), (contender(&x, a), contender(&y, b)))]);
            significance(&all, &|_| ("J".to_owned(), None))["energy"].comparison.test.unwrap().0
        };
        let unaware = p(&[""], &[""]);
        assert_eq!(p(&["A"], &["A"]), unaware);
        // Only the first attempts share a GPU, so sensor errors do not cancel.
        assert!(p(&["A", "B"], &["A", "A"]) > 2.0 * unaware);
        assert!(p(&["A"], &["B"]) > 2.0 * unaware);
    }

    #[test]
    fn proportional_metrics_are_one_test() {
        let (x, y) = ([12.1, 12.9, 11.4, 12.6, 12.2], [13.4, 14.1, 13.0]);
        let pair = |share: f64| {
            let of = |values: &[f64]| contender(&values.iter().map(|value| value * share).collect::<Vec<_>>(), &[""]);
            (of(&x), of(&y))
        };
        let other = (contender(&x, &[""]), contender(&[12.3, 12.5, 12.2], &[""]));
        let all = [("energy", pair(1.0)), ("energy_per_sample", pair(1e-3 / 3.0)), ("loss", other)];
        let all = all.map(|(name, pair)| (name.to_owned(), pair)).into();
        let found = significance(&all, &|_| ("J".to_owned(), Some(Direction::Minimize)));
        let p = found["energy"].comparison.test.unwrap().0;
        for name in ["energy", "energy_per_sample"] {
            let corrected = found[name].corrected.unwrap();
            assert!((corrected - 2.0 * p).abs() < 1e-9, "{name}: {corrected}, not {}", 2.0 * p);
        }
        assert!(found["loss"].corrected.unwrap() > 0.5);
        // Another order of the same values has the same estimate and p, but counts as another test.
        let mut turned = pair(1.0);
        turned.0.measured.swap(0, 1);
        let all = [("energy", pair(1.0)), ("other", turned)].map(|(name, pair)| (name.to_owned(), pair)).into();
        let found = significance(&all, &|_| ("J".to_owned(), Some(Direction::Minimize)));
        assert!((found["energy"].corrected.unwrap() - 2.0 * p).abs() < 1e-9);
    }

    #[test]
    fn metrics_are_tested_together_and_only_with_repetitions() {
        // NumPy and SciPy 1.17.1, as in `pairwise`.
        let p = 0.028252314666164752;
        let repetitions = BTreeMap::from([
            ("energy".to_owned(), (vec![12.1, 12.9, 11.4, 12.6, 12.2], vec![13.4, 14.1, 13.0])),
            ("loss".to_owned(), (vec![12.1, 12.9, 11.4, 12.6, 12.2], vec![12.3, 12.5, 12.2])),
            ("time".to_owned(), (vec![1.0, 2.0], vec![3.0])),
            ("alone".to_owned(), (vec![1.0], vec![3.0])),
            ("diverged".to_owned(), (vec![1.0, f64::NAN], vec![3.0, 4.0])),
            // Processor time counts ticks of 10 ms.
            ("cpu_time".to_owned(), (vec![0.13, 0.13, 0.13], vec![0.14, 0.14, 0.14])),
        ]);
        let repetitions: BTreeMap<String, (Contender, Contender)> = repetitions
            .into_iter()
            .map(|(name, (a, b)): (String, (Vec<f64>, Vec<f64>))| (name, (contender(&a, &[""]), contender(&b, &[""]))))
            .collect();
        let found = significance(&repetitions, &|_| Default::default());
        assert_eq!(found.keys().collect::<Vec<_>>(), ["cpu_time", "energy", "loss", "time"]);
        let untested = |name: &str| (found[name].comparison.test.err(), found[name].is_significant());
        assert_eq!(untested("cpu_time"), (Some(Untested::NoScatter), None));
        assert_eq!(untested("time"), (Some(Untested::TooFew), None));
        assert!((found["energy"].corrected.unwrap() - 2.0 * p).abs() < 1e-9);
        assert_eq!(found["energy"].is_significant(), Some(false));
        assert_eq!(found["energy"].n, (5, 3));
        let alone = BTreeMap::from([("energy".to_owned(), repetitions["energy"].clone())]);
        assert_eq!(significance(&alone, &|_| Default::default())["energy"].is_significant(), Some(true));
    }
}
