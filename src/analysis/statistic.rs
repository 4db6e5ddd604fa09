//! Medians, percentiles and basic arithmetic.
//!
//! Knows numbers. Must not know what they count.

/// A count as a real number.
#[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days; beyond, microseconds are lost")]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}

/// A number of things as a real number.
pub(super) fn number(count: usize) -> f64 {
    real(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Nanoseconds as seconds.
pub(super) fn seconds(ns: u64) -> f64 {
    real(ns) / 1e9
}

/// Seconds as whole nanoseconds: 0 for negative values and for values that do not fit.
pub(super) fn nanoseconds(seconds: f64) -> u64 {
    let time = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One number as a share of another; 0 if the other is 0.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { real(part) / real(whole) }
}

/// The sum of times, saturating, because a worker may report any times.
pub(super) fn total(times: impl IntoIterator<Item = u64>) -> u64 {
    times.into_iter().fold(0, u64::saturating_add)
}

/// The median; `None` without values.
pub(super) fn median(values: &[u64]) -> Option<f64> {
    middle(values).map(|(lower, upper)| f64::midpoint(real(lower), real(upper)))
}

pub(super) fn median_sorted(sorted: &[u64]) -> Option<f64> {
    middle_sorted(sorted).map(|(lower, upper)| f64::midpoint(real(lower), real(upper)))
}

/// The median of whole nanoseconds, rounded down.
pub(super) fn median_ns(values: &[u64]) -> Option<u64> {
    middle(values).map(|(lower, upper)| lower.midpoint(upper))
}

/// The median of sorted whole nanoseconds, rounded down.
pub(super) fn median_ns_sorted(sorted: &[u64]) -> Option<u64> {
    middle_sorted(sorted).map(|(lower, upper)| lower.midpoint(upper))
}

/// The two values in the middle, which are the same if the number of values is odd.
fn middle(values: &[u64]) -> Option<(u64, u64)> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    middle_sorted(&sorted)
}

fn middle_sorted(sorted: &[u64]) -> Option<(u64, u64)> {
    let upper = *sorted.get(sorted.len() / 2)?;
    Some((sorted[(sorted.len() - 1) / 2], upper))
}

/// The median of real numbers; `None` without values.
pub(super) fn median_real(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(f64::midpoint(sorted[(sorted.len() - 1) / 2], upper))
}

/// The percentile by nearest rank: the smallest value that at least `percent` percent of all values do not exceed.
pub(super) fn nearest_rank(values: &[u64], percent: usize) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    nearest_rank_sorted(&sorted, percent)
}

/// The percentile by nearest rank of sorted values.
pub(super) fn nearest_rank_sorted(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// The mean of whole numbers, rounded down; `None` without values.
pub(super) fn mean_ns(values: &[u64]) -> Option<u64> {
    values.iter().sum::<u64>().checked_div(u64::try_from(values.len()).ok()?)
}

/// 95% of a normal distribution lie within this many standard deviations.
pub(super) const CONFIDENCE: f64 = 1.96;

/// The root of the sum of squares, for independent errors.
pub(super) fn quadrature(parts: impl IntoIterator<Item = f64>) -> f64 {
    parts.into_iter().map(|part| part * part).sum::<f64>().sqrt()
}

/// Returns the next number of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014).
pub(super) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A time as in reasons: `3 ms`, `1.5 s`.
pub(super) fn span(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000_000 => (real(ns) / 1e3, "µs"),
        1_000_000..1_000_000_000 => (real(ns) / 1e6, "ms"),
        _ => (real(ns) / 1e9, "s"),
    };
    let text = if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3]), Some(3.0));
        assert_eq!(median(&[4, 1, 2, 3]), Some(2.5));
        assert_eq!(median_ns(&[4, 1, 2, 3]), Some(2));
        assert_eq!((mean_ns(&[]), mean_ns(&[4, 1, 2, 4])), (None, Some(2)));
        assert_eq!(median_real(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    proptest! {
        #[test]
        fn the_nearest_rank_is_the_smallest_that_enough_do_not_exceed(
            values in prop::collection::vec(0..50u64, 1..200),
            percent in 1..=100usize,
        ) {
            let found = nearest_rank(&values, percent).unwrap();
            let reach = |limit: u64| values.iter().filter(|value| **value <= limit).count() * 100 >= percent * values.len();
            prop_assert!(values.contains(&found) && reach(found));
            prop_assert!(found == 0 || !reach(found - 1) || !values.iter().any(|value| *value < found));
        }
    }

    #[test]
    fn times_take_the_unit_that_fits() {
        let shown = [800, 3_000_000, 1_500_000, 99_550_000, 100_000_000, 1_500_000_000, 12_400_000_000].map(span);
        assert_eq!(shown, ["0.8 µs", "3 ms", "1.5 ms", "100 ms", "100 ms", "1.5 s", "12 s"]);
    }
}
