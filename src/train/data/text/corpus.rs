//! Text files: reading, checking, and dividing into a part for training and a part for evaluation.
//!
//! Knows nothing of tokens. The content of a file is not changed, except that a byte order mark at its beginning is
//! removed.

use super::TextError;
use crate::number::part;
use ledger_record::is_text;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The maximum length of a text in bytes: counts of pairs of tokens then fit into 32 bits.
pub const MAX_BYTES: u64 = 1 << 30;

/// Reads a file, or the `.txt` files that lie directly in a directory and are not hidden, in the order of their names.
/// Each is one text.
pub fn read(path: &Path) -> Result<Vec<String>, TextError> {
    let fault = |source| TextError::Read { path: path.to_owned(), source };
    let files =
        if fs::metadata(path).map_err(fault)?.is_dir() { list(path).map_err(fault)? } else { vec![path.to_owned()] };
    if files.is_empty() {
        return Err(TextError::NoFiles { dir: path.to_owned() });
    }
    let mut left = MAX_BYTES;
    files
        .iter()
        .map(|file| {
            let text = read_one(file, left)?;
            left = left.saturating_sub(u64::try_from(text.len()).unwrap_or(u64::MAX));
            Ok(text)
        })
        .collect()
}

fn list(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        if is_text(&entry.file_name()) && path.is_file() {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Reads a file of at most `limit` bytes.
fn read_one(path: &Path, limit: u64) -> Result<String, TextError> {
    let mut bytes = Vec::new();
    let fault = |source| TextError::Read { path: path.to_owned(), source };
    File::open(path).map_err(fault)?.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(fault)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit {
        return Err(TextError::TooLong { path: path.to_owned() });
    }
    let text = String::from_utf8(bytes)
        .map_err(|fault| TextError::Utf8 { path: path.to_owned(), offset: fault.utf8_error().valid_up_to() })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Divides the texts, in order, into a part for training and the rest, which has about the fraction `held` of all
/// bytes.
///
/// The cut is after the first line end in the rest's first half, or after the first white space there. If there is
/// neither, it is between two characters.
pub fn divide(texts: &[String], held: f64) -> (Vec<&str>, Vec<&str>) {
    let total: usize = texts.iter().map(String::len).sum();
    let mut ahead = total - part(total, held).min(total);
    let (mut train, mut eval) = (Vec::new(), Vec::new());
    for text in texts {
        let at = if ahead >= text.len() { text.len() } else { place(text, ahead) };
        ahead = ahead.saturating_sub(text.len());
        let (before, after) = text.split_at(at);
        train.extend((!before.is_empty()).then_some(before));
        eval.extend((!after.is_empty()).then_some(after));
    }
    (train, eval)
}

/// Returns the position of the cut in a text that should be cut at `wanted`.
fn place(text: &str, wanted: usize) -> usize {
    let rest = &text[text.floor_char_boundary(wanted.saturating_sub(1))..];
    let near = &rest[..rest.floor_char_boundary(rest.len() / 2)];
    let start = text.len() - rest.len();
    if start == 0 {
        return 0;
    }
    let end = near.find('\n').or_else(|| near.find(char::is_whitespace));
    start + end.map_or(0, |end| near[end..].chars().next().map_or(0, |space| end + space.len_utf8()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_directory_is_read_in_the_order_of_names() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in [("b.txt", "two"), ("a.txt", "\u{feff}one"), ("c.md", "not this"), ("d", "nor this")] {
            fs::write(dir.path().join(name), text).expect("written");
        }
        fs::create_dir(dir.path().join("e.txt")).expect("made");
        assert_eq!(read(dir.path()).expect("valid"), texts(&["one", "two"]));
        assert_eq!(read(&dir.path().join("c.md")).expect("valid"), texts(&["not this"]));
    }

    /// Runs are identified by the files that are read; another crate lists them for the id.
    #[test]
    fn exactly_the_files_in_the_id_are_read() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(dir.path().join("below/deep.txt")).expect("made");
        let names =
            ["b.txt", "a.txt", ".b.txt", "._a.txt", ".txt", "B.TXT", "c.md", "below/d.txt", "below/deep.txt/e.txt"];
        for name in names {
            fs::write(dir.path().join(name), name).expect("written");
        }
        std::os::unix::fs::symlink(dir.path().join("c.md"), dir.path().join("z.txt")).expect("linked");
        let identity = ledger_host::files::texts(dir.path()).expect("listed");
        let paths: Vec<PathBuf> = identity.into_iter().map(|(_, path)| path).collect();
        assert_eq!(list(dir.path()).expect("listed"), paths);
        assert_eq!(read(dir.path()).expect("valid"), texts(&["a.txt", "b.txt", "c.md"]));
    }

    #[test]
    fn faults_name_the_file_and_the_place() {
        let dir = tempfile::tempdir().expect("a directory");
        let shown = |fault: TextError| fault.to_string().replace(&dir.path().display().to_string(), "dir");
        assert_eq!(
            shown(read(dir.path()).expect_err("empty")),
            "`dir` has no files whose names end in `.txt` (`data.path` must be a text file or a directory with some)"
        );
        let file = dir.path().join("x.txt");
        assert_eq!(shown(read(&file).expect_err("absent")), "`dir/x.txt` cannot be read");
        fs::write(&file, b"gr\xc3\xbcn \xe9t\xe9").expect("written");
        assert_eq!(
            shown(read(dir.path()).expect_err("Latin-1")),
            "`dir/x.txt` is not UTF-8 at byte 6, counting from 0 (convert it)"
        );
        assert_eq!(
            shown(read_one(&file, 8).expect_err("9 bytes")),
            "`dir/x.txt` makes the text longer than 1 GiB (take less of it)"
        );
        assert!(matches!(read_one(&file, 9), Err(TextError::Utf8 { .. })));
    }

    #[test]
    fn the_cut_is_after_a_line_or_a_word() {
        let lines = "one one\ntwo two\nthree three\nfour four\nfive five\n".to_owned();
        assert_eq!(divide(&[lines], 0.5), (vec!["one one\ntwo two\nthree three\n"], vec!["four four\nfive five\n"]));
        let words = "one two three four five six".to_owned();
        assert_eq!(divide(&[words], 0.5), (vec!["one two three "], vec!["four five six"]));
        let none = "äöüäöüäöü".to_owned();
        assert_eq!(divide(&[none], 0.5), (vec!["äöüä"], vec!["öüäöü"]));
    }

    #[test]
    fn files_before_the_cut_are_for_training_and_files_behind_it_are_not() {
        let texts = texts(&["aaaa aaaa ", "bbbb bbbb bbbb bbbb ", "cccc cccc "]);
        assert_eq!(divide(&texts, 0.5), (vec!["aaaa aaaa ", "bbbb bbbb "], vec!["bbbb bbbb ", "cccc cccc "]));
        assert_eq!(divide(&texts, 0.25), (vec!["aaaa aaaa ", "bbbb bbbb bbbb bbbb "], vec!["cccc cccc "]));
        assert_eq!(divide(&texts, 0.0).1, Vec::<&str>::new());
        assert_eq!(divide(&texts, 1.0).0, Vec::<&str>::new());
    }

    proptest! {
        #[test]
        fn every_byte_goes_to_one_part(texts: Vec<String>, held in 0.0..1.0) {
            let (train, eval) = divide(&texts, held);
            prop_assert_eq!([train.concat(), eval.concat()].concat(), texts.concat());
        }
    }
}
