//! What the manifest can say but this version cannot do: one table, from which later versions take rows away.

use super::table::{SMALL_MODELS, WHOLE_MODELS};
use crate::record::Table;

/// One thing that this version refuses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// A key, whatever its value.
    Key {
        /// The field's dotted name.
        field: &'static str,
        /// What it would do, so that it fits before "is not available".
        doing: &'static str,
    },
    /// Some values of a key, for some models of the built-in trainer.
    Value {
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
    },
}

/// Everything that this version refuses.
pub(super) const REFUSALS: &[Refusal] = &[
    Refusal::Key { field: "hardware.power_limit_w", doing: "setting the power limit" },
    Refusal::Key { field: "hardware.sm_clock_mhz", doing: "locking the multiprocessors' clock" },
    Refusal::Key { field: "hardware.memory_clock_mhz", doing: "locking the memory's clock" },
    Refusal::Value {
        field: "training.precision",
        values: &["fp16", "bf16"],
        models: SMALL_MODELS,
        doing: "`{value}`",
        instead: "fp32",
    },
    Refusal::Value {
        field: "hardware.parallelism",
        values: &["pipeline"],
        models: WHOLE_MODELS,
        doing: "`{value}` parallelism",
        instead: "data",
    },
];

/// Why this version cannot use the key at all, if so.
pub(super) fn refused_key(key: &str) -> Option<String> {
    REFUSALS.iter().find_map(|refusal| match refusal {
        Refusal::Key { field, doing } if *field == key => {
            Some(format!("{doing} is not available in this version (remove the key)"))
        }
        _ => None,
    })
}

/// The values that this version cannot use for this model of the built-in trainer: each field, and why.
pub(super) fn refused_values(config: &Table, model: &str) -> Vec<(&'static str, String)> {
    let mut refused = Vec::new();
    for refusal in REFUSALS {
        if let Refusal::Value { field, values, models, doing, instead } = refusal
            && let Some(value) = config.get(*field).map(ToString::to_string)
            && values.contains(&value.as_str())
            && models.contains(&model)
        {
            let doing = doing.replace("{value}", &value);
            refused.push((*field, format!("{doing} is not available for `{model}` (use {instead})")));
        }
    }
    refused
}
