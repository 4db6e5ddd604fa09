//! The comparison of two configurations: the difference of their means, with an interval and a test.
//!
//! Knows estimates and the blocks that both have in common. Must not know what the values measure, nor the number of other comparisons.

mod permutation;

use super::best::{Contender, Measured};
use super::comparison::{SIGNIFICANCE, Summary};
use super::distribution::{reach, two_sided_of_sum};
use super::replication::{Estimate, SampleModel};
use super::statistic::{CONFIDENCE, number};
use crate::record::{Digest, Direction, MetricKind, Replicate, execution_values, mean};
use permutation::exchanged;
use std::collections::{BTreeMap, BTreeSet};

/// The scale of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The second mean as a multiple of the first.
    Ratio,
    /// The second mean minus the first, in points (hundredths).
    Points,
    /// The second mean minus the first, in the metric's unit.
    Difference,
}

impl Scale {
    /// The word in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ratio => "ratio",
            Self::Points => "points",
            Self::Difference => "difference",
        }
    }
}

/// Common units of two configurations, whose own effects cancel in the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Block {
    /// A seed.
    Seed,
    /// A round of a sweep.
    Round,
    /// A machine.
    Machine,
}

impl Block {
    /// The word in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::Round => "round",
            Self::Machine => "machine",
        }
    }
}

/// The test of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Welch's t-test of independent units.
    Welch,
    /// A t-test of the differences within this many common blocks.
    Paired(Block, usize),
    /// A t-test of the differences within this many common blocks, by the scatter within blocks.
    Within(Block, usize),
    /// A permutation test: the share of all exchanges of units that give at least as large a difference.
    Permutation,
}

/// Why there is no test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untested {
    /// One side has a single unit, and the other has too few for a permutation test.
    TooFew,
    /// Neither side scatters, so there is nothing to test against.
    NoScatter,
    /// One side ran on a single machine of a device, or has a single seed, and the other side has others. Their effects
    /// are part of the difference.
    Confounded,
    /// One side has several attempts in a single round of a sweep, and the other side has other rounds. Their effects
    /// are part of the difference.
    OtherRounds,
    /// There are too few units for a t-test, and a permutation test does not account for the uncertainty of different sensors.
    Sensors,
}

impl Untested {
    /// The word in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooFew => "too_few",
            Self::NoScatter => "no_scatter",
            Self::Confounded => "confounded",
            Self::OtherRounds => "other_rounds",
            Self::Sensors => "different_sensors",
        }
    }
}

/// A difference of two means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The scale of the difference.
    pub scale: Scale,
    /// The difference: a ratio, points, or in the metric's unit.
    pub estimate: f64,
    /// Its 95% interval, lower end first; `None` if the scatter is unknown.
    pub interval: Option<(f64, f64)>,
    /// The degrees of freedom of the interval.
    pub degrees: Option<f64>,
    /// The p-value and its test, or why there is none.
    pub test: Result<(f64, Method), Untested>,
    /// The smallest p-value that the test can give with this number of units; 0 for a t-test.
    pub least: f64,
    /// Whether only attempts of the one common round are compared.
    pub is_of_one_round: bool,
}

impl Comparison {
    /// Whether this difference makes the second configuration better than the first.
    pub fn is_other_better(&self, direction: Direction) -> bool {
        let neutral = if self.scale == Scale::Ratio { 1.0 } else { 0.0 };
        match direction {
            Direction::Minimize => self.estimate < neutral,
            Direction::Maximize => self.estimate > neutral,
        }
    }

    /// Whether the second configuration is significantly better than the first.
    pub fn prefers_other(&self, direction: Direction) -> bool {
        self.is_other_better(direction) && self.test.is_ok_and(|(p, _)| p < SIGNIFICANCE)
    }

    /// Creates a comparison of these two means that has only an estimate.
    pub fn of_means(first: f64, other: f64, scale: Scale) -> Self {
        let estimate = match scale {
            Scale::Ratio => other / first,
            Scale::Points => 100.0 * (other - first),
            Scale::Difference => other - first,
        };
        Self {
            scale,
            estimate,
            interval: None,
            degrees: None,
            test: Err(Untested::TooFew),
            least: 0.0,
            is_of_one_round: false,
        }
    }

    fn settled(self) -> Self {
        if matches!(self.test, Ok((_, Method::Permutation))) {
            Self { interval: None, degrees: None, ..self }
        } else {
            self
        }
    }

