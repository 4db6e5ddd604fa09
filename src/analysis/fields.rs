//! In which fields runs differ.

use crate::record::{Digest, Names, Part, Run, Value, field};
use std::collections::{BTreeMap, BTreeSet};

/// Fields of which a manifest may say nothing: a run has them by nobody's choice but its author's, whatever its other fields are.
const CHOSEN: [&str; 12] = [
    "training.clip_norm",
    "training.warmup_steps",
    "training.epochs",
    "training.steps",
    "training.deterministic",
    "inference.batch_sizes",
    "hardware.gpus",
    "hardware.cpu_ranks",
    "hardware.memory_limit_gib",
    "hardware.power_limit_w",
    "hardware.sm_clock_mhz",
    "hardware.memory_clock_mhz",
];
/// What the built-in trainer has defaults for, and a program of its own has not.
const WORK: [&str; 4] = ["model.", "data.", "training.", "inference."];

/// How the fields of a program part begin.
const PROGRAM: &str = "program.";
/// Those of them that a manifest says.
const VARIED: [&str; 2] = ["program.command", "program.settings."];

const BATCH_OF_ALL: &str = "training.batch_global";

/// Whether a run has a field only because somebody gave it, so that no other field tells of it.
pub fn is_chosen(name: &str, run: &Run) -> bool {
    let has_own_program = || run.parts.program.as_table().is_some_and(|program| program.contains_key("command"));
    let is_work = || WORK.iter().any(|section| name.starts_with(section));
    let is = |name: &str, word: &str| run.config().get(name).and_then(Value::as_str) == Some(word);
    // Some have a default for one value of another field alone.
    let is_without_default = || match name {
        "training.weight_decay" => !is("training.optimizer", "adamw"),
        "data.train_count" => is("data.name", "idx"),
        _ => CHOSEN.contains(&name),
    };
    name.starts_with("params.") || is_without_default() || is_work() && has_own_program()
}

/// The fields of the identity, the seed apart, that runs do not agree on. One that some lack and all others agree on is among them unless it
/// follows from the others which runs have it, as that of an optimizer does. One that a person chose to give follows from nothing, though
/// few runs may look so; nor does the batch of all ranks that only some share, where the batch of each is among them.
pub fn differing(runs: &[&Run]) -> Vec<String> {
    let mut names = Names::known();
    runs.iter().for_each(|run| names.add_run(run));
    names.identity.remove(Part::Seed.name());
    // Digests, versions and commits tell of a program that it is another one, and of nothing that a person varies: whoever wants them asks by name.
    let is_varied = |name: &str| VARIED.iter().any(|varied| name.starts_with(varied));
    names.identity.retain(|name| !name.starts_with(PROGRAM) || is_varied(name));
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
            if runs.iter().zip(&values).any(|(run, value)| value.is_some() && is_chosen(&name, run)) {
                found.insert(name);
                tell(&mut told, values);
            } else {
                partial.push((name, values));
            }
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
    // The batch of each, where it is shown, is half of what is to be known of runs that share one.
    let of_all = || runs.iter().map(|run| run.config().get(BATCH_OF_ALL));
    if found.contains("training.batch_size") && of_all().any(|one| one.is_some()) && of_all().any(|one| one.is_none()) {
        found.insert(BATCH_OF_ALL.to_owned());
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Parts, Table};

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

    #[test]
    fn the_batch_of_all_is_shown_beside_the_batch_of_each() {
        let of = |fields: &[(&str, i64)]| {
            let config: Table = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::Int(*value))).collect();
            Run::new(Parts { config: config.into(), ..run().parts })
        };
        let ranks = |ranks, each| of(&[("x", ranks), ("training.batch_size", each), (BATCH_OF_ALL, 8)]);
        let alone = of(&[("x", 1), ("training.batch_size", 4)]);
        assert_eq!(differing(&[&alone, &ranks(2, 4)]), ["x"], "it follows from the ranks");
        assert_eq!(differing(&[&alone, &ranks(4, 2)]), [BATCH_OF_ALL, "training.batch_size", "x"]);
        assert_eq!(differing(&[&ranks(2, 4), &ranks(4, 2)]), ["training.batch_size", "x"], "all have the same");
    }

    #[test]
    fn what_a_person_gave_follows_from_nothing() {
        let of = |program: Value, fields: &[(&str, i64)]| {
            let config: Table = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::Int(*value))).collect();
            Run::new(Parts { config: config.into(), program, ..run().parts })
        };
        let limited = [("hardware.power_limit_w", 300), ("training.batch_size", 16), ("training.momentum", 9)];
        let built_in = [of("p".into(), &limited), of("p".into(), &[("training.batch_size", 32)])];
        assert_eq!(differing(&built_in.each_ref()), ["hardware.power_limit_w", "training.batch_size"]);
        let own: Table = [("command".to_owned(), vec!["sh"].into())].into();
        let own = [of(own.clone().into(), &limited), of(own.into(), &[("training.batch_size", 32)])];
        assert_eq!(
            differing(&own.each_ref()),
            ["hardware.power_limit_w", "training.batch_size", "training.momentum"],
            "a program's own fields have no defaults"
        );
    }

    #[test]
    fn digests_versions_and_commits_of_a_program_are_nothing_that_a_person_varies() {
        let of = |command: &str, fields: &[(&str, &str)]| {
            let table = |pairs: &[(&str, &str)]| -> Table {
                pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect()
            };
            let mut program = table(fields);
            program.insert("command".to_owned(), command.into());
            program.insert("files".to_owned(), table(fields).into());
            program.insert("packages".to_owned(), table(fields).into());
            Run::new(Parts { program: program.into(), ..run().parts })
        };
        let old = of("train", &[("git_commit", "1"), ("interpreter", "cpython 3.11.7")]);
        let new = of("train", &[("git_commit", "2"), ("identity", "closure")]);
        assert_eq!(differing(&[&old, &new]), Vec::<String>::new());
        let other = of("evaluate", &[("git_commit", "2")]);
        assert_eq!(differing(&[&old, &new, &other]), ["program.command"]);
    }
}
