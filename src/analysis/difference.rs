//! Differences between two runs, and between two of their attempts.

use super::compare::texts;
use super::contrast::{self, PhaseDifference, TelemetryDifference};
use super::lines::{ChangedLines, changed_lines};
use super::units::standard;
use crate::record::{
    self, Attempt, Axis, Digest, Metric, MetricKind, Part, Run, Sealed, Series, SourceText, Table, Value,
};
use std::collections::BTreeSet;

/// A field that differs between two tables.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldDifference {
    /// Its dotted name.
    pub field: String,
    /// The first one's value.
    pub a: Option<Value>,
    /// The second one's value.
    pub b: Option<Value>,
    /// The number of changed lines, if both values are digests of known texts.
    pub lines: Option<ChangedLines>,
}

/// A part of the identity that differs between two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct PartDifference {
    /// The part.
    pub part: Part,
    /// The fields in it that differ.
    pub fields: Vec<FieldDifference>,
}

/// Returns the parts in which two runs differ. Empty exactly if they are one run.
pub fn why(a: &Run, b: &Run) -> Vec<PartDifference> {
    Part::ALL
        .into_iter()
        .filter(|part| a.parts.digest(*part) != b.parts.digest(*part))
        .map(|part| PartDifference { part, fields: fields(&a.parts.value(part), &b.parts.value(part), part.name()) })
        .collect()
}

/// Returns the fields in which two values differ. A value that is not a table is one field of the given name.
pub(super) fn fields(a: &Value, b: &Value, name: &str) -> Vec<FieldDifference> {
    let flat = |value: &Value| match value {
        Value::Table(_) => value.flatten(),
        other => [(name.to_owned(), other.clone())].into(),
    };
    let (a, b) = (flat(a), flat(b));
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names
        .into_iter()
        .filter(|name| a.get(*name).map(Value::digest) != b.get(*name).map(Value::digest))
        .map(|name| FieldDifference {
            field: name.clone(),
            a: a.get(name).cloned(),
            b: b.get(name).cloned(),
            lines: None,
        })
        .collect()
}

/// Counts the changed lines of those program files that differ. `a` and `b` return the text of a file by its name and digest.
pub fn count_lines(
    parts: &mut [PartDifference],
    a: &dyn Fn(&str, Digest) -> Option<String>,
    b: &dyn Fn(&str, Digest) -> Option<String>,
) {
    let program = parts.iter_mut().filter(|part| part.part == Part::Program);
    for field in program.flat_map(|part| &mut part.fields) {
        let Some(name) = field.field.strip_prefix(PROGRAM_FILES) else { continue };
        let digest = |value: &Option<Value>| value.as_ref()?.as_str()?.parse().ok();
        let (Some(of_a), Some(of_b)) = (digest(&field.a), digest(&field.b)) else { continue };
        field.lines = a(name, of_a).zip(b(name, of_b)).and_then(|(a, b)| changed_lines(&a, &b));
    }
}

/// The prefix of those fields of the program part that are digests of files.
pub const PROGRAM_FILES: &str = "files.";
/// The prefix of those that are versions of packages.
pub const PROGRAM_PACKAGES: &str = "packages.";

/// A metric of two attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricDifference {
    /// Its name.
    pub name: String,
    /// Its unit: that of the first one, if it has the metric.
    pub unit: String,
    /// The second one's unit, if it cannot be converted to the first one's.
    pub unit_b: Option<String>,
    /// The first one's value.
    pub a: Option<f64>,
    /// The second one's value.
    pub b: Option<f64>,
}

impl MetricDifference {
    /// Whether only the first one has it.
    pub fn is_of_a(&self) -> bool {
        self.a.is_some() && self.b.is_none()
    }

    /// Whether only the second one has it.
    pub fn is_of_b(&self) -> bool {
        self.a.is_none() && self.b.is_some()
    }

    /// The second value minus the first; `None` if their units cannot be converted.
    pub fn absolute(&self) -> Option<f64> {
        if self.unit_b.is_some() {
            return None;
        }
        Some(self.b? - self.a?)
    }

    /// The difference relative to the first value; `None` if that is zero.
    pub fn relative(&self) -> Option<f64> {
        let a = self.a.filter(|a| *a != 0.0)?;
        Some(self.absolute()? / a.abs())
    }
}

/// A curve of two attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct CurveDifference {
    /// The series' name.
    pub name: String,
    /// The first step at which their bits differ; `None` if there is none.
    pub first_step: Option<u64>,
    /// The two values there; `None` for a curve that has no value at that step.
    pub values: (Option<f64>, Option<f64>),
    /// The largest distance over the common steps, infinite if only one of two values is a number; `None` without common steps.
    pub max_distance: Option<f64>,
    /// The number of common steps.
    pub common: usize,
}

