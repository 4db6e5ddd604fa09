//! The load for calibrating the power sensors of a GPU: the whole GPU is busy and idle at known times.
//!
//! Knows the on and off times. The kernel keeps the GPU busy, and the sensors are read elsewhere.

use crate::native::Fault;
use crate::native::load::Load;
use crate::{Finish, Sink, TrainError};
use ledger_record::{EventKind, PhaseEdge};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The longest delay before a stop is noticed.
const SLICE_NS: u64 = 5_000_000;

/// Work that keeps a GPU busy.
trait Kernel {
    /// Keeps the whole GPU busy for `on_ns` nanoseconds and waits until it is idle. Returns the start and the end of
    /// the work by the sink's clock, as close to the GPU's own times as the host can measure.
    ///
    /// # Errors
    /// If the GPU fails.
    fn run(&mut self, on_ns: u64, sink: &dyn Sink) -> Result<(u64, u64), TrainError>;
}

fn failed(fault: Fault) -> TrainError {
    TrainError::Load { reason: fault.to_string() }
}

impl Kernel for Load {
    fn run(&mut self, on_ns: u64, sink: &dyn Sink) -> Result<(u64, u64), TrainError> {
        let start_ns = sink.now_ns();
        self.work(Duration::from_nanos(on_ns)).map_err(failed)?;
        Ok((start_ns, sink.now_ns()))
    }
}

/// Puts a load on the first visible GPU: on and off for these nanoseconds, one pair after the other. Reports each pulse
/// as a phase `load`, numbered by its pair, once the pulse is over. `stop` is checked before each pulse and during
/// breaks.
///
/// # Errors
/// If the GPU cannot be used or fails.
pub fn load(pulses: &[(u64, u64)], sink: &dyn Sink, stop: &AtomicBool) -> Result<Finish, TrainError> {
    let mut load = Load::on(0).map_err(failed)?;
    // A first short load initialises everything.
    load.work(Duration::from_micros(1)).map_err(failed)?;
    follow(&mut load, pulses, sink, stop)
}

fn follow(
    kernel: &mut dyn Kernel,
    pulses: &[(u64, u64)],
    sink: &dyn Sink,
    stop: &AtomicBool,
) -> Result<Finish, TrainError> {
    for (index, (on_ns, off_ns)) in (1..).zip(pulses) {
        if stop.load(Ordering::Relaxed) {
            return Ok(Finish::Stopped);
        }
        let (start_ns, stop_ns) = kernel.run(*on_ns, sink)?;
        for (t_ns, edge) in [(start_ns, PhaseEdge::Start), (stop_ns, PhaseEdge::Stop)] {
            sink.emit_at(t_ns, EventKind::Phase { name: "load".to_owned(), index, edge });
        }
        let next_ns = stop_ns.saturating_add(*off_ns);
        while let left @ 1.. = next_ns.saturating_sub(sink.now_ns()) {
            if stop.load(Ordering::Relaxed) {
                return Ok(Finish::Stopped);
            }
            std::thread::sleep(Duration::from_nanos(left.min(SLICE_NS)));
        }
    }
    Ok(Finish::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::time::Instant;

    struct Told {
        begun: Instant,
        phases: Mutex<Vec<(u64, u64, PhaseEdge)>>,
    }

    impl Sink for Told {
        fn now_ns(&self) -> u64 {
            u64::try_from(self.begun.elapsed().as_nanos()).unwrap()
        }

        fn emit_from(&self, _rank: usize, t_ns: u64, kind: EventKind) {
            let EventKind::Phase { name, index, edge } = kind else { return };
            assert_eq!(name, "load");
            self.phases.lock().unwrap().push((t_ns, index, edge));
        }
    }

    struct Sleeper;

    impl Kernel for Sleeper {
        fn run(&mut self, on_ns: u64, sink: &dyn Sink) -> Result<(u64, u64), TrainError> {
            let start_ns = sink.now_ns();
            std::thread::sleep(Duration::from_nanos(on_ns));
            Ok((start_ns, sink.now_ns()))
        }
    }

    #[test]
    fn pulses_follow_each_other_until_a_stop() {
        const MS: u64 = 1_000_000;
        let sink = Told { begun: Instant::now(), phases: Mutex::default() };
        let stop = AtomicBool::new(false);
        let pulses = [(20 * MS, 30 * MS), (5 * MS, 12 * MS)];
        assert_eq!(follow(&mut Sleeper, &pulses, &sink, &stop).unwrap(), Finish::Done);
        assert!(sink.now_ns() >= 67 * MS, "the last break is waited for");
        let told = sink.phases.lock().unwrap().clone();
        let what: Vec<_> = told.iter().map(|(_, index, edge)| (*index, *edge)).collect();
        assert_eq!(what, [(1, PhaseEdge::Start), (1, PhaseEdge::Stop), (2, PhaseEdge::Start), (2, PhaseEdge::Stop)]);
        assert!(told[1].0 - told[0].0 >= 20 * MS && told[2].0 - told[1].0 >= 30 * MS, "{told:?}");
        stop.store(true, Ordering::Relaxed);
        assert_eq!(follow(&mut Sleeper, &pulses, &sink, &stop).unwrap(), Finish::Stopped);
        assert_eq!(sink.phases.lock().unwrap().len(), 4);
    }
}
