//! What each axis of an experiment does to a metric, alone and together with another one.
//!
//! Knows observations with named factors. An analysis of variance with sums of squares of type II: each term is judged beside all terms that do
//! not contain it (Langsrud, "ANOVA for unbalanced data: use type II instead of type III sums of squares", 2003), so that designs with holes are
//! treated fairly.

use super::comparison::{SIGNIFICANCE, holm};
use super::distribution::{above, reach_of_many};
use super::regression::fit;
use super::statistic::number;
use crate::record::{self, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// An axis of the experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    /// The field's full name.
    pub name: String,
    /// Its values, numbers in their order.
    pub levels: Vec<Value>,
    /// The level of each observation.
    pub of: Vec<usize>,
}

impl Factor {
    /// A factor from the value of each observation; none where fewer than two differ.
    pub fn new(name: &str, values: &[Value]) -> Option<Self> {
        let mut levels: BTreeMap<_, Value> = BTreeMap::new();
        values.iter().for_each(|value| {
            levels.entry(value.digest()).or_insert_with(|| value.clone());
        });
        let mut levels: Vec<Value> = levels.into_values().collect();
        levels.sort_by(|a, b| match (a.as_float(), b.as_float()) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a.to_string().cmp(&b.to_string()),
        });
        let at = |value: &Value| levels.iter().position(|level| level.digest() == value.digest()).unwrap_or(0);
        let of = values.iter().map(at).collect();
        (levels.len() > 1).then(|| Self { name: name.to_owned(), levels, of })
    }

    /// Whether its levels have an order.
    pub fn is_ordered(&self) -> bool {
        self.levels.iter().all(|level| level.as_float().is_some())
    }

    /// Whether both part the observations in the same way.
    pub fn is_like(&self, other: &Self) -> bool {
        let mut there: BTreeMap<usize, usize> = BTreeMap::new();
        self.levels.len() == other.levels.len()
            && self.of.iter().zip(&other.of).all(|(a, b)| *there.entry(*a).or_insert(*b) == *b)
    }

    /// A column for each level but the first.
    fn columns(&self) -> Vec<Vec<f64>> {
        let column = |level| self.of.iter().map(|at| if *at == level { 1.0 } else { 0.0 }).collect();
        (1..self.levels.len()).map(column).collect()
    }

    fn mean(&self, level: usize, y: &[f64], keep: &dyn Fn(usize) -> bool) -> Option<f64> {
        let of_level = self.of.iter().zip(y).enumerate().filter(|(at, (own, _))| **own == level && keep(*at));
        let values: Vec<f64> = of_level.map(|(_, (_, y))| *y).collect();
        (!values.is_empty()).then(|| record::mean(&values))
    }
}

/// What an analysis of variance says of one term.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Its sum of squares.
    pub squares: f64,
    /// Its degrees of freedom.
    pub degrees: usize,
    /// Its sum of squares as a share of the total one: eta squared.
    pub eta_squared: f64,
    /// As a share of its own and the residual one; none where nothing is left for residuals.
    pub partial_eta_squared: Option<f64>,
    /// The ratio of its mean square to that of the residuals.
    pub f: Option<f64>,
    /// The probability that chance alone makes so large a ratio.
    pub p: Option<f64>,
    /// That, corrected for the number of terms by Holm's method.
    pub corrected: Option<f64>,
}

impl Share {
    /// Whether the term is more than chance; none where that cannot be tested.
    pub fn is_significant(&self) -> Option<bool> {
        self.corrected.map(|p| p < SIGNIFICANCE)
    }
}

/// The effect of one axis, the others held.
#[derive(Clone, Debug, PartialEq)]
pub struct MainEffect {
    /// The axis, by its place among the factors.
    pub factor: usize,
    /// Its share of the variance.
    pub share: Share,
    /// The mean of the observations at each level.
    pub means: Vec<f64>,
    /// The two levels that are compared: of an ordered axis the first and the last, else those with the lowest and the highest adjusted mean.
    pub between: (usize, usize),
    /// The difference of their adjusted means, the second less the first; none where the axis cannot be told from the others, because its values
    /// occur only together with some of theirs.
    pub difference: Option<f64>,
    /// The adjusted mean of the first of the two: over all observations as they are spread over the other axes. What the difference is a share of.
    pub base: f64,
    /// Half the width of its 95% interval.
    pub half_width: Option<f64>,
}

