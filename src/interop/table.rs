//! A table of results as runs: each row one attempt, made of its cells by a map.
//!
//! What a run is comes from the map's fields; file, digest, row and cells are recorded and are in no id. Rows that cannot be right are
//! taken in as tainted, with the reason.

mod cell;
mod make;
mod map;
mod sheet;
#[cfg(test)]
mod tests;

use super::rows::{ImportError, Source};
use crate::record::Sealed;
use make::Maker;
use map::Map;
use sheet::Sheet;
use std::collections::BTreeMap;
use std::path::Path;

/// A table as runs, ready to be taken into a ledger.
#[derive(Clone, Debug)]
pub struct Results {
    /// The name of the experiment.
    pub name: String,
    /// One for each row, or for each pair of rows that belong together.
    pub sealed: Vec<Sealed>,
    /// The table, and the one that was joined to it.
    pub sources: Vec<Source>,
    /// How many rows did not meet the map's condition.
    pub left_out: usize,
    /// How many rows had no partner in the joined table.
    pub alone: usize,
    /// Why attempts are tainted, and how many for each reason.
    pub taints: BTreeMap<String, usize>,
}

/// Reads a table of results by a map.
///
/// # Errors
/// A file that cannot be read, faults of the map with line and column, columns that there are not, rows that are not whole, and conditions or
/// formulas that do not fit the columns.
pub fn read_results(path: &Path, map: &Path) -> Result<Results, ImportError> {
    let map = Map::read(map)?;
    let mut sheet = Sheet::read(path, map.separator)?;
    let left_out = match &map.condition {
        Some(condition) => sheet.keep(condition, "where")?,
        None => 0,
    };
    let joined = match &map.join {
        Some(join) => {
            let folder = path.parent().unwrap_or(Path::new(""));
            let mut joined = Sheet::read(&folder.join(&join.file), map.separator)?;
            if let Some(condition) = &join.condition {
                joined.keep(condition, "join.where")?;
            }
            Some(joined)
        }
        None => None,
    };
    let maker = Maker::new(&map, &sheet, joined.as_ref())?;
    let (pairs, alone) = pairs(&map, &sheet, joined.as_ref())?;
    let mut sealed = Vec::with_capacity(pairs.len());
    let mut taints: BTreeMap<String, usize> = BTreeMap::new();
    let mut seen: BTreeMap<[u8; 32], u64> = BTreeMap::new();
    for (row, partner) in pairs {
        let one = maker.make(row, partner, &mut seen)?;
        for taint in one.attempt.taints() {
            *taints.entry(taint.to_owned()).or_default() += 1;
        }
        sealed.push(one);
    }
    let sources = std::iter::once(sheet.source.clone()).chain(joined.map(|joined| joined.source)).collect();
    Ok(Results { name: map.name, sealed, sources, left_out, alone, taints })
}

/// A row, and its partner where a table is joined.
type Pair = (usize, Option<usize>);

/// Each row with each of its partners, and how many rows have none.
fn pairs(map: &Map, sheet: &Sheet, joined: Option<&Sheet>) -> Result<(Vec<Pair>, usize), ImportError> {
    let (Some(join), Some(joined)) = (&map.join, joined) else {
        return Ok(((0..sheet.rows.len()).map(|row| (row, None)).collect(), 0));
    };
    let places = sheet.places(&join.on)?;
    let index = joined.index(&join.on)?;
    let (mut pairs, mut alone) = (Vec::new(), 0);
    for (at, row) in sheet.rows.iter().enumerate() {
        match index.get(&sheet::keys(row, &places)) {
            Some(partners) => pairs.extend(partners.iter().map(|partner| (at, Some(*partner)))),
            None => alone += 1,
        }
    }
    Ok((pairs, alone))
}
