//! Colours for text on a terminal.

use anstyle::{AnsiColor, Style};
use std::fmt::Write;

/// Outcomes and marks of attempts, with their colours.
const WORDS: [(&str, AnsiColor); 7] = [
    ("finished", AnsiColor::Green),
    ("running", AnsiColor::Cyan),
    ("failed", AnsiColor::Red),
    ("damaged", AnsiColor::Red),
    ("interrupted", AnsiColor::Yellow),
    ("tainted", AnsiColor::Yellow),
    ("invalid", AnsiColor::Yellow),
];

/// Prefixes of messages, with their colours.
const BEGINNINGS: [(&str, AnsiColor); 3] =
    [("error:", AnsiColor::Red), ("warning:", AnsiColor::Yellow), ("note:", AnsiColor::Cyan)];

/// Colours text if enabled. The input must not contain escape sequences.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    /// Whether colours are enabled.
    pub is_on: bool,
}

impl Paint {
    /// Colours a command's output: bold table heads, and outcomes in their colours.
    pub fn answer(self, text: &str, heads: &[String]) -> String {
        if !self.is_on {
            return text.to_owned();
        }
        let mut painted = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            if heads.iter().any(|head| head == line.trim_end_matches('\n')) {
                in_style(&mut painted, Style::new().bold(), line);
            } else {
                line.split_inclusive([' ', ',', '\n']).for_each(|piece| word(&mut painted, piece));
            }
        }
        painted
    }

    /// Colours a message for standard error.
    pub fn message(self, text: &str) -> String {
        let begins = BEGINNINGS.iter().find(|(beginning, _)| text.starts_with(beginning)).filter(|_| self.is_on);
        let Some((beginning, color)) = begins else { return text.to_owned() };
        let mut painted = String::with_capacity(text.len() + 16);
        in_style(&mut painted, color.on_default().bold(), beginning);
        painted + &text[beginning.len()..]
    }
}

fn word(painted: &mut String, piece: &str) {
    let word = piece.trim_end_matches([' ', ',', '\n']);
    match WORDS.iter().find(|(known, _)| *known == word) {
        Some((_, color)) => in_style(painted, color.on_default(), piece),
        None => painted.push_str(piece),
    }
}

/// Appends a text in a style, and its trailing separators without the style.
fn in_style(painted: &mut String, style: Style, text: &str) {
    let inside = text.trim_end_matches([' ', ',', '\n']);
    let _ = write!(painted, "{style}{inside}{style:#}{}", &text[inside.len()..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_bold_and_outcomes_have_colours() {
        let on = Paint { is_on: true };
        let text = "RUN  OUTCOME\na1   finished, tainted\nb2   failed\nunfailed  RUN\n";
        let painted = on.answer(text, &["RUN  OUTCOME".to_owned()]);
        assert_eq!(
            painted,
            "\u{1b}[1mRUN  OUTCOME\u{1b}[0m\n\
             a1   \u{1b}[32mfinished\u{1b}[0m, \u{1b}[33mtainted\u{1b}[0m\n\
             b2   \u{1b}[31mfailed\u{1b}[0m\n\
             unfailed  RUN\n"
        );
        assert_eq!(Paint { is_on: false }.answer(text, &["RUN  OUTCOME".to_owned()]), text);
    }

    #[test]
    fn message_prefixes_have_the_colour_of_their_kind() {
        let on = Paint { is_on: true };
        assert_eq!(on.message("warning: w\n"), "\u{1b}[1m\u{1b}[33mwarning:\u{1b}[0m w\n");
        assert_eq!(on.message("sealed 1\n"), "sealed 1\n");
        assert_eq!(Paint { is_on: false }.message("error: e\n"), "error: e\n");
    }
}
