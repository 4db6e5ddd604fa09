//! Which configuration is best, by how much, and how sure that is.
//!
//! Knows groups of repetitions of one metric. Must not know how they were chosen, nor what a metric is called.

use super::comparison::{SIGNIFICANCE, holm_possible, olympic_mean, together};
use super::pairwise::{Block, Comparison, PAIRS, Scale, blocks_of, compared, machines, on_common_machines};
use super::replication::Estimate;
use super::resample::{Sampled, probabilities};
use crate::record::{AttemptId, Digest, Direction, MetricKind, Replicate, Run, RunId, Value, known_metric, mean};
use std::collections::{BTreeMap, BTreeSet};

/// One attempt's value of the metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its run.
    pub run: RunId,
    /// The digest of what may change the value in its configuration: attempts that differ in seed, program or machine alone have the same.
    pub configuration: Digest,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// The value.
    pub value: f64,
    /// Half the width of its own 95% interval, in its unit; none where that was not estimated.
    pub half_width: Option<f64>,
    /// The sensors that it comes from.
    pub sensors: BTreeSet<String>,
    /// What it is a repetition of.
    pub replicate: Replicate,
    /// The round of a sweep in which it was executed: equal numbers mean the same round of the same sweep.
    pub round: Option<u64>,
}

/// The repetitions of one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Of its runs that of the attempt which [`newest_run`] names.
    pub run: Run,
    /// What its attempts agree on, where they were put together by fields.
    pub agreed: Vec<(String, Option<Value>)>,
    /// What decides the metric.
    pub kind: MetricKind,
    /// Its attempts that count, at least one.
    pub measured: Vec<Measured>,
}

/// The run of the attempt that began last: by it a configuration is named, wherever the attempts come from.
pub fn newest_run(measured: &[Measured]) -> Option<RunId> {
    measured.iter().max_by_key(|one| (one.started_unix_ms, one.attempt)).map(|one| one.run)
}

impl Contender {
    /// The same with some of its attempts.
    pub(super) fn with(&self, is_kept: impl Fn(&Measured) -> bool) -> Self {
        let measured = self.measured.iter().filter(|one| is_kept(one)).cloned().collect();
        Self { run: self.run.clone(), agreed: self.agreed.clone(), kind: self.kind, measured }
    }

    /// The values, in the order of the attempts.
    pub fn values(&self) -> Vec<f64> {
        self.measured.iter().map(|measured| measured.value).collect()
    }

    /// The values with what they are repetitions of.
    pub fn replicates(&self) -> Vec<(Replicate, f64)> {
        self.measured.iter().map(|measured| (measured.replicate, measured.value)).collect()
    }

    /// The mean over its independent units; none of no attempt.
    pub fn estimate(&self) -> Option<Estimate> {
        let rounds: Vec<Option<u64>> = self.measured.iter().map(|one| one.round).collect();
        Estimate::of(self.kind, &self.replicates(), &rounds)
    }

    /// How far the mean may be off by what repeating does not average out: the largest uncertainty of an attempt as a share of its
    /// value, of the mean. A sensor that is off is off in every repetition, so that a mean is no surer than they are.
    pub(super) fn sensor_half_width(&self, mean: f64) -> Option<f64> {
        let share = |measured: &Measured| Some(measured.half_width? / measured.value.abs());
        let largest = self.measured.iter().filter_map(share).filter(|share| share.is_finite()).reduce(f64::max)?;
        Some(largest * mean.abs())
    }
}

/// A configuration beside the first one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Against {
    /// Its mean less the first one's, as a share of that; none where that is zero.
    pub relative: Option<f64>,
    /// How far it is from the first one, and whether chance explains it; none where that cannot be computed.
    pub comparison: Option<Comparison>,
    /// The test's probability, corrected for the number of pairs of configurations that were tested.
    pub corrected: Option<f64>,
    /// Whether it lies within the tolerance that was asked for.
    pub is_within: bool,
}

impl Against {
    /// Whether it differs by more than chance; none where that was not tested.
    pub fn differs(&self) -> Option<bool> {
        self.corrected.map(|p| p < SIGNIFICANCE)
    }
}

