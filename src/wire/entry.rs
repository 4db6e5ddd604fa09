//! Journal entries, format 1.

use super::v1::{ExitV1, OutcomeV1, RunV1, ValueV1, WireError, decode, encode};
use bincode::{Decode, Encode};
use ledger_record::{Digest, Entry, Event, EventKind, Nonce, Owner, PhaseEdge, Quantity, Reading, Sample, Source};

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
    Fact { name: String, value: ValueV1 },
}

#[derive(Encode, Decode)]
enum SourceV1 {
    Gpu(u32),
    Host,
    Package(u32),
}

/// The quantity (its position in [`Quantity::ALL`]), nanoseconds since the sample's start, and the value's bits.
type ReadingV1 = (u8, u64, u64);

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
    Sample { source: SourceV1, t_ns: u64, cost_ns: u64, readings: Vec<ReadingV1> },
    Unread { source: SourceV1, quantity: u8, reason: String },
    Fact { name: String, value: ValueV1 },
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
        Entry::Sample(sample) => EntryV1::Sample {
            source: source(sample.source),
            t_ns: sample.t_ns,
            cost_ns: sample.cost_ns,
            readings: sample
                .readings
                .iter()
                .map(|r| (code(r.quantity), r.t_ns.wrapping_sub(sample.t_ns), r.value.to_bits()))
                .collect(),
        },
        Entry::Unread { source: of, quantity, reason } => {
            EntryV1::Unread { source: source(*of), quantity: code(*quantity), reason: reason.clone() }
        }
        Entry::Fact { name, value } => EntryV1::Fact { name: name.clone(), value: ValueV1::new(value) },
        Entry::Ended { outcome, exit, ended_ns, cpu_ns } => EntryV1::Ended {
            outcome: OutcomeV1::new(outcome),
            exit: exit.map(ExitV1::new),
            ended_ns: *ended_ns,
            cpu_ns: *cpu_ns,
        },
    };
    encode("journal entry", &wire)
}

fn source(source: Source) -> SourceV1 {
    match source {
        Source::Gpu(rank) => SourceV1::Gpu(rank),
        Source::Host => SourceV1::Host,
        Source::Package(number) => SourceV1::Package(number),
    }
}

fn source_of(source: &SourceV1) -> Source {
    match source {
        SourceV1::Gpu(rank) => Source::Gpu(*rank),
        SourceV1::Host => Source::Host,
        SourceV1::Package(number) => Source::Package(*number),
    }
}

fn code(quantity: Quantity) -> u8 {
    let at = Quantity::ALL.iter().position(|known| *known == quantity);
    at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

fn quantity_of(code: u8) -> Result<Quantity, WireError> {
    let unknown = WireError::Shape { what: "journal entry", fault: "its quantity is unknown" };
    Quantity::ALL.get(usize::from(code)).copied().ok_or(unknown)
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
        EventKind::Fact { name, value } => KindV1::Fact { name: name.clone(), value: ValueV1::new(value) },
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
        EntryV1::Event { t_ns, rank, kind } => Entry::Event(Event { t_ns, rank, kind: kind.into_kind()? }),
        EntryV1::Rejected { line, reason } => Entry::Rejected { line, reason },
        EntryV1::Stderr(text) => Entry::Stderr(text),
        EntryV1::Stdout(text) => Entry::Stdout(text),
        EntryV1::Warning(text) => Entry::Warning(text),
        EntryV1::Ended { outcome, exit, ended_ns, cpu_ns } => {
            Entry::Ended { outcome: outcome.into_outcome(), exit: exit.map(ExitV1::into_exit), ended_ns, cpu_ns }
        }
        EntryV1::Sample { source, t_ns, cost_ns, readings } => {
            let reading = |(code, after_ns, bits): ReadingV1| {
                let t_ns = t_ns.wrapping_add(after_ns);
                Ok(Reading { quantity: quantity_of(code)?, t_ns, value: f64::from_bits(bits) })
            };
            let readings = readings.into_iter().map(reading).collect::<Result<_, WireError>>()?;
            Entry::Sample(Sample { source: source_of(&source), t_ns, cost_ns, readings })
        }
        EntryV1::Unread { source, quantity, reason } => {
            Entry::Unread { source: source_of(&source), quantity: quantity_of(quantity)?, reason }
        }
        EntryV1::Fact { name, value } => Entry::Fact { name, value: value.into_value()? },
    })
}

impl KindV1 {
    fn into_kind(self) -> Result<EventKind, WireError> {
        Ok(match self {
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
            Self::Fact { name, value } => EventKind::Fact { name, value: value.into_value()? },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger_record::Value;

    #[test]
    fn readings_facts_and_reasons_come_back() {
        let reading =
            |(i, quantity): (u64, &Quantity)| Reading { quantity: *quantity, t_ns: 100 + i, value: f64::MAX / 3.0 };
        let readings = (0..).zip(&Quantity::ALL).map(reading).collect();
        let (name, value) = ("gpu.0.power_limit_w".to_owned(), 700_i64.into());
        for entry in [
            Entry::Sample(Sample { source: Source::Gpu(3), t_ns: 100, cost_ns: 7, readings }),
            Entry::Sample(Sample { source: Source::Package(1), t_ns: 1, cost_ns: 0, readings: vec![] }),
            Entry::Unread { source: Source::Host, quantity: Quantity::Energy, reason: "hidden".into() },
            Entry::Fact { name: name.clone(), value: Value::clone(&value) },
            Entry::Event(Event { t_ns: 1, rank: 0, kind: EventKind::Fact { name, value } }),
        ] {
            assert_eq!(decode_entry(&encode_entry(&entry).unwrap()).unwrap(), entry);
        }
        assert!(quantity_of(25).is_err());
    }
}
