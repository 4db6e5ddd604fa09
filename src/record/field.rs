//! The names of all fields of runs and attempts, and their values.
//!
//! There are four kinds of names. A short name is looked up in this order: hashed fields, metrics, settings, facts. So
//! `gpus` is the cell's field, although a fact may end in the same word.

use super::{Attempt, KNOWN_METRICS, Part, Run, Table, Value};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// The names that conditions may use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Names {
    /// Fields of the identity, including the seed and the parts.
    pub identity: BTreeSet<String>,
    /// Metrics.
    pub metrics: BTreeSet<String>,
    /// Fields that are recorded but not hashed, and the outcome.
    pub settings: BTreeSet<String>,
    /// Facts.
    pub facts: BTreeSet<String>,
}

impl Names {
    /// The names that every attempt has.
    pub fn known() -> Self {
        let parts = Part::ALL.into_iter().filter(|part| *part != Part::Config).map(|part| part.name().to_owned());
        Self {
            identity: parts.collect(),
            metrics: KNOWN_METRICS.iter().map(|metric| metric.name.to_owned()).collect(),
            settings: [OUTCOME.to_owned()].into(),
            facts: BTreeSet::new(),
        }
    }

    /// Adds all names of another set.
    pub fn add(&mut self, other: &Self) {
        self.identity.extend(other.identity.iter().cloned());
        self.metrics.extend(other.metrics.iter().cloned());
        self.settings.extend(other.settings.iter().cloned());
        self.facts.extend(other.facts.iter().cloned());
    }

    /// Adds the names of a run.
    pub fn add_run(&mut self, run: &Run) {
        self.identity.extend(run.config().keys().cloned());
        for part in WITH_FIELDS {
            if let Value::Table(table) = run.parts.value(part) {
                let (names, _) = names_in(&table);
                self.identity.extend(names.iter().map(|name| format!("{part}.{name}")));
            }
        }
    }

    /// Adds the names of an attempt; of its facts only those that [`each_fact`] visits.
    pub fn add_attempt(&mut self, attempt: &Attempt) {
        self.metrics.extend(attempt.metrics.keys().cloned());
        self.settings.extend(attempt.settings.keys().cloned());
        // Names beyond the limit are in the record but cannot be used in conditions.
        let _ = each_fact(attempt, &mut |name| {
            self.facts.insert(name.to_owned());
            ControlFlow::Continue(())
        });
    }

    /// The kinds of names, in the order of look-up of short names.
    pub fn tiers(&self) -> [&BTreeSet<String>; 4] {
        [&self.identity, &self.metrics, &self.settings, &self.facts]
    }
}

const OUTCOME: &str = "outcome";
/// The parts that may have fields, except the configuration.
const WITH_FIELDS: [Part; 5] = [Part::Program, Part::Container, Part::Cuda, Part::Driver, Part::Device];

/// The kind of a name, except for facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A field of the identity.
    Identity,
    /// A metric.
    Metric,
    /// A field that is recorded but not hashed, or the outcome.
    Setting,
}

/// A visitor of names with their values.
pub type Visit<'a> = dyn FnMut(Kind, &str, Option<&Value>) -> ControlFlow<()> + 'a;

/// Visits an attempt's names, except facts, with the values that [`field`] returns. Stops if `visit` breaks, or if a
/// part has more names than the limit. If a name occurs twice, the first occurrence is valid.
pub fn each_field(run: &Run, attempt: &Attempt, visit: &mut Visit<'_>) -> ControlFlow<()> {
    for (name, value) in run.config() {
        visit(Kind::Identity, name, Some(value))?;
    }
    for part in Part::ALL.into_iter().filter(|part| *part != Part::Config) {
        visit(Kind::Identity, part.name(), of_part(run, part.name()).as_ref())?;
    }
    for part in WITH_FIELDS {
        let Value::Table(table) = run.parts.value(part) else { continue };
        let (names, is_all) = names_in(&table);
        is_all?;
        for name in names {
            visit(Kind::Identity, &format!("{part}.{name}"), within(&table, &name).as_ref())?;
        }
    }
    for (name, metric) in &attempt.metrics {
        visit(Kind::Metric, name, metric.value.map(Value::Float).as_ref())?;
    }
    visit(Kind::Setting, OUTCOME, Some(&attempt.outcome.name().into()))?;
    attempt.settings.iter().try_for_each(|(name, value)| visit(Kind::Setting, name, Some(value)))
}

