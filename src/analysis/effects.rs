//! The effects of each axis of an experiment on a metric, alone and in pairs.
//!
//! Knows observations with named factors. An analysis of variance with sums of squares of type II: each term is tested
//! in the model of all terms that do not contain it. This suits unbalanced designs (Langsrud, "ANOVA for unbalanced
//! data: use type II instead of type III sums of squares", 2003).

mod factor;
mod observation;
mod scale;

pub use factor::{Factor, Relation};
pub use observation::{Observation, Observations, observations};
pub use scale::{Contrast, ModelScale};

use super::comparison::{SIGNIFICANCE, holm};
use super::distribution::{above, reach_of_many};
use super::regression::{BLOCK, Fit, Reduced, fit};
use super::statistic::number;
use crate::record::{self, Direction};

/// The result of an analysis of variance for one term.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Its sum of squares.
    pub squares: f64,
    /// Its degrees of freedom.
    pub degrees: usize,
    /// Its sum of squares as a share of the total one: eta squared.
    pub eta_squared: f64,
    /// Its sum of squares as a share of its own and the residual one; `None` without residual degrees of freedom.
    pub partial_eta_squared: Option<f64>,
    /// The ratio of its mean square to that of the residuals.
    pub f: Option<f64>,
    /// Its p-value.
    pub p: Option<f64>,
    /// The p-value, corrected for the number of terms by Holm's method.
    pub corrected: Option<f64>,
}

impl Share {
    /// Whether the term is significant; `None` if it was not tested.
    pub fn is_significant(&self) -> Option<bool> {
        self.corrected.map(|p| p < SIGNIFICANCE)
    }
}

/// The effect of one axis, with the others held constant.
#[derive(Clone, Debug, PartialEq)]
pub struct MainEffect {
    /// The index of the axis among the factors.
    pub factor: usize,
    /// Its share of the variance.
    pub share: Share,
    /// The arithmetic mean of the observations at each level.
    pub means: Vec<f64>,
    /// The mean at each level, adjusted for the other axes: over all observations as they are spread over the other
    /// axes. On the log scale they are geometric means. `None` if the axis cannot be separated from the others, because
    /// its values occur only together with some of theirs.
    pub adjusted: Option<Vec<f64>>,
    /// The two levels that are compared. For an ordered axis they are the first and the last, otherwise those with the
    /// lowest and the highest adjusted mean.
    pub between: (usize, usize),
    /// The difference of their adjusted means, the second minus the first. `None` as for `adjusted`.
    pub contrast: Option<Contrast>,
    /// The level with the best adjusted mean. `None` if the direction is unknown, and as for `adjusted`.
    pub best: Option<usize>,
    /// The extreme between the first and the last level of an ordered axis, if there is one: the best level, else
    /// another extreme that differs significantly from both ends.
    pub inner: Option<Inner>,
}

/// An extreme of an ordered axis at a level that is neither the first nor the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Inner {
    /// The level.
    pub level: usize,
    /// The kind of extreme.
    pub extreme: Extreme,
    /// The first and the last level, each compared with that level. The intervals hold for all pairs of levels at once,
    /// by Bonferroni, since the extreme was chosen after the means were known.
    pub ends: [Contrast; 2],
}

/// Which extreme a level is, by its adjusted mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extreme {
    /// The best.
    Best,
    /// The worst.
    Worst,
    /// The lowest, if the direction is unknown.
    Lowest,
    /// The highest, if the direction is unknown.
    Highest,
}

impl Extreme {
    /// The word in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Worst => "worst",
            Self::Lowest => "lowest",
            Self::Highest => "highest",
        }
    }
}

/// The change of the effect of one axis with another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Interaction {
    /// The indices of the axes among the factors.
    pub factors: (usize, usize),
    /// Its share of the variance.
    pub share: Share,
    /// The difference of the first axis' two compared levels at each level of the second axis, in the model of all
    /// axes, blocks and this interaction. `None` if one of the two was not observed, or if they cannot be separated
    /// from the other axes and the blocks.
    pub at: Vec<Option<Contrast>>,
}

