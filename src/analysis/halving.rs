//! Successive halving: which of many configurations continue in the next round.
//!
//! Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization" (AISTATS 2016): all
//! configurations start with a small budget, and the better half continues with twice as much. Here the budget is the
//! number of attempts, which is the sequential halving of Karnin, Koren and Somekh (ICML 2013). Knows means and a bound
//! on time. Must not know what is executed.

use crate::record::Direction;

/// The factor by which each round has more attempts and fewer configurations than the one before.
pub const HALVING: usize = 2;
/// The number of configurations with which the last round begins.
pub const FINALISTS: usize = 2;

/// The results of a configuration so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// The mean of the metric over its independent units; `None` if no value is valid.
    pub mean: Option<f64>,
    /// The mean of its time.
    pub time: Option<f64>,
}

/// Why a configuration does not continue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Out {
    /// It has no valid value, or no time although there is a bound.
    Unmeasured,
    /// It is slower than the bound allows: its time exceeds the reference's by this share.
    Slower(f64),
    /// This many of those within the bound are better.
    Behind(usize),
}

/// The largest allowed time: this share above a reference's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeBound {
    /// The reference's time.
    pub reference: f64,
    /// The share.
    pub slower_at_most: f64,
}

/// Returns the indices of the configurations that continue, best first, and of those that do not, with the reason. At
/// most `keep` of those within the bound continue.
pub fn halve(
    standings: &[Standing],
    bound: Option<TimeBound>,
    direction: Direction,
    keep: usize,
) -> (Vec<usize>, Vec<(usize, Out)>) {
    let mut out = Vec::new();
    let mut within: Vec<(usize, f64)> = Vec::new();
    for (at, standing) in standings.iter().enumerate() {
        let excess = bound.map(|bound| standing.time.map(|time| (time - bound.reference) / bound.reference));
        match (standing.mean.filter(|mean| mean.is_finite()), excess, bound) {
            (None, _, _) | (_, Some(None), _) => out.push((at, Out::Unmeasured)),
            (_, Some(Some(excess)), Some(bound)) if excess > bound.slower_at_most => {
                out.push((at, Out::Slower(excess)));
            }
            (Some(mean), _, _) => within.push((at, mean)),
        }
    }
    // Equal ones keep their order, so that the same attempts always give the same result.
    within.sort_by(|(_, a), (_, b)| match direction {
        Direction::Minimize => a.total_cmp(b),
        Direction::Maximize => b.total_cmp(a),
    });
    let behind = within.split_off(keep.min(within.len()));
    out.extend((keep..).zip(behind).map(|(better, (at, _))| (at, Out::Behind(better))));
    (within.into_iter().map(|(at, _)| at).collect(), out)
}

/// The number of independent repetitions of each configuration in a round, counted from 0.
pub fn attempts_in(round: u32) -> usize {
    HALVING.saturating_pow(round)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn standing(mean: Option<f64>, time: f64) -> Standing {
        Standing { mean, time: Some(time) }
    }

    #[test]
    fn the_better_half_goes_on_if_it_is_fast_enough() {
        let all = [
            standing(Some(32.0), 10.0),
            standing(Some(20.0), 10.6),
            standing(Some(25.0), 10.5),
            standing(None, 9.0),
            standing(Some(28.0), 9.0),
            standing(Some(29.0), 9.0),
        ];
        let bound = Some(TimeBound { reference: 10.0, slower_at_most: 0.05 });
        let (on, out) = halve(&all, bound, Direction::Minimize, 2);
        assert_eq!(on, [2, 4], "5% slower is allowed");
        let slower = out[0];
        assert!(matches!(slower, (1, Out::Slower(share)) if (share - 0.06).abs() < 1e-12), "{slower:?}");
        assert_eq!(out[1..], [(3, Out::Unmeasured), (5, Out::Behind(2)), (0, Out::Behind(3))]);
        assert_eq!(halve(&all, None, Direction::Minimize, 2).0, [1, 2], "without a bound");
        assert_eq!(halve(&all, bound, Direction::Maximize, 9).0, [0, 5, 4, 2]);
        let timeless = [Standing { mean: Some(1.0), time: None }];
        assert_eq!(halve(&timeless, bound, Direction::Minimize, 1).1, [(0, Out::Unmeasured)]);
        assert_eq!(halve(&timeless, None, Direction::Minimize, 1).0, [0]);
    }

    #[test]
    fn each_round_has_twice_the_attempts() {
        let attempts: Vec<usize> = (0..4).map(attempts_in).collect();
        assert_eq!(attempts, [1, 2, 4, 8]);
    }

    proptest! {
        #[test]
        fn every_configuration_is_in_or_out_once_and_no_kept_one_is_worse(
            values in prop::collection::vec((0i8..20, 1i8..20), 0..20),
            keep in 0..9usize,
            bounded: bool,
        ) {
            let all: Vec<Standing> =
                values.iter().map(|(value, time)| standing(Some(f64::from(*value)), f64::from(*time))).collect();
            let bound = bounded.then_some(TimeBound { reference: 10.0, slower_at_most: 0.0 });
            let (on, out) = halve(&all, bound, Direction::Minimize, keep);
            let mut seen: Vec<usize> = on.iter().copied().chain(out.iter().map(|(at, _)| *at)).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..all.len()).collect::<Vec<_>>());
            let allowed = |at: usize| !bounded || values[at].1 <= 10;
            let worst_on = on.iter().map(|at| values[*at].0).max();
            for (at, why) in out {
                prop_assert_eq!(matches!(why, Out::Slower(_)), !allowed(at));
                prop_assert!(!allowed(at) || (on.len() == keep && worst_on.is_none_or(|worst| values[at].0 >= worst)));
            }
        }
    }
}
