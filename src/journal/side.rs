//! Two files beside a journal, written in turn, that keep the newest part of a long output in bounded space.
//!
//! Both have the journal's format. The first entry of each is the number of bytes of output before it. It shows a
//! reader which file is newer, and how much output is missing.

use super::{Contents, JournalError, MAGIC, frame, io_error, parse, truncated};
use crate::record::Entry;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The extensions of the two files.
pub(super) const EXTENSIONS: [&str; 2] = ["output0", "output1"];
/// The name of the fact that begins a file.
const BEFORE: &str = "output.before";

/// Writes the two files of a journal.
#[derive(Debug)]
pub struct Side {
    journal: PathBuf,
    turns: usize,
    file: Option<File>,
}

impl Side {
    /// The side files of a journal. Creates none yet.
    pub fn of(journal: &Path) -> Self {
        Self { journal: journal.to_owned(), turns: 0, file: None }
    }

    /// Truncates the older file and continues there. `before` is the number of bytes of output so far.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn turn(&mut self, before: u64) -> Result<(), JournalError> {
        let path = self.journal.with_extension(EXTENSIONS[self.turns % 2]);
        self.turns += 1;
        let mut file = truncated(&path).map_err(io_error("create", &path))?;
        let mut bytes = MAGIC.to_vec();
        frame(&Entry::Fact { name: BEFORE.to_owned(), value: before.into() }, &mut bytes)?;
        file.write_all(&bytes).map_err(io_error("write", &path))?;
        self.file = Some(file);
        Ok(())
    }

    /// Whether a file was created.
    pub fn is_begun(&self) -> bool {
        self.file.is_some()
    }

    /// Appends an entry to the newer file, if there is one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn append(&mut self, entry: &Entry) -> Result<(), JournalError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut bytes = Vec::new();
        frame(entry, &mut bytes)?;
        file.write_all(&bytes).map_err(io_error("write", &self.journal))
    }
}

/// Updates the copies of a journal's side files. Both paths are those of journals.
///
/// # Errors
/// If a file cannot be copied.
pub fn copy_side(from: &Path, to: &Path) -> Result<(), JournalError> {
    for extension in EXTENSIONS {
        let (from, to) = (from.with_extension(extension), to.with_extension(extension));
        let written = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
        let Some(changed) = written(&from) else { continue };
        if written(&to).is_none_or(|copied| copied <= changed) {
            std::fs::copy(&from, &to).map_err(io_error("copy", &from))?;
        }
    }
    Ok(())
}

/// The content of one of the two files.
#[derive(Clone, Debug, PartialEq)]
pub struct SidePart {
    /// Bytes of output before this part.
    pub before: u64,
    /// The entries of this part.
    pub entries: Vec<Entry>,
}

/// Reads the side files of a journal, the older one first. Leaves out files that are missing or damaged.
pub fn read_side(journal: &Path) -> Vec<SidePart> {
    let part = |extension: &&str| {
        let Contents { mut entries, .. } = parse(&std::fs::read(journal.with_extension(extension)).ok()?);
        let before = match entries.first()? {
            Entry::Fact { name, value } if name == BEFORE => u64::try_from(value.as_int()?).ok()?,
            _ => return None,
        };
        entries.remove(0);
        Some(SidePart { before, entries })
    };
    let mut parts: Vec<SidePart> = EXTENSIONS.iter().filter_map(part).collect();
    parts.sort_by_key(|part| part.before);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::discard;

    #[test]
    fn side_files_are_read_in_order_copied_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, copy) = (dir.path().join("a.journal"), dir.path().join("7_0-0-a.journal"));
        let mut side = Side::of(&journal);
        assert!(!side.is_begun() && read_side(&journal).is_empty());
        let text = |text: &str| Entry::Stdout(text.to_owned());
        let part = |before, texts: &[&str]| SidePart { before, entries: texts.iter().map(|one| text(one)).collect() };
        for (turn, before) in [10, 20, 30].into_iter().enumerate() {
            side.turn(before).unwrap();
            side.append(&text(&turn.to_string())).unwrap();
            copy_side(&journal, &copy).unwrap();
        }
        side.append(&text("more")).unwrap();
        assert_eq!(read_side(&journal), [part(20, &["1"]), part(30, &["2", "more"])]);
        copy_side(&journal, &copy).unwrap();
        assert_eq!(read_side(&copy), read_side(&journal));
        // An entry that was cut off is left out, and so is a file of another format.
        let newest = journal.with_extension(EXTENSIONS[0]);
        let bytes = std::fs::read(&newest).unwrap();
        std::fs::write(&newest, &bytes[..bytes.len() - 1]).unwrap();
        std::fs::write(journal.with_extension(EXTENSIONS[1]), b"rubbish").unwrap();
        assert_eq!(read_side(&journal), [part(30, &["2"])]);
        discard(&journal).unwrap();
        discard(&copy).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
