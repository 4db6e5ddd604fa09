//! Cells of a table: the type of their text, and templates that combine several cells.

use crate::record::Value;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Bool,
    Int,
    Real,
    Text,
}

/// Texts for a missing number.
const MISSING: [&str; 6] = ["", "na", "n/a", "null", "none", "-"];

impl Kind {
    pub(super) fn named(word: &str) -> Option<Self> {
        Some(match word {
            "bool" => Self::Bool,
            "int" => Self::Int,
            "real" => Self::Real,
            "text" => Self::Text,
            _ => return None,
        })
    }

    /// Returns the narrowest type of all texts in a column, except those for a missing number.
    pub(super) fn of_column<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let kinds = texts.map(str::trim).filter(|text| !is_missing(text)).map(Self::of);
        kinds.reduce(Self::both).unwrap_or(Self::Text)
    }

    fn of(text: &str) -> Self {
        if matches!(text, "true" | "false" | "True" | "False") {
            Self::Bool
        } else if is_plain(text) && text.parse::<i64>().is_ok() {
            Self::Int
        } else if is_plain(text) && number(text).is_some() {
            Self::Real
        } else {
            Self::Text
        }
    }

    fn both(self, other: Self) -> Self {
        match (self, other) {
            (one, two) if one == two => one,
            (Self::Int | Self::Real, Self::Int | Self::Real) => Self::Real,
            _ => Self::Text,
        }
    }

    /// Returns the value of a text in a column of this type, or `None` if it is missing.
    pub(super) fn value(self, text: &str) -> Option<Value> {
        let trimmed = text.trim();
        match self {
            Self::Text => (!trimmed.is_empty()).then(|| trimmed.into()),
            Self::Bool => trimmed.to_lowercase().parse().ok().map(Value::Bool),
            Self::Int => trimmed.parse().ok().map(Value::Int),
            Self::Real => number(trimmed).map(Value::Float),
        }
    }
}

/// Parses a number. Returns `None` if its value is too large for a float.
pub(super) fn number(text: &str) -> Option<f64> {
    let number = text.parse::<f64>().ok()?;
    // `inf` and `nan` have no digits.
    (number.is_finite() || !text.bytes().any(|byte| byte.is_ascii_digit())).then_some(number)
}

/// Returns the value of a text by itself, independent of its column.
pub(super) fn plain(text: &str) -> Value {
    let text = text.trim();
    let number = || text.parse().ok().map(Value::Int).or_else(|| number(text).map(Value::Float));
    number().or_else(|| Kind::Bool.value(text)).unwrap_or_else(|| text.into())
}

/// Whether a text stands for a missing number.
pub(super) fn is_missing(text: &str) -> bool {
    MISSING.iter().any(|missing| text.eq_ignore_ascii_case(missing))
}

/// Whether a text may be a number. A serial number with leading zeros, or a number with a plus sign, is not one.
fn is_plain(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let zeros = digits.len() > 1 && digits.starts_with('0') && digits.as_bytes()[1].is_ascii_digit();
    !zeros && !digits.starts_with('+')
}

/// Returns the key by which rows of two tables are joined: numbers by value, other texts unchanged.
pub(super) fn key(text: &str) -> String {
    /// Integers below this are exact as floating-point numbers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let text = text.trim();
    match (text.parse::<i128>(), text.parse::<f64>()) {
        (Ok(number), _) if is_plain(text) => number.to_string(),
        (_, Ok(number)) if is_plain(text) && number.fract() == 0.0 && number.abs() < EXACT => format!("{number:.0}"),
        (_, Ok(number)) if is_plain(text) && number.is_finite() => format!("{number:?}"),
        _ => text.to_owned(),
    }
}

