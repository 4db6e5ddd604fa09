//! The shape of the grid: its axes, the number of its points, and the points in order.

use super::draft::{Draft, Given};
use super::field::Role;
use super::table::FIELDS;
use std::collections::BTreeSet;

/// Most points that a grid may have.
pub(super) const MOST_CELLS: u128 = 100_000;

/// Axes that span a product: the manifest's own, or those of an entry of `grid.include`.
pub(super) struct Block {
    axes: Vec<Axis>,
}

/// Keys that vary together. A key with one value is an axis of length one.
struct Axis {
    /// Indices in [`Draft::given`].
    members: Vec<usize>,
    len: usize,
}

/// A point of the grid: one value for each key.
pub(super) struct Point {
    /// For each row of the field table, the index of the key and the index of its value.
    pub(super) fields: Vec<Option<(usize, usize)>>,
    /// The same for parameters, sorted by name.
    pub(super) params: Vec<(usize, usize)>,
}

/// Returns the manifest's own block, then one for each entry of `grid.include`.
pub(super) fn blocks(draft: &Draft) -> Vec<Block> {
    let mut blocks = vec![block(draft, &draft.base)];
    for entry in &draft.include {
        let named =
            |place: &usize| entry.given.iter().any(|other| draft.given[*other].name == draft.given[*place].name);
        let kept = draft.base.iter().filter(|place| !named(place));
        blocks.push(block(draft, &kept.chain(&entry.given).copied().collect::<Vec<_>>()));
    }
    blocks
}

fn block(draft: &Draft, places: &[usize]) -> Block {
    let mut places: Vec<usize> =
        places.iter().copied().filter(|place| draft.given[*place].field.is_of_cell()).collect();
    places.sort_by_key(|place| order(&draft.given[*place]));
    let mut axes: Vec<Axis> = Vec::new();
    let mut taken = BTreeSet::new();
    for place in &places {
        if taken.contains(place) {
            continue;
        }
        let members = match draft.zip.iter().find(|group| group.given.contains(place)) {
            Some(group) => places.iter().copied().filter(|member| group.given.contains(member)).collect(),
            None => vec![*place],
        };
        taken.extend(members.iter().copied());
        axes.push(Axis { members, len: draft.given[*place].items.len() });
    }
    Block { axes }
}

/// Returns a sort key: the order of the field table, parameters by name, the seed last.
fn order(given: &Given) -> (usize, &str) {
    match given.field.role {
        Role::Seed => (usize::MAX, ""),
        _ => (row(given), given.name.as_str()),
    }
}

fn row(given: &Given) -> usize {
    FIELDS.iter().position(|field| std::ptr::eq(field, given.field)).unwrap_or(FIELDS.len())
}

/// Returns the number of points in all blocks; `None` if it does not fit in 128 bits.
pub(super) fn count(blocks: &[Block]) -> Option<u128> {
    blocks.iter().try_fold(0_u128, |sum, block| {
        let product =
            block.axes.iter().try_fold(1_u128, |product, axis| product.checked_mul(u128::try_from(axis.len).ok()?))?;
        sum.checked_add(product)
    })
}

impl Block {
    /// Calls `visit` for every point; later axes vary faster.
    pub(super) fn points(&self, draft: &Draft, mut visit: impl FnMut(&Point)) {
        let rows: Vec<Vec<Option<usize>>> = self
            .axes
            .iter()
            .map(|axis| {
                let row_of = |place: &usize| {
                    let given = &draft.given[*place];
                    (!given.name.starts_with("params.")).then(|| row(given))
                };
                axis.members.iter().map(row_of).collect()
            })
            .collect();
        let mut digits = vec![0_usize; self.axes.len()];
        loop {
            let mut point = Point { fields: vec![None; FIELDS.len()], params: Vec::new() };
            for ((axis, rows), digit) in self.axes.iter().zip(&rows).zip(&digits) {
                for (place, row) in axis.members.iter().zip(rows) {
                    match row {
                        Some(row) => point.fields[*row] = Some((*place, *digit)),
                        None => point.params.push((*place, *digit)),
                    }
                }
            }
            visit(&point);
            let Some(turned) = (0..digits.len()).rev().find(|axis| digits[*axis] + 1 < self.axes[*axis].len) else {
                return;
            };
            digits[turned] += 1;
            digits[turned + 1..].fill(0);
        }
    }
}
