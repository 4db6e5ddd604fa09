//! Faults of a manifest with their positions.

use std::collections::BTreeSet;
use std::fmt;
use std::iter::Peekable;
use std::path::PathBuf;
use std::str::CharIndices;

/// A fault of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file, as given by the user.
    pub origin: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The value found, the allowed values, and the fix.
    pub message: String,
}

/// Formats as `origin:line:column: message`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.origin, self.line, self.column, self.message)
    }
}

/// Reasons why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file does not exist.
    #[error("there is no manifest `{}` (check the path; manifests are TOML files)", path.display())]
    Missing {
        /// The path, as given.
        path: PathBuf,
    },
    /// The path is a directory.
    #[error("`{}` is a directory (name a manifest file in it)", path.display())]
    Directory {
        /// The path, as given.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("the manifest `{}` cannot be read (check its permissions)", path.display())]
    Unreadable {
        /// The path, as given.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The text is longer than the limit.
    #[error("`{origin}` is longer than {max} bytes (a manifest is a short TOML file)")]
    TooLarge {
        /// The file, as given by the user.
        origin: String,
        /// Greatest length in bytes.
        max: usize,
    },
    /// The profile of a site cannot be read.
    #[error("the site's profile `{}` cannot be read (docs/slurm.md says what it holds)", path.display())]
    Site {
        /// Path of the profile.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The contents are wrong. All faults are listed, sorted by position.
    #[error("{}", lines(faults))]
    Invalid {
        /// The faults; never empty.
        faults: Vec<Fault>,
    },
}

impl ManifestError {
    /// Returns the faults in the contents; empty for other errors.
    pub fn faults(&self) -> &[Fault] {
        match self {
            Self::Invalid { faults } => faults,
            _ => &[],
        }
    }
}

fn lines(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Faults by byte offset while they are collected. Equal faults at one position are merged.
#[derive(Debug, Default)]
pub struct Faults {
    found: BTreeSet<(usize, String)>,
}

impl Faults {
    /// Adds a fault at a byte offset of the text.
    pub fn add(&mut self, offset: usize, message: impl Into<String>) {
        self.found.insert((offset, message.into()));
    }

    /// Whether there are no faults.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the number of faults.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Adds line and column to every fault, in one pass over the text.
    pub fn placed(self, origin: &str, text: &str) -> Vec<Fault> {
        let mut walk = Walk::over(text);
        let fault = |(offset, message)| {
            let (line, column) = walk.to(offset);
            Fault { origin: origin.to_owned(), line, column, message }
        };
        self.found.into_iter().map(fault).collect()
    }
}

/// Converts ascending byte offsets to lines and columns, in one pass over the text.
pub(super) struct Walk<'t> {
    text: &'t str,
    rest: Peekable<CharIndices<'t>>,
    at: usize,
    line: usize,
    column: usize,
}

impl<'t> Walk<'t> {
    pub(super) fn over(text: &'t str) -> Self {
        Self { text, rest: text.char_indices().peekable(), at: 0, line: 1, column: 1 }
    }

    /// Returns line and column of a byte offset, which must not be less than the previous one.
    pub(super) fn to(&mut self, offset: usize) -> (usize, usize) {
        while self.at < offset {
            let Some((_, c)) = self.rest.next() else { break };
            if c == '\n' {
                (self.line, self.column) = (self.line + 1, 1);
            } else {
                self.column += 1;
            }
            self.at = self.rest.peek().map_or(self.text.len(), |(next, _)| *next);
        }
        (self.line, self.column)
    }
}

/// Prepares foreign text for a message: truncated, with control characters escaped.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 60;
    let mut out = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == MOST {
            out.push('…');
            break;
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Returns the known word that was probably meant: one with similar spelling or with these initials (`lr`).
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 100 {
        return None;
    }
    let lower = word.to_lowercase();
    let are_initials = |candidate: &str| {
        candidate.contains('_') && candidate.split('_').flat_map(|part| part.chars().next()).eq(lower.chars())
    };
    known
        .into_iter()
        .map(|candidate| {
            let distance = if are_initials(candidate) { 0 } else { strsim::damerau_levenshtein(&lower, candidate) };
            (distance, candidate)
        })
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1) && *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        let mut faults = Faults::default();
        let text = "é = 1\nüü = x\r\nend";
        faults.add(text.find('x').unwrap(), "first");
        faults.add(text.find("end").unwrap(), "second");
        faults.add(usize::MAX, "last");
        let placed: Vec<_> = faults.placed("m", text).iter().map(ToString::to_string).collect();
        assert_eq!(placed, ["m:2:6: first", "m:3:1: second", "m:3:4: last"]);
    }

    #[test]
    fn nearest_finds_similar_words_only() {
        assert_eq!(nearest("optimiser", ["optimizer", "schedule"]), Some("optimizer"));
        assert_eq!(nearest("Batch_Size", ["batch_size"]), Some("batch_size"));
        assert_eq!(nearest("lr", ["learning_rate", "precision"]), Some("learning_rate"));
        assert_eq!(nearest("colour", ["optimizer", "schedule"]), None);
    }
}
