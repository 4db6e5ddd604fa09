//! A whole table in memory, each column with its type.

use super::cell::{Kind, is_missing, key};
use crate::analysis::expr::Expr;
use crate::interop::rows::{Faults, ImportError, Rows, Source, listed, shown};
use crate::manifest::nearest;
use crate::record::Value;
use csv::ByteRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The largest number of columns in a table of results.
const MOST_COLUMNS: usize = 10_000;

/// A table.
pub(super) struct Sheet {
    pub(super) source: Source,
    pub(super) heads: Vec<String>,
    kinds: Vec<Kind>,
    pub(super) rows: Vec<Row>,
}

/// A row and the line on which it begins. Its cells share one text, because separate texts would take five times the memory.
pub(super) struct Row {
    pub(super) line: u64,
    text: Box<str>,
    /// The end of each cell in the text.
    ends: Box<[u32]>,
}

impl Row {
    /// Returns the row of a record. Returns `None` if a cell is not UTF-8.
    fn new(line: u64, record: &ByteRecord) -> Option<Self> {
        let mut text = String::with_capacity(record.as_slice().len());
        let mut ends = Vec::with_capacity(record.len());
        for cell in record {
            text.push_str(str::from_utf8(cell).ok()?);
            ends.push(u32::try_from(text.len()).ok()?);
        }
        Some(Self { line, text: text.into(), ends: ends.into() })
    }

    pub(super) fn cell(&self, place: usize) -> Option<&str> {
        let end = *self.ends.get(place)?;
        let start = place.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.text.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).filter_map(|place| self.cell(place))
    }
}

impl Sheet {
    /// Reads a table.
    pub(super) fn read(path: &Path, separator: u8) -> Result<Self, ImportError> {
        let mut file = Rows::open(path, separator)?;
        let heads = file.heads().to_vec();
        if heads.len() > MOST_COLUMNS {
            let (path, columns) = (path.display(), heads.len());
            let text = format!(
                "`{path}` has {columns} columns, and {MOST_COLUMNS} are read at most (cut out those that the map names)"
            );
            return Err(ImportError::Refused(text));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = heads.iter().find(|head| !seen.insert(*head)) {
            let text = format!("`{}` has two columns `{}` (rename one)", path.display(), shown(twice.as_bytes()));
            return Err(ImportError::Refused(text));
        }
        let (mut rows, mut faults) = (Vec::new(), Faults::default());
        let mut record = ByteRecord::new();
        while file.next(&mut record)? {
            if let Err(fault) = file.whole(&record) {
                faults.add(fault);
                continue;
            }
            match Row::new(file.line(&record), &record) {
                Some(row) => rows.push(row),
                None => faults.add(file.fault(&record, "it is not UTF-8 text (save the table as UTF-8)")),
            }
        }
        faults.check()?;
        let source = file.finish();
        if rows.is_empty() {
            return Err(ImportError::Empty(source.path));
        }
        let kinds = kinds(heads.len(), &rows);
        Ok(Self { source, heads, kinds, rows })
    }

    /// Returns the index of a column.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.heads.iter().position(|head| head == name)
    }

    /// Returns the type of a column.
    pub(super) fn kind(&self, place: usize) -> Kind {
        self.kinds.get(place).copied().unwrap_or(Kind::Text)
    }

    /// Returns a cell with its column's type, or `None` if it is missing.
    pub(super) fn value(&self, row: &Row, place: usize) -> Option<Value> {
        self.kind(place).value(row.cell(place)?)
    }

    /// Keeps the rows that meet a condition. Returns the number of others.
    ///
    /// # Errors
    /// The fault of the condition.
    pub(super) fn keep(&mut self, condition: &str) -> Result<usize, String> {
        let names: BTreeSet<String> = self.heads.iter().cloned().collect();
        let expr = Expr::over_columns(condition, &names).map_err(|error| error.to_string())?;
        let mut meets = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let lookup = |name: &str| self.find(name).and_then(|place| self.value(row, place));
            expr.check(&lookup).map_err(|error| error.to_string())?;
            meets.push(expr.matches(&lookup));
        }
        let before = self.rows.len();
        let mut meets = meets.into_iter();
        self.rows.retain(|_| meets.next().unwrap_or(true));
        // Rows that are left out do not determine the types of columns.
        self.kinds = kinds(self.heads.len(), &self.rows);
        Ok(before - self.rows.len())
    }

    /// Returns a text of a column in which no cell is a number. Returns `None` for a column with numbers or without values.
    pub(super) fn text_of(&self, place: usize) -> Option<&str> {
        let cells = self.rows.iter().filter_map(|row| row.cell(place)).map(str::trim);
        let mut texts = cells.filter(|cell| !is_missing(cell)).peekable();
        let first = texts.peek().copied()?;
        texts.all(|cell| cell.parse::<f64>().is_err()).then_some(first)
    }

    /// Returns the rows by the keys of some columns.
    pub(super) fn index(&self, on: &[String]) -> BTreeMap<Vec<String>, Vec<usize>> {
        let places = self.places(on);
        let mut index: BTreeMap<Vec<String>, Vec<usize>> = BTreeMap::new();
        for (at, row) in self.rows.iter().enumerate() {
            index.entry(keys(row, &places)).or_default().push(at);
        }
        index
    }

    /// Returns the indexes of the columns that exist.
    pub(super) fn places(&self, names: &[String]) -> Vec<usize> {
        names.iter().filter_map(|name| self.find(name)).collect()
    }

    /// Returns the message for a missing column.
    pub(super) fn missing(&self, column: &str) -> String {
        const SEPARATORS: [char; 3] = [';', '\t', '|'];
        let path = self.source.path.display();
        if let [only] = self.heads.as_slice()
            && let Some(separator) = SEPARATORS.into_iter().find(|separator| only.contains(*separator))
        {
            let shown = separator.escape_default();
            return format!("`{path}` has one column, `{only}` (separator = \"{shown}\" splits it)");
        }
        let meant = nearest(column, self.heads.iter().map(String::as_str));
        let meant = meant.map_or_else(String::new, |meant| format!("did you mean `{meant}`? "));
        format!("`{path}` has no column `{column}` ({meant}there are: {})", listed(&self.heads))
    }
}

/// Returns the type of each column.
fn kinds(columns: usize, rows: &[Row]) -> Vec<Kind> {
    let column = |at: usize| rows.iter().filter_map(move |row| row.cell(at));
    (0..columns).map(|at| Kind::of_column(column(at))).collect()
}

/// Returns the keys of a row's cells.
pub(super) fn keys(row: &Row, places: &[usize]) -> Vec<String> {
    places.iter().map(|place| key(row.cell(*place).unwrap_or_default())).collect()
}