/// The limit of all names of one table, in bytes. Names are full paths, so a long name with many fields can need far
/// more bytes than the record.
const MOST_NAMES_BYTES: usize = 1 << 20;

/// Visits the names of an attempt's facts. Stops if `visit` breaks, or after names of one mebibyte in total.
pub fn each_fact(attempt: &Attempt, visit: &mut dyn FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
    each_name(&attempt.facts, visit)
}

fn each_name(table: &Table, visit: &mut dyn FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
    fn walk(path: &mut String, table: &Table, visit: &mut dyn FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
        for (name, value) in table {
            let before = path.len();
            if before > 0 {
                path.push('.');
            }
            path.push_str(name);
            match value {
                Value::Table(inner) => walk(path, inner, visit)?,
                _ => visit(path)?,
            }
            path.truncate(before);
        }
        ControlFlow::Continue(())
    }
    let mut left = MOST_NAMES_BYTES;
    walk(&mut String::new(), table, &mut |name| match left.checked_sub(name.len()) {
        Some(rest) => {
            left = rest;
            visit(name)
        }
        None => ControlFlow::Break(()),
    })
}

/// The names in a table, and whether they are complete.
fn names_in(table: &Table) -> (BTreeSet<String>, ControlFlow<()>) {
    let mut names = BTreeSet::new();
    let is_all = each_name(table, &mut |name| {
        names.insert(name.to_owned());
        ControlFlow::Continue(())
    });
    (names, is_all)
}

/// The value of a full name; `None` if the run and the attempt do not have it. Without an attempt, only the run's
/// fields are looked up.
pub fn field(run: &Run, attempt: Option<&Attempt>, name: &str) -> Option<Value> {
    if let Some(value) = run.config().get(name) {
        return Some(value.clone());
    }
    if let Some(value) = of_part(run, name) {
        return Some(value);
    }
    let attempt = attempt?;
    if let Some(metric) = attempt.metrics.get(name) {
        return metric.value.map(Value::Float);
    }
    if name == OUTCOME {
        return Some(attempt.outcome.name().into());
    }
    attempt.settings.get(name).cloned().or_else(|| within(&attempt.facts, name))
}

/// A part by its name, or a field of a part. A list of equal texts, such as the names of several GPUs, is returned as one of them.
fn of_part(run: &Run, name: &str) -> Option<Value> {
    let (head, rest) = name.split_once('.').map_or((name, None), |(head, rest)| (head, Some(rest)));
    let part: Part = head.parse().ok()?;
    match (part, rest) {
        (Part::Config, _) => None,
        (Part::Seed, None) => {
            let seed = run.parts.seed;
            // As text if an `i64` cannot hold it, so that different seeds stay different.
            Some(i64::try_from(seed).map_or_else(|_| seed.to_string().into(), Value::Int))
        }
        (_, None) => Some(plain(run.parts.value(part))),
        (_, Some(rest)) => within(run.parts.value(part).as_table()?, rest),
    }
}

fn plain(value: Value) -> Value {
    match value {
        Value::List(items) => match items.split_first() {
            Some((first, others)) if others.iter().all(|other| other == first) => first.clone(),
            _ => Value::Str(items.iter().map(Value::to_string).collect::<Vec<_>>().join(" + ")),
        },
        other => other,
    }
}