/// A configuration's place.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Whose.
    pub contender: Contender,
    /// The mean over its independent units.
    pub estimate: Estimate,
    /// Half the width of the mean's 95% interval, scatter and sensors together; none where neither is known.
    pub half_width: Option<f64>,
    /// The sensors' part of it.
    pub sensor_half_width: Option<f64>,
    /// The mean of the units without the smallest and the largest one; none of fewer than three.
    pub olympic_mean: Option<f64>,
    /// The probability that it is the best of all that are shown; none where some of them have a single unit, or do not scatter.
    pub probability: Option<f64>,
    /// In what its differences are stated.
    pub scale: Scale,
    /// How it stands to the first one; none for the first one itself.
    pub against: Option<Against>,
    /// How many attempts are left out, because other places lack their seeds, machines or rounds: see [`place`].
    pub dropped: usize,
}

impl Place {
    /// Compares with `first` over the common seeds, and counts these. `None` if the seeds are equal or disjoint.
    pub fn on_common_seeds(&self, first: &Self) -> Option<(usize, Comparison)> {
        let [(block, of_first), (_, own)] = [first, self].map(|place| blocks_of(&place.contender));
        let common = of_first.iter().filter_map(|(seed, value)| Some((*value, *own.get(seed)?)));
        let (firsts, others): (Vec<f64>, Vec<f64>) = common.unzip();
        let is_other = block == Block::Seed && !others.is_empty() && !of_first.keys().eq(own.keys());
        is_other.then(|| (others.len(), Comparison::of_means(mean(&firsts), mean(&others), self.scale)))
    }

    pub(super) fn sampled(&self) -> Sampled<'_> {
        Sampled { contender: &self.contender, estimate: &self.estimate, scale: self.scale }
    }
}

/// How configurations are ordered and compared.
#[derive(Clone, Copy, Debug)]
pub struct Ordering {
    /// Which way is better.
    pub direction: Direction,
    /// How many are kept.
    pub limit: usize,
    /// The difference that does not matter, as a share of the first one's mean.
    pub tolerance: Option<f64>,
    /// In what differences are stated, where the metric's name or unit says it; else by the values.
    pub scale: Option<Scale>,
}

impl Ordering {
    /// That of all configurations by a metric with this name and unit.
    pub fn of(metric: &str, unit: &str, direction: Direction) -> Self {
        Self { direction, limit: usize::MAX, tolerance: None, scale: scale_named(metric, unit) }
    }
}

/// Shares of one are compared in points, percentages as they are.
pub(super) fn scale_named(metric: &str, unit: &str) -> Option<Scale> {
    match known_metric(metric) {
        _ if unit == "%" => Some(Scale::Difference),
        Some(known) if known.is_share() => Some(Scale::Points),
        _ => None,
    }
}

/// Orders configurations by their means, best first, keeps at most as many as asked for, and compares each with the first. Equal ones stand by their groups; those
/// that are of several stay in the order in which they come.
///
/// Configurations that lack some seeds (or machines or rounds, of what is measured) have means of different ones. If a test of common ones contradicts the order of the means,
/// the attempts of other ones are left out ([`Place::dropped`]).
pub fn place(contenders: Vec<Contender>, ordering: Ordering) -> Vec<Place> {
    let Ordering { direction, limit, tolerance, .. } = ordering;
    let mut places = in_order(contenders.into_iter().filter_map(alone).collect(), direction);
    places.truncate(considered(limit));
    if let Some(first) = places.first()
        && places[1..].iter().take(MOST_PAIRED).any(|other| is_contradicted(first, other, ordering))
        && let Some(common) = in_common(&places)
    {
        places = in_order(common, direction);
    }
    places.truncate(limit);
    let estimates: Vec<&Estimate> = places.iter().map(|place| &place.estimate).collect();
    let scale = ordering.scale.unwrap_or_else(|| scale_of(&estimates, Some(direction)));
    places.iter_mut().for_each(|place| place.scale = scale);
    let probabilities = best_of(&places, direction);
    places.iter_mut().zip(probabilities).for_each(|(place, probability)| place.probability = probability);
    let compared = with_first(&places, scale);
    let Some((first, others)) = places.split_first_mut() else { return places };
    for (other, (comparison, corrected)) in others.iter_mut().zip(compared) {
        let difference = other.estimate.mean - first.estimate.mean;
        let relative = (first.estimate.mean != 0.0).then(|| difference / first.estimate.mean.abs());
        let is_within = tolerance.is_some_and(|most| difference.abs() <= most * first.estimate.mean.abs());
        other.against = Some(Against { relative, comparison, corrected, is_within });
    }
    places
}

