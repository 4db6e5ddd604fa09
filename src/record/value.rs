//! Structured values and their canonical hash.

use super::Digest;
use super::digest::length;
use std::collections::BTreeMap;
use std::fmt;

/// Named values, sorted by name.
pub type Table = BTreeMap<String, Value>;

/// A value of a manifest field, a part of an identity or a recorded fact.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A real number. Its hash is that of `0.0` for `-0.0`, and the same for every NaN.
    Float(f64),
    /// Text, hashed as its UTF-8 bytes.
    Str(String),
    /// An ordered list.
    List(Vec<Value>),
    /// Named values; the order in which they were written does not matter.
    Table(Table),
}

/// The key by which values are compared without hashing them: see [`Value::into_key`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueKey {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// The bits of a real number; both zeros are `0.0`, and every NaN is the same.
    Float(u64),
    /// Text.
    Str(String),
    /// The digest of a list or a table.
    Other(Digest),
}

impl Value {
    /// Hashes the value itself, independent of any serialized form.
    ///
    /// The encoding is one tag byte, then fixed-width little-endian numbers or length-prefixed contents, with the keys of a
    /// table in ascending byte order. It is frozen: `tests/golden/identity/` holds vectors of it.
    pub fn digest(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"ledger value v1");
        self.feed(&mut hasher);
        Digest(*hasher.finalize().as_bytes())
    }

    fn feed(&self, hasher: &mut blake3::Hasher) {
        match self {
            Self::Bool(value) => {
                hasher.update(&[b'b', u8::from(*value)]);
            }
            Self::Int(value) => {
                hasher.update(b"i");
                hasher.update(&value.to_le_bytes());
            }
            Self::Float(value) => {
                hasher.update(b"f");
                hasher.update(&canonical_bits(*value).to_le_bytes());
            }
            Self::Str(value) => {
                hasher.update(b"s");
                feed_text(hasher, value);
            }
            Self::List(items) => {
                hasher.update(b"l");
                hasher.update(&length(items.len()));
                items.iter().for_each(|item| item.feed(hasher));
            }
            Self::Table(table) => {
                hasher.update(b"t");
                hasher.update(&length(table.len()));
                for (key, value) in table {
                    feed_text(hasher, key);
                    value.feed(hasher);
                }
            }
        }
    }

    /// The key by which the value is compared. Keys are equal exactly if the digests are.
    pub fn into_key(self) -> ValueKey {
        match self {
            Self::Bool(value) => ValueKey::Bool(value),
            Self::Int(value) => ValueKey::Int(value),
            Self::Float(value) => ValueKey::Float(canonical_bits(value)),
            Self::Str(text) => ValueKey::Str(text),
            Self::List(_) | Self::Table(_) => ValueKey::Other(self.digest()),
        }
    }

    /// The text, if this is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, if this is a whole number.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, whole or real; a whole number beyond 2^53 is rounded.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            #[expect(clippy::cast_precision_loss, reason = "documented rounding")]
            Self::Int(value) => Some(*value as f64),
            _ => None,
        }
    }

    /// The boolean, if this is a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The table, if this is a table.
    pub fn as_table(&self) -> Option<&Table> {
        match self {
            Self::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Flattens nested tables to dotted paths: `{a: {b: 1}}` becomes `a.b = 1`. Lists are kept.
    pub fn flatten(&self) -> BTreeMap<String, Value> {
        fn walk(prefix: &str, value: &Value, out: &mut BTreeMap<String, Value>) {
            match value {
                Value::Table(table) => {
                    for (key, value) in table {
                        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                        walk(&path, value, out);
                    }
                }
                other => {
                    out.insert(prefix.to_owned(), other.clone());
                }
            }
        }
        let mut out = BTreeMap::new();
        walk("", self, &mut out);
        out
    }
}

fn feed_text(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&length(text.len()));
    hasher.update(text.as_bytes());
}

fn canonical_bits(value: f64) -> u64 {
    if value.is_nan() {
        f64::NAN.to_bits() & !(1 << 63)
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

/// Shows a value as in a manifest, text without quotes.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Str(value) => f.write_str(value),
            Self::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Self::Table(table) => {
                f.write_str("{")?;
                for (i, (key, value)) in table.iter().enumerate() {
                    write!(f, "{}{key} = {value}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Str(text)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}

/// Saturates at `i64::MAX`, which no recorded count or number of bytes reaches.
impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<Table> for Value {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_hash_by_meaning() {
        assert_eq!(Value::Float(0.0).digest(), Value::Float(-0.0).digest());
        assert_eq!(Value::Float(f64::NAN).digest(), Value::Float(-f64::NAN).digest());
        assert_ne!(Value::Float(1.0).digest(), Value::Int(1).digest());
    }

    #[test]
    fn keys_are_equal_where_digests_are() {
        let list = || Value::List(vec![Value::Int(1)]);
        let values = [
            0.0.into(),
            (-0.0).into(),
            f64::NAN.into(),
            (-f64::NAN).into(),
            Value::Int(0),
            false.into(),
            "0".into(),
            list(),
        ];
        for (a, b) in values.iter().flat_map(|a| values.iter().map(move |b| (a, b))) {
            assert_eq!(a.clone().into_key() == b.clone().into_key(), a.digest() == b.digest(), "{a} {b}");
        }
    }

    #[test]
    fn structure_is_part_of_the_hash() {
        let list = |items: &[&str]| Value::List(items.iter().map(|s| Value::from(*s)).collect());
        assert_ne!(list(&["ab", "c"]).digest(), list(&["a", "bc"]).digest());
        assert_ne!(Value::List(vec![list(&["a"])]).digest(), list(&["a"]).digest());
    }

    #[test]
    fn flatten_names_leaves_by_path() {
        let inner = Value::Table([("b".to_owned(), Value::Int(1))].into());
        let flat = Value::Table([("a".to_owned(), inner)].into()).flatten();
        assert_eq!(flat.into_iter().collect::<Vec<_>>(), [("a.b".to_owned(), Value::Int(1))]);
    }
}
