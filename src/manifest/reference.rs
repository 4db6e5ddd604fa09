//! The reference of all keys as a Markdown table, generated from the field table.

use super::field::{Constant, Field, Kind, Preset, When, choices};
use super::table::FIELDS;
use crate::record::Value;

/// Returns the table of all keys in Markdown, for `docs/manifest.md`.
pub fn reference_markdown() -> String {
    let mut out = String::from(
        "| key | value | list | default | applies where | meaning | identity |\n|---|---|---|---|---|---|---|\n",
    );
    for field in FIELDS {
        let key = if field.is_writable() { format!("`{}`", field.key) } else { format!("`{}` (fixed)", field.key) };
        let list = if field.axis && field.is_writable() { "axis" } else { "" };
        let when = field.when.map_or_else(String::new, |when| when.to_string());
        let cells = [&key, &kind(field), list, &preset(field), &when, field.meaning, field.role.name()];
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    out
}

fn kind(field: &Field) -> String {
    match field.kind {
        Kind::Known(_) => format!("{}; with `[program]` any name", field.kind),
        kind => kind.to_string(),
    }
}

fn preset(field: &Field) -> String {
    let shown = |constant: Constant| format!("`{}`", Value::from(constant));
    match field.preset {
        Preset::None => "–".to_owned(),
        Preset::Required => "required".to_owned(),
        Preset::Is(constant) => shown(constant),
        Preset::By(cases) => {
            // The first case that applies counts, so a later one applies to the other values only.
            let mut told: Vec<(&str, &str)> = Vec::new();
            let of = |(When { field, is }, constant): &(When, Constant)| {
                let left: Vec<&str> = is.iter().copied().filter(|value| !told.contains(&(*field, *value))).collect();
                told.extend(left.iter().map(|value| (*field, *value)));
                (!left.is_empty()).then(|| format!("{} where {field} is {}", shown(*constant), choices(&left)))
            };
            cases.iter().filter_map(of).collect::<Vec<_>>().join("; ")
        }
        Preset::Stated(words) => words.to_owned(),
    }
}
