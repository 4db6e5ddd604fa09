//! Means of readings over events, grouped by the events' name, level, host or GPU.
//!
//! Joins each phase with every GPU of its host in two ways: by its interval, and by the readings nearest to its start
//! and its stop, which is the result of joining two tables by time. Knows only a sealed attempt.

mod around;
mod beside;
mod machines;
#[cfg(test)]
mod tests;

use super::correlate::Correlation;
use super::statistic::{real, seconds};
use super::training::warmup_among;
use crate::record::{Phase, Quantity, Sealed};
use around::{Around, around};
pub use beside::{Beside, mean_of_all};
use machines::Machines;
use std::collections::{BTreeMap, BTreeSet};

/// The quantities of the readings.
pub const EVENT_QUANTITIES: [Quantity; 4] =
    [Quantity::PowerInstant, Quantity::Temperature, Quantity::UtilizationGpu, Quantity::UtilizationMemory];

/// The property by which events are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Their name.
    Name,
    /// The level of their task.
    Level,
    /// The host on which they happened.
    Host,
    /// The GPU with which they are joined.
    Gpu,
}

impl By {
    /// The word in arguments and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Level => "level",
            Self::Host => "host",
            Self::Gpu => "gpu",
        }
    }
}

/// Why events cannot be grouped this way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventsFault {
    /// The attempt has no levels.
    #[error("no levels of tasks are recorded (`ledger import telemetry` takes them with --tasks)")]
    NoLevels,
    /// The attempt has no event of that name.
    #[error("no event is called `{name}` (there are: {})", names.join(", "))]
    NoEvent {
        /// The given name.
        name: String,
        /// The names of the attempt's events.
        names: Vec<String>,
    },
}

/// A mean, and the number of its values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: f64,
    /// The number of values.
    pub n: u64,
}

impl Mean {
    /// The mean of some values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut mean = Self::default();
        values.into_iter().for_each(|value| mean.add(Some(value)));
        mean
    }

    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.n += 1;
        }
    }

    /// The mean; `None` without values.
    pub fn value(self) -> Option<f64> {
        (self.n > 0).then(|| self.sum / real(self.n))
    }
}

/// The means of one quantity over a group's events.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QuantityMeans {
    /// The mean over the readings from start to stop, both included. An event without readings is left out.
    pub sample: Mean,
    /// The mean over the time from start to stop, with each reading held until the next.
    pub held: Mean,
    /// The mean over the time from start to stop, with linear interpolation between readings.
    pub linear: Mean,
    /// The mean of the two readings nearest to start and to stop.
    pub nearest: Mean,
}

/// A group of events.
#[derive(Clone, Debug, PartialEq)]
pub struct EventsRow {
    /// The common property of its events: a name, a level, a host, or a GPU's serial number.
    pub key: String,
    /// The host and the UUID, if the group is a GPU.
    pub gpu: Option<(String, String)>,
    /// The number of events.
    pub events: u64,
    /// The number of events with a reading from start to stop.
    pub sampled: u64,
    /// Their length in seconds.
    pub time_s: Mean,
    /// The means of each quantity, in the order of [`EVENT_QUANTITIES`].
    pub means: [QuantityMeans; EVENT_QUANTITIES.len()],
    /// The energy of one event in joules, with each power reading held until the next. It is that of all GPUs of the
    /// event together, or of the one GPU that the group is.
    pub energy_j: Mean,
    /// The number of events whose energy uses a reading held for more than ten usual intervals.
    pub held_long: u64,
    /// The distance in seconds of the readings nearest to start and to stop, the larger of the two.
    pub nearest_off_s: Mean,
}

/// The correlation of a quantity with the length of events over groups.
#[derive(Clone, Debug, PartialEq)]
pub struct LengthCorrelation {
    /// The quantity that is compared with the length of the events.
    pub quantity: Quantity,
    /// The number of groups that have both.
    pub n: usize,
    /// Pearson's coefficient; `None` if one of the two does not vary, and for fewer than three groups.
    pub pearson: Option<f64>,
    /// Spearman's coefficient.
    pub spearman: Option<f64>,
}

