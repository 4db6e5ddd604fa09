//! Formatting of numbers for people.

pub use crate::record::count;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Formats a number with four significant digits, without trailing zeros.
/// Very large and very small numbers are in scientific notation.
pub fn significant(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "NaN".to_owned() } else { format!("{value}").replace("inf", "∞") };
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs();
    if !(1e-4..1e7).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    let digits = match magnitude {
        m if m >= 1000.0 => 0,
        m if m >= 100.0 => 1,
        m if m >= 10.0 => 2,
        m if m >= 1.0 => 3,
        m if m >= 0.1 => 4,
        m if m >= 0.01 => 5,
        m if m >= 0.001 => 6,
        _ => 7,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats seconds: `1.2 ms`, `3.45 s`, `5 min 06 s`, `7 h 08 min`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return format!("{seconds} s");
    }
    if seconds < 1e-3 {
        return format!("{} µs", significant(seconds * 1e6));
    }
    if seconds < 1.0 {
        return format!("{} ms", significant(seconds * 1e3));
    }
    if seconds < 9.995 {
        return format!("{seconds:.2} s");
    }
    if seconds < 99.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round();
    if whole < 3600.0 {
        return format!("{} min {:02} s", (whole / 60.0).floor(), whole % 60.0);
    }
    let minutes = (whole / 60.0).round();
    format!("{} h {:02} min", (minutes / 60.0).floor(), minutes % 60.0)
}

/// Returns an attempt's duration in seconds; `None` if it was not measured, which records store as 0.
#[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days")]
pub fn wall_seconds(wall_ns: u64) -> Option<f64> {
    (wall_ns > 0).then(|| wall_ns as f64 / 1e9)
}

/// Formats an attempt's duration for a sentence.
pub fn took(wall_ns: u64) -> String {
    wall_seconds(wall_ns).map_or_else(|| "its time is not known".to_owned(), |wall| format!("took {}", duration(wall)))
}

/// Formats a quantity with three significant digits and an SI prefix: `12.4 kJ`, `310 mJ`.
pub fn quantity(value: f64, unit: &str) -> String {
    // A value below all prefixes would otherwise be shown as zero.
    if value != 0.0 && value.abs() < 0.9995e-9 {
        return format!("{value:.2e} {unit}");
    }
    let prefixes = [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")];
    let fits = |(scale, _): &&(f64, &str)| value.abs() >= 0.9995 * scale;
    let (scale, prefix) = prefixes.iter().find(fits).copied().unwrap_or((1.0, ""));
    let scaled = value / scale;
    let digits = match scaled.abs() {
        m if m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        _ => 2,
    };
    if !scaled.is_finite() || value == 0.0 {
        return format!("{} {unit}", significant(value));
    }
    format!("{scaled:.digits$} {prefix}{unit}")
}

/// Formats a value with the half-width of its 95% interval, in percent of the value: `12.4 ± 5.2%`.
/// The half-width is absolute if it exceeds the value, because near zero a percentage is meaningless.
pub fn within(show: impl Fn(f64) -> String, value: f64, half_width: Option<f64>) -> String {
    let text = show(value);
    match half_width {
        None => text,
        // The percentage is not finite for a value of zero or NaN.
        Some(half_width) if half_width > value.abs() || !(half_width / value).is_finite() => {
            format!("{text} ± {}", show(half_width))
        }
        Some(half_width) => {
            let percent = 100.0 * half_width / value.abs();
            let digits = [9.95, 0.095, 0.0095].iter().filter(|border| percent < **border).count();
            format!("{text} ± {percent:.digits$}%")
        }
    }
}

/// Formats a quantity with its unit and interval: `12.4 kJ ± 5.2%`.
pub fn quantity_within(value: f64, unit: &str, half_width: Option<f64>) -> String {
    within(|value| quantity(value, unit), value, half_width)
}

/// Formats a mean over repetitions with its interval.
/// A width of zero means that all values are equal, which is not certainty, so it says `no scatter`.
pub fn mean_within(show: impl Fn(f64) -> String, mean: f64, half_width: Option<f64>) -> String {
    match half_width {
        Some(0.0) => format!("{} (no scatter)", show(mean)),
        _ => within(show, mean, half_width),
    }
}

/// Formats a share as a signed change in percent with two decimals: `+4.00%`.
/// From a million percent on, it is in scientific notation.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.is_infinite() {
        return if percent > 0.0 { "+∞%" } else { "-∞%" }.to_owned();
    }
    if percent.abs() < 1e6 { format!("{percent:+.2}%") } else { format!("{percent:+.2e}%") }
}

