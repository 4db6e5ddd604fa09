//! Axis scales: positions of values and ticks.

/// An axis' scale.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Linear from the first to the second, larger value.
    Linear(f64, f64),
    /// Logarithmic from the first to the second value; both are positive.
    Log(f64, f64),
    /// Linear, with ticks at these values only.
    At(f64, f64, Vec<f64>),
    /// Named rows or columns; the n-th is at n + 0.5.
    Names(Vec<String>),
    /// Linear, without ticks.
    Bare(f64, f64),
}

impl Scale {
    /// Returns the position of a value, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        match self {
            Self::Linear(low, high) | Self::At(low, high, _) | Self::Bare(low, high) => (value - low) / (high - low),
            Self::Log(low, high) => (value.max(f64::MIN_POSITIVE) / low).ln() / (high / low).ln(),
            Self::Names(names) => value / number(names.len().max(1)),
        }
    }

    /// Returns ticks and their labels, about `about` of them if the scale leaves the number open.
    pub(super) fn ticks(&self, about: usize) -> Vec<(f64, String)> {
        match self {
            Self::Linear(low, high) => numbered(even(*low, *high, about)),
            Self::At(_, _, values) => values.iter().map(|value| (*value, exact(*value))).collect(),
            Self::Log(low, high) => {
                decades(*low, *high, about).into_iter().flat_map(|tick| numbered(vec![tick])).collect()
            }
            Self::Names(names) => (0..).zip(names).map(|(at, name)| (f64::from(at) + 0.5, name.clone())).collect(),
            Self::Bare(..) => Vec::new(),
        }
    }
}

/// Labels ticks with as many digits as distinguish them.
fn numbered(values: Vec<f64>) -> Vec<(f64, String)> {
    let largest = values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    let step = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(f64::INFINITY, f64::min);
    let text = |value: f64| {
        if value == 0.0 {
            return "0".to_owned();
        }
        if !(1e-4..1e6).contains(&largest) {
            let digits = if step.is_finite() { ((largest / step).log10().ceil() + 1.0).clamp(0.0, 8.0) } else { 3.0 };
            let text = format!("{value:.*e}", whole(digits));
            return trimmed_power(&text);
        }
        let digits = if step.is_finite() { (-step.log10()).ceil() + 1.0 } else { 4.0 };
        let text = format!("{value:.*}", whole(digits.clamp(0.0, 12.0)));
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    };
    values.iter().map(|value| (*value, text(*value).replace('-', "−"))).collect()
}

/// Labels a level without rounding, because it is an exact setting of a run.
fn exact(value: f64) -> String {
    let is_plain = value == 0.0 || (1e-4..1e7).contains(&value.abs());
    let text = if is_plain { format!("{value}") } else { format!("{value:e}") };
    text.replace('-', "−")
}