    /// Returns this comparison as one of several tests that were corrected together. `corrected` is the corrected p-value, or `None` if the
    /// correction leaves no value below 0.05 possible.
    pub(super) fn of_family(self, corrected: Option<f64>) -> Self {
        let is_impossible = self.test.is_ok() && corrected.is_none();
        if is_impossible { Self { test: Err(Untested::TooFew), ..self } } else { self.settled() }
    }

    /// Returns the comparison of the first mean with the second.
    pub fn reversed(self) -> Self {
        let turned = |value: f64| if self.scale == Scale::Ratio { value.recip() } else { -value };
        let interval = self.interval.map(|(low, high)| (turned(high), turned(low)));
        Self { estimate: turned(self.estimate), interval, ..self }
    }
}

/// The fewest common blocks by which two configurations are paired.
pub(super) const PAIRS: usize = 3;

/// Compares two configurations. An exact test has no interval, because the t interval of few units can contradict it.
#[cfg(test)]
pub(super) fn compare(first: &Contender, other: &Contender, scale: Scale) -> Option<Comparison> {
    compared(first, other, scale).map(Comparison::settled)
}

/// Whether the first configuration leads an outcome only by seeds that one of the two lacks: with the common seeds it
/// is no better than the other. With enough common seeds this is `false`, because a paired test uses the differences
/// themselves.
pub fn leads_by_other_seeds(first: &Contender, other: &Contender, direction: Direction) -> bool {
    let by_seed = |one: &Contender| {
        let mut values: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        one.measured.iter().for_each(|one| values.entry(one.replicate.seed).or_default().push(one.value));
        values
    };
    let (a, b) = (by_seed(first), by_seed(other));
    let common: Vec<f64> = a.iter().filter_map(|(seed, own)| Some(mean(b.get(seed)?) - mean(own))).collect();
    if common.is_empty() || can_be_paired(Block::Seed, common.len(), a.len().max(b.len())) {
        return false;
    }
    let gain = mean(&common);
    let is_as_good = if direction == Direction::Maximize { gain >= 0.0 } else { gain <= 0.0 };
    first.kind == MetricKind::Outcome && a.len().max(b.len()) > common.len() && is_as_good
}

/// Compares two configurations, without regard to the number of other tested pairs.
///
/// A ratio has its interval on the log scale, by the delta method (Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM
/// 2013, section 4). Errors of the same sensors cancel; different sensors may have different errors. The estimate and the test use
/// - the differences within common seeds (outcomes), or common rounds or machines (measured metrics),
/// - the differences within two machines, or two rounds, if both sides have the same two,
/// - the attempts of one round, if one side has only that round and the other has it too.
pub(super) fn compared(first: &Contender, other: &Contender, scale: Scale) -> Option<Comparison> {
    let on_common = on_common_machines(&[first, other]);
    let (first, other) = match on_common.as_deref() {
        Some([first, other]) => (first, other),
        _ => (first, other),
    };
    let common = in_common_round(first, other);
    let (first, other) = common.as_ref().map_or((first, other), |(first, other)| (first, other));
    let (a, b) = (first.estimate()?, other.estimate()?);
    let shifts = shift((a.mean, b.mean), scale);
    let systematic = systematic(first, other, (&a, &b), units((&a, &b), scale));
    let confounded = confounded((first, &a), (other, &b));
    let judged = if a.attempts.min(b.attempts) == 0 || !shifts.is_finite() || confounded.is_some() {
        None
    } else {
        paired(first, other, scale).or_else(|| within(first, other, scale)).or_else(|| welch((&a, &b), scale))
    };
    let judged = judged.map(|judged| match judged.method {
        Method::Welch if common.is_some() => Judged { method: Method::Within(Block::Round, 1), ..judged },
        _ => judged,
    });
    let judged = judged.map(|judged| Judged { systematic, ..judged });
    let shifts = judged.and_then(|judged| judged.shift).unwrap_or(shifts);
    let scatters = judged.is_some_and(|judged| judged.variance + judged.systematic > 0.0);
    let interval = judged.filter(|_| scatters).and_then(|judged| {
        let half = (reach(judged.degrees)?.powi(2) * judged.variance + CONFIDENCE.powi(2) * judged.systematic).sqrt();
        Some(((shifts - half, shifts + half), judged.degrees))
    });
    let mut least = 0.0;
    let test = match judged {
        Some(judged) if judged.is_enough && scatters => judged.test(shifts),
        Some(judged) if judged.is_enough => Err(Untested::NoScatter),
        _ => match (confounded, exchanged(&a.units, &b.units)) {
            (Some(why), _) => Err(why),
            _ if still(&a.units) && still(&b.units) => Err(Untested::NoScatter),
            (None, Some(_)) if systematic > 0.0 => Err(Untested::Sensors),
            (None, Some((p, smallest))) => {
                least = smallest;
                Ok((p, Method::Permutation))
            }
            (None, None) => Err(Untested::TooFew),
        },
    };
    let shown = |shift: f64| match scale {
        Scale::Ratio => shift.exp(),
        Scale::Points => 100.0 * shift,
        Scale::Difference => shift,
    };
    Some(Comparison {
        scale,
        estimate: shown(shifts),
        interval: interval.map(|((low, high), _)| (shown(low), shown(high))),
        // An interval that includes an error of sensors has no degrees of freedom of its own.
        degrees: interval.filter(|_| systematic == 0.0).map(|(_, degrees)| degrees),
        test,
        least,
        is_of_one_round: common.is_some(),
    })
}

