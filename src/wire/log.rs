//! Log entries and listing rows, format 1.

use super::v1::{WireError, decode, encode};
use bincode::{Decode, Encode};
use ledger_record::{AttemptId, Change, Digest, LogEntry, Row, RunId, Target};

#[derive(Encode, Decode)]
enum TargetV1 {
    Run([u8; 32]),
    Attempt([u8; 32]),
}

impl TargetV1 {
    fn new(target: Target) -> Self {
        match target {
            Target::Run(id) => Self::Run(id.0.0),
            Target::Attempt(id) => Self::Attempt(id.0.0),
        }
    }

    fn into_target(self) -> Target {
        match self {
            Self::Run(id) => Target::Run(RunId(Digest(id))),
            Self::Attempt(id) => Target::Attempt(AttemptId(Digest(id))),
        }
    }
}

#[derive(Encode, Decode)]
enum ChangeV1 {
    Sealed([u8; 32]),
    Imported([u8; 32]),
    Tagged(String, TargetV1),
    Untagged(String),
    Noted(TargetV1, String),
    Hidden(TargetV1),
    Unhidden(TargetV1),
    Verdict { original: [u8; 32], rerun: [u8; 32], verdict: String, detail: String },
}

#[derive(Encode, Decode)]
struct LogEntryV1 {
    unix_ms: i64,
    change: ChangeV1,
}

/// Encodes a log entry.
pub fn encode_log_entry(entry: &LogEntry) -> Result<Vec<u8>, WireError> {
    let change = match &entry.change {
        Change::Sealed(id) => ChangeV1::Sealed(id.0.0),
        Change::Imported(id) => ChangeV1::Imported(id.0.0),
        Change::Tagged { name, target } => ChangeV1::Tagged(name.clone(), TargetV1::new(*target)),
        Change::Untagged { name } => ChangeV1::Untagged(name.clone()),
        Change::Noted { target, text } => ChangeV1::Noted(TargetV1::new(*target), text.clone()),
        Change::Hidden(target) => ChangeV1::Hidden(TargetV1::new(*target)),
        Change::Unhidden(target) => ChangeV1::Unhidden(TargetV1::new(*target)),
        Change::Verdict { original, rerun, verdict, detail } => ChangeV1::Verdict {
            original: original.0.0,
            rerun: rerun.0.0,
            verdict: verdict.clone(),
            detail: detail.clone(),
        },
    };
    encode("log entry", &LogEntryV1 { unix_ms: entry.unix_ms, change })
}

/// Decodes a log entry.
pub fn decode_log_entry(bytes: &[u8]) -> Result<LogEntry, WireError> {
    let wire: LogEntryV1 = decode("log entry", bytes)?;
    let attempt = |id| AttemptId(Digest(id));
    let change = match wire.change {
        ChangeV1::Sealed(id) => Change::Sealed(attempt(id)),
        ChangeV1::Imported(id) => Change::Imported(attempt(id)),
        ChangeV1::Tagged(name, target) => Change::Tagged { name, target: target.into_target() },
        ChangeV1::Untagged(name) => Change::Untagged { name },
        ChangeV1::Noted(target, text) => Change::Noted { target: target.into_target(), text },
        ChangeV1::Hidden(target) => Change::Hidden(target.into_target()),
        ChangeV1::Unhidden(target) => Change::Unhidden(target.into_target()),
        ChangeV1::Verdict { original, rerun, verdict, detail } => {
            Change::Verdict { original: attempt(original), rerun: attempt(rerun), verdict, detail }
        }
    };
    Ok(LogEntry { unix_ms: wire.unix_ms, change })
}

#[derive(Encode, Decode)]
struct RowV1 {
    attempt: [u8; 32],
    run: [u8; 32],
    started_unix_ms: i64,
    wall_ns: u64,
    outcome: String,
    experiment: String,
    model: String,
    label: String,
    seed: u64,
    accuracy: Option<u64>,
    loss: Option<u64>,
}

/// Encodes a listing row.
pub fn encode_row(row: &Row) -> Result<Vec<u8>, WireError> {
    let wire = RowV1 {
        attempt: row.attempt.0.0,
        run: row.run.0.0,
        started_unix_ms: row.started_unix_ms,
        wall_ns: row.wall_ns,
        outcome: row.outcome.clone(),
        experiment: row.experiment.clone(),
        model: row.model.clone(),
        label: row.label.clone(),
        seed: row.seed,
        accuracy: row.accuracy.map(f64::to_bits),
        loss: row.loss.map(f64::to_bits),
    };
    encode("listing row", &wire)
}

/// Decodes a listing row.
pub fn decode_row(bytes: &[u8]) -> Result<Row, WireError> {
    let wire: RowV1 = decode("listing row", bytes)?;
    Ok(Row {
        attempt: AttemptId(Digest(wire.attempt)),
        run: RunId(Digest(wire.run)),
        started_unix_ms: wire.started_unix_ms,
        wall_ns: wire.wall_ns,
        outcome: wire.outcome,
        experiment: wire.experiment,
        model: wire.model,
        label: wire.label,
        seed: wire.seed,
        accuracy: wire.accuracy.map(f64::from_bits),
        loss: wire.loss.map(f64::from_bits),
    })
}
