//! The row and file that an attempt was imported from, by its record.

use crate::record::{Attempt, Digest, Table, Value};

/// The row of a table that an attempt was made from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowOrigin {
    /// The file's name, without its folder.
    pub file: String,
    /// The BLAKE3 digest of its bytes, in hexadecimal digits.
    pub digest: String,
    /// The line on which the row begins.
    pub line: i64,
    /// The digest of its cells that are not empty, with their columns' names.
    pub cells: Digest,
}

impl RowOrigin {
    /// Returns the origin of an attempt. Returns `None` if it was not imported from a table.
    pub fn of(attempt: &Attempt) -> Option<Self> {
        let import = import(attempt)?;
        let text = |name: &str| import.get(name).and_then(Value::as_str).map(str::to_owned);
        let is_filled = |cell: &&Value| cell.as_str() != Some("");
        let cells = import.get("cells").and_then(Value::as_table).into_iter().flatten();
        let cells: Table =
            cells.filter(|(_, cell)| is_filled(cell)).map(|(head, cell)| (head.clone(), cell.clone())).collect();
        let cells = Value::Table(cells).digest();
        Some(Self { file: text("file")?, digest: text("digest")?, line: import.get("line")?.as_int()?, cells })
    }
}

fn import(attempt: &Attempt) -> Option<&Table> {
    attempt.facts.get("import")?.as_table()
}

/// Whether an attempt was imported from a matching file, including a joined one or one of several. `matches` gets names and digests.
pub fn is_from(attempt: &Attempt, matches: &mut dyn FnMut(&str, &str) -> bool) -> bool {
    let mut is_one = |table: &Table| {
        let text = |name: &str| table.get(name).and_then(Value::as_str);
        text("file").zip(text("digest")).is_some_and(|(file, digest)| matches(file, digest))
    };
    let Some(import) = import(attempt) else { return false };
    let several = match import.get("files") {
        Some(Value::List(files)) => files.as_slice(),
        _ => &[],
    };
    let others = import.get("joined").into_iter().chain(several).filter_map(Value::as_table);
    std::iter::once(import).chain(others).any(&mut is_one)
}
