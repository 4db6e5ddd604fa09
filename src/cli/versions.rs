//! Keeps numbers of GPUs and versions of a program in rows of their own, and notes what the rows of a grouping average over.

use super::mixes::{Mix, shares, unlike_mixes};
use super::output::say;
use super::selection::{GPUS, Selection};
use super::why::texts;
use crate::analysis::expr::equality;
use crate::analysis::{self, Asked, Configuration, Contender, count_lines, differing, is_version};
use crate::record::{Digest, GroupId, Names, Part, Parts, Run, RunId, Value, Why, field, first_of};
use crate::report::{count, listed_fields, program_changes};
use crate::store::{Reader, Store, StoreError};
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

/// The note why rows are more than those that were asked for. It shows the condition that selects the rows which agree
/// with a `run` in these fields.
pub(super) fn apart_note(fields: &[String], run: &Run, selection: &Selection) -> Option<String> {
    let is_by_gpus = fields.iter().any(|name| name == GPUS);
    let is_by_version = fields.iter().any(|name| name != GPUS);
    let told = match (is_by_gpus, is_by_version) {
        (false, false) => return None,
        (false, true) => "each version of the program has its own row",
        (true, false) => "each number of GPUs has its own row",
        (true, true) => "each number of GPUs and each version of the program has its own row",
    };
    let of_run = fields.iter().map(|name| equality(name, &field(run, None, name)?)).collect::<Option<Vec<_>>>();
    let arguments = of_run.map(|parts| selection.arguments(Some(&parts.join(" and ")))).unwrap_or_default();
    let condition = arguments.get(1).filter(|text| !text.contains('\''));
    let select = condition.map(|text| format!("--where '{text}' selects those of #1"));
    let average = is_by_version.then(|| "--any-version averages over versions and programs".to_owned());
    let fixes: Vec<String> = select.into_iter().chain(average).collect();
    let fixes = if fixes.is_empty() { String::new() } else { format!(" ({})", fixes.join("; ")) };
    Some(format!("note: {told}{fixes}"))
}

/// No more runs are read to compare their programs.
const MOST_READ: usize = 10_000;

/// The version of what the built-in trainer computes: a number that people know.
pub(super) const REVISION: &str = "program.revision";

/// To say over what a row averages, at most this many of its runs are read.
const MOST_AVERAGED: usize = 1000;
/// At most this many rows that average over versions are named, and as many pairs of rows that differ in their program.
const SHOWN: usize = 3;

