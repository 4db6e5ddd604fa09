//! What a listing shows of an attempt, derived from its record.

use crate::record::{Attempt, AttemptId, Row, Run, Table, Value};

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
        label: label(run.config()),
        seed: run.parts.seed,
        accuracy: attempt.metric("accuracy"),
        loss: attempt.metric("loss"),
    }
}

/// What tells runs of one experiment apart, in few words.
fn label(config: &Table) -> String {
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
    // Negative zero and zero are one place in the order.
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// Undoes [`ordered`].
pub(super) fn unordered(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 1 { key & !(1 << 63) } else { !key })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_order_as_numbers_do(a in prop::num::f64::NORMAL | prop::num::f64::ZERO, b in prop::num::f64::ANY) {
            prop_assume!(b.is_finite());
            prop_assert_eq!(ordered(a).cmp(&ordered(b)), a.partial_cmp(&b).unwrap());
            prop_assert_eq!(unordered(ordered(a)), a);
        }
    }

    #[test]
    fn a_label_leaves_out_what_goes_without_saying() {
        let config: Table = [
            ("training.optimizer".to_owned(), "adam".into()),
            ("training.learning_rate".to_owned(), 0.001.into()),
            ("training.precision".to_owned(), "fp32".into()),
            ("hardware.gpus".to_owned(), Value::Int(0)),
            ("params.width".to_owned(), Value::Int(3)),
        ]
        .into();
        assert_eq!(label(&config), "adam lr 0.001 width 3");
    }
}
