//! The times in which ranks share their gradients and wait for each other.
//!
//! Knows the phases `all_reduce` and `backward` of ranks that report both. Must not know how gradients are sent.

use super::energy::Energy;
use super::statistic::{median, number, seconds, total};
use super::window::Windows;
use crate::record::{Phase, Source};
use std::collections::BTreeMap;

/// The exchange of gradients in one step that all ranks reported.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Exchange {
    /// The start and the stop of each rank's `all_reduce`, in nanoseconds.
    ranks: BTreeMap<u32, (u64, u64)>,
}

impl Exchange {
    /// The start of the last rank.
    fn complete_ns(&self) -> u64 {
        self.ranks.values().map(|(start, _)| *start).max().unwrap_or_default()
    }

    fn spread_ns(&self) -> u64 {
        let first = self.ranks.values().map(|(start, _)| *start).min().unwrap_or_default();
        self.complete_ns() - first
    }

    fn time_ns(&self) -> u64 {
        let end = self.ranks.values().map(|(_, stop)| *stop).max().unwrap_or_default();
        end.saturating_sub(self.complete_ns())
    }
}

/// The exchanges of an attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchanges {
    steps: Vec<Exchange>,
    /// For each step, the mean over ranks of the time that overlaps with no backward pass.
    exposed_ns: Vec<u64>,
}

impl Exchanges {
    /// Takes the phases of steps after the warm-up. Empty if only one rank reports such phases.
    pub(super) fn of(phases: &[Phase], warmup: usize) -> Self {
        let named = |name: &'static str| {
            let after = move |phase: &&Phase| usize::try_from(phase.index).is_ok_and(|index| index > warmup);
            phases.iter().filter(move |phase| phase.name == name).filter(after)
        };
        let mut steps: BTreeMap<u64, Exchange> = BTreeMap::new();
        for phase in named("all_reduce") {
            let Some(stop_ns) = phase.stop_ns else { continue };
            let step = steps.entry(phase.index).or_insert_with(|| Exchange { ranks: BTreeMap::new() });
            step.ranks.insert(phase.rank, (phase.start_ns, stop_ns));
        }
        let ranks = steps.values().map(|step| step.ranks.len()).max().unwrap_or(0);
        // If a rank did not report a step, its last rank is unknown.
        let steps: Vec<Exchange> = steps.into_values().filter(|step| ranks > 1 && step.ranks.len() == ranks).collect();
        let mut backward: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for phase in named("backward") {
            backward.entry(phase.rank).or_default().extend(phase.stop_ns.map(|stop_ns| (phase.start_ns, stop_ns)));
        }
        let backward: BTreeMap<u32, Windows> =
            backward.into_iter().map(|(rank, passes)| (rank, Windows::new(passes))).collect();
        let exposed = |step: &Exchange| {
            let each = step.ranks.iter().map(|(rank, (start, stop))| {
                let all = Windows::new([(*start, *stop)]);
                backward.get(rank).map_or(all.length(), |passes| all.subtract(passes).length())
            });
            total(each) / u64::try_from(ranks).unwrap_or(1).max(1)
        };
        Self { exposed_ns: steps.iter().map(exposed).collect(), steps }
    }

    /// The median time from the last rank's start to the end of the exchange.
    pub(super) fn time_s(&self) -> Option<f64> {
        self.median_s(Exchange::time_ns)
    }

    /// The median time of an exchange that no backward pass hides, including waits for slower ranks.
    pub(super) fn exposed_s(&self) -> Option<f64> {
        median(&self.exposed_ns).map(|ns| ns / 1e9)
    }

    /// The median time from the first rank's start to the last one's.
    pub(super) fn spread_s(&self) -> Option<f64> {
        self.median_s(Exchange::spread_ns)
    }

    /// The mean time per step for which each rank waits for the last one, in seconds.
    pub(super) fn waits_s(&self) -> BTreeMap<u32, f64> {
        let mut waits: BTreeMap<u32, u64> = BTreeMap::new();
        for step in &self.steps {
            for (rank, (start, _)) in &step.ranks {
                *waits.entry(*rank).or_default() += step.complete_ns() - start;
            }
        }
        let mean = |(rank, wait_ns): (u32, u64)| (rank, seconds(wait_ns) / number(self.steps.len()));
        waits.into_iter().map(mean).collect()
    }

    fn median_s(&self, of: fn(&Exchange) -> u64) -> Option<f64> {
        median(&self.steps.iter().map(of).collect::<Vec<_>>()).map(|ns| ns / 1e9)
    }
}