/// How the effect of one axis changes with another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Interaction {
    /// The axes, by their places among the factors.
    pub factors: (usize, usize),
    /// Its share of the variance.
    pub share: Share,
    /// At each level of the second axis the means at the two compared levels of the first; none where there is no observation.
    pub at: Vec<(Option<f64>, Option<f64>)>,
}

/// All effects on one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Effects {
    /// The mean of all observations.
    pub mean: f64,
    /// How many there are.
    pub n: usize,
    /// The degrees of freedom of the residuals.
    pub residual_degrees: usize,
    /// The share of the variance that no term explains.
    pub unexplained: f64,
    /// Of each axis, the largest share first.
    pub main: Vec<MainEffect>,
    /// Of each pair, the largest share first.
    pub interactions: Vec<Interaction>,
    /// Why pairs are not judged; none where they are, or there is none.
    pub without_pairs: Option<&'static str>,
}

/// Pairs that would take more multiplications than this are not judged: it would take longer than a person waits.
const MOST_WORK: f64 = 2e9;

struct Model<'a> {
    y: &'a [f64],
    terms: Vec<Vec<Vec<f64>>>,
}

impl Model<'_> {
    /// Adds a term for each of these pairs of terms: the products of their columns.
    fn add_products(&mut self, pairs: &[(usize, usize)]) {
        let product = |x: &Vec<f64>, z: &Vec<f64>| x.iter().zip(z).map(|(x, z)| x * z).collect();
        for (a, b) in pairs {
            let products = self.terms[*a].iter().flat_map(|x| self.terms[*b].iter().map(move |z| product(x, z)));
            let products = products.collect();
            self.terms.push(products);
        }
    }

    /// Residual sum of squares and rank with these terms, the mean among them.
    fn residual(&self, holds: impl Fn(usize) -> bool) -> (f64, usize) {
        let mut columns = vec![vec![1.0; self.y.len()]];
        let held = self.terms.iter().enumerate().filter(|(at, _)| holds(*at));
        held.for_each(|(_, term)| columns.extend(term.iter().cloned()));
        let found = fit(&columns, self.y);
        (found.residual, found.rank)
    }
}

/// Judges every axis and every pair of axes. None where nothing varies, or there is no observation beyond what the axes need alone.
pub fn effects(factors: &[Factor], y: &[f64]) -> Option<Effects> {
    let n = y.len();
    let mean = record::mean(y);
    let total: f64 = y.iter().map(|y| (y - mean).powi(2)).sum();
    if factors.is_empty() || total <= 0.0 || !total.is_finite() {
        return None;
    }
    let count = factors.len();
    let mut pairs: Vec<(usize, usize)> = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))).collect();
    let mut model = Model { y, terms: factors.iter().map(Factor::columns).collect() };
    let (mut residual, mut rank) = (total, n);
    let mut without_pairs = None;
    let wide = |term: usize| model.terms[term].len();
    let columns = (0..count).map(wide).sum::<usize>() + pairs.iter().map(|(a, b)| wide(*a) * wide(*b)).sum::<usize>();
    if number(n) * number(columns).powi(2) * number(count + pairs.len()) > MOST_WORK {
        without_pairs = Some("there are too many combinations (--axes chooses)");
    } else if columns < n {
        model.add_products(&pairs);
        (residual, rank) = model.residual(|_| true);
    }
    if rank >= n {
        // Each observation has a term of its own: what two axes do together cannot be told from chance.
        without_pairs = without_pairs
            .or((count > 1).then_some("nothing is left to tell chance by (`ledger run --repeat N` adds attempts)"));
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
            share((without - with).max(0.0), more - fewer, total, residual, spare)
        })
        .collect();
    let tested: Vec<f64> = shares.iter().filter_map(|share| share.p).collect();
    let mut corrected = holm(&tested).into_iter();
    shares.iter_mut().filter(|share| share.p.is_some()).for_each(|share| share.corrected = corrected.next());
    let scale = scatters(residual, total).then(|| (residual / number(spare)).sqrt()).filter(|_| spare > 0);
    let mut main: Vec<MainEffect> =
        (0..count).map(|at| main_effect(factors, &model, at, shares[at], scale, spare)).collect();
    let between: Vec<(usize, usize)> = main.iter().map(|effect| effect.between).collect();
    let mut interactions: Vec<Interaction> = pairs
        .iter()
        .zip(&shares[count..])
        .map(|(pair, share)| interaction(factors, y, *pair, *share, &between))
        .collect();
    main.sort_by(|a, b| b.share.squares.total_cmp(&a.share.squares));
    interactions.sort_by(|a, b| b.share.squares.total_cmp(&a.share.squares));
    Some(Effects { mean, n, residual_degrees: spare, unexplained: residual / total, main, interactions, without_pairs })
}

