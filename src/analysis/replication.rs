//! The mean of a metric over independent units, and its uncertainty for another, independent measurement.
//!
//! Knows the seed, computation, machine and round of each value. Must not know what the values measure.

use super::comparison::Summary;
use super::distribution::reach;
use super::statistic::number;
use crate::record::{self, MetricKind, Replicate, execution_values, unit_values};
use std::collections::{BTreeMap, BTreeSet};

/// The fewest machines whose variance is estimated by a mixed model. For fewer, the means of machines are used directly.
const MIXED_FROM: usize = 5;

/// The independent units of a sample, and the estimator of the variance of their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleModel {
    /// One unit: no interval.
    Single,
    /// Means of seeds, Student's t.
    Seeds,
    /// Different executions of one seed, Student's t. The interval is only for repeats of that seed.
    Executions,
    /// Attempts on one machine, or on machines that the records do not name, Student's t.
    Attempts,
    /// Attempts in rounds of sweeps, some of which have several: a cluster-robust variance with rounds as clusters, Student's t.
    Rounds,
    /// Means of machines, Student's t.
    Clusters,
    /// Machines as a random effect, by restricted maximum likelihood, with Satterthwaite's degrees of freedom.
    Mixed,
}

impl SampleModel {
    /// The word in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Seeds => "seeds",
            Self::Executions => "executions",
            Self::Attempts => "attempts",
            Self::Rounds => "rounds",
            Self::Clusters => "clusters",
            Self::Mixed => "mixed",
        }
    }
}

/// A mean over independent units.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Whether the metric is an outcome of the computation or a measurement.
    pub kind: MetricKind,
    /// The units and the estimator of the variance.
    pub model: SampleModel,
    /// The mean of the units with equal weights; for rounds, the mean of their attempts.
    pub mean: f64,
    /// The values of the units; for rounds, their means.
    pub units: Vec<f64>,
    /// The standard error of the mean; `None` for a single unit.
    pub standard_error: Option<f64>,
    /// Its degrees of freedom.
    pub degrees: f64,
    /// The number of attempts.
    pub attempts: usize,
    /// The number of seeds; 0 if no record states one.
    pub seeds: usize,
    /// The number of machines; 0 if a record does not name its machine.
    pub machines: usize,
    /// The number of rounds, if several attempts of one round are on one machine; otherwise 0. An attempt without a
    /// round counts as a round.
    pub rounds: usize,
}

impl Estimate {
    /// Estimates the mean; `None` without values. `rounds` has the round of each value, in the same order.
    pub fn of(kind: MetricKind, values: &[(Replicate, f64)], rounds: &[Option<u64>]) -> Option<Self> {
        let different = |of: &dyn Fn(&Replicate) -> u64| values.iter().map(|(one, _)| of(one)).collect::<BTreeSet<_>>();
        let (seeds, machines) = (different(&|one| one.seed).len(), different(&|one| one.machine));
        let several = machines.len() > 1 && !machines.contains(&0);
        let is_seeded = values.iter().any(|(one, _)| one.is_seeded());
        let (units, model) = match kind {
            MetricKind::Outcome if seeds > 1 && !is_seeded => (unit_values(kind, values), SampleModel::Attempts),
            MetricKind::Outcome if seeds > 1 => (unit_values(kind, values), SampleModel::Seeds),
            MetricKind::Outcome => (execution_values(values), SampleModel::Executions),
            MetricKind::Measured if several => (unit_values(kind, values), SampleModel::Clusters),
            MetricKind::Measured => (unit_values(kind, values), SampleModel::Attempts),
        };
        let summary = Summary::of(&units)?;
        let mut found = Self {
            kind,
            model: if units.len() > 1 { model } else { SampleModel::Single },
            mean: summary.mean,
            standard_error: summary.variance.map(|variance| (variance / number(units.len())).sqrt()),
            degrees: number(units.len()) - 1.0,
            attempts: values.len(),
            seeds: if is_seeded { seeds } else { 0 },
            machines: if machines.contains(&0) { 0 } else { machines.len() },
            rounds: 0,
            units,
        };
        if found.model == SampleModel::Attempts && kind == MetricKind::Measured {
            let rounds = by_round(values, rounds);
            found.rounds = if rounds.len() < values.len() { rounds.len() } else { 0 };
            if found.rounds > 1 {
                let (standard_error, degrees) = robust(&rounds);
                found.model = SampleModel::Rounds;
                (found.standard_error, found.degrees) = (Some(standard_error), degrees);
                found.units = rounds.iter().map(|round| record::mean(round)).collect();
                found.units.sort_by(f64::total_cmp);
            }
        }
        if found.model == SampleModel::Clusters
            && found.units.len() >= MIXED_FROM
            && let Some(Mixed { standard_error, degrees, .. }) = mixed(&by_machine(values))
        {
            found.model = SampleModel::Mixed;
            (found.standard_error, found.degrees) = (Some(standard_error), degrees);
        }
        Some(found)
    }

