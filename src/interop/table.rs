//! A table of results as runs: each row one attempt, made of its cells by a map.
//!
//! What a run is comes from the map's fields; file, digest, row and cells are recorded and are in no id. Rows that cannot be right are
//! taken in as tainted, with the reason.

mod cell;
mod check;
mod make;
mod map;
mod origin;
mod right;
mod sheet;
mod slip;
#[cfg(test)]
mod tests;

pub use origin::{RowOrigin, is_from};

use super::rows::{Faults, ImportError, RowFault, Source};
use crate::manifest;
use crate::record::Sealed;
use cell::Template;
use check::{Tables, Troubles, check};
use make::Maker;
use map::{Draft, Map, Placed};
use sheet::Sheet;
use std::collections::BTreeMap;
use std::path::Path;

/// Rows of a table as runs, ready to be taken into a ledger, and what is known of all its rows.
#[derive(Clone, Debug)]
pub struct Results {
    /// The name of the experiment.
    pub name: String,
    /// One for each of some rows, or for each pair of rows that belong together.
    pub sealed: Vec<Sealed>,
    /// The table, and the one that was joined to it.
    pub sources: Vec<Source>,
    /// How many rows did not meet the map's condition.
    pub left_out: usize,
    /// How many rows had no partner in the joined table.
    pub alone: usize,
    /// Why attempts are tainted, and how many for each reason.
    pub taints: BTreeMap<String, usize>,
    /// What is allowed in the map and may be a mistake all the same.
    pub notes: Vec<String>,
    /// Whether each row says on which device it was measured. Else the map says it of all.
    pub has_devices: bool,
}

impl Results {
    /// What is known of all rows.
    pub fn clone_without_rows(&self) -> Self {
        Self {
            name: self.name.clone(),
            sealed: Vec::new(),
            sources: self.sources.clone(),
            taints: self.taints.clone(),
            notes: self.notes.clone(),
            ..*self
        }
    }
}

/// Reads a table of results by a map, and gives its rows in their order, about `most` at a time, so that memory does not grow with the attempts.
/// Those of one line stay together. `device` names what the results were measured on, whatever the map says. `take` is called at least once.
///
/// # Errors
/// Before anything is given: a file that cannot be read, all faults of the map with line and column, those too that only the table shows, and rows
/// that are not whole. And what `take` returns.
pub fn read_results<E: From<ImportError>>(
    path: &Path,
    map: &Path,
    device: Option<&str>,
    most: usize,
    take: &mut dyn FnMut(&mut Results) -> Result<(), E>,
) -> Result<(), E> {
    let mut draft = Draft::read(map)?;
    if let Some(device) = device {
        draft.map.device = Some(Placed { value: Template::Constant(device.into()), at: 0 });
    }
    let read = sheets(path, &draft.map);
    // A wrong map may be why the table cannot be read.
    let (mut sheet, mut joined) = match read {
        Ok(sheets) => sheets,
        Err(error) => return Err(draft.check().err().unwrap_or(error).into()),
    };
    let mut faults = std::mem::take(&mut draft.faults);
    let before = faults.len();
    let left_out = keep(&mut sheet, draft.map.condition.as_ref(), "where", &mut faults);
    if let (Some(joined), Some(join)) = (&mut joined, &draft.map.join) {
        keep(joined, join.condition.as_ref(), "join.where", &mut faults);
        for Placed { value, at } in &join.on {
            for sheet in [&sheet, joined].into_iter().filter(|sheet| sheet.find(value).is_none()) {
                faults.add(*at, sheet.missing(value));
            }
        }
    }
    // Otherwise it is not known which rows are meant.
    let rows_are_known = faults.len() == before;
    let tables = Tables { sheet: &sheet, joined: joined.as_ref() };
    let maker = Maker::new(&draft.map, tables, check(&draft.map, tables, &mut faults));
    let (pairs, alone) = pairs(&draft.map, &sheet, joined.as_ref());
    if rows_are_known {
        let mut troubles = Troubles::default();
        pairs.iter().for_each(|(row, partner)| drop(maker.named(*row, *partner, &mut troubles)));
        troubles.tell(&sheet, &mut faults);
    }
    draft.refuse(faults)?;
    // Every row is looked at before the first one is given.
    let mut taints: BTreeMap<String, usize> = BTreeMap::new();
    let mut faulty = Faults::default();
    for pair in &pairs {
        let named = maker.named(pair.0, pair.1, &mut Troubles::default());
        match maker.looked(*pair, named) {
            Ok(looked) => looked.taints.into_iter().for_each(|taint| *taints.entry(taint).or_default() += 1),
            Err(fault) => faulty.add(fault),
        }
    }
    faulty.check()?;
    let has_devices =
        device.is_some() || draft.map.device.as_ref().is_some_and(|device| !device.value.columns().is_empty());
    let Map { name, notes, .. } = &draft.map;
    let sources = std::iter::once(&sheet).chain(&joined).map(|sheet| sheet.source.clone()).collect();
    let (name, notes, sealed) = (name.clone(), notes.clone(), Vec::new());
    let mut results = Results { name, sealed, sources, left_out, alone, taints, notes, has_devices };
    let mut made = Rows::of(&maker);
    for same in pairs.chunk_by(|(a, _), (b, _)| a == b) {
        if results.sealed.len() >= most {
            take(&mut results)?;
            results.sealed.clear();
        }
        let mut faulty = Faults::default();
        for pair in same {
            match made.next(*pair) {
                Ok(one) => results.sealed.push(one),
                Err(fault) => faulty.add(fault),
            }
        }
        faulty.check()?;
    }
    take(&mut results)
}

