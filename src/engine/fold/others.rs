//! What ranks other than the first say of the whole attempt: metrics, digests, facts.
//!
//! Rank 0 speaks for the run; of a name that it does not tell, the lowest rank that does. What others tell of the same name has their rank behind the name, as their
//! series have. In which order their lines came decides nothing.

use crate::engine::kept::{Dropped, MAX_FACT_BYTES, MAX_NAMES, Surplus, quoted, weight};
use crate::record::{Digest, Metric, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What they told last, by name and rank.
type Told<T> = BTreeMap<String, BTreeMap<u32, T>>;

/// What ranks other than the first told.
#[derive(Default)]
pub(super) struct Others {
    metrics: Told<Metric>,
    digests: Told<Digest>,
    facts: Told<Value>,
    counts: [usize; 3],
    fact_bytes: usize,
}

/// A value, and its name in a record.
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

/// `is_told` says what rank 0 told. What would have another one's name is dropped.
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