impl CurveDifference {
    /// Compares two curves step by step, bit by bit.
    pub fn between(a: &Series, b: &Series) -> Self {
        let mut difference =
            Self { name: a.name.clone(), first_step: None, values: (None, None), max_distance: None, common: 0 };
        let mut a_points = a.positions.iter().copied().zip(a.values.iter().copied()).peekable();
        let mut b_points = b.positions.iter().copied().zip(b.values.iter().copied()).peekable();
        loop {
            let (a, b) = (a_points.peek().copied(), b_points.peek().copied());
            let step = match (a, b) {
                (Some((a, _)), Some((b, _))) => a.min(b),
                (Some((step, _)), None) | (None, Some((step, _))) => step,
                (None, None) => return difference,
            };
            let a = a_points.next_if(|(at, _)| *at == step).map(|(_, value)| value);
            let b = b_points.next_if(|(at, _)| *at == step).map(|(_, value)| value);
            if let (Some(a), Some(b)) = (a, b) {
                difference.common += 1;
                let apart = distance(a, b);
                difference.max_distance = Some(difference.max_distance.map_or(apart, |far| far.max(apart)));
            }
            if difference.first_step.is_none() && a.map(f64::to_bits) != b.map(f64::to_bits) {
                difference.first_step = Some(step);
                difference.values = (a, b);
            }
        }
    }
}

/// Returns the distance of two values. The distance between NaN and a number is infinite.
fn distance(a: f64, b: f64) -> f64 {
    match (a - b).abs() {
        apart if !apart.is_nan() => apart,
        _ if a == b || a.is_nan() && b.is_nan() => 0.0,
        _ => f64::INFINITY,
    }
}

/// All differences between two attempts, and the names of equal results.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Difference {
    /// The identity.
    pub parts: Vec<PartDifference>,
    /// The recorded environment, which is not hashed.
    pub environment: Vec<FieldDifference>,
    /// The metrics.
    pub metrics: Vec<MetricDifference>,
    /// The curves over steps.
    pub curves: Vec<CurveDifference>,
    /// The names of the digests that differ.
    pub digests: Vec<String>,
    /// The names of outcomes, of curves over steps and of digests that are bitwise equal in both. They are not differences.
    pub equal: Vec<String>,
    /// The phases.
    pub phases: Vec<PhaseDifference>,
    /// The hardware telemetry.
    pub telemetry: Vec<TelemetryDifference>,
    /// The reasons why numbers of the first and of the second one are invalid. They are not differences.
    pub taints: (Vec<String>, Vec<String>),
}

impl Difference {
    /// Whether the two do not differ.
    pub fn is_empty(&self) -> bool {
        *self == Self { taints: self.taints.clone(), equal: self.equal.clone(), ..Self::default() }
    }
}

/// Compares two attempts with their runs and curves.
pub fn diff(a: &Sealed, b: &Sealed) -> Difference {
    let names =
        |x: &Attempt, y: &Attempt| -> BTreeSet<String> { x.metrics.keys().chain(y.metrics.keys()).cloned().collect() };
    let bits = |metric: Option<f64>| metric.map(f64::to_bits);
    let metrics = names(&a.attempt, &b.attempt).into_iter().filter_map(|name| {
        let of = |attempt: &Attempt| Some(standard(&name, attempt.metrics.get(&name)?));
        let (x, mut y) = (of(&a.attempt), of(&b.attempt));
        let valued = |metric: &&Metric| metric.value.is_some();
        let first = x.as_ref().filter(valued).or(y.as_ref().filter(valued)).or(x.as_ref()).or(y.as_ref());
        let unit = first.map(|metric| metric.unit.clone()).unwrap_or_default();
        y = y.map(|metric| metric.in_unit(&unit).unwrap_or(metric));
        let unit_b = y.as_ref().map(|metric| metric.unit.clone()).filter(|other| *other != unit);
        let value = |metric: &Option<Metric>| metric.as_ref().and_then(|metric| metric.value);
        let (x, y) = (value(&x), value(&y));
        let unit_b = unit_b.filter(|_| x.is_some() && y.is_some());
        (bits(x) != bits(y) || unit_b.is_some()).then_some(MetricDifference { name, unit, unit_b, a: x, b: y })
    });
    let (curves, digests) = (curves(a, b), digests(&a.attempt, &b.attempt));
    let equal_digests = a.attempt.digests.keys().filter(|name| b.attempt.digests.contains_key(*name));
    let equal_digests = equal_digests.filter(|name| !digests.contains(name)).cloned();
    let equal = curves.iter().filter(|curve| curve.first_step.is_none() && curve.common > 0);
    let value = |attempt: &Attempt, name: &String| bits(attempt.metrics.get(name).and_then(|metric| metric.value));
    let outcomes = a.attempt.metrics.keys().filter(|name| {
        let is_outcome = a.attempt.metric_kind(name) == MetricKind::Outcome;
        let (x, y) = (value(&a.attempt, name), value(&b.attempt, name));
        is_outcome && x.is_some() && x == y && !curves.iter().any(|curve| curve.name == **name)
    });
    let equal: BTreeSet<String> =
        equal.map(|curve| curve.name.clone()).chain(equal_digests).chain(outcomes.cloned()).collect();
    Difference {
        equal: equal.into_iter().collect(),
        parts: why(&a.run, &b.run),
        environment: fields(&surroundings(&a.attempt), &surroundings(&b.attempt), ""),
        metrics: metrics.collect(),
        curves: curves.into_iter().filter(|curve| curve.first_step.is_some()).collect(),
        digests,
        phases: contrast::phases(a, b),
        telemetry: contrast::telemetry(a, b),
        taints: (texts(a.attempt.all_taints()), texts(b.attempt.all_taints())),
    }
}

