//! Values that lie far from the other repetitions of one configuration. They are named and never left out.
//!
//! Knows numbers. Must not know what they measure, nor why one is far off.

use super::comparison::Summary;
use super::distribution::two_sided;
use super::statistic::{median_real, number};

/// A value is named where chance puts one of so many this far off in fewer than one of a hundred samples.
const LEVEL: f64 = 0.01;
/// Of fewer values, the others do not say how they scatter.
const LEAST: usize = 4;
/// No smaller residual is significant: of 4 or more values p has to be below 0.0025, which Student's t reaches beyond 3.0.
const LEAST_FAR: f64 = 2.9;
/// Values closer to the median than this share are never named, however still the others are.
const NEAR: f64 = 0.005;

/// A value far from the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlier {
    /// Its place among the values.
    pub at: usize,
    /// The value as a multiple of the median; none where that is 0.
    pub ratio: Option<f64>,
    /// How many standard deviations of the others it is from their mean; none where the others are all equal.
    pub deviations: Option<f64>,
}

/// The values whose externally studentized residual is significant at 1% after Bonferroni's correction (Cook and Weisberg, "Residuals and
/// Influence in Regression", 1982, section 2.2).
pub fn outliers(values: &[f64]) -> Vec<Outlier> {
    let Some(median) = median_real(values).filter(|_| values.len() >= LEAST && values.iter().all(|v| v.is_finite()))
    else {
        return Vec::new();
    };
    let Some((mean, variance)) = Summary::of(values).and_then(|whole| Some((whole.mean, whole.variance?))) else {
        return Vec::new();
    };
    let n = number(values.len());
    // Whether a value may be far from the others, from sums over all values: to compute those of the others for each value takes the square of their number.
    let may_be_far = |value: f64| {
        let apart = value - mean;
        let of_others = (variance * (n - 1.0) - apart * apart * n / (n - 1.0)) / (n - 2.0);
        let residual = apart * (n / (n - 1.0)).sqrt() / of_others.sqrt();
        // Of others that are all equal it is not a number.
        !is_near(value, median) && (residual.is_nan() || residual.abs() >= LEAST_FAR)
    };
    let far = (0..values.len()).filter(|at| may_be_far(values[*at]));
    far.filter_map(|at| judged(values, median, at)).collect()
}

fn is_near(value: f64, median: f64) -> bool {
    (value - median).abs() <= NEAR * median.abs()
}

/// The value at this place, if it is far from the others.
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
    fn only_what_is_far_from_the_others_is_named() {
        // statsmodels 0.15.0: OLS(y, ones).fit().outlier_test(): of 13.1 the studentized residual is 21.13 and Bonferroni's p 0.00116.
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
