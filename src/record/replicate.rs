//! What makes attempts of one configuration independent of each other.
//!
//! An outcome is decided by the weights, so that its unit of replication is the seed: executions that computed the same count once, others of one
//! seed are averaged. What is measured is decided by the machine, so that its unit is the GPU or host, or, where all come from one, the attempt.

use super::{Attempt, Axis, Digest, MetricKind, Run, Unit, Value, known_metric, mean};
use std::collections::BTreeMap;

/// Which seed, which computation and which machine an attempt belongs to. Equal numbers mean the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replicate {
    /// The seed; that of `execution` where an imported row states none, so that each row is a sample of its own.
    pub seed: u64,
    /// What was computed: equal where digests and curves are the same bits. Of its own where an attempt has neither.
    pub execution: u64,
    /// The GPUs or the host by whose sensors it was measured; 0 where the record names none.
    pub machine: u64,
}

impl Replicate {
    /// The length of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 24;

    /// Those of an attempt.
    pub fn of(run: &Run, attempt: &Attempt) -> Self {
        let sensors = attempt.sensors();
        let machine = if sensors.is_empty() { 0 } else { short(&Digest::of(sensors.join("\n").as_bytes())) };
        let execution = execution(attempt);
        let import = attempt.facts.get("import").and_then(Value::as_table);
        let is_unseeded = run.parts.seed == 0 && import.is_some_and(|import| !import.contains_key("seed"));
        Self { seed: if is_unseeded { execution } else { run.parts.seed }, execution, machine }
    }

    /// Whether the record states a seed.
    pub fn is_seeded(&self) -> bool {
        self.seed != self.execution
    }

    /// As bytes, for indexes.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (place, number) in bytes.chunks_exact_mut(8).zip([self.seed, self.execution, self.machine]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Undoes [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[8 * at..8 * at + 8]);
            u64::from_le_bytes(number)
        };
        Self { seed: number(0), execution: number(1), machine: number(2) }
    }
}

fn short(digest: &Digest) -> u64 {
    digest.0.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Whether a series is what an attempt computed, which a rerun has to meet, and not how long that took or what the hardware did meanwhile.
pub fn is_computed(name: &str, unit: &str, axis: Axis) -> bool {
    let is_measured = || known_metric(name).is_some_and(|known| known.kind() == MetricKind::Measured);
    axis == Axis::Step && unit != "ns" && !Unit::named(unit).is_some_and(Unit::is_of_machine) && !is_measured()
}

/// The digest of data says what was read, not what was computed.
fn execution(attempt: &Attempt) -> u64 {
    let mut computed = Vec::new();
    for (name, digest) in attempt.digests.iter().filter(|(name, _)| *name != "data") {
        computed.extend_from_slice(name.as_bytes());
        computed.extend_from_slice(&digest.0);
    }
    for series in attempt.series.iter().filter(|series| is_computed(&series.name, &series.unit, series.axis)) {
        computed.extend_from_slice(&series.digest.0);
    }
    if computed.is_empty() {
        computed.extend_from_slice(&attempt.nonce.0);
    }
    short(&Digest::of(&computed))
}

/// The values of the independent units of one configuration, from those of its attempts; in an order that does not depend on theirs.
pub fn unit_values(kind: MetricKind, values: &[(Replicate, f64)]) -> Vec<f64> {
    match kind {
        MetricKind::Outcome => groups(values, |one| one.seed).map(|seed| mean(&execution_values(&seed))).collect(),
        MetricKind::Measured => {
            let machines: Vec<f64> = groups(values, |one| one.machine).map(|machine| sorted_mean(&machine)).collect();
            let is_unknown = values.iter().any(|(one, _)| one.machine == 0);
            if machines.len() > 1 && !is_unknown { machines } else { sorted(values) }
        }
    }
}

/// The values of executions that computed different bits: each counts once, however often it was repeated.
pub fn execution_values(values: &[(Replicate, f64)]) -> Vec<f64> {
    let mut values: Vec<f64> = groups(values, |one| one.execution).map(|same| sorted_mean(&same)).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The mean over the independent units: the one by which configurations are ranked, in indexes and in answers.
pub fn unit_mean(kind: MetricKind, values: &[(Replicate, f64)]) -> f64 {
    mean(&unit_values(kind, values))
}

/// The values of each group, in the order of the groups' numbers.
fn groups(values: &[(Replicate, f64)], of: impl Fn(&Replicate) -> u64) -> impl Iterator<Item = Vec<(Replicate, f64)>> {
    let mut found: BTreeMap<u64, Vec<(Replicate, f64)>> = BTreeMap::new();
    for (one, value) in values {
        found.entry(of(one)).or_default().push((*one, *value));
    }
    found.into_values()
}

fn sorted(values: &[(Replicate, f64)]) -> Vec<f64> {
    let mut values: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn sorted_mean(values: &[(Replicate, f64)]) -> f64 {
    mean(&sorted(values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(seed: u64, execution: u64, machine: u64) -> Replicate {
        Replicate { seed, execution, machine }
    }

    #[test]
    fn copies_of_an_outcome_count_once_and_attempts_of_a_seed_are_averaged() {
        let copies =
            [(of(1, 7, 5), 0.5), (of(1, 7, 5), 0.5), (of(1, 7, 6), 0.5), (of(2, 8, 5), 0.7), (of(2, 9, 5), 0.9)];
        assert_eq!(unit_values(MetricKind::Outcome, &copies), [0.5, 0.8]);
        assert_eq!(execution_values(&copies[..3]), [0.5]);
        // Of machines 5 and 6 the means are units of what is measured.
        assert_eq!(unit_values(MetricKind::Measured, &copies), [0.65, 0.5]);
        assert_eq!(unit_values(MetricKind::Measured, &copies[..2]), [0.5, 0.5]);
    }

    proptest! {
        #[test]
        fn the_order_of_attempts_changes_no_bit(
            mut values in prop::collection::vec(((0..3u64, 0..3u64, 0..3u64), -9.0..9.0f64), 1..12),
        ) {
            let means = |values: &[((u64, u64, u64), f64)]| {
                let values: Vec<_> = values.iter().map(|((s, e, m), value)| (of(*s, *e, *m), *value)).collect();
                MetricKind::ALL.map(|kind| unit_mean(kind, &values).to_bits())
            };
            let before = means(&values);
            values.reverse();
            prop_assert_eq!(before, means(&values));
        }

        #[test]
        fn bytes_come_back(seed: u64, execution: u64, machine: u64) {
            let one = of(seed, execution, machine);
            prop_assert_eq!(Replicate::from_bytes(&one.to_bytes()), one);
        }
    }
}