/// Groups of events, and the events that they leave out.
#[derive(Clone, Debug, PartialEq)]
pub struct Events {
    /// The property by which events are grouped.
    pub by: By,
    /// The name of the events that are counted; `None` if all are.
    pub event: Option<String>,
    /// The groups: names and levels in ascending order, hosts and GPUs from the slowest to the fastest.
    pub rows: Vec<EventsRow>,
    /// The correlations of the mean length with the mean readings, for hosts and GPUs.
    pub correlations: Vec<LengthCorrelation>,
    /// The number of events that were never stopped, which are in no mean.
    pub unstopped: u64,
    /// The numbers of hosts, GPUs and names of events.
    pub counts: (usize, usize, usize),
    /// The number of warm-up steps, which are included in the means; `None` if no event is a step.
    pub warmup_steps: Option<i64>,
}

/// Groups the events of an attempt.
///
/// `event` names the events that are counted. Without it, grouping by name counts all events. Other groupings count
/// those of the name with the longest total time, because other events lie within them.
///
/// # Errors
/// If there are no levels to group by, or no events of that name.
pub fn events_by(sealed: &Sealed, by: By, event: Option<&str>) -> Result<Events, EventsFault> {
    let machines = Machines::new(sealed);
    if by == By::Level && machines.levels.is_none() {
        return Err(EventsFault::NoLevels);
    }
    let names: BTreeSet<&str> = sealed.phases.iter().map(|phase| phase.name.as_str()).collect();
    let event = match event {
        Some(name) if !names.contains(name) => {
            let names = names.into_iter().map(str::to_owned).collect();
            return Err(EventsFault::NoEvent { name: name.to_owned(), names });
        }
        Some(name) => Some(name),
        None if by == By::Name => None,
        None => longest(&sealed.phases),
    };
    let mut groups: BTreeMap<(String, Option<usize>), EventsRow> = BTreeMap::new();
    let mut unstopped = 0;
    for phase in sealed.phases.iter().filter(|phase| event.is_none_or(|event| phase.name == event)) {
        let Some(stop_ns) = phase.stop_ns.map(|stop_ns| stop_ns.max(phase.start_ns)) else {
            unstopped += 1;
            continue;
        };
        let gpus = machines.gpus_of(phase.rank);
        let joined: Vec<Joined> = gpus.iter().map(|gpu| join(machines.gpu(*gpu), phase.start_ns, stop_ns)).collect();
        let length_ns = stop_ns - phase.start_ns;
        if by == By::Gpu {
            for (gpu, joined) in gpus.iter().zip(&joined) {
                let machine = machines.gpu(*gpu);
                let row = groups.entry((machine.serial.clone(), Some(*gpu))).or_insert_with(|| {
                    let host = machines.host(machine.host).to_owned();
                    EventsRow { gpu: Some((host, machine.uuid.clone())), ..EventsRow::new(machine.serial.clone()) }
                });
                row.take(length_ns, std::slice::from_ref(joined), machine.holds_old_power(phase.start_ns, stop_ns));
            }
            continue;
        }
        let key = match by {
            By::Name => phase.name.clone(),
            By::Level => machines.level(phase.index).to_owned(),
            By::Host | By::Gpu => machines.host(phase.rank).to_owned(),
        };
        let holds_old = gpus.iter().any(|gpu| machines.gpu(*gpu).holds_old_power(phase.start_ns, stop_ns));
        groups.entry((key.clone(), None)).or_insert_with(|| EventsRow::new(key)).take(length_ns, &joined, holds_old);
    }
    let mut rows: Vec<EventsRow> = groups.into_values().collect();
    match by {
        By::Name => {}
        // Levels that are numbers are sorted as numbers.
        By::Level => rows.sort_by(|a, b| {
            let level = |row: &EventsRow| row.key.parse::<f64>().unwrap_or(f64::INFINITY);
            level(a).total_cmp(&level(b))
        }),
        By::Host | By::Gpu => rows.sort_by(|a, b| {
            let time = |row: &EventsRow| row.time_s.value().unwrap_or(f64::NEG_INFINITY);
            time(b).total_cmp(&time(a))
        }),
    }
    let correlations = if matches!(by, By::Host | By::Gpu) { correlations(&rows) } else { Vec::new() };
    let counts = (machines.hosts(), machines.gpus(), names.len());
    let told = |name: &&&str| event.is_none_or(|event| **name == event);
    let warmup_steps = warmup_among(&sealed.attempt, names.iter().filter(told).copied());
    Ok(Events { by, event: event.map(str::to_owned), rows, correlations, unstopped, counts, warmup_steps })
}

