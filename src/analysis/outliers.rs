//! Values that lie far from the other repetitions of one configuration. They are named and never left out.
//!
//! Knows numbers. Must not know what they measure, nor why one is far off.

use super::comparison::Summary;
use super::distribution::two_sided;
use super::statistic::{median_real, number};

/// The significance level for all values of a sample together.
const LEVEL: f64 = 0.01;
/// The fewest values from which outliers are found.
const LEAST: usize = 4;
/// A residual that is surely not significant: for 4 or more values p has to be below 0.0025, which needs a Student's t above 3.0.
const LEAST_FAR: f64 = 2.9;
/// Values closer to the median than this share are never outliers, however little the others scatter.
const NEAR: f64 = 0.005;

/// A value far from the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlier {
    /// Its index among the values.
    pub at: usize,
    /// The value as a multiple of the median; `None` if that is 0.
    pub ratio: Option<f64>,
    /// Its distance from the mean of the others, in their standard deviations; `None` if they are all equal.
    pub deviations: Option<f64>,
}

/// Returns the values whose externally studentized residual is significant at 1% after Bonferroni's correction (Cook
/// and Weisberg, "Residuals and Influence in Regression", 1982, section 2.2).
pub fn outliers(values: &[f64]) -> Vec<Outlier> {
    let Some(median) = median_real(values).filter(|_| values.len() >= LEAST && values.iter().all(|v| v.is_finite()))
    else {
        return Vec::new();
    };
    let Some((mean, variance)) = Summary::of(values).and_then(|whole| Some((whole.mean, whole.variance?))) else {
        return Vec::new();
    };
    let n = number(values.len());
    // Whether a value may be an outlier, by sums over all values. Computing the sums of the others for each value would
    // take quadratic time.
    let may_be_far = |value: f64| {
        let apart = value - mean;
        let of_others = (variance * (n - 1.0) - apart * apart * n / (n - 1.0)) / (n - 2.0);
        let residual = apart * (n / (n - 1.0)).sqrt() / of_others.sqrt();
        // It is NaN if the others are all equal.
        !is_near(value, median) && (residual.is_nan() || residual.abs() >= LEAST_FAR)
    };
    let far = (0..values.len()).filter(|at| may_be_far(values[*at]));
    far.filter_map(|at| judged(values, median, at)).collect()
}

fn is_near(value: f64, median: f64) -> bool {
    (value - median).abs() <= NEAR * median.abs()
}

/// Returns the value at this index as an outlier, if it is one.
fn judged(values: &[f64], median: f64, at: usize) -> Option<Outlier> {
    let value = values[at];
    let others: Vec<f64> = values.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, v)| *v).collect();
    let summary = Summary::of(&others)?;
    let deviation = summary.deviation()?;
    let n = number(others.len());
    let residual = (value - summary.mean) / (deviation * (1.0 + 1.0 / n).sqrt());
    let p = if deviation > 0.0 { two_sided(residual, n - 1.0)? } else { 0.0 };
    let is_far = !is_near(value, median) && p * (n + 1.0) < LEVEL;
    let deviations = (deviation > 0.0).then(|| (value - summary.mean) / deviation);
    is_far.then(|| Outlier { at, ratio: (median != 0.0).then(|| value / median), deviations })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_sums_over_all_values_miss_none(
            values in prop::collection::vec(prop_oneof![4 => 9.0..11.0, 1 => 0.0..20.0, 1 => Just(10.0), 1 => Just(1e9)], 4..40),
        ) {
            let median = median_real(&values).unwrap();
            let all: Vec<Outlier> = (0..values.len()).filter_map(|at| judged(&values, median, at)).collect();
            prop_assert_eq!(outliers(&values), all);
        }
    }

    #[test]
    fn only_values_far_from_the_others_are_outliers() {
        // statsmodels 0.15.0: OLS(y, ones).fit().outlier_test(): the studentized residual of 13.1 is 21.13, and
        // Bonferroni's p is 0.00116.
        let found = outliers(&[10.0, 10.2, 9.9, 10.1, 13.1]);
        assert_eq!(found.iter().map(|one| one.at).collect::<Vec<_>>(), [4]);
        assert!((found[0].ratio.unwrap() - 13.1 / 10.1).abs() < 1e-12 && found[0].deviations.unwrap() > 20.0);
        assert_eq!(outliers(&[10.0, 10.2, 9.9, 10.1, 10.6]), []);
        assert_eq!(outliers(&[10.0, 10.0, 20.0]), [], "of three nobody knows which is the odd one");
        assert_eq!(outliers(&[10.0, 10.0, 10.0, 10.04]), [], "closer than half a percent");
        let of_equal = outliers(&[10.0, 10.0, 10.0, 11.0]);
        assert_eq!(of_equal.iter().map(|one| (one.at, one.deviations)).collect::<Vec<_>>(), [(3, None)]);
        assert_eq!(outliers(&[1.0, 1.0, 1.0, f64::NAN]), []);
    }
}