/// Formats a number of bytes with a binary prefix.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return format!("{} {unit}", if unit == "B" { format!("{value}") } else { format!("{value:.1}") });
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Formats a time in UTC, to the second.
pub fn when(unix_ms: i64) -> String {
    match Timestamp::from_millisecond(unix_ms) {
        Ok(moment) => moment.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => format!("{unix_ms} ms"),
    }
}

/// Formats a time as RFC 3339, in UTC, to the second.
pub fn timestamp(unix_ms: i64) -> String {
    format!("{}Z", when(unix_ms).replacen(' ', "T", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_significant_digits() {
        let shown = [0.0, 23.66, 0.98765, 1234.6, 12345.0, 1e-5, 0.001, -0.5, 1e9, 60000.0, 0.2 + 0.1].map(significant);
        let expected =
            ["0", "23.66", "0.9877", "1235", "12345", "1.000e-5", "0.001", "-0.5", "1.000e9", "60000", "0.3"];
        assert_eq!(shown, expected);
        assert_eq!([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(significant), ["NaN", "∞", "-∞"]);
    }

    #[test]
    fn durations_take_the_unit_that_fits() {
        let shown = [0.000_001_5, 0.0123, 1.0, 59.96, 99.96, 306.0, 3599.9, 25_700.0].map(duration);
        let expected =
            ["1.5 µs", "12.3 ms", "1.00 s", "60.0 s", "1 min 40 s", "5 min 06 s", "1 h 00 min", "7 h 08 min"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn an_unmeasured_time_is_not_shown_as_zero() {
        assert_eq!([took(0), took(1_500_000_000)], ["its time is not known", "took 1.50 s"]);
        assert_eq!((wall_seconds(0), wall_seconds(1_500_000_000)), (None, Some(1.5)));
    }

    #[test]
    fn quantities_have_prefixes_and_uncertainties() {
        let shown =
            [12_403.0, 999.9, 999.4, 0.3104, 0.0, -52.06, 3.6e6, 5e-9, -2.34e-18].map(|joules| quantity(joules, "J"));
        assert_eq!(
            shown,
            ["12.4 kJ", "1.00 kJ", "999 J", "310 mJ", "0 J", "-52.1 J", "3.60 MJ", "5.00 nJ", "-2.34e-18 J"]
        );
        let of = |value: f64, half_width: f64| quantity_within(value, "J", Some(half_width));
        let shown = [of(12_403.0, 645.0), of(-100.0, 31.4), of(0.0, 2.0), of(0.0125, 38.79)];
        assert_eq!(shown, ["12.4 kJ ± 5.2%", "-100 J ± 31%", "0 J ± 2.00 J", "12.5 mJ ± 38.8 J"]);
        let of = |value: f64, half_width| within(significant, value, half_width);
        let shown =
            [of(7.0, None), of(7.0, Some(0.7)), of(0.0125, Some(38.79)), of(0.0, Some(2.0)), of(0.0, Some(0.0))];
        assert_eq!(shown, ["7", "7 ± 10%", "0.0125 ± 38.79", "0 ± 2", "0 ± 0"]);
        assert_eq!([of(-2.0, Some(2.0)), of(-2.0, Some(2.1))], ["-2 ± 100%", "-2 ± 2.1"]);
        assert_eq!(
            [of(100.0, Some(0.13)), of(100.0, Some(0.049)), of(100.0, Some(0.004))],
            ["100 ± 0.1%", "100 ± 0.05%", "100 ± 0.004%"]
        );
        let mean = |half_width| mean_within(significant, 7.0, half_width);
        assert_eq!([None, Some(0.0), Some(0.7), Some(70.0)].map(mean), ["7", "7 (no scatter)", "7 ± 10%", "7 ± 70"]);
    }

    #[test]
    fn changes_of_any_size_have_a_short_form() {
        let shown = [0.04, -0.5, 9999.0, 1e300, f64::INFINITY, f64::MAX].map(percent);
        assert_eq!(shown, ["+4.00%", "-50.00%", "+999900.00%", "+1.00e302%", "+∞%", "+∞%"]);
        assert_eq!(percent(-2e4), "-2.00e6%");
    }

    #[test]
    fn times_are_in_utc_and_bytes_in_binary_units() {
        assert_eq!(when(1_750_000_000_000), "2025-06-15 15:06:40");
        assert_eq!([bytes(12), bytes(2048), bytes(3 << 30)], ["12 B", "2.0 KiB", "3.0 GiB"]);
    }
}
