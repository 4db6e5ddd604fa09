//! How often a configuration comes out ahead when all of them are measured again: a parametric bootstrap over independent units.
//!
//! Knows estimates and which attempts they share. The stream of random numbers is fixed, so that a question has one answer.

use super::best::{Contender, scale_of};
use super::pairwise::{Block, Differences, PAIRS, blocks_of, differences, machines, sensors};
use super::replication::Estimate;
use super::statistic::{CONFIDENCE, number};
use crate::record::{AttemptId, MetricKind};
use std::collections::{BTreeMap, BTreeSet};

/// How often everything is measured again. A probability of a half is right within 3 points.
const DRAWS: u32 = 1000;

/// From the draws of all metrics of each configuration, adds the places of those that come out ahead.
pub(super) type Judge<'a> = dyn FnMut(&[Vec<f64>], &mut Vec<usize>) + 'a;

/// One metric of one configuration: draws of its mean.
struct Spread {
    mean: f64,
    standard_error: f64,
    degrees: f64,
    /// For each normal number of its configuration, or for each block that all configurations have, its part of the deviation: together they have the
    /// variance 1.
    parts: Vec<(usize, f64)>,
    /// Whether the parts are of blocks.
    is_common: bool,
}

/// For each configuration the share of draws in which `judge` names it, from the draws of all its metrics. None where a metric has a single unit.
///
/// A draw of a mean is Student's t around it, with the standard error and the degrees of freedom of its estimate. A metric whose units are
/// blocks that all configurations have in common (seeds, rounds or machines) takes the random numbers of these blocks, the same for all
/// configurations, as a paired test does. Of a measured metric of which configurations ran on different machines, the differences from the first configuration are drawn if all
/// have a paired test with it; of ratios their logarithms, which have the same order. Other metrics of one configuration have random numbers as correlated as the attempts that they
/// have in common make them, so that they vary together as the attempts did. What sensors may be off by is added to each draw: the same relative error for all
/// configurations that the same sensors measured, independent errors for others. All configurations have the same metrics, in one order.
pub(super) fn probabilities(
    configurations: &[Vec<(&Contender, &Estimate)>],
    judge: &mut Judge<'_>,
) -> Option<Vec<f64>> {
    let mut blocks: BTreeMap<(Block, u64), usize> = BTreeMap::new();
    let of_metrics = configurations.first().map_or(0, Vec::len);
    let mut common: Vec<Option<Vec<Option<Spread>>>> = Vec::new();
    let mut is_beside_first: Vec<bool> = Vec::new();
    for metric in 0..of_metrics {
        let found = in_common(configurations, metric, &mut blocks);
        let beside = if found.is_none() { beside_first(configurations, metric, &mut blocks) } else { None };
        is_beside_first.push(beside.is_some());
        common.push(found.or(beside));
    }
    let (mut spreads, mut of_own): (Vec<Vec<Spread>>, Vec<usize>) = Default::default();
    for (at, metrics) in configurations.iter().enumerate() {
        let mut known: BTreeMap<AttemptId, usize> = BTreeMap::new();
        let of_metric = |((contender, estimate), common): (
            &(&Contender, &Estimate),
            &mut Option<Vec<Option<Spread>>>,
        )| {
            match common {
                Some(spreads) => spreads[at].take(),
                None => spread(contender, estimate, &mut known),
            }
        };
        let mut own: Vec<Spread> = metrics.iter().zip(&mut common).map(of_metric).collect::<Option<_>>()?;
        factor(own.iter_mut().filter(|spread| !spread.is_common).collect(), known.len());
        of_own.push(own.iter().filter(|spread| !spread.is_common).count());
        spreads.push(own);
    }
    let sensors = Sensors::of(configurations, &is_beside_first);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut counts = vec![0.0; configurations.len()];
    let (mut draw, mut named): (Vec<Vec<f64>>, Vec<usize>) = (Vec::new(), Vec::new());
    for _ in 0..DRAWS {
        draw.clear();
        let of_blocks: Vec<f64> = (0..blocks.len()).map(|_| random.normal()).collect();
        // Configurations with the same metric and degrees of freedom share the denominator of t.
        let mut scales: BTreeMap<(usize, u64), f64> = BTreeMap::new();
        for (metric, spread) in spreads.first().into_iter().flatten().enumerate().filter(|(_, spread)| spread.is_common)
        {
            scales.insert((metric, spread.degrees.to_bits()), random.scale(spread.degrees));
        }
        for (metrics, own) in spreads.iter().zip(&of_own) {
            let of_attempts: Vec<f64> = (0..*own).map(|_| random.normal()).collect();
            let of_metric = |(metric, spread): (usize, &Spread)| {
                if !spread.is_common {
                    return spread.drawn(&of_attempts, random.scale(spread.degrees));
                }
                let key = (metric, spread.degrees.to_bits());
                let scale = *scales.entry(key).or_insert_with(|| random.scale(spread.degrees));
                spread.drawn(&of_blocks, scale)
            };
            draw.push(metrics.iter().enumerate().map(of_metric).collect());
        }
        sensors.disturb(&mut draw, &mut random);
        named.clear();
        judge(&draw, &mut named);
        named.iter().for_each(|at| counts[*at] += 1.0);
    }
    Some(counts.into_iter().map(|count: f64| count / f64::from(DRAWS)).collect())
}

