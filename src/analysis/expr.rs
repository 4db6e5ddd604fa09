//! Conditions over named values, `gpus <= 2 and precision == "bf16"`, and formulas over named numbers, `power * time / 3600`.
//!
//! An expression is parsed against the names that exist, and asked through a lookup, so that it works on a cell's fields as on
//! metrics. Knows nothing of where values come from.

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
/// `model` alone stands for `model.name`.
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
    /// Bytes of the text that the comparison covers.
    place: Range<usize>,
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

#[derive(Clone, Debug, PartialEq)]
enum Literal {
    /// A seed may exceed what a value's integer holds.
    Int(i128),
    Real(f64),
    Bool(bool),
    Text(String),
}

impl Literal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Int(_) | Self::Real(_) => NUMBER,
            Self::Bool(_) => "a truth value",
            Self::Text(_) => "text",
        }
    }
}

/// What is wrong with an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ExprError {
    /// The expression.
    pub text: String,
    /// The place: the first character, from 0, and the number of characters, at least 1.
    pub place: (usize, usize),
    /// What is wrong and how to mend it.
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

/// The full name that a short one stands for, as in an expression.
///
/// # Errors
/// What is wrong with the name, and what may have been meant.
pub fn full_name(name: &str, tiers: &[&BTreeSet<String>]) -> Result<String, String> {
    parse::resolve(name, tiers)
}

impl Expr {
    /// Parses an expression over the given names.
    ///
    /// # Errors
    /// The first thing that is wrong: a slip of grammar, a name that is unknown or stands for several fields, an order asked of
    /// text, or more than 64 levels of nesting.
    pub fn parse(text: &str, names: &BTreeSet<String>) -> Result<Self, ExprError> {
        Self::parse_in(text, &[names])
    }

    /// As [`parse`](Self::parse), over several sets of names: a short name stands for one of the first set that has it.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_in(text: &str, tiers: &[&BTreeSet<String>]) -> Result<Self, ExprError> {
        let root = parse::parse(text, tiers)?;
        Ok(Self { text: text.to_owned(), root })
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The full names of the fields that are asked for, each once.
    pub fn fields(&self) -> BTreeSet<&str> {
        let mut fields = BTreeSet::new();
        self.root.visit(&mut |comparison| {
            fields.insert(comparison.field.as_str());
        });
        fields
    }

    /// Whether the values meet the condition. A comparison with a missing field, or with a value of another type, does not hold.
    pub fn matches(&self, lookup: &dyn Fn(&str) -> Option<Value>) -> bool {
        self.root.holds(lookup)
    }

    /// Checks that each field's value, where there is one, is of a type that its comparisons can hold for.
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
    fn holds(&self, lookup: &dyn Fn(&str) -> Option<Value>) -> bool {
        let Some(value) = lookup(&self.field) else { return false };
        if self.literals.iter().any(|literal| !self.is_comparable(&value, literal)) {
            return false;
        }
        let order = |literal: &Literal| self.order(&value, literal);
        let equal = |literal: &Literal| order(literal) == Some(Ordering::Equal);
        let first = self.literals.first().and_then(order);
        match self.operator {
            Operator::Equal | Operator::In => self.literals.iter().any(equal),
            Operator::Unequal | Operator::NotIn => !self.literals.iter().any(equal),
            Operator::Less => first == Some(Ordering::Less),
            Operator::LessOrEqual => first.is_some_and(Ordering::is_le),
            Operator::Greater => first == Some(Ordering::Greater),
            Operator::GreaterOrEqual => first.is_some_and(Ordering::is_ge),
        }
    }

    fn mismatch(&self, lookup: &dyn Fn(&str) -> Option<Value>) -> Option<(Range<usize>, String)> {
        let value = lookup(&self.field)?;
        let literal = self.literals.iter().find(|literal| !self.is_comparable(&value, literal))?;
        let message = format!("`{}` is {}, but is compared with {}", self.field, kind(&value), literal.kind());
        Some((self.place.clone(), format!("{message} (compare it with {})", kind(&value))))
    }

    /// The value as a whole number: a seed that is no `i64` is text.
    fn whole(&self, value: &Value) -> Option<i128> {
        match value {
            Value::Int(number) => Some((*number).into()),
            Value::Str(text) if self.field == Part::Seed.name() => text.parse::<u64>().ok().map(i128::from),
            _ => None,
        }
    }

    fn is_comparable(&self, value: &Value, literal: &Literal) -> bool {
        let found = if self.whole(value).is_some() { NUMBER } else { kind(value) };
        found == literal.kind()
    }

    /// How the value stands to the literal; none where they have no order. A NaN equals a NaN, and has no order to any other number.
    fn order(&self, value: &Value, literal: &Literal) -> Option<Ordering> {
        let (value, literal) = match (value, literal) {
            (Value::Bool(value), Literal::Bool(literal)) => return Some(value.cmp(literal)),
            (Value::Str(value), Literal::Text(literal)) => return Some(value.as_str().cmp(literal)),
            (value, Literal::Int(literal)) => match self.whole(value) {
                Some(value) => return Some(value.cmp(literal)),
                None => (value.as_float()?, real(*literal)),
            },
            (value, Literal::Real(literal)) => (self.whole(value).map(real).or_else(|| value.as_float())?, *literal),
            _ => return None,
        };
        if value.is_nan() && literal.is_nan() { Some(Ordering::Equal) } else { value.partial_cmp(&literal) }
    }
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
