//! The number of steps and epochs of a run.

use crate::number::{real, wide};
use crate::spec::{Length, Spec};
use crate::task::Task;

/// The number of steps and epochs of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Steps of the optimiser.
    pub steps: u64,
    /// Epochs; the last may be cut short.
    pub epochs: u64,
    /// Steps of each epoch but the last.
    pub steps_per_epoch: u64,
}

impl Plan {
    /// The plan of a run whose ranks together take `batch` samples a step.
    pub fn new(spec: &Spec, task: &dyn Task, batch: usize) -> Self {
        let pass = wide(task.samples().div_ceil(batch.max(1)));
        let steps = match spec.length {
            Length::Epochs(epochs) => epochs.saturating_mul(pass),
            Length::Steps(steps) => steps,
        };
        let steps_per_epoch = if task.is_full_batch() { steps } else { pass };
        Self { steps, epochs: steps.div_ceil(steps_per_epoch.max(1)), steps_per_epoch }
    }

    /// Returns the last step of an epoch.
    pub fn last_of(self, epoch: u64) -> u64 {
        epoch.saturating_mul(self.steps_per_epoch).min(self.steps)
    }
}

/// Returns the warm-up factor of the learning rate: it rises linearly to 1 at step `warmup` (Goyal et al. 2017, section
/// 2.2).
pub fn warming(step: u64, warmup: u64) -> f64 {
    if step < warmup { real(step) / real(warmup) } else { 1.0 }
}
