//! Warns of rows that average over different mixes of configurations: their difference is then partly that of the mixes
//! (Simpson's paradox).

use crate::analysis::{Contender, SampleModel};
use crate::record::{Run, RunId, field};
use std::collections::{BTreeMap, BTreeSet};

/// Fields that are not named: they often differ by design (the length of the training, and what is timed after it), or
/// another field says the same (the digest of the data).
const OTHERS: [&str; 4] = ["training.steps", "training.epochs", "inference.batch_sizes", "data.digest"];
/// The largest difference of shares that is not warned of. One failed attempt stays below it in most designs.
const ALIKE: f64 = 0.15;
/// The number of fields whose shares are named, and of the values of each.
const SHOWN_FIELDS: usize = 2;
const SHOWN_VALUES: usize = 4;

/// The share that each value of each field of the configuration has in the mean of a row.
pub(super) struct Mix {
    row: usize,
    shares: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Mix {
    /// The mix of a row, by its number, from the shares of its runs.
    pub(super) fn new<'a>(row: usize, runs: impl Iterator<Item = (&'a Run, f64)>) -> Self {
        let mut shares: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
        for (run, share) in runs {
            let device = field(run, None, "device").map(|device| ("device".to_owned(), device));
            let config = run.config().iter().map(|(name, value)| (name.clone(), value.clone()));
            for (name, value) in config.chain(device) {
                *shares.entry(name).or_default().entry(value.to_string()).or_default() += share;
            }
        }
        Self { row, shares }
    }

    fn of(&self, field: &str) -> Vec<(&str, f64)> {
        let shares = self.shares.get(field);
        let mut found: Vec<(&str, f64)> =
            shares.into_iter().flatten().map(|(value, share)| (value.as_str(), *share)).collect();
        let rest = 1.0 - found.iter().map(|(_, share)| share).sum::<f64>();
        found.extend((rest > 1e-9).then_some(("without it", rest)));
        found.sort_by(|a, b| b.1.total_cmp(&a.1));
        found
    }

    /// The largest difference between the shares that two rows have of one value.
    fn difference(&self, other: &Self, field: &str) -> f64 {
        let share = |of: &[(&str, f64)], value: &str| of.iter().find(|one| one.0 == value).map_or(0.0, |one| one.1);
        let (own, others) = (self.of(field), other.of(field));
        let values = own.iter().chain(&others).map(|(value, _)| *value);
        values.map(|value| (share(&own, value) - share(&others, value)).abs()).fold(0.0, f64::max)
    }

    /// `#1 128 (74%), 32 (26%)`.
    fn text(&self, field: &str) -> String {
        let found = self.of(field);
        let shown: Vec<String> =
            found.iter().take(SHOWN_VALUES).map(|(value, share)| format!("{value} ({:.0}%)", 100.0 * share)).collect();
        let more = if found.len() > SHOWN_VALUES { " and others" } else { "" };
        format!("#{} {}{more}", self.row, shown.join(", "))
    }
}

/// The share that each run has in the mean of a row. Machines weigh the same if the mean is over machines, and seeds if it is over seeds.
pub(super) fn shares(row: &Contender) -> BTreeMap<RunId, f64> {
    let model = row.estimate().map(|estimate| estimate.model);
    let unit = |at: usize| match model {
        Some(SampleModel::Clusters | SampleModel::Mixed) => row.measured[at].replicate.machine,
        Some(SampleModel::Seeds) => row.measured[at].replicate.seed,
        _ => u64::try_from(at).unwrap_or(u64::MAX),
    };
    let mut attempts: BTreeMap<u64, f64> = BTreeMap::new();
    (0..row.measured.len()).for_each(|at| *attempts.entry(unit(at)).or_default() += 1.0);
    let units: f64 = attempts.values().map(|_| 1.0).sum();
    let mut shares: BTreeMap<RunId, f64> = BTreeMap::new();
    for (at, one) in row.measured.iter().enumerate() {
        *shares.entry(one.run).or_default() += 1.0 / (units * attempts[&unit(at)]);
    }
    shares
}

/// Warns of the averaged fields whose values have other shares in another row than in the first one.
pub(super) fn unlike_mixes(mixes: &[Mix], averaged: &BTreeSet<String>) -> Option<String> {
    let first = mixes.first()?;
    let fields = averaged.iter().filter(|field| !OTHERS.contains(&field.as_str()));
    let farthest = fields.filter_map(|field| {
        let differences = mixes.iter().map(|mix| (first.difference(mix, field), mix));
        let most = differences.reduce(|most, one| if one.0 > most.0 { one } else { most })?;
        (most.0 > ALIKE).then_some((most.0, field, most.1))
    });
    let mut farthest: Vec<(f64, &String, &Mix)> = farthest.collect();
    farthest.sort_by(|a, b| b.0.total_cmp(&a.0));
    let told = farthest.iter().take(SHOWN_FIELDS);
    let told: Vec<String> =
        told.map(|(_, field, mix)| format!("`{field}`: {}, but {}", first.text(field), mix.text(field))).collect();
    let more = farthest.len().checked_sub(SHOWN_FIELDS).filter(|more| *more > 0);
    let more = more.map_or_else(String::new, |more| format!("; and of {more} more"));
    (!told.is_empty()).then(|| {
        format!(
            "warning: rows have other proportions, which may explain their differences, of {}{more} (--group-by keeps a field apart)",
            told.join("; of ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Parts, Table, Value};

    fn mix(row: usize, shares: &[(Option<i64>, f64)]) -> Mix {
        let run = |batch: Option<i64>| {
            let steps = batch.map(|batch| ("training.steps", batch * 10));
            let fields = batch.map(|batch| ("training.batch_size", batch)).into_iter().chain(steps);
            let config: Table = fields.map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
            Run::new(Parts { config: config.into(), ..Parts::sample() })
        };
        let runs: Vec<(Run, f64)> = shares.iter().map(|(batch, share)| (run(*batch), *share)).collect();
        Mix::new(row, runs.iter().map(|(run, share)| (run, *share)))
    }

    #[test]
    fn rows_with_other_shares_of_a_value_are_warned_of() {
        let averaged: BTreeSet<String> = ["training.batch_size", "training.steps"].map(str::to_owned).into();
        let of = |other: &[(Option<i64>, f64)]| {
            unlike_mixes(&[mix(1, &[(Some(32), 0.5), (Some(128), 0.5)]), mix(2, other)], &averaged)
        };
        assert_eq!(of(&[(Some(32), 0.6), (Some(128), 0.4)]), None);
        assert_eq!(
            of(&[(Some(32), 0.2), (Some(128), 0.8)]).unwrap(),
            "warning: rows have other proportions, which may explain their differences, of `training.batch_size`: #1 128 (50%), 32 (50%), but #2 128 (80%), 32 (20%) (--group-by keeps a field apart)"
        );
        let without = of(&[(Some(32), 0.4), (None, 0.6)]).unwrap();
        assert!(without.contains("but #2 without it (60%), 32 (40%)"), "{without}");
    }
}
