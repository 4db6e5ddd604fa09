//! What the ledger's log says: one entry for each change, chained by hashes.

use super::{AttemptId, Digest, RunId, Table, Value};

/// What a tag, a note or a hiding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A run with all its attempts.
    Run(RunId),
    /// One attempt.
    Attempt(AttemptId),
}

impl Target {
    /// The digest behind the id.
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

/// What keeps a text from being a tag; none where it can be one.
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
    /// An attempt that was executed here was sealed.
    Sealed(AttemptId),
    /// An attempt came from another ledger.
    Imported(AttemptId),
    /// A name was given. The last one stands.
    Tagged {
        /// The name.
        name: String,
        /// What it names.
        target: Target,
    },
    /// A name was taken back.
    Untagged {
        /// The name.
        name: String,
    },
    /// A note was written.
    Noted {
        /// What it is about.
        target: Target,
        /// The note.
        text: String,
    },
    /// Something was taken out of listings and answers; it stays in the ledger.
    Hidden(Target),
    /// Something was put back into listings and answers.
    Unhidden(Target),
    /// A rerun was compared with the attempt that it repeats.
    Verdict {
        /// The attempt that was repeated.
        original: AttemptId,
        /// The repetition.
        rerun: AttemptId,
        /// `identical`, `equivalent`, `drifted` or `failed`.
        verdict: String,
        /// What differs first; empty if nothing does.
        detail: String,
    },
}

/// A change and when it was made, by the host's clock.
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

    /// The head of the log after this entry: of the previous head and the entry's digest, each with its length, in a domain of its own.
    pub fn chain(&self, head: Digest) -> Digest {
        Digest::of_pieces("ledger log v1", &[&head.0, &self.digest().0])
    }
}

/// What a rerun has shown of an attempt, as the log says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// When, in milliseconds since the Unix epoch.
    pub unix_ms: i64,
    /// The attempt that was repeated.
    pub original: AttemptId,
    /// The repetition.
    pub rerun: AttemptId,
    /// `identical`, `equivalent`, `drifted` or `failed`.
    pub verdict: String,
    /// What differs first; empty if nothing does.
    pub detail: String,
}

/// What the log says of an attempt besides that the ledger holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Whether it was not executed for this ledger on this machine: it was imported, unpacked, merged or collected.
    pub is_imported: bool,
    /// What reruns have shown in which it is the original or the repetition, the oldest first.
    pub verdicts: Vec<Repeated>,
}

impl Origin {
    /// What was shown of the attempt itself, as a repetition; of several the newest.
    pub fn as_rerun(&self, id: AttemptId) -> Option<&Repeated> {
        self.verdicts.iter().rev().find(|repeated| repeated.rerun == id)
    }
}

/// One line of a listing: what an attempt is known by, without its record.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its run.
    pub run: RunId,
    /// Milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// From the worker's start to its end; 0 where nobody measured it.
    pub wall_ns: u64,
    /// `finished`, `failed` or `interrupted`.
    pub outcome: String,
    /// The experiment's name.
    pub experiment: String,
    /// The model's name.
    pub model: String,
    /// What a person tells runs of one experiment apart by: `adam lr 0.001 batch 64`.
    pub label: String,
    /// The seed.
    pub seed: u64,
    /// Final accuracy, if the attempt has one.
    pub accuracy: Option<f64>,
    /// Final loss, if the attempt has one.
    pub loss: Option<f64>,
}
