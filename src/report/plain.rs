//! Makes text of records safe for a terminal: no record may change how other output is read.

use crate::record::is_invisible;
use std::io::{self, Write};

/// Returns text in one line, with control and invisible characters escaped.
pub fn plain(text: &str) -> String {
    written_out(text, |_| false)
}

/// Returns text of several lines, with all control characters escaped except line feed and tab.
pub fn plain_lines(text: &str) -> String {
    written_out(text, |c| matches!(c, '\n' | '\t'))
}

fn written_out(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) && !stays(c) { clean.extend(c.escape_unicode()) } else { clean.push(c) }
    }
    clean
}

/// Writes text as [`plain_lines`] does, regardless of how it is split into writes. Invalid UTF-8 becomes `\u{fffd}`.
pub struct PlainWriter<W> {
    out: W,
    /// The first bytes of a character that is not complete yet.
    begun: Vec<u8>,
}

impl<W: Write> PlainWriter<W> {
    /// Creates a writer.
    pub fn new(out: W) -> Self {
        Self { out, begun: Vec::new() }
    }
}

impl<W: Write> Write for PlainWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = self.begun.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(whole) => {
                    text.push_str(whole);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (whole, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(whole));
                    rest = after;
                    let Some(wrong) = error.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[wrong..];
                }
            }
        }
        self.begun = rest.to_vec();
        self.out.write_all(plain_lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "rm -rf ~\u{1b}[2K\r\u{9b}1A\u{202e}here\nit is\u{200b} the\u{2028} same\u{61c} run\t µJ → 3";
    const LINES: &str =
        "rm -rf ~\\u{1b}[2K\\u{d}\\u{9b}1A\\u{202e}here\nit is\\u{200b} the\\u{2028} same\\u{61c} run\t µJ → 3";

    #[test]
    fn text_of_a_record_cannot_move_the_cursor() {
        assert_eq!(plain(HOSTILE), LINES.replace('\n', "\\u{a}").replace('\t', "\\u{9}"));
        assert_eq!(plain_lines(HOSTILE), LINES);
        assert_eq!(plain_lines(LINES), LINES);
    }

    #[test]
    fn escaping_does_not_depend_on_how_a_stream_is_split() {
        for size in 1..8 {
            let mut writer = PlainWriter::new(Vec::new());
            HOSTILE.as_bytes().chunks(size).for_each(|piece| writer.write_all(piece).unwrap());
            writer.flush().unwrap();
            assert_eq!(String::from_utf8(writer.out).unwrap(), LINES, "{size}");
        }
        let mut writer = PlainWriter::new(Vec::new());
        writer.write_all(b"a\xff\x9bb").unwrap();
        assert_eq!(String::from_utf8(writer.out).unwrap(), "a\u{fffd}\u{fffd}b");
    }
}
