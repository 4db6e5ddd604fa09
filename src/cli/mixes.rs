//! Rows of a grouping that average over unlike mixes of configurations, so that their difference is partly that of the mixes (Simpson's paradox).

use crate::record::Run;
use std::collections::{BTreeMap, BTreeSet};

/// Fields that are often different by design: the length of the training, and what is timed after it. A digest tells nobody anything.
const OTHERS: [&str; 4] = ["training.steps", "training.epochs", "inference.batch_sizes", "data.digest"];
/// Shares of attempts that differ by no more are alike: an attempt that failed makes no other mix.
const ALIKE: f64 = 0.15;
/// At most this many values of a row are named.
const SHOWN: usize = 4;

/// How many attempts of a row have which value of each field of the configuration.
pub(super) struct Mix {
    row: usize,
    fields: BTreeMap<String, BTreeMap<String, u32>>,
}

impl Mix {
    /// The mix of a row, by its number, from its runs and the number of attempts of each.
    pub(super) fn new<'a>(row: usize, runs: impl Iterator<Item = (&'a Run, u32)>) -> Self {
        let mut fields: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
        for (run, attempts) in runs {
            for (name, value) in run.config() {
                *fields.entry(name.clone()).or_default().entry(value.to_string()).or_default() += attempts;
            }
        }
        Self { row, fields }
    }

    /// The share of the attempts that have this value.
    fn share(&self, field: &str, value: &str) -> f64 {
        let counts = self.fields.get(field);
        let all: u32 = counts.into_iter().flat_map(BTreeMap::values).sum();
        f64::from(counts.and_then(|counts| counts.get(value)).copied().unwrap_or(0)) / f64::from(all.max(1))
    }

    /// The largest difference between the shares that two rows have of one value.
    fn difference(&self, other: &Self, field: &str) -> f64 {
        let values = [self, other].into_iter().filter_map(|mix| mix.fields.get(field)).flat_map(BTreeMap::keys);
        values.map(|value| (self.share(field, value) - other.share(field, value)).abs()).fold(0.0, f64::max)
    }

    fn text(&self, field: &str) -> String {
        let mut counts: Vec<(&String, &u32)> = self.fields.get(field).into_iter().flatten().collect();
        counts.sort_by_key(|(_, attempts)| std::cmp::Reverse(**attempts));
        let shown: Vec<String> =
            counts.iter().take(SHOWN).map(|(value, attempts)| format!("{attempts} of {value}")).collect();
        format!("#{} has {}{}", self.row, shown.join(", "), if counts.len() > SHOWN { " and others" } else { "" })
    }
}

/// Warns of the averaged field whose values differ most between the first row and another one, in shares of attempts.
pub(super) fn unlike_mixes(mixes: &[Mix], averaged: &BTreeSet<String>) -> Option<String> {
    let first = mixes.first()?;
    let fields = averaged.iter().filter(|field| !OTHERS.contains(&field.as_str()));
    let pairs = fields.flat_map(|field| mixes.iter().map(move |mix| (first.difference(mix, field), field, mix)));
    let (most, field, mix) = pairs.reduce(|most, one| if one.0 > most.0 { one } else { most })?;
    let text = format!("rows have other proportions of `{field}`, which may explain their differences");
    (most > ALIKE).then(|| {
        format!("warning: {text}: {}; {} attempts (--group-by keeps a field apart)", first.text(field), mix.text(field))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Parts, Table, Value};

    fn mix(row: usize, attempts: &[(i64, u32)]) -> Mix {
        let run = |batch: i64| {
            let config: Table = [("training.batch_size", batch), ("training.steps", batch * 10)]
                .map(|(name, value)| (name.to_owned(), Value::from(value)))
                .into();
            Run::new(Parts { config: config.into(), ..Parts::sample() })
        };
        let runs: Vec<(Run, u32)> = attempts.iter().map(|(batch, attempts)| (run(*batch), *attempts)).collect();
        Mix::new(row, runs.iter().map(|(run, attempts)| (run, *attempts)))
    }

    #[test]
    fn rows_with_other_shares_of_a_value_are_warned_of() {
        let averaged: BTreeSet<String> = ["training.batch_size", "training.steps"].map(str::to_owned).into();
        let of = |other: &[(i64, u32)]| unlike_mixes(&[mix(1, &[(32, 3), (128, 3)]), mix(2, other)], &averaged);
        assert_eq!(of(&[(32, 4), (128, 3)]), None);
        assert_eq!(of(&[(32, 30), (128, 30)]), None);
        let text = "rows have other proportions of `training.batch_size`, which may explain their differences";
        assert_eq!(
            of(&[(32, 1), (128, 5)]).unwrap(),
            format!(
                "warning: {text}: #1 has 3 of 128, 3 of 32; #2 has 5 of 128, 1 of 32 attempts (--group-by keeps a field apart)"
            )
        );
        assert!(of(&[(32, 6)]).is_some(), "a row that lacks a value");
    }
}