/// Makes attempts of rows in their order, of which those that say the same are counted.
struct Rows<'a> {
    maker: &'a Maker<'a>,
    seen: BTreeMap<[u8; 32], u64>,
}

impl<'a> Rows<'a> {
    fn of(maker: &'a Maker<'a>) -> Self {
        Self { maker, seen: BTreeMap::new() }
    }

    fn next(&mut self, (row, partner): Pair) -> Result<Sealed, RowFault> {
        let named = self.maker.named(row, partner, &mut Troubles::default());
        self.maker.make((row, partner), named, &mut self.seen)
    }
}

/// The table, and the one that the map joins to it.
fn sheets(path: &Path, map: &Map) -> Result<(Sheet, Option<Sheet>), ImportError> {
    let sheet = Sheet::read(path, map.separator)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let joined = map.join.as_ref().map(|join| Sheet::read(&folder.join(&join.file), map.separator)).transpose()?;
    Ok((sheet, joined))
}

/// Keeps the rows that meet a condition, and says how many did not.
fn keep(sheet: &mut Sheet, condition: Option<&Placed<String>>, called: &str, faults: &mut manifest::Faults) -> usize {
    let Some(Placed { value, at }) = condition else { return 0 };
    sheet.keep(value).unwrap_or_else(|message| {
        faults.add(*at, format!("{called}: {message}"));
        0
    })
}

/// A row, and its partner where a table is joined.
type Pair = (usize, Option<usize>);

/// Each row with each of its partners, and how many rows have none.
fn pairs(map: &Map, sheet: &Sheet, joined: Option<&Sheet>) -> (Vec<Pair>, usize) {
    let (Some(join), Some(joined)) = (&map.join, joined) else {
        return ((0..sheet.rows.len()).map(|row| (row, None)).collect(), 0);
    };
    let on = join.columns();
    let places = sheet.places(&on);
    let index = joined.index(&on);
    let (mut pairs, mut alone) = (Vec::new(), 0);
    for (at, row) in sheet.rows.iter().enumerate() {
        match index.get(&sheet::keys(row, &places)) {
            Some(partners) => pairs.extend(partners.iter().map(|partner| (at, Some(*partner)))),
            None => alone += 1,
        }
    }
    (pairs, alone)
}