/// The difference of two means; for a ratio, its logarithm.
fn shift((a, b): (f64, f64), scale: Scale) -> f64 {
    match scale {
        Scale::Ratio => (b / a).ln(),
        Scale::Points | Scale::Difference => b - a,
    }
}

/// The units in which the values of each side are compared. For a ratio these are their own means: small differences
/// are then differences of logarithms.
fn units((a, b): (&Estimate, &Estimate), scale: Scale) -> (f64, f64) {
    if scale == Scale::Ratio { (a.mean, b.mean) } else { (1.0, 1.0) }
}

/// Whether several units are all the same.
fn still(units: &[f64]) -> bool {
    units.len() > 1 && units.iter().all(|unit| *unit == units[0])
}

/// A difference's variance and the test that it allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    /// The variance by the scatter of the units, with its degrees of freedom.
    pub(super) variance: f64,
    pub(super) degrees: f64,
    /// The variance from different sensors.
    systematic: f64,
    method: Method,
    /// Whether there are enough units for a t-test.
    pub(super) is_enough: bool,
    /// The difference, if it is not that of the means of all attempts; for a ratio, its logarithm.
    pub(super) shift: Option<f64>,
}

impl Judged {
    fn test(self, shift: f64) -> Result<(f64, Method), Untested> {
        let p = two_sided_of_sum(shift, (self.variance, self.degrees), self.systematic).ok_or(Untested::TooFew)?;
        Ok((p, self.method))
    }
}

/// The variance of the sensors' errors; 0 if the same sensors measured both sides.
fn systematic(first: &Contender, other: &Contender, estimates: (&Estimate, &Estimate), units: (f64, f64)) -> f64 {
    if has_same_sensors(first, other) {
        return 0.0;
    }
    let part = |contender: &Contender, estimate: &Estimate, unit: f64| {
        let half = contender.sensor_half_width(estimate.mean).unwrap_or(0.0);
        (half / CONFIDENCE / unit).powi(2)
    };
    part(first, estimates.0, units.0) + part(other, estimates.1, units.1)
}

/// Whether the errors of sensors cancel between two configurations.
pub(super) fn has_same_sensors(first: &Contender, other: &Contender) -> bool {
    let of_first = sensors(first);
    of_first == sensors(other) && of_first.iter().all(|sensors| !sensors.is_empty())
}

/// The sets of sensors that measured a configuration. Errors cancel between configurations with the same sets whose
/// attempts all name sensors.
pub(super) fn sensors(contender: &Contender) -> BTreeSet<BTreeSet<String>> {
    contender.measured.iter().map(|one| one.sensors.clone()).collect()
}

/// Returns the mean of each block. An attempt without a block, such as a rerun, is left out. If a row
/// averages several configurations, only blocks that ran all of them count: another block's mean would be of other work.
fn blocks(contender: &Contender, of: impl Fn(&Measured) -> Option<u64>) -> BTreeMap<u64, f64> {
    let mut found: BTreeMap<u64, Vec<(Replicate, f64)>> = BTreeMap::new();
    let complete = complete_blocks(contender, &of);
    for one in &contender.measured {
        if let Some(block) = of(one).filter(|block| complete.contains(block)) {
            found.entry(block).or_default().push((one.replicate, one.value));
        }
    }
    let middle = |values: &Vec<(Replicate, f64)>| match contender.kind {
        MetricKind::Outcome => mean(&execution_values(values)),
        MetricKind::Measured => mean(&values.iter().map(|(_, value)| *value).collect::<Vec<f64>>()),
    };
    found.iter().map(|(key, values)| (*key, middle(values))).collect()
}

