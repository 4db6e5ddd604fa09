//! What a worker wrote to its standard output and error, as far as it is kept.

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

/// A part of an output, in the order in which it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Whole lines of one stream.
    Text(Stream, String),
    /// So many bytes are not kept.
    LeftOut(u64),
}

/// The facts of an attempt that speak of its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputFacts {
    /// The digest by which the kept output lies among the sources.
    pub digest: Digest,
    /// Bytes that the worker wrote.
    pub bytes: u64,
    /// Bytes of these that are not kept.
    pub left_out: u64,
}

impl OutputFacts {
    /// The fact that names the kept output.
    pub const DIGEST: &str = "output.digest";
    /// The fact that states how many bytes were written.
    pub const BYTES: &str = "output.bytes";
    /// The fact that states how many of them are not kept; absent if all are.
    pub const LEFT_OUT: &str = "output.left_out";

    /// The facts as they are recorded.
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

    /// The digest of an attempt's output; none if it wrote nothing, or was sealed before outputs were kept.
    pub fn digest_in(facts: &Table) -> Option<Digest> {
        facts.get(Self::DIGEST)?.as_str()?.parse().ok()
    }
}
