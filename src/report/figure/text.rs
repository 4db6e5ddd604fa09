//! Text in plots and pages: escaping, truncation and width.

use crate::record::is_invisible;

/// Replaces line breaks by spaces, and characters that XML cannot contain or that hide or reorder text by `\u{fffd}`.
fn clean(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|c| match c {
        '\n' | '\r' | '\t' => ' ',
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        c if is_invisible(c) => '\u{fffd}',
        c => c,
    })
}

/// Escapes text for XML and HTML, between tags and within double quotes, in one line.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for c in clean(text) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// Returns text in one line without characters that XML cannot contain, truncated to `longest` characters.
pub(crate) fn plain(text: &str, longest: usize) -> String {
    let mut plain: String = clean(text).take(longest).collect();
    if text.chars().nth(longest).is_some() {
        plain.pop();
        plain.push('…');
    }
    plain
}

/// Returns the approximate width of a text in ems of DejaVu Sans; the other fonts of the family list are narrower.
pub(crate) fn width(text: &str) -> f64 {
    let of = |c: char| match c {
        'i' | 'j' | 'l' | 'I' | '\'' | '.' | ',' | ':' | ';' | '|' | ' ' => 0.31,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '/' => 0.40,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '±' | '×' | '→' | '←' | '↑' | '↓' | '–' => 0.92,
        'A'..='Z' => 0.70,
        _ => 0.63,
    };
    text.chars().map(of).sum()
}

/// Truncates a text to a width in ems.
pub(crate) fn fitted(text: &str, ems: f64) -> String {
    if width(text) <= ems {
        return plain(text, usize::MAX);
    }
    // Starts at one, because the last character is replaced by the ellipsis.
    let (mut used, mut longest) = (width("…"), 1);
    for c in clean(text) {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > ems {
            break;
        }
        longest += 1;
    }
    plain(text, longest)
}

/// Breaks text between words into lines of at most `ems`.
pub(crate) fn broken(text: &str, ems: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + width(" ") + width(word) <= ems => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fitted(word, ems)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_truncated_to_its_width() {
        // A quadratic implementation took hours for such a text.
        let cut = fitted(&"x".repeat(1_000_000), 30.0);
        assert!(cut.ends_with('…') && width(&cut) <= 30.0 && width(&cut) > 29.0, "{cut}");
        assert_eq!((fitted("short", 30.0).as_str(), fitted("shorter", 0.1).as_str()), ("short", "…"));
    }
}
