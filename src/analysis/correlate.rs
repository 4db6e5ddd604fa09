//! How two quantities go together: correlations, a straight line, and whether two clusters hide in the points.
//!
//! Knows pairs of numbers. Must not know what they measure.

use super::distribution::{reach, two_sided};
use super::statistic::number;
use crate::record;

/// How two quantities go together over several points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correlation {
    /// How many points there are.
    pub n: usize,
    /// Pearson's coefficient.
    pub pearson: f64,
    /// Its 95% interval, by Fisher's transformation; none of fewer than four points.
    pub interval: Option<(f64, f64)>,
    /// The probability that chance alone makes it as large; none of two points.
    pub pearson_p: Option<f64>,
    /// Spearman's coefficient: Pearson's of the ranks, ties at their mean rank.
    pub spearman: f64,
    /// The probability of that: of up to 9 points exactly, over all orders of the ranks, else by Student's t.
    pub spearman_p: Option<f64>,
    /// The line of least squares: what the second quantity gains for each unit of the first.
    pub slope: f64,
    /// Half the width of the slope's 95% interval; none of two points.
    pub slope_half_width: Option<f64>,
    /// Where the line is at zero.
    pub intercept: f64,
}

impl Correlation {
    /// Pearson's coefficient and Spearman's; none of two points, through which there is always a line.
    pub fn coefficients(&self) -> Option<(f64, f64)> {
        (self.n > 2).then_some((self.pearson, self.spearman))
    }

    /// Over the points; none of fewer than two, or where either quantity does not vary.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let n = number(points.len());
        let xs: Vec<f64> = points.iter().map(|point| point.0).collect();
        let ys: Vec<f64> = points.iter().map(|point| point.1).collect();
        let sums = Sums::of(&xs, &ys);
        let pearson = sums.coefficient()?;
        let ranks = (ranks(&xs), ranks(&ys));
        let spearman = Sums::of(&ranks.0, &ranks.1).coefficient()?;
        let p = |r: f64| {
            let degrees = n - 2.0;
            (degrees > 0.0).then(|| two_sided(r * (degrees / (1.0 - r * r).max(0.0)).sqrt(), degrees)).flatten()
        };
        let slope = sums.xy / sums.xx;
        let residual = (sums.yy - slope * sums.xy).max(0.0);
        let error = (n > 2.0).then(|| (residual / (n - 2.0) / sums.xx).sqrt());
        let fisher = || {
            let half = reach(f64::INFINITY)? / (n - 3.0).sqrt();
            let z = pearson.clamp(-1.0, 1.0).atanh();
            Some(((z - half).tanh(), (z + half).tanh()))
        };
        Some(Self {
            n: points.len(),
            pearson,
            interval: if n > 3.0 { fisher() } else { None },
            pearson_p: p(pearson),
            spearman,
            spearman_p: match points.len() {
                0..3 => None,
                3..=MOST_ORDERED => Some(exact(&ranks.0, ranks.1)),
                _ => p(spearman),
            },
            slope,
            slope_half_width: error.and_then(|error| Some(error * reach(n - 2.0)?)),
            intercept: sums.y - slope * sums.x,
        })
    }
}

/// All orders of so many points are compared: 362,880.
const MOST_ORDERED: usize = 9;

/// The share of all orders of the second ranks that agree or disagree with the first at least as much.
fn exact(first: &[f64], mut second: Vec<f64>) -> f64 {
    let (x, y) = (record::mean(first), record::mean(&second));
    let covariance = |second: &[f64]| first.iter().zip(second).map(|(a, b)| (a - x) * (b - y)).sum::<f64>().abs();
    let found = covariance(&second) * (1.0 - 1e-9);
    let (mut extreme, mut all) = (0.0, 0.0);
    let mut count = |second: &[f64]| {
        extreme += f64::from(u8::from(covariance(second) >= found));
        all += 1.0;
    };
    // Heap's algorithm (1963).
    let mut turns = vec![0; second.len()];
    let mut at = 0;
    count(&second);
    while at < second.len() {
        if turns[at] < at {
            second.swap(if at % 2 == 0 { 0 } else { turns[at] }, at);
            count(&second);
            turns[at] += 1;
            at = 0;
        } else {
            turns[at] = 0;
            at += 1;
        }
    }
    extreme / all
}

struct Sums {
    x: f64,
    y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

impl Sums {
    fn of(xs: &[f64], ys: &[f64]) -> Self {
        let (x, y) = (record::mean(xs), record::mean(ys));
        let product = |a: &[f64], b: &[f64], (p, q): (f64, f64)| a.iter().zip(b).map(|(a, b)| (a - p) * (b - q)).sum();
        Self { x, y, xx: product(xs, xs, (x, x)), yy: product(ys, ys, (y, y)), xy: product(xs, ys, (x, y)) }
    }

    fn coefficient(&self) -> Option<f64> {
        let scale = (self.xx * self.yy).sqrt();
        (scale > 0.0 && scale.is_finite()).then(|| (self.xy / scale).clamp(-1.0, 1.0))
    }
}

/// The rank of each value from 1, equal ones at their mean rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for tied in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = number(first) + f64::midpoint(1.0, number(tied.len()));
        tied.iter().for_each(|at| ranks[*at] = rank);
        first += tied.len();
    }
    ranks
}

