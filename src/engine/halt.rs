//! Stops a worker: first with a request, then by force.

use super::Stop;
use super::worker::Worker;
use crate::host::process;
use crate::record::Exit;
use std::time::{Duration, Instant};

/// How long a request to stop may take to arrive here after it ended the worker.
const LATE_REQUEST: Duration = Duration::from_millis(500);
/// The polling interval for a request.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The state of stopping a worker.
#[derive(Default)]
pub(super) struct Halt {
    /// The number of requests.
    pub(super) asked: u32,
    /// Whether the worker was killed.
    pub(super) killed: bool,
    /// Why the attempt failed, if it was ended for that.
    pub(super) failure: Option<String>,
    /// Whether the worker was signalled.
    told: bool,
}

impl Halt {
    /// Records why the attempt failed. The first reason is kept.
    pub(super) fn failed(&mut self, reason: String) {
        self.failure.get_or_insert(reason);
    }

    /// Waits briefly for a request after the worker was ended by its signal: a scheduler signals each process of a job,
    /// and the worker may be gone before this one is signalled.
    pub(super) fn hear_late(&mut self, stop: &dyn Stop, exit: Exit) {
        let asks = [process::Signal::Interrupt, process::Signal::Terminate].map(process::Signal::number);
        let by_request = matches!(exit, Exit::Signal(signal) if asks.contains(&signal));
        let since = Instant::now();
        while self.asked == 0 && by_request && stop.asked() == 0 && since.elapsed() < LATE_REQUEST {
            std::thread::sleep(LOOK_EVERY);
        }
        self.asked = self.asked.max(stop.asked());
    }

    /// Passes requests on to the worker: SIGINT first, then SIGKILL.
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
