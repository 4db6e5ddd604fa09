//! A TOML text as a tree whose keys and values have positions.
//!
//! The only file that uses the TOML parser. Must not know manifests, because it reads other TOML files too.

use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// A range of bytes in the text.
pub type Span = Range<usize>;

/// A key and its position.
#[derive(Clone, Debug)]
pub struct Key {
    /// The key without quotes.
    pub text: String,
    /// Position.
    pub span: Span,
}

/// A value and its position.
#[derive(Clone, Debug)]
pub struct Node {
    /// The value.
    pub content: Content,
    /// Position.
    pub span: Span,
}

/// A TOML value.
#[derive(Clone, Debug)]
pub enum Content {
    /// True or false.
    Bool(bool),
    /// An integer; `None` if it does not fit in 128 bits.
    Int(Option<i128>),
    /// A float; infinite if the literal is too large.
    Float(f64),
    /// Text.
    Text(String),
    /// A date or a time, without its content.
    Date,
    /// Values in order.
    List(Vec<Node>),
    /// Keys and values in the order of the text.
    Table(Vec<(Key, Node)>),
}

impl Node {
    /// Describes the type in words.
    pub fn describe(&self) -> &'static str {
        match self.content {
            Content::Bool(_) => "a truth value",
            Content::Int(_) => "a whole number",
            Content::Float(_) => "a number",
            Content::Text(_) => "text",
            Content::Date => "a date",
            Content::List(_) => "a list",
            Content::Table(_) => "a table",
        }
    }
}

const PATTERNS_IN_SINGLE_QUOTES: &str =
    r" (in double quotes a backslash begins an escape: write patterns and paths in single quotes, as 'acc (\d+)')";

/// Parses a TOML document.
///
/// # Errors
/// The position and the message of the parser.
pub fn parse(text: &str) -> Result<Node, (Span, String)> {
    match DeTable::parse(text) {
        Ok(root) => {
            let span = root.span();
            Ok(Node { content: table(root.into_inner()), span })
        }
        Err(error) => {
            let message = error.message().trim().replace('\n', " ");
            let hint = if message.contains("escaped value") { PATTERNS_IN_SINGLE_QUOTES } else { "" };
            Err((error.span().unwrap_or(0..0), format!("{message}{hint}")))
        }
    }
}

/// Converts entries to a table, in the order of the text.
fn table(entries: DeTable<'_>) -> Content {
    let mut out: Vec<(Key, Node)> = entries
        .into_iter()
        .map(|(key, value)| {
            let key_span = key.span();
            let span = value.span();
            let node = Node { content: content(value.into_inner()), span };
            (Key { text: key.into_inner().into_owned(), span: key_span }, node)
        })
        .collect();
    out.sort_by_key(|(key, _)| key.span.start);
    Content::Table(out)
}

fn content(value: DeValue<'_>) -> Content {
    match value {
        DeValue::String(text) => Content::Text(text.into_owned()),
        DeValue::Integer(number) => Content::Int(i128::from_str_radix(number.as_str(), number.radix()).ok()),
        DeValue::Float(number) => Content::Float(number.as_str().parse().unwrap_or(f64::INFINITY)),
        DeValue::Boolean(value) => Content::Bool(value),
        DeValue::Datetime(_) => Content::Date,
        DeValue::Array(items) => Content::List(
            items
                .into_iter()
                .map(|item| {
                    let span = item.span();
                    Node { content: content(item.into_inner()), span }
                })
                .collect(),
        ),
        DeValue::Table(entries) => table(entries),
    }
}
