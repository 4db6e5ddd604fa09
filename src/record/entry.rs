//! The entries of a running attempt's journal.

use super::{Event, Exit, Nonce, Outcome, Owner, Quantity, Run, Sample, Source, Table, Value};

/// One entry of a journal. The first is always [`Entry::Opened`].
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// The attempt is about to begin.
    Opened {
        /// The process that executes it.
        owner: Owner,
        /// Identifies this execution.
        nonce: Nonce,
        /// The run that is executed.
        run: Box<Run>,
        /// The cell's fields that are not hashed.
        settings: Table,
        /// Observations of the machine.
        facts: Table,
        /// The host's clock, in milliseconds since the Unix epoch.
        started_unix_ms: i64,
        /// `CLOCK_MONOTONIC` nanoseconds: the zero of the attempt's times.
        started_ns: u64,
    },
    /// The worker's process was started.
    Started {
        /// Its process id.
        pid: u32,
    },
    /// The worker sent an event.
    Event(Event),
    /// The worker wrote a line that is not a valid event.
    Rejected {
        /// The line, shortened.
        line: String,
        /// Why it is not valid.
        reason: String,
    },
    /// The worker wrote to its standard error.
    Stderr(String),
    /// The worker wrote to its standard output.
    Stdout(String),
    /// The supervisor noticed something that readers of the numbers need to know.
    Warning(String),
    /// The hardware was sampled.
    Sample(Sample),
    /// A quantity cannot be read. Recorded once, and again if the reason changes.
    Unread {
        /// The device.
        source: Source,
        /// The quantity.
        quantity: Quantity,
        /// The reason.
        reason: String,
    },
    /// The supervisor learned a fact for the record. The last one of a name is valid.
    Fact {
        /// Its name.
        name: String,
        /// Its value.
        value: Value,
    },
    /// The attempt is over.
    Ended {
        /// The outcome.
        outcome: Outcome,
        /// How the process ended, if that was observed.
        exit: Option<Exit>,
        /// `CLOCK_MONOTONIC` nanoseconds.
        ended_ns: u64,
        /// Processor time of the worker and of the children that it waited for, in nanoseconds.
        cpu_ns: Option<u64>,
    },
}
