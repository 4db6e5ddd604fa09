//! In which fields runs differ.

use super::trials::Asked;
use crate::record::{Names, Part, Run, Value, ValueKey, field};
use std::collections::{BTreeMap, BTreeSet, HashMap};

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

/// Whether a field of the identity is one that a person varies: not the seed, and of a program only what a manifest says. Digests, versions and
/// commits tell of a program that it is another one: whoever wants them asks by name.
pub fn is_varied(name: &str) -> bool {
    let is_said = || VARIED.iter().any(|varied| name.starts_with(varied));
    name != Part::Seed.name() && (!name.starts_with(PROGRAM) || is_said())
}

/// Whether a field of the identity tells which version of a program ran.
pub fn is_version(name: &str) -> bool {
    name.starts_with(PROGRAM) && !is_varied(name)
}

/// Whether a run has a field only because somebody gave it, so that no other field tells of it.
pub fn is_chosen(name: &str, run: &Run) -> bool {
    is_chosen_in(name, &|name| field(run, None, name))
}

fn is_chosen_in(name: &str, field: &dyn Fn(&str) -> Option<Value>) -> bool {
    let has_own_program = || field("program.command").is_some();
    let is_work = || WORK.iter().any(|section| name.starts_with(section));
    let is = |name: &str, word: &str| field(name).as_ref().and_then(Value::as_str) == Some(word);
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
    differing_in(names.identity, runs.len(), &|at, name| field(runs[at], None, name))
}

/// As [`differing`], of the runs of attempts, which have fields of these names and maybe others.
pub fn differing_among<T: Asked>(trials: &[&T], names: &Names) -> Vec<String> {
    // In the order in which they lie in memory, which many thousands are read in several times as fast.
    let mut trials = trials.to_vec();
    trials.sort_unstable_by_key(|trial| std::ptr::from_ref(*trial).addr());
    differing_in(names.identity.clone(), trials.len(), &|at, name| trials[at].field(name))
}

/// The fields in which so many things differ, by their names, and the value of each of one of them.
fn differing_in(mut names: BTreeSet<String>, len: usize, field: &dyn Fn(usize, &str) -> Option<Value>) -> Vec<String> {
    names.retain(|name| is_varied(name));
    // Equal values have equal numbers.
    let numbers = |name: &str| -> Vec<Option<u32>> {
        let mut known: HashMap<ValueKey, u32> = HashMap::new();
        let mut number = |value: Value| {
            let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
            *known.entry(value.into_key()).or_insert(next)
        };
        let value = |at| field(at, name).filter(|value| value.as_table().is_none());
        (0..len).map(|at| value(at).map(&mut number)).collect()
    };
    let mut found = BTreeSet::new();
    let mut partial = Vec::new();
    // What of each run is told by the fields that were found: equal numbers where all of them agree.
    let mut told: Vec<u32> = vec![0; len];
    let tell = |told: &mut Vec<u32>, values: &[Option<u32>]| {
        let mut known: HashMap<(u32, Option<u32>), u32> = HashMap::new();
        for (told, value) in told.iter_mut().zip(values) {
            let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
            *told = *known.entry((*told, *value)).or_insert(next);
        }
    };
    for name in names {
        let values = numbers(&name);
        let mut known = values.iter().flatten();
        let Some(first) = known.next() else { continue };
        if known.any(|other| other != first) {
            found.insert(name);
            tell(&mut told, &values);
        } else if values.contains(&None) {
            let is_given = |at: usize| values[at].is_some() && is_chosen_in(&name, &|name| field(at, name));
            if (0..len).any(is_given) {
                found.insert(name);
                tell(&mut told, &values);
            } else {
                partial.push((name, values));
            }
        }
    }
    for (name, values) in partial {
        let mut of_told: BTreeMap<u32, Option<u32>> = BTreeMap::new();
        if !told.iter().zip(&values).all(|(told, value)| of_told.entry(*told).or_insert(*value) == value) {
            found.insert(name);
            tell(&mut told, &values);
        }
    }
    // The batch of each, where it is shown, is half of what is to be known of runs that share one.
    let of_all = || (0..len).map(|at| field(at, BATCH_OF_ALL));
    if found.contains("training.batch_size") && of_all().any(|one| one.is_some()) && of_all().any(|one| one.is_none()) {
        found.insert(BATCH_OF_ALL.to_owned());
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Parts, Table};

    #[test]
    fn a_field_that_some_lack_is_an_axis_unless_it_follows_from_another() {
        let of = |fields: &[(&str, i64)]| {
            let config: Table = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::Int(*value))).collect();
            Run::new(Parts { config: config.into(), ..Parts::sample() })
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
            Run::new(Parts { config: config.into(), ..Parts::sample() })
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
            Run::new(Parts { config: config.into(), program, ..Parts::sample() })
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
            Run::new(Parts { program: program.into(), ..Parts::sample() })
        };
        let old = of("train", &[("git_commit", "1"), ("interpreter", "cpython 3.11.7")]);
        let new = of("train", &[("git_commit", "2"), ("identity", "closure")]);
        assert_eq!(differing(&[&old, &new]), Vec::<String>::new());
        let other = of("evaluate", &[("git_commit", "2")]);
        assert_eq!(differing(&[&old, &new, &other]), ["program.command"]);
    }
}