/// The least energy that GPUs drew while they waited for others, in joules, and half the width of its interval. It is
/// the idle power times each rank's wait per step and the number of steps.
pub(super) fn wait_energy(
    waits_s: &BTreeMap<u32, f64>,
    idle: &[(Source, Energy)],
    steps: f64,
) -> Result<(f64, f64), String> {
    let of = |(rank, wait_s): (&u32, &f64)| {
        let (_, idle) = idle.iter().find(|(source, _)| *source == Source::Gpu(*rank))?;
        let over = wait_s * steps / idle.length_s;
        Some((idle.joules * over, idle.half_width() * over))
    };
    let each: Option<Vec<(f64, f64)>> = waits_s.iter().map(of).collect();
    // All sensors may have errors in the same direction.
    let sum = |each: Vec<(f64, f64)>| each.into_iter().fold((0.0, 0.0), |(a, b), (c, d)| (a + c, b + d));
    each.map(sum).ok_or_else(|| "a rank that waits has no GPU of its own".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn phase(name: &str, rank: u32, index: u64, from_ms: u64, to_ms: u64) -> Phase {
        Phase { name: name.to_owned(), index, rank, start_ns: from_ms * MS, stop_ns: Some(to_ms * MS) }
    }

    #[test]
    fn the_last_rank_does_not_wait() {
        let mut phases = Vec::new();
        for (step, begin) in [(50, 1000), (100, 2000), (150, 3000)] {
            phases.extend([
                phase("backward", 0, step, begin, begin + 10),
                phase("backward", 1, step, begin, begin + 14),
                phase("all_reduce", 0, step, begin + 10, begin + 21),
                phase("all_reduce", 1, step, begin + 14, begin + 20),
            ]);
        }
        // Compilation during the warm-up.
        phases.extend([phase("all_reduce", 0, 1, 0, 500), phase("all_reduce", 1, 1, 400, 500)]);
        // Only one rank reported it.
        phases.push(phase("all_reduce", 0, 200, 4000, 4900));
        let exchanges = Exchanges::of(&phases, 10);
        assert_eq!(exchanges.time_s(), Some(0.007), "from 14 to 21 ms");
        assert_eq!(exchanges.spread_s(), Some(0.004));
        assert_eq!(exchanges.exposed_s(), Some(0.0085), "the mean of 11 and 6 ms");
        assert_eq!(exchanges.waits_s(), [(0, 0.004), (1, 0.0)].into());
    }

    #[test]
    fn time_that_overlaps_with_the_backward_pass_is_not_exposed() {
        let of = |rank| [phase("backward", rank, 1, 0, 100), phase("all_reduce", rank, 1, 40, 120)];
        let exchanges = Exchanges::of(&[of(0), of(1)].concat(), 0);
        assert_eq!((exchanges.time_s(), exchanges.exposed_s()), (Some(0.08), Some(0.02)));
        assert_eq!(exchanges.spread_s(), Some(0.0));
    }

    #[test]
    fn one_rank_has_no_exchanges() {
        let exchanges = Exchanges::of(&[phase("all_reduce", 0, 1, 0, 9)], 0);
        assert_eq!((exchanges.time_s(), exchanges.exposed_s(), exchanges.spread_s()), (None, None, None));
        assert!(exchanges.waits_s().is_empty());
    }
}
