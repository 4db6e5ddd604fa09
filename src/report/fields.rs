//! The fields that distinguish the rows of a table.

use super::number::count;
use crate::analysis::{self, Place};
use crate::record::{Names, Parts, Run, RunId, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Returns the fields in which the places differ, or those by which they were grouped.
/// `program.command` is included only if no other field distinguishes two rows.
pub(super) fn shown_fields(places: &[Place]) -> Vec<String> {
    if let Some(first) = places.first().filter(|first| !first.contender.agreed.is_empty()) {
        return first.contender.agreed.iter().map(|(name, _)| name.clone()).collect();
    }
    let runs: Vec<&Run> = places.iter().map(|place| &place.contender.run).collect();
    let mut fields = analysis::differing(&runs);
    if let Some(at) = fields.iter().position(|name| name == COMMAND) {
        let command = fields.remove(at);
        let mut of_others: BTreeMap<Vec<Option<String>>, BTreeSet<Option<String>>> = BTreeMap::new();
        for run in runs {
            let text = |name: &str| analysis::field(run, None, name).map(|value| value.to_string());
            of_others.entry(fields.iter().map(|name| text(name)).collect()).or_default().insert(text(&command));
        }
        if of_others.into_values().any(|commands| commands.len() > 1) {
            fields.insert(at, command);
        }
    }
    fields
}

/// Returns the field that distinguishes versions of the program, if one is needed.
/// This is the trainer's revision if places differ in it. Otherwise it is a file whose digest differs between two
/// places that differ in their program alone.
pub(super) fn version_field(places: &[Place]) -> Option<String> {
    // A row over several configurations may average over versions; fields that keep them apart have columns.
    if places.iter().any(|place| !place.contender.agreed.is_empty()) {
        return None;
    }
    let revision = |place: &Place| analysis::field(&place.contender.run, None, REVISION).map(|value| value.to_string());
    if places.iter().filter_map(revision).collect::<BTreeSet<_>>().len() > 1 {
        return Some(REVISION.to_owned());
    }
    let mut seen: BTreeMap<RunId, &Run> = BTreeMap::new();
    let [a, b] = places.iter().map(|place| &place.contender.run).find_map(|run| {
        let without = Parts { program: "".into(), seed: 0, ..run.parts.clone() };
        let first = *seen.entry(without.run_id()).or_insert(run);
        (first.parts.program != run.parts.program).then_some([first, run])
    })?;
    let mut names = Names::known();
    [a, b].into_iter().for_each(|run| names.add_run(run));
    let value = |run: &Run, name: &str| analysis::field(run, None, name);
    let tells =
        |name: &&String| name.starts_with(FILES) && value(a, name).is_some() && value(a, name) != value(b, name);
    names.identity.iter().find(tells).cloned()
}

/// Returns the value of a field at a place.
pub(super) fn field_of(place: &Place, name: &str) -> Option<Value> {
    match place.contender.agreed.iter().find(|(agreed, _)| agreed == name) {
        Some((_, value)) => value.clone(),
        None => analysis::field(&place.contender.run, None, name),
    }
}

/// Lists the first fields for a sentence, and counts the rest.
pub fn listed_fields(fields: &[String]) -> String {
    /// Most fields that are named.
    const NAMED: usize = 4;
    let (named, more) = fields.split_at(fields.len().min(NAMED));
    let named: Vec<String> = named.iter().map(|field| format!("`{field}`")).collect();
    let more = if more.is_empty() { String::new() } else { format!(" and {}", count(more.len(), "more field")) };
    format!("{}{more}", named.join(", "))
}

/// Formats the value of a field for a table. Digests of a program's files are cut to 8 digits.
pub fn field_text(name: &str, value: Option<&Value>) -> String {
    match value {
        // Only the built-in trainer has revisions.
        None if name == REVISION => "other program".to_owned(),
        None => "-".to_owned(),
        Some(Value::Str(digest)) if name.starts_with(FILES) => digest.chars().take(8).collect(),
        Some(value) => value.to_string(),
    }
}

/// Prefix of the fields of a program's files; the rest is a path.
const FILES: &str = "program.files.";

/// The command line of a program, a long text.
const COMMAND: &str = "program.command";

/// The revision of the built-in trainer.
const REVISION: &str = "program.revision";

/// With at most this many rows, columns are not grouped: most of them change together by chance.
const FEW_ROWS: usize = 3;

/// Groups columns that change in the same rows. With few rows each column is its own group.
/// A group is the index of its column with the shortest cells, and the indices of the others.
pub(super) fn changing_together<T: AsRef<str>>(columns: &[Vec<T>]) -> Vec<(usize, Vec<usize>)> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut known: HashMap<Vec<usize>, usize> = HashMap::new();
    for (at, cells) in columns.iter().enumerate() {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let changes: Vec<usize> = cells
            .iter()
            .map(|cell| {
                let next = numbers.len();
                *numbers.entry(cell.as_ref()).or_insert(next)
            })
            .collect();
        let next = groups.len();
        let group = if cells.len() <= FEW_ROWS { next } else { *known.entry(changes).or_insert(next) };
        match groups.get_mut(group) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    let length = |at: usize| columns[at].iter().map(|cell| cell.as_ref().chars().count()).max().unwrap_or(0);
    let led = |mut group: Vec<usize>| {
        let first = group.iter().enumerate().min_by_key(|(_, at)| length(**at)).map_or(0, |(place, _)| place);
        (group.remove(first), group)
    };
    groups.into_iter().map(led).collect()
}

/// Shortens names to their last component where it is unique among them.
pub fn short_names(names: &[String]) -> Vec<String> {
    let last = |name: &str| match name.strip_prefix(FILES) {
        Some(path) => path.rsplit_once('/').map_or(path, |(_, file)| file).to_owned(),
        // Next to `batch_size`, `batch_sizes` alone would not be recognized as an inference field.
        None if name.starts_with("inference.") => name.to_owned(),
        None => name.rsplit_once('.').map_or(name, |(_, last)| last).to_owned(),
    };
    let is_plain = |name: &str| names.iter().filter(|other| last(other) == last(name)).count() == 1;
    names.iter().map(|name| if is_plain(name) { last(name) } else { name.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_fields_are_named_and_more_are_counted() {
        let listed = |names: &[&str]| listed_fields(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(listed(&["a", "b"]), "`a`, `b`");
        assert_eq!(listed(&["a", "b", "c", "d", "e"]), "`a`, `b`, `c`, `d` and 1 more field");
    }
}