/// The blocks in which all configurations of a row ran.
fn complete_blocks(contender: &Contender, of: impl Fn(&Measured) -> Option<u64>) -> BTreeSet<u64> {
    let mut found: BTreeMap<Option<u64>, BTreeSet<Digest>> = BTreeMap::new();
    for one in &contender.measured {
        found.entry(of(one)).or_default().insert(one.configuration);
    }
    let all: BTreeSet<Digest> = contender.measured.iter().map(|one| one.configuration).collect();
    found.into_iter().filter(|(_, own)| own.len() == all.len()).filter_map(|(block, _)| block).collect()
}

/// The machines on which all configurations of a row ran; `None` if a record does not name its machine.
pub(super) fn complete_machines(contender: &Contender) -> Option<BTreeSet<u64>> {
    machines(contender).map(|_| complete_blocks(contender, |one| Some(one.replicate.machine)))
}

/// The machines on which a configuration ran; `None` if a record does not name its machine.
pub(super) fn machines(contender: &Contender) -> Option<BTreeSet<u64>> {
    let found: BTreeSet<u64> = contender.measured.iter().map(|one| one.replicate.machine).collect();
    (!found.contains(&0)).then_some(found)
}

/// Why the effect of one side's units is part of the difference: they are attempts on one machine or in one round, or
/// executions of one seed, and the other side has other units. Machines with different devices are not confounded,
/// because the devices are compared.
fn confounded(first: (&Contender, &Estimate), other: (&Contender, &Estimate)) -> Option<Untested> {
    let seeds =
        |contender: &Contender| contender.measured.iter().map(|one| one.replicate.seed).collect::<BTreeSet<_>>();
    let is_any = |is: &dyn Fn(&Estimate) -> bool| is(first.1) || is(other.1);
    match first.1.kind {
        MetricKind::Measured if first.0.run.parts.device != other.0.run.parts.device => None,
        MetricKind::Measured => match (machines(first.0), machines(other.0)) {
            (Some(own), Some(others)) if own != others && own.len().min(others.len()) == 1 => {
                Some(Untested::Confounded)
            }
            _ if is_any(&|one| one.rounds == 1) && rounds(first.0) != rounds(other.0) => Some(Untested::OtherRounds),
            _ => None,
        },
        MetricKind::Outcome => {
            let is_of_one = is_any(&|one| one.model == SampleModel::Executions);
            (is_of_one && seeds(first.0) != seeds(other.0)).then_some(Untested::Confounded)
        }
    }
}

/// Returns both sides with only the attempts of one round, if all attempts of one side and some of the other are of
/// that round. `None` if a side has too few attempts in it for a t-test. `None` also if both ran on three or more
/// machines: machines are blocks whatever the rounds are, because rounds are of a sweep on all machines.
pub(super) fn in_common_round(first: &Contender, other: &Contender) -> Option<(Contender, Contender)> {
    if [first, other].iter().all(|one| machines(one).is_some_and(|machines| machines.len() >= PAIRS)) {
        return None;
    }
    let (a, b) = (rounds(first), rounds(other));
    let round = [&a, &b].into_iter().find_map(single)?;
    let of_round = |one: &Contender| one.with(|measured| measured.round == Some(round));
    let is_common = a != b && a.contains(&Some(round)) && b.contains(&Some(round));
    let (first, other) =
        (first.kind == MetricKind::Measured && is_common).then(|| (of_round(first), of_round(other)))?;
    (first.measured.len().min(other.measured.len()) >= PAIRS).then_some((first, other))
}

/// Returns the configurations with only those attempts that ran on machines common to all. `None` if all ran on the
/// same machines, if a record does not name its machine, or if there are too few common machines for a paired test.
pub(super) fn on_common_machines(contenders: &[&Contender]) -> Option<Vec<Contender>> {
    if contenders.iter().any(|one| one.kind != MetricKind::Measured) {
        return None;
    }
    let all: Vec<BTreeSet<u64>> = contenders.iter().map(|one| machines(one)).collect::<Option<_>>()?;
    let complete: Vec<BTreeSet<u64>> = contenders.iter().map(|one| complete_machines(one)).collect::<Option<_>>()?;
    let common = complete.into_iter().reduce(|a, b| &a & &b)?;
    if common.len() < PAIRS || all.iter().all(|set| *set == common) {
        return None;
    }
    let is_on_these = |one: &Measured| common.contains(&one.replicate.machine);
    Some(contenders.iter().map(|one| one.with(is_on_these)).collect())
}

