//! A section of an attempt for a plot of some width: curves, phases, and the energy of that time.
//!
//! Peaks are kept: the first, the last, the smallest and the largest value of each pixel column.

use super::energy::Energy;
use super::hardware::Hardware;
use super::telemetry::{Curve, Given, Kind};
use super::thin::Stretch;
use super::window::Windows;
use crate::record::{Attempt, Phase, Run, Series, Source};
use std::collections::BTreeMap;

/// Returns the points of a series between two positions, with one more at each side so that lines reach the edges.
/// Counters are replaced by their rates, with NaN between pieces that are not connected. With more than four points a
/// column, at most five a column are kept.
pub fn excerpt(series: &Series, (from, to): (u64, u64), columns: usize) -> Series {
    let rates = (Kind::of(&series.name) == Kind::Counter).then(|| rates(series));
    let whole = rates.as_ref().unwrap_or(series);
    let first = whole.positions.partition_point(|position| *position < from).saturating_sub(1);
    let last = whole.positions.partition_point(|position| *position <= to).saturating_add(1).min(whole.positions.len());
    let mut part = Series::new(whole.name.as_str(), whole.unit.as_str(), whole.axis);
    let points = || whole.positions.iter().zip(&whole.values).enumerate().take(last).skip(first);
    if last.saturating_sub(first) <= 4 * columns {
        points().for_each(|(_, (position, value))| part.push(*position, *value));
        return part;
    }
    let width = u128::from(to.saturating_sub(from)) + 1;
    let column = |position: u64| {
        let at = u128::from(position.clamp(from, to) - from) * columns as u128 / width;
        u64::try_from(at).unwrap_or(u64::MAX)
    };
    let mut stretches: Vec<Stretch> = Vec::with_capacity(columns);
    for (number, (position, value)) in points() {
        let next = Stretch::of(column(*position), (number as u64, *position, *value));
        match stretches.last_mut() {
            Some(last) if last.index >= next.index => last.join(next),
            _ => stretches.push(next),
        }
    }
    stretches.iter().flat_map(Stretch::points).for_each(|(_, position, value)| part.push(position, value));
    part
}

/// The rates of a counter per second, with NaN between pieces.
fn rates(series: &Series) -> Series {
    let mut rates = Series::new(series.name.as_str(), format!("{}/s", series.unit), series.axis);
    if series.unit == "J" {
        "W".clone_into(&mut rates.unit);
    }
    for piece in Curve::of(series).pieces() {
        if let Some(last) = rates.positions.last().copied() {
            rates.push(last, f64::NAN);
        }
        piece.iter().for_each(|(position, rate)| rates.push(*position, *rate));
    }
    rates
}

/// Returns the phases that overlap a time range, sorted by start, and whether any were merged. Adjacent phases of one
/// name and rank that are narrower than a column are merged.
pub fn phases_between(phases: &[Phase], wall_ns: u64, (from, to): (u64, u64), columns: usize) -> (Vec<Phase>, bool) {
    let narrow = to.saturating_sub(from) / (columns.max(1) as u64);
    let mut all: BTreeMap<(u32, &str), Vec<Phase>> = BTreeMap::new();
    let mut sorted: Vec<&Phase> = phases.iter().collect();
    sorted.sort_by_key(|phase| phase.start_ns);
    let mut is_joined = false;
    for phase in sorted {
        let stop = phase.stop_ns.unwrap_or(wall_ns).max(phase.start_ns);
        if stop < from || phase.start_ns > to {
            continue;
        }
        let kind = all.entry((phase.rank, &phase.name)).or_default();
        let is_narrow = stop - phase.start_ns < narrow;
        match kind.last_mut().and_then(|last| Some((last.stop_ns?, last))) {
            Some((before, last)) if is_narrow && phase.start_ns.saturating_sub(before) < narrow => {
                last.stop_ns = Some(before.max(stop));
                is_joined = true;
            }
            _ => kind.push(Phase { stop_ns: Some(stop), ..phase.clone() }),
        }
    }
    let mut found: Vec<Phase> = all.into_values().flatten().collect();
    found.sort_by(|a, b| (a.start_ns, a.rank, &a.name).cmp(&(b.start_ns, b.rank, &b.name)));
    (found, is_joined)
}

