//! Ranks configurations by one metric and compares each with the first.
//!
//! Knows groups of repetitions of one metric. Must not know how they were chosen, nor what a metric is called.

use super::comparison::{SIGNIFICANCE, holm_possible, olympic_mean, together};
use super::pairwise::{Block, Comparison, PAIRS, Scale, blocks_of, compared, machines, on_common_machines};
use super::replication::Estimate;
use super::resample::{Drawn, Sampled, probabilities};
use crate::record::{AttemptId, Digest, Direction, MetricKind, Replicate, Run, RunId, Value, known_metric, mean};
use std::collections::{BTreeMap, BTreeSet};

/// One attempt's value of the metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its run.
    pub run: RunId,
    /// The digest of those parts of its configuration that may change the value. Attempts that differ only in seed,
    /// program or machine have the same digest.
    pub configuration: Digest,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// The value.
    pub value: f64,
    /// Half the width of the value's own 95% interval, in its unit; `None` if it was not estimated.
    pub half_width: Option<f64>,
    /// The sensors that measured it.
    pub sensors: BTreeSet<String>,
    /// Its seed, execution and machine.
    pub replicate: Replicate,
    /// The round of a sweep in which it was executed: equal numbers mean the same round of the same sweep.
    pub round: Option<u64>,
}

/// The repetitions of one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// The run of its newest attempt: see [`newest_run`].
    pub run: Run,
    /// The fields by which the attempts were grouped, with their common values; empty without such fields.
    pub agreed: Vec<(String, Option<Value>)>,
    /// Whether the metric is an outcome of the computation or a measurement.
    pub kind: MetricKind,
    /// Its attempts that are counted, at least one.
    pub measured: Vec<Measured>,
}

/// Returns the run of the attempt that began last. Its id labels the configuration.
pub fn newest_run(measured: &[Measured]) -> Option<RunId> {
    measured.iter().max_by_key(|one| (one.started_unix_ms, one.attempt)).map(|one| one.run)
}

impl Contender {
    /// Returns the contender with only those attempts for which `is_kept` is true.
    pub(super) fn with(&self, is_kept: impl Fn(&Measured) -> bool) -> Self {
        let measured = self.measured.iter().filter(|one| is_kept(one)).cloned().collect();
        Self { run: self.run.clone(), agreed: self.agreed.clone(), kind: self.kind, measured }
    }

    /// The values, in the order of the attempts.
    pub fn values(&self) -> Vec<f64> {
        self.measured.iter().map(|measured| measured.value).collect()
    }

    /// The values, each with its seed, execution and machine.
    pub fn replicates(&self) -> Vec<(Replicate, f64)> {
        self.measured.iter().map(|measured| (measured.replicate, measured.value)).collect()
    }

    /// The mean over its independent units; `None` if there are no attempts.
    pub fn estimate(&self) -> Option<Estimate> {
        let rounds: Vec<Option<u64>> = self.measured.iter().map(|one| one.round).collect();
        Estimate::of(self.kind, &self.replicates(), &rounds)
    }

    /// Half the width of the mean's 95% interval from sensors alone: the largest relative uncertainty of any attempt,
    /// times the mean. Repetition does not average it out, because a sensor has the same error in every repetition.
    pub(super) fn sensor_half_width(&self, mean: f64) -> Option<f64> {
        let share = |measured: &Measured| Some(measured.half_width? / measured.value.abs());
        let largest = self.measured.iter().filter_map(share).filter(|share| share.is_finite()).reduce(f64::max)?;
        Some(largest * mean.abs())
    }
}

/// The comparison of a configuration with the first one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Against {
    /// Its mean minus the first one's, relative to the first one's; `None` if that is zero.
    pub relative: Option<f64>,
    /// The estimated difference from the first one and its test; `None` if they cannot be computed.
    pub comparison: Option<Comparison>,
    /// The test's p-value, corrected for the number of pairs of configurations that were tested.
    pub corrected: Option<f64>,
    /// Whether the difference is within the requested tolerance.
    pub is_within: bool,
}

