//! The time in which stages of a pipeline have nothing to do.
//!
//! Knows the phases `forward`, `backward` and, within them, `wait` of ranks that report all three. Must not know what stages compute.

use super::statistic::{median, number, seconds};
use super::window::Windows;
use crate::record::Phase;
use std::collections::BTreeMap;

/// The spans of one rank in one step.
#[derive(Default)]
struct Spans {
    passes: Vec<(u64, u64)>,
    waits: Vec<(u64, u64)>,
}

/// One step that every stage reported.
struct Round {
    /// The busy times of each rank.
    busy: BTreeMap<u32, Windows>,
    /// The time from the first stage's first work to the last stage's end. A stage that waits for its first work while
    /// the first one still reads data is not yet in a bubble.
    from: u64,
    to: u64,
}

impl Round {
    fn of(stages: &BTreeMap<u32, Spans>) -> Option<Self> {
        let busy = |(rank, spans): (&u32, &Spans)| {
            let passes = Windows::new(spans.passes.iter().copied());
            (*rank, passes.subtract(&Windows::new(spans.waits.iter().copied())))
        };
        let busy: BTreeMap<u32, Windows> = stages.iter().map(busy).collect();
        let from = busy.values().filter_map(|windows| windows.iter().next()).map(|(from, _)| from).min()?;
        let to = busy.values().filter_map(|windows| windows.iter().last()).map(|(_, to)| to).max()?;
        (to > from).then_some(Self { busy, from, to })
    }

    /// The time in which a stage with these busy times had no work.
    fn idle_s(&self, busy: &Windows) -> f64 {
        seconds(self.to - self.from) - seconds(busy.length())
    }

    fn bubble(&self) -> f64 {
        let idle: f64 = self.busy.values().map(|busy| self.idle_s(busy)).sum();
        idle / (seconds(self.to - self.from) * number(self.busy.len()))
    }

    /// The time from the first stage that has its gradients to the last one.
    fn spread_ns(&self) -> u64 {
        let ends = || self.busy.values().filter_map(|windows| windows.iter().last()).map(|(_, to)| to);
        ends().max().unwrap_or_default() - ends().min().unwrap_or_default()
    }
}

/// The steps after the warm-up that every stage reported.
pub(super) struct Rounds(Vec<Round>);

impl Rounds {
    /// Takes an attempt's phases. Empty if no rank waits for another.
    pub(super) fn of(phases: &[Phase], warmup: usize) -> Self {
        let mut steps: BTreeMap<u64, BTreeMap<u32, Spans>> = BTreeMap::new();
        let after = |phase: &&Phase| usize::try_from(phase.index).is_ok_and(|index| index > warmup);
        for phase in phases.iter().filter(after) {
            let waits = match phase.name.as_str() {
                "forward" | "backward" => false,
                "wait" => true,
                _ => continue,
            };
            let Some(stop_ns) = phase.stop_ns else { continue };
            let spans = steps.entry(phase.index).or_default().entry(phase.rank).or_default();
            if waits { &mut spans.waits } else { &mut spans.passes }.push((phase.start_ns, stop_ns));
        }
        let ranks = steps.values().map(BTreeMap::len).max().unwrap_or(0);
        let whole = |step: &&BTreeMap<u32, Spans>| {
            let told = step.values().all(|spans| !spans.passes.is_empty());
            ranks > 1 && step.len() == ranks && told && step.values().any(|spans| !spans.waits.is_empty())
        };
        Self(steps.values().filter(whole).filter_map(Round::of).collect())
    }

    /// The mean share of all stages' time in which a stage was in no pass or waited in one. The time of a step is from
    /// the first stage's first work to the last one's end.
    pub(super) fn bubble(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.iter().map(Round::bubble).sum::<f64>() / number(self.0.len()))
    }

    /// The median time from the first stage that has its gradients to the last one.
    pub(super) fn spread_s(&self) -> Option<f64> {
        median(&self.0.iter().map(Round::spread_ns).collect::<Vec<_>>()).map(|ns| ns / 1e9)
    }

    /// The mean time per step for which each stage has nothing to do, in seconds.
    pub(super) fn waits_s(&self) -> BTreeMap<u32, f64> {
        let mut waits: BTreeMap<u32, f64> = BTreeMap::new();
        for round in &self.0 {
            for (rank, busy) in &round.busy {
                *waits.entry(*rank).or_default() += round.idle_s(busy) / number(self.0.len());
            }
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn phase(name: &str, rank: u32, index: u64, from_ms: u64, to_ms: u64) -> Phase {
        Phase { name: name.to_owned(), index, rank, start_ns: from_ms * MS, stop_ns: Some(to_ms * MS) }
    }

    /// Two stages and two micro-batches of 10 ms for each pass, as in GPipe's figure: forward 0 0 | 1 1, backward in the reverse order.
    fn ideal(index: u64, at: u64) -> Vec<Phase> {
        let of = |name: &str, rank, from: u64, to: u64| phase(name, rank, index, at + from, at + to);
        vec![
            of("forward", 0, 0, 20),
            // It waits while the first stage still reads its data.
            phase("forward", 1, index, at - 7, at + 30),
            phase("wait", 1, index, at - 7, at + 10),
            of("backward", 1, 30, 50),
            of("backward", 0, 20, 60),
            of("wait", 0, 20, 40),
        ]
    }

    #[test]
    fn two_stages_and_two_micro_batches_idle_a_third_of_the_time() {
        let rounds = Rounds::of(&[ideal(11, 10), ideal(12, 100)].concat(), 10);
        let found = rounds.bubble().expect("two ranks");
        assert!((found - 1.0 / 3.0).abs() < 1e-12, "{found}: (2 - 1) / (2 + 2 - 1)");
        assert_eq!(rounds.spread_s(), Some(0.01), "the last stage has its gradients at 50 ms, the first one at 60");
        let waits = rounds.waits_s();
        assert_eq!(waits.len(), 2);
        assert!(waits.values().all(|wait_s| (wait_s - 0.02).abs() < 1e-12), "{waits:?}: 20 of 60 ms each");
    }

    #[test]
    fn the_warm_up_single_ranks_and_ranks_that_never_wait_have_no_bubble() {
        let found = |phases: &[Phase]| {
            let rounds = Rounds::of(phases, 10);
            (rounds.bubble(), rounds.spread_s(), rounds.waits_s().len())
        };
        assert_eq!(found(&ideal(10, 10)), (None, None, 0));
        let alone: Vec<Phase> = ideal(11, 10).into_iter().filter(|phase| phase.rank == 0).collect();
        assert_eq!(found(&alone), (None, None, 0));
        let data: Vec<Phase> = ideal(11, 10).into_iter().filter(|phase| phase.name != "wait").collect();
        assert_eq!(found(&data), (None, None, 0));
    }
}