/// All effects on one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Effects {
    /// The scale of the analysis.
    pub scale: ModelScale,
    /// The arithmetic mean of all observations.
    pub mean: f64,
    /// Their geometric mean, on the log scale.
    pub geometric_mean: Option<f64>,
    /// The number of observations.
    pub n: usize,
    /// The degrees of freedom of the residuals.
    pub residual_degrees: usize,
    /// The share of the variance that no term explains.
    pub unexplained: f64,
    /// The effect of each axis, the largest share first.
    pub main: Vec<MainEffect>,
    /// The interaction of each pair, the largest share first.
    pub interactions: Vec<Interaction>,
    /// Why pairs are not analysed; `None` if they are, or if there are none.
    pub without_pairs: Option<&'static str>,
    /// The share of the variance that the blocks explain in addition to all terms; `None` without blocks.
    pub blocks: Option<f64>,
    /// The share of the variance that the axes without a contrast and their pairs explain together, without what each
    /// explains alone; `None` if all axes have one.
    pub shared: Option<f64>,
}

impl Effects {
    /// The sum of the shares of all terms, the blocks and the residuals: 1 in a balanced design. It is more where terms
    /// explain some of the variance twice, and less where they explain some of it only together.
    fn shares(&self) -> f64 {
        let terms = self.main.iter().map(|effect| effect.share).chain(self.interactions.iter().map(|pair| pair.share));
        terms.map(|share| share.eta_squared).sum::<f64>() + self.blocks.unwrap_or(0.0) + self.unexplained
    }

    /// Whether the shares sum to more than 100%.
    pub fn overlap(&self) -> bool {
        self.shares() > 1.0 + 1e-3
    }

    /// The share of the variance that terms and blocks explain only together, for example because they occur in unequal
    /// combinations. It excludes what the axes without a contrast share. 0 in a balanced design. `None` if terms
    /// explain some of it twice.
    pub fn of_no_term(&self) -> Option<f64> {
        let rest = 1.0 - self.shares() - self.shared.unwrap_or(0.0);
        // In a balanced design only rounding is left.
        (rest > -1e-9).then_some(rest.max(0.0))
    }
}

/// The most multiplications for which terms are analysed. More would take longer than a person waits.
const MOST_WORK: f64 = 2e9;

/// Whether the axes alone, without their pairs, can be analysed in a time that a person waits.
pub fn is_feasible(factors: &[Factor]) -> bool {
    let observations = factors.first().map_or(0, |factor| factor.of.len());
    let columns: usize = factors.iter().map(|factor| factor.levels.len() - 1).sum();
    work(observations, columns, factors.len()) <= MOST_WORK
}

fn work(observations: usize, columns: usize, terms: usize) -> f64 {
    number(observations) * number(columns).powi(2) * number(terms)
}

/// Each pair of `count` factors, by their indices.
fn pairs_of(count: usize) -> Vec<(usize, usize)> {
    (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))).collect()
}

/// The number of columns of the factors, the blocks and these pairs of factors.
fn columns_of(factors: &[Factor], blocks: &[Factor], pairs: &[(usize, usize)]) -> usize {
    let wide = |factor: &Factor| factor.levels.len() - 1;
    let of_pairs = pairs.iter().map(|(a, b)| wide(&factors[*a]) * wide(&factors[*b]));
    factors.iter().chain(blocks).map(wide).sum::<usize>() + of_pairs.sum::<usize>()
}

/// The columns of a linear model, reduced to few rows: see [`Reduced`].
struct Model {
    y: Vec<f64>,
    /// The columns that belong to every model: the mean, and blocks.
    held: Vec<Vec<f64>>,
    terms: Vec<Vec<Vec<f64>>>,
}