/// Whether a paired test may use this many common blocks: three or more. Common seeds and rounds also have to be at
/// least half of those of the side with the most. For machines this is not needed, because errors of other machines'
/// sensors do not average out.
fn can_be_paired(block: Block, common: usize, most: usize) -> bool {
    common >= PAIRS && (block == Block::Machine || 2 * common >= most)
}

/// The one round of these, if there is no other.
fn single(rounds: &BTreeSet<Option<u64>>) -> Option<u64> {
    rounds.iter().next().copied().flatten().filter(|_| rounds.len() == 1)
}

/// Whether all attempts of both sides are of one round.
pub(super) fn are_of_one_round(first: &Contender, other: &Contender) -> bool {
    let own = rounds(first);
    single(&own).is_some() && rounds(other) == own
}

/// The rounds of a configuration, with `None` for an attempt without a round.
fn rounds(contender: &Contender) -> BTreeSet<Option<u64>> {
    contender.measured.iter().map(|one| one.round).collect()
}

/// Tests the differences within common blocks: seeds of outcomes, and for measured metrics rounds on one machine, or
/// three or more machines.
fn paired(first: &Contender, other: &Contender, scale: Scale) -> Option<Judged> {
    if first.kind == MetricKind::Measured && machines(first).is_none_or(|own| machines(other) != Some(own)) {
        return None;
    }
    let ((block, of_first), (_, of_other)) = (blocks_of(first), blocks_of(other));
    pairs(&of_first, &of_other, scale, block)
}

/// The blocks of a configuration: seeds of outcomes, and for measured metrics rounds on one machine, or machines.
pub(super) fn blocks_of(contender: &Contender) -> (Block, BTreeMap<u64, f64>) {
    if contender.kind == MetricKind::Outcome {
        let seed = |one: &Measured| one.replicate.is_seeded().then_some(one.replicate.seed);
        return (Block::Seed, blocks(contender, seed));
    }
    match machines(contender).map_or(0, |machines| machines.len()) {
        0 => (Block::Machine, BTreeMap::new()),
        1 => (Block::Round, blocks(contender, |one| one.round)),
        _ => (Block::Machine, blocks(contender, |one| Some(one.replicate.machine))),
    }
}

/// Tests the differences within the blocks that both sides have.
fn pairs(first: &BTreeMap<u64, f64>, other: &BTreeMap<u64, f64>, scale: Scale, block: Block) -> Option<Judged> {
    let Differences { shift, by_block } = differences(first, other, scale, block)?;
    let n = by_block.len();
    let differences: Vec<f64> = by_block.into_values().collect();
    let variance = Summary::of(&differences)?.variance? / number(n);
    let (degrees, method) = (number(n) - 1.0, Method::Paired(block, n));
    let shift = Some(shift).filter(|shift| shift.is_finite());
    Some(Judged { variance, degrees, systematic: 0.0, method, is_enough: true, shift })
}

/// The differences of two configurations within common blocks.
pub(super) struct Differences {
    /// The difference of the blocks' means; for a ratio, its logarithm. Blocks have equal weights however many attempts they have.
    pub(super) shift: f64,
    /// The difference within each block; for a ratio, values are in units of their side's mean.
    pub(super) by_block: BTreeMap<u64, f64>,
}

/// Returns the differences within common blocks; `None` if there are too few for a paired test.
pub(super) fn differences(
    first: &BTreeMap<u64, f64>,
    other: &BTreeMap<u64, f64>,
    scale: Scale,
    block: Block,
) -> Option<Differences> {
    let common: BTreeMap<u64, (f64, f64)> =
        first.iter().filter_map(|(key, value)| Some((*key, (*value, *other.get(key)?)))).collect();
    if !can_be_paired(block, common.len(), first.len().max(other.len())) {
        return None;
    }
    let (a, b): (Vec<f64>, Vec<f64>) = common.values().copied().unzip();
    let means = (mean(&a), mean(&b));
    let units = if scale == Scale::Ratio { means } else { (1.0, 1.0) };
    let by_block = common.into_iter().map(|(key, (a, b))| (key, b / units.1 - a / units.0)).collect();
    Some(Differences { shift: shift(means, scale), by_block })
}

