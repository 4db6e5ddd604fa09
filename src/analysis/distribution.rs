//! Quantiles and tail probabilities for tests and intervals.
//!
//! The only file that names the crate of the distributions. Knows no data.

use statrs::distribution::{ContinuousCDF, FisherSnedecor, Normal, StudentsT};

/// The confidence level of intervals.
pub(super) const LEVEL: f64 = 0.95;

/// From this many degrees of freedom, the normal distribution replaces Student's t; the quantiles differ by 0.00002.
/// Sensor uncertainty can give some millions of degrees of freedom, for which the crate's quantile is too small. With
/// 15 millions, the crate finds none.
const AS_NORMAL: f64 = 1e5;

/// The half width of a 95% interval in standard errors, by Student's t. Infinite degrees of freedom mean the normal
/// distribution. `None` without degrees of freedom.
pub(super) fn reach(degrees: f64) -> Option<f64> {
    reach_of_many(degrees, 1)
}

/// As [`reach`], for each of several intervals that hold simultaneously (Bonferroni).
pub(super) fn reach_of_many(degrees: f64, intervals: usize) -> Option<f64> {
    let upper = 1.0 - (1.0 - LEVEL) / (2.0 * super::statistic::number(intervals.max(1)));
    if degrees >= AS_NORMAL {
        return Some(Normal::standard().inverse_cdf(upper));
    }
    Some(StudentsT::new(0.0, 1.0, degrees).ok()?.inverse_cdf(upper))
}

/// The two-sided p-value of a t statistic. `None` without degrees of freedom.
pub(super) fn two_sided(t: f64, degrees: f64) -> Option<f64> {
    if t.is_nan() {
        return None;
    }
    if degrees >= AS_NORMAL {
        return Some((2.0 * Normal::standard().sf(t.abs())).min(1.0));
    }
    Some((2.0 * StudentsT::new(0.0, 1.0, degrees).ok()?.sf(t.abs())).min(1.0))
}

/// The significance level at which the interval around a difference ends at 0. Its half width adds two parts in
/// quadrature: Student's t times the root of a variance with these degrees of freedom, and a normal quantile times the
/// root of a known variance. `None` without degrees of freedom.
pub(super) fn two_sided_of_sum(difference: f64, (variance, degrees): (f64, f64), known: f64) -> Option<f64> {
    if known <= 0.0 {
        return two_sided(difference / variance.sqrt(), degrees);
    }
    if variance <= 0.0 {
        return two_sided(difference / known.sqrt(), f64::INFINITY);
    }
    let normal = Normal::standard();
    let half_width = |t: f64| -> Option<f64> {
        let z = -normal.inverse_cdf(two_sided(t, degrees)? / 2.0);
        Some((t * t * variance + z * z * known).sqrt())
    };
    // At the upper end the first part alone is long enough.
    let (mut low, mut high) = (0.0, difference.abs() / variance.sqrt());
    while high - low > 1e-9 * high {
        let middle = f64::midpoint(low, high);
        if half_width(middle)? < difference.abs() { low = middle } else { high = middle }
    }
    two_sided(f64::midpoint(low, high), degrees)
}