/// Looks a name up in a table whose keys may contain points.
fn within(table: &Table, name: &str) -> Option<Value> {
    if let Some(value) = table.get(name) {
        return Some(value.clone());
    }
    name.match_indices('.').find_map(|(point, _)| {
        let inner = table.get(name.get(..point)?)?.as_table()?;
        within(inner, name.get(point + 1..)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Metric, Parts};
    use std::collections::BTreeMap;

    fn run() -> Run {
        let config = [("hardware.gpus".to_owned(), Value::Int(2)), ("params.x".to_owned(), 0.5.into())];
        Run::new(Parts {
            config: Value::Table(config.into()),
            program: Value::Table([("revision".to_owned(), Value::Int(3))].into()),
            driver: "580".into(),
            device: vec!["H200", "H200"].into(),
            seed: u64::MAX,
            ..Parts::sample()
        })
    }

    fn attempt() -> Attempt {
        let inner: Table = [("all.joules".to_owned(), 3.0.into())].into();
        Attempt {
            run: run().id,
            metrics: BTreeMap::from([
                ("accuracy".to_owned(), Metric::new(0.5, "")),
                ("energy".to_owned(), Metric::missing("J", "no sensor")),
            ]),
            settings: [("telemetry.hz".to_owned(), Value::Int(10))].into(),
            facts: [("host.name".to_owned(), "n1".into()), ("energy.of".to_owned(), inner.into())].into(),
            ..Attempt::sample()
        }
    }

    #[test]
    fn every_name_has_its_value() {
        let (run, attempt) = (run(), attempt());
        let of = |name| field(&run, Some(&attempt), name);
        assert_eq!((of("hardware.gpus"), of("params.x")), (Some(Value::Int(2)), Some(0.5.into())));
        assert_eq!(
            (of("seed"), of("device"), of("driver")),
            (Some("18446744073709551615".into()), Some("H200".into()), Some("580".into()))
        );
        assert_eq!(
            (of("program.revision"), of("accuracy"), of("energy")),
            (Some(Value::Int(3)), Some(0.5.into()), None)
        );
        assert_eq!((of("outcome"), of("telemetry.hz")), (Some("finished".into()), Some(Value::Int(10))));
        assert_eq!(
            (of("host.name"), of("energy.of.all.joules"), of("host")),
            (Some("n1".into()), Some(3.0.into()), None)
        );
        assert_eq!(field(&run, None, "accuracy"), None);
        let mut names = Names::known();
        names.add_run(&run);
        names.add_attempt(&attempt);
        for tier in names.tiers() {
            for name in tier.iter().filter(|name| !KNOWN_METRICS.iter().any(|known| known.name == name.as_str())) {
                assert!(of(name).is_some(), "{name}");
            }
        }
        let mut shown = BTreeMap::new();
        let is_all = each_field(&run, &attempt, &mut |_, name, value| {
            shown.entry(name.to_owned()).or_insert(value.cloned());
            ControlFlow::Continue(())
        });
        assert!(is_all.is_continue());
        let expected: BTreeMap<String, Option<Value>> =
            names.tiers()[..3].iter().copied().flatten().map(|name| (name.clone(), of(name))).collect();
        let is_known = |name: &String| KNOWN_METRICS.iter().any(|known| known.name == name.as_str());
        let expected: BTreeMap<_, _> =
            expected.into_iter().filter(|(name, _)| !is_known(name) || attempt.metrics.contains_key(name)).collect();
        assert_eq!(shown, expected);
        let mut facts = BTreeSet::new();
        let is_all = each_fact(&attempt, &mut |name| {
            facts.insert(name.to_owned());
            ControlFlow::Continue(())
        });
        assert!(is_all.is_continue());
        assert_eq!(facts, names.facts);
    }

    #[test]
    fn a_long_name_with_many_fields_takes_no_more_than_a_mebibyte() {
        let mut attempt = attempt();
        let inner: Table = (0..60_000).map(|number| (format!("f{number}"), Value::Int(number))).collect();
        attempt.facts = [("k".repeat(500_000), inner.into())].into();
        let mut bytes = 0;
        let is_all = each_fact(&attempt, &mut |name| {
            bytes += name.len();
            ControlFlow::Continue(())
        });
        assert!(is_all.is_break() && bytes <= MOST_NAMES_BYTES, "{bytes}");
        let mut names = Names::default();
        names.add_attempt(&attempt);
        assert_eq!(names.facts.len(), 2, "two names of half a mebibyte");
    }
}