impl Model {
    /// Creates the mean, the blocks and a term for each factor, and for each of these pairs of factors the products of their columns.
    fn new(factors: &[Factor], blocks: &[Factor], pairs: &[(usize, usize)], y: &[f64]) -> Self {
        let product = |x: &Vec<f64>, z: &Vec<f64>| -> Vec<f64> { x.iter().zip(z).map(|(x, z)| x * z).collect() };
        let mut widths: Vec<usize> = factors.iter().map(|factor| factor.levels.len() - 1).collect();
        widths.extend(pairs.iter().map(|(a, b)| widths[*a] * widths[*b]).collect::<Vec<_>>());
        let held = 1 + blocks.iter().map(|blocks| blocks.levels.len() - 1).sum::<usize>();
        let block = |first: usize| {
            let here = first..(first + BLOCK).min(y.len());
            let terms: Vec<Vec<Vec<f64>>> = factors.iter().map(|factor| factor.columns(here.clone())).collect();
            let products = pairs.iter().flat_map(|(a, b)| {
                let (a, b) = (&terms[*a], &terms[*b]);
                a.iter().flat_map(move |x| b.iter().map(move |z| product(x, z)))
            });
            let products: Vec<Vec<f64>> = products.collect();
            let mut columns = vec![vec![1.0; here.len()]];
            columns.extend(blocks.iter().flat_map(|blocks| blocks.columns(here.clone())));
            columns.extend(terms.into_iter().flatten());
            columns.extend(products);
            columns.push(y[here].to_vec());
            columns
        };
        let columns = if y.len() <= BLOCK {
            block(0)
        } else {
            let mut reduced = Reduced::new(held + widths.iter().sum::<usize>() + 1);
            (0..y.len()).step_by(BLOCK).for_each(|first| reduced.push(block(first)));
            reduced.columns()
        };
        let mut columns = columns.into_iter();
        let held = columns.by_ref().take(held).collect();
        let terms = widths.into_iter().map(|width| columns.by_ref().take(width).collect()).collect();
        Self { y: columns.next().unwrap_or_default(), held, terms }
    }

    /// Residual sum of squares and rank of the model with these terms, the mean and the blocks.
    fn residual(&self, holds: impl Fn(usize) -> bool) -> (f64, usize) {
        let mut columns = self.held.clone();
        let terms = self.terms.iter().enumerate().filter(|(at, _)| holds(*at));
        terms.for_each(|(_, term)| columns.extend(term.iter().cloned()));
        let found = fit(&columns, &self.y);
        (found.residual, found.rank)
    }
}

