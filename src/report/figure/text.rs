//! Text in pictures and pages: escaped, cut, and how wide it is.

use crate::record::is_invisible;

/// Text in one line without what XML cannot hold, and without what turns or hides the text behind it.
fn clean(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|c| match c {
        '\n' | '\r' | '\t' => ' ',
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        c if is_invisible(c) => '\u{fffd}',
        c => c,
    })
}

/// Text as XML and HTML have it between tags and within double quotes, in one line.
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

/// Text in one line without what XML cannot hold, cut where it is too long.
pub(crate) fn plain(text: &str, longest: usize) -> String {
    let mut plain: String = clean(text).take(longest).collect();
    if text.chars().nth(longest).is_some() {
        plain.pop();
        plain.push('…');
    }
    plain
}

/// The width of a text in ems of DejaVu Sans, about: other fonts of this kind are narrower.
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

/// As much of a text as so many ems hold.
pub(crate) fn fitted(text: &str, ems: f64) -> String {
    if width(text) <= ems {
        return plain(text, usize::MAX);
    }
    // One more than are shown, whose place the ellipsis has.
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

/// Text broken into lines of at most so many ems, between words where there are any.
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
    fn a_text_is_as_long_as_its_room_however_long_it_is() {
        // Taking it apart letter by letter took hours.
        let cut = fitted(&"x".repeat(1_000_000), 30.0);
        assert!(cut.ends_with('…') && width(&cut) <= 30.0 && width(&cut) > 29.0, "{cut}");
        assert_eq!((fitted("short", 30.0).as_str(), fitted("shorter", 0.1).as_str()), ("short", "…"));
    }
}
