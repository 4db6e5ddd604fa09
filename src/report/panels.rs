//! Content of plots of sensor samples: panels of curves in one unit, and bands of phases. Nothing is drawn here.

use super::telemetry::{Telemetry, throttle_reason};
use super::units::shown;
use crate::analysis::{Curve, Kind, bit_shares, quantity};
use crate::record::{Axis, Phase, Quantity, Series};
use std::collections::BTreeMap;

/// Most lines per panel, one for each colour; further lines go to another panel.
pub(super) const LINES: usize = 8;
/// Larger values are not drawn, because the arithmetic of axes would overflow.
const DRAWABLE: f64 = 1e100;
/// Height of an on/off line that is on; the rest up to 1 separates it from the next line.
const UP: f64 = 0.75;
/// The phases that are drawn as bands.
const BANDS: [&str; 4] = ["epoch", "eval", "idle", "inference"];

/// Curves over one axis in one unit.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    /// The unit; `None` for on/off lines.
    pub(super) unit: Option<String>,
    pub(super) axis: Axis,
    pub(super) range: (f64, f64),
    pub(super) lines: Vec<Line>,
}

/// A curve in the panel's unit, thinned for the panel's width.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) label: String,
    pub(super) pieces: Vec<Vec<(u64, f64)>>,
}

/// A phase, or several that are too short to be drawn separately.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Band {
    pub(super) name: &'static str,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) start_ns: u64,
    pub(super) stop_ns: u64,
}

/// The subject of a panel; panels are in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    Power,
    PowerByEnergy,
    Utilization,
    Throttled,
    Clocks,
    Temperature,
    Memory,
    Pcie,
    Nvlink,
    Processors,
    Storage,
    Other(String),
    Cost,
    Steps(String),
}

impl Topic {
    fn of(series: &Series) -> Self {
        let name = &series.name;
        match (quantity(name), Kind::of(name), series.unit.as_str()) {
            _ if series.axis == Axis::Step => Self::Steps(name.clone()),
            (_, Kind::Flags, _) => Self::Throttled,
            (Some(Quantity::PcieTx | Quantity::PcieRx | Quantity::PcieTxRate | Quantity::PcieRxRate), ..) => Self::Pcie,
            (Some(Quantity::NvlinkTxRate | Quantity::NvlinkRxRate), ..) => Self::Nvlink,
            (Some(Quantity::WorkerIoRead | Quantity::WorkerIoWritten), ..) => Self::Storage,
            (_, Kind::Counter, "J") => Self::PowerByEnergy,
            (_, Kind::Counter, "s") => Self::Processors,
            _ if name.ends_with(".read_time") => Self::Cost,
            (_, _, "W") => Self::Power,
            (_, _, "%") => Self::Utilization,
            (_, _, "MHz") => Self::Clocks,
            (_, _, "degC") => Self::Temperature,
            (_, _, "B") => Self::Memory,
            (_, _, unit) => Self::Other(if unit.is_empty() { name.clone() } else { unit.to_owned() }),
        }
    }

    fn title(&self) -> &str {
        match self {
            Self::Power => "power",
            Self::PowerByEnergy => "power by the energy counter",
            Self::Utilization => "utilisation",
            Self::Throttled => "why clocks were low",
            Self::Clocks => "clocks",
            Self::Temperature => "temperature",
            Self::Memory => "memory",
            Self::Pcie => "PCIe",
            Self::Nvlink => "NVLink",
            Self::Processors => "the worker's processor time",
            Self::Storage => "the worker's storage",
            Self::Other(unit) => unit,
            Self::Cost => "cost of each reading",
            Self::Steps(name) => name,
        }
    }
}

/// Returns the panels of the selected series, thinned to `columns` pixels.
pub(super) fn panels(telemetry: &Telemetry, columns: usize) -> Vec<Panel> {
    let mut topics: BTreeMap<Topic, Vec<&Series>> = BTreeMap::new();
    telemetry.series.iter().for_each(|series| topics.entry(Topic::of(series)).or_default().push(series));
    let mut panels = Vec::new();
    for (topic, series) in topics {
        // If a topic has too many lines, each quantity gets a panel of its own, so that its GPUs can be distinguished.
        let mut parts: BTreeMap<&str, Vec<&Series>> = BTreeMap::new();
        for one in &series {
            let quantity = one.name.rsplit('.').next().filter(|_| series.len() > LINES).unwrap_or_default();
            parts.entry(quantity).or_default().push(one);
        }
        for (quantity, series) in parts {
            let title = if quantity.is_empty() { topic.title() } else { quantity };
            let extent = series.first().map_or((0, 0), |first| telemetry.extent(first.axis));
            panels.extend(match topic {
                Topic::Throttled => throttled(title, &series, extent, columns),
                _ => valued(title, &series, extent, columns),
            });
        }
    }
    panels
}