impl Against {
    /// Whether the difference is significant; `None` if it was not tested.
    pub fn differs(&self) -> Option<bool> {
        self.corrected.map(|p| p < SIGNIFICANCE)
    }
}

/// A configuration's place in the ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The configuration.
    pub contender: Contender,
    /// The mean over its independent units.
    pub estimate: Estimate,
    /// Half the width of the mean's 95% interval, from scatter and sensors together; `None` if neither is known.
    pub half_width: Option<f64>,
    /// The sensors' part of the half width.
    pub sensor_half_width: Option<f64>,
    /// The mean of the units without the smallest and the largest one; `None` for fewer than three.
    pub olympic_mean: Option<f64>,
    /// The probability that it is the best of all places; `None` for a single place, if any place has a single unit or no
    /// scatter, or if a place would lead that its comparison calls worse than the first.
    pub probability: Option<f64>,
    /// The scale on which its differences are stated.
    pub scale: Scale,
    /// The comparison with the first one; `None` for the first one itself.
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
    /// The better direction.
    pub direction: Direction,
    /// The largest number of places to keep.
    pub limit: usize,
    /// The tolerance, relative to the first one's mean.
    pub tolerance: Option<f64>,
    /// The scale of differences, if the metric's name or unit determines it. Otherwise the values determine it.
    pub scale: Option<Scale>,
}

impl Ordering {
    /// Returns the ordering of all configurations by a metric with this name and unit.
    pub fn of(metric: &str, unit: &str, direction: Direction) -> Self {
        Self { direction, limit: usize::MAX, tolerance: None, scale: scale_named(metric, unit) }
    }
}

/// Returns the scale that a metric's name or unit determines: differences for percentages, points for known shares.
pub(super) fn scale_named(metric: &str, unit: &str) -> Option<Scale> {
    match known_metric(metric) {
        _ if unit == "%" => Some(Scale::Difference),
        Some(known) if known.is_share() => Some(Scale::Points),
        _ => None,
    }
}

/// Orders configurations by their means, best first, keeps at most `limit` of them, and compares each with the first.
/// Equal means are ordered by group. Configurations of several groups keep their order.
///
/// If configurations lack some seeds, machines or rounds, their means are not over the same ones. If a test over the
/// common ones contradicts the order of the means, all other attempts are left out ([`Place::dropped`]).
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
    let compared = with_first(&places, scale);
    if let Some(probabilities) = best_of(&places, direction, &compared) {
        places.iter_mut().zip(probabilities).for_each(|(place, probability)| place.probability = Some(probability));
    }
    let Some((first, others)) = places.split_first_mut() else { return places };
    for (other, (comparison, corrected)) in others.iter_mut().zip(compared) {
        let difference = other.estimate.mean - first.estimate.mean;
        let relative = (first.estimate.mean != 0.0).then(|| difference / first.estimate.mean.abs());
        let is_within = tolerance.is_some_and(|most| difference.abs() <= most * first.estimate.mean.abs());
        other.against = Some(Against { relative, comparison, corrected, is_within });
    }
    places
}

/// The most configurations of which all pairs are tested. With more, pairs without the first one are only counted.
const MOST_PAIRED: usize = 40;

/// Returns how many configurations, best first by their means, [`place`] needs to keep `limit` of them. The best one
/// may not be the first.
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

/// Whether the test prefers `other` although its mean is worse.
fn is_contradicted(first: &Place, other: &Place, ordering: Ordering) -> bool {
    let direction = ordering.direction;
    let scale = ordering.scale.unwrap_or_else(|| scale_of(&[&first.estimate, &other.estimate], Some(direction)));
    compared(&first.contender, &other.contender, scale).is_some_and(|comparison| comparison.prefers_other(direction))
}

