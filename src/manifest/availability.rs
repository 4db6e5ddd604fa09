//! Values that are valid in a manifest but not supported by this version, as a table that shrinks with later versions.

use super::table::{SMALL_MODELS, WHOLE_MODELS};
use crate::record::Table;

/// Values of a field that this version refuses, for some models of the built-in trainer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    /// Dotted name of the field.
    field: &'static str,
    /// The refused values.
    values: &'static [&'static str],
    /// The models for which they are refused.
    models: &'static [&'static str],
    /// Description of the feature, with `{value}` for the value.
    doing: &'static str,
    /// The value to use instead.
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

/// Returns the fields of a configuration that this version refuses for a model of the built-in trainer, with reasons.
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
