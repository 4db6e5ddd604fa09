//! The positions of a batch that have targets, such as the masked tokens of BERT. Some models compute outputs only
//! there.

use crate::data::dataset::Dataset;
use crate::forward_context::{ForwardContext, int_tensor};
use crate::models::Model;
use crate::native::step_graph::{Operand, Operands};
use burn::tensor::{Device, Int, Tensor};

/// The positions of a training step that have targets, on a device.
#[derive(Clone)]
pub struct TargetPositions {
    /// The positions; `None` for all.
    positions: Option<Tensor<1, Int>>,
    /// The target class of each; negative for positions that do not count.
    targets: Tensor<1, Int>,
}

impl TargetPositions {
    /// The positions of targets of whole rows. If the model supports it, each row is padded to the largest number of
    /// targets in a row of this data, so that the shape is always the same.
    pub fn of(targets: &[i32], model: &dyn Model, data: &dyn Dataset, device: &Device) -> Self {
        let (width, most) = (data.width(), data.max_targets());
        if !model.selects_positions() || most >= width {
            return Self { positions: None, targets: int_tensor(targets, [targets.len()], device) };
        }
        let (positions, targets) = chosen(targets, width, most);
        let shape = [targets.len()];
        Self { positions: Some(int_tensor(&positions, shape, device)), targets: int_tensor(&targets, shape, device) }
    }

    /// Limits a forward pass to the positions, and returns their targets on its tape.
    pub fn select(self, ctx: &mut ForwardContext<'_>) -> Tensor<1, Int> {
        let Self { positions, targets } = self;
        if let Some(positions) = positions {
            ctx.select_positions(positions);
        }
        ctx.indices(targets)
    }
}

impl Operands for TargetPositions {
    fn operands(&self) -> Option<Vec<Operand>> {
        let Self { positions, targets } = self;
        Some([positions.operands()?, targets.operands()?].concat())
    }
}

/// Returns the positions of the targets that count and their classes, for each row of `width` targets. A row with fewer
/// than `most` is padded with its first position, which then does not count.
fn chosen(targets: &[i32], width: usize, most: usize) -> (Vec<i32>, Vec<i32>) {
    let (mut positions, mut classes) = (Vec::new(), Vec::new());
    for (row, targets) in targets.chunks(width.max(1)).enumerate() {
        let place = |column: usize| i32::try_from(row * width + column).unwrap_or(i32::MAX);
        let counting = targets.iter().enumerate().filter(|(_, target)| **target >= 0);
        let found: Vec<(i32, i32)> = counting.map(|(column, target)| (place(column), *target)).collect();
        assert!(found.len() <= most, "a row has {} targets and its data states {most} at most", found.len());
        let rest = std::iter::repeat_n((place(0), -1), most - found.len());
        let (more_positions, more_classes): (Vec<i32>, Vec<i32>) = found.into_iter().chain(rest).unzip();
        positions.extend(more_positions);
        classes.extend(more_classes);
    }
    (positions, classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_with_a_target_are_chosen_and_rows_filled_up() {
        let targets = [-1, 7, -1, 4, -1, -1, -1, -1, -1, -1, -1, 9];
        let (positions, classes) = chosen(&targets, 4, 2);
        assert_eq!(positions, [1, 3, 4, 4, 11, 8]);
        assert_eq!(classes, [7, 4, -1, -1, 9, -1]);
    }

    #[test]
    #[should_panic(expected = "3 targets")]
    fn more_targets_than_stated_are_a_fault() {
        chosen(&[1, 2, 3, -1], 4, 2);
    }
}
