//! Bounds that configurations have to meet on average: `--at-least accuracy=0.9`, `--at-most loss=0.5`.

use super::failure::{Failure, exit};
use crate::record::{Direction, known_metric};
use crate::report;

const AT_LEAST: &str = "--at-least";
const AT_MOST: &str = "--at-most";

/// What a person gave.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// Keep only configurations whose mean is at least this: `accuracy=0.9`
    #[arg(long, value_name = "METRIC=VALUE", value_parser = pair)]
    at_least: Vec<(String, f64)>,

    /// Keep only configurations whose mean is at most this, for a metric where less is better: `loss=0.5`
    #[arg(long, value_name = "METRIC=VALUE", value_parser = pair)]
    at_most: Vec<(String, f64)>,
}

/// A bound on the mean of one metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bound {
    /// The metric's full name.
    pub(super) metric: String,
    value: f64,
    is_most: bool,
}

impl Args {
    /// Whether there are no bounds.
    pub(super) fn is_empty(&self) -> bool {
        self.at_least.is_empty() && self.at_most.is_empty()
    }

    /// Returns the bounds. `full` returns the full name of a metric, given its name and the option.
    pub(super) fn read(&self, full: impl Fn(&str, &str) -> Result<String, Failure>) -> Result<Vec<Bound>, Failure> {
        let of = |pairs: &[(String, f64)], is_most: bool| {
            let one = |(name, value): &(String, f64)| {
                let option = if is_most { AT_MOST } else { AT_LEAST };
                let bound = Bound { metric: full(name, option)?, value: *value, is_most };
                bound.checked()
            };
            pairs.iter().map(one).collect::<Result<Vec<_>, Failure>>()
        };
        Ok([of(&self.at_least, false)?, of(&self.at_most, true)?].concat())
    }
}

impl Bound {
    /// Refuses a bound that would keep the worse values, such as a lower bound on a loss.
    fn checked(self) -> Result<Self, Failure> {
        let Self { metric, value, is_most } = &self;
        let (wanted, option, other, better) = if *is_most {
            (Direction::Minimize, AT_MOST, AT_LEAST, "more")
        } else {
            (Direction::Maximize, AT_LEAST, AT_MOST, "less")
        };
        if known_metric(metric).is_some_and(|known| known.direction != wanted) {
            let value = report::significant(*value);
            let text =
                format!("{option}: {better} `{metric}` is better ({other} {metric}={value} keeps the better ones)");
            return Err(Failure::new(exit::USAGE, text));
        }
        Ok(self)
    }

    /// Whether a mean meets the bound.
    pub(super) fn is_met(&self, mean: f64) -> bool {
        if self.is_most { mean <= self.value } else { mean >= self.value }
    }

    /// Returns the option that sets the bound.
    pub(super) fn option(&self) -> &'static str {
        if self.is_most { AT_MOST } else { AT_LEAST }
    }

    /// Returns the bound in words: `accuracy of at least 0.9`.
    pub(super) fn text(&self) -> String {
        let words = if self.is_most { "at most" } else { "at least" };
        format!("{} of {words} {}", self.metric, report::significant(self.value))
    }

    /// Returns the best of these means, none of which meets the bound, in words: `the nearest has 0.85`.
    pub(super) fn nearest(&self, means: impl Iterator<Item = f64>) -> String {
        let better = if self.is_most { f64::min } else { f64::max };
        let Some(nearest) = means.reduce(better) else { return format!("none has a finite `{}`", self.metric) };
        let short = report::significant(nearest);
        let is_alike = short == report::significant(self.value);
        format!("the nearest has {}", if is_alike { nearest.to_string() } else { short })
    }

    /// Returns why a configuration with this mean does not meet the bound: `accuracy 0.5, less than 0.9`.
    pub(super) fn missed(&self, mean: f64) -> String {
        let words = if self.is_most { "more than" } else { "less than" };
        format!("{} {}, {words} {}", self.metric, report::significant(mean), report::significant(self.value))
    }
}

fn pair(text: &str) -> Result<(String, f64), String> {
    let wanted = || "it must be a metric and a number, such as accuracy=0.9".to_owned();
    let (metric, value) = text.split_once('=').ok_or_else(wanted)?;
    let value = value.trim().parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(wanted)?;
    Ok((metric.trim().to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(at_least: &str, at_most: &str) -> Result<Vec<Bound>, String> {
        let pairs = |text: &str| text.split_whitespace().map(|text| pair(text).unwrap()).collect();
        let args = Args { at_least: pairs(at_least), at_most: pairs(at_most) };
        args.read(|name, _| Ok(name.to_owned())).map_err(|failure| failure.source.to_string())
    }

    #[test]
    fn a_bound_keeps_the_better_ones() {
        let bounds = read("accuracy=0.9 score=1", "loss=0.5 score=7").unwrap();
        let met: Vec<bool> = bounds.iter().map(|bound| bound.is_met(1.0)).collect();
        assert_eq!(met, [true, true, false, true], "of a program's own nobody knows which way is better");
        assert_eq!(bounds[2].missed(1.0), "loss 1, more than 0.5");
        assert_eq!(bounds[0].missed(0.5), "accuracy 0.5, less than 0.9");
        assert_eq!((bounds[0].text(), bounds[2].option()), ("accuracy of at least 0.9".to_owned(), AT_MOST));
        assert_eq!(bounds[0].nearest([0.7, 0.8].into_iter()), "the nearest has 0.8");
        assert_eq!(bounds[0].nearest([0.899_99].into_iter()), "the nearest has 0.89999");
        assert_eq!(bounds[2].nearest([0.7, 0.8].into_iter()), "the nearest has 0.7");
        assert_eq!(bounds[2].nearest(std::iter::empty()), "none has a finite `loss`");
        let said = read("perplexity=40", "").unwrap_err();
        assert_eq!(said, "--at-least: less `perplexity` is better (--at-most perplexity=40 keeps the better ones)");
        assert!(read("", "accuracy=0.9").unwrap_err().contains("--at-least accuracy=0.9 keeps"));
    }
}
