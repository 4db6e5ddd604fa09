//! Times in logs (ISO 8601 with the offset from UTC) and in tables (also seconds or milliseconds since 1970).
//!
//! Knows nothing of clocks.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Returns the nanoseconds from the Unix epoch to a time such as `2018-11-08T08:18:55.510Z` or `2018-11-08 09:18:55+01:00`.
///
/// Returns `None` if the text is not such a time, has no offset, or is outside the years 1678 to 2261, the range of an `i64`.
pub(super) fn unix_ns(text: &[u8]) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let (separator, rest) = rest.split_first()?;
    let (clock, rest) = rest.split_at_checked(8)?;
    if date[4] != b'-' || date[7] != b'-' || clock[2] != b':' || clock[5] != b':' || !b"Tt ".contains(separator) {
        return None;
    }
    let two = |digits: &[u8]| i8::try_from(number(digits)?).ok();
    let (year, month, day) = (i16::try_from(number(&date[..4])?).ok()?, two(&date[5..7])?, two(&date[8..])?);
    let (hour, minute, second) = (two(&clock[..2])?, two(&clock[3..5])?, two(&clock[6..])?);
    let at = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    let (fraction_ns, zone) = fraction(rest)?;
    let seconds = Offset::UTC.to_timestamp(at).ok()?.as_second() - offset_s(zone)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

/// Returns the milliseconds from the Unix epoch to a time in the format of [`unix_ns`], or in seconds or milliseconds since 1970.
///
/// A number with ten digits before its point is in seconds, and one with thirteen digits in milliseconds: times from
/// September 2001 to November 2286. Other numbers, such as the day `20240531`, give `None`.
pub(super) fn unix_ms(text: &str) -> Option<i64> {
    if let Some(ns) = unix_ns(text.as_bytes()) {
        return Some(ns.div_euclid(1_000_000));
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.starts_with('0') || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    match whole.len() {
        10 => Some(number(whole.as_bytes())? * 1000 + number(format!("{fraction:0<3}").as_bytes().get(..3)?)?),
        13 => number(whole.as_bytes()),
        _ => None,
    }
}

/// Returns the start of a day such as `2018-11-08`, in UTC, in ns since the Unix epoch.
pub(super) fn day_unix_ns(text: &[u8]) -> Option<i64> {
    if text.len() == 10 { unix_ns(&[text, b"T00:00:00Z".as_slice()].concat()) } else { None }
}

/// Formats a time as ISO 8601 in UTC with milliseconds, `2018-11-08T08:18:55.510Z`. Beyond the calendar, it is the first or last time.
pub(super) fn iso_ms(unix_ms: i64) -> String {
    let last = if unix_ms < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_millisecond(unix_ms).unwrap_or(last).strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')))
}

/// Parses the fraction of a second. Returns it in nanoseconds (further digits are cut off), and the rest of the text.
fn fraction(rest: &[u8]) -> Option<(i64, &[u8])> {
    let Some(digits) = rest.strip_prefix(b".").or_else(|| rest.strip_prefix(b",")) else { return Some((0, rest)) };
    let len = digits.iter().take_while(|digit| digit.is_ascii_digit()).count();
    if len == 0 {
        return None;
    }
    let (digits, zone) = digits.split_at(len);
    let kept = number(&digits[..len.min(9)])?;
    let missing = u32::try_from(9 - len.min(9)).ok()?;
    Some((kept * 10_i64.pow(missing), zone))
}

/// Returns the offset from UTC in seconds; it is positive east of Greenwich.
fn offset_s(zone: &[u8]) -> Option<i64> {
    let (sign, rest) = match zone.split_first()? {
        (b'Z' | b'z', []) => return Some(0),
        (b'+', rest) => (1, rest),
        (b'-', rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest.len() {
        5 if rest[2] == b':' => (number(&rest[..2])?, number(&rest[3..])?),
        4 => (number(&rest[..2])?, number(&rest[2..])?),
        2 => (number(rest)?, 0),
        _ => return None,
    };
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_are_read_with_their_offsets() {
        let ms = |text: &str| unix_ns(text.as_bytes()).map(|ns| ns / 1_000_000);
        assert_eq!(ms("2018-11-08T08:18:55.510Z"), Some(1_541_665_135_510));
        assert_eq!(ms("2018-11-08 09:18:55.51+01:00"), Some(1_541_665_135_510));
        assert_eq!(ms("2018-11-08T03:18:55,510-0500"), Some(1_541_665_135_510));
        assert_eq!(unix_ns(b"1970-01-01T00:00:00.0000000019Z"), Some(1));
        assert_eq!(unix_ns(b"1969-12-31T23:59:59Z"), Some(-1_000_000_000));
        assert_eq!(day_unix_ns(b"1970-01-02"), Some(86_400_000_000_000));
    }

    #[test]
    fn other_texts_are_not_moments() {
        for text in [
            "",
            "2018-11-08",
            "2018-11-08T08:18:55.510",
            "2018-02-29T00:00:00Z",
            "2018-13-01T00:00:00Z",
            "2018-11-08T24:00:00Z",
            "2018-11-08T08:18:60Z",
            "2018-11-08T08:18:55.Z",
            "2018-11-08T08:18:55+1",
            "9999-01-01T00:00:00Z",
            "2018_11-08T08:18:55Z",
        ] {
            assert_eq!(unix_ns(text.as_bytes()), None, "{text}");
        }
        assert_eq!(day_unix_ns(b"2018-11-31"), None);
    }

    #[test]
    fn moments_of_tables_may_be_numbers() {
        assert_eq!(unix_ms("2018-11-08T08:18:55.510Z"), Some(1_541_665_135_510));
        assert_eq!(unix_ms("1541665135"), Some(1_541_665_135_000));
        assert_eq!(unix_ms("1541665135.51"), Some(1_541_665_135_510));
        assert_eq!(unix_ms("1541665135.0"), Some(1_541_665_135_000));
        assert_eq!(unix_ms("1541665135510"), Some(1_541_665_135_510));
        assert_eq!(unix_ms("1541665135510.9"), Some(1_541_665_135_510));
        for none in [
            "20240531",
            "202405311200",
            "20240531120000",
            "0541665135",
            "-1541665135",
            "1.5e9",
            "1541665135.x",
            "",
            ".",
        ] {
            assert_eq!(unix_ms(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn written_moments_are_read_back(ms in -9_000_000_000_000..9_000_000_000_000_i64) {
            let text = iso_ms(ms);
            prop_assert_eq!(unix_ns(text.as_bytes()), Some(ms * 1_000_000), "{}", text);
            prop_assert_eq!(text.len(), 24);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = (unix_ns(&bytes), day_unix_ns(&bytes));
        }
    }
}
