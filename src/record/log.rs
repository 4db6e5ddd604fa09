//! The entries of the ledger's log: one for each change, chained by hashes.

use super::{AttemptId, Digest, RunId, Table, Value};

/// The target of a tag, a note or a hiding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A run with all its attempts.
    Run(RunId),
    /// One attempt.
    Attempt(AttemptId),
}

impl Target {
    /// The digest of the id.
    pub fn digest(self) -> Digest {
        match self {
            Self::Run(id) => id.0,
            Self::Attempt(id) => id.0,
        }
    }

    fn to_value(self) -> Value {
        let kind = match self {
            Self::Run(_) => "run",
            Self::Attempt(_) => "attempt",
        };
        Value::Table([(kind.to_owned(), self.digest().to_hex().into())].into())
    }
}

/// Why a text cannot be a tag; `None` if it can.
pub fn tag_fault(name: &str) -> Option<&'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let like_an_id = name.len() >= 4 && name.chars().all(|c| c.is_ascii_hexdigit());
    if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
        Some("has other characters than letters, digits, `.`, `_` and `-`, or is longer than 64")
    } else if like_an_id {
        Some("may be mistaken for an id's prefix (add a letter beyond f)")
    } else if name.starts_with("latest") {
        Some("has a meaning of its own")
    } else {
        None
    }
}

/// One change to the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An attempt that was executed in this ledger was sealed.
    Sealed(AttemptId),
    /// An attempt was imported from another ledger.
    Imported(AttemptId),
    /// A name was given. The last one is valid.
    Tagged {
        /// The name.
        name: String,
        /// The target of the name.
        target: Target,
    },
    /// A name was removed.
    Untagged {
        /// The name.
        name: String,
    },
    /// A note was written.
    Noted {
        /// The target of the note.
        target: Target,
        /// The note.
        text: String,
    },
    /// A target was removed from listings and answers; it stays in the ledger.
    Hidden(Target),
    /// A target was restored to listings and answers.
    Unhidden(Target),
    /// A rerun was compared with the attempt that it repeats.
    Verdict {
        /// The attempt that was repeated.
        original: AttemptId,
        /// The repetition.
        rerun: AttemptId,
        /// `identical`, `equivalent`, `drifted` or `failed`.
        verdict: String,
        /// The first difference; empty if there is none.
        detail: String,
    },
}

/// A change with its time, by the host's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Milliseconds since the Unix epoch.
    pub unix_ms: i64,
    /// The change.
    pub change: Change,
}

impl LogEntry {
    /// The hash of the entry as a value.
    pub fn digest(&self) -> Digest {
        let (kind, detail) = match &self.change {
            Change::Sealed(id) => ("sealed", Value::from(id.to_string())),
            Change::Imported(id) => ("imported", id.to_string().into()),
            Change::Tagged { name, target } => ("tagged", Value::List(vec![name.as_str().into(), target.to_value()])),
            Change::Untagged { name } => ("untagged", name.as_str().into()),
            Change::Noted { target, text } => ("noted", Value::List(vec![target.to_value(), text.as_str().into()])),
            Change::Hidden(target) => ("hidden", target.to_value()),
            Change::Unhidden(target) => ("unhidden", target.to_value()),
            Change::Verdict { original, rerun, verdict, detail } => {
                ("verdict", vec![original.to_string(), rerun.to_string(), verdict.clone(), detail.clone()].into())
            }
        };
        let table: Table = [
            ("unix_ms".to_owned(), self.unix_ms.into()),
            ("kind".to_owned(), kind.into()),
            ("detail".to_owned(), detail),
        ]
        .into();
        Value::Table(table).digest()
    }

    /// The head of the log after this entry: the hash of the previous head and the entry's digest, each with its
    /// length, in its own domain.
    pub fn chain(&self, head: Digest) -> Digest {
        Digest::of_pieces("ledger log v1", &[&head.0, &self.digest().0])
    }
}

/// A rerun's verdict in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// The time, in milliseconds since the Unix epoch.
    pub unix_ms: i64,
    /// The attempt that was repeated.
    pub original: AttemptId,
    /// The repetition.
    pub rerun: AttemptId,
    /// `identical`, `equivalent`, `drifted` or `failed`.
    pub verdict: String,
    /// The first difference; empty if there is none.
    pub detail: String,
}

/// The entries about an attempt in the log, besides its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Whether it was not executed for this ledger on this machine, but imported, unpacked, merged or collected.
    pub is_imported: bool,
    /// The verdicts in which it is the original or the rerun, the oldest first.
    pub verdicts: Vec<Repeated>,
}

impl Origin {
    /// The newest verdict of the attempt as a rerun.
    pub fn as_rerun(&self, id: AttemptId) -> Option<&Repeated> {
        self.verdicts.iter().rev().find(|repeated| repeated.rerun == id)
    }
}

/// A line of a listing: an attempt without its record.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its run.
    pub run: RunId,
    /// Milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// The time from the worker's start to its end; 0 if it was not measured.
    pub wall_ns: u64,
    /// `finished`, `failed` or `interrupted`.
    pub outcome: String,
    /// The experiment's name.
    pub experiment: String,
    /// The model's name.
    pub model: String,
    /// The values that distinguish runs of one experiment: `adam lr 0.001 batch 64`.
    pub label: String,
    /// The seed.
    pub seed: u64,
    /// Final accuracy, if the attempt has one.
    pub accuracy: Option<f64>,
    /// Final loss, if the attempt has one.
    pub loss: Option<f64>,
}
