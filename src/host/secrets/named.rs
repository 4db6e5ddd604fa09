//! Values that are secret by the name before them.
//!
//! A value removed without need costs a reader a line; a recorded secret cannot be taken back. But code must stay code:
//! `password = read()` contains no secret.

use super::super::environment::{REDACTED, SECRET};

/// Words of secret names, besides those for environment variables.
const WORDS: &[&str] = &[
    "ACCOUNTKEY",
    "APIKEY",
    "PWD",
    "SHAREDACCESSKEY",
    "AUTHORIZATION",
    "AUTHTOKEN",
    "ACCESSTOKEN",
    "SECRETKEY",
    "PRIVATEKEY",
    "CLIENTSECRET",
];
/// Words that have other meanings in programs: a key of a table, a token of a text.
const AMBIGUOUS: &[&str] = &["KEY", "TOKEN", "AUTH", "COOKIE"];
/// Words before an ambiguous word that make it a secret's name.
const TELLING: &[&str] = &["API", "ACCESS", "AUTH", "ENCRYPTION", "PRIVATE", "REFRESH", "SECRET", "SIGNING"];

/// The schemes before the secret in the value of `Authorization`.
const SCHEMES: &[&str] = &["bearer", "basic", "token"];
/// Values and types of programming languages.
const RESERVED: &[&str] = &[
    "bool",
    "boolean",
    "bytes",
    "default",
    "false",
    "integer",
    "none",
    "null",
    "number",
    "optional",
    "required",
    "self",
    "str",
    "string",
    "true",
    "undefined",
    "usize",
];

/// The minimum length of a secret after an unambiguous name.
const SHORTEST: usize = 4;
/// The minimum length after an ambiguous name; below, that of an unquoted word of letters only.
const SHORTEST_AMBIGUOUS: usize = 8;
const SHORTEST_WORD: usize = 12;
/// Longer than any word of a program. Redacting each longer value also avoids scanning it again from every name in it.
const LONGEST_CODE: usize = 1024;

/// The name of a secret.
#[derive(Clone, Copy)]
pub(super) struct Name<'a> {
    text: &'a str,
    /// Whether it hardly has another meaning.
    is_plain: bool,
    /// Whether it is written like an environment variable.
    is_variable: bool,
}

impl<'a> Name<'a> {
    /// Returns the name of a secret at the end of a text, or `None`.
    pub(super) fn at_end_of(text: &'a str) -> Option<Self> {
        let text = text.trim_end_matches([' ', '"', '\'', '\t', ']', '\\', '!']);
        let begin = text.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        let text = begin.map_or(text, |at| text[at..].trim_start_matches(|c: char| !c.is_ascii_alphanumeric()));
        let upper = text.to_ascii_uppercase();
        let words: Vec<&str> = upper.split(['_', '-']).collect();
        let is_known = |word: &&str| SECRET.contains(word) || WORDS.contains(word);
        if !words.iter().any(is_known) {
            return None;
        }
        let is_variable = text == upper;
        let is_told = words.windows(2).any(|pair| TELLING.contains(&pair[0]) && AMBIGUOUS.contains(&pair[1]));
        let is_last = words.last().is_some_and(is_known);
        let is_plain = words.iter().any(|word| is_known(word) && !AMBIGUOUS.contains(word));
        Some(Self { text, is_plain: is_plain || is_told || is_variable && is_last, is_variable })
    }
}

/// Redacts the values in `NAME = value`, `name: "value"` and `name: Type = value`, if the name is that of a secret and
/// the value looks like one.
pub(super) fn without_values(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    // The secret's name, if its type precedes the value.
    let mut typed: Option<Name<'_>> = None;
    while let Some(at) = rest.find(['=', ':']) {
        let is_path = rest[at..].starts_with("::");
        let operator =
            if is_path { 2 } else { rest[at..].find(|c| !matches!(c, '=' | '>' | ':')).unwrap_or(rest.len() - at) };
        let (before, after) = rest.split_at(at + operator);
        let of_type = typed.filter(|_| !before.contains([',', ';', '"', '\'']));
        let name = if is_path { None } else { Name::at_end_of(&before[..at]).or(of_type) };
        clean.push_str(before);
        rest = after;
        typed = name.filter(|_| before.ends_with(':'));
        let is_spaced = before[..at].ends_with(' ');
        if let Some((begin, end)) = name.and_then(|name| secret(name, &before[at..], is_spaced, after)) {
            clean.push_str(&after[..begin]);
            clean.push_str(REDACTED);
            rest = &after[end..];
            typed = None;
        }
    }
    clean.push_str(rest);
    clean
}

