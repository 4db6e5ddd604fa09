//! Characters that are never shown literally, because they change the display of the text around them.

/// Whether a character controls a terminal, changes the direction of text, is an invisible line separator, or has no width.
///
/// These are C0 and C1 controls, direction marks and overrides, line and paragraph separators, joiners, soft hyphens, annotations and tags.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_marks_of_direction_and_characters_without_width_are_invisible() {
        let invisible = "\u{1b}\u{7}\u{7f}\u{9b}\u{9d}\u{61c}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0041}";
        assert!(invisible.chars().all(is_invisible));
        assert!("aé温度 µΩ→±–\u{301}😀".chars().all(|c| !is_invisible(c)));
    }
}