impl Grouping {
    /// The fields that keep rows apart beside those that were asked for: the number of GPUs if a row averages over
    /// several, and what tells versions of a program from each other if a row averages a configuration over them and
    /// --any-version does not allow it.
    ///
    /// An attempt counts if it has one of the `metrics`. `run` gives the record of a run.
    pub(super) fn kept_apart<T: Asked>(
        &self,
        rows: &[Configuration<'_, T>],
        metrics: &[&str],
        admitted: &BTreeSet<Why>,
        run: &dyn Fn(RunId) -> Result<Option<Run>, StoreError>,
    ) -> Result<Vec<String>, StoreError> {
        if self.group_by.is_empty() {
            return Ok(Vec::new());
        }
        // A value that is not finite takes its whole row out of the answer.
        let is_in = |trial: &T, metric: &str| match trial.measured(metric, admitted) {
            Ok(_) => true,
            Err(left) => left.why == Why::NotFinite,
        };
        let (mut versions, mut left) = (Vec::<Vec<Run>>::new(), MOST_READ);
        let (mut is_over_gpus, mut is_cut) = (false, false);
        for row in rows {
            // What differs in the seed alone has one program.
            let counting = row.trials.iter().filter(|trial| metrics.iter().any(|metric| is_in(trial, metric)));
            let groups: BTreeMap<GroupId, RunId> = counting.map(|trial| (trial.group(), trial.run_id())).collect();
            if groups.len() < 2 {
                continue;
            }
            let mut programs: BTreeMap<(Option<Digest>, Option<String>), BTreeMap<Digest, Run>> = BTreeMap::new();
            let mut gpus: BTreeSet<Option<i64>> = BTreeSet::new();
            is_cut |= groups.len() > left;
            for id in groups.into_values().take(left) {
                left -= 1;
                let Some(run) = run(id)? else { continue };
                gpus.insert(field(&run, None, GPUS).and_then(|gpus| gpus.as_int()));
                if !is_of_table(&run) && !self.any_version {
                    // Programs with other commands are no versions of each other, and a command may name a file by what it varies.
                    let command = command_of(&run);
                    let configuration = command.as_ref().map(|_| run.parts.digest(Part::Config));
                    let program = run.parts.digest(Part::Program);
                    programs.entry((configuration, command)).or_default().insert(program, run);
                }
            }
            let several = programs.into_values().filter(|programs| programs.len() > 1);
            versions.extend(several.map(|programs| programs.into_values().collect()));
            // Runs that name no number, such as imported ones, are as those on one GPU.
            is_over_gpus |= gpus.len() > 1 && gpus.iter().flatten().any(|gpus| *gpus > 1);
        }
        if is_cut {
            say(&format!(
                "note: only the first {MOST_READ} configurations were checked for versions of the program and numbers of GPUs"
            ));
        }
        Ok(Self::found(rows, &versions, is_over_gpus))
    }

    /// The fields for these versions and for the number of GPUs, beside those by which the rows are put together.
    fn found<T>(rows: &[Configuration<'_, T>], versions: &[Vec<Run>], is_over_gpus: bool) -> Vec<String> {
        let agreed = rows.first().map(|row| row.agreed.iter().map(|(name, _)| name.as_str()).collect());
        let gpus = is_over_gpus.then(|| GPUS.to_owned());
        gpus.into_iter().chain(telling(versions, &agreed.unwrap_or_default())).collect()
    }
}

/// As few fields as tell the programs of each of these lists from each other, beside those that are `known`.
fn telling(versions: &[Vec<Run>], known: &BTreeSet<&str>) -> Vec<String> {
    let mut names = Names::known();
    versions.iter().flatten().for_each(|run| names.add_run(run));
    let names = names.identity.into_iter().filter(|name| is_version(name) && !known.contains(name.as_str()));
    let (first, others): (BTreeSet<String>, BTreeSet<String>) = names.partition(|name| name == REVISION);
    let runs: Vec<&Run> = versions.iter().flatten().collect();
    let lists = versions.iter().enumerate().flat_map(|(list, runs)| runs.iter().map(move |_| list));
    let (mut told, mut chosen) = (lists.collect::<Vec<usize>>(), Vec::new());
    let kinds = |told: &[usize]| told.iter().collect::<BTreeSet<_>>().len();
    for name in first.into_iter().chain(others) {
        if kinds(&told) == runs.len() {
            break;
        }
        let mut seen: HashMap<(usize, Option<String>), usize> = HashMap::new();
        let values = runs.iter().map(|run| field(run, None, &name).filter(|value| value.as_table().is_none()));
        let finer: Vec<usize> = told
            .iter()
            .zip(values)
            .map(|(told, value)| {
                let next = seen.len();
                *seen.entry((*told, value.as_ref().map(Value::to_string))).or_insert(next)
            })
            .collect();
        if kinds(&finer) > kinds(&told) {
            chosen.push(name);
            told = finer;
        }
    }
    chosen
}

/// Returns notes and warnings: the fields that rows average over, and those in which rows differ. A row has its number,
/// and its attempts in each metric.
pub(super) fn averaged<'a>(
    rows: impl Iterator<Item = (usize, Vec<&'a Contender>)>,
    store: &Store,
) -> Result<Vec<String>, StoreError> {
    let (mut averaged, mut versions, mut programs, mut said) = (BTreeSet::new(), Vec::new(), None, Vec::new());
    let (mut firsts, mut columns, mut is_grouped) = (Vec::new(), BTreeSet::new(), false);
    let mut mixes: Vec<Mix> = Vec::new();
    let mut samples: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut see = |run: &Run| {
        for (name, value) in run.config().iter().filter(|(name, _)| analysis::is_of_sample(name)) {
            samples.entry(name.clone()).or_default().insert(value.to_string());
        }
    };
    for (number, row) in rows {
        let Some(first) = row.first() else { continue };
        if first.agreed.is_empty() {
            see(&first.run);
            continue;
        }
        is_grouped = true;
        columns.extend(row.iter().flat_map(|one| &one.agreed).map(|(name, _)| name.clone()));
        let ids: BTreeSet<RunId> = row.iter().flat_map(|one| &one.measured).map(|one| one.run).collect();
        let runs = |reader: &Reader<'_>| {
            ids.iter().take(MOST_AVERAGED).map(|id| reader.run(*id)).collect::<Result<Vec<Option<Run>>, _>>()
        };
        let runs: Vec<Run> = store.read(runs)?.into_iter().flatten().collect();
        let of_row: Vec<&Run> = runs.iter().collect();
        averaged.extend(differing(&of_row));
        match several_programs(&of_row) {
            Some((two, true)) => versions.push((number, two)),
            Some((two, false)) => programs = programs.or(Some(two)),
            None => {}
        }
        runs.iter().for_each(&mut see);
        let shares = shares(first);
        mixes.push(Mix::new(number, runs.iter().filter_map(|run| Some((run, *shares.get(&run.id)?)))));
        firsts.extend(runs.into_iter().next());
    }
    for (number, [a, b]) in versions.iter().take(SHOWN) {
        let text = "averages over versions of the program";
        said.push(format!(
            "warning: #{number} {text} (`ledger why {a} {b}` shows what changed, `ledger hide` leaves runs out)"
        ));
    }
    if versions.len() > SHOWN {
        let more = versions.len() - SHOWN;
        said.push(format!("warning: so {} {}", if more == 1 { "does" } else { "do" }, count(more, "more row")));
    }
    samples.retain(|name, values| values.len() > 1 && !columns.contains(name));
    if !samples.is_empty() {
        let told: Vec<String> = samples.iter().map(|(name, values)| values_text(name, values)).collect();
        let text = "a sample is not the same in all rows";
        said.push(format!("warning: {text}: {} (--where selects one kind)", told.join(", ")));
    }
    let mut between: BTreeSet<String> = differing(&firsts.iter().collect::<Vec<_>>()).into_iter().collect();
    between.retain(|name| is_grouped && !averaged.contains(name) && !columns.contains(name));
    for (field, what) in [("program.command", "programs"), ("device", "devices")] {
        if averaged.contains(field) {
            said.push(format!(
                "warning: rows average over different {what} (`{field}` in --group-by keeps them apart)"
            ));
        }
    }
    said.extend(unlike_mixes(&mixes, &averaged));
    let averaged: Vec<String> = averaged.into_iter().map(|field| format!("`{field}`")).collect();
    if !averaged.is_empty() {
        said.push(format!("note: rows average over {} (--group-by keeps a field apart)", averaged.join(", ")));
    }
    let between: Vec<String> = between.into_iter().collect();
    if !between.is_empty() {
        let names = listed_fields(&between);
        said.push(format!("note: rows also differ in {names} (--group-by makes a field a column)"));
    }
    if let Some([a, b]) = programs {
        said.push(format!("note: rows average over programs that differ (`ledger why {a} {b}` shows how)"));
    }
    Ok(said)
}

/// A field and its values: `` `data.side` is 256 or 416 ``.
fn values_text(name: &str, values: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = values.iter().map(String::as_str).take(SHOWN).collect();
    let more = if values.len() > SHOWN { " or others" } else { "" };
    format!("`{name}` is {}{more}", shown.join(" or "))
}

/// Says which rows have the same configuration and another program, and what of it changed: no column shows that. A row
/// has its number and its run.
pub(super) fn apart<'a>(
    rows: impl Iterator<Item = (usize, &'a Run)>,
    store: &Store,
) -> Result<Vec<String>, StoreError> {
    let mut seen: BTreeMap<(RunId, Option<String>), (usize, &Run)> = BTreeMap::new();
    let (mut pairs, mut said) = (Vec::new(), Vec::new());
    for (number, run) in rows {
        let parts = run.parts.clone();
        // Another revision has a column.
        let revision = field(run, None, REVISION).map(|revision| revision.to_string());
        let key = (Parts { program: "".into(), seed: 0, ..parts }.run_id(), revision);
        let first = *seen.entry(key).or_insert((number, run));
        if first.0 != number {
            pairs.push((first, (number, run)));
        }
    }
    for ((first, a), (number, b)) in pairs.iter().take(SHOWN).copied() {
        let mut parts = analysis::why(a, b);
        parts.retain(|part| part.part == Part::Program);
        let (of_a, of_b) = store.read(|reader| Ok((texts(reader, a)?, texts(reader, b)?)))?;
        count_lines(&mut parts, &|_, digest| of_a.get(&digest).cloned(), &|_, digest| of_b.get(&digest).cloned());
        let [a, b] = [first, number].map(|number| format!("#{number}"));
        let changes = program_changes(&parts, &a, &b);
        said.push(format!("note: {a} and {b} differ only in their program: {changes}"));
    }
    if pairs.len() > SHOWN {
        let more = pairs.len() - SHOWN;
        let (more, verb) = (count(more, "more configuration"), if more == 1 { "differs" } else { "differ" });
        said.push(format!(
            "note: {more} {verb} from others only in the program (`ledger why ID ID` lists the changes)"
        ));
    }
    Ok(said)
}

/// A note if rows are of programs with different commands, and nothing else says so. A row has its number and its run.
pub(super) fn of_commands<'a>(rows: impl Iterator<Item = (usize, &'a Run)>) -> Option<String> {
    let mut commands: BTreeMap<String, usize> = BTreeMap::new();
    for (number, run) in rows {
        if let Some(Value::List(words)) = field(run, None, "program.command") {
            let command = words.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            commands.entry(command).or_insert(number);
        }
    }
    if commands.len() < 2 {
        return None;
    }
    let mut commands: Vec<(usize, String)> = commands.into_iter().map(|(command, number)| (number, command)).collect();
    commands.sort();
    let named = commands.iter().map(|(number, command)| format!("#{number} `{command}`"));
    let named = first_of(named, SHOWN);
    Some(format!("note: rows are of different programs: {named} (`[model] name` in a manifest keeps programs apart)"))
}

/// Two runs of one command by programs that differ, if there are such, and whether they have one configuration.
fn several_programs(runs: &[&Run]) -> Option<([String; 2], bool)> {
    let mut found = None;
    for is_one_configuration in [true, false] {
        let mut seen: BTreeMap<(Option<Digest>, Option<String>), &Run> = BTreeMap::new();
        let two = runs.iter().filter(|run| !is_of_table(run)).find_map(|run| {
            let configuration = is_one_configuration.then(|| run.parts.digest(Part::Config));
            let first = *seen.entry((configuration, command_of(run))).or_insert(run);
            let is_other = first.parts.digest(Part::Program) != run.parts.digest(Part::Program);
            is_other.then(|| [first, *run].map(|run| run.id.0.prefix(8)))
        });
        found = found.or(two.map(|two| (two, is_one_configuration)));
    }
    found
}

/// Whether a run is a row of a table: it has a program by name alone.
fn is_of_table(run: &Run) -> bool {
    field(run, None, "program.import").is_some()
}

/// The command of a program; none of the built-in trainer.
fn command_of(run: &Run) -> Option<String> {
    field(run, None, "program.command").map(|command| command.to_string())
}