/// Returns the places with only those attempts whose machine, seed or round all of them have. Returns `None` if these
/// are too few, or if nothing would be left out.
fn in_common(places: &[Place]) -> Option<Vec<Place>> {
    let contenders: Vec<&Contender> = places.iter().map(|place| &place.contender).collect();
    if let Some(common) = on_common_machines(&contenders) {
        return places.iter().zip(common).map(|(place, contender)| with_some(place, contender)).collect();
    }
    // Rounds of a sweep on several machines are not independent units.
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

/// Returns the place of `contender`, which has some of the attempts of `place`.
fn with_some(place: &Place, contender: Contender) -> Option<Place> {
    let dropped = place.contender.measured.len() - contender.measured.len();
    alone(contender).map(|place| Place { dropped, ..place })
}

/// A comparison with the first configuration, and its corrected p-value.
type Compared = (Option<Comparison>, Option<f64>);

/// Compares each other configuration with the first. Returns the comparison and its p-value, corrected by Holm's method
/// over all pairs, because the same data determined which one is first. A pair that cannot have a corrected p-value
/// below 0.05 is neither tested nor counted.
fn with_first(places: &[Place], scale: Scale) -> Vec<Compared> {
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
    // Pairs without the first one come after those with it.
    at.into_iter().zip(holm_possible(&family, size)).for_each(|(at, corrected)| found[at] = corrected);
    let settle = |(one, corrected): Compared| (one.map(|one| one.of_family(corrected)), corrected);
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

/// Whether the estimates allow the probabilities of being the best.
pub fn may_have_probabilities(places: &[Place]) -> bool {
    places.len() > 1 && places.iter().all(|place| place.estimate.standard_error.is_some_and(|error| error > 0.0))
}

/// Returns for each place the probability that it is the best. `None` for a single place, and if a place has no scatter.
/// `None` also if they contradict the table: a place is worse than the first by its comparison, but was drawn around a
/// better value and is more often the best. Its comparison is then over other units than the draws.
fn best_of(places: &[Place], direction: Direction, compared: &[Compared]) -> Option<Vec<f64>> {
    if !may_have_probabilities(places) {
        return None;
    }
    let sampled: Vec<_> = places.iter().map(|place| vec![place.sampled()]).collect();
    let Drawn { shares, centres } = probabilities(&sampled, &mut |draw, wins| {
        let better = |a: &&(usize, f64), b: &&(usize, f64)| match direction {
            Direction::Minimize => a.1.total_cmp(&b.1),
            Direction::Maximize => b.1.total_cmp(&a.1),
        };
        let values: Vec<(usize, f64)> = draw.iter().enumerate().map(|(at, values)| (at, values[0])).collect();
        wins.extend(values.iter().min_by(better).map(|(at, _)| *at));
    })?;
    let is_drawn_better = |at: usize| {
        let apart = centres[at][0] - centres[0][0];
        shares[at] > shares[0] && if direction == Direction::Minimize { apart < 0.0 } else { apart > 0.0 }
    };
    let is_contradicted = |(at, (comparison, _)): (usize, &Compared)| {
        is_drawn_better(at + 1) && comparison.is_some_and(|one| !one.is_other_better(direction))
    };
    (!compared.iter().enumerate().any(is_contradicted)).then(|| shared(places, &shares))
}

/// Gives configurations with equal values the mean of their probabilities. A draw names the first of a tie, and
/// separate draws differ by chance.
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

/// The differences of a configuration from a baseline, each relative to the baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saving {
    /// The metric's relative difference.
    pub metric: f64,
    /// The baseline's mean of the metric, in its unit.
    pub baseline: f64,
    /// The time's relative difference; `None` if either has no time.
    pub time: Option<f64>,
}

/// Compares two means of a metric, and two of time; the second of each is the baseline's. Returns `None` if the
/// baseline of the metric is zero.
pub fn saving(metric: (f64, f64), time: Option<(f64, f64)>) -> Option<Saving> {
    let share = |(own, baseline): (f64, f64)| (baseline != 0.0).then(|| (own - baseline) / baseline.abs());
    Some(Saving { metric: share(metric)?, baseline: metric.1, time: time.and_then(share) })
}

#[cfg(test)]
pub(super) mod tests;
