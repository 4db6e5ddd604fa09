//! One step: gradients of a rank's shard, their sums over all ranks, and the update.

use super::plan::warming;
use super::{Trainer, Unread, WARM_UP};
use crate::TrainError;
use crate::gradient_readiness::{Mark, ReadyMarks, StagePasses};
use crate::number::wide;
use crate::ops::{clipped, scaled};
use crate::optimizer::gradient::{finite, shortening, squares};
use crate::parallel::{Pace, Sums};
use crate::parameters::ParamSpec;
use crate::task::{Gradients, Inner, Step};
use burn::tensor::Tensor;
use ledger_record::Digest;
use std::sync::atomic::{AtomicBool, Ordering};

impl Trainer<'_> {
    /// Runs one step. Returns `None` if the step was not done because the run is to stop.
    pub(super) fn step(
        &mut self,
        [number, pass]: [u64; 2],
        (indices, next): (&[usize], Option<&[usize]>),
        measured: bool,
        (pace, stop): (Pace, &AtomicBool),
    ) -> Result<Option<Unread>, TrainError> {
        let waits = measured || number == WARM_UP;
        // Twice the limit of a wait between ranks, so that the ranks that wait name the missing one.
        let watched = !self.drained && self.group.ranks() > 1;
        let limit = self.group.limit(pace, 1).filter(|_| watched).map(|limit| limit.saturating_mul(2));
        let wait_limit = self.group.limit(pace, 1);
        let inner =
            Inner { place: self.place, sink: self.sink, step: number, waits, tells: measured, limit, wait_limit };
        let scale = self.scaler.map_or(1.0, |scaler| scaler.scale());
        let next = next.map(|next| self.group.shard(next)).filter(|next| !next.is_empty());
        let (indices, lead, rank) = (self.group.shard(indices), self.group.leader_shard(indices), self.group.rank());
        // A step that is measured from inside waits between its phases, and the first steps compile.
        let groups = self.group.groups().filter(|_| !waits && number > WARM_UP);
        let groups = groups.as_deref();
        let is_whole = indices.len() >= self.spec.batch && !self.group.pipelined();
        let may_replay = is_whole && !self.drained && scale == 1.0 && !waits && number > WARM_UP;
        let step = Step { number, epoch: pass, rank, indices, lead, next, groups, may_replay, scale, inner };
        self.see(indices);
        let found = if indices.is_empty() { self.nothing() } else { self.task.gradients(&step, &self.parameters)? };
        let Gradients { loss, gradients, mean_of, mut marks } = found;
        let passes = std::mem::take(&mut marks.passes);
        if gradients.len() != self.parameters.len() {
            return Err(TrainError::Gradients { found: gradients.len(), expected: self.parameters.len() });
        }
        let mut share = Some(1.0);
        let sums = if self.group.ranks() == 1 {
            Sums::of(gradients)
        } else {
            if self.group.shards() > 1 && !waits && number > WARM_UP {
                marks.end = Some(Mark::of(&self.place.device(), true));
            }
            // If a device rejected work, the other ranks would wait for it. Report that before they do.
            self.place.check()?;
            let what = if self.group.pipelined() { "together" } else { "all_reduce" };
            inner.phase(what, || {
                share = self.group.share(number, pace, mean_of, stop.load(Ordering::Relaxed))?;
                let sums = match share {
                    Some(share) => self.group.sum_gradients(number, pace, (gradients, marks), share)?,
                    None => Sums::of(gradients),
                };
                // A step that is measured from inside needs all sums within this phase.
                Ok(if waits { Sums::of(sums.all()) } else { sums })
            })?
        };
        let Some(share) = share else { return Ok(None) };
        let rate = self.spec.learning_rate * self.spec.schedule.factor(number, pass, self.plan.steps);
        let rate = rate * warming(number, self.spec.warmup);
        let timed = !passes.is_empty();
        let update = inner.phase("optimizer", || self.update((number, pace, timed), sums, rate, scale))?;
        let passes = update.map(|update| StagePasses { borders: passes, update });
        self.group.begin();
        Ok(Some(Unread { step: number, loss, share, pace, passes }))
    }

    /// Updates the digest of the samples of a rank, so that the record shows that each rank had its own.
    fn see(&mut self, indices: &[usize]) {
        if self.group.shards() > 1 {
            let bytes: Vec<u8> = indices.iter().flat_map(|index| wide(*index).to_le_bytes()).collect();
            self.seen = Digest::of_pieces("ledger shard v1", &[&self.seen.0, &bytes]);
        }
    }

    /// Returns the contribution of a rank without samples in this step.
    fn nothing(&self) -> Gradients {
        let device = self.place.device();
        let zeros = |param_spec: &ParamSpec| Tensor::zeros([param_spec.len()], &device);
        let gradients = self.task.param_specs().iter().map(zeros).collect();
        Gradients { loss: Tensor::zeros([1], &device), gradients, mean_of: Some(0), marks: ReadyMarks::default() }
    }

    /// Updates the parameters. Returns the marks around the update if it is timed and was done.
    fn update(
        &mut self,
        (step, pace, timed): (u64, Pace, bool),
        sums: Sums,
        rate: f64,
        scale: f64,
    ) -> Result<Option<[Mark; 2]>, TrainError> {
        let unread = |source| TrainError::read("the gradients", source);
        let mut sums = sums;
        if let Some(scaler) = &mut self.scaler {
            let gradients = sums.all();
            let finite = finite(&gradients).map_err(unread)?;
            // All ranks have the same gradients. They agree on the decision in case a device erred.
            if !scaler.take(self.group.all_agree("scale", step, pace, finite)?) {
                return Ok(None);
            }
            sums = Sums::of(scaled(gradients, 1.0 / scale));
        }
        if let Some(norm) = self.spec.clip_norm {
            let gradients = sums.all();
            sums = Sums::of(if self.group.pipelined() {
                let owned = gradients.iter().zip(self.task.owned()).filter(|(_, owned)| *owned);
                let mine = squares(&owned.map(|(gradient, _)| gradient.clone()).collect::<Vec<_>>()).map_err(unread)?;
                let all = self.group.sum("norm", step, pace, mine)?;
                scaled(gradients, shortening(all, norm))
            } else {
                clipped(gradients, norm)
            });
        }
        // After the stages' waits for each other.
        let before = timed.then(|| Mark::of(&self.place.device(), true));
        self.optimizer
            .step(&mut self.parameters, sums.parts(), rate)
            .map_err(|source| TrainError::read("the parameters", source))?;
        Ok(before.map(|before| [before, Mark::of(&self.place.device(), true)]))
    }
}
