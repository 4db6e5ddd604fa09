//! Samples of the next step, made on a thread while the device works on this one.

use super::Step;
use crate::DataError;
use crate::device::Place;
use std::thread::JoinHandle;

/// Makes samples ahead, where the device has a queue: there the host would wait otherwise.
pub struct Ahead<S> {
    waiting: Option<(u64, JoinHandle<Result<S, DataError>>)>,
}

impl<S: Send + 'static> Ahead<S> {
    /// Nothing is made yet.
    pub fn new() -> Self {
        Self { waiting: None }
    }

    /// The samples of a step. `make` is a function of the epoch and the samples' indices alone.
    pub fn take<F>(&mut self, step: &Step<'_>, make: F) -> Result<S, DataError>
    where
        F: Fn(u64, &[usize]) -> Result<S, DataError> + Send + 'static,
    {
        let waiting = self.waiting.take().filter(|(number, _)| *number == step.number);
        let samples = match waiting.map(|(_, made)| made.join()) {
            Some(Ok(samples)) => samples?,
            // A thread that panicked made nothing: what it could not do is done here, where a panic is told.
            Some(Err(_)) | None => make(step.epoch, step.indices)?,
        };
        if let (Place::Device(_), Some(next)) = (step.inner.place, step.next) {
            let (epoch, indices) = (step.epoch, next.to_vec());
            self.waiting = Some((step.number + 1, std::thread::spawn(move || make(epoch, &indices))));
        }
        Ok(samples)
    }
}
