//! What the manifest can say but this version cannot do: one table, from which later versions take rows away.

use super::table::{SMALL_MODELS, WHOLE_MODELS};
use crate::record::Table;

/// Some values of a key that this version refuses, for some models of the built-in trainer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    /// The field's dotted name.
    field: &'static str,
    /// The values.
    values: &'static [&'static str],
    /// The models.
    models: &'static [&'static str],
    /// What is refused, with `{value}` for the value.
    doing: &'static str,
    /// What to write instead.
    instead: &'static str,
}

/// Everything that this version refuses.
pub(super) const REFUSALS: &[Refusal] = &[
    Refusal {
        field: "training.precision",
        values: &["fp16", "bf16"],
        models: SMALL_MODELS,
        doing: "`{value}`",
        instead: "fp32",
    },
    Refusal {
        field: "hardware.parallelism",
        values: &["pipeline"],
        models: WHOLE_MODELS,
        doing: "`{value}` parallelism",
        instead: "data",
    },
];

/// The values that this version cannot use for this model of the built-in trainer: each field, and why.
pub(super) fn refused_values(config: &Table, model: &str) -> Vec<(&'static str, String)> {
    let mut refused = Vec::new();
    for refusal in REFUSALS {
        let Refusal { field, values, models, doing, instead } = refusal;
        if let Some(value) = config.get(*field).map(ToString::to_string)
            && values.contains(&value.as_str())
            && models.contains(&model)
        {
            let doing = doing.replace("{value}", &value);
            refused.push((*field, format!("{doing} is not available for `{model}` (use {instead})")));
        }
    }
    refused
}
