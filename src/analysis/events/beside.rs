//! Joins the GPUs of an attempt with the events of one name: the events' length, and the readings of each GPU meanwhile.

use super::machines::Machines;
use super::{Mean, longest};
use crate::analysis::statistic::seconds;
use crate::analysis::telemetry::Kind;
use crate::record::{Sealed, Series};
use std::collections::BTreeMap;

/// Events of one name, by the rank that they happened on.
pub struct Beside<'a> {
    machines: Machines<'a>,
    event: Option<&'a str>,
    intervals: BTreeMap<u32, Vec<(u64, u64)>>,
    is_cluster: bool,
}

impl<'a> Beside<'a> {
    /// Takes the events of a name; without one, those of the name with the longest total time.
    pub fn new(sealed: &'a Sealed, event: Option<&'a str>) -> Self {
        let event = event.or_else(|| longest(&sealed.phases));
        let mut intervals: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for phase in sealed.phases.iter().filter(|phase| Some(phase.name.as_str()) == event) {
            // An event that was never stopped has no length.
            if let Some(stop_ns) = phase.stop_ns {
                intervals.entry(phase.rank).or_default().push((phase.start_ns, stop_ns.max(phase.start_ns)));
            }
        }
        let is_cluster = sealed.attempt.facts.contains_key("cluster");
        Self { machines: Machines::new(sealed), event, intervals, is_cluster }
    }

    /// The name of the events; `None` if there are no events.
    pub fn event(&self) -> Option<&'a str> {
        self.event
    }

    /// The name of a GPU of an imported cluster: its serial number, with its host if several GPUs have the same. `None`
    /// for a GPU of ledger's own runs.
    pub fn name_of(&self, gpu: u32) -> Option<String> {
        let machine = self.machines.find(gpu).filter(|_| self.is_cluster)?;
        if self.machines.has_twice(&machine.serial) {
            return Some(format!("{} on {}", machine.serial, self.machines.host(machine.host)));
        }
        Some(machine.serial.clone())
    }

    /// The mean length in seconds of the events of a rank.
    pub fn length_of_rank_s(&self, rank: u32) -> Option<f64> {
        let intervals = self.intervals.get(&rank)?;
        Mean::of(intervals.iter().map(|(start, stop)| seconds(stop - start))).value()
    }

    /// The mean length in seconds of a GPU's events.
    pub fn length_s(&self, gpu: u32) -> Option<f64> {
        self.length_of_rank_s(self.machines.rank_beside(gpu)?)
    }

    /// The mean over a GPU's events of the mean reading from start to stop, both included. An event without readings is
    /// left out. `None` for counters and flags, whose readings have no mean.
    pub fn reading(&self, gpu: u32, series: &Series) -> Option<f64> {
        if Kind::of(&series.name) != Kind::Level {
            return None;
        }
        let intervals = self.intervals.get(&self.machines.rank_beside(gpu)?)?;
        let within = |(start, stop): &(u64, u64)| {
            let from = series.positions.partition_point(|position| position < start);
            let to = series.positions.partition_point(|position| position <= stop);
            let finite = series.values.get(from..to)?.iter().copied().filter(|value| value.is_finite());
            Mean::of(finite).value()
        };
        Mean::of(intervals.iter().filter_map(within)).value()
    }
}

/// The mean of all readings of a level, without weights by time; `None` for counters and flags, and without readings.
pub fn mean_of_all(series: &Series) -> Option<f64> {
    if Kind::of(&series.name) != Kind::Level {
        return None;
    }
    Mean::of(series.values.iter().copied().filter(|value| value.is_finite())).value()
}