/// Returns where a value begins, and its quote.
fn opening(after: &str) -> Option<(usize, Option<char>)> {
    let mut begin = after.find(|c| !matches!(c, ' ' | '\t'))?;
    let rest = &after[begin..];
    // Escaped quotes in a quoted text.
    if rest.starts_with("\\\"") || rest.starts_with("\\'") {
        begin += 1;
    }
    let rest = &after[begin..];
    let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else { return Some((begin, None)) };
    match rest.find(|c| c != quote).unwrap_or(rest.len()) {
        // An empty quoted value.
        2 => None,
        quotes => Some((begin + quotes, Some(quote))),
    }
}

/// Returns the position of the secret in the text after its name, if it looks like one.
fn secret(name: Name<'_>, sign: &str, is_spaced: bool, after: &str) -> Option<(usize, usize)> {
    let (mut begin, quote) = opening(after)?;
    let word = |text: &str| text.find([' ', '\t', ',', ';', '&', '"', '\'', '\n', '\r']).unwrap_or(text.len());
    let scheme = word(&after[begin..]);
    let has_scheme = SCHEMES.iter().any(|known| after[begin..begin + scheme].eq_ignore_ascii_case(known))
        && after[begin + scheme..].starts_with(' ');
    if has_scheme {
        begin += scheme + 1;
    }
    let value = &after[begin..];
    // `PWD` in a shell is a folder, not a password.
    if matches!(name.text, "PWD" | "OLDPWD") && value.starts_with(['/', '~']) {
        return None;
    }
    let end = match quote {
        Some(quote) => value.find(quote).unwrap_or(value.trim_end().len()),
        None => word(value),
    };
    let (value, rest) = value.split_at(end);
    let value = value.strip_suffix('\\').unwrap_or(value);
    let shortest = if name.is_plain || is_mixed(value) { SHORTEST } else { SHORTEST_AMBIGUOUS };
    let found = value.len() >= LONGEST_CODE
        || match quote {
            Some(_) => value.len() >= shortest && !is_reference(value),
            None if is_code(value) => false,
            None if has_scheme => value.len() >= SHORTEST_AMBIGUOUS,
            None => is_word(name, sign, is_spaced, value, rest),
        };
    found.then_some((begin, begin + value.len()))
}

pub(super) fn is_mixed(value: &str) -> bool {
    value.contains(|c: char| c.is_ascii_digit()) && value.contains(|c: char| c.is_ascii_alphabetic())
}

/// Whether a quoted value is only a reference to where the secret is stored.
fn is_reference(value: &str) -> bool {
    let is_braced = value.starts_with("${") || value.starts_with('{');
    is_braced && value.ends_with('}')
}

fn is_code(value: &str) -> bool {
    value.contains(['(', ')', '{', '}', '<', '>', '[', ']', '$']) || value.contains("::")
}

/// Whether it is a decimal number, optionally with an exponent and a unit: `1.2e-05`, `12.5ms`.
fn is_real(value: &str) -> bool {
    let is_number = |text: &str| text.contains('.') && text.parse::<f64>().is_ok();
    is_number(value) || is_number(value.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%'))
}

/// Whether it is a dotted name, such as that of a parameter: `encoder.layer.0.weight`.
fn is_path_of_names(value: &str) -> bool {
    let is_name = |part: &str| {
        let is_word = part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let is_plain = part.len() <= 24 && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_plain && (is_word || !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
    };
    value.matches('.').count() >= 2 && value.split('.').all(is_name)
}

/// Whether an unquoted word is a secret, as in a variable or a settings file, and not code.
fn is_word(name: Name<'_>, sign: &str, is_spaced: bool, value: &str, rest: &str) -> bool {
    let is_reserved = RESERVED.contains(&value.to_ascii_lowercase().as_str());
    let is_type = sign == ":" && rest.trim_start().starts_with('=');
    if is_reserved || is_type || value.eq_ignore_ascii_case(name.text) || is_real(value) {
        return false;
    }
    if !name.is_plain && is_path_of_names(value) {
        return false;
    }
    if is_mixed(value) {
        return value.len() >= if name.is_plain { SHORTEST } else { SHORTEST_AMBIGUOUS };
    }
    let is_last = rest.trim().is_empty() || rest.trim_start().starts_with('#');
    let is_name = value.contains(['_', '.']);
    let is_assigned = sign == "=" && !is_spaced;
    if name.is_plain {
        let is_setting = is_assigned && (name.is_variable || !is_name && !rest.starts_with([',', ';']));
        value.len() >= SHORTEST && (is_setting || is_last && !is_name && matches!(sign, "=" | ":"))
    } else {
        let is_number = !value.contains(|c: char| c.is_ascii_alphabetic());
        value.len() >= SHORTEST_WORD && is_last && !is_name && !is_number
    }
}