/// Returns panels of curves, each with one unit.
fn valued(title: &str, series: &[&Series], (from, to): (u64, u64), columns: usize) -> Vec<Panel> {
    let curves: Vec<(&Series, Curve)> = series.iter().map(|series| (*series, Curve::of(series))).collect();
    let drawn = curves
        .iter()
        .filter(|(_, curve)| curve.range().is_some_and(|(min, max)| min.abs() < DRAWABLE && max.abs() < DRAWABLE));
    let drawn: Vec<&(&Series, Curve)> = drawn.collect();
    let panel = |chunk: &[&(&Series, Curve)]| {
        let (first, _) = chunk.first()?;
        let ranges = || chunk.iter().filter_map(|(_, curve)| curve.range());
        let min = ranges().map(|(min, _)| min).fold(f64::INFINITY, f64::min);
        let max = ranges().map(|(_, max)| max).fold(f64::NEG_INFINITY, f64::max);
        let unit = shown(&first.unit, Kind::of(&first.name), max);
        let line = |(series, curve): &&(&Series, Curve)| {
            let scaled = |piece: &Vec<(u64, f64)>| piece.iter().map(|(at, value)| (*at, value * unit.factor)).collect();
            let pieces = curve.thinned(from, to, columns).pieces().iter().map(scaled).collect();
            Line { label: series.name.clone(), pieces }
        };
        Some(Panel {
            title: title.to_owned(),
            axis: first.axis,
            range: range(min * unit.factor, max * unit.factor, &unit.unit, first.axis),
            lines: chunk.iter().map(line).collect(),
            unit: Some(unit.unit),
        })
    };
    drawn.chunks(LINES).filter_map(panel).collect()
}

/// Returns the range of an axis. Axes over time start at zero, except temperatures.
/// The range is never so narrow that two ticks have the same label.
fn range(min: f64, max: f64, unit: &str, axis: Axis) -> (f64, f64) {
    let from_zero = axis == Axis::TimeNs && unit != "°C";
    let (low, high) = if from_zero { (min.min(0.0), max.max(0.0)) } else { (min, max) };
    if unit == "%" && low >= 0.0 && high <= 100.0 {
        return (0.0, 103.0);
    }
    let narrowest = (low.abs().max(high.abs()) * 1e-6).max(1e-30);
    if high - low < narrowest {
        let half = (low.abs() * 0.05).max(if from_zero || low == 0.0 { 0.5 } else { narrowest });
        return (if from_zero { low } else { low - half }, high + half);
    }
    let margin = (high - low) * 0.06;
    (if from_zero && low == 0.0 { 0.0 } else { low - margin }, high + margin)
}

/// Returns panels with one on/off line for each observed throttle reason, stacked vertically.
fn throttled(title: &str, series: &[&Series], (from, to): (u64, u64), columns: usize) -> Vec<Panel> {
    let bits = series.iter().flat_map(|series| bit_shares(series).0.into_iter().map(move |(bit, _)| (*series, bit)));
    let bits: Vec<(&Series, i32)> = bits.collect();
    let panel = |chunk: &[(&Series, i32)]| {
        let mut floor = 0.0;
        let line = |(series, bit): &(&Series, i32)| {
            let raised = |piece: &Vec<(u64, f64)>| piece.iter().map(|(at, up)| (*at, floor + up * UP)).collect();
            let pieces = Curve::of_bit(series, *bit).thinned(from, to, columns).pieces().iter().map(raised).collect();
            floor += 1.0;
            let source = series.name.rsplit_once('.').map_or("", |(source, _)| source);
            Line { label: format!("{source} {}", throttle_reason(*bit)), pieces }
        };
        let lines: Vec<Line> = chunk.iter().map(line).collect();
        Panel { title: title.to_owned(), unit: None, axis: Axis::TimeNs, range: (-0.2, floor), lines }
    };
    bits.chunks(LINES).map(panel).collect()
}

/// Returns the bands of rank 0 up to `end`.
/// A band narrower than `narrowest` is merged with its neighbour of the same name.
pub(super) fn phase_bands(phases: &[Phase], end: u64, narrowest: u64) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    for name in BANDS {
        let mut of_name: Vec<Band> = Vec::new();
        for phase in phases.iter().filter(|phase| phase.name == name && phase.rank == 0) {
            let (start_ns, stop_ns) = (phase.start_ns.min(end), phase.stop_ns.unwrap_or(end).min(end));
            let narrow = |start: u64, stop: u64| stop.saturating_sub(start) < narrowest;
            match of_name.last_mut() {
                Some(before)
                    if narrow(before.stop_ns, start_ns)
                        && (narrow(start_ns, stop_ns) || narrow(before.start_ns, before.stop_ns)) =>
                {
                    before.stop_ns = before.stop_ns.max(stop_ns);
                    before.last = phase.index;
                }
                _ => of_name.push(Band { name, first: phase.index, last: phase.index, start_ns, stop_ns }),
            }
        }
        bands.append(&mut of_name);
    }
    bands
}

impl Band {
    /// Returns its labels, from the longest to the shortest.
    pub(super) fn labels(&self) -> Vec<String> {
        let number =
            if self.first == self.last { self.first.to_string() } else { format!("{}–{}", self.first, self.last) };
        // Epochs are so frequent that a number alone is understood.
        let alone = (self.name == "epoch").then(|| number.clone());
        let labels = [Some(format!("{} {number}", self.name)), Some(self.name.to_owned()), alone];
        labels.into_iter().flatten().collect()
    }
}
