//! In which fields runs differ.

use crate::record::{Digest, Names, Part, Run, field};
use std::collections::{BTreeMap, BTreeSet};

/// The fields of the identity, the seed apart, that runs do not agree on. One that some lack and all others agree on is among them unless it
/// follows from the others which runs have it.
pub fn differing(runs: &[&Run]) -> Vec<String> {
    let mut names = Names::known();
    runs.iter().for_each(|run| names.add_run(run));
    names.identity.remove(Part::Seed.name());
    let digests = |name: &str| -> Vec<Option<Digest>> {
        let value = |run: &&Run| field(run, None, name).filter(|value| value.as_table().is_none());
        runs.iter().map(|run| value(run).map(|value| value.digest())).collect()
    };
    let mut found = BTreeSet::new();
    let mut partial = Vec::new();
    // What of each run is told by the fields that were found.
    let mut told: Vec<Vec<Option<Digest>>> = vec![Vec::new(); runs.len()];
    let tell = |told: &mut Vec<Vec<Option<Digest>>>, values: Vec<Option<Digest>>| {
        told.iter_mut().zip(values).for_each(|(told, value)| told.push(value));
    };
    for name in names.identity {
        let values = digests(&name);
        let mut known = values.iter().flatten();
        let Some(first) = known.next() else { continue };
        if known.any(|other| other != first) {
            found.insert(name);
            tell(&mut told, values);
        } else if values.contains(&None) {
            partial.push((name, values));
        }
    }
    for (name, values) in partial {
        let mut of_told = BTreeMap::new();
        let follows = told.iter().zip(&values).all(|(told, value)| of_told.entry(told).or_insert(value) == &value);
        drop(of_told);
        if !follows {
            found.insert(name);
            tell(&mut told, values);
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Parts, Table, Value};

    fn run() -> Run {
        Run::new(Parts {
            config: Value::Table(Table::new()),
            program: "p".into(),
            container: "host".into(),
            cuda: "none".into(),
            driver: "580".into(),
            device: "H200".into(),
            seed: 1,
        })
    }

    #[test]
    fn a_field_that_some_lack_is_an_axis_unless_it_follows_from_another() {
        let of = |fields: &[(&str, i64)]| {
            let config: Table = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::Int(*value))).collect();
            Run::new(Parts { config: config.into(), ..run().parts })
        };
        // Momentum is set of one of two runs that are alike otherwise; beta goes with x = 2, and decay with momentum.
        let runs = [
            of(&[("x", 1), ("momentum", 9), ("decay", 4)]),
            of(&[("x", 1)]),
            of(&[("x", 2), ("beta", 5), ("momentum", 9), ("decay", 4)]),
            of(&[("x", 2), ("beta", 5)]),
        ];
        assert_eq!(differing(&runs.each_ref()), ["decay", "x"]);
        assert_eq!(differing(&[&runs[0], &runs[1]]), ["decay"]);
        assert_eq!(differing(&[&runs[1], &runs[3]]), ["x"]);
    }
}
