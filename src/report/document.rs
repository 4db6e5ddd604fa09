//! Common helpers for JSON documents.

use crate::record::{Table, Value};
use crate::wire::{JSON_FORMAT, to_json_text};

/// Builds a table from pairs.
pub fn table_of<const N: usize>(pairs: [(&str, Value); N]) -> Table {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Returns a JSON document of the given members and `"format"`.
pub fn document(mut members: Table) -> String {
    members.insert("format".to_owned(), Value::Int(JSON_FORMAT));
    to_json_text(&Value::Table(members))
}
