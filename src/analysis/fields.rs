//! The fields in which runs differ.

use super::trials::Asked;
use crate::record::{Names, Part, Run, Value, ValueKey, field};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Fields that a manifest may omit and that no other field determines: a run has them only if its author set them.
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
/// Sections that have defaults in the built-in trainer, but not in other programs.
const WORK: [&str; 4] = ["model.", "data.", "training.", "inference."];

/// The prefix of the fields of a program part.
const PROGRAM: &str = "program.";
/// Those that a manifest sets.
const VARIED: [&str; 2] = ["program.command", "program.settings."];

const BATCH_OF_ALL: &str = "training.batch_global";

/// Whether a person varies a field of the identity: not the seed, and of a program only the fields that a manifest
/// sets. Digests, versions and commits only show that a program changed, and are included only if they are named.
pub fn is_varied(name: &str) -> bool {
    let is_said = || VARIED.iter().any(|varied| name.starts_with(varied));
    name != Part::Seed.name() && (!name.starts_with(PROGRAM) || is_said())
}

/// Whether a field of the identity shows which version of a program ran.
pub fn is_version(name: &str) -> bool {
    name.starts_with(PROGRAM) && !is_varied(name)
}

/// Whether a run has a field only because somebody set it, so that no other field determines it.
pub fn is_chosen(name: &str, run: &Run) -> bool {
    is_chosen_in(name, &|name| field(run, None, name))
}

fn is_chosen_in(name: &str, field: &dyn Fn(&str) -> Option<Value>) -> bool {
    let has_own_program = || field("program.command").is_some();
    let is_work = || WORK.iter().any(|section| name.starts_with(section));
    let is = |name: &str, word: &str| field(name).as_ref().and_then(Value::as_str) == Some(word);
    // Some have a default only for one value of another field.
    let is_without_default = || match name {
        "training.weight_decay" => !is("training.optimizer", "adamw"),
        "data.train_count" => is("data.name", "idx"),
        _ => CHOSEN.contains(&name),
    };
    name.starts_with("params.") || is_without_default() || is_work() && has_own_program()
}

/// Returns the fields of the identity, without the seed, in which runs differ.
///
/// A field that some runs lack and all others agree on is left out if other fields determine which runs have it, as for
/// a field of one optimizer. It is included if a person chose to set it, though in few runs others may seem to
/// determine it. The batch of all ranks is included if only some runs have it and the batch of each rank differs.
pub fn differing(runs: &[&Run]) -> Vec<String> {
    let mut names = Names::known();
    runs.iter().for_each(|run| names.add_run(run));
    differing_in(names.identity, runs.len(), &|at, name| field(runs[at], None, name))
}

/// As [`differing`], for the runs of attempts. `names` has all of their fields and maybe others.
pub fn differing_among<T: Asked>(trials: &[&T], names: &Names) -> Vec<String> {
    // Sorted by address: many thousands are read several times faster in the order of memory.
    let mut trials = trials.to_vec();
    trials.sort_unstable_by_key(|trial| std::ptr::from_ref(*trial).addr());
    differing_in(names.identity.clone(), trials.len(), &|at, name| trials[at].field(name))
}

/// Returns the names of the fields in which `len` things differ. `field` returns the value of one thing.
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
    // The state of each run by the fields found so far: runs that agree in all of them have equal numbers.
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
    // If the batch of each rank is shown, runs that share a batch need the batch of all ranks as well.
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

    fn of(fields: &[(&str, i64)]) -> Run {
        let config: Table = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::Int(*value))).collect();
        Run::new(Parts { config: config.into(), ..Parts::sample() })
    }

    #[test]
    fn a_field_that_some_lack_is_an_axis_unless_it_follows_from_another() {
        // Momentum is set in one of two otherwise equal runs. `beta` goes with x = 2, and `decay` with momentum.
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
    fn the_batch_of_all_ranks_is_shown_with_the_batch_of_each() {
        let ranks = |ranks, each| of(&[("x", ranks), ("training.batch_size", each), (BATCH_OF_ALL, 8)]);
        let alone = of(&[("x", 1), ("training.batch_size", 4)]);
        assert_eq!(differing(&[&alone, &ranks(2, 4)]), ["x"], "it follows from the ranks");
        assert_eq!(differing(&[&alone, &ranks(4, 2)]), [BATCH_OF_ALL, "training.batch_size", "x"]);
        assert_eq!(differing(&[&ranks(2, 4), &ranks(4, 2)]), ["training.batch_size", "x"], "all have the same");
    }

    #[test]
    fn fields_that_a_person_set_are_always_axes() {
        let of = |program: Value, fields: &[(&str, i64)]| Run::new(Parts { program, ..of(fields).parts });
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
    fn digests_versions_and_commits_of_a_program_are_not_axes() {
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
