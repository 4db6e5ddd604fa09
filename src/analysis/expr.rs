//! Conditions over named values, `gpus <= 2 and precision == "bf16"`, and formulas over named numbers, `power * time / 3600`.
//!
//! An expression is parsed against the existing names and evaluated through a lookup, so that it works for a cell's
//! fields and for metrics. Must not know where values come from.

mod formula;
mod parse;
mod scan;
#[cfg(test)]
mod tests;

pub use formula::Formula;

use crate::record::{Part, Value};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// A checked condition.
///
/// Comparisons are `== != < <= > >=`, `in [a, b]` and `not in [a, b]`, with a field's name on the left and a literal on the right:
/// a number, `true`, `false`, text in `""` or `''`, or a bare word that is text. They are joined by `and`, `or`, `not` and
/// parentheses; `not` binds closest, then `and`. A name is a full dotted path or its last components where these are unique;
/// `model` alone stands for `model.name`. A name with other characters stands between backquotes.
///
/// With a name on the right, two fields are compared. After `< <= > >=` it may be any name, after `==` and `!=` a full
/// dotted name or a name between backquotes. Over the columns of a table it may also be the exact name of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    text: String,
    root: Condition,
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    Compare(Comparison),
}

#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    /// Full name of the field.
    field: String,
    operator: Operator,
    literals: Vec<Literal>,
    /// The byte range of the comparison in the text.
    place: Range<usize>,
}

/// The meaning of a bare word after `==` and `!=` that is exactly a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bare {
    /// The word is text, unless it is a dotted name.
    Text,
    /// The word is the field.
    Field,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}

impl Operator {
    fn is_ordered(self) -> bool {
        matches!(self, Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual)
    }

    /// Whether the operator holds for this order of two values.
    fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Self::Equal | Self::In => order == Some(Ordering::Equal),
            Self::Unequal | Self::NotIn => order != Some(Ordering::Equal),
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Literal {
    /// An `i64` cannot hold every seed.
    Int(i128),
    Real(f64),
    Bool(bool),
    Text(String),
    /// The value of another field, by its full name. It stands alone, never in a list.
    Field(String),
}

impl Literal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Int(_) | Self::Real(_) => NUMBER,
            Self::Bool(_) => "a truth value",
            Self::Text(_) => "text",
            Self::Field(_) => "a field",
        }
    }
}

/// An error in an expression, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ExprError {
    /// The expression.
    pub text: String,
    /// The place: the first character, from 0, and the number of characters, at least 1.
    pub place: (usize, usize),
    /// The error and how to fix it.
    pub message: String,
}

impl ExprError {
    fn new(text: &str, bytes: Range<usize>, message: impl Into<String>) -> Self {
        let chars = |bytes: Range<usize>| text.get(bytes).map_or(0, |part| part.chars().count());
        let place = (chars(0..bytes.start), chars(bytes).max(1));
        Self { text: text.to_owned(), place, message: message.into() }
    }
}

/// Shows the message, then the expression on one line, then carets under the place.
impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Characters shown on either side of the place.
        const AROUND: usize = 60;
        let (start, len) = self.place;
        let first = start.saturating_sub(AROUND);
        let len = len.min(AROUND);
        let line: String = self
            .text
            .chars()
            .skip(first)
            .take(start - first + len + AROUND)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        write!(f, "{}\n  {}\n  {}{}", self.message, line.trim_end(), " ".repeat(start - first), "^".repeat(len))
    }
}

/// Returns the full name of a short name, as in an expression.
///
/// # Errors
/// The error in the name, with a suggestion.
pub fn full_name(name: &str, tiers: &[&BTreeSet<String>]) -> Result<String, String> {
    parse::resolve(name, tiers)
}

/// The condition that a field has this value, with a digest by its first digits. `None` for a value or a name that an
/// expression in single quotes cannot hold.
pub fn equality(name: &str, value: &Value) -> Option<String> {
    let value = match value {
        Value::Str(text) if text.contains(['"', '\'', '\\']) => return None,
        Value::Str(text) => match text.get(..8) {
            Some(short) if is_short(short, text) => format!("\"{short}\""),
            _ => format!("\"{text}\""),
        },
        Value::Int(number) => number.to_string(),
        _ => return None,
    };
    let is_plain = name.chars().all(|c| c.is_alphanumeric() || "_.@".contains(c));
    let name = if is_plain { name.to_owned() } else { format!("`{name}`") };
    (!name.contains('\'')).then(|| format!("{name} == {value}"))
}

