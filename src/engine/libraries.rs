//! Which libraries a worker has loaded: looked at some times while it runs, read when it is over.

use super::Stop;
use super::container::Image;
use crate::host::mapped::Mapped;
use crate::host::sums::Sums;
use crate::record::Table;
use std::time::{Duration, Instant};

/// Programs load their libraries at their beginning, and some when they need them first: each look comes three times as late as the one before.
const FIRST: Duration = Duration::from_millis(40);
const FACTOR: u32 = 3;
/// How long reading them may take.
const BUDGET: Duration = Duration::from_secs(30);

/// Looks at a worker's libraries from time to time.
pub(super) struct Libraries {
    mapped: Mapped,
    started: Instant,
    next: Duration,
}

impl Libraries {
    /// Of a worker that starts now, in an image or not.
    pub(super) fn new(image: Option<&Image>) -> Self {
        let mapped = image.map(|image| Mapped::contained(image.bound_folders())).unwrap_or_default();
        Self { mapped, started: Instant::now(), next: FIRST }
    }

    /// Looks, if it is time to.
    pub(super) fn look(&mut self, worker: u32) {
        if self.started.elapsed() >= self.next {
            self.mapped.look(worker);
            self.next = self.started.elapsed().saturating_mul(FACTOR);
        }
    }

    /// What was seen. Sums that are not known yet are computed: the worker is gone, and nothing is measured any more. But how it ended is not written down yet, so that this
    /// ends when somebody asks to stop, and in any case soon; the next attempt goes on with what is left.
    pub(super) fn facts(&self, stop: &dyn Stop) -> Table {
        let mut sums = Sums::of_user();
        let since = Instant::now();
        let facts = self.mapped.facts(&mut sums, &|| stop.asked() > 0 || since.elapsed() >= BUDGET);
        sums.keep();
        facts
    }
}
