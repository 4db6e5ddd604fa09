//! A TOML text as a tree in which every key and value knows its place.
//!
//! The only file that names the TOML parser. Knows nothing of manifests, so that other files in TOML are read with it too.

use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// Bytes of the text.
pub type Span = Range<usize>;

/// A key and its place.
#[derive(Clone, Debug)]
pub struct Key {
    /// The key without its quotes.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// A value and its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// The value.
    pub content: Content,
    /// Where it stands.
    pub span: Span,
}

/// What a value is.
#[derive(Clone, Debug)]
pub enum Content {
    /// True or false.
    Bool(bool),
    /// A whole number; none beyond 128 bits.
    Int(Option<i128>),
    /// A real number; infinite where the literal is too large.
    Float(f64),
    /// Text.
    Text(String),
    /// A date or a time, which only its place tells.
    Date,
    /// Values in their order.
    List(Vec<Node>),
    /// Keys and values in the order in which they are written.
    Table(Vec<(Key, Node)>),
}

impl Node {
    /// What it is, in words.
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
/// Where the parser stopped, and in which words.
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

/// Entries in the order in which they are written.
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