/// Analyses every axis and every pair of axes. Returns `None` if nothing varies, or if the scale does not allow the
/// values. Without a direction, no level is the best. `blocks` are not axes but part of every model, such as common
/// seeds, machines, or versions of a program.
pub fn effects(
    factors: &[Factor],
    values: &[f64],
    scale: ModelScale,
    direction: Option<Direction>,
    blocks: &[Factor],
) -> Option<Effects> {
    if !scale.takes(values) {
        return None;
    }
    let n = values.len();
    let analysed: Vec<f64> = values.iter().map(|value| scale.apply(*value)).collect();
    let y = analysed.as_slice();
    let mean = record::mean(y);
    let total: f64 = y.iter().map(|y| (y - mean).powi(2)).sum();
    if factors.is_empty() || total <= 0.0 || !total.is_finite() {
        return None;
    }
    let count = factors.len();
    let mut pairs = pairs_of(count);
    let columns = columns_of(factors, blocks, &pairs);
    let is_too_much = work(n, columns, count + pairs.len()) > MOST_WORK;
    let mut without_pairs = is_too_much.then_some("there are too many combinations (--axes chooses)");
    if is_too_much || columns >= n {
        pairs.clear();
    }
    let mut model = Model::new(factors, blocks, &pairs, y);
    let (mut residual, mut rank) = if pairs.is_empty() { (total, n) } else { model.residual(|_| true) };
    if rank >= n {
        // Each observation has its own term: interactions cannot be tested.
        without_pairs = without_pairs
            .or((count > 1)
                .then_some("they would leave no residual degrees of freedom (--axes with fewer axes, or more attempts by `ledger run MANIFEST --repeat N`)"));
        pairs.clear();
        model.terms.truncate(count);
        (residual, rank) = model.residual(|_| true);
    }
    let spare = n.saturating_sub(rank);
    let contains = |term: usize, factor: usize| {
        term == factor || term >= count && [pairs[term - count].0, pairs[term - count].1].contains(&factor)
    };
    let mut shares: Vec<Share> = (0..model.terms.len())
        .map(|term| {
            let others = |other: usize| if term < count { !contains(other, term) } else { other != term };
            let (without, fewer) = model.residual(others);
            let (with, more) = model.residual(|other| others(other) || other == term);
            let is_testable = (0..count).all(|factor| !factors[factor].is_of_machines || !contains(term, factor));
            share((without - with).max(0.0), more - fewer, total, (residual, spare), is_testable)
        })
        .collect();
    let tested: Vec<f64> = shares.iter().filter_map(|share| share.p).collect();
    let mut corrected = holm(&tested).into_iter();
    shares.iter_mut().filter(|share| share.p.is_some()).for_each(|share| share.corrected = corrected.next());
    let deviation = scatters(residual, total).then(|| (residual / number(spare)).sqrt()).filter(|_| spare > 0);
    let chance = |is_of_machines: bool| Chance { deviation: deviation.filter(|_| !is_of_machines), degrees: spare };
    let question = Question { factors, values, scale, direction };
    let mut main: Vec<MainEffect> = (0..count)
        .map(|at| main_effect(&question, &model, y, at, shares[at], chance(factors[at].is_of_machines)))
        .collect();
    let between: Vec<(usize, usize)> = main.iter().map(|effect| effect.between).collect();
    let mut interactions: Vec<Interaction> = pairs
        .iter()
        .zip(&shares[count..])
        .enumerate()
        .map(|(place, (pair, share))| Interaction {
            factors: *pair,
            share: *share,
            at: simple_effects(
                factors,
                &model,
                (*pair, count + place),
                between[pair.0],
                chance(factors[pair.0].is_of_machines),
            ),
        })
        .collect();
    let inseparable: Vec<usize> =
        main.iter().filter(|effect| effect.contrast.is_none()).map(|effect| effect.factor).collect();
    let shared = (!inseparable.is_empty()).then(|| {
        let is_of_them = |term: usize| inseparable.iter().any(|axis| contains(term, *axis));
        let (without, _) = model.residual(|term| !is_of_them(term));
        let alone: f64 = (0..shares.len()).filter(|term| is_of_them(*term)).map(|term| shares[term].squares).sum();
        (without - residual - alone).max(0.0) / total
    });
    let blocks = (!blocks.is_empty()).then(|| {
        model.held.truncate(1);
        let (without, _) = model.residual(|_| true);
        (without - residual).max(0.0) / total
    });
    main.sort_by(|a, b| b.share.squares.total_cmp(&a.share.squares));
    interactions.sort_by(|a, b| b.share.squares.total_cmp(&a.share.squares));
    Some(Effects {
        scale,
        mean: record::mean(values),
        geometric_mean: (scale == ModelScale::Log).then(|| scale.undo(mean)),
        n,
        residual_degrees: spare,
        unexplained: residual / total,
        main,
        interactions,
        without_pairs,
        blocks,
        shared,
    })
}

/// Returns for each factor the p-value of its interaction with `other`, corrected by Holm's method. Pairs of the factors
/// and the blocks are part of the model.
///
/// `None` for a factor that only machines determine, and for one whose interaction cannot be separated from other terms.
/// `None` for all if the model leaves no residual degrees of freedom or is too large, if values do not scatter around it,
/// and if the scale does not allow them.
pub fn interactions_with(
    other: &Factor,
    factors: &[Factor],
    values: &[f64],
    scale: ModelScale,
    blocks: &[Factor],
) -> Vec<Option<f64>> {
    let count = factors.len();
    let mut pairs = pairs_of(count);
    let own = count + 1 + pairs.len();
    pairs.extend((0..count).map(|at| (at, count)));
    let all: Vec<Factor> = factors.iter().chain([other]).cloned().collect();
    let columns = columns_of(&all, blocks, &pairs);
    let is_too_much = work(values.len(), columns, all.len() + pairs.len()) > MOST_WORK;
    if !scale.takes(values) || is_too_much || columns >= values.len() {
        return vec![None; count];
    }
    let y: Vec<f64> = values.iter().map(|value| scale.apply(*value)).collect();
    let model = Model::new(&all, blocks, &pairs, &y);
    let (residual, rank) = model.residual(|_| true);
    let mean = record::mean(&y);
    let total: f64 = y.iter().map(|value| (value - mean).powi(2)).sum();
    let p_value = |at: usize| {
        let (without, fewer) = model.residual(|held| held != own + at);
        let spare = (residual, y.len().saturating_sub(rank));
        share((without - residual).max(0.0), rank - fewer, total, spare, !factors[at].is_of_machines).p
    };
    let found: Vec<Option<f64>> = (0..count).map(p_value).collect();
    let tested: Vec<f64> = found.iter().filter_map(|p| *p).collect();
    let mut corrected = holm(&tested).into_iter();
    found.into_iter().map(|p| p.and_then(|_| corrected.next())).collect()
}

