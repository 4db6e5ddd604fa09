//! A table of results as runs: a map turns the cells of each row into one attempt.
//!
//! The map's fields are the identity of a run. File, digest, row and cells are recorded, and are in no id. Implausible
//! rows are imported as tainted, with the reason.

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

use super::rows::{Faults, ImportError, Source};
use crate::manifest;
use crate::record::Sealed;
use cell::Template;
use check::{Tables, Troubles, check};
use make::Maker;
use map::{Draft, Map, Placed};
use sheet::Sheet;
use std::collections::BTreeMap;
use std::path::Path;

/// Rows of a table as runs, ready for import into a ledger, with facts about all rows.
#[derive(Clone, Debug)]
pub struct Results {
    /// The name of the experiment.
    pub name: String,
    /// The attempts of some rows, one for each row or each joined pair of rows.
    pub sealed: Vec<Sealed>,
    /// The table, and the joined table if there is one.
    pub sources: Vec<Source>,
    /// The number of rows that did not meet the map's condition.
    pub left_out: usize,
    /// The number of rows without a partner in the joined table.
    pub alone: usize,
    /// The number of tainted attempts for each reason.
    pub taints: BTreeMap<String, usize>,
    /// Notes on valid parts of the map that may be mistakes.
    pub notes: Vec<String>,
    /// Whether each row has its own device; otherwise the map gives one for all.
    pub has_devices: bool,
}

impl Results {
    /// Returns the facts about all rows, without the rows.
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

/// Reads a table of results by a map. Calls `take` with its rows in order, about `most` at a time, so that memory does
/// not grow with the attempts. Attempts of one line stay together. `device` replaces the device of the map. `take` is
/// called at least once.
///
/// # Errors
/// Before the first call of `take`: a file that cannot be read, all faults of the map with line and column, including
/// those that only the table shows, and incomplete rows. Later, the errors of `take`.
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
    // A fault of the map may be the reason why the table cannot be read.
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
    // With faults in conditions, the selected rows are unknown.
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
    // Every row is checked before the first call of `take`.
    let mut taints: BTreeMap<String, usize> = BTreeMap::new();
    let mut faulty = Faults::default();
    for pair in &pairs {
        match maker.looked(*pair) {
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
    let mut seen = BTreeMap::new();
    for same in pairs.chunk_by(|(a, _), (b, _)| a == b) {
        if results.sealed.len() >= most {
            take(&mut results)?;
            results.sealed.clear();
        }
        let mut faulty = Faults::default();
        for pair in same {
            match maker.make(*pair, &mut seen) {
                Ok(one) => results.sealed.push(one),
                Err(fault) => faulty.add(fault),
            }
        }
        faulty.check()?;
    }
    take(&mut results)
}

/// Reads the table, and the joined table if the map has one.
fn sheets(path: &Path, map: &Map) -> Result<(Sheet, Option<Sheet>), ImportError> {
    let sheet = Sheet::read(path, map.separator)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let joined = map.join.as_ref().map(|join| Sheet::read(&folder.join(&join.file), map.separator)).transpose()?;
    Ok((sheet, joined))
}

/// Keeps the rows that meet a condition. Returns the number of others.
fn keep(sheet: &mut Sheet, condition: Option<&Placed<String>>, called: &str, faults: &mut manifest::Faults) -> usize {
    let Some(Placed { value, at }) = condition else { return 0 };
    sheet.keep(value).unwrap_or_else(|message| {
        faults.add(*at, format!("{called}: {message}"));
        0
    })
}

/// A row, and its partner if a table is joined.
type Pair = (usize, Option<usize>);

/// Returns each row with each of its partners, and the number of rows without one.
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
