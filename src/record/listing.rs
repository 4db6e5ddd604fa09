//! Which files of a folder are data, by their names alone.
//!
//! A run is named by the content of its data, and its worker reads them in another process: both go by these rules, so that nothing is
//! learned from that does not enter the run's id.

use std::ffi::OsStr;
use std::path::Path;

/// Endings of pictures, in small letters.
pub const PICTURE_ENDINGS: [&str; 3] = ["jpg", "jpeg", "png"];

/// How many folders may lie in each other below the one in which pictures are looked for: a link that leads upwards has no end.
pub const DEEPEST: usize = 16;

/// Whether a file or folder is left out, as those are that a system or an editor leaves behind.
pub fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// Whether a file is taken for a picture; the ending may be in capitals.
pub fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|own| PICTURE_ENDINGS.iter().any(|ending| own.eq_ignore_ascii_case(ending)))
}

/// Whether a file of a folder is taken for a text.
pub fn is_text(name: &OsStr) -> bool {
    !is_hidden(name) && Path::new(name).extension().is_some_and(|ending| ending == "txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decide() {
        let text = |name: &str| is_text(OsStr::new(name));
        assert!(text("a.txt") && text("a.b.txt"));
        assert!(!text("a.TXT") && !text(".a.txt") && !text("._a.txt") && !text(".txt") && !text("txt"));
        let picture = |name: &str| is_picture(Path::new(name));
        assert!(picture("a.jpg") && picture("b/A.JpEg") && picture("c.PNG"));
        assert!(!picture("a.gif") && !picture("jpg") && !picture("a.jpg/b"));
    }
}
