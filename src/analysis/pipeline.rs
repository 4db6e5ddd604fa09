//! How much of their time the stages of a pipeline have nothing to do.
//!
//! Knows the phases `forward`, `backward` and, within them, `wait` of ranks that tell of all three, and nothing of what stages compute.

use super::statistic::{number, seconds};
use super::window::Windows;
use crate::record::Phase;
use std::collections::BTreeMap;

/// The spans of one rank in one step.
#[derive(Default)]
struct Spans {
    passes: Vec<(u64, u64)>,
    waits: Vec<(u64, u64)>,
}

/// The mean over steps after the warm-up of the share of all stages' time, from when the first one has work to when the last one has none, in which a stage was in no pass or waited in one.
/// None where no rank waits for another.
pub(super) fn bubble(phases: &[Phase], warmup: usize) -> Option<f64> {
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
    let ranks = steps.values().map(BTreeMap::len).max().filter(|ranks| *ranks > 1)?;
    let whole = |step: &&BTreeMap<u32, Spans>| {
        let told = step.values().all(|spans| !spans.passes.is_empty());
        step.len() == ranks && told && step.values().any(|spans| !spans.waits.is_empty())
    };
    let shares: Vec<f64> = steps.values().filter(whole).filter_map(share).collect();
    (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / number(shares.len()))
}

fn share(step: &BTreeMap<u32, Spans>) -> Option<f64> {
    let busy = |spans: &Spans| {
        let passes = Windows::new(spans.passes.iter().copied());
        passes.subtract(&Windows::new(spans.waits.iter().copied()))
    };
    let busy: Vec<Windows> = step.values().map(busy).collect();
    // A stage that waits for its first work, for which the first one still reads data, is in no bubble yet.
    let start = busy.iter().filter_map(|windows| windows.iter().next()).map(|(start, _)| start).min()?;
    let stop = busy.iter().filter_map(|windows| windows.iter().last()).map(|(_, stop)| stop).max()?;
    let all = seconds(stop.saturating_sub(start)) * number(busy.len());
    (all > 0.0).then(|| 1.0 - busy.iter().map(|windows| seconds(windows.length())).sum::<f64>() / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn phase(name: &str, rank: u32, index: u64, from_ms: u64, to_ms: u64) -> Phase {
        Phase { name: name.to_owned(), index, rank, start_ns: from_ms * MS, stop_ns: Some(to_ms * MS) }
    }

    /// Two stages, two micro-batches of 10 ms a pass each way, as GPipe draws it: forward 0 0 | 1 1, backward in the reverse order.
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
        let found = bubble(&[ideal(11, 10), ideal(12, 100)].concat(), 10).expect("two ranks");
        assert!((found - 1.0 / 3.0).abs() < 1e-12, "{found}: (2 - 1) / (2 + 2 - 1)");
    }

    #[test]
    fn the_warm_up_ranks_alone_and_ranks_that_wait_for_nobody_have_none() {
        assert_eq!(bubble(&ideal(10, 10), 10), None);
        let alone: Vec<Phase> = ideal(11, 10).into_iter().filter(|phase| phase.rank == 0).collect();
        assert_eq!(bubble(&alone, 10), None);
        let data: Vec<Phase> = ideal(11, 10).into_iter().filter(|phase| phase.name != "wait").collect();
        assert_eq!(bubble(&data, 10), None);
    }
}