/// What the sensors of each configuration may be off by.
struct Sensors {
    /// For each configuration and metric the number of its sensors, and their standard deviation in the metric's unit.
    off: Vec<Vec<(usize, f64)>>,
    /// How many sets of sensors there are; 0 where all configurations have the same, so that nothing of it is seen.
    count: usize,
}

impl Sensors {
    /// In differences from the first over common machines, the errors of sensors cancel.
    fn of(configurations: &[Vec<(&Contender, &Estimate)>], is_beside_first: &[bool]) -> Self {
        let mut numbers = BTreeMap::new();
        let mut count = 0;
        let mut off: Vec<Vec<(usize, f64)>> = Vec::new();
        // The largest share of each metric that the same sensors may be off by.
        let mut shares: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for metrics in configurations {
            let mut own = Vec::new();
            for (metric, (contender, estimate)) in metrics.iter().enumerate() {
                let set = sensors(contender);
                // Sensors that the record does not name are others for each configuration.
                let key = (set.iter().any(BTreeSet::is_empty).then_some(off.len()), set);
                let number = *numbers.entry(key).or_insert(count);
                count = count.max(number + 1);
                let half = contender.sensor_half_width(estimate.mean).unwrap_or(0.0);
                let share = shares.entry((number, metric)).or_default();
                *share = share.max(if half > 0.0 { half / estimate.mean.abs() } else { 0.0 });
                own.push((number, estimate.mean.abs() / CONFIDENCE));
            }
            off.push(own);
        }
        for (metric, (number, deviation)) in off.iter_mut().flat_map(|own| own.iter_mut().enumerate()) {
            let share = shares.get(&(*number, metric)).copied().unwrap_or(0.0);
            *deviation *= if is_beside_first[metric] { 0.0 } else { share };
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

impl Spread {
    fn drawn(&self, deviations: &[f64], scale: f64) -> f64 {
        let deviation: f64 = self.parts.iter().map(|(at, part)| part * deviations[*at]).sum();
        self.mean + self.standard_error * deviation / scale
    }
}

/// The spread of one metric of each configuration over blocks that all of them have in common, whose numbers are added to `known`. None
/// unless the units of the metric are these blocks.
fn in_common(
    configurations: &[Vec<(&Contender, &Estimate)>],
    metric: usize,
    known: &mut BTreeMap<(Block, u64), usize>,
) -> Option<Vec<Option<Spread>>> {
    let mut found = Vec::new();
    let mut shared: Option<(Block, Vec<u64>, Option<BTreeSet<u64>>)> = None;
    for metrics in configurations {
        let (contender, estimate) = metrics.get(metric)?;
        let (block, means) = blocks_of(contender);
        let own = (block, means.keys().copied().collect(), machines(contender).filter(|_| block != Block::Seed));
        let is_whole = means.len() >= PAIRS && means.len() == estimate.units.len();
        if !is_whole || shared.as_ref().is_some_and(|shared| *shared != own) {
            return None;
        }
        shared = Some(own);
        let deviations: Vec<f64> = means.values().map(|mean| mean - estimate.mean).collect();
        let length = deviations.iter().map(|deviation| deviation * deviation).sum::<f64>().sqrt();
        let standard_error = estimate.standard_error?;
        if length == 0.0 && standard_error > 0.0 {
            return None;
        }
        // Equal in all blocks, it stays where it is.
        let length = if length == 0.0 { 1.0 } else { length };
        found.push((estimate.mean, standard_error, deviations.into_iter().map(move |one| one / length)));
    }
    let (block, ids, _) = shared?;
    let degrees = number(ids.len()) - 1.0;
    let mut numbered = |id: u64| {
        let next = known.len();
        *known.entry((block, id)).or_insert(next)
    };
    let numbers: Vec<usize> = ids.into_iter().map(&mut numbered).collect();
    let spread = |(mean, standard_error, parts)| {
        let parts = numbers.iter().copied().zip(parts).collect();
        Some(Spread { mean, standard_error, degrees, parts, is_common: true })
    };
    Some(found.into_iter().map(spread).collect())
}

/// The difference of one metric of each configuration from the first one, as paired tests judge it: over the machines that both ran on. None of an outcome, where one
/// shares too few machines with the first, where other sensors measured the two there, or where nothing scatters.
fn beside_first(
    configurations: &[Vec<(&Contender, &Estimate)>],
    metric: usize,
    known: &mut BTreeMap<(Block, u64), usize>,
) -> Option<Vec<Option<Spread>>> {
    let of_metric: Vec<(&Contender, &Estimate)> =
        configurations.iter().map(|metrics| metrics.get(metric).copied()).collect::<Option<_>>()?;
    let ((first, _), others) = of_metric.split_first()?;
    let scale = scale_of(&of_metric.iter().map(|(_, estimate)| *estimate).collect::<Vec<_>>(), None);
    let of_first = blocks_of(first);
    let difference = |other: &Contender| {
        let of_other = blocks_of(other);
        let are_machines = (of_first.0, of_other.0) == (Block::Machine, Block::Machine);
        let found = differences(&of_first.1, &of_other.1, scale, Block::Machine).filter(|_| are_machines)?;
        let on_common = |one: &Contender| one.with(|one| found.by_block.contains_key(&one.replicate.machine));
        let (own, others) = (sensors(&on_common(first)), sensors(&on_common(other)));
        (own == others && found.shift.is_finite()).then_some(found)
    };
    let found: Vec<Differences> = others.iter().map(|(other, _)| difference(other)).collect::<Option<_>>()?;
    let mut numbered = |machine: u64| {
        let next = known.len();
        *known.entry((Block::Machine, machine)).or_insert(next)
    };
    let mut spread = |Differences { shift, by_block }: &Differences| {
        let n = number(by_block.len());
        let middle = by_block.values().sum::<f64>() / n;
        // The sum of their squares is the variance of the paired test.
        let part = |difference: f64| (difference - middle) / (n * (n - 1.0)).sqrt();
        let parts = by_block.iter().map(|(machine, difference)| (numbered(*machine), part(*difference))).collect();
        Spread { mean: *shift, standard_error: 1.0, degrees: n - 1.0, parts, is_common: true }
    };
    let others: Vec<Spread> = found.iter().map(&mut spread).collect();
    if others.iter().flat_map(|spread| &spread.parts).all(|(_, part)| *part == 0.0) {
        return None;
    }
    // The first one does not differ from itself, by any degrees of freedom.
    let itself = Spread { mean: 0.0, standard_error: 0.0, degrees: 1.0, parts: Vec::new(), is_common: true };
    Some([itself].into_iter().chain(others).map(Some).collect())
}

fn spread(contender: &Contender, estimate: &Estimate, known: &mut BTreeMap<AttemptId, usize>) -> Option<Spread> {
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
        // Machines of equal means whose attempts scatter.
        *part = 1.0;
    }
    let (mean, degrees) = (estimate.mean, estimate.degrees);
    Some(Spread { mean, standard_error: estimate.standard_error?, degrees, parts, is_common: false })
}

/// Replaces the parts of attempts by as many as there are metrics, which vary together in the same way: by the Cholesky factor of the parts' products
/// (Golub and Van Loan, "Matrix Computations", 4th edition, section 4.2). Thousands of attempts then need no normal number each.
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
            // A metric that follows from those before it has no number of its own; rounding leaves up to 1e-8 of one.
            row.push(if pivot > 1e-6 { left / pivot } else { 0.0 });
        }
        row.push((product(own, own) - product(&row, &row)).max(0.0).sqrt());
        rows.push(row);
    }
    spreads.iter_mut().zip(rows).for_each(|(spread, row)| spread.parts = row.into_iter().enumerate().collect());
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in (0, 1).
    pub(super) fn uniform(&mut self) -> f64 {
        let upper = u32::try_from(self.bits() >> 32).unwrap_or(u32::MAX);
        (f64::from(upper) + 0.5) / 4_294_967_296.0
    }

    /// Standard normal (Box and Muller, 1958).
    pub(super) fn normal(&mut self) -> f64 {
        let (radius, angle) = ((-2.0 * self.uniform().ln()).sqrt(), std::f64::consts::TAU * self.uniform());
        radius * angle.cos()
    }

    /// A normal number divided by this is Student's t with so many degrees of freedom.
    fn scale(&mut self, degrees: f64) -> f64 {
        (self.chi_squared(degrees) / degrees).sqrt()
    }

    /// Chi-squared with so many degrees of freedom, more than 0 (Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26, 2000).
    pub(super) fn chi_squared(&mut self, degrees: f64) -> f64 {
        let shape = degrees / 2.0;
        // A shape below 1 is one of 1 more, times a power of a uniform number.
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
    fn as_many_parts_as_metrics_have_the_products_of_those_of_all_attempts() {
        let spread = |parts: &[f64]| {
            let length = parts.iter().map(|part| part * part).sum::<f64>().sqrt();
            let parts = parts.iter().map(|part| part / length).enumerate().collect();
            Spread { mean: 0.0, standard_error: 1.0, degrees: 4.0, parts, is_common: false }
        };
        // The third is the first one once more, the fourth its opposite.
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