/// A value made from a row: `{column}` is replaced by the column's cell, `{{` and `}}` by braces.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Template {
    Constant(Value),
    /// A single cell, with the column's type.
    Column(String),
    /// Text that contains cells.
    Mixed(Vec<Piece>),
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Column(String),
}

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut literal = String::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '{' | '}' if chars.peek() == Some(&c) => {
                    chars.next();
                    literal.push(c);
                }
                '{' => {
                    let mut closed = false;
                    let unclosed = chars.by_ref().take_while(|c| {
                        closed = *c == '}';
                        !closed
                    });
                    let name: String = unclosed.collect();
                    if name.trim().is_empty() || !closed {
                        return Err(
                            "`{` begins a column's name, as in \"{batch_size}\" (write {{ for a brace)".to_owned()
                        );
                    }
                    if !literal.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut literal)));
                    }
                    pieces.push(Piece::Column(name.trim().to_owned()));
                }
                '}' => return Err("`}` ends no column's name (write }} for a brace)".to_owned()),
                other => literal.push(other),
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(match pieces.as_slice() {
            [] => Self::Constant("".into()),
            [Piece::Text(text)] => Self::Constant(text.as_str().into()),
            [Piece::Column(name)] => Self::Column(name.clone()),
            _ => Self::Mixed(pieces),
        })
    }

    /// Whether it is one cell or one number.
    pub(super) fn is_one_value(&self) -> bool {
        matches!(self, Self::Column(_) | Self::Constant(Value::Int(_) | Value::Float(_)))
    }

    /// Returns the columns that it names.
    pub(super) fn columns(&self) -> Vec<&str> {
        match self {
            Self::Constant(_) => Vec::new(),
            Self::Column(name) => vec![name],
            Self::Mixed(pieces) => pieces
                .iter()
                .filter_map(|piece| match piece {
                    Piece::Column(name) => Some(name.as_str()),
                    Piece::Text(_) => None,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_narrowest_type_that_fits() {
        let kind = |texts: &[&str]| Kind::of_column(texts.iter().copied());
        assert_eq!(kind(&["1", "256", "-3"]), Kind::Int);
        assert_eq!(kind(&["1", "1e-1", "nan"]), Kind::Real);
        assert_eq!(kind(&["1", "N/A", ""]), Kind::Int, "a missing number is no text");
        assert_eq!(kind(&["007", "8"]), Kind::Text, "leading zeros are no number's");
        assert_eq!(kind(&["true", "False"]), Kind::Bool);
        assert_eq!(kind(&["1", "adam"]), Kind::Text);
        assert_eq!(kind(&["", "-"]), Kind::Text);
        assert_eq!(Kind::Real.value("n/a"), None);
        assert_eq!(Kind::Real.value(" 1 "), Some(Value::Float(1.0)));
        assert_eq!(Kind::Text.value("None"), Some("None".into()), "an optimizer may be called so");
        assert_eq!((kind(&["1", "1e400"]), Kind::Real.value("1e400")), (Kind::Text, None), "it is not infinite");
        assert_eq!((number("-inf"), number("1e-400")), (Some(f64::NEG_INFINITY), Some(0.0)));
        assert_eq!(Kind::Bool.value("True"), Some(Value::Bool(true)));
    }

    #[test]
    fn keys_of_equal_numbers_are_equal() {
        assert_eq!(key("256"), key(" 256.0"));
        assert_eq!(key("256"), key("2.56e2"));
        assert_ne!(key("1541664510123456789"), key("1541664510123456790"));
        assert_eq!(key("1e-4"), key("0.0001"));
        assert_ne!(key("007"), key("7"));
        assert_ne!(key("a"), key("A"));
    }

    #[test]
    fn templates_name_columns() {
        let parse = |text: &str| Template::parse(text);
        assert_eq!(parse("{batch size}"), Ok(Template::Column("batch size".to_owned())));
        assert_eq!(parse("sgd"), Ok(Template::Constant("sgd".into())));
        assert_eq!(parse("{{x}}"), Ok(Template::Constant("{x}".into())));
        let mixed = parse("{dataset}/{network}").unwrap();
        assert_eq!(mixed.columns(), ["dataset", "network"]);
        for wrong in ["{", "{}", "x}", "{a", "{ }", "{a}{b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
