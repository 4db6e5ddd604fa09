//! Independence of attempts with one configuration.
//!
//! An outcome is determined by the weights, so its unit of replication is the seed. Executions with the same result
//! count once, and other executions of one seed are averaged. A measurement is determined by the machine, so its unit
//! is the GPU or host. If all come from one machine, the unit is the attempt.

use super::{Attempt, Axis, Digest, MetricKind, Run, Unit, Value, known_metric, mean};
use std::collections::BTreeMap;

/// The seed, the computation and the machine of an attempt. Equal numbers mean the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replicate {
    /// The seed. If an imported row states none, it is `execution`, so that each row is an independent sample.
    pub seed: u64,
    /// The computation: equal if digests and curves are bitwise equal. Unique if an attempt has neither.
    pub execution: u64,
    /// The GPUs or the host that measured it; 0 if the record does not name them.
    pub machine: u64,
}

impl Replicate {
    /// The length of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 24;

    /// Returns the numbers of an attempt.
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

    /// The numbers as bytes, for indexes.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (place, number) in bytes.chunks_exact_mut(8).zip([self.seed, self.execution, self.machine]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// The inverse of [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[8 * at..8 * at + 8]);
            u64::from_le_bytes(number)
        };
        Self { seed: number(0), execution: number(1), machine: number(2) }
    }
}

/// The first eight bytes of a digest as a number.
pub(super) fn short(digest: &Digest) -> u64 {
    digest.0.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Whether a series is a result of the computation, which a rerun has to reproduce, and not a duration or hardware telemetry.
pub fn is_computed(name: &str, unit: &str, axis: Axis) -> bool {
    let is_measured = || known_metric(name).is_some_and(|known| known.kind() == MetricKind::Measured);
    axis == Axis::Step && unit != "ns" && !Unit::named(unit).is_some_and(Unit::is_of_machine) && !is_measured()
}

/// The number of an attempt's computation. The digest of data is left out, because it identifies the input.
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

/// The values of the independent units of one configuration. Their order does not depend on that of the attempts.
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

/// The values of executions with different results: each counts once, however often it was repeated.
pub fn execution_values(values: &[(Replicate, f64)]) -> Vec<f64> {
    let mut values: Vec<f64> = groups(values, |one| one.execution).map(|same| sorted_mean(&same)).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The mean over the independent units, by which configurations are ranked in indexes and in answers.
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
        // The means of machines 5 and 6 are the units of a measurement.
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