/// The probability of an F at least as large. `None` without degrees of freedom.
pub(super) fn above(f: f64, numerator: f64, denominator: f64) -> Option<f64> {
    if f.is_nan() {
        return None;
    }
    Some(FisherSnedecor::new(numerator, denominator).ok()?.sf(f))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with SciPy 1.17.1: `t = scipy.stats.t(df)`, then `t.ppf(0.975)`, `2 * t.sf(2.5)`, `2 * t.sf(30)`.
    const T: [(f64, f64, f64, f64); 6] = [
        (1.0, 12.7062047361747, 0.242237883181687, 0.0212128048110709),
        (2.0, 4.30265272974946, 0.129611720221511, 0.00110926268195966),
        (3.5, 2.94008863798273, 0.07569464380949, 2.39361319956226e-05),
        (10.0, 2.22813885198627, 0.0314468442366088, 3.96179234203132e-11),
        (100.0, 1.98397151852355, 0.0140457891240772, 8.38033255868833e-52),
        (12345.0, 1.96015616760057, 0.0124322007712419, 6.34818131374576e-191),
    ];
    /// Computed with SciPy 1.17.1: `f = scipy.stats.f(a, b)`, then `f.sf(3)`, `f.sf(500)`.
    const F: [(f64, f64, f64, f64); 3] = [
        (1.0, 4.0, 0.158302423375458, 2.36833280370671e-05),
        (3.0, 17.0, 0.0595726335372843, 8.99197644729825e-17),
        (10.0, 2.0, 0.275803565979004, 0.00199760223820929),
    ];

    fn near(found: Option<f64>, expected: f64) {
        let found = found.unwrap();
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    }

    #[test]
    fn tails_and_quantiles_are_those_of_scipy() {
        for (degrees, quantile, at_2_5, at_30) in T {
            near(reach(degrees), quantile);
            near(two_sided(-2.5, degrees), at_2_5);
            near(two_sided(30.0, degrees), at_30);
        }
        for (numerator, denominator, at_3, at_500) in F {
            near(above(3.0, numerator, denominator), at_3);
            near(above(500.0, numerator, denominator), at_500);
        }
        // `scipy.stats.norm.ppf(0.975)`, `2 * scipy.stats.norm.sf(2.5)`.
        near(reach(f64::INFINITY), 1.95996398454005);
        // `scipy.stats.t.ppf(1 - 0.025 / 3, 7)`.
        near(reach_of_many(7.0, 3), 3.12755227424637);
        near(two_sided(2.5, f64::INFINITY), 0.0124193306515523);
    }

    #[test]
    fn many_degrees_of_freedom_give_the_normal_distribution() {
        for degrees in [99_999.0, 1e5, 5e6, 1e7, 2e7, 1e9, 1e14, 1e16, f64::MAX] {
            let (quantile, p) = (reach(degrees).unwrap(), two_sided(1.0, degrees).unwrap());
            // `scipy.stats.norm.ppf(0.975)`, `2 * scipy.stats.norm.sf(1)`.
            assert!((quantile - 1.95996398454005).abs() < 1e-4, "{degrees}: {quantile}");
            assert!((p - 0.317310507862914).abs() < 1e-5, "{degrees}: {p}");
            // `scipy.stats.norm.ppf(1 - 0.025 / 4950)`, of all pairs of a hundred.
            let of_many = reach_of_many(degrees, 4950).unwrap();
            assert!((of_many - 4.41499976288392).abs() < 1e-3, "{degrees}: {of_many}");
        }
    }

    #[test]
    fn a_known_variance_never_makes_a_difference_more_certain() {
        // scipy: brentq over p of hypot(t.isf(p / 2, 1.5) * 0.1, norm.isf(p / 2) * 0.05) - 0.5.
        near(two_sided_of_sum(0.5, (0.01, 1.5), 0.0025), 0.06699969872005772);
        near(two_sided_of_sum(0.5, (0.01, 1.5), 0.0), two_sided(5.0, 1.5).unwrap());
        near(two_sided_of_sum(-0.5, (0.0, 1.5), 0.0625), two_sided(2.0, f64::INFINITY).unwrap());
        assert_eq!(two_sided_of_sum(0.0, (0.01, 1.5), 0.0025), Some(1.0));
        assert_eq!(two_sided_of_sum(0.5, (0.01, 0.0), 0.0025), None);
    }

    #[test]
    fn without_degrees_of_freedom_there_is_no_result() {
        assert_eq!((reach(0.0), two_sided(1.0, -1.0), above(1.0, 0.0, 3.0)), (None, None, None));
        assert_eq!((two_sided(f64::NAN, 3.0), above(f64::NAN, 1.0, 3.0)), (None, None));
        assert_eq!(two_sided(f64::INFINITY, 3.0), Some(0.0));
    }
}
