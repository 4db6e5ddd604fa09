//! The scale of the analysis, and differences on it.

use crate::record::{MetricKind, Unit};

/// The scale on which effects are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelScale {
    /// The metric itself: effects are differences.
    Linear,
    /// The metric's logarithm: effects are ratios.
    Log,
}

impl ModelScale {
    /// The word in arguments and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Log => "log",
        }
    }

    /// Whether all values can be analysed on it.
    pub fn takes(self, values: &[f64]) -> bool {
        self == Self::Linear || values.iter().all(|value| *value > 0.0)
    }

    /// Returns the scale of a metric by its kind and unit: the logarithm for measurements in a unit with a true zero,
    /// if all values are above 0.
    pub fn of(kind: MetricKind, unit: &str, values: &[f64]) -> Self {
        let is_ratio = kind == MetricKind::Measured && Unit::named(unit).is_some_and(Unit::has_true_zero);
        if is_ratio && Self::Log.takes(values) { Self::Log } else { Self::Linear }
    }

    /// Returns a value on this scale.
    pub fn apply(self, value: f64) -> f64 {
        if self == Self::Log { value.ln() } else { value }
    }

    pub(super) fn undo(self, value: f64) -> f64 {
        if self == Self::Log { value.exp() } else { value }
    }
}

/// A difference of two adjusted means on the scale of the analysis: of the metric, or of its logarithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contrast {
    /// The second mean minus the first.
    pub difference: f64,
    /// Half the width of its 95% interval.
    pub half_width: Option<f64>,
}

impl Contrast {
    /// The ends of the interval.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.half_width.map(|half| (self.difference - half, self.difference + half))
    }

    /// On the log scale: the second mean divided by the first.
    pub fn ratio(&self) -> f64 {
        self.difference.exp()
    }

    /// The ends of the ratio's interval.
    pub fn ratio_interval(&self) -> Option<(f64, f64)> {
        self.interval().map(|(low, high)| (low.exp(), high.exp()))
    }

    /// Whether its interval excludes zero; `None` without an interval.
    pub fn is_apart(&self) -> Option<bool> {
        self.half_width.map(|half| self.difference.abs() > half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_energies_and_rates_above_zero_are_analysed_by_their_logarithm() {
        let of = |kind, unit, values: &[f64]| ModelScale::of(kind, unit, values).name();
        for unit in ["s", "J", "W", "B", "samples/s", "TFLOP/s", "J·s", "MHz"] {
            assert_eq!(of(MetricKind::Measured, unit, &[1.0, 2.0]), "log", "{unit}");
        }
        for unit in ["", "%", "degC", "K", "furlong"] {
            assert_eq!(of(MetricKind::Measured, unit, &[1.0, 2.0]), "linear", "{unit}");
        }
        assert_eq!(of(MetricKind::Outcome, "s", &[1.0, 2.0]), "linear");
        assert_eq!(of(MetricKind::Measured, "J", &[0.0, 2.0]), "linear");
        assert!(!ModelScale::Log.takes(&[1.0, -1.0]) && ModelScale::Linear.takes(&[1.0, -1.0]));
    }
}
