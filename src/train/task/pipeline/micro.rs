//! A step's samples, cut into micro-batches.

use super::PipelineStage;
use crate::TrainError;
use crate::data::dataset::{Inputs, Samples};
use crate::models::Input;
use crate::parallel::shard;
use crate::task::Step;
use crate::task::classification::{counted, standard_input};
use crate::task::target_positions::TargetPositions;
use std::sync::Arc;

/// A micro-batch on a stage.
pub(super) struct Micro {
    /// The input, on the first stage.
    pub(super) input: Option<Input>,
    /// The targets, on the last stage.
    pub(super) targets: Option<TargetPositions>,
}

impl PipelineStage {
    /// Returns the micro-batches of a step, and the number of targets that count in all of them.
    pub(super) fn micros(&mut self, step: &Step<'_>) -> Result<(Vec<Micro>, usize), TrainError> {
        let rows: Vec<usize> = (0..step.indices.len()).collect();
        let count = self.micro_batches;
        let parts = (0..count).map(|micro| shard(&rows, micro, count)).filter(|rows| !rows.is_empty());
        if !self.first() && !self.last() {
            return Ok((parts.map(|_| Micro { input: None, targets: None }).collect(), 0));
        }
        let (data, seed) = (Arc::clone(&self.data), self.seed);
        let samples = self.ahead.take(step, move |epoch, indices| data.train(seed, epoch, indices))?;
        let counted = counted(&samples.targets);
        let device = self.network.place.device();
        let of = |rows: &[usize]| {
            let Samples { inputs, targets } = part(&samples, rows);
            Micro {
                input: self.first().then(|| standard_input(inputs, &device)),
                targets: self.last().then(|| TargetPositions::of(&targets, &*self.network.model, &*self.data, &device)),
            }
        };
        Ok((parts.map(of).collect(), counted))
    }
}

/// Returns contiguous rows of samples.
pub(super) fn part(samples: &Samples, rows: &[usize]) -> Samples {
    fn cut<T: Clone>(values: &[T], all: usize, rows: &[usize]) -> Vec<T> {
        let each = values.len() / all.max(1);
        let start = rows.first().copied().unwrap_or(0) * each;
        values.get(start..start + rows.len() * each).unwrap_or_default().to_vec()
    }
    let (inputs, all) = match &samples.inputs {
        Inputs::Pictures { bytes, shape: [all, channels, height, width] } => {
            let shape = [rows.len(), *channels, *height, *width];
            (Inputs::Pictures { bytes: cut(bytes, *all, rows), shape }, *all)
        }
        Inputs::Tokens { ids, shape: [all, width] } => {
            (Inputs::Tokens { ids: cut(ids, *all, rows), shape: [rows.len(), *width] }, *all)
        }
    };
    Samples { targets: cut(&samples.targets, all, rows), inputs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_samples_keep_their_inputs_and_targets() {
        let tokens =
            Samples { inputs: Inputs::Tokens { ids: (0..12).collect(), shape: [4, 3] }, targets: (100..112).collect() };
        let cut = part(&tokens, &[1, 2]);
        assert_eq!(cut.inputs, Inputs::Tokens { ids: (3..9).collect(), shape: [2, 3] });
        assert_eq!(cut.targets, (103..109).collect::<Vec<i32>>());
        let pictures =
            Samples { inputs: Inputs::Pictures { bytes: (0..24).collect(), shape: [2, 3, 2, 2] }, targets: vec![7, 8] };
        let cut = part(&pictures, &[1]);
        assert_eq!(cut.inputs, Inputs::Pictures { bytes: (12..24).collect(), shape: [1, 3, 2, 2] });
        assert_eq!(cut.targets, [8]);
    }
}