/// Shortens `1.500e6` to `1.5e6`.
fn trimmed_power(text: &str) -> String {
    match text.split_once('e') {
        Some((digits, power)) if digits.contains('.') => {
            format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text.to_owned(),
    }
}

/// Returns ticks at multiples of 1, 2, 2.5 or 5 times a power of ten.
fn even(low: f64, high: f64, about: usize) -> Vec<f64> {
    let rough = (high - low) / number(about.max(1));
    if !rough.is_finite() || rough <= 0.0 {
        return vec![low];
    }
    let power = 10f64.powf(rough.log10().floor());
    if power <= 0.0 {
        return vec![low];
    }
    let share = rough / power;
    let step = power * [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|step| share <= *step).unwrap_or(10.0);
    let first = (low / step - 1e-9).ceil();
    (0..200u8).map(|at| (first + f64::from(at)) * step).take_while(|value| *value <= high + 1e-9 * step).collect()
}

/// Returns powers of ten, with 2 and 5 between them if there is room.
fn decades(low: f64, high: f64, about: usize) -> Vec<f64> {
    let (from, to) = (low.log10().floor(), high.log10().ceil());
    let span = (to - from).max(1.0);
    let inner: &[f64] = if span * 3.0 <= number(about) + 1.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let every = (span / number(about.max(1))).ceil().max(1.0);
    let mut ticks = Vec::new();
    let mut power = from;
    while power <= to {
        ticks.extend(inner.iter().map(|inner| inner * 10f64.powf(power)));
        power += every;
    }
    ticks.retain(|tick| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(tick));
    if ticks.len() < 2 { even(low, high, about).into_iter().filter(|tick| *tick > 0.0).collect() } else { ticks }
}

/// Returns the range of all finite values with some margin. It is never empty.
/// With `from_zero` it includes zero, without a margin there if all values have one sign.
pub(crate) fn padded(values: impl IntoIterator<Item = f64>, from_zero: bool) -> (f64, f64) {
    let finite = values.into_iter().filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return (0.0, 1.0);
    }
    let (low, high) = if from_zero { (low.min(0.0), high.max(0.0)) } else { (low, high) };
    let span = high - low;
    if span <= low.abs().max(high.abs()) * 1e-9 || span < f64::MIN_POSITIVE * 1e16 {
        let room = (low.abs() * 0.05).max(if low == 0.0 { 0.5 } else { f64::MIN_POSITIVE * 1e16 });
        return (low - room, high + room);
    }
    let room = 0.06 * span;
    let is_floor = from_zero && low == 0.0;
    let is_ceiling = from_zero && high == 0.0;
    (if is_floor { 0.0 } else { low - room }, if is_ceiling { 0.0 } else { high + room })
}

pub(super) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Drops the fraction of a small number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates, and callers clamp")]
pub(super) fn whole(value: f64) -> usize {
    value as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(scale: &Scale, about: usize) -> Vec<String> {
        scale.ticks(about).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_numbers_with_distinct_labels() {
        assert_eq!(texts(&Scale::Linear(0.0, 106.0), 5), ["0", "25", "50", "75", "100"]);
        assert_eq!(texts(&Scale::Linear(-0.3, 0.31), 4), ["−0.2", "0", "0.2"]);
        assert_eq!(texts(&Scale::Linear(0.0, 1.378e7), 6), ["0", "2.5e6", "5e6", "7.5e6", "1e7", "1.25e7"]);
        assert_eq!(texts(&Scale::At(0.9e6, 1.3e6, vec![1e6, 1.25e6]), 5), ["1000000", "1250000"]);
        assert_eq!(texts(&Scale::At(90.0, 320.0, vec![100.0, 250.0, 312.5]), 5), ["100", "250", "312.5"]);
        assert_eq!(texts(&Scale::Linear(1.0001, 1.0005), 4), ["1.0001", "1.0002", "1.0003", "1.0004", "1.0005"]);
        assert_eq!(texts(&Scale::Linear(0.0, 4.2e9), 4), ["0", "2e9", "4e9"]);
        assert_eq!(texts(&Scale::Log(1.0, 1000.0), 5), ["1", "10", "100", "1000"]);
        assert_eq!(texts(&Scale::Log(8.0, 64.0), 5), ["10", "20", "50"]);
        assert_eq!(texts(&Scale::At(0.0, 9.0, vec![1.0, 2.0, 8.0]), 5), ["1", "2", "8"]);
    }

    #[test]
    fn ranges_have_a_margin_and_can_start_at_zero() {
        assert_eq!(padded([2.0, 4.0], true), (0.0, 4.24));
        assert_eq!(padded([-2.0], true), (-2.12, 0.0));
        assert_eq!(padded([0.0], false), (-0.5, 0.5));
        assert_eq!(padded([f64::NAN], false), (0.0, 1.0));
    }

    proptest! {
        #[test]
        fn any_values_have_a_range_with_ticks_in_it(values in prop::collection::vec(-1e100..1e100f64, 1..20), zero: bool) {
            let (low, high) = padded(values.iter().copied(), zero);
            prop_assert!(low < high && values.iter().all(|value| (low..=high).contains(value)));
            let scale = Scale::Linear(low, high);
            for (value, _) in scale.ticks(6) {
                prop_assert!((-1e-6..=1.0 + 1e-6).contains(&scale.place(value)));
            }
            prop_assert!(scale.ticks(6).len() <= 14);
        }
    }
}
