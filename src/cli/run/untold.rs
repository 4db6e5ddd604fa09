//! Axes that the command of a program does not use.

use crate::cli::output::say;
use crate::engine::{Launch, Planned};
use crate::record::Value;
use std::collections::BTreeMap;

/// The name of the seed's field.
const SEED: &str = "seed";
/// The fields that a program receives through its command alone.
const BY_COMMAND: [&str; 5] = [SEED, "params.", "training.", "model.", "data."];

/// Warns about each axis whose values a program cannot distinguish: runs that differ in it alone have the same command.
pub(super) fn say_untold_axes(planned: &[Planned], axes: &[String]) {
    for axis in axes.iter().filter(|axis| BY_COMMAND.iter().any(|field| axis.starts_with(field))) {
        if is_untold(planned, axes, axis) {
            let name = axis.strip_prefix("params.").unwrap_or(axis);
            say(&format!(
                "warning: the command is the same for all values of `{axis}` (add `{{{name}}}`, or give one value)"
            ));
        }
    }
}

fn is_untold(planned: &[Planned], axes: &[String], axis: &String) -> bool {
    // The first run, by model and all other axes.
    let mut first_ones: BTreeMap<(&str, Vec<Option<String>>), &Planned> = BTreeMap::new();
    let mut is_varied = false;
    for one in planned {
        let Launch::Program { argv, .. } = &one.bound.launch else { continue };
        let others = axes.iter().filter(|other| *other != axis).map(|other| value(one, other)).collect();
        let first = *first_ones.entry((one.bound.run.model(), others)).or_insert(one);
        if value(first, axis) != value(one, axis) {
            is_varied = true;
            if !matches!(&first.bound.launch, Launch::Program { argv: same, .. } if same == argv) {
                return false;
            }
        }
    }
    is_varied
}

fn value(one: &Planned, axis: &str) -> Option<String> {
    if axis == SEED { Some(one.bound.cell.seed.to_string()) } else { one.bound.cell.get(axis).map(Value::to_string) }
}
