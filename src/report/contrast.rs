//! Ratios, differences and probabilities in the usual notation: the estimate, then its interval in parentheses.

use super::number::{duration, percent, significant};
use crate::record::known_metric;

/// Further decimals would be noise.
const MOST_DIGITS: usize = 9;

/// Returns how many decimals show two significant digits of `number`, at least `least`.
fn digits(number: f64, least: usize) -> usize {
    let (mut digits, mut scaled) = (0, number.abs());
    while scaled > 0.0 && scaled < 9.95 && digits < MOST_DIGITS {
        scaled *= 10.0;
        digits += 1;
    }
    digits.max(least)
}

/// Formats a ratio with its interval: `1.11× (1.06 to 1.16)`.
pub(super) fn ratio(ratio: f64, interval: Option<(f64, f64)>) -> String {
    let numbers = [Some(ratio), interval.map(|(low, _)| low), interval.map(|(_, high)| high)];
    if numbers.iter().flatten().any(|number| !(1e-4..1e6).contains(number)) {
        let shown = |value: f64| if value > 0.0 && value < 1e-4 { format!("{value:.2e}") } else { significant(value) };
        return with_interval(&format!("{}×", shown(ratio)), interval, shown);
    }
    let largest = numbers.iter().flatten().fold(0.0, |largest: f64, number| largest.max(*number));
    let least = match largest {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    // The decimals must show the width of the interval, or without one the distance of the ratio from 1.
    let width = interval.map_or(ratio - 1.0, |(low, high)| high - low);
    let shown = digits(10.0 * width, least);
    with_interval(&format!("{ratio:.shown$}×"), interval, |value| format!("{value:.shown$}"))
}

/// Formats a difference with its interval in the metric's unit: `228 J (206 to 250)`.
pub(super) fn difference(difference: f64, interval: Option<(f64, f64)>, unit: &str) -> String {
    let signed = |value: f64| if value < 0.0 { format!("-{}", duration(-value)) } else { duration(value) };
    if unit == "s" {
        return with_interval(&signed(difference), interval, signed);
    }
    let shown = |value: f64| match interval {
        Some((low, high)) if (1e-4..1e7).contains(&low.abs().max(high.abs())) => {
            let text = format!("{value:.*}", digits((high - low) / 2.0, 0));
            let is_zero = text.chars().all(|c| matches!(c, '-' | '0' | '.'));
            if is_zero { text.trim_start_matches('-').to_owned() } else { text }
        }
        _ => significant(value),
    };
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    with_interval(&format!("{}{unit}", shown(difference)), interval, shown)
}

/// Formats the difference of two shares: `4.1 points (2.0 to 6.2)`. `factor` converts them to percent.
pub(super) fn points(difference: f64, interval: Option<(f64, f64)>, factor: f64) -> String {
    let width = interval.map_or(difference, |(low, high)| (high - low) / 2.0) * factor;
    let shown = digits(10.0 * width, 1);
    let text = |value: f64| format!("{:.shown$}", value * factor);
    with_interval(&format!("{} points", text(difference)), interval, text)
}

fn with_interval(text: &str, interval: Option<(f64, f64)>, shown: impl Fn(f64) -> String) -> String {
    match interval {
        Some((low, high)) => format!("{text} ({} to {})", shown(low), shown(high)),
        None => text.to_owned(),
    }
}

/// Returns the factor that converts a metric to percent if it is a share; differences of shares are in points.
pub(super) fn percent_of(metric: &str, unit: &str) -> Option<f64> {
    match unit {
        "%" => Some(1.0),
        "" => known_metric(metric).filter(|known| known.is_share()).map(|_| 100.0),
        _ => None,
    }
}

/// Formats a relative change, `-1.61%`, or for shares a difference in points, `-0.55 points`.
/// `None` if a value is missing or the change is not finite.
pub(super) fn change(metric: &str, unit: &str, from: Option<f64>, to: Option<f64>) -> Option<String> {
    let (from, to) = from.zip(to)?;
    if let Some(factor) = percent_of(metric, unit) {
        let points = (to - from) * factor;
        return points.is_finite().then(|| format!("{points:+.2} points"));
    }
    let share = (to - from) / from.abs();
    share.is_finite().then(|| percent(share))
}

/// Formats a p-value: `p = 0.47`, `p < 0.001`.
pub fn p_value(p: f64) -> String {
    match p {
        p if p < 0.001 => "p < 0.001".to_owned(),
        p if p < 0.1 => format!("p = {p:.3}"),
        p => format!("p = {p:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_of_a_ratio_distinguish_the_ends_of_its_interval() {
        let shown = [
            ratio(1.114, Some((1.061, 1.163))),
            ratio(1.0042, Some((1.0011, 1.0073))),
            ratio(0.0123, Some((0.0110, 0.0137))),
            ratio(12.34, Some((11.02, 13.9))),
            ratio(215.4, Some((180.2, 257.1))),
            ratio(2.0, None),
            ratio(1.0012, None),
            ratio(1e-7, Some((1e-9, 2e9))),
        ];
        assert_eq!(
            shown,
            [
                "1.11× (1.06 to 1.16)",
                "1.004× (1.001 to 1.007)",
                "0.012× (0.011 to 0.014)",
                "12.3× (11.0 to 13.9)",
                "215× (180 to 257)",
                "2.00×",
                "1.001×",
                "1.00e-7× (1.00e-9 to 2.000e9)",
            ]
        );
    }

    #[test]
    fn differences_have_the_unit_once_and_shares_are_in_points() {
        let shown = [
            difference(228.31, Some((206.2, 250.4)), "J"),
            difference(-0.0123, Some((-0.0171, -0.0075)), ""),
            difference(12.0, None, "W"),
            difference(-1.5, Some((-2.0, -1.0)), "s"),
            points(0.0412, Some((0.0201, 0.0623)), 100.0),
            points(-3.152, Some((-3.2, -3.1)), 1.0),
            points(0.0, None, 1.0),
        ];
        assert_eq!(
            shown,
            [
                "228 J (206 to 250)",
                "-0.0123 (-0.0171 to -0.0075)",
                "12 W",
                "-1.50 s (-2.00 s to -1.00 s)",
                "4.1 points (2.0 to 6.2)",
                "-3.15 points (-3.20 to -3.10)",
                "0.0 points",
            ]
        );
        assert_eq!(percent_of("accuracy", ""), Some(100.0));
        assert_eq!(
            [percent_of("top1", "%"), percent_of("loss", ""), percent_of("energy", "J")],
            [Some(1.0), None, None]
        );
    }

    #[test]
    fn shares_change_by_points_and_other_metrics_by_percent() {
        assert_eq!(change("accuracy", "", Some(0.8883), Some(0.8828)).as_deref(), Some("-0.55 points"));
        assert_eq!(change("gpu_util", "%", Some(80.0), Some(84.5)).as_deref(), Some("+4.50 points"));
        assert_eq!(change("loss", "", Some(2.0), Some(1.5)).as_deref(), Some("-25.00%"));
        assert_eq!([change("loss", "", Some(0.0), Some(1.5)), change("accuracy", "", None, Some(1.0))], [None, None]);
    }

    #[test]
    fn probabilities_are_in_standard_form() {
        assert_eq!([0.0004, 0.012, 0.47, 1.0].map(p_value), ["p < 0.001", "p = 0.012", "p = 0.47", "p = 1.00"]);
    }
}
