//! `--only`: the cells that a condition means.

use super::failure::{Failure, exit};
use crate::analysis::expr::Expr;
use crate::record::{Cell, Value};
use std::collections::BTreeSet;

/// Keeps of the items those whose cells match.
pub(super) fn only<T>(text: &str, items: &mut Vec<T>, cell: impl Fn(&T) -> &Cell) -> Result<(), Failure> {
    let names: BTreeSet<String> = items
        .iter()
        .flat_map(|item| cell(item).config.keys().chain(cell(item).settings.keys()).cloned())
        .chain(["seed".to_owned()])
        .collect();
    let only = Expr::parse(text, &names).map_err(|error| Failure::new(exit::USAGE, format!("--only: {error}")))?;
    items.retain(|item| {
        only.matches(&|name| match name {
            "seed" => Some(Value::Int(i64::try_from(cell(item).seed).unwrap_or(i64::MAX))),
            name => cell(item).get(name).cloned(),
        })
    });
    if items.is_empty() {
        return Err(Failure::new(exit::NO, format!("no run matches --only '{text}' (--dry-run shows the runs)")));
    }
    Ok(())
}
