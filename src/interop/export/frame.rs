//! A table by columns, each with one type.

use crate::interop::moment::iso_ms;
use crate::record::Value;
use crate::wire::to_json_line;
use std::borrow::Cow;

/// The type of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text; lists and tables are JSON.
    Text,
    /// Integers.
    Int,
    /// Real numbers, including NaN and infinities.
    Real,
    /// Booleans.
    Bool,
    /// Milliseconds since the Unix epoch.
    Moment,
}

/// A column. A single cell applies to all rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The name, with the unit in brackets if it has one.
    pub name: String,
    /// The type of its cells.
    pub kind: Kind,
    cells: Vec<Option<Value>>,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Its columns.
    pub columns: Vec<Column>,
    /// The number of rows.
    pub rows: usize,
}

impl Column {
    /// Returns a column of this type.
    pub fn new(name: impl Into<String>, kind: Kind, cells: Vec<Option<Value>>) -> Self {
        Self { name: name.into(), kind, cells }
    }

    /// Returns a column of the [`Narrowest`] type.
    pub fn inferred(name: impl Into<String>, cells: Vec<Option<Value>>) -> Self {
        let mut narrowest = Narrowest::default();
        cells.iter().flatten().for_each(|value| narrowest.see(value));
        Self::new(name, narrowest.kind(), cells)
    }

    /// Returns the cell of a row, or `None` if it is missing.
    pub fn cell(&self, row: usize) -> Option<&Value> {
        self.cells.get(if self.cells.len() == 1 { 0 } else { row })?.as_ref()
    }

    /// Returns the cell as text. Numbers are written so that they can be read back exactly, times in ISO 8601.
    pub fn text(&self, row: usize) -> Option<Cow<'_, str>> {
        Some(match (self.kind, self.cell(row)?) {
            (Kind::Moment, Value::Int(ms)) => iso_ms(*ms).into(),
            (Kind::Real, value) => value.as_float().map_or_else(String::new, |number| format!("{number:?}")).into(),
            (_, Value::Str(text)) => text.as_str().into(),
            (_, value @ (Value::List(_) | Value::Table(_))) => to_json_line(value).into(),
            (_, value) => value.to_string().into(),
        })
    }
}

/// The narrowest type that fits all cells without loss of digits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Narrowest {
    kind: Option<Kind>,
    has_rounded: bool,
}

impl Narrowest {
    /// Includes a cell.
    pub(super) fn see(&mut self, value: &Value) {
        let kind = kind_of(value);
        self.has_rounded |= is_rounded(value);
        self.kind = Some(match (self.kind.unwrap_or(kind), kind) {
            (one, two) if one == two => one,
            (Kind::Int | Kind::Real, Kind::Int | Kind::Real) => Kind::Real,
            _ => Kind::Text,
        });
    }

    /// Returns the type.
    pub(super) fn kind(self) -> Kind {
        self.kind.filter(|kind| *kind != Kind::Real || !self.has_rounded).unwrap_or(Kind::Text)
    }
}

/// Whether an integer cannot be represented exactly as a real number, which happens from 2^53 on.
pub(super) fn is_rounded(value: &Value) -> bool {
    let is_long = |number: u64| u64::BITS - number.leading_zeros() > f64::MANTISSA_DIGITS + number.trailing_zeros();
    value.as_int().is_some_and(|number| is_long(number.unsigned_abs()))
}

fn kind_of(value: &Value) -> Kind {
    match value {
        Value::Bool(_) => Kind::Bool,
        Value::Int(_) => Kind::Int,
        Value::Float(_) => Kind::Real,
        _ => Kind::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_narrowest_type_and_a_single_cell_applies_to_all_rows() {
        let kind = |cells: &[Value]| Column::inferred("c", cells.iter().cloned().map(Some).collect()).kind;
        assert_eq!(kind(&[1i64.into(), 2i64.into()]), Kind::Int);
        assert_eq!(kind(&[1i64.into(), 0.5.into()]), Kind::Real);
        assert_eq!(kind(&[1i64.into(), "a".into()]), Kind::Text);
        assert_eq!(kind(&[true.into()]), Kind::Bool);
        assert_eq!(kind(&[]), Kind::Text);
        for (number, expected) in [
            (1 << 53, Kind::Real),
            ((1 << 53) + 1, Kind::Text),
            (-(1 << 53) - 1, Kind::Text),
            (i64::MIN, Kind::Real),
            (i64::MAX, Kind::Text),
            (0, Kind::Real),
        ] {
            assert_eq!(kind(&[0.5.into(), number.into()]), expected, "{number}");
            assert_eq!(kind(&[number.into()]), Kind::Int, "{number}");
        }
        let one = Column::new("c", Kind::Real, vec![Some(1i64.into())]);
        assert_eq!((one.text(0), one.text(7)), (Some("1.0".into()), Some("1.0".into())));
        let two = Column::new("c", Kind::Moment, vec![Some(1_541_665_135_510i64.into()), None]);
        assert_eq!((two.text(0), two.text(1), two.text(2)), (Some("2018-11-08T08:18:55.510Z".into()), None, None));
        let list = Column::inferred("c", vec![Some(Value::List(vec![1i64.into(), "a".into()]))]);
        assert_eq!(list.text(0), Some("[1,\"a\"]".into()));
    }
}