/// Whether residuals are larger than the rounding of the sums of squares.
fn scatters(residual: f64, total: f64) -> bool {
    residual > 1e-18 * total
}

fn share(squares: f64, degrees: usize, total: f64, (residual, spare): (f64, usize), is_testable: bool) -> Share {
    let is_testable = is_testable && spare > 0 && degrees > 0 && scatters(residual, total);
    let f = is_testable.then(|| squares / number(degrees) / (residual / number(spare)));
    Share {
        squares,
        degrees,
        eta_squared: squares / total,
        partial_eta_squared: (spare > 0 && squares + residual > 0.0).then(|| squares / (squares + residual)),
        f,
        p: f.and_then(|f| above(f, number(degrees), number(spare))),
        corrected: None,
    }
}

/// The input of the analysis of each axis.
struct Question<'a> {
    factors: &'a [Factor],
    /// The metric, as it was observed.
    values: &'a [f64],
    scale: ModelScale,
    direction: Option<Direction>,
}

/// The residuals: their standard deviation, if they scatter, and their degrees of freedom.
#[derive(Clone, Copy)]
struct Chance {
    deviation: Option<f64>,
    degrees: usize,
}

/// The levels of one axis in the model of all axes without interactions.
struct Levels {
    fit: Fit,
    /// The number of columns.
    columns: usize,
    /// The column of the axis' second level; its first level has none.
    first: usize,
    chance: Chance,
}

impl Levels {
    fn weights(&self, from: usize, to: usize) -> Vec<f64> {
        let mut all = vec![0.0; self.columns];
        for (level, sign) in [(from, -1.0), (to, 1.0)] {
            if level > 0 {
                all[self.first + level - 1] += sign;
            }
        }
        all
    }

    /// The difference of two adjusted means, with the interval of one of several that are to hold at once.
    fn contrast(&self, from: usize, to: usize, chosen_from: usize) -> Contrast {
        let weights = self.weights(from, to);
        let reach = reach_of_many(number(self.chance.degrees), chosen_from);
        let half_width =
            self.chance.deviation.zip(reach).map(|(deviation, reach)| deviation * reach * self.fit.error(&weights));
        Contrast { difference: self.fit.contrast(&weights), half_width }
    }
}