    /// Half the width of the mean's 95% interval; `None` for a single unit.
    pub fn half_width(&self) -> Option<f64> {
        Some(reach(self.degrees)? * self.standard_error?)
    }

    /// The smaller and the larger value if there are exactly two units. Their interval has one degree of freedom and is
    /// too wide to be useful.
    pub fn range(&self) -> Option<(f64, f64)> {
        match self.units.as_slice() {
            [a, b] => Some((a.min(*b), a.max(*b))),
            _ => None,
        }
    }

    /// The number of additional units that would narrow the interval to this share of the mean, if they scatter like
    /// the others. `None` if the interval is narrow enough, if the scatter is unknown, or if a thousand units or more would be needed.
    pub fn units_for(&self, share: f64) -> Option<usize> {
        let n = self.units.len();
        let deviation = Summary::of(&self.units)?.deviation().filter(|_| self.mean != 0.0)?;
        let is_enough = |n: usize| {
            reach(number(n) - 1.0).is_some_and(|reach| reach * deviation / number(n).sqrt() <= share * self.mean.abs())
        };
        if is_enough(n) { None } else { (n + 1..1000).find(|n| is_enough(*n)).map(|enough| enough - n) }
    }

    /// The limits of the interval, if it does not hold for any seed and any machine.
    pub fn covers(&self) -> Option<&'static str> {
        match self.model {
            SampleModel::Executions => Some("attempts of one seed only"),
            SampleModel::Attempts if self.rounds == 1 && self.machines == 1 => {
                Some("repeats in one round on one machine only")
            }
            SampleModel::Attempts if self.rounds == 1 => Some("repeats in one round only"),
            SampleModel::Attempts | SampleModel::Rounds if self.machines == 1 && self.kind == MetricKind::Measured => {
                Some("repeats on one machine only")
            }
            SampleModel::Attempts | SampleModel::Rounds
                if self.machines == 0 && self.kind == MetricKind::Measured && self.attempts > 1 =>
            {
                Some("repeats only: the records do not name the machines")
            }
            _ => None,
        }
    }
}

fn by_machine(values: &[(Replicate, f64)]) -> BTreeMap<u64, Vec<f64>> {
    let mut found: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    values.iter().for_each(|(one, value)| found.entry(one.machine).or_default().push(*value));
    found
}

/// The values of each round, in ascending order. A value without a round is a round by itself.
fn by_round(values: &[(Replicate, f64)], rounds: &[Option<u64>]) -> Vec<Vec<f64>> {
    let mut found: BTreeMap<(bool, u64), Vec<f64>> = BTreeMap::new();
    for (at, (_, value)) in values.iter().enumerate() {
        let round = rounds.get(at).copied().flatten();
        found.entry((round.is_some(), round.unwrap_or(at as u64))).or_default().push(*value);
    }
    found.values_mut().for_each(|round| round.sort_by(f64::total_cmp));
    found.into_values().collect()
}

/// The standard error of the mean of all values of two or more clusters, and its degrees of freedom.
///
/// It is the cluster-robust variance that is unbiased if values are independent, with Satterthwaite's degrees of
/// freedom of that case (Bell and McCaffrey, "Bias reduction in standard errors for linear regression with multi-stage
/// samples", Survey Methodology 28, 2002). For clusters of equal size it is the standard error of their means, with one
/// degree of freedom less than clusters.
fn robust(clusters: &[Vec<f64>]) -> (f64, f64) {
    let total: f64 = clusters.iter().map(|cluster| number(cluster.len())).sum();
    let mean = clusters.iter().flatten().sum::<f64>() / total;
    let (mut variance, mut squares, mut sum, mut sum_of_squares) = (0.0, 0.0, 0.0, 0.0);
    for cluster in clusters {
        let weight = number(cluster.len()) / total;
        let part = weight * weight / (1.0 - weight);
        variance += part * (record::mean(cluster) - mean).powi(2);
        squares += weight * weight;
        sum += part;
        sum_of_squares += part * part;
    }
    (variance.sqrt(), 1.0 / (squares + sum * sum - sum_of_squares))
}

