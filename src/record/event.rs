//! Events that a worker sends.

use super::{Digest, Value};

/// An event of a worker, with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// `CLOCK_MONOTONIC` nanoseconds on the worker's host.
    pub t_ns: u64,
    /// The rank that sent it; 0 if there is only one.
    pub rank: u32,
    /// The content.
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

/// The kinds of events. `docs/protocol.md` has their encoding.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// The amount of work; sent once, before the first step, and again if the estimate changes.
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
        /// The number of the phase, from 1.
        index: u64,
        /// Start or stop.
        edge: PhaseEdge,
    },
    /// An optimiser step is done.
    Step {
        /// From 1.
        step: u64,
        /// Its duration, if the worker measured it.
        duration_ns: Option<u64>,
        /// Values at this step, such as `loss`; each becomes a series.
        values: Vec<(String, f64)>,
    },
    /// A result of the whole attempt. The last one of a name is valid.
    Metric {
        /// Its name.
        name: String,
        /// Its value; non-finite values are allowed.
        value: f64,
        /// Its unit; empty for a pure number.
        unit: String,
    },
    /// A digest that a rerun has to reproduce, such as that of the final weights.
    Digest {
        /// The hashed object: `weights`, `data`.
        name: String,
        /// Its hash.
        digest: Digest,
    },
    /// A value that is worth recording and is not a metric, such as a version or a choice. The last one of a name is valid.
    Fact {
        /// Its name; it is recorded with the prefix `worker.`.
        name: String,
        /// Its value.
        value: Value,
    },
    /// A line for a person who watches the run.
    Status {
        /// The line.
        message: String,
    },
    /// Something that makes the attempt a failure, whatever the exit code will be.
    Failure {
        /// The error.
        message: String,
    },
}
