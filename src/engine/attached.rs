//! A process that already runs as the worker of an attempt. Its events and telemetry are recorded, but it is never
//! signalled.

use super::bound::{Bound, Launch};
use super::halt::Halt;
use super::worker::Ended;
use super::{AttachedEnd, Stop};
use crate::host::clock::Moment;
use crate::host::owner::{Liveness, liveness};
use crate::record::{Exit, Outcome, Owner};

/// The exit of a process that did not report that it finished.
const UNSAID: Exit = Exit::Code(-1);

/// The attached process of an attempt.
pub(super) struct Attached<'a>(&'a Owner);

impl<'a> Attached<'a> {
    pub(super) fn of(bound: &'a Bound) -> Option<Self> {
        if let Launch::Attached(process) = &bound.launch { Some(Self(process)) } else { None }
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.pid
    }

    /// How the recording ended, if it has: by the process's report, by its death, or by this supervisor.
    pub(super) fn ended(&self, stop: &dyn Stop, is_broken: bool) -> Option<Ended> {
        let exit = match stop.attached_end() {
            Some(AttachedEnd::Finished) => Exit::Code(0),
            Some(AttachedEnd::Interrupted | AttachedEnd::Silent) => UNSAID,
            // A process whose state is unknown counts as alive.
            None if is_broken || stop.asked() > 0 || matches!(liveness(self.0), Ok(Liveness::Gone)) => UNSAID,
            None => return None,
        };
        Some(Ended { exit, at: Moment::now() })
    }

    pub(super) fn outcome(&self, exit: Exit, halt: Halt, stop: &dyn Stop) -> Outcome {
        let is_interrupted = stop.attached_end() == Some(AttachedEnd::Interrupted);
        match halt.failure {
            Some(reason) => Outcome::Failed { reason },
            None if exit == Exit::Code(0) => Outcome::Finished,
            None if is_interrupted => Outcome::Interrupted { reason: "it was stopped by Ctrl-C".to_owned() },
            None if halt.asked > 0 => Outcome::Interrupted { reason: format!("it was stopped {}", stop.by()) },
            None => Outcome::Interrupted { reason: "the process ended without `finish`".to_owned() },
        }
    }
}