/// Points in two clusters, and whether there is reason to part them.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Whether each point is in the second cluster, that of the larger first quantity.
    pub is_second: Vec<bool>,
    /// By how much two clusters describe the points better than one, by the Bayesian information criterion; beyond 10 that is very strong.
    pub gain: f64,
}

/// What points are parted by at first.
type View = fn(&(f64, f64)) -> f64;

/// Rounds of fitting at most.
const ROUNDS: usize = 300;

/// Parts points into the two normal distributions, each with its own spread and slant, that make them most likely. None of fewer than eight
/// points, or where either quantity does not vary.
///
/// The fit starts from parting the points at the median of either quantity, of their sum and of their difference, and the best one counts, so
/// that the same points have the same clusters.
pub fn split(points: &[(f64, f64)]) -> Option<Split> {
    const FEWEST: usize = 8;
    // Where either does not vary there is no scale.
    Correlation::of(points)?;
    let whole = Normal::fit(points, &vec![1.0; points.len()])?;
    if points.len() < FEWEST {
        return None;
    }
    let scaled =
        |point: &(f64, f64)| ((point.0 - whole.mean.0) / whole.xx.sqrt(), (point.1 - whole.mean.1) / whole.yy.sqrt());
    let points: Vec<(f64, f64)> = points.iter().map(scaled).collect();
    let one = Normal::fit(&points, &vec![1.0; points.len()])?;
    let alone: f64 = points.iter().map(|point| one.log_density(point)).sum();
    let views: [View; 4] = [|p| p.0, |p| p.1, |p| p.0 + p.1, |p| p.0 - p.1];
    let fits = views.iter().filter_map(|view| expect_and_maximize(&points, view));
    let (likelihood, second) = fits.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    // Eleven parameters against five.
    let gain = 2.0 * (likelihood - alone) - 6.0 * number(points.len()).ln();
    let mean = |of: bool| {
        let chosen: Vec<f64> =
            points.iter().zip(&second).filter(|(_, is)| **is == of).map(|(point, _)| point.0).collect();
        chosen.iter().sum::<f64>() / number(chosen.len())
    };
    let turn = mean(true) < mean(false);
    Some(Split { is_second: second.into_iter().map(|is| is != turn).collect(), gain })
}

/// The logarithm of the likelihood and which points are rather of the second distribution.
fn expect_and_maximize(points: &[(f64, f64)], view: &View) -> Option<(f64, Vec<bool>)> {
    let mut sorted: Vec<f64> = points.iter().map(view).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = *sorted.get(sorted.len() / 2)?;
    let mut weights: Vec<f64> = points.iter().map(|point| if view(point) < middle { 0.0 } else { 1.0 }).collect();
    let mut before = f64::NEG_INFINITY;
    for _ in 0..ROUNDS {
        let first: Vec<f64> = weights.iter().map(|weight| 1.0 - weight).collect();
        let (a, b) = (Normal::fit(points, &first)?, Normal::fit(points, &weights)?);
        let share = weights.iter().sum::<f64>() / number(points.len());
        let mut likelihood = 0.0;
        for (point, weight) in points.iter().zip(&mut weights) {
            let (low, high) = ((1.0 - share).ln() + a.log_density(point), share.ln() + b.log_density(point));
            let most = low.max(high);
            let sum = most + ((low - most).exp() + (high - most).exp()).ln();
            likelihood += sum;
            *weight = (high - sum).exp();
        }
        if !likelihood.is_finite() {
            return None;
        }
        if likelihood - before < 1e-9 * number(points.len()) {
            break;
        }
        before = likelihood;
    }
    let second: Vec<bool> = weights.iter().map(|weight| *weight > 0.5).collect();
    let count = second.iter().filter(|is| **is).count();
    // Two points lie on a line whatever they are.
    (count > 2 && points.len() - count > 2).then_some((before, second))
}

/// A normal distribution of two quantities.
struct Normal {
    mean: (f64, f64),
    xx: f64,
    yy: f64,
    xy: f64,
}

impl Normal {
    /// No cluster is thinner than this, in deviations of all points: one that shrinks to a line would be infinitely likely.
    const THINNEST: f64 = 1e-4;

    fn fit(points: &[(f64, f64)], weights: &[f64]) -> Option<Self> {
        let total: f64 = weights.iter().sum();
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| {
            points.iter().zip(weights).map(|(point, weight)| weight * of(point)).sum::<f64>() / total
        };
        let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
        let xx = mean(&|point| (point.0 - x).powi(2));
        let yy = mean(&|point| (point.1 - y).powi(2));
        let xy = mean(&|point| (point.0 - x) * (point.1 - y));
        (total > 1.0 && xx > 0.0 && yy > 0.0 && (xx * yy).is_finite()).then_some(Self { mean: (x, y), xx, yy, xy })
    }

