//! The libraries that a worker has loaded: listed several times while it runs, hashed when it is over.

use super::Stop;
use super::container::Image;
use crate::host::mapped::Mapped;
use crate::host::sums::Sums;
use crate::record::Table;
use std::time::{Duration, Instant};

/// The time of the first listing. Most libraries are loaded at the start, so each listing comes three times as late as
/// the one before.
const FIRST: Duration = Duration::from_millis(40);
const FACTOR: u32 = 3;
/// How long hashing may take.
const BUDGET: Duration = Duration::from_secs(30);

/// The libraries of a worker.
pub(super) struct Libraries {
    mapped: Mapped,
    started: Instant,
    next: Duration,
}

impl Libraries {
    /// For a worker that starts now, in an image or on the host.
    pub(super) fn new(image: Option<&Image>) -> Self {
        let mapped = image.map(|image| Mapped::contained(image.bound_folders())).unwrap_or_default();
        Self { mapped, started: Instant::now(), next: FIRST }
    }

    /// Lists the libraries if it is time to.
    pub(super) fn look(&mut self, worker: u32) {
        if self.started.elapsed() >= self.next {
            self.mapped.look(worker);
            self.next = self.started.elapsed().saturating_mul(FACTOR);
        }
    }

    /// The facts about the libraries. Computes missing checksums now, because nothing is measured any more.
    ///
    /// The attempt's end is not recorded yet, so this stops after a request to stop or a time limit. The next attempt
    /// computes the rest.
    pub(super) fn facts(&self, stop: &dyn Stop) -> Table {
        let mut sums = Sums::of_user();
        let since = Instant::now();
        let facts = self.mapped.facts(&mut sums, &|| stop.asked() > 0 || since.elapsed() >= BUDGET);
        sums.keep();
        facts
    }
}
