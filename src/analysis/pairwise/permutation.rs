//! A permutation test of two means, for few units.

use super::super::comparison::SIGNIFICANCE;
use super::super::statistic::number;

/// The most units whose exchanges are counted one by one.
const MOST_EXCHANGED: usize = 500;

/// The exact two-sided permutation test of the difference of means. Returns the p-value and the smallest one that it
/// can give. `None` if even the smallest is 5% or more, or if there are too many exchanges to count.
pub(super) fn exchanged(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let n = few.len() + many.len();
    let all: Vec<f64> = few.iter().chain(many).copied().collect();
    let total: f64 = all.iter().sum();
    if n > MOST_EXCHANGED || !total.is_finite() {
        return None;
    }
    let apart = |sum: f64| (sum / number(few.len()) - (total - sum) / number(many.len())).abs();
    let found = apart(few.iter().sum());
    // Sums that differ only by rounding are equal.
    let least = found * (1.0 - 1e-9);
    let mut counts = (0.0, 0.0);
    let mut count = |sum: f64| {
        counts.0 += f64::from(u8::from(apart(sum) >= least));
        counts.1 += 1.0;
    };
    match few.len() {
        1 => all.iter().for_each(|one| count(*one)),
        2 => (0..n).for_each(|i| (i + 1..n).for_each(|j| count(all[i] + all[j]))),
        _ => return None,
    }
    let smallest = if few.len() == many.len() { 2.0 } else { 1.0 } / counts.1;
    (smallest < SIGNIFICANCE).then(|| (counts.0 / counts.1, smallest))
}