    fn log_density(&self, point: &(f64, f64)) -> f64 {
        let (xx, yy) = (self.xx + Self::THINNEST, self.yy + Self::THINNEST);
        let determinant = xx * yy - self.xy * self.xy;
        let (x, y) = (point.0 - self.mean.0, point.1 - self.mean.1);
        let distance = (yy * x * x - 2.0 * self.xy * x * y + xx * y * y) / determinant;
        -0.5 * (distance + determinant.ln()) - (2.0 * std::f64::consts::PI).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9 * expected.abs().max(1e-3), "{found} {expected}");
    }

    #[test]
    fn coefficients_and_the_line_are_those_of_scipy() {
        // SciPy 1.17.1: pearsonr(a, b), its confidence_interval(0.95), spearmanr(a, b), linregress(a, b); the slope's error times t.ppf(0.975, 6).
        let a = [1.2, 2.3, 3.1, 4.8, 5.0, 6.6, 7.9, 7.9];
        let b = [2.0, 2.9, 2.7, 5.1, 4.4, 6.0, 9.1, 8.8];
        let points: Vec<(f64, f64)> = a.into_iter().zip(b).collect();
        let found = Correlation::of(&points).unwrap();
        near(found.pearson, 0.964558704662829);
        near(found.pearson_p.unwrap(), 0.000108355922172275);
        near(found.interval.unwrap().0, 0.811378344528296);
        near(found.interval.unwrap().1, 0.993768658754243);
        near(found.spearman, 0.946124746911475);
        // Of all 40,320 orders of the ranks, 52 agree or disagree as much.
        near(found.spearman_p.unwrap(), 52.0 / 40_320.0);
        near(found.slope, 1.03364737550471);
        near(found.intercept, 0.111810228802155);
        near(found.slope_half_width.unwrap(), 0.282470916757584);
    }

    #[test]
    fn few_ranks_have_an_exact_probability() {
        let p = |n: i32| {
            let points: Vec<(f64, f64)> = (0..n).map(|at| (f64::from(at), f64::from(at * at))).collect();
            Correlation::of(&points).unwrap().spearman_p
        };
        assert_eq!([2, 3, 4, 5].map(p), [None, Some(2.0 / 6.0), Some(2.0 / 24.0), Some(2.0 / 120.0)]);
    }

    #[test]
    fn what_does_not_vary_goes_together_with_nothing() {
        assert_eq!(Correlation::of(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(Correlation::of(&[]), None);
        let points: Vec<(f64, f64)> = (0..11).map(|at| (0.983, f64::from(at))).collect();
        assert_eq!((Correlation::of(&points), split(&points)), (None, None), "nor where its mean is rounded");
        let exact = Correlation::of(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]).unwrap();
        assert_eq!((exact.pearson, exact.pearson_p, exact.interval), (1.0, Some(0.0), None));
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 0.0]), [3.5, 2.0, 3.5, 1.0]);
    }

    /// Two groups, in each of which y falls with x, the second one higher in both.
    fn simpson() -> Vec<(f64, f64)> {
        let group = |x0: f64, y0: f64| {
            (0..12).map(move |at| {
                let (at, wobble) = (f64::from(at), f64::from((at * 7) % 5) * 0.3);
                (x0 + at, y0 - at + wobble)
            })
        };
        group(0.0, 20.0).chain(group(16.0, 60.0)).collect()
    }

    #[test]
    fn a_paradox_shows_when_the_points_are_parted() {
        let points = simpson();
        assert!(Correlation::of(&points).unwrap().pearson > 0.7);
        let split = split(&points).unwrap();
        assert_eq!(split.is_second, [[false; 12], [true; 12]].concat());
        assert!(split.gain > 10.0, "{}", split.gain);
        let within = |second: bool| {
            let chosen: Vec<_> =
                points.iter().zip(&split.is_second).filter(|(_, is)| **is == second).map(|(point, _)| *point).collect();
            Correlation::of(&chosen).unwrap().pearson
        };
        assert!(within(false) < -0.9 && within(true) < -0.9);
    }

    #[test]
    fn one_cloud_is_not_parted() {
        // A lattice without any gap, slanted.
        let points: Vec<(f64, f64)> = (0..60)
            .map(|at| (f64::from((at * 17) % 60), f64::from((at * 29) % 60) + 0.5 * f64::from((at * 17) % 60)))
            .collect();
        assert!(split(&points).is_none_or(|split| split.gain < 10.0));
        assert_eq!(split(&points[..7]), None);
    }

    proptest! {
        #[test]
        fn nothing_depends_on_scale_or_order(points in prop::collection::vec((-9.0..9.0f64, -9.0..9.0f64), 3..20)) {
            let Some(found) = Correlation::of(&points) else { return Ok(()) };
            let turned: Vec<_> = points.iter().rev().map(|(x, y)| (3.0 * x - 1.0, -0.5 * y)).collect();
            let other = Correlation::of(&turned).unwrap();
            prop_assert!((found.pearson + other.pearson).abs() < 1e-9);
            prop_assert!((found.spearman + other.spearman).abs() < 1e-9);
            prop_assert!(found.pearson.abs() <= 1.0 && found.spearman.abs() <= 1.0);
        }
    }
}