/// Of no more configurations all pairs are tested: of more, pairs without the first one are only counted.
const MOST_PAIRED: usize = 40;

/// How many configurations, best first by their means, [`place`] needs to keep `limit` of them: the best one may not be the first.
pub fn considered(limit: usize) -> usize {
    limit.max(MOST_PAIRED)
}

fn in_order(mut places: Vec<Place>, direction: Direction) -> Vec<Place> {
    places.sort_by(|a, b| {
        let order = a.estimate.mean.total_cmp(&b.estimate.mean);
        let order = if direction == Direction::Maximize { order.reverse() } else { order };
        let group = |place: &Place| place.contender.agreed.is_empty().then(|| place.contender.run.parts.group_id());
        order.then_with(|| group(a).cmp(&group(b)))
    });
    places
}

/// Whether a test says that the second one is better, though its mean is worse.
fn is_contradicted(first: &Place, other: &Place, ordering: Ordering) -> bool {
    let direction = ordering.direction;
    let scale = ordering.scale.unwrap_or_else(|| scale_of(&[&first.estimate, &other.estimate], Some(direction)));
    compared(&first.contender, &other.contender, scale).is_some_and(|comparison| comparison.prefers_other(direction))
}

/// The configurations with the attempts alone whose machine, seed or round all of them have; none if these are too few, or leave nothing out.
fn in_common(places: &[Place]) -> Option<Vec<Place>> {
    let contenders: Vec<&Contender> = places.iter().map(|place| &place.contender).collect();
    if let Some(common) = on_common_machines(&contenders) {
        return places.iter().zip(common).map(|(place, contender)| with_some(place, contender)).collect();
    }
    // Rounds of a sweep on several machines are no units of their own.
    if contenders
        .iter()
        .any(|one| machines(one).is_some_and(|all| one.kind == MetricKind::Measured && all.len() >= PAIRS))
    {
        return None;
    }
    let unit = |kind: MetricKind, one: &Measured| match kind {
        MetricKind::Outcome => one.replicate.is_seeded().then_some(one.replicate.seed),
        MetricKind::Measured => one.round,
    };
    let units = |place: &Place| -> BTreeSet<u64> {
        place.contender.measured.iter().filter_map(|one| unit(place.contender.kind, one)).collect()
    };
    let common = places.iter().map(units).reduce(|a, b| a.intersection(&b).copied().collect())?;
    if common.len() < 2 || places.iter().all(|place| units(place) == common) {
        return None;
    }
    let of = |place: &Place| {
        let kind = place.contender.kind;
        with_some(place, place.contender.with(|one| unit(kind, one).is_some_and(|unit| common.contains(&unit))))
    };
    places.iter().map(of).collect()
}

/// A place with some of its attempts.
fn with_some(place: &Place, contender: Contender) -> Option<Place> {
    let dropped = place.contender.measured.len() - contender.measured.len();
    alone(contender).map(|place| Place { dropped, ..place })
}

/// Each other configuration compared with the first, and the probability of chance by Holm's correction over all pairs: which one is the
/// first
/// was seen in the same data. Pairs of which no corrected probability below 0.05 is possible are not tested, and not counted.
fn with_first(places: &[Place], scale: Scale) -> Vec<(Option<Comparison>, Option<f64>)> {
    let Some((first, others)) = places.split_first() else { return Vec::new() };
    let pair = |a: &Place, b: &Place| compared(&a.contender, &b.contender, scale);
    let beside_first: Vec<Option<Comparison>> = others.iter().map(|other| pair(first, other)).collect();
    let tested = |one: &Option<Comparison>| one.and_then(|one| Some((one.test.ok()?.0, one.least)));
    let (at, mut family): (Vec<usize>, Vec<(f64, f64)>) =
        beside_first.iter().enumerate().filter_map(|(at, one)| Some((at, tested(one)?))).unzip();
    let is_whole = places.len() <= MOST_PAIRED;
    if is_whole {
        let rest =
            others.iter().enumerate().flat_map(|(at, one)| others[at + 1..].iter().map(move |other| pair(one, other)));
        family.extend(rest.filter_map(|one| tested(&one)));
    }
    let size = |tests: usize| if is_whole { tests } else { tests * (tests + 1) / 2 };
    let mut found: Vec<Option<f64>> = vec![None; others.len()];
    // Pairs without the first come behind those with it.
    at.into_iter().zip(holm_possible(&family, size)).for_each(|(at, corrected)| found[at] = corrected);
    let settle =
        |(one, corrected): (Option<Comparison>, Option<f64>)| (one.map(|one| one.of_family(corrected)), corrected);
    beside_first.into_iter().zip(found).map(settle).collect()
}

