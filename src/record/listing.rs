//! Rules for which files of a folder are data, by their names only.
//!
//! A run's id includes the content of its data, and its worker reads the data in another process. Both use these rules,
//! so that training uses no data that is not part of the id.

use std::ffi::OsStr;
use std::path::Path;

/// Endings of image files, in lower case.
pub const PICTURE_ENDINGS: [&str; 3] = ["jpg", "jpeg", "png"];

/// The largest depth of folders below the one in which images are searched. It ends loops of links.
pub const DEEPEST: usize = 16;

/// Whether a file or folder is left out, such as files that a system or an editor creates.
pub fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// Whether a file is an image; the ending may be in upper case.
pub fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|own| PICTURE_ENDINGS.iter().any(|ending| own.eq_ignore_ascii_case(ending)))
}

/// Whether a file of a folder is a text.
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
