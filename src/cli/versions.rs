//! Versions of a program: rows of a grouping do not average over them unless that is asked for.

use super::output::say;
use crate::analysis::{Asked, Configuration, is_version};
use crate::record::{Digest, GroupId, Names, Part, Run, Value, field};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How attempts are put together.
#[derive(Debug, clap::Args)]
pub(super) struct Grouping {
    /// Average all attempts that agree in these fields [default: attempts that differ only in the seed]
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    pub(super) group_by: Vec<String>,

    /// With --group-by: average over versions of a program as well [default: each version has its own row]
    #[arg(long, requires = "group_by")]
    any_version: bool,
}

/// The programs of no more configurations are compared, since their records have to be read.
const MOST_COMPARED: usize = 1000;

impl Grouping {
    /// The fields that give each version of a program rows of its own; none where no row averages over versions of those attempts that count, or may.
    pub(super) fn versions<T: Asked>(&self, rows: &[Configuration<'_, T>], counts: impl Fn(&T) -> bool) -> Vec<String> {
        if self.group_by.is_empty() || self.any_version {
            return Vec::new();
        }
        let (mut found, mut left) = (BTreeMap::new(), MOST_COMPARED);
        for row in rows {
            // What differs in the seed alone has one program.
            let counting = row.trials.iter().filter(|trial| counts(trial));
            let groups: BTreeMap<GroupId, &T> = counting.map(|trial| (trial.group(), *trial)).collect();
            if groups.len() < 2 {
                continue;
            }
            let read = groups.values().take(left).filter_map(|trial| Some(trial.record()?.0.into_owned()));
            let mut of_configuration: BTreeMap<Digest, BTreeMap<Digest, Run>> = BTreeMap::new();
            for run in read {
                let [configuration, program] = [Part::Config, Part::Program].map(|part| run.parts.digest(part));
                of_configuration.entry(configuration).or_default().insert(program, run);
            }
            left = left.saturating_sub(groups.len());
            found.extend(of_configuration.into_values().filter(|programs| programs.len() > 1).flatten());
        }
        telling(&found.into_values().collect::<Vec<_>>())
    }
}

/// Says that rows stand for versions.
pub(super) fn tell(versions: &[String]) {
    if !versions.is_empty() {
        say("note: each version of the program has its own row (--any-version averages over versions)");
    }
}

/// As few fields as tell each of these programs from the others.
fn telling(runs: &[Run]) -> Vec<String> {
    let mut names = Names::known();
    runs.iter().for_each(|run| names.add_run(run));
    // A revision is a number that people know.
    let (first, others): (BTreeSet<String>, BTreeSet<String>) =
        names.identity.into_iter().filter(|name| is_version(name)).partition(|name| name == REVISION);
    let (mut told, mut chosen) = (vec![0_usize; runs.len()], Vec::new());
    let kinds = |told: &[usize]| told.iter().collect::<BTreeSet<_>>().len();
    for name in first.into_iter().chain(others) {
        if kinds(&told) == runs.len() {
            break;
        }
        let mut known: HashMap<(usize, Option<String>), usize> = HashMap::new();
        let values = runs.iter().map(|run| field(run, None, &name).filter(|value| value.as_table().is_none()));
        let finer: Vec<usize> = told
            .iter()
            .zip(values)
            .map(|(told, value)| {
                let next = known.len();
                *known.entry((*told, value.as_ref().map(Value::to_string))).or_insert(next)
            })
            .collect();
        if kinds(&finer) > kinds(&told) {
            chosen.push(name);
            told = finer;
        }
    }
    chosen
}

/// The version of what the built-in trainer computes.
const REVISION: &str = "program.revision";