/// Returns the names of the digests that differ between two attempts.
pub(super) fn digests(a: &Attempt, b: &Attempt) -> Vec<String> {
    let names: BTreeSet<&String> = a.digests.keys().chain(b.digests.keys()).collect();
    names.into_iter().filter(|name| a.digests.get(*name) != b.digests.get(*name)).cloned().collect()
}

/// Returns the settings and facts of an attempt that describe its environment. Facts about outputs and measurements are
/// left out, because they differ each time.
fn surroundings(attempt: &Attempt) -> Value {
    let measured = |name: &str| {
        // The digests of the program's files are a part of the identity.
        name.starts_with("output.")
            || [
                "energy",
                "utilization",
                "clock_sm",
                "telemetry.marks",
                "worker.all_reduce_waits_s",
                SourceText::PROGRAM,
            ]
            .contains(&name)
    };
    let facts = attempt.facts.iter().filter(|(name, _)| !measured(name));
    let table: Table = attempt.settings.iter().chain(facts).map(|(k, v)| (k.clone(), v.clone())).collect();
    table.into()
}

/// Compares the curves over steps of all computed series. Durations are measured and are left out.
pub(super) fn curves(a: &Sealed, b: &Sealed) -> Vec<CurveDifference> {
    let empty = |name: &str| Series::new(name, "", Axis::Step);
    let names: BTreeSet<&String> =
        a.series.iter().chain(&b.series).filter(|series| is_computed(series)).map(|series| &series.name).collect();
    let find = |sealed: &Sealed, name: &str| {
        sealed.series.iter().filter(|series| is_computed(series)).find(|series| series.name == name).cloned()
    };
    names
        .into_iter()
        .map(|name| {
            let (x, y) = (find(a, name), find(b, name));
            CurveDifference::between(&x.unwrap_or_else(|| empty(name)), &y.unwrap_or_else(|| empty(name)))
        })
        .collect()
}

/// Whether a series is a result of the computation, which a rerun has to reproduce.
pub fn is_computed(series: &Series) -> bool {
    record::is_computed(&series.name, &series.unit, series.axis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn series(points: &[(u64, f64)]) -> Series {
        let mut series = Series::new("loss", "", Axis::Step);
        points.iter().for_each(|(step, value)| series.push(*step, *value));
        series
    }

    #[test]
    fn the_first_differing_step_is_found() {
        let a = series(&[(1, 0.5), (2, 0.25), (3, f64::NAN)]);
        let b = series(&[(1, 0.5), (2, 0.75), (3, f64::NAN)]);
        let difference = CurveDifference::between(&a, &b);
        assert_eq!((difference.first_step, difference.values), (Some(2), (Some(0.25), Some(0.75))));
        assert_eq!((difference.max_distance, difference.common), (Some(0.5), 3));
    }

    #[test]
    fn a_curve_that_ends_early_differs_where_it_ends() {
        let difference = CurveDifference::between(&series(&[(1, 0.5), (2, 0.25)]), &series(&[(1, 0.5)]));
        assert_eq!((difference.first_step, difference.values), (Some(2), (Some(0.25), None)));
    }

    #[test]
    fn nan_is_infinitely_far_from_numbers_and_curves_without_common_steps_have_no_distance() {
        let apart = |a: &[(u64, f64)], b: &[(u64, f64)]| CurveDifference::between(&series(a), &series(b)).max_distance;
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        assert_eq!(apart(&[(1, 2.0), (3, 3.0)], &[(1, 2.0), (3, nan)]), Some(inf));
        assert_eq!(apart(&[(1, inf), (2, nan)], &[(1, inf), (2, nan)]), Some(0.0));
        assert_eq!(apart(&[(1, inf)], &[(1, -inf)]), Some(inf));
        assert_eq!(apart(&[(1, 2.0)], &[(2, 2.0)]), None);
    }

    proptest! {
        #[test]
        fn a_curve_does_not_differ_from_itself(values in prop::collection::vec(any::<f64>(), 0..20)) {
            let points: Vec<(u64, f64)> = (1..).zip(values).collect();
            let a = series(&points);
            prop_assert_eq!(CurveDifference::between(&a, &a).first_step, None);
        }

        #[test]
        fn differing_is_symmetric(a in prop::collection::vec(0..3u8, 0..9), b in prop::collection::vec(0..3u8, 0..9)) {
            let curve = |values: &[u8]| series(&(1..).zip(values.iter().map(|v| f64::from(*v))).collect::<Vec<_>>());
            let (a, b) = (curve(&a), curve(&b));
            let (ab, ba) = (CurveDifference::between(&a, &b), CurveDifference::between(&b, &a));
            prop_assert_eq!(ab.first_step, ba.first_step);
            prop_assert_eq!(ab.max_distance, ba.max_distance);
        }
    }
}
