//! Values over steps or over time.

use super::digest::length;
use super::{Digest, DigestWriter};

/// The meaning of a series' positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Optimiser steps, from 1.
    Step,
    /// Nanoseconds since the attempt's start, by the host's monotonic clock.
    TimeNs,
}

impl Axis {
    /// The name that is stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::TimeNs => "time_ns",
        }
    }
}

/// All values of one quantity of one attempt. `positions` and `values` have equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The quantity, with its unit if it has one: `loss`, `power_w.0`.
    pub name: String,
    /// The unit; empty for a pure number.
    pub unit: String,
    /// The meaning of `positions`.
    pub axis: Axis,
    /// The position of each value; never decreasing.
    pub positions: Vec<u64>,
    /// The values, bit for bit.
    pub values: Vec<f64>,
}

impl Series {
    /// An empty series.
    pub fn new(name: impl Into<String>, unit: impl Into<String>, axis: Axis) -> Self {
        Self { name: name.into(), unit: unit.into(), axis, positions: Vec::new(), values: Vec::new() }
    }

    /// Appends one value.
    pub fn push(&mut self, position: u64, value: f64) {
        self.positions.push(position);
        self.values.push(value);
    }

    /// Hashes name, unit, axis and every bit of every point, independent of the stored encoding.
    pub fn digest(&self) -> Digest {
        let mut digest = SeriesDigest::new(&self.name, &self.unit, self.axis, self.values.len());
        self.positions.iter().for_each(|position| digest.position(*position));
        self.values.iter().for_each(|value| digest.value(*value));
        digest.finish()
    }

    /// The entry of this series in an attempt's record.
    pub fn summary(&self) -> SeriesSummary {
        SeriesSummary {
            name: self.name.clone(),
            unit: self.unit.clone(),
            axis: self.axis,
            len: self.values.len() as u64,
            digest: self.digest(),
        }
    }
}

/// The digest of a series whose points are added one after the other: all positions, then all values.
#[derive(Debug)]
pub struct SeriesDigest {
    written: DigestWriter,
    buffer: Vec<u8>,
}

impl SeriesDigest {
    /// Starts with name, unit, axis and length.
    pub fn new(name: &str, unit: &str, axis: Axis, len: usize) -> Self {
        let mut buffer = b"ledger series v1".to_vec();
        for text in [name, unit, axis.name()] {
            buffer.extend_from_slice(&length(text.len()));
            buffer.extend_from_slice(text.as_bytes());
        }
        buffer.extend_from_slice(&length(len));
        Self { written: DigestWriter::new(), buffer }
    }

    /// Adds the next position.
    pub fn position(&mut self, position: u64) {
        self.put(position);
    }

    /// Adds the next value.
    pub fn value(&mut self, value: f64) {
        self.put(value.to_bits());
    }

    fn put(&mut self, word: u64) {
        const PIECE: usize = 64 << 10;
        self.buffer.extend_from_slice(&word.to_le_bytes());
        if self.buffer.len() >= PIECE {
            self.written.write(&self.buffer);
            self.buffer.clear();
        }
    }

    /// The digest of all that was added.
    pub fn finish(mut self) -> Digest {
        self.written.write(&self.buffer);
        self.written.finish()
    }
}

/// A series in its attempt's record; the points are stored separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesSummary {
    /// See [`Series::name`].
    pub name: String,
    /// See [`Series::unit`].
    pub unit: String,
    /// See [`Series::axis`].
    pub axis: Axis,
    /// Number of points.
    pub len: u64,
    /// See [`Series::digest`].
    pub digest: Digest,
}

/// A time interval in which a worker did one named thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// `epoch`, `step`, `eval` and the like.
    pub name: String,
    /// The number of the phase, such as the epoch's.
    pub index: u64,
    /// The rank that reported it.
    pub rank: u32,
    /// Nanoseconds since the attempt's start.
    pub start_ns: u64,
    /// Nanoseconds since the attempt's start; `None` if the attempt ended first.
    pub stop_ns: Option<u64>,
}

impl Phase {
    /// Hashes a list of phases: every field of each, in order.
    pub fn digest_all(phases: &[Self]) -> Digest {
        let mut bytes = Vec::with_capacity(32 + 48 * phases.len());
        bytes.extend_from_slice(b"ledger phases v1");
        bytes.extend_from_slice(&length(phases.len()));
        for phase in phases {
            bytes.extend_from_slice(&length(phase.name.len()));
            bytes.extend_from_slice(phase.name.as_bytes());
            bytes.extend_from_slice(&phase.index.to_le_bytes());
            bytes.extend_from_slice(&phase.rank.to_le_bytes());
            bytes.extend_from_slice(&phase.start_ns.to_le_bytes());
            match phase.stop_ns {
                Some(stop_ns) => {
                    bytes.push(1);
                    bytes.extend_from_slice(&stop_ns.to_le_bytes());
                }
                None => bytes.push(0),
            }
        }
        Digest::of(&bytes)
    }
}
