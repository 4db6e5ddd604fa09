//! Journal entries, format 1.

use super::v1::{ExitV1, OutcomeV1, RunV1, ValueV1, WireError, decode, encode};
use crate::record::{Digest, Entry, Event, EventKind, Nonce, Owner, PhaseEdge};
use bincode::{Decode, Encode};

#[derive(Encode, Decode)]
struct OpenedV1 {
    host: String,
    boot_id: String,
    pid: u32,
    start_ticks: u64,
    nonce: [u8; 16],
    run: RunV1,
    settings: ValueV1,
    facts: ValueV1,
    started_unix_ms: i64,
    started_ns: u64,
}

#[derive(Encode, Decode)]
enum KindV1 {
    Plan { steps: u64, epochs: u64, samples_per_step: u64 },
    Phase { name: String, index: u64, start: bool },
    Step { step: u64, duration_ns: Option<u64>, values: Vec<(String, u64)> },
    Metric { name: String, value: u64, unit: String },
    Digest { name: String, digest: [u8; 32] },
    Status { message: String },
    Failure { message: String },
}

#[derive(Encode, Decode)]
enum EntryV1 {
    Opened(Box<OpenedV1>),
    Started { pid: u32 },
    Event { t_ns: u64, rank: u32, kind: KindV1 },
    Rejected { line: String, reason: String },
    Stderr(String),
    Stdout(String),
    Warning(String),
    Ended { outcome: OutcomeV1, exit: Option<ExitV1>, ended_ns: u64, cpu_ns: Option<u64> },
}

/// Encodes one entry.
pub fn encode_entry(entry: &Entry) -> Result<Vec<u8>, WireError> {
    let wire = match entry {
        Entry::Opened { owner, nonce, run, settings, facts, started_unix_ms, started_ns } => {
            EntryV1::Opened(Box::new(OpenedV1 {
                host: owner.host.clone(),
                boot_id: owner.boot_id.clone(),
                pid: owner.pid,
                start_ticks: owner.start_ticks,
                nonce: nonce.0,
                run: RunV1::new(run),
                settings: ValueV1::table(settings),
                facts: ValueV1::table(facts),
                started_unix_ms: *started_unix_ms,
                started_ns: *started_ns,
            }))
        }
        Entry::Started { pid } => EntryV1::Started { pid: *pid },
        Entry::Event(event) => EntryV1::Event { t_ns: event.t_ns, rank: event.rank, kind: kind(&event.kind) },
        Entry::Rejected { line, reason } => EntryV1::Rejected { line: line.clone(), reason: reason.clone() },
        Entry::Stderr(text) => EntryV1::Stderr(text.clone()),
        Entry::Stdout(text) => EntryV1::Stdout(text.clone()),
        Entry::Warning(text) => EntryV1::Warning(text.clone()),
        Entry::Ended { outcome, exit, ended_ns, cpu_ns } => EntryV1::Ended {
            outcome: OutcomeV1::new(outcome),
            exit: exit.map(ExitV1::new),
            ended_ns: *ended_ns,
            cpu_ns: *cpu_ns,
        },
    };
    encode("journal entry", &wire)
}

fn kind(kind: &EventKind) -> KindV1 {
    match kind {
        EventKind::Plan { steps, epochs, samples_per_step } => {
            KindV1::Plan { steps: *steps, epochs: *epochs, samples_per_step: *samples_per_step }
        }
        EventKind::Phase { name, index, edge } => {
            KindV1::Phase { name: name.clone(), index: *index, start: *edge == PhaseEdge::Start }
        }
        EventKind::Step { step, duration_ns, values } => KindV1::Step {
            step: *step,
            duration_ns: *duration_ns,
            values: values.iter().map(|(name, value)| (name.clone(), value.to_bits())).collect(),
        },
        EventKind::Metric { name, value, unit } => {
            KindV1::Metric { name: name.clone(), value: value.to_bits(), unit: unit.clone() }
        }
        EventKind::Digest { name, digest } => KindV1::Digest { name: name.clone(), digest: digest.0 },
        EventKind::Status { message } => KindV1::Status { message: message.clone() },
        EventKind::Failure { message } => KindV1::Failure { message: message.clone() },
    }
}

/// Decodes one entry.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, WireError> {
    Ok(match decode::<EntryV1>("journal entry", bytes)? {
        EntryV1::Opened(opened) => {
            let OpenedV1 { host, boot_id, pid, start_ticks, nonce, run, settings, facts, started_unix_ms, started_ns } =
                *opened;
            Entry::Opened {
                owner: Owner { host, boot_id, pid, start_ticks },
                nonce: Nonce(nonce),
                run: Box::new(run.into_run()?),
                settings: settings.into_table()?,
                facts: facts.into_table()?,
                started_unix_ms,
                started_ns,
            }
        }
        EntryV1::Started { pid } => Entry::Started { pid },
        EntryV1::Event { t_ns, rank, kind } => Entry::Event(Event { t_ns, rank, kind: kind.into_kind() }),
        EntryV1::Rejected { line, reason } => Entry::Rejected { line, reason },
        EntryV1::Stderr(text) => Entry::Stderr(text),
        EntryV1::Stdout(text) => Entry::Stdout(text),
        EntryV1::Warning(text) => Entry::Warning(text),
        EntryV1::Ended { outcome, exit, ended_ns, cpu_ns } => {
            Entry::Ended { outcome: outcome.into_outcome(), exit: exit.map(ExitV1::into_exit), ended_ns, cpu_ns }
        }
    })
}

impl KindV1 {
    fn into_kind(self) -> EventKind {
        match self {
            Self::Plan { steps, epochs, samples_per_step } => EventKind::Plan { steps, epochs, samples_per_step },
            Self::Phase { name, index, start } => {
                EventKind::Phase { name, index, edge: if start { PhaseEdge::Start } else { PhaseEdge::Stop } }
            }
            Self::Step { step, duration_ns, values } => EventKind::Step {
                step,
                duration_ns,
                values: values.into_iter().map(|(name, bits)| (name, f64::from_bits(bits))).collect(),
            },
            Self::Metric { name, value, unit } => EventKind::Metric { name, value: f64::from_bits(value), unit },
            Self::Digest { name, digest } => EventKind::Digest { name, digest: Digest(digest) },
            Self::Status { message } => EventKind::Status { message },
            Self::Failure { message } => EventKind::Failure { message },
        }
    }
}