/// Returns the name of the events with the longest total time.
fn longest(phases: &[Phase]) -> Option<&str> {
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for phase in phases {
        let length = phase.stop_ns.map_or(0, |stop_ns| stop_ns.saturating_sub(phase.start_ns));
        let total = totals.entry(phase.name.as_str()).or_default();
        *total = total.saturating_add(length);
    }
    totals.into_iter().max_by_key(|(name, total)| (*total, std::cmp::Reverse(*name))).map(|(name, _)| name)
}

/// The readings of one GPU around an event.
type Joined = [Option<Around>; EVENT_QUANTITIES.len()];

fn join(gpu: &machines::Gpu<'_>, start_ns: u64, stop_ns: u64) -> Joined {
    gpu.series.map(|series| series.and_then(|series| around(&series.positions, &series.values, start_ns, stop_ns)))
}

impl EventsRow {
    fn new(key: String) -> Self {
        Self {
            key,
            gpu: None,
            events: 0,
            sampled: 0,
            time_s: Mean::default(),
            means: Default::default(),
            energy_j: Mean::default(),
            held_long: 0,
            nearest_off_s: Mean::default(),
        }
    }

    /// Adds an event with the readings of each of its GPUs.
    fn take(&mut self, length_ns: u64, gpus: &[Joined], holds_old: bool) {
        self.events += 1;
        self.time_s.add(Some(seconds(length_ns)));
        self.sampled += u64::from(gpus.iter().flatten().flatten().any(|around| around.sample.is_some()));
        for joined in gpus {
            for (means, around) in self.means.iter_mut().zip(joined) {
                let Some(around) = around else { continue };
                means.sample.add(around.sample);
                means.held.add(Some(around.held));
                means.linear.add(Some(around.linear));
                means.nearest.add(Some(around.nearest));
            }
            let first = joined.iter().flatten().next();
            self.nearest_off_s.add(first.map(|around| seconds(around.nearest_off_ns)));
        }
        // Without one of its GPUs the energy would be too small.
        let power: Option<f64> = gpus.iter().map(|joined| Some(joined[0].as_ref()?.held)).sum();
        let power = power.filter(|_| !gpus.is_empty());
        self.energy_j.add(power.map(|power| power * seconds(length_ns)));
        self.held_long += u64::from(holds_old && power.is_some());
    }
}

/// Any two points lie on a line.
const LEAST_POINTS: usize = 3;

fn correlations(rows: &[EventsRow]) -> Vec<LengthCorrelation> {
    let of = |(at, quantity): (usize, &Quantity)| {
        let pairs = rows.iter().filter_map(|row| Some((row.time_s.value()?, row.means[at].sample.value()?)));
        let points: Vec<(f64, f64)> = pairs.collect();
        let found = Correlation::of(&points).filter(|_| points.len() >= LEAST_POINTS);
        LengthCorrelation {
            quantity: *quantity,
            n: points.len(),
            pearson: found.map(|found| found.pearson),
            spearman: found.map(|found| found.spearman),
        }
    };
    EVENT_QUANTITIES.iter().enumerate().map(of).collect()
}
