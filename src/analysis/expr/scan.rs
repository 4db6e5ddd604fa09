//! An expression's text as tokens with their places.

use super::ExprError;
use std::ops::Range;

/// The tokens of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Word(String),
    /// A name between backquotes, which is neither text nor a keyword.
    Name(String),
    Text(String),
    Int(i128),
    Real(f64),
    /// One of `== != < <= > >= ( ) [ ] ,`.
    Sign(&'static str),
}

/// Signs, each after longer ones that begin with it.
const SIGNS: [&str; 11] = ["==", "!=", "<=", ">=", "<", ">", "(", ")", "[", "]", ","];
/// Operators of other languages, with their equivalents here.
const FOREIGN: [(&str, &str); 4] = [("&&", "and"), ("||", "or"), ("!", "not"), ("=", "==")];

/// Splits the text; the places are byte ranges.
pub(super) fn scan(text: &str) -> Result<Vec<(Token, Range<usize>)>, ExprError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = &text[at..];
        let (token, len) = if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        } else if c == '"' || c == '\'' {
            let Some(end) = rest[1..].find(c) else {
                return Err(ExprError::new(text, at..text.len(), format!("this text is not closed (end it with {c})")));
            };
            (Token::Text(rest[1..=end].to_owned()), end + 2)
        } else if c == '`' {
            let Some(end) = rest[1..].find('`') else {
                return Err(ExprError::new(text, at..text.len(), "this name is not closed (end it with `)"));
            };
            (Token::Name(rest[1..=end].to_owned()), end + 2)
        } else if starts_number(rest) {
            number(text, at)?
        } else if c.is_alphabetic() || c == '_' {
            let len = rest.find(|c: char| !(c.is_alphanumeric() || "_.-/@".contains(c))).unwrap_or(rest.len());
            word(&rest[..len])
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            (Token::Sign(sign), sign.len())
        } else if let Some((foreign, ours)) = FOREIGN.into_iter().find(|(foreign, _)| rest.starts_with(foreign)) {
            let place = at..at + foreign.len();
            return Err(ExprError::new(text, place, format!("`{foreign}` is not known here (write `{ours}`)")));
        } else {
            let shown = c.escape_debug();
            return Err(ExprError::new(
                text,
                at..at + c.len_utf8(),
                format!("`{shown}` is not known here (remove it)"),
            ));
        };
        tokens.push((token, at..at + len));
        at += len;
    }
    Ok(tokens)
}

fn word(word: &str) -> (Token, usize) {
    let token = match word {
        "inf" | "Infinity" => Token::Real(f64::INFINITY),
        "nan" | "NaN" => Token::Real(f64::NAN),
        _ => Token::Word(word.to_owned()),
    };
    (token, word.len())
}

fn starts_number(rest: &str) -> bool {
    let unsigned = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    let after_point = unsigned.strip_prefix('.').unwrap_or(unsigned);
    after_point.starts_with(|c: char| c.is_ascii_digit()) || unsigned.len() < rest.len() && is_inf(unsigned)
}

fn is_inf(rest: &str) -> bool {
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    ["inf", "Infinity"].contains(&&rest[..end])
}

fn number(text: &str, at: usize) -> Result<(Token, usize), ExprError> {
    let rest = &text[at..];
    let mut before = '0';
    let end = rest.char_indices().find(|(place, c)| {
        let sign = (*c == '-' || *c == '+') && (*place == 0 || before == 'e' || before == 'E');
        before = *c;
        !(sign || c.is_alphanumeric() || *c == '.' || *c == '_')
    });
    let len = end.map_or(rest.len(), |(place, _)| place);
    let digits = rest[..len].replace('_', "");
    let token = match (digits.parse::<i128>(), digits.parse::<f64>()) {
        (Ok(whole), _) => Token::Int(whole),
        (Err(_), Ok(real)) => Token::Real(real),
        _ => {
            let place = at..at + len;
            return Err(ExprError::new(text, place, "this is not a number (put text in quotes)"));
        }
    };
    Ok((token, len))
}
