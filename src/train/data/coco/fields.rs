//! The typed fields of an entry.

use super::fault::EntryFault;
use serde_json::{Map, Value};

/// The longest beginning of a wrong value that a message shows, in characters.
const SHOWN: usize = 40;

/// The fields of one entry.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    pub fn of(value: &'a Value) -> Result<Self, EntryFault> {
        value.as_object().map(Self).ok_or_else(|| EntryFault::NotObject { found: shown(value) })
    }

    pub fn whole(self, field: &'static str) -> Result<u64, EntryFault> {
        self.get(field, "a whole number from 0", Value::as_u64)
    }

    /// Returns a side of an image.
    pub fn side(self, field: &'static str) -> Result<u16, EntryFault> {
        let side = |value: &Value| u16::try_from(value.as_u64()?).ok().filter(|side| *side > 0);
        self.get(field, "1 to 65535 pixels", side)
    }

    pub fn area(self) -> Result<f64, EntryFault> {
        let area = |value: &Value| value.as_f64().filter(|area| *area >= 0.0);
        self.get("area", "the area of the object's mask, or of its box, in square pixels", area)
    }

    pub fn text(self, field: &'static str) -> Result<&'a str, EntryFault> {
        self.get(field, "a text", Value::as_str)
    }

    /// Returns 0 or 1, or `false` or `true`; false if the field is missing.
    pub fn flag(self, field: &'static str) -> Result<bool, EntryFault> {
        let flag = |value: &Value| match (value.as_bool(), value.as_u64()) {
            (Some(flag), _) => Some(flag),
            (None, Some(number @ (0 | 1))) => Some(number == 1),
            _ => None,
        };
        if self.0.contains_key(field) { self.get(field, "0 or 1", flag) } else { Ok(false) }
    }

    /// Returns `[x, y, width, height]`.
    pub fn bounds(self) -> Result<[f64; 4], EntryFault> {
        let four = |value: &Value| <[f64; 4]>::try_from(numbers(value)?).ok();
        let bounds = self.get("bbox", "four numbers: [x, y, width, height]", four)?;
        let [_, _, width, height] = bounds;
        if width < 0.0 || height < 0.0 { Err(EntryFault::Extent { width, height }) } else { Ok(bounds) }
    }

    /// Returns the value of a field, or the fault that gives the expected value.
    pub fn get<T>(
        self,
        field: &'static str,
        needed: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, EntryFault> {
        let value = self.0.get(field).ok_or(EntryFault::Missing { field, needed })?;
        read(value).ok_or_else(|| EntryFault::Field { field, found: shown(value), needed })
    }
}

/// Returns a list of numbers.
pub(super) fn numbers(value: &Value) -> Option<Vec<f64>> {
    value.as_array()?.iter().map(Value::as_f64).collect()
}

/// Returns the beginning of a value as JSON.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
