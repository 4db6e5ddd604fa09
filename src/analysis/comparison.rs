//! Summaries of repetitions, tests of equivalence and corrections for several tests.
//!
//! Knows numbers and the uncertainty of sensors. Must not know what the numbers measure.

use super::distribution::{reach, two_sided};
use super::statistic::{number, quadrature};
use crate::record;

/// The significance level.
pub const SIGNIFICANCE: f64 = 0.05;

/// Several values of one quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The number of values.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their variance, with n - 1 degrees of freedom; `None` for a single value.
    pub variance: Option<f64>,
}

impl Summary {
    /// Summarizes the values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = number(values.len());
        if values.is_empty() {
            return None;
        }
        let mean = record::mean(values);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Self { n: values.len(), mean, variance: (values.len() > 1).then(|| squares / (n - 1.0)) })
    }

    /// The standard deviation; `None` for a single value.
    pub fn deviation(&self) -> Option<f64> {
        self.variance.map(f64::sqrt)
    }

    /// Half the width of the mean's 95% interval, by Student's t; `None` for a single value.
    pub fn half_width(&self) -> Option<f64> {
        let n = number(self.n);
        Some(reach(n - 1.0)? * (self.variance? / n).sqrt())
    }
}

/// The mean without the smallest and the largest value, as in MLPerf's training rules; `None` for fewer than three.
pub fn olympic_mean(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.as_slice() {
        [_, middle @ .., _] if !middle.is_empty() => Some(record::mean(middle)),
        _ => None,
    }
}

/// Combines two independent half widths of 95% intervals in quadrature; `None` if there is neither.
pub fn together(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    (one.is_some() || other.is_some()).then(|| quadrature(one.into_iter().chain(other)))
}

/// Two one-sided t-tests (TOST): the probability that two means are this close by chance if they are `margin` or more apart.
///
/// Groups may have different variances (Welch). A group of a single value is taken to have the other's variance.
/// Returns `None` if both have a single value.
///
/// Schuirmann, "A comparison of the two one-sided tests procedure and the power approach", J. Pharmacokinetics and
/// Biopharmaceutics 15 (1987).
pub fn tost(a: &Summary, b: &Summary, margin: f64) -> Option<f64> {
    let pooled = a.variance.or(b.variance)?;
    let part = |group: &Summary| (group.variance.unwrap_or(pooled) / number(group.n), number(group.n) - 1.0);
    let (one, other) = (part(a), part(b));
    let variance = one.0 + other.0;
    let difference = b.mean - a.mean;
    if !difference.is_finite() || !variance.is_finite() {
        return None;
    }
    if variance == 0.0 {
        // Neither group scatters, so the difference is exact.
        return Some(if difference.abs() < margin { 0.0 } else { 1.0 });
    }
    let degrees = match (a.variance, b.variance) {
        (Some(_), Some(_)) => {
            let share = |(variance, degrees): (f64, f64)| variance * variance / degrees;
            variance * variance / (share(one) + share(other))
        }
        (Some(_), None) => one.1,
        _ => other.1,
    };
    // The one-sided test at the nearer border decides.
    let t = (margin - difference.abs()) / variance.sqrt();
    let tail = two_sided(t, degrees)? / 2.0;
    Some(if t >= 0.0 { tail } else { 1.0 - tail })
}

/// Corrects p-values for several tests by Holm's method, and returns them in the given order.
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    holm_among(probabilities, probabilities.len())
}

/// Corrects p-values by Holm's method as part of a family of `family` tests. For example, only pairs with the best one
/// are shown, but the same data determined the best one, so the family is all pairs.
pub(super) fn holm_among(probabilities: &[f64], family: usize) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut corrected = vec![0.0; probabilities.len()];
    let mut largest: f64 = 0.0;
    for (rank, place) in order.into_iter().enumerate() {
        let remaining = number(family.max(probabilities.len()) - rank);
        largest = largest.max((probabilities[place] * remaining).min(1.0));
        corrected[place] = largest;
    }
    corrected
}

