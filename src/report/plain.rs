//! Text of records on its way to a terminal: nothing that a record says may change what a person reads of it.

/// A text on one line, with escape sequences and other control characters written out.
pub fn plain(text: &str) -> String {
    written_out(text, |_| false)
}

/// An answer of many lines, with all other control characters written out but the tab.
pub fn plain_lines(text: &str) -> String {
    written_out(text, |c| matches!(c, '\n' | '\t'))
}

fn written_out(text: &str, stays: impl Fn(char) -> bool) -> String {
    // Those that change the direction of what follows are controls too.
    let is_bidi = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if (c.is_control() || is_bidi(c)) && !stays(c) { clean.extend(c.escape_unicode()) } else { clean.push(c) }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_record_moves_the_cursor() {
        let hostile = "rm -rf ~\u{1b}[2K\r\u{9b}1A\u{202e}here\nit is the same run\t µJ → 3";
        assert_eq!(plain(hostile), r"rm -rf ~\u{1b}[2K\u{d}\u{9b}1A\u{202e}here\u{a}it is the same run\u{9} µJ → 3");
        assert_eq!(plain_lines(hostile), "rm -rf ~\\u{1b}[2K\\u{d}\\u{9b}1A\\u{202e}here\nit is the same run\t µJ → 3");
    }
}
