//! Listing rows, and the encodings of keys and values of the metric indexes.

use super::tables::Id;
use crate::record::{Attempt, AttemptId, MetricKind, Replicate, Row, Run, Table, Value};

/// Builds the listing row of an attempt.
pub(super) fn row(id: AttemptId, run: &Run, attempt: &Attempt) -> Row {
    let experiment = attempt.settings.get("experiment.name").and_then(Value::as_str).unwrap_or_default();
    Row {
        attempt: id,
        run: run.id,
        started_unix_ms: attempt.started_unix_ms,
        wall_ns: attempt.wall_ns,
        outcome: attempt.outcome.name().to_owned(),
        experiment: experiment.to_owned(),
        model: run.model().to_owned(),
        label: label_of(run.config()),
        seed: run.parts.seed,
        accuracy: attempt.metric("accuracy"),
        loss: attempt.metric("loss"),
    }
}

/// A short label that distinguishes the runs of an experiment.
pub fn label_of(config: &Table) -> String {
    let mut words = Vec::new();
    let mut word = |field: &str, prefix: &str, plain: &str| {
        if let Some(value) = config.get(field) {
            let text = value.to_string();
            if text != plain {
                words.push(format!("{prefix}{text}"));
            }
        }
    };
    word("training.optimizer", "", "");
    word("training.learning_rate", "lr ", "");
    word("training.schedule", "", "constant");
    word("training.batch_size", "batch ", "");
    word("training.epochs", "epochs ", "");
    word("training.steps", "steps ", "");
    word("training.precision", "", "fp32");
    word("hardware.gpus", "gpus ", "0");
    let params = config.iter().filter_map(|(key, value)| Some((key.strip_prefix("params.")?, value)));
    words.extend(params.map(|(key, value)| format!("{key} {value}")));
    words.join(" ")
}

/// Maps a finite number to an integer of the same order.
pub(super) fn ordered(value: f64) -> u64 {
    // Negative zero and zero are equal in this order.
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// Undoes [`ordered`].
pub(super) fn unordered(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 1 { key & !(1 << 63) } else { !key })
}

/// The key of an attempt's values: its group and its id.
pub(super) fn member(group: Id, attempt: Id) -> [u8; 64] {
    let mut key = [0; 64];
    key[..32].copy_from_slice(&group);
    key[32..].copy_from_slice(&attempt);
    key
}

/// Encodes an attempt's replicate and metrics: for each metric a length, its name, its kind and its bits.
pub(super) fn pack(replicate: Replicate, metrics: &[(&str, MetricKind, f64)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(Replicate::BYTES + metrics.len() * 25);
    bytes.extend(replicate.to_bytes());
    for (name, kind, value) in metrics {
        put_text(&mut bytes, name);
        bytes.push(u8::from(*kind == MetricKind::Measured));
        bytes.extend(value.to_bits().to_le_bytes());
    }
    bytes
}

/// Undoes [`pack`]. Ends early if the bytes are cut short.
pub(super) fn unpack(bytes: &[u8]) -> (Replicate, impl Iterator<Item = (&str, MetricKind, f64)>) {
    let empty: (&[u8; Replicate::BYTES], &[u8]) = (&[0; Replicate::BYTES], &[]);
    let (replicate, mut rest) = bytes.split_first_chunk().unwrap_or(empty);
    let metrics = std::iter::from_fn(move || {
        let (name, after) = split_text(rest)?;
        let (kind, after) = after.split_first()?;
        let (bits, after) = after.split_first_chunk()?;
        rest = after;
        let kind = if *kind == 0 { MetricKind::Outcome } else { MetricKind::Measured };
        Some((name, kind, f64::from_bits(u64::from_le_bytes(*bits))))
    });
    (Replicate::from_bytes(replicate), metrics)
}

/// The prefix of all keys of a model's metric in the ranking.
pub(super) fn ranking_of(model: &str, metric: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(model.len() + metric.len() + 48);
    put_text(&mut key, model);
    put_text(&mut key, metric);
    key
}

/// The key of a group in the ranking of a metric. The keys of one metric are in the order of the means.
pub(super) fn place(model: &str, metric: &str, mean: u64, group: Id) -> Vec<u8> {
    let mut key = ranking_of(model, metric);
    key.extend(mean.to_be_bytes());
    key.extend(group);
    key
}

/// Undoes [`place`].
pub(super) fn placed(key: &[u8]) -> Option<(&str, &str, u64, Id)> {
    let (model, rest) = split_text(key)?;
    let (metric, rest) = split_text(rest)?;
    let (mean, group) = rest.split_first_chunk()?;
    Some((model, metric, u64::from_be_bytes(*mean), group.try_into().ok()?))
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(text.as_bytes());
}

fn split_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)?;
    Some((str::from_utf8(text).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_have_the_order_of_numbers(a in prop::num::f64::NORMAL | prop::num::f64::ZERO, b in prop::num::f64::ANY) {
            prop_assume!(b.is_finite());
            prop_assert_eq!(ordered(a).cmp(&ordered(b)), a.partial_cmp(&b).unwrap());
            prop_assert_eq!(unordered(ordered(a)), a);
        }

        #[test]
        fn packed_metrics_and_places_are_unpacked_and_keys_have_the_order_of_means(
            metrics in prop::collection::vec((".{0,6}", any::<bool>(), any::<f64>()), 0..5), seed: u64,
            (model, metric) in (".{0,6}", ".{0,6}"), means in any::<[u64; 2]>(),
        ) {
            let kind = |is_measured| MetricKind::ALL[usize::from(is_measured)];
            let metrics: Vec<_> = metrics.iter().map(|(name, is_measured, value)| (name.as_str(), kind(*is_measured), *value)).collect();
            let replicate = Replicate { seed, execution: 1, machine: 2 };
            let packed = pack(replicate, &metrics);
            let bits = |all: Vec<(&str, MetricKind, f64)>| all.into_iter().map(|(name, kind, value)| (name.to_owned(), kind, value.to_bits())).collect::<Vec<_>>();
            let (found, unpacked) = unpack(&packed);
            prop_assert_eq!(found, replicate);
            prop_assert_eq!(bits(unpacked.collect()), bits(metrics.clone()));
            let keys = means.map(|mean| place(&model, &metric, mean, [7; 32]));
            prop_assert_eq!(placed(&keys[0]), Some((model.as_str(), metric.as_str(), means[0], [7; 32])));
            prop_assert_eq!(keys[0].cmp(&keys[1]), means[0].cmp(&means[1]));
            for cut in 0..packed.len() {
                prop_assert!(unpack(&packed[..cut]).1.count() < metrics.len().max(1));
            }
        }
    }

    #[test]
    fn a_label_leaves_out_defaults() {
        let config: Table = [
            ("training.optimizer".to_owned(), "adam".into()),
            ("training.learning_rate".to_owned(), 0.001.into()),
            ("training.precision".to_owned(), "fp32".into()),
            ("hardware.gpus".to_owned(), Value::Int(0)),
            ("params.width".to_owned(), Value::Int(3)),
        ]
        .into();
        assert_eq!(label_of(&config), "adam lr 0.001 width 3");
    }
}
