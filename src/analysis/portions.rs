//! An attempt's energy, divided into portions that do not overlap and can be stacked.
//!
//! Knows a sealed attempt; the energies are those of `energy`, refused where the readings cannot resolve a portion.

use super::energy::Energy;
use super::hardware::Hardware;
use super::statistic::{number, real, seconds};
use super::telemetry::Given;
use super::window::Windows;
use crate::record::{Phase, Sealed};
use std::collections::BTreeMap;

/// Phases that are always portions of their own, though a worker may run them within others.
const APART: [&str; 5] = ["idle", "eval", "inference_batch", "inference", "checkpoint"];
/// A smaller remaining share of a phase is only the edges of others.
const LEFT: f64 = 0.01;

/// The energy of one kind of phase, without times of other portions.
#[derive(Clone, Debug, PartialEq)]
pub struct Portion {
    /// The phases' name.
    pub name: String,
    /// Their time, in seconds.
    pub length_s: f64,
    /// The energy of all devices in that time, or why it is unknown.
    pub energy: Result<Energy, String>,
}

/// The portions of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Portions {
    /// The portions by their first start.
    pub portions: Vec<Portion>,
    /// Kinds of phases that partly overlap others, so that they are neither portions of their own nor within one.
    pub within: Vec<String>,
    /// The whole attempt's energy, or why it is unknown.
    pub total: Result<Energy, String>,
}

impl Portions {
    /// The energy in no portion with a known energy, in joules; `None` if the total is unknown.
    pub fn rest(&self) -> Option<f64> {
        let known: f64 =
            self.portions.iter().filter_map(|portion| portion.energy.as_ref().ok()).map(|e| e.joules).sum();
        Some(self.total.as_ref().ok()?.joules - known)
    }
}

/// Divides the energy of an attempt by the phases of its first rank. Evaluation, answers and idle time are portions of
/// their own. The rest goes to the longest kind of phase, and then to kinds outside of it.
pub fn portions(sealed: &Sealed, telemetry: &dyn Given) -> Portions {
    let attempt = &sealed.attempt;
    let hardware = Hardware::of(telemetry, &sealed.run, attempt);
    let meters = hardware.meters();
    let energy = |windows: &Windows| {
        Hardware::energy(meters.as_deref().map_err(String::as_str), "it", windows).map(|(_, sum)| sum)
    };
    let mut found: Vec<(u64, Portion)> = Vec::new();
    let (kept, within) = disjoint(&sealed.phases, attempt.wall_ns);
    for (name, windows) in kept {
        let first = windows.iter().next().map_or(0, |(start, _)| start);
        let length_s = seconds(windows.length());
        found.push((first, Portion { name, length_s, energy: energy(&windows) }));
    }
    found.sort_by_key(|(first, _)| *first);
    let whole = Windows::new([(0, attempt.wall_ns)]);
    let portions = found.into_iter().map(|(_, portion)| portion).collect();
    Portions { portions, within, total: energy(&whole) }
}

/// Returns kinds of phases with times that do not overlap, and the kinds that partly overlap others.
fn disjoint(phases: &[Phase], wall_ns: u64) -> (Vec<(String, Windows)>, Vec<String>) {
    let mut all: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for phase in phases.iter().filter(|phase| phase.rank == 0) {
        let stop_ns = phase.stop_ns.unwrap_or(wall_ns).max(phase.start_ns);
        all.entry(&phase.name).or_default().push((phase.start_ns, stop_ns));
    }
    let mut all: Vec<(&str, Windows)> = all.into_iter().map(|(name, spans)| (name, Windows::new(spans))).collect();
    let rank = |name: &str| APART.iter().position(|apart| *apart == name).unwrap_or(APART.len());
    all.sort_by_key(|(name, windows)| (rank(name), std::cmp::Reverse(windows.length())));
    let mut taken = Windows::default();
    let mut apart = Windows::default();
    let mut kept: Vec<(String, Windows)> = Vec::new();
    let mut overlapping = Vec::new();
    for (name, windows) in all {
        let own = windows.subtract(&apart);
        let left = own.subtract(&taken);
        // A kind within a portion is a part of it. A kind that overlaps one only at its edges is not.
        let is_own = real(left.length()) > (1.0 - LEFT) * real(own.length());
        if own.is_empty() || !is_own || real(own.length()) < LEFT * real(windows.length()) {
            // This kind also had time outside of all portions, which goes to the rest.
            if !own.is_empty() && real(left.length()) > LEFT * real(own.length()) {
                overlapping.push(name.to_owned());
            }
            continue;
        }
        taken = Windows::new(taken.iter().chain(left.iter()));
        if rank(name) < APART.len() {
            apart = Windows::new(apart.iter().chain(left.iter()));
        }
        kept.push((name.to_owned(), left));
    }
    (kept, overlapping)
}

/// The first quartile, the median and the third quartile, with linear interpolation; `None` without values.
pub fn quartiles(values: &[f64]) -> Option<(f64, f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = |quarters: usize| {
        let (whole, rest) = (quarters * last / 4, quarters * last % 4);
        let (low, high) = (sorted[whole], sorted[(whole + 1).min(last)]);
        low + number(rest) / 4.0 * (high - low)
    };
    Some((at(1), at(2), at(3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, start_ns: u64, stop_ns: u64) -> Phase {
        Phase { name: name.to_owned(), index: 1, rank: 0, start_ns, stop_ns: Some(stop_ns) }
    }

    fn spans(phases: &[Phase]) -> Vec<(String, Vec<(u64, u64)>)> {
        disjoint(phases, 1000).0.into_iter().map(|(name, windows)| (name, windows.iter().collect())).collect()
    }

    #[test]
    fn portions_never_overlap_and_inner_phases_are_part_of_outer_ones() {
        let phases = [
            phase("idle", 0, 100),
            phase("epoch", 100, 500),
            phase("step", 100, 290),
            phase("step", 300, 400),
            phase("eval", 400, 480),
            phase("epoch", 500, 700),
            phase("eval", 700, 800),
            phase("forward", 100, 150),
        ];
        let expected =
            [("idle", vec![(0, 100)]), ("eval", vec![(400, 480), (700, 800)]), ("epoch", vec![(100, 400), (480, 700)])];
        assert_eq!(spans(&phases), expected.map(|(name, spans)| (name.to_owned(), spans)));
        // Timed answers lie within their batch.
        let timed = [phase("inference_batch", 0, 600), phase("inference", 10, 300), phase("inference", 310, 590)];
        assert_eq!(spans(&timed), [("inference_batch".to_owned(), vec![(0, 600)])]);
        let own = [phase("load", 0, 300), phase("fit", 300, 900), phase("batch", 300, 600)];
        let names: Vec<String> = spans(&own).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["fit", "load"]);
        assert!(disjoint(&phases, 1000).1.is_empty() && disjoint(&own, 1000).1.is_empty());
        let across = [phase("fit", 0, 600), phase("sync", 500, 800)];
        assert_eq!(disjoint(&across, 1000).1, ["sync"], "it is neither in `fit` nor beside it");
    }

    #[test]
    fn quartiles_are_those_of_numpy() {
        // numpy 2: `numpy.quantile(values, [0.25, 0.5, 0.75])`.
        assert_eq!(quartiles(&[1.0, 2.0, 3.0, 4.0]), Some((1.75, 2.5, 3.25)));
        assert_eq!(quartiles(&[7.0, 1.0, 3.0, 9.0, 5.0]), Some((3.0, 5.0, 7.0)));
        assert_eq!((quartiles(&[2.0]), quartiles(&[])), (Some((2.0, 2.0, 2.0)), None));
    }
}
