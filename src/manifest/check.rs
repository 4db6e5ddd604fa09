//! Checks a value against a field: type, range, canonical form.

use super::bind::Bind;
use super::document::{Content, Node};
use super::fault::{nearest, shown};
use super::field::{Kind, choices};
use super::table::{FIELDS, sections};
use crate::record::Value;
use std::path::Path;

/// Context of the whole manifest for checks of single values.
#[derive(Clone, Copy)]
pub(super) struct Checker<'a> {
    /// The manifest's text, to quote values as written.
    pub(super) text: &'a str,
    /// Whether the manifest has `[program]`, so that names of models and data are free.
    pub(super) program: bool,
}

impl Checker<'_> {
    /// Returns the value in the canonical form of the field's kind, or what is wrong with it.
    ///
    /// Values with the same meaning become equal: for a real field `1` becomes `1.0`, a seed its decimal digits,
    /// and `-0.0` becomes `0.0`.
    pub(super) fn scalar(&self, name: &str, kind: Kind, node: &Node) -> Result<Value, String> {
        let wrong = || Err(format!("{name} is {} (it must be {kind})", self.found(node)));
        let unless = |text: &str, fault: Option<String>| match fault {
            None => Ok(Value::from(text)),
            Some(fault) => Err(format!("{name} {fault} (it must be {kind})")),
        };
        match (kind, &node.content) {
            (Kind::Text { max, lines }, Content::Text(text)) => unless(text, text_fault(text, max, lines)),
            (Kind::Word { max }, Content::Text(text)) => {
                let blank = text.chars().any(char::is_whitespace).then(|| "holds a blank".to_owned());
                unless(text, blank.or_else(|| text_fault(text, max, false)))
            }
            (Kind::Flag, Content::Bool(value)) => Ok(Value::Bool(*value)),
            (Kind::Texts | Kind::Binds, Content::List(_)) => {
                let texts = self.texts(name, node).map_err(|(_, message)| message)?;
                let faults = texts.iter().filter_map(|(text, _)| Bind::parse(text, Path::new("/")).err());
                if let (Kind::Binds, Some(fault)) = (kind, faults.into_iter().next()) {
                    return Err(format!("{name} {fault}"));
                }
                Ok(Value::List(texts.into_iter().map(|(text, _)| text.into()).collect()))
            }
            (Kind::Known(_), Content::Text(word)) if self.program => {
                if is_name(word) {
                    Ok(word.as_str().into())
                } else {
                    Err(format!("{name} is {} (a name is made of a-z, 0-9, `_`, `.` and `-`)", self.found(node)))
                }
            }
            (Kind::Choice(words) | Kind::Known(words), Content::Text(word)) => {
                if words.contains(&word.as_str()) {
                    return Ok(word.as_str().into());
                }
                let other_word = [("gpu", "cuda"), ("nvidia", "cuda")].into_iter().find(|(other, _)| other == word);
                let meant = match other_word {
                    Some((_, meant)) if words.contains(&meant) => Some(meant),
                    _ => nearest(word, words.iter().copied()),
                };
                let hint = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
                let other =
                    if name == "model.name" && meant.is_none() { "; other models run by [program]" } else { "" };
                Err(format!("{name} is {} (it must be {}{hint}{other})", self.found(node), choices(words)))
            }
            (Kind::Int { min, max }, Content::Int(number)) => match number.map(i64::try_from) {
                Some(Ok(number)) if (min..=max).contains(&number) => Ok(Value::Int(number)),
                _ if number.is_some_and(|number| number < i128::from(min)) => {
                    Err(format!("{name} is {} (it must be at least {min})", self.found(node)))
                }
                _ => Err(format!("{name} is {} (it must be at most {max})", self.found(node))),
            },
            (Kind::OneOf(numbers), Content::Int(number)) => match number.map(i64::try_from) {
                Some(Ok(number)) if numbers.contains(&number) => Ok(Value::Int(number)),
                _ => wrong(),
            },
            (Kind::Real(interval), Content::Int(_) | Content::Float(_)) => match real(&node.content) {
                Some(number) if interval.contains(number) => Ok(Value::Float(number)),
                _ => wrong(),
            },
            (Kind::Seed, Content::Int(Some(number))) => {
                u64::try_from(*number).map_or_else(|_| wrong(), |seed| Ok(seed.to_string().into()))
            }
            (Kind::Seed, Content::Text(digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse::<u64>().map_or_else(|_| wrong(), |seed| Ok(seed.to_string().into()))
            }
            (Kind::Counts { max, most }, Content::List(nodes)) => {
                let mut counts = Vec::with_capacity(nodes.len());
                for node in nodes {
                    let count = self.scalar(name, Kind::Int { min: 1, max }, node)?;
                    if counts.contains(&count) {
                        return Err(format!("{name} has the value {} twice (remove one)", self.found(node)));
                    }
                    counts.push(count);
                }
                if (1..=most).contains(&counts.len()) {
                    Ok(Value::List(counts))
                } else {
                    Err(format!("{name} has {} values (it must be {kind})", counts.len()))
                }
            }
            (Kind::Scalar, Content::Bool(value)) => Ok(Value::Bool(*value)),
            (Kind::Scalar, Content::Int(Some(number))) => {
                i64::try_from(*number).map_or_else(|_| wrong(), |number| Ok(Value::Int(number)))
            }
            (Kind::Scalar, Content::Float(number)) if number.is_finite() => Ok(Value::Float(number + 0.0)),
            (Kind::Scalar, Content::Text(text)) => unless(text, text_fault(text, 100_000, true)),
            _ => wrong(),
        }
    }

    /// Returns the texts of a list, each with its node.
    pub(super) fn texts<'n>(&self, name: &str, node: &'n Node) -> Result<Vec<(&'n str, &'n Node)>, (usize, String)> {
        let Content::List(items) = &node.content else {
            return Err((node.span.start, format!("{name} is {} (it must be a list of texts)", self.found(node))));
        };
        items
            .iter()
            .map(|item| match &item.content {
                Content::Text(text) if !text.contains('\0') => Ok((text.as_str(), item)),
                _ => Err((item.span.start, format!("{name} holds {} (each item must be text)", self.found(item)))),
            })
            .collect()
    }

    /// Describes the value as found; quoted as written if it is short.
    pub(super) fn found(&self, node: &Node) -> String {
        let written = self.text.get(node.span.clone()).unwrap_or_default();
        match node.content {
            Content::List(_) | Content::Table(_) => node.describe().to_owned(),
            Content::Text(_) if written.contains('\n') => "a text of several lines".to_owned(),
            Content::Text(_) => format!("the text {}", shown(written)),
            _ => shown(written),
        }
    }
}

