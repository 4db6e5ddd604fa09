//! Learning rate schedules.
//!
//! Knows step numbers only; the caller passes the epoch of a step.

use crate::number::real;
use std::f64::consts::PI;

/// A learning rate schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// The learning rate does not change.
    Constant,
    /// Multiplies the learning rate by `gamma` after every `every` epochs or steps (PyTorch's `StepLR`).
    Step {
        /// Number of epochs or steps.
        every: u64,
        /// The factor.
        gamma: f64,
        /// Whether epochs are counted instead of steps.
        epochs: bool,
    },
    /// Linear decay to 0 over the whole run (PyTorch's `LinearLR` to 0, advanced at every step).
    Linear,
    /// Cosine decay to 0 over the whole run (PyTorch's `CosineAnnealingLR`, advanced at every step, in closed form;
    /// Loshchilov and Hutter, arXiv:1608.03983, without restarts).
    Cosine,
}

impl Schedule {
    /// The factor of the initial learning rate at a step of a run of `steps` steps. `step` and `epoch` count from 1.
    pub fn factor(self, step: u64, epoch: u64, steps: u64) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Step { every, gamma, epochs } => {
                let done = if epochs { epoch } else { step }.saturating_sub(1);
                gamma.powf(real(done / every.max(1)))
            }
            Self::Linear => 1.0 - real(step.saturating_sub(1)) / real(steps.max(1)),
            Self::Cosine => 0.5 * (1.0 + (PI * real(step.saturating_sub(1)) / real(steps.max(1))).cos()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_decay_falls_by_the_same_amount_at_every_step() {
        let factors: Vec<f64> = (1..=4).map(|step| Schedule::Linear.factor(step, 1, 4)).collect();
        assert_eq!(factors, [1.0, 0.75, 0.5, 0.25]);
    }

    /// `torch.optim.lr_scheduler.CosineAnnealingLR(T_max=10)` at learning rate 1, before each of the ten steps.
    const COSINE: [f64; 10] = [
        1.0,
        0.975_528_258_147_576_8,
        0.904_508_497_187_473_7,
        0.793_892_626_146_236_6,
        0.654_508_497_187_473_7,
        0.5,
        0.345_491_502_812_526_3,
        0.206_107_373_853_763_44,
        0.095_491_502_812_526_3,
        0.024_471_741_852_423_23,
    ];

    #[test]
    fn cosine_decay_matches_pytorch() {
        for (step, want) in (1..).zip(COSINE) {
            assert!((Schedule::Cosine.factor(step, 1, 10) - want).abs() < 1e-15, "step {step}");
        }
    }

    #[test]
    fn step_decay_counts_steps_or_epochs() {
        let by_step = Schedule::Step { every: 3, gamma: 0.5, epochs: false };
        let factors: Vec<f64> = (1..=7).map(|step| by_step.factor(step, 1, 7)).collect();
        assert_eq!(factors, [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25]);
        let by_epoch = Schedule::Step { every: 2, gamma: 0.1, epochs: true };
        assert_eq!(by_epoch.factor(1000, 2, 2000), 1.0);
        assert_eq!(by_epoch.factor(1001, 3, 2000), 0.1);
    }
}
