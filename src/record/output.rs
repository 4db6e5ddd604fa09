//! The stored output of a worker: standard output and standard error.

use super::{Digest, Table, Value};

/// One of a process's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// `stdout` or `stderr`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// A piece of an output, in the order in which it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Whole lines of one stream.
    Text(Stream, String),
    /// This many bytes are not stored.
    LeftOut(u64),
}

/// The facts about an attempt's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputFacts {
    /// The digest of the stored output among the sources.
    pub digest: Digest,
    /// The number of bytes that the worker wrote.
    pub bytes: u64,
    /// The number of those that are not stored.
    pub left_out: u64,
}

impl OutputFacts {
    /// The fact with the digest of the stored output.
    pub const DIGEST: &str = "output.digest";
    /// The fact with the number of bytes written.
    pub const BYTES: &str = "output.bytes";
    /// The fact with the number of those that are not stored; absent if all are.
    pub const LEFT_OUT: &str = "output.left_out";

    /// The facts in their recorded form.
    pub fn to_facts(self) -> Table {
        let count = |bytes: u64| Value::from(i64::try_from(bytes).unwrap_or(i64::MAX));
        let mut facts = Table::from([
            (Self::DIGEST.to_owned(), self.digest.to_string().into()),
            (Self::BYTES.to_owned(), count(self.bytes)),
        ]);
        if self.left_out > 0 {
            facts.insert(Self::LEFT_OUT.to_owned(), count(self.left_out));
        }
        facts
    }

    /// The digest of an attempt's output; `None` if it wrote nothing, or was sealed before outputs were stored.
    pub fn digest_in(facts: &Table) -> Option<Digest> {
        facts.get(Self::DIGEST)?.as_str()?.parse().ok()
    }
}
