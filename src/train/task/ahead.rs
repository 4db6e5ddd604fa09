//! Prefetching: a thread makes the samples of the next step while the device works on this one.

use super::Step;
use crate::DataError;
use crate::device::Place;
use std::thread::JoinHandle;

/// Prefetches samples if the device has a queue; the host would otherwise wait for the device.
pub struct Ahead<S> {
    waiting: Option<(u64, JoinHandle<Result<S, DataError>>)>,
}

impl<S: Send + 'static> Ahead<S> {
    /// A prefetcher without samples.
    pub fn new() -> Self {
        Self { waiting: None }
    }

    /// Returns the samples of a step. `make` must depend only on the epoch and the samples' indices.
    pub fn take<F>(&mut self, step: &Step<'_>, make: F) -> Result<S, DataError>
    where
        F: Fn(u64, &[usize]) -> Result<S, DataError> + Send + 'static,
    {
        let waiting = self.waiting.take().filter(|(number, _)| *number == step.number);
        let samples = match waiting.map(|(_, made)| made.join()) {
            Some(Ok(samples)) => samples?,
            // A thread that panicked made no samples. They are made again here, where a panic is reported.
            Some(Err(_)) | None => make(step.epoch, step.indices)?,
        };
        if let (Place::Device(_), Some(next)) = (step.inner.place, step.next) {
            let (epoch, indices) = (step.epoch, next.to_vec());
            self.waiting = Some((step.number + 1, std::thread::spawn(move || make(epoch, &indices))));
        }
        Ok(samples)
    }
}