/// A one-way random-effects model of clustered values.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mixed {
    /// The variance between clusters.
    between: f64,
    /// The variance within clusters.
    within: f64,
    /// The standard error of the unweighted mean of the clusters' means.
    standard_error: f64,
    /// Its degrees of freedom.
    degrees: f64,
}

/// Fits y = mean + cluster + residual by restricted maximum likelihood. Satterthwaite's degrees of freedom come from
/// the expected information of the two variances (Searle, Casella and McCulloch, "Variance Components", 1992, chapters
/// 3 and 6). `None` if no cluster has two values, or if none scatters.
fn mixed(clusters: &BTreeMap<u64, Vec<f64>>) -> Option<Mixed> {
    let groups: Vec<Summary> = clusters.values().filter_map(|values| Summary::of(values)).collect();
    let sizes: Vec<f64> = groups.iter().map(|group| number(group.n)).collect();
    let total: f64 = sizes.iter().sum();
    let inside: f64 = groups.iter().map(|group| group.variance.unwrap_or(0.0) * (number(group.n) - 1.0)).sum();
    let count = number(groups.len());
    if total <= count || inside <= 0.0 || groups.len() < 2 {
        return None;
    }
    // The likelihood with the variance within profiled out, as a function of the ratio of the variances.
    let profile = |ratio: f64| {
        let weights: Vec<f64> = sizes.iter().map(|n| n / (1.0 + n * ratio)).collect();
        let sum: f64 = weights.iter().sum();
        let mean = weights.iter().zip(&groups).map(|(weight, group)| weight * group.mean).sum::<f64>() / sum;
        let outside: f64 =
            weights.iter().zip(&groups).map(|(weight, group)| weight * (group.mean - mean).powi(2)).sum();
        let within = (inside + outside) / (total - 1.0);
        let penalty: f64 = sizes.iter().map(|n| (n * ratio).ln_1p()).sum();
        (((total - 1.0) * within.ln() + penalty + sum.ln()), within)
    };
    // On x / (1 - x), which reaches every ratio: first a grid, since there may be two minima, then a golden-section search.
    let ratio_at = |x: f64| x / (1.0 - x);
    let at = |x: f64| profile(ratio_at(x)).0;
    let grid = 200_u32;
    let x_of = |step: u32| f64::from(step) / f64::from(grid + 1);
    let best = (0..=grid).min_by(|a, b| at(x_of(*a)).total_cmp(&at(x_of(*b))))?;
    let (mut low, mut high) = (x_of(best.saturating_sub(1)), x_of(best + 1).min(1.0 - 1e-12));
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    for _ in 0..90 {
        let (left, right) = (high - golden * (high - low), low + golden * (high - low));
        if at(left) <= at(right) { high = right } else { low = left }
    }
    let middle = f64::midpoint(low, high);
    let x = if at(0.0) <= at(middle) { 0.0 } else { middle };
    let (_, within) = profile(ratio_at(x));
    let between = ratio_at(x) * within;
    // The expected information of both variances under restricted likelihood: traces over blocks of compound symmetry.
    let inverse: Vec<f64> = sizes.iter().map(|n| 1.0 / (within + n * between)).collect();
    let sum = |of: &dyn Fn(f64, f64) -> f64| sizes.iter().zip(&inverse).map(|(n, a)| of(*n, *a)).sum::<f64>();
    let whole = sum(&|n, a| n * a);
    let (one, other) = (sum(&|n, a| a * a * n * n), sum(&|n, a| a * a * n));
    let trace = |plain: f64, cube: f64, product: f64| plain - 2.0 * cube / whole + product / (whole * whole);
    let both = trace(one, sum(&|n, a| a.powi(3) * n.powi(3)), one * one) / 2.0;
    let cross = trace(other, sum(&|n, a| a.powi(3) * n * n), one * other) / 2.0;
    let residual = sum(&|n, a| (n - 1.0) / (within * within) + a * a);
    let own = trace(residual, sum(&|n, a| a.powi(3) * n), other * other) / 2.0;
    let determinant = both * own - cross * cross;
    // The unweighted mean of the clusters' means: var = between / k + within * sum(1 / n) / k^2.
    let gradient = (1.0 / count, sizes.iter().map(|n| 1.0 / n).sum::<f64>() / (count * count));
    let variance = gradient.0 * between + gradient.1 * within;
    let spread =
        (gradient.0.powi(2) * own - 2.0 * gradient.0 * gradient.1 * cross + gradient.1.powi(2) * both) / determinant;
    let degrees = 2.0 * variance * variance / spread;
    (degrees.is_finite() && degrees > 0.0).then(|| Mixed { between, within, standard_error: variance.sqrt(), degrees })
}

#[cfg(test)]
mod tests;