fn main_effect(
    question: &Question<'_>,
    model: &Model,
    y: &[f64],
    at: usize,
    share: Share,
    chance: Chance,
) -> MainEffect {
    let Question { factors, values, scale, direction } = *question;
    let factor = &factors[at];
    let levels = factor.levels.len();
    let mut columns = model.held.clone();
    let mut first = columns.len();
    for (other, term) in model.terms.iter().take(factors.len()).enumerate() {
        if other == at {
            first = columns.len();
        }
        columns.extend(term.iter().cloned());
    }
    let all = Levels { fit: fit(&columns, &model.y), columns: columns.len(), first, chance };
    let (_, without) = model.residual(|term| term < factors.len() && term != at);
    let is_estimable = all.fit.rank - without == levels - 1;
    let means = |y: &[f64]| -> Vec<f64> { (0..levels).map(|level| factor.mean(level, y)).collect() };
    let order: Vec<f64> = if is_estimable {
        (0..levels).map(|level| all.fit.contrast(&all.weights(0, level))).collect()
    } else {
        means(y)
    };
    let offset = record::mean(y) - factor.of.iter().map(|level| order[*level]).sum::<f64>() / number(y.len());
    let pairs = levels * (levels - 1) / 2;
    let last = levels - 1;
    let (between, chosen_from) = if factor.is_ordered() || levels == 2 {
        ((0, last), 1)
    } else {
        // Chosen after the means were known, among all pairs.
        ((lowest(&order, 1.0), lowest(&order, -1.0)), pairs)
    };
    let extremes = match direction {
        Some(Direction::Minimize) => [(1.0, Extreme::Best), (-1.0, Extreme::Worst)],
        Some(Direction::Maximize) => [(-1.0, Extreme::Best), (1.0, Extreme::Worst)],
        None => [(1.0, Extreme::Lowest), (-1.0, Extreme::Highest)],
    }
    .map(|(sign, extreme)| (lowest(&order, sign), extreme));
    let inner = |(level, extreme): (usize, Extreme)| {
        let ends = [0, last].map(|end| all.contrast(level, end, pairs));
        let is_told = extreme == Extreme::Best || ends.iter().all(|end| end.is_apart() == Some(true));
        (factor.is_ordered() && (1..last).contains(&level) && is_told).then_some(Inner { level, extreme, ends })
    };
    let best = extremes.into_iter().find(|(_, extreme)| *extreme == Extreme::Best).map(|(level, _)| level);
    MainEffect {
        factor: at,
        share,
        means: means(values),
        adjusted: is_estimable.then(|| order.iter().map(|mean| scale.undo(mean + offset)).collect()),
        between,
        contrast: is_estimable.then(|| all.contrast(between.0, between.1, chosen_from)),
        best: best.filter(|_| is_estimable),
        inner: extremes.into_iter().filter(|_| is_estimable && !factor.is_of_machines).find_map(inner),
    }
}

/// The index of the smallest number times `sign`. Among numbers that differ only by rounding, the first or the last one is preferred.
fn lowest(numbers: &[f64], sign: f64) -> usize {
    let smallest = numbers.iter().fold(f64::INFINITY, |least, value| least.min(sign * value));
    let room = 1e-12 * numbers.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    let is_smallest = |at: &usize| sign * numbers[*at] <= smallest + room;
    [0, numbers.len() - 1].into_iter().chain(0..numbers.len()).find(is_smallest).unwrap_or(0)
}

/// Returns the difference of two levels of a pair's first axis at each level of its second one; `term` is the index of the pair's term.
fn simple_effects(
    factors: &[Factor],
    model: &Model,
    ((first, second), term): ((usize, usize), usize),
    (low, high): (usize, usize),
    chance: Chance,
) -> Vec<Option<Contrast>> {
    let held = |of: usize| of < factors.len() || of == term;
    let mut columns = model.held.clone();
    let mut starts = vec![0; model.terms.len()];
    for (of, columns_of_term) in model.terms.iter().enumerate().filter(|(of, _)| held(*of)) {
        starts[of] = columns.len();
        columns.extend(columns_of_term.iter().cloned());
    }
    let found = fit(&columns, &model.y);
    let reach = reach_of_many(number(chance.degrees), 1);
    let levels = factors[second].levels.len();
    let contrast = |at: usize| {
        let mut weights = vec![0.0; columns.len()];
        for (level, sign) in [(low, -1.0), (high, 1.0)].into_iter().filter(|(level, _)| *level > 0) {
            weights[starts[first] + level - 1] += sign;
            if at > 0 {
                weights[starts[term] + (level - 1) * (levels - 1) + at - 1] += sign;
            }
        }
        found.is_estimable(&weights).then(|| {
            let half_width =
                chance.deviation.zip(reach).map(|(deviation, reach)| deviation * reach * found.error(&weights));
            Contrast { difference: found.contrast(&weights), half_width }
        })
    };
    (0..levels).map(contrast).collect()
}

#[cfg(test)]
mod tests;
