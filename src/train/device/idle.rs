//! The pause in which a device's idle power is measured: its context is open, everything is uploaded, nothing runs.
//!
//! Knows a clock and a stop flag. The measuring itself is done elsewhere.

use crate::Sink;
use crate::number::real;
use ledger_record::{EventKind, PhaseEdge};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The time in which a GPU settles after its last work; it precedes the phase.
const SETTLE_NS: u64 = 500_000_000;

/// The longest delay before a stop is noticed.
const SLICE_NS: u64 = 10_000_000;

/// Waits `idle_ns` in a phase `idle`, after a time to settle. Returns false if it was asked to stop meanwhile. 0 ns
/// give no phase.
pub fn rest(sink: &dyn Sink, stop: &AtomicBool, idle_ns: u64) -> bool {
    if idle_ns == 0 {
        return true;
    }
    sink.emit(EventKind::Status { message: format!("measuring the idle power for {} s", real(idle_ns) / 1e9) });
    if !wait(sink, stop, SETTLE_NS) {
        return false;
    }
    let phase = |edge| sink.emit(EventKind::Phase { name: "idle".to_owned(), index: 1, edge });
    phase(PhaseEdge::Start);
    let rested = wait(sink, stop, idle_ns);
    phase(PhaseEdge::Stop);
    rested
}

fn wait(sink: &dyn Sink, stop: &AtomicBool, time_ns: u64) -> bool {
    let end_ns = sink.now_ns().saturating_add(time_ns);
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        match end_ns.saturating_sub(sink.now_ns()) {
            0 => return true,
            left_ns => std::thread::sleep(Duration::from_nanos(left_ns.min(SLICE_NS))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::EventLog;

    fn told(log: &EventLog) -> Vec<String> {
        let line = |event: &EventKind| match event {
            EventKind::Status { message } => message.clone(),
            EventKind::Phase { name, index, edge } => format!("{name} {index} {edge:?}"),
            other => format!("{other:?}"),
        };
        log.events().iter().map(line).collect()
    }

    #[test]
    fn the_phase_has_the_requested_length_and_begins_after_the_time_to_settle() {
        let log = EventLog::default();
        assert!(rest(&log, &AtomicBool::new(false), 1_500_000_000));
        assert_eq!(told(&log), ["measuring the idle power for 1.5 s", "idle 1 Start", "idle 1 Stop"]);
        let times: Vec<u64> = log.0.lock().expect("no panic").iter().map(|(t_ns, _)| *t_ns).collect();
        assert!(times[1] - times[0] >= 500_000_000, "{times:?}");
        assert!((1_500_000_000..2_000_000_000).contains(&(times[2] - times[1])), "{times:?}");
    }

    #[test]
    fn no_time_is_no_phase() {
        let log = EventLog::default();
        assert!(rest(&log, &AtomicBool::new(false), 0));
        assert_eq!(log.events(), []);
    }

    #[test]
    fn a_stop_ends_the_rest() {
        let log = EventLog::default();
        assert!(!rest(&log, &AtomicBool::new(true), u64::MAX));
        assert_eq!(told(&log).len(), 1);
    }
}
