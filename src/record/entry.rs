//! What the journal of a living attempt holds, entry by entry.

use super::{Event, Exit, Nonce, Outcome, Owner, Quantity, Run, Sample, Source, Table, Value};

/// One entry of a journal. The first is always [`Entry::Opened`].
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// The attempt is about to begin.
    Opened {
        /// Who executes it.
        owner: Owner,
        /// Names this execution.
        nonce: Nonce,
        /// What is executed.
        run: Box<Run>,
        /// The cell's fields that are not hashed.
        settings: Table,
        /// What was seen of the machine.
        facts: Table,
        /// The host's clock, in milliseconds since the Unix epoch.
        started_unix_ms: i64,
        /// `CLOCK_MONOTONIC` nanoseconds: the zero of the attempt's times.
        started_ns: u64,
    },
    /// The worker's process exists.
    Started {
        /// Its process id.
        pid: u32,
    },
    /// The worker said something.
    Event(Event),
    /// The worker wrote a line that is no event.
    Rejected {
        /// The line, shortened.
        line: String,
        /// Why it is none.
        reason: String,
    },
    /// The worker wrote to its standard error.
    Stderr(String),
    /// The worker wrote to its standard output.
    Stdout(String),
    /// The supervisor noticed something that a reader of the numbers must know.
    Warning(String),
    /// The hardware was looked at.
    Sample(Sample),
    /// A quantity cannot be read, and why; said once, and again when the reason changes.
    Unread {
        /// Of which device.
        source: Source,
        /// What.
        quantity: Quantity,
        /// Why.
        reason: String,
    },
    /// The supervisor learned something that belongs into the record. The last one of a name stands.
    Fact {
        /// Its name.
        name: String,
        /// What it is.
        value: Value,
    },
    /// The attempt is over.
    Ended {
        /// How.
        outcome: Outcome,
        /// How the process ended, if anybody saw it.
        exit: Option<Exit>,
        /// `CLOCK_MONOTONIC` nanoseconds.
        ended_ns: u64,
        /// Processor time of the worker and of the children that it waited for, in nanoseconds.
        cpu_ns: Option<u64>,
    },
}
