//! The probability that a configuration is ahead in new measurements of all of them: a parametric bootstrap over independent units.
//!
//! Knows estimates, and the attempts that they share. The random numbers have a fixed seed, so that results are reproducible.

use super::best::{Contender, Measured};
use super::comparison::Summary;
use super::pairwise::{
    Block, Differences, Judged, Scale, are_of_one_round, blocks_of, differences, has_same_sensors, in_common_round,
    independent, machines, sensors, within,
};
use super::replication::Estimate;
use super::statistic::{CONFIDENCE, number, split_mix};
use crate::record::{AttemptId, MetricKind};
use std::collections::{BTreeMap, BTreeSet};

/// The number of draws. A probability of 0.5 is accurate within 3 points.
const DRAWS: u32 = 1000;

/// Adds the indices of the configurations that are ahead, given the draws of all metrics of each configuration.
pub(super) type Judge<'a> = dyn FnMut(&[Vec<f64>], &mut Vec<usize>) + 'a;

/// The distribution from which the mean of one metric of one configuration is drawn.
struct Spread {
    mean: f64,
    standard_error: f64,
    degrees: f64,
    /// The weights of the random numbers of its configuration or of its group. Their squares sum to 1.
    parts: Vec<(usize, f64)>,
    /// Whether it uses the random numbers of its group.
    is_common: bool,
}

/// One metric of a configuration: its estimate, and the scale on which it is compared with others.
pub(super) struct Sampled<'a> {
    pub contender: &'a Contender,
    pub estimate: &'a Estimate,
    pub scale: Scale,
}

/// The result of [`probabilities`].
pub(super) struct Drawn {
    /// For each configuration the share of draws in which it was named.
    pub(super) shares: Vec<f64>,
    /// For each configuration and metric the value around which it was drawn, on the metric's scale.
    pub(super) centres: Vec<Vec<f64>>,
}

/// The configurations of one metric in groups: a test over common units links each to an earlier one of its group.
struct Groups {
    /// For each configuration its difference from the earlier one; 0 for the first of a group. `None` for a
    /// configuration outside a group.
    members: Vec<Option<Spread>>,
    /// For each configuration the index of the earlier one.
    beside: Vec<Option<usize>>,
    /// For each configuration the index of the one whose mean sets the level of its group.
    levels: Vec<usize>,
    /// The means of those that set a level. Configurations outside a group have none.
    means: BTreeMap<usize, Spread>,
}