/// Converts a number to a float; `None` if an integer is not exactly representable.
fn real(content: &Content) -> Option<f64> {
    const EXACT: i64 = 1 << 53;
    match content {
        // Adding zero turns -0.0 into 0.0.
        Content::Float(number) => Some(number + 0.0),
        Content::Int(Some(number)) => {
            i64::try_from(*number).ok().filter(|number| (-EXACT..=EXACT).contains(number)).map(Value::Int)?.as_float()
        }
        _ => None,
    }
}

fn text_fault(text: &str, max: usize, lines: bool) -> Option<String> {
    if text.chars().any(|c| c.is_control() && !(lines && matches!(c, '\n' | '\r' | '\t'))) {
        Some("holds a control character".to_owned())
    } else if text.chars().count() > max {
        Some(format!("has {} characters", text.chars().count()))
    } else if text.trim().is_empty() && !lines {
        Some("is empty".to_owned())
    } else {
        None
    }
}

/// Whether the word is a valid name for a program's model or data.
fn is_name(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= 200
        && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte))
}

/// Returns the message for an unknown key with a suggestion, and the dotted name of the suggested key if there is one.
pub(super) fn unknown_key(path: &str) -> (String, Option<&'static str>) {
    let writable = || FIELDS.iter().filter(|field| field.is_writable() && field.key != "params.*");
    let (section, leaf) = path.split_once('.').unwrap_or(("", path));
    let known_section = section.is_empty() || sections().contains(&section);
    let siblings = || {
        writable()
            .filter(move |field| field.section() == section)
            .map(|field| field.key.rsplit('.').next().unwrap_or(""))
    };
    // `repeats` is a key as well, so it is not suggested as a table.
    let tables: Vec<&str> = sections().into_iter().filter(|table| *table != "repeats").collect();
    let here = if known_section { nearest(leaf, siblings()) } else { None };
    let elsewhere = writable().find(|field| !leaf.is_empty() && field.key.rsplit('.').next() == Some(leaf));
    let table = if section.is_empty() { nearest(leaf, tables.iter().copied()) } else { None };
    let by_table = if known_section { None } else { nearest(section, tables.iter().copied()) };

    let meant = if let Some(here) = here {
        let key = writable()
            .find(|field| field.section() == section && field.key.rsplit('.').next() == Some(here))
            .map(|field| field.key);
        return (format!("unknown key `{}` (did you mean `{here}`?)", shown(path)), key);
    } else if let Some(elsewhere) = elsewhere {
        return (format!("unknown key `{}` (did you mean `{}`?)", shown(path), elsewhere.key), Some(elsewhere.key));
    } else if let Some(table) = table.or(by_table) {
        format!("did you mean the table `[{table}]`?")
    } else if section.is_empty() || !known_section {
        let keys: Vec<_> = writable().filter(|field| field.section().is_empty()).map(|field| field.key).collect();
        let tables: Vec<_> = tables.iter().map(|table| format!("[{table}]")).collect();
        format!("known keys: {}, {}", keys.join(", "), tables.join(", "))
    } else {
        format!("known keys: {}", siblings().collect::<Vec<_>>().join(", "))
    };
    (format!("unknown key `{}` ({meant})", shown(path)), None)
}
