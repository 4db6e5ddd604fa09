//! A few steps that are discarded: they compile and tune kernels, so that other devices find them in the cache.

use super::{ALONE, Trainer, WARM_UP};
use crate::device::Place;
use crate::parallel::ProcessGroup;
use crate::spec::{Length, Spec};
use crate::task::Task;
use crate::{Finish, Sink, TrainError};
use std::sync::atomic::AtomicBool;

/// Runs the first steps of a run on one device and discards them; fewer if its kernels are tuned and only have to be
/// loaded. The sink receives their events. The task must not be used again.
///
/// # Errors
/// If a step fails.
pub fn rehearse(
    spec: &Spec,
    task: Box<dyn Task>,
    place: &Place,
    sink: &dyn Sink,
    stop: &AtomicBool,
    tuned: bool,
) -> Result<Finish, TrainError> {
    let steps = if tuned { ALONE } else { WARM_UP };
    let spec = Spec { length: Length::Steps(steps), ranks: 1, ..spec.clone() };
    let mut trainer = Trainer::new(ProcessGroup::single(), &spec, task, place, sink)?;
    let finish = (1..=trainer.plan.epochs).try_fold(Finish::Done, |before, epoch| match before {
        Finish::Stopped => Ok(Finish::Stopped),
        Finish::Done => trainer.epoch(epoch, stop),
    })?;
    place.sync()?;
    Ok(finish)
}
