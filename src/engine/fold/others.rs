//! Metrics, digests and facts of the whole attempt that are reported by ranks other than rank 0.
//!
//! A name has the value of the lowest rank that reports it. Values of other ranks get the rank as a suffix, as their
//! series do. The order in which the lines came does not matter.

use crate::engine::kept::{Dropped, MAX_FACT_BYTES, MAX_NAMES, Surplus, quoted, weight};
use crate::record::{Digest, Metric, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The last values, by name and rank.
type Told<T> = BTreeMap<String, BTreeMap<u32, T>>;

/// The values of ranks other than rank 0.
#[derive(Default)]
pub(super) struct Others {
    metrics: Told<Metric>,
    digests: Told<Digest>,
    facts: Told<Value>,
    counts: [usize; 3],
    fact_bytes: usize,
}

/// A value and its name in the record.
pub(super) struct Named<T> {
    pub(super) name: String,
    pub(super) value: T,
}

impl Others {
    pub(super) fn metric(&mut self, name: &str, rank: u32, metric: Metric, dropped: &mut Dropped) {
        keep(&mut self.metrics, &mut self.counts[0], (name, rank), metric, || {
            dropped.count(Surplus::Metrics, || quoted(name));
        });
    }

    pub(super) fn digest(&mut self, name: &str, rank: u32, digest: Digest, dropped: &mut Dropped) {
        keep(&mut self.digests, &mut self.counts[1], (name, rank), digest, || {
            dropped.count(Surplus::Digests, || quoted(name));
        });
    }

    pub(super) fn fact(&mut self, name: &str, rank: u32, value: &Value, dropped: &mut Dropped) {
        let before = self.facts.get(name).and_then(|ranks| ranks.get(&rank)).map_or(0, weight);
        let bytes = self.fact_bytes.saturating_sub(before) + weight(value);
        if bytes > MAX_FACT_BYTES {
            return dropped.count(Surplus::Facts, || quoted(name));
        }
        self.fact_bytes = bytes;
        keep(&mut self.facts, &mut self.counts[2], (name, rank), value.clone(), || {
            dropped.count(Surplus::Facts, || quoted(name));
        });
    }

    pub(super) fn metrics(&mut self, is_told: impl Fn(&str) -> bool, dropped: &mut Dropped) -> Vec<Named<Metric>> {
        named(std::mem::take(&mut self.metrics), is_told, dropped)
    }

    pub(super) fn digests(&mut self, is_told: impl Fn(&str) -> bool, dropped: &mut Dropped) -> Vec<Named<Digest>> {
        named(std::mem::take(&mut self.digests), is_told, dropped)
    }

    pub(super) fn facts(&mut self, is_told: impl Fn(&str) -> bool, dropped: &mut Dropped) -> Vec<Named<Value>> {
        named(std::mem::take(&mut self.facts), is_told, dropped)
    }
}

fn keep<T>(told: &mut Told<T>, count: &mut usize, (name, rank): (&str, u32), value: T, drop: impl FnOnce()) {
    if let Some(last) = told.get_mut(name).and_then(|ranks| ranks.get_mut(&rank)) {
        *last = value;
    } else if *count < MAX_NAMES {
        *count += 1;
        told.entry(name.to_owned()).or_default().insert(rank, value);
    } else {
        drop();
    }
}

/// Gives values their final names. `is_told` returns whether rank 0 reported a name. A value whose name is taken is
/// dropped.
fn named<T>(told: Told<T>, is_told: impl Fn(&str) -> bool, dropped: &mut Dropped) -> Vec<Named<T>> {
    let names: BTreeSet<String> = told.keys().cloned().collect();
    let mut all = Vec::new();
    for (name, ranks) in told {
        let mut speaks = !is_told(&name);
        for (rank, value) in ranks {
            if std::mem::take(&mut speaks) {
                all.push(Named { name: name.clone(), value });
                continue;
            }
            let full = format!("{name}.{rank}");
            if names.contains(&full) || is_told(&full) {
                dropped.count(Surplus::SameName, || {
                    format!("{} of rank {rank}, beside the value reported as {}", quoted(&name), quoted(&full))
                });
            } else {
                all.push(Named { name: full, value });
            }
        }
    }
    all
}