impl Expr {
    /// Parses an expression over the given names.
    ///
    /// # Errors
    /// The first error: a syntax error, an unknown or ambiguous name, an ordered comparison of text, or more than 64 levels of nesting.
    pub fn parse(text: &str, names: &BTreeSet<String>) -> Result<Self, ExprError> {
        Self::parse_in(text, &[names])
    }

    /// As [`parse`](Self::parse), over several sets of names: a short name is looked up in one set after the other.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_in(text: &str, tiers: &[&BTreeSet<String>]) -> Result<Self, ExprError> {
        let root = parse::parse(text, tiers, Bare::Text)?;
        Ok(Self { text: text.to_owned(), root })
    }

    /// As [`parse`](Self::parse), over the columns of a table: a bare word after `==` and `!=` that is exactly a
    /// column's name is that column.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn over_columns(text: &str, columns: &BTreeSet<String>) -> Result<Self, ExprError> {
        let root = parse::parse(text, &[columns], Bare::Field)?;
        Ok(Self { text: text.to_owned(), root })
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The full names of the compared fields, each once.
    pub fn fields(&self) -> BTreeSet<&str> {
        let mut fields = BTreeSet::new();
        self.root.visit(&mut |comparison| {
            fields.insert(comparison.field.as_str());
            fields.extend(comparison.other());
        });
        fields
    }

    /// Whether the values meet the condition. A comparison with a missing field, or with a value of another type, does not hold.
    pub fn matches(&self, lookup: &dyn Fn(&str) -> Option<Value>) -> bool {
        self.root.holds(lookup)
    }

    /// Checks that each field that has a value has a type for which its comparisons can hold.
    ///
    /// # Errors
    /// The first comparison of different types, such as text with a number.
    pub fn check(&self, lookup: &dyn Fn(&str) -> Option<Value>) -> Result<(), ExprError> {
        let mut fault = None;
        self.root.visit(&mut |comparison| {
            if fault.is_none() {
                fault = comparison.mismatch(lookup);
            }
        });
        fault.map_or(Ok(()), |(place, message)| Err(ExprError::new(&self.text, place, message)))
    }

    /// Returns the text and the field of the first required comparison that holds for none of `things`.
    pub fn unmet<T>(&self, things: &[T], lookup: &dyn Fn(&T, &str) -> Option<Value>) -> Option<(&str, &str)> {
        let mut needed = vec![&self.root];
        while let Some(condition) = needed.pop() {
            match condition {
                Condition::All(parts) => needed.extend(parts.iter().rev()),
                Condition::Compare(one) if !things.iter().any(|thing| one.holds(&|name| lookup(thing, name))) => {
                    return Some((self.text.get(one.place.clone())?, &one.field));
                }
                _ => {}
            }
        }
        None
    }
}

impl Condition {
    fn holds(&self, lookup: &dyn Fn(&str) -> Option<Value>) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(lookup)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(lookup)),
            Self::Not(part) => !part.holds(lookup),
            Self::Compare(comparison) => comparison.holds(lookup),
        }
    }

    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Comparison)) {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.visit(visit)),
            Self::Not(part) => part.visit(visit),
            Self::Compare(comparison) => visit(comparison),
        }
    }
}

impl Comparison {
    /// The field on the right of the comparison.
    fn other(&self) -> Option<&str> {
        match self.literals.as_slice() {
            [Literal::Field(name)] => Some(name),
            _ => None,
        }
    }

    /// Whether the comparison asks which value is larger.
    fn is_ordered(&self) -> bool {
        self.operator.is_ordered()
    }

    fn holds(&self, lookup: &dyn Fn(&str) -> Option<Value>) -> bool {
        let Some(value) = lookup(&self.field) else { return false };
        if let Some(other) = self.other() {
            return lookup(other).is_some_and(|other| self.fields_hold(&value, &other));
        }
        if self.literals.iter().any(|literal| !self.is_comparable(&value, literal)) {
            return false;
        }
        let order = |literal: &Literal| self.order(&value, literal);
        let is_equal = |literal: &Literal| order(literal) == Some(Ordering::Equal);
        match self.operator {
            Operator::In => self.literals.iter().any(is_equal),
            Operator::NotIn => !self.literals.iter().any(is_equal),
            operator => operator.holds(self.literals.first().and_then(order)),
        }
    }