/// The scale of a metric that [`scale_named`] does not know, by its estimates:
/// - points for an outcome within 0 and 1 that is better the larger it is,
/// - otherwise a ratio if all values are positive,
/// - otherwise the difference in the metric's unit.
pub(super) fn scale_of(estimates: &[&Estimate], direction: Option<Direction>) -> Scale {
    let all = |is: fn(f64) -> bool| estimates.iter().flat_map(|one| &one.units).all(|value| is(*value));
    let is_outcome = estimates.iter().all(|one| one.kind == MetricKind::Outcome);
    if is_outcome && direction == Some(Direction::Maximize) && all(|value| (0.0..=1.0).contains(&value)) {
        Scale::Points
    } else if all(|value| value > 0.0) {
        Scale::Ratio
    } else {
        Scale::Difference
    }
}

/// For each the probability that it is the best.
fn best_of(places: &[Place], direction: Direction) -> Vec<Option<f64>> {
    let none = vec![None; places.len()];
    if places.len() < 2 || places.iter().any(|place| place.estimate.standard_error.is_none_or(|error| error == 0.0)) {
        return none;
    }
    let sampled: Vec<_> = places.iter().map(|place| vec![place.sampled()]).collect();
    probabilities(&sampled, &mut |draw, wins| {
        let better = |a: &&(usize, f64), b: &&(usize, f64)| match direction {
            Direction::Minimize => a.1.total_cmp(&b.1),
            Direction::Maximize => b.1.total_cmp(&a.1),
        };
        let values: Vec<(usize, f64)> = draw.iter().enumerate().map(|(at, values)| (at, values[0])).collect();
        wins.extend(values.iter().min_by(better).map(|(at, _)| *at));
    })
    .map_or(none, |found| shared(places, &found).into_iter().map(Some).collect())
}

/// The same probability for configurations of the same values: the mean of theirs. A draw names the first of a tie, and draws of their own differ by chance.
fn shared(places: &[Place], probabilities: &[f64]) -> Vec<f64> {
    let bits = |place: &Place| -> Vec<u64> {
        let mut bits: Vec<u64> = place.estimate.units.iter().map(|unit| unit.to_bits()).collect();
        bits.sort_unstable();
        bits
    };
    let mut alike: BTreeMap<Vec<u64>, Vec<f64>> = BTreeMap::new();
    for (place, probability) in places.iter().zip(probabilities) {
        alike.entry(bits(place)).or_default().push(*probability);
    }
    places.iter().map(|place| mean(&alike[&bits(place)])).collect()
}

fn alone(contender: Contender) -> Option<Place> {
    let estimate = contender.estimate()?;
    let sensor_half_width = contender.sensor_half_width(estimate.mean);
    Some(Place {
        half_width: together(estimate.half_width(), sensor_half_width),
        sensor_half_width,
        olympic_mean: olympic_mean(&estimate.units),
        probability: None,
        scale: Scale::Ratio,
        against: None,
        dropped: 0,
        estimate,
        contender,
    })
}

/// What the first configuration costs beside another: the metric and the time, each as a share of the other's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saving {
    /// The metric's difference.
    pub metric: f64,
    /// The baseline's mean of the metric, in its unit.
    pub baseline: f64,
    /// The time's difference; none where either has no time.
    pub time: Option<f64>,
}

/// Compares two means of a metric, and two of time, with the baseline's second. None where the baseline is zero.
pub fn saving(metric: (f64, f64), time: Option<(f64, f64)>) -> Option<Saving> {
    let share = |(own, baseline): (f64, f64)| (baseline != 0.0).then(|| (own - baseline) / baseline.abs());
    Some(Saving { metric: share(metric)?, baseline: metric.1, time: time.and_then(share) })
}

#[cfg(test)]
pub(super) mod tests;
