//! What is wrong with a manifest, and where.

use std::collections::BTreeSet;
use std::fmt;
use std::iter::Peekable;
use std::path::PathBuf;
use std::str::CharIndices;

/// One thing that is wrong with a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file, as it was named.
    pub origin: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What was found, what is allowed, how to mend it.
    pub message: String,
}

/// Shows `origin:line:column: message`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.origin, self.line, self.column, self.message)
    }
}

/// Why there is no manifest to work with.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// There is no such file.
    #[error("there is no manifest `{}` (check the path; manifests are TOML files)", path.display())]
    Missing {
        /// The path, as it was given.
        path: PathBuf,
    },
    /// The path names a directory.
    #[error("`{}` is a directory (name a manifest file in it)", path.display())]
    Directory {
        /// The path, as it was given.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("the manifest `{}` cannot be read (check its permissions)", path.display())]
    Unreadable {
        /// The path, as it was given.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The text is longer than any manifest.
    #[error("`{origin}` is longer than {max} bytes (a manifest is a short TOML file)")]
    TooLarge {
        /// The file, as it was named.
        origin: String,
        /// The greatest length in bytes.
        max: usize,
    },
    /// The profile of a site cannot be read.
    #[error("the site's profile `{}` cannot be read (docs/slurm.md says what it holds)", path.display())]
    Site {
        /// Where it was looked for.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The contents are wrong: every fault that was found, in the order of their places.
    #[error("{}", lines(faults))]
    Invalid {
        /// The faults; never empty.
        faults: Vec<Fault>,
    },
}

impl ManifestError {
    /// The faults in the contents; empty if the file could not even be read.
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

/// Faults by byte offset while they are collected; the same fault at the same place is kept once.
#[derive(Debug, Default)]
pub struct Faults {
    found: BTreeSet<(usize, String)>,
}

impl Faults {
    /// Takes a fault at a byte of the text.
    pub fn add(&mut self, offset: usize, message: impl Into<String>) {
        self.found.insert((offset, message.into()));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Gives every fault its line and column in one walk over the text.
    pub fn placed(self, origin: &str, text: &str) -> Vec<Fault> {
        let mut walk = Walk::over(text);
        let fault = |(offset, message)| {
            let (line, column) = walk.to(offset);
            Fault { origin: origin.to_owned(), line, column, message }
        };
        self.found.into_iter().map(fault).collect()
    }
}

/// Lines and columns of ascending offsets, in one walk over the text.
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

    /// Line and column of a byte that is not before the last one.
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

/// Text from outside, made fit for a message: shortened, control characters escaped.
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

/// The known word that was probably meant: one that is spelled alike, or whose initials these are, such as `lr`.
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
    fn nearest_finds_slips_and_nothing_far() {
        assert_eq!(nearest("optimiser", ["optimizer", "schedule"]), Some("optimizer"));
        assert_eq!(nearest("Batch_Size", ["batch_size"]), Some("batch_size"));
        assert_eq!(nearest("lr", ["learning_rate", "precision"]), Some("learning_rate"));
        assert_eq!(nearest("colour", ["optimizer", "schedule"]), None);
    }
}