/// Tests the differences within two common machines, or within two common rounds on one machine. With more blocks,
/// [`paired`] uses only the scatter between blocks; here that is pooled with the scatter within them. The sides may
/// have different variances. The difference is that of the blocks' means, so that a block's own effect cancels however
/// many attempts either side has in it.
pub(super) fn within(first: &Contender, other: &Contender, scale: Scale) -> Option<Judged> {
    let own = machines(first).filter(|own| machines(other).as_ref() == Some(own))?;
    let of_rounds = rounds(first);
    let block = match own.len() {
        _ if first.kind == MetricKind::Outcome => return None,
        2 => Block::Machine,
        1 if of_rounds.len() == 2 && !of_rounds.contains(&None) && rounds(other) == of_rounds => Block::Round,
        _ => return None,
    };
    let cells_of = |contender: &Contender| {
        let mut cells: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for one in &contender.measured {
            let cell = if block == Block::Round { one.round.unwrap_or_default() } else { one.replicate.machine };
            cells.entry(cell).or_default().push(one.value);
        }
        cells
    };
    let sides = [cells_of(first), cells_of(other)];
    let [a, b] = sides.each_ref().map(|cells| mean(&cells.values().map(|cell| mean(cell)).collect::<Vec<f64>>()));
    let units = if scale == Scale::Ratio { [a, b] } else { [1.0, 1.0] };
    let (mut variance, mut spread) = (0.0, 0.0);
    for (cells, unit) in sides.iter().zip(units) {
        let (mut squares, mut degrees, mut inverse) = (0.0, 0.0, 0.0);
        for cell in cells.values() {
            let middle = mean(cell);
            squares += cell.iter().map(|value| ((value - middle) / unit).powi(2)).sum::<f64>();
            degrees += number(cell.len()) - 1.0;
            inverse += 1.0 / number(cell.len());
        }
        if degrees <= 0.0 {
            return None;
        }
        let part: f64 = squares / degrees * inverse / number(cells.len()).powi(2);
        variance += part;
        spread += part * part / degrees;
    }
    if spread > 0.0 {
        // The differences of the two blocks scatter as much, or more if the difference depends on the block: one more degree of freedom.
        let own = variance * variance / spread;
        let apart = sides[0].iter().zip(&sides[1]).map(|((_, a), (_, b))| mean(a) / units[0] - mean(b) / units[1]);
        let apart: Vec<f64> = apart.collect();
        let between = apart.first().zip(apart.last()).map_or(0.0, |(first, last)| ((first - last) / 2.0).powi(2));
        (variance, spread) = ((variance * own + between) / (own + 1.0), own + 1.0);
    }
    let degrees = if spread > 0.0 { spread } else { f64::INFINITY };
    let shift = Some(shift((a, b), scale)).filter(|shift| shift.is_finite());
    let method = Method::Within(block, 2);
    Some(Judged { variance, degrees, systematic: 0.0, method, is_enough: degrees >= 2.0, shift })
}

/// Tests two sides by Welch's test. `None` if the effect of their machines or rounds is part of the difference.
pub(super) fn independent(first: &Contender, other: &Contender, scale: Scale) -> Option<Judged> {
    let (a, b) = (first.estimate()?, other.estimate()?);
    if confounded((first, &a), (other, &b)).is_some() {
        return None;
    }
    let shift = Some(shift((a.mean, b.mean), scale)).filter(|shift| shift.is_finite());
    welch((&a, &b), scale).map(|judged| Judged { shift, ..judged })
}

fn welch((a, b): (&Estimate, &Estimate), scale: Scale) -> Option<Judged> {
    let units = units((a, b), scale);
    let part = |estimate: &Estimate, unit: f64| Some(((estimate.standard_error? / unit).powi(2), estimate.degrees));
    let parts = [part(a, units.0)?, part(b, units.1)?];
    let variance: f64 = parts.iter().map(|(variance, _)| variance).sum();
    let spread: f64 = parts.iter().map(|(variance, degrees)| variance * variance / degrees).sum();
    let degrees = if spread > 0.0 { variance * variance / spread } else { f64::INFINITY };
    Some(Judged {
        variance,
        degrees,
        systematic: 0.0,
        method: Method::Welch,
        is_enough: a.units.len().min(b.units.len()) > 2,
        shift: None,
    })
}

#[cfg(test)]
mod tests;
