//! How a worker is asked to stop, and made to.

use super::Stop;
use super::worker::Worker;
use crate::host::process;
use crate::record::Exit;
use std::time::{Duration, Instant};

/// How long a request to stop may take to arrive here after it has ended the worker.
const LATE_REQUEST: Duration = Duration::from_millis(500);
/// How often to look whether a request arrived.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Why and how far a worker has been asked to stop.
#[derive(Default)]
pub(super) struct Halt {
    /// How often.
    pub(super) asked: u32,
    /// Whether the worker was killed.
    pub(super) killed: bool,
    /// Why the attempt has failed, if it was ended for that.
    pub(super) failure: Option<String>,
    /// Whether it was told.
    told: bool,
}

impl Halt {
    /// The attempt has failed; the first reason stands.
    pub(super) fn failed(&mut self, reason: String) {
        self.failure.get_or_insert(reason);
    }

    /// A scheduler that ends a job signals each of its processes: the worker may be gone before we have been told ourselves.
    pub(super) fn hear_late(&mut self, stop: &dyn Stop, exit: Exit) {
        let asks = [process::Signal::Interrupt, process::Signal::Terminate].map(process::Signal::number);
        let by_request = matches!(exit, Exit::Signal(signal) if asks.contains(&signal));
        let since = Instant::now();
        while self.asked == 0 && by_request && stop.asked() == 0 && since.elapsed() < LATE_REQUEST {
            std::thread::sleep(LOOK_EVERY);
        }
        self.asked = self.asked.max(stop.asked());
    }

    /// Passes on what was asked: an interruption first, then the end.
    pub(super) fn heed(&mut self, stop: &dyn Stop, worker: &Worker) {
        let asked = stop.asked();
        if asked > 0 && !self.told {
            self.told = true;
            worker.signal(process::Signal::Interrupt);
        }
        self.asked = asked;
        let late = stop.time_left().is_some_and(|left| left.is_zero());
        if !self.killed && (self.failure.is_some() || asked > 1 || late) {
            self.killed = true;
            worker.signal(process::Signal::Kill);
        }
    }
}
