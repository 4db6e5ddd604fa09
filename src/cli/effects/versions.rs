//! Versions of a program. They are not axes, because no manifest varies them, but they may explain an effect.

use super::Axes;
use super::confounded::{IMPORT, Subject};
use crate::analysis::expr::equality;
use crate::analysis::{Asked, Factor, ModelScale, Relation, SIGNIFICANCE, interactions_with, is_version};
use crate::record::{Names, RunId, Value, count};
use crate::report::{Confounded, p_value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The field of a program's command. Programs with different commands are no versions of each other.
const COMMAND: &str = "program.command";
/// The name of the factor whose levels are the versions.
const PROGRAM: &str = "program";
/// The name of the factor of versions as blocks.
pub(super) const VERSION: &str = "version";
/// More versions are no blocks: the analysis would take long.
const MOST_BLOCKS: usize = 50;

/// The versions of each command that ran in several. `None` is the built-in trainer.
type Several = BTreeMap<Option<String>, BTreeSet<usize>>;

/// The fields of which a program's version consists.
pub(super) fn fields(names: &Names) -> impl Iterator<Item = &String> {
    names.identity.iter().filter(|name| is_version(name))
}

impl<T: Asked> Subject<'_, T> {
    /// All attempts, each with the place of its observation.
    fn attempts(&self) -> impl Iterator<Item = (usize, &T)> {
        let observations = self.observed.observations.iter().enumerate();
        observations.flat_map(|(at, one)| one.trials.iter().map(move |trial| (at, *trial)))
    }

    /// The version of the program of each attempt, but for the fields that `asked` names. `None` where all have one,
    /// and where some were imported and have none.
    fn versions(&self, asked: &[String]) -> Option<Factor> {
        let fields: Vec<&String> = fields(self.names).filter(|name| !asked.contains(name)).collect();
        if self.attempts().any(|(_, trial)| trial.field(IMPORT).is_some()) {
            return None;
        }
        let mut known: HashMap<RunId, Value> = HashMap::new();
        let mut version = |trial: &T| {
            let text = || {
                let value = |name: &&String| trial.field(name).map_or_else(String::new, |value| value.to_string());
                Value::from(fields.iter().map(value).collect::<Vec<_>>().join("\n"))
            };
            known.entry(trial.run_id()).or_insert_with(text).clone()
        };
        Factor::new(PROGRAM, self.attempts().map(|(_, trial)| version(trial)))
    }

    /// The versions in which each command ran that ran in several.
    fn several(&self, versions: &Factor) -> Several {
        let mut of_command = Several::new();
        for ((_, trial), version) in self.attempts().zip(&versions.of) {
            let command = trial.field(COMMAND).map(|command| command.to_string());
            of_command.entry(command).or_default().insert(*version);
        }
        of_command.retain(|_, versions| versions.len() > 1);
        of_command
    }

    /// The versions as blocks, so that effects are within versions. A program of which there is one version belongs to
    /// the newest versions of the others, and versions with an observation in common are one: they gave the same value.
    /// `None` where that leaves one, or too many to be blocks.
    fn blocks(&self, versions: &Factor, several: &Several) -> Option<Factor> {
        let of_command: HashMap<usize, &Option<String>> =
            several.iter().flat_map(|(command, own)| own.iter().map(move |version| (*version, command))).collect();
        let mut newest: BTreeMap<&Option<String>, (i64, usize)> = BTreeMap::new();
        for ((_, trial), version) in self.attempts().zip(&versions.of) {
            let Some(command) = of_command.get(version) else { continue };
            let one = (trial.started_unix_ms(), *version);
            newest.entry(command).and_modify(|newest| *newest = one.max(*newest)).or_insert(one);
        }
        // The newest versions, and programs of one version, are block 0; each other version begins as a block of its own.
        let is_older = |version: usize| {
            of_command
                .get(&version)
                .and_then(|command| newest.get(command))
                .is_some_and(|(_, newest)| *newest != version)
        };
        let mut block: Vec<usize> =
            (0..versions.levels.len()).map(|version| if is_older(version) { version + 1 } else { 0 }).collect();
        let mut first = vec![None; self.observed.observations.len()];
        for ((at, _), version) in self.attempts().zip(&versions.of) {
            let (one, other) = (block[*first[at].get_or_insert(*version)], block[*version]);
            if one != other {
                let (kept, gone) = (one.min(other), one.max(other));
                block.iter_mut().filter(|block| **block == gone).for_each(|block| *block = kept);
            }
        }
        let of_observation =
            first.into_iter().map(|version| version.map_or(0, |version| block[version]).to_string().into());
        let found = Factor::new(VERSION, of_observation)?;
        (2 * found.levels.len() <= found.of.len() && found.levels.len() <= MOST_BLOCKS).then_some(found)
    }

    /// The versions of the program as blocks, with a note that there are several. Lists the axes that cannot be
    /// separated from the versions; these stand first: only the first few pairs are printed. A version that `asked`
    /// names is an axis, and no version here.
    pub(super) fn versions_as_blocks(&self, axes: &mut Axes, asked: &[String]) -> Option<Factor> {
        let versions = self.versions(asked)?;
        let several = self.several(&versions);
        if several.is_empty() {
            return None;
        }
        let blocks = self.blocks(&versions, &several);
        let how = if blocks.is_some() { "effects are within versions" } else { "they are analysed together" };
        for axis in &axes.judged {
            let of_attempts = self.attempts().map(|(at, _)| axis.levels[axis.of[at]].clone());
            let Some(axis) = Factor::new(&axis.name, of_attempts) else { continue };
            let (field, with, relation) = match versions.relation(&axis) {
                Some(relation @ (Relation::Equal | Relation::Nested)) => (PROGRAM, axis.name.as_str(), relation),
                Some(Relation::Nesting) => (axis.name.as_str(), PROGRAM, Relation::Nested),
                None => continue,
            };
            axes.confounded.insert(
                0,
                Confounded {
                    field: field.to_owned(),
                    with: Some(with.to_owned()),
                    relation: Some(relation),
                    separation: (
                        "to separate them, run each value of the axis with the same version of the program",
                        None,
                    ),
                    alone: None,
                },
            );
        }
        let is_one = several.len() == 1;
        for (command, own) in several {
            let attempts = self.attempts().zip(&versions.of).filter(|(_, version)| own.contains(version));
            let mut runs: Vec<_> =
                attempts.map(|((_, trial), of)| (trial.started_unix_ms(), trial.run_id(), *of)).collect();
            runs.sort_unstable();
            let Some(newest) = runs.last() else { continue };
            let before = runs.iter().rev().find(|(.., other)| *other != newest.2);
            let ids: String =
                before.into_iter().chain([newest]).map(|(_, run, _)| format!(" {}", run.0.prefix(8))).collect();
            let only = self
                .condition_of(&versions, newest.2)
                .map_or_else(String::new, |condition| format!("; `--where '{condition}'` selects the newest"));
            let program = match command {
                _ if is_one => "the program".to_owned(),
                None => "the built-in trainer".to_owned(),
                Some(command) => format!("`{command}`"),
            };
            axes.notes.push(format!(
                "the attempts are of {} of {program}; {how} (`ledger why{ids}` shows what changed{only})",
                count(own.len(), "version"),
            ));
        }
        blocks
    }

    /// The condition that the attempts of one version meet and no others: a field of its own value.
    fn condition_of(&self, versions: &Factor, version: usize) -> Option<String> {
        let attempts = || self.attempts().map(|(_, trial)| trial).zip(&versions.of);
        fields(self.names).find_map(|name| {
            let own = attempts().find(|(_, of)| **of == version)?.0.field(name)?;
            let is_own = attempts().all(|(trial, of)| (trial.field(name).as_ref() == Some(&own)) == (*of == version));
            equality(name, &own).filter(|_| is_own)
        })
    }
}

/// Warns of axes whose effects differ by version. Blocks assume that effects are the same in all of them.
pub(super) fn differing_by_version(
    axes: &[Factor],
    values: &[f64],
    scale: ModelScale,
    blocks: &[Factor],
) -> Option<String> {
    let (versions, others): (Vec<Factor>, Vec<Factor>) =
        blocks.iter().cloned().partition(|block| block.name == VERSION);
    let versions = versions.first()?;
    let found = interactions_with(versions, axes, values, scale, &others);
    let differing = axes.iter().zip(found).filter_map(|(axis, p)| Some((axis, p.filter(|p| *p < SIGNIFICANCE)?)));
    let named: Vec<String> =
        differing.map(|(axis, p)| format!("`{}` (interaction: {})", axis.name, p_value(p))).collect();
    let (effects, verb) = if named.len() == 1 { ("the effect of", "differs") } else { ("the effects of", "differ") };
    let is_of_machines = others.iter().any(|other| versions.relation(other).is_some());
    let machines = if is_of_machines { ", or between the machines that ran them" } else { "" };
    let text = format!("between versions of the program{machines}: what is shown is an average over versions");
    (!named.is_empty()).then(|| format!("{effects} {} {verb} {text} (`--where` selects one)", named.join(", ")))
}