/// Corrects tests by Holm's method. Each test has its p-value and the smallest p-value that it can give. `family` maps
/// the number of these tests to the number that Holm's method counts. A test that cannot become significant returns
/// `None` and is not counted.
pub(super) fn holm_possible(tests: &[(f64, f64)], family: impl Fn(usize) -> usize) -> Vec<Option<f64>> {
    let mut kept: Vec<usize> = (0..tests.len()).collect();
    let corrected = |kept: &[usize], of: &dyn Fn(usize) -> f64| {
        holm_among(&kept.iter().map(|at| of(*at)).collect::<Vec<f64>>(), family(kept.len()))
    };
    loop {
        let mut least = corrected(&kept, &|at| tests[at].1).into_iter();
        let before = kept.len();
        kept.retain(|_| least.next().is_some_and(|least| least < SIGNIFICANCE));
        if kept.len() == before {
            break;
        }
    }
    let mut found = vec![None; tests.len()];
    for (at, corrected) in kept.iter().zip(corrected(&kept, &|at| tests[at].0)) {
        found[*at] = Some(corrected);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: [f64; 5] = [12.1, 12.9, 11.4, 12.6, 12.2];
    const B: [f64; 3] = [13.4, 14.1, 13.0];
    const C: [f64; 2] = [12.3, 12.5];

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9 * expected.abs().max(1e-3), "{found} {expected}");
    }

    #[test]
    fn means_and_intervals_are_those_of_scipy() {
        // `numpy.mean(a)`, `numpy.std(a, ddof=1)`, `scipy.stats.t.interval(0.95, 4, loc=mean, scale=scipy.stats.sem(a))`.
        let summary = Summary::of(&A).unwrap();
        near(summary.mean, 12.24);
        near(summary.deviation().unwrap(), 0.568330889535313);
        near(summary.mean - summary.half_width().unwrap(), 11.5343239953969);
        near(summary.mean + summary.half_width().unwrap(), 12.9456760046031);
        // `scipy.stats.trim_mean(a, 0.2)`.
        near(olympic_mean(&A).unwrap(), 12.3);
        assert_eq!((olympic_mean(&C), olympic_mean(&[3.0, 1.0, 2.0])), (None, Some(2.0)));
        let one = Summary::of(&[5.0]).unwrap();
        assert_eq!((one.mean, one.deviation(), one.half_width()), (5.0, None, None));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn two_one_sided_tests_are_those_of_scipy() {
        // SciPy 1.17.1: the larger p of ttest_ind(b + m, a, equal_var=False, alternative="greater") and of ttest_ind(b - m, a, …, alternative="less").
        let cases: [(&[f64], &[f64], f64, f64); 4] = [
            (&A, &B, 2.5, 0.01711821271613924),
            (&A, &C, 1.0, 0.01430137857625257),
            (&A, &C, 0.1, 0.5824811480232994),
            (&C, &B, 1.0, 0.6047144650309515),
        ];
        let of = |values: &[f64]| Summary::of(values).unwrap();
        for (x, y, margin, p) in cases {
            near(tost(&of(x), &of(y), margin).unwrap(), p);
            near(tost(&of(y), &of(x), margin).unwrap(), p);
        }
        // One value scatters as the others do: stats.t.sf((1.5 - |12.24 - 12|) / sqrt(s^2 (1 + 1/5)), 4).
        near(tost(&of(&[12.0]), &of(&A), 1.5).unwrap(), 0.05650044803641518);
        assert_eq!(tost(&of(&[1.0]), &of(&[1.0]), 1.0), None);
        let still = |value| of(&[value, value]);
        assert_eq!(tost(&still(1.0), &still(1.5), 1.0), Some(0.0));
        assert_eq!(tost(&still(1.0), &still(2.0), 1.0), Some(1.0));
        assert_eq!(tost(&still(1.0), &still(f64::NAN), 1.0), None);
    }

    #[test]
    fn equal_values_do_not_differ_however_many_they_are() {
        let of = |n: usize| Summary::of(&vec![0.983; n]).unwrap();
        assert!((1..40).any(|n| vec![0.983; n].iter().sum::<f64>() / number(n) != 0.983), "a sum is rounded");
        for n in 2..40 {
            assert_eq!((of(n).mean, of(n).variance), (0.983, Some(0.0)), "{n}");
            assert_eq!(tost(&of(n), &of(8), 1e-18), Some(0.0), "{n}");
        }
        assert_eq!(olympic_mean(&[0.983; 13]), Some(0.983));
    }

    #[test]
    fn holm_is_that_of_statsmodels() {
        // statsmodels 0.15.0: multipletests(p, method="holm")[1].
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005, 0.5, 0.04]);
        for (found, expected) in corrected.iter().zip([0.05, 0.12, 0.12, 0.03, 0.5, 0.12]) {
            near(*found, expected);
        }
        assert_eq!((holm(&[0.3]), holm(&[])), (vec![0.3], vec![]));
        // Two of three pairs are shown.
        assert_eq!(holm_among(&[0.01, 0.04], 3), [0.03, 0.08]);
    }

    proptest! {
        #[test]
        fn correction_keeps_the_order_and_only_raises(p in prop::collection::vec(0.0..=1.0f64, 0..12)) {
            let corrected = holm(&p);
            for (i, a) in p.iter().enumerate() {
                prop_assert!(corrected[i] >= *a && corrected[i] <= 1.0);
                for (j, b) in p.iter().enumerate() {
                    prop_assert!(a > b || corrected[i] <= corrected[j]);
                }
            }
        }
    }
}
