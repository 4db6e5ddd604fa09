//! What a worker says while it works.

use super::{Digest, Value};

/// One thing that a worker said, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// `CLOCK_MONOTONIC` nanoseconds on the worker's host.
    pub t_ns: u64,
    /// The rank that speaks; 0 where there is one.
    pub rank: u32,
    /// What it said.
    pub kind: EventKind,
}

/// Whether a phase begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseEdge {
    /// It begins.
    Start,
    /// It ends.
    Stop,
}

/// The kinds of events. `docs/protocol.md` gives their form on the wire.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// How much work lies ahead; sent once, before the first step, and again if the estimate changes.
    Plan {
        /// Optimiser steps in all.
        steps: u64,
        /// Epochs in all.
        epochs: u64,
        /// Samples that one step trains on.
        samples_per_step: u64,
    },
    /// A phase begins or ends.
    Phase {
        /// `epoch`, `step`, `data`, `forward`, `backward`, `optimizer`, `eval`, `inference`, `checkpoint`, or any other.
        name: String,
        /// Which one, from 1.
        index: u64,
        /// Begin or end.
        edge: PhaseEdge,
    },
    /// An optimiser step is done.
    Step {
        /// From 1.
        step: u64,
        /// How long it took, where the worker measured that.
        duration_ns: Option<u64>,
        /// Values at this step, such as `loss`; each becomes a series.
        values: Vec<(String, f64)>,
    },
    /// A result of the whole attempt. The last one of a name stands.
    Metric {
        /// Its name.
        name: String,
        /// Its value; non-finite values are allowed.
        value: f64,
        /// Its unit; empty for a pure number.
        unit: String,
    },
    /// A digest that a rerun has to meet, such as that of the final weights.
    Digest {
        /// What was hashed: `weights`, `data`.
        name: String,
        /// Its hash.
        digest: Digest,
    },
    /// Something that is worth recording and is no number to be judged by: a version, a choice that was made. The last one of a
    /// name stands.
    Fact {
        /// Its name; it is recorded under `worker.` and this.
        name: String,
        /// What it is.
        value: Value,
    },
    /// A line for the person who watches.
    Status {
        /// The line.
        message: String,
    },
    /// Something that makes the attempt a failure, whatever the exit code will be.
    Failure {
        /// What went wrong.
        message: String,
    },
}
