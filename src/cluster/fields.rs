//! Reads and writes the JSON files of a submission; every error names its file.

use super::ClusterError;
use crate::record::{Digest, Table, Value};
use crate::wire::{from_json, to_json_text};
use std::path::{Path, PathBuf};

/// The format of every file of a submission.
const FORMAT: i64 = 1;

/// The members of a JSON object, with the path of its file.
pub(super) struct Fields {
    path: PathBuf,
    table: Table,
}

impl Fields {
    /// Reads a file that was written with [`text_of`].
    pub(super) fn read(path: &Path) -> Result<Self, ClusterError> {
        let bytes = std::fs::read(path).map_err(super::io_error("read", path))?;
        let damaged = |fault: String| ClusterError::Damaged { path: path.to_owned(), fault };
        let text = String::from_utf8(bytes).map_err(|fault| damaged(fault.to_string()))?;
        let Value::Table(table) = from_json(&text).map_err(|fault| damaged(fault.to_string()))? else {
            return Err(damaged("it is not an object".to_owned()));
        };
        let fields = Self { path: path.to_owned(), table };
        match fields.int("format")? {
            found if found > FORMAT => Err(ClusterError::Newer { path: path.to_owned(), found }),
            _ => Ok(fields),
        }
    }

    /// Returns an object that is nested in this one.
    pub(super) fn within(&self, value: &Value) -> Result<Self, ClusterError> {
        let table = value.as_table().ok_or_else(|| self.fault("a member is not an object"))?;
        Ok(Self { path: self.path.clone(), table: table.clone() })
    }

    pub(super) fn fault(&self, fault: &str) -> ClusterError {
        ClusterError::Damaged { path: self.path.clone(), fault: fault.to_owned() }
    }

    fn missing(&self, name: &str) -> ClusterError {
        self.fault(&format!("`{name}` is missing or of another kind"))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.table.get(name)
    }

    pub(super) fn text(&self, name: &str) -> Result<String, ClusterError> {
        self.get(name).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| self.missing(name))
    }

    pub(super) fn int(&self, name: &str) -> Result<i64, ClusterError> {
        self.get(name).and_then(Value::as_int).ok_or_else(|| self.missing(name))
    }

    pub(super) fn number<N: TryFrom<i64>>(&self, name: &str) -> Result<N, ClusterError> {
        N::try_from(self.int(name)?).map_err(|_| self.missing(name))
    }

    pub(super) fn digest(&self, name: &str) -> Result<Digest, ClusterError> {
        self.text(name)?.parse().map_err(|_| self.missing(name))
    }

    pub(super) fn table(&self, name: &str) -> Result<Table, ClusterError> {
        self.get(name).and_then(Value::as_table).cloned().ok_or_else(|| self.missing(name))
    }

    pub(super) fn list(&self, name: &str) -> Result<&[Value], ClusterError> {
        match self.get(name) {
            Some(Value::List(items)) => Ok(items),
            _ => Err(self.missing(name)),
        }
    }

    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, ClusterError> {
        let items = self.list(name)?.iter();
        items.map(|item| item.as_str().map(str::to_owned).ok_or_else(|| self.missing(name))).collect()
    }
}

/// Returns the text of a file with these members and the format version.
pub(super) fn text_of<const N: usize>(members: [(&str, Value); N]) -> String {
    let mut table = table_of(members);
    table.insert("format".to_owned(), FORMAT.into());
    to_json_text(&table.into())
}

/// A table from pairs.
pub(super) fn table_of<const N: usize>(members: [(&str, Value); N]) -> Table {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
