//! Numbers as people read them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A number with four significant digits, without trailing zeros; very large and very small ones in scientific notation.
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

/// A duration from its seconds: `1.2 ms`, `3.4 s`, `5 min 06 s`, `7 h 08 min`.
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

/// A number of bytes in binary units.
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

/// `1 run`, `2 runs`.
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// A moment in UTC, to the second.
pub fn when(unix_ms: i64) -> String {
    match Timestamp::from_millisecond(unix_ms) {
        Ok(moment) => moment.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => format!("{unix_ms} ms"),
    }
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
        let expected = ["1.5 µs", "12.3 ms", "1.0 s", "60.0 s", "1 min 40 s", "5 min 06 s", "1 h 00 min", "7 h 08 min"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn moments_and_sizes() {
        assert_eq!(when(1_750_000_000_000), "2025-06-15 15:06:40");
        assert_eq!([bytes(12), bytes(2048), bytes(3 << 30)], ["12 B", "2.0 KiB", "3.0 GiB"]);
        assert_eq!([count(1, "run"), count(0, "run")], ["1 run", "0 runs"]);
    }
}
