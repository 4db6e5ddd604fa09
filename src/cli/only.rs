//! `--only`: the cells that a condition selects.

use super::failure::{Failure, exit};
use crate::analysis::expr::Expr;
use crate::record::{Cell, Value};
use std::collections::BTreeSet;

/// Keeps the items whose cells match.
pub(super) fn only<T>(text: &str, items: &mut Vec<T>, cell: impl Fn(&T) -> &Cell) -> Result<(), Failure> {
    let names: BTreeSet<String> = items
        .iter()
        .flat_map(|item| cell(item).config.keys().chain(cell(item).settings.keys()).cloned())
        .chain(["seed".to_owned()])
        .collect();
    let only = Expr::parse(text, &names).map_err(|error| Failure::new(exit::USAGE, format!("--only: {error}")))?;
    items.retain(|item| {
        only.matches(&|name| match name {
            // A seed above `i64` is a text, as in an expression.
            "seed" => {
                Some(i64::try_from(cell(item).seed).map_or_else(|_| cell(item).seed.to_string().into(), Value::Int))
            }
            name => cell(item).get(name).cloned(),
        })
    });
    if items.is_empty() {
        return Err(Failure::new(exit::NO, format!("no run matches --only '{text}' (--dry-run shows the runs)")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Table;

    #[test]
    fn every_seed_can_be_selected() {
        let seeds = [7, i64::MAX.unsigned_abs(), i64::MAX.unsigned_abs() + 1, u64::MAX];
        let cell = |seed: u64| Cell { config: Table::new(), settings: Table::new(), seed };
        let kept = |text: &str| {
            let mut cells: Vec<Cell> = seeds.map(cell).to_vec();
            only(text, &mut cells, |cell| cell).unwrap();
            cells.iter().map(|cell| cell.seed).collect::<Vec<_>>()
        };
        for seed in seeds {
            assert_eq!(kept(&format!("seed == {seed}")), [seed]);
        }
        assert_eq!(kept("seed > 9223372036854775807"), seeds[2..]);
    }
}