    /// Whether the comparison holds between the values of two fields.
    fn fields_hold(&self, value: &Value, other: &Value) -> bool {
        let name = self.other().unwrap_or_default();
        let (one, two) = (type_of(&self.field, value), type_of(name, other));
        if one != two || self.is_ordered() && one != NUMBER {
            return false;
        }
        let order = match (value, other) {
            (Value::Bool(value), Value::Bool(other)) => Some(value.cmp(other)),
            _ => match (whole(&self.field, value), whole(name, other)) {
                (Some(value), Some(other)) => Some(value.cmp(&other)),
                (this, that) => {
                    let number = |whole: Option<i128>, value: &Value| whole.map(real).or_else(|| value.as_float());
                    match (number(this, value), number(that, other)) {
                        (Some(a), Some(b)) if a.is_nan() && b.is_nan() => Some(Ordering::Equal),
                        (Some(a), Some(b)) => a.partial_cmp(&b),
                        _ => (value == other).then_some(Ordering::Equal),
                    }
                }
            },
        };
        self.operator.holds(order)
    }

    fn mismatch(&self, lookup: &dyn Fn(&str) -> Option<Value>) -> Option<(Range<usize>, String)> {
        let value = lookup(&self.field)?;
        if let Some(name) = self.other() {
            let other = lookup(name)?;
            let (one, two) = (type_of(&self.field, &value), type_of(name, &other));
            let message = if one != two {
                format!("`{}` is {one}, but `{name}` is {two} (compare fields of one type)", self.field)
            } else if self.is_ordered() && one != NUMBER {
                format!("`{}` and `{name}` are {one}, which has no order here (use `==` or `!=`)", self.field)
            } else {
                return None;
            };
            return Some((self.place.clone(), message));
        }
        let literal = self.literals.iter().find(|literal| !self.is_comparable(&value, literal))?;
        let message = format!("`{}` is {}, but is compared with {}", self.field, kind(&value), literal.kind());
        Some((self.place.clone(), format!("{message} (compare it with {})", kind(&value))))
    }

    fn is_comparable(&self, value: &Value, literal: &Literal) -> bool {
        type_of(&self.field, value) == literal.kind()
    }

    /// The order of the value and the literal; `None` if they have no order. NaN equals NaN and has no order with any other number.
    fn order(&self, value: &Value, literal: &Literal) -> Option<Ordering> {
        let (value, literal) = match (value, literal) {
            (Value::Bool(value), Literal::Bool(literal)) => return Some(value.cmp(literal)),
            (Value::Str(value), Literal::Text(literal)) if is_short(literal, value) => return Some(Ordering::Equal),
            (Value::Str(value), Literal::Text(literal)) => return Some(value.as_str().cmp(literal)),
            (value, Literal::Int(literal)) => match whole(&self.field, value) {
                Some(value) => return Some(value.cmp(literal)),
                None => (value.as_float()?, real(*literal)),
            },
            (value, Literal::Real(literal)) => {
                (whole(&self.field, value).map(real).or_else(|| value.as_float())?, *literal)
            }
            _ => return None,
        };
        if value.is_nan() && literal.is_nan() { Some(Ordering::Equal) } else { value.partial_cmp(&literal) }
    }
}

/// Whether a text is an abbreviated digest or commit, as tables show it.
fn is_short(text: &str, digest: &str) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    text.len() >= 8 && [40, 64].contains(&digest.len()) && digest.starts_with(text) && is_hex(digest)
}

/// The value of a field as an integer. A seed that does not fit an `i64` is stored as text.
fn whole(field: &str, value: &Value) -> Option<i128> {
    match value {
        Value::Int(number) => Some((*number).into()),
        Value::Str(text) if field == Part::Seed.name() => text.parse::<u64>().ok().map(i128::from),
        _ => None,
    }
}

/// The type of a field's value; a seed is a number.
fn type_of(field: &str, value: &Value) -> &'static str {
    if whole(field, value).is_some() { NUMBER } else { kind(value) }
}

const NUMBER: &str = "a number";

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "a truth value",
        Value::Int(_) | Value::Float(_) => NUMBER,
        Value::Str(_) => "text",
        Value::List(_) => "a list",
        Value::Table(_) => "a table",
    }
}

#[expect(clippy::cast_precision_loss, reason = "as a number with a point would be read")]
fn real(number: i128) -> f64 {
    number as f64
}