/// Whether residuals are more than the rounding of the sums of squares.
fn scatters(residual: f64, total: f64) -> bool {
    residual > 1e-18 * total
}

fn share(squares: f64, degrees: usize, total: f64, residual: f64, spare: usize) -> Share {
    let is_testable = spare > 0 && degrees > 0 && scatters(residual, total);
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

/// Adjusted means are those of the model of all axes without interactions.
fn main_effect(
    factors: &[Factor],
    model: &Model<'_>,
    at: usize,
    share: Share,
    scale: Option<f64>,
    spare: usize,
) -> MainEffect {
    let factor = &factors[at];
    let mut columns = vec![vec![1.0; model.y.len()]];
    let mut first_column = 1;
    for (other, term) in model.terms.iter().take(factors.len()).enumerate() {
        if other == at {
            first_column = columns.len();
        }
        columns.extend(term.iter().cloned());
    }
    let found = fit(&columns, model.y);
    let (_, without) = model.residual(|term| term < factors.len() && term != at);
    let is_estimable = found.rank - without == factor.levels.len() - 1;
    let means: Vec<f64> =
        (0..factor.levels.len()).map(|level| factor.mean(level, model.y, &|_| true).unwrap_or(f64::NAN)).collect();
    let weights = |level: usize, sign: f64| (level > 0).then(|| (first_column + level - 1, sign));
    let contrast = |from: usize, to: usize| {
        let mut all = vec![0.0; columns.len()];
        weights(from, -1.0).into_iter().chain(weights(to, 1.0)).for_each(|(column, sign)| all[column] += sign);
        all
    };
    let adjusted = |level: usize| if is_estimable { found.contrast(&contrast(0, level)) } else { means[level] };
    let adjusted: Vec<f64> = (0..factor.levels.len()).map(adjusted).collect();
    let extreme = |sign: f64| {
        let order = |a: &usize, b: &usize| (sign * adjusted[*a]).total_cmp(&(sign * adjusted[*b]));
        (0..adjusted.len()).min_by(order).unwrap_or(0)
    };
    let (between, chosen_from) = if factor.is_ordered() || factor.levels.len() == 2 {
        ((0, factor.levels.len() - 1), 1)
    } else {
        // Chosen after looking, among all pairs.
        ((extreme(1.0), extreme(-1.0)), factor.levels.len() * (factor.levels.len() - 1) / 2)
    };
    let wanted = contrast(between.0, between.1);
    let offset = factor.of.iter().map(|level| adjusted[*level]).sum::<f64>() / number(factor.of.len());
    let reach = reach_of_many(number(spare), chosen_from);
    MainEffect {
        factor: at,
        share,
        means,
        between,
        difference: is_estimable.then(|| found.contrast(&wanted)),
        base: record::mean(model.y) + adjusted[between.0] - offset,
        half_width: scale
            .zip(reach)
            .filter(|_| is_estimable)
            .map(|(scale, reach)| scale * reach * found.error(&wanted)),
    }
}

fn interaction(
    factors: &[Factor],
    y: &[f64],
    pair: (usize, usize),
    share: Share,
    between: &[(usize, usize)],
) -> Interaction {
    let (first, second) = (&factors[pair.0], &factors[pair.1]);
    let (low, high) = between[pair.0];
    let at = (0..second.levels.len()).map(|level| {
        let here = |at: usize| second.of[at] == level;
        (first.mean(low, y, &here), first.mean(high, y, &here))
    });
    Interaction { factors: pair, share, at: at.collect() }
}

#[cfg(test)]
mod tests;