/// Draws all metrics of all configurations many times, and counts how often `judge` names each. `None` if a metric has a
/// single unit.
///
/// Configurations form a group if a test over common units (seeds, rounds, machines, or one round) links each to an earlier
/// one.
///
/// - The difference of a member from the earlier one is drawn with the error of the test.
/// - The member with the narrowest interval sets the level of its group: Student's t around its mean, with its standard
///   error and degrees of freedom. Common effects of the members therefore do not separate them.
/// - Outside a group, the metrics of a configuration are correlated like their values over attempts.
/// - Sensor errors are added to each draw: one error for a group, and for all that the same sensors measured;
///   independent ones otherwise.
/// - Ratios are drawn as logarithms.
///
/// All configurations have the same metrics in the same order.
pub(super) fn probabilities(configurations: &[Vec<Sampled<'_>>], judge: &mut Judge<'_>) -> Option<Drawn> {
    let mut blocks: BTreeMap<(Block, u64), usize> = BTreeMap::new();
    let of_metrics = configurations.first().map_or(0, Vec::len);
    let of_metric =
        |metric: usize| configurations.iter().map(|metrics| metrics.get(metric)).collect::<Option<Vec<_>>>();
    let mut groups: Vec<Groups> =
        (0..of_metrics).map(|metric| Groups::of(&of_metric(metric)?, &mut blocks)).collect::<Option<_>>()?;
    let sensors = Sensors::of(configurations, &groups);
    let (mut spreads, mut of_own): (Vec<Vec<Spread>>, Vec<usize>) = Default::default();
    for (at, metrics) in configurations.iter().enumerate() {
        let mut known: BTreeMap<AttemptId, usize> = BTreeMap::new();
        let of_metric = |(sampled, groups): (&Sampled<'_>, &mut Groups)| {
            groups.members[at].take().or_else(|| spread(sampled, &mut known))
        };
        let mut own: Vec<Spread> = metrics.iter().zip(&mut groups).map(of_metric).collect::<Option<_>>()?;
        factor(own.iter_mut().filter(|spread| !spread.is_common).collect(), known.len());
        of_own.push(own.iter().filter(|spread| !spread.is_common).count());
        spreads.push(own);
    }
    let mut centres: Vec<Vec<f64>> = spreads.iter().map(|own| own.iter().map(|spread| spread.mean).collect()).collect();
    for (metric, groups) in groups.iter().enumerate() {
        groups.join(metric, &mut centres, |mean| mean.mean);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut counts = vec![0.0; configurations.len()];
    let (mut draw, mut named): (Vec<Vec<f64>>, Vec<usize>) = (Vec::new(), Vec::new());
    for _ in 0..DRAWS {
        draw.clear();
        let of_blocks: Vec<f64> = (0..blocks.len()).map(|_| random.normal()).collect();
        // Configurations of a group with the same metric and degrees of freedom share the denominator of t.
        let mut scales: BTreeMap<(usize, usize, u64), f64> = BTreeMap::new();
        for (at, (metrics, own)) in spreads.iter().zip(&of_own).enumerate() {
            let of_attempts: Vec<f64> = (0..*own).map(|_| random.normal()).collect();
            let of_metric = |(metric, spread): (usize, &Spread)| {
                if !spread.is_common {
                    return spread.drawn(&of_attempts, random.scale(spread.degrees));
                }
                let key = (metric, groups[metric].levels[at], spread.degrees.to_bits());
                let scale = *scales.entry(key).or_insert_with(|| random.scale(spread.degrees));
                spread.drawn(&of_blocks, scale)
            };
            draw.push(metrics.iter().enumerate().map(of_metric).collect());
        }
        for (metric, groups) in groups.iter().enumerate() {
            groups.join(metric, &mut draw, |mean| mean.drawn(&of_blocks, random.scale(mean.degrees)));
        }
        sensors.disturb(&mut draw, &mut random);
        named.clear();
        judge(&draw, &mut named);
        named.iter().for_each(|at| counts[*at] += 1.0);
    }
    let shares = counts.into_iter().map(|count: f64| count / f64::from(DRAWS)).collect();
    Some(Drawn { shares, centres })
}

/// The errors of each configuration's sensors.
struct Sensors {
    /// For each configuration and metric the number of its set of sensors, and their standard deviation on the metric's scale.
    off: Vec<Vec<(usize, f64)>>,
    /// The number of sets of sensors; 0 if all configurations have the same set, so that its error has no effect.
    count: usize,
}

impl Sensors {
    /// Sensor errors cancel in differences on common machines, so a whole group has those of the member that sets its level.
    fn of(configurations: &[Vec<Sampled<'_>>], groups: &[Groups]) -> Self {
        let mut numbers = BTreeMap::new();
        let mut count = 0;
        let mut off: Vec<Vec<(usize, f64)>> = Vec::new();
        // The largest relative uncertainty of each set of sensors and metric.
        let mut shares: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for metrics in configurations {
            let mut own = Vec::new();
            for (metric, Sampled { contender, estimate, scale }) in metrics.iter().enumerate() {
                let set = sensors(contender);
                // Sensors that a record does not name count as different for each configuration.
                let key = (set.iter().any(BTreeSet::is_empty).then_some(off.len()), set);
                let number = *numbers.entry(key).or_insert(count);
                count = count.max(number + 1);
                let half = contender.sensor_half_width(estimate.mean).unwrap_or(0.0);
                let share = shares.entry((number, metric)).or_default();
                *share = share.max(if half > 0.0 { half / estimate.mean.abs() } else { 0.0 });
                let unit = if *scale == Scale::Ratio { 1.0 } else { estimate.mean.abs() };
                own.push((number, unit / CONFIDENCE));
            }
            off.push(own);
        }
        for (metric, (number, deviation)) in off.iter_mut().flat_map(|own| own.iter_mut().enumerate()) {
            let share = shares.get(&(*number, metric)).copied().unwrap_or(0.0);
            *deviation *= share;
        }
        for (metric, groups) in groups.iter().enumerate() {
            for (at, level) in groups.levels.iter().enumerate() {
                off[at][metric] = off[*level][metric];
            }
        }
        let is_seen = count > 1 && off.iter().flatten().any(|(_, deviation)| *deviation > 0.0);
        Self { off, count: if is_seen { count } else { 0 } }
    }

    fn disturb(&self, draw: &mut [Vec<f64>], random: &mut Random) {
        if self.count == 0 {
            return;
        }
        let errors: Vec<f64> = (0..self.count).map(|_| random.normal()).collect();
        for (values, own) in draw.iter_mut().zip(&self.off) {
            for (value, (number, deviation)) in values.iter_mut().zip(own) {
                *value += deviation * errors[*number];
            }
        }
    }
}

impl Groups {
    /// Groups the configurations by one metric. Its blocks get numbers in `known`. `None` if a mean has no standard error.
    fn of(sampled: &[&Sampled<'_>], known: &mut BTreeMap<(Block, u64), usize>) -> Option<Self> {
        let blocks: Vec<(Block, BTreeMap<u64, f64>)> = sampled.iter().map(|one| blocks_of(one.contender)).collect();
        let mut numbered = |block: Block, id: u64| {
            let next = known.len();
            *known.entry((block, id)).or_insert(next)
        };
        let (mut members, mut beside, mut levels): (Vec<Option<Spread>>, Vec<Option<usize>>, Vec<usize>) =
            Default::default();
        for (at, one) in sampled.iter().enumerate() {
            let paired = |earlier: usize| {
                let first = sampled[earlier];
                let found = Pairing::of((first.contender, &blocks[earlier]), (one.contender, &blocks[at]), one.scale)?;
                Some((earlier, found))
            };
            let found = (0..at).find_map(paired);
            beside.push(found.as_ref().map(|(earlier, _)| *earlier));
            levels.push(found.as_ref().map_or(at, |(earlier, _)| levels[*earlier]));
            members.push(found.map(|(_, Pairing { shift, standard_error, degrees, by_block })| {
                // A member without blocks of its own has its own random number.
                let parts = match by_block {
                    Some((block, values)) => unit_parts(&values, |id| numbered(block, id)),
                    None => vec![(numbered(Block::Round, u64::MAX - at as u64), 1.0)],
                };
                Spread { mean: shift, standard_error, degrees, parts, is_common: true }
            }));
        }
        let mut means = BTreeMap::new();
        for first in beside.iter().flatten().map(|earlier| levels[*earlier]).collect::<BTreeSet<_>>() {
            let width = |at: &usize| {
                let Sampled { estimate, scale, .. } = sampled[*at];
                let unit = if *scale == Scale::Ratio { estimate.mean.abs() } else { 1.0 };
                estimate.half_width().map_or(f64::INFINITY, |half| half / unit)
            };
            let group = (0..levels.len()).filter(|at| levels[*at] == first);
            let level = group.min_by(|a, b| width(a).total_cmp(&width(b))).unwrap_or(first);
            members[first] =
                Some(Spread { mean: 0.0, standard_error: 0.0, degrees: 1.0, parts: Vec::new(), is_common: true });
            let Sampled { estimate, scale, .. } = sampled[level];
            let parts = unit_parts(&blocks[level].1, |id| numbered(blocks[level].0, id));
            let (mean, standard_error, degrees) = (estimate.mean, estimate.standard_error?, estimate.degrees);
            means.insert(level, Spread { mean, standard_error, degrees, parts, is_common: true }.stated(*scale));
            levels.iter_mut().filter(|own| **own == first).for_each(|own| *own = level);
        }
        Some(Self { members, beside, levels, means })
    }

    /// Replaces draws of differences by draws of means. `drawn` draws a mean.
    fn join(&self, metric: usize, draw: &mut [Vec<f64>], mut drawn: impl FnMut(&Spread) -> f64) {
        for (at, beside) in self.beside.iter().enumerate() {
            if let Some(beside) = beside {
                draw[at][metric] += draw[*beside][metric];
            }
        }
        for (level, mean) in &self.means {
            let offset = drawn(mean) - draw[*level][metric];
            for (own, values) in self.levels.iter().zip(&mut *draw) {
                values[metric] += if own == level { offset } else { 0.0 };
            }
        }
    }
}

/// The difference of a configuration from another one by a test over common units.
struct Pairing {
    /// The difference; for a ratio, its logarithm.
    shift: f64,
    standard_error: f64,
    degrees: f64,
    /// The differences within the blocks whose scatter is the error; `None` if the error is that of the attempts within
    /// blocks, or in one round.
    by_block: Option<(Block, BTreeMap<u64, f64>)>,
}

impl Pairing {
    /// Pairs two configurations by one metric, each with its [blocks](blocks_of). `None` if there are too few common
    /// blocks or too few attempts in them, or if sensor errors do not cancel there.
    fn of(
        (first, (block, of_first)): (&Contender, &(Block, BTreeMap<u64, f64>)),
        (other, (of_block, of_other)): (&Contender, &(Block, BTreeMap<u64, f64>)),
        scale: Scale,
    ) -> Option<Self> {
        let is_elsewhere = *block == Block::Round && machines(first).is_none_or(|own| machines(other) != Some(own));
        if block != of_block || is_elsewhere {
            return None;
        }
        let is_exact = [first, other].iter().all(|one| one.sensor_half_width(1.0).is_none_or(|half| half == 0.0));
        if let Some(Differences { shift, by_block }) = differences(of_first, of_other, scale, *block) {
            let is_common = |one: &Measured| *block != Block::Machine || by_block.contains_key(&one.replicate.machine);
            let is_same = is_exact || has_same_sensors(&first.with(is_common), &other.with(is_common));
            let differences: Vec<f64> = by_block.values().copied().collect();
            let variance = Summary::of(&differences)?.variance? / number(differences.len());
            let (standard_error, degrees) = (variance.sqrt(), number(differences.len()) - 1.0);
            let found = Self { shift, standard_error, degrees, by_block: Some((*block, by_block)) };
            return (is_same && shift.is_finite()).then_some(found);
        }
        let common = in_common_round(first, other);
        let (first, other) = common.as_ref().map_or((first, other), |(first, other)| (first, other));
        let of_round = || are_of_one_round(first, other).then(|| independent(first, other, scale)).flatten();
        let judged = within(first, other, scale).or_else(of_round).filter(|judged| judged.is_enough);
        let Judged { variance, degrees, shift, .. } = judged?;
        let is_same = is_exact || has_same_sensors(first, other);
        Some(Self { shift: shift?, standard_error: variance.sqrt(), degrees, by_block: None }).filter(|_| is_same)
    }
}

/// Returns each block's weight in the deviation of a mean over all of them.
fn unit_parts(by_block: &BTreeMap<u64, f64>, mut numbered: impl FnMut(u64) -> usize) -> Vec<(usize, f64)> {
    let middle = by_block.values().sum::<f64>() / number(by_block.len());
    let length = by_block.values().map(|value| (value - middle).powi(2)).sum::<f64>().sqrt();
    // If all values are equal, the first has the whole weight.
    let part =
        |at: usize, value: f64| if length > 0.0 { (value - middle) / length } else { f64::from(u8::from(at == 0)) };
    by_block.iter().enumerate().map(|(at, (id, value))| (numbered(*id), part(at, *value))).collect()
}

impl Spread {
    /// The same mean on a scale: for a ratio, its logarithm and its relative error.
    fn stated(self, scale: Scale) -> Self {
        match scale {
            Scale::Ratio => {
                Self { mean: self.mean.ln(), standard_error: self.standard_error / self.mean.abs(), ..self }
            }
            Scale::Points | Scale::Difference => self,
        }
    }

    fn drawn(&self, deviations: &[f64], scale: f64) -> f64 {
        let deviation: f64 = self.parts.iter().map(|(at, part)| part * deviations[*at]).sum();
        self.mean + self.standard_error * deviation / scale
    }
}

/// The distribution of the mean of a configuration outside a group.
fn spread(sampled: &Sampled<'_>, known: &mut BTreeMap<AttemptId, usize>) -> Option<Spread> {
    let Sampled { contender, estimate, scale } = sampled;
    let unit_of = |at: usize| {
        let one = &contender.measured[at];
        match estimate.kind {
            MetricKind::Outcome if estimate.seeds != 1 => one.replicate.seed,
            MetricKind::Outcome => one.replicate.execution,
            MetricKind::Measured if estimate.machines > 1 => one.replicate.machine,
            MetricKind::Measured if estimate.rounds > 1 => one.round.unwrap_or(at as u64),
            MetricKind::Measured => at as u64,
        }
    };
    let mut units: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    (0..contender.measured.len()).for_each(|at| units.entry(unit_of(at)).or_default().push(at));
    let mut parts = Vec::new();
    for of_unit in units.values() {
        let n = number(of_unit.len());
        let deviation = of_unit.iter().map(|at| contender.measured[*at].value).sum::<f64>() / n - estimate.mean;
        for at in of_unit {
            let next = known.len();
            let place = *known.entry(contender.measured[*at].attempt).or_insert(next);
            parts.push((place, deviation / n.sqrt()));
        }
    }
    let length = parts.iter().map(|(_, part)| part * part).sum::<f64>().sqrt();
    if length > 0.0 {
        parts.iter_mut().for_each(|(_, part)| *part /= length);
    } else if let Some((_, part)) = parts.first_mut() {
        // The machines have equal means, but their attempts scatter.
        *part = 1.0;
    }
    let (mean, degrees) = (estimate.mean, estimate.degrees);
    let standard_error = estimate.standard_error?;
    Some(Spread { mean, standard_error, degrees, parts, is_common: false }.stated(*scale))
}

/// Replaces the weights of attempts by as many weights as there are metrics, with the same correlations. They are the
/// Cholesky factor of the weights' products (Golub and Van Loan, "Matrix Computations", 4th edition, section 4.2).
/// Thousands of attempts then need no random numbers of their own.
fn factor(mut spreads: Vec<&mut Spread>, attempts: usize) {
    let dense = |spread: &&mut Spread| {
        let mut parts = vec![0.0; attempts];
        spread.parts.iter().for_each(|(at, part)| parts[*at] += part);
        parts
    };
    let parts: Vec<Vec<f64>> = spreads.iter().map(dense).collect();
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut rows: Vec<Vec<f64>> = Vec::new();
    for own in &parts {
        let mut row: Vec<f64> = Vec::new();
        for (other, of_other) in parts.iter().zip(&rows) {
            let left = product(own, other) - product(&row, of_other);
            let pivot = of_other.last().copied().unwrap_or(0.0);
            // A metric that depends linearly on those before it has no number of its own; rounding leaves up to 1e-8 of one.
            row.push(if pivot > 1e-6 { left / pivot } else { 0.0 });
        }
        row.push((product(own, own) - product(&row, &row)).max(0.0).sqrt());
        rows.push(row);
    }
    spreads.iter_mut().zip(rows).for_each(|(spread, row)| spread.parts = row.into_iter().enumerate().collect());
}

/// A generator of random numbers by [`split_mix`].
pub(super) struct Random(pub(super) u64);

impl Random {
    /// Uniform in (0, 1).
    pub(super) fn uniform(&mut self) -> f64 {
        let upper = u32::try_from(split_mix(&mut self.0) >> 32).unwrap_or(u32::MAX);
        (f64::from(upper) + 0.5) / 4_294_967_296.0
    }

    /// Standard normal (Box and Muller, 1958).
    pub(super) fn normal(&mut self) -> f64 {
        let (radius, angle) = ((-2.0 * self.uniform().ln()).sqrt(), std::f64::consts::TAU * self.uniform());
        radius * angle.cos()
    }

    /// Returns the divisor by which a normal number becomes Student's t with these degrees of freedom.
    fn scale(&mut self, degrees: f64) -> f64 {
        // With infinite degrees of freedom, Student's t is the normal distribution.
        if degrees.is_infinite() {
            return 1.0;
        }
        (self.chi_squared(degrees) / degrees).sqrt()
    }

    /// Chi-squared with `degrees` degrees of freedom, more than 0 (Marsaglia and Tsang, "A simple method for generating
    /// gamma variables", ACM TOMS 26, 2000).
    pub(super) fn chi_squared(&mut self, degrees: f64) -> f64 {
        let shape = degrees / 2.0;
        // A shape below 1 is drawn with 1 added, times a power of a uniform number.
        let (boosted, power) = if shape < 1.0 { (shape + 1.0, self.uniform().powf(1.0 / shape)) } else { (shape, 1.0) };
        let (d, c) = (boosted - 1.0 / 3.0, 1.0 / (9.0 * (boosted - 1.0 / 3.0)).sqrt());
        loop {
            let normal = self.normal();
            let cube = (1.0 + c * normal).powi(3);
            if cube > 0.0 && self.uniform().ln() < 0.5 * normal * normal + d - d * cube + d * cube.ln() {
                return 2.0 * d * cube * power;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_reduced_to_the_number_of_metrics_keep_their_products() {
        let spread = |parts: &[f64]| {
            let length = parts.iter().map(|part| part * part).sum::<f64>().sqrt();
            let parts = parts.iter().map(|part| part / length).enumerate().collect();
            Spread { mean: 0.0, standard_error: 1.0, degrees: 4.0, parts, is_common: false }
        };
        // The third equals the first, and the fourth is its opposite.
        let mut spreads =
            [[1.0, -2.0, 0.5, 0.5], [0.1, 1.0, -1.5, 0.4], [1.0, -2.0, 0.5, 0.5], [-1.0, 2.0, -0.5, -0.5]]
                .map(|parts| spread(&parts));
        let products = |spreads: &[Spread; 4]| -> Vec<f64> {
            let product = |a: &Spread, b: &Spread| {
                let of_b: BTreeMap<usize, f64> = b.parts.iter().copied().collect();
                a.parts.iter().map(|(at, part)| part * of_b.get(at).copied().unwrap_or(0.0)).sum()
            };
            spreads.iter().flat_map(|a| spreads.iter().map(move |b| product(a, b))).collect()
        };
        let before = products(&spreads);
        factor(spreads.iter_mut().collect(), 4);
        let apart = products(&spreads).iter().zip(&before).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-9, "{apart}");
        assert!(spreads.iter().all(|spread| spread.parts.len() <= 4));
    }

    #[test]
    fn random_numbers_have_the_moments_of_their_distributions() {
        let mut random = Random(7);
        let n = 20_000;
        let mut moments = |degrees: f64| {
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..n {
                let one = if degrees == 0.0 { random.normal() } else { random.chi_squared(degrees) };
                (sum, squares) = (sum + one, squares + one * one);
            }
            let mean = sum / f64::from(n);
            (mean, squares / f64::from(n) - mean * mean)
        };
        let (mean, variance) = moments(0.0);
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        for degrees in [1.0, 2.5, 9.0] {
            let (mean, variance) = moments(degrees);
            assert!((mean / degrees - 1.0).abs() < 0.05, "{degrees}: {mean}");
            assert!((variance / (2.0 * degrees) - 1.0).abs() < 0.12, "{degrees}: {variance}");
        }
    }
}