/// The energy of each device, and their sum.
pub type EnergyOfDevices = (Vec<(Source, Energy)>, Energy);

/// The energy of each device from one moment to another, and their sum.
///
/// # Errors
/// The reason, if the energy is not known.
pub fn energy_between(
    run: &Run,
    attempt: &Attempt,
    telemetry: &dyn Given,
    (from_ns, to_ns): (u64, u64),
) -> Result<EnergyOfDevices, String> {
    let meters = Hardware::of(telemetry, run, attempt).meters();
    let windows = Windows::new([(from_ns, to_ns.min(attempt.wall_ns))]);
    if windows.is_empty() {
        return Err("the time range is empty".to_owned());
    }
    Hardware::energy(meters.as_deref().map_err(String::as_str), "it", &windows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Axis;

    fn series(name: &str, unit: &str, values: impl IntoIterator<Item = f64>) -> Series {
        let mut series = Series::new(name, unit, Axis::TimeNs);
        (0u64..).zip(values).for_each(|(at, value)| series.push(at * 1_000_000_000, value));
        series
    }

    #[test]
    fn peaks_and_gaps_are_kept() {
        let values = (0..10_000u32).map(|at| match at {
            5_003 => 900.0,
            7_001 => f64::NAN,
            _ => f64::from(at % 2),
        });
        let whole = series("loss", "", values);
        let part = excerpt(&whole, (0, 9_999_000_000_000), 100);
        assert!(part.values.len() <= 500 && part.positions.is_sorted(), "{}", part.values.len());
        let at = |second: u64| part.positions.iter().position(|position| *position == second * 1_000_000_000);
        assert_eq!(at(5_003).map(|at| part.values[at]), Some(900.0));
        assert!(at(7_001).is_some_and(|at| part.values[at].is_nan()));
        // A few points are all kept, with one beyond each edge.
        let few = excerpt(&whole, (10_000_000_000, 20_000_000_000), 100);
        assert_eq!((few.positions.len(), few.positions[0]), (13, 9_000_000_000));
    }

    #[test]
    fn a_counter_is_shown_as_its_rate() {
        let part = excerpt(&series("gpu.0.energy", "J", [0.0, 100.0, 200.0, 500.0]), (0, 3_000_000_000), 100);
        assert_eq!(
            (part.unit.as_str(), part.values.as_slice()),
            ("W", [100.0, 100.0, 100.0, 100.0, 300.0, 300.0].as_slice())
        );
    }

    #[test]
    fn narrow_neighbours_are_merged_and_wide_ones_are_not() {
        let phase = |name: &str, index: u64, start_ns: u64, stop_ns: u64| Phase {
            name: name.into(),
            index,
            rank: 0,
            start_ns,
            stop_ns: Some(stop_ns),
        };
        let steps = (0..1_000).map(|index| phase("step", index, index * 10, index * 10 + 9));
        let phases: Vec<Phase> = steps.chain([phase("eval", 0, 10_000, 12_000)]).collect();
        let (all, is_joined) = phases_between(&phases, 12_000, (0, 12_000), 100);
        let told: Vec<_> = all.iter().map(|phase| (phase.name.as_str(), phase.start_ns, phase.stop_ns)).collect();
        assert_eq!((told, is_joined), (vec![("step", 0, Some(9_999)), ("eval", 10_000, Some(12_000))], true));
        let (near, is_joined) = phases_between(&phases, 12_000, (100, 200), 100);
        assert_eq!((near.len(), is_joined), (11, false));
    }
}
