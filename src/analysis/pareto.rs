//! The Pareto front: the configurations that no other one dominates.
//!
//! Knows numbers and the better direction of each. Must not know what they measure.

use super::best::Place;
use super::pairwise::Scale;
use super::resample::{Sampled, probabilities};
use crate::record::Direction;
use std::cmp::Ordering;

/// The most configurations for which probabilities are computed.
const MOST: usize = 500;

/// Returns for each configuration the probability that it is on the front in new measurements. `places` has the places
/// of each configuration in all metrics. `None` if one of them has a single unit, or if there are more than 500 configurations.
pub fn front_probabilities(places: &[&[Place]], directions: &[Direction]) -> Option<Vec<f64>> {
    if places.len() > MOST || places.iter().flat_map(|all| all.iter()).any(|one| one.estimate.standard_error.is_none())
    {
        return None;
    }
    // Each place has the scale of its own values.
    let scale = |metric: usize| places.iter().map(|all| all[metric].scale).find(|scale| *scale != Scale::Ratio);
    let scales: Vec<Scale> = (0..directions.len()).map(|metric| scale(metric).unwrap_or(Scale::Ratio)).collect();
    let sampled: Vec<Vec<_>> = places
        .iter()
        .map(|all| all.iter().zip(&scales).map(|(one, scale)| Sampled { scale: *scale, ..one.sampled() }).collect())
        .collect();
    let drawn = probabilities(&sampled, &mut |draw, named| {
        let front = dominators(draw, directions).into_iter().enumerate().filter(|(_, by)| by.is_none());
        named.extend(front.map(|(at, _)| at));
    });
    drawn.map(|drawn| drawn.shares)
}

/// Returns for each point the index of a point on the front that dominates it; `None` for points of the front.
///
/// One point dominates another if it is at least as good in every coordinate and better in one; equal points do not dominate each other.
pub fn dominators(points: &[Vec<f64>], directions: &[Direction]) -> Vec<Option<usize>> {
    let oriented: Vec<Vec<f64>> = points
        .iter()
        .map(|point| {
            let sign = |direction: &Direction| if *direction == Direction::Maximize { -1.0 } else { 1.0 };
            point.iter().zip(directions).map(|(value, direction)| sign(direction) * value + 0.0).collect()
        })
        .collect();
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|a, b| lexicographic(&oriented[*a], &oriented[*b]).then(a.cmp(b)));
    // In this order a point can only be dominated by one before it, and then also by one of the front.
    let mut front: Vec<usize> = Vec::new();
    let mut found = vec![None; points.len()];
    for at in order {
        found[at] = front.iter().copied().find(|other| dominates(&oriented[*other], &oriented[at]));
        if found[at].is_none() {
            front.push(at);
        }
    }
    found
}

fn lexicographic(a: &[f64], b: &[f64]) -> Ordering {
    let unequal = a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
    unequal.unwrap_or(Ordering::Equal)
}

fn dominates(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b) && a.iter().zip(b).any(|(a, b)| a < b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::best::tests::contender;
    use crate::analysis::{Ordering as Ranking, place};
    use crate::record::MetricKind;
    use proptest::prelude::*;

    #[test]
    fn a_configuration_that_is_worse_in_every_seed_is_never_on_the_front() {
        let of_seeds = [0.82, 0.76, 0.85, 0.79, 0.81, 0.74, 0.83, 0.80];
        let place = |x: i64, kind: MetricKind, values: &[f64], direction: Direction| {
            let one = crate::analysis::Contender { kind, ..contender(x, values, None, "g") };
            place(vec![one], Ranking::of("", "", direction)).pop().unwrap()
        };
        let configuration = |x: i64, better: f64, energy: f64| {
            let accuracies = of_seeds.map(|value| value + better);
            let energies = [0.1, -0.3, 0.2, 0.4, -0.2, 0.0, -0.4, 0.2].map(|noise| energy + noise);
            vec![
                place(x, MetricKind::Outcome, &accuracies, Direction::Maximize),
                place(x, MetricKind::Measured, &energies, Direction::Minimize),
            ]
        };
        let (first, other) = (configuration(1, 0.01, 100.0), configuration(2, 0.0, 120.0));
        let directions = [Direction::Maximize, Direction::Minimize];
        assert_eq!(front_probabilities(&[&first, &other], &directions), Some(vec![1.0, 0.0]));
    }

    #[test]
    fn the_front_is_the_set_of_points_that_are_not_dominated() {
        // Energy and time less, accuracy more.
        let directions = [Direction::Minimize, Direction::Minimize, Direction::Maximize];
        let points = [
            vec![1.0, 9.0, 0.9],
            vec![2.0, 5.0, 0.9],
            vec![2.0, 6.0, 0.9],
            vec![9.0, 9.0, 0.95],
            vec![2.0, 5.0, 0.9],
            vec![3.0, 9.5, 0.8],
        ];
        assert_eq!(dominators(&points, &directions), [None, None, Some(1), None, None, Some(0)]);
        assert_eq!(dominators(&[], &directions), []);
        let zeros = [vec![-0.0, 7.0], vec![0.0, 5.0]];
        assert_eq!(dominators(&zeros, &[Direction::Minimize; 2]), [Some(1), None], "zeros are equal");
    }

    proptest! {
        #[test]
        fn the_front_agrees_with_its_definition(
            points in prop::collection::vec(prop::collection::vec(0..5i8, 3), 0..24),
            maximize in prop::collection::vec(any::<bool>(), 3),
        ) {
            let directions: Vec<Direction> =
                maximize.iter().map(|max| if *max { Direction::Maximize } else { Direction::Minimize }).collect();
            let real: Vec<Vec<f64>> = points.iter().map(|point| point.iter().map(|x| f64::from(*x)).collect()).collect();
            let beats = |a: &[i8], b: &[i8]| {
                let pairs: Vec<(i8, i8)> =
                    a.iter().zip(b).zip(&maximize).map(|((a, b), max)| if *max { (-a, -b) } else { (*a, *b) }).collect();
                pairs.iter().all(|(a, b)| a <= b) && pairs.iter().any(|(a, b)| a < b)
            };
            let found = dominators(&real, &directions);
            for (at, by) in found.iter().enumerate() {
                prop_assert_eq!(by.is_none(), !points.iter().any(|other| beats(other, &points[at])));
                if let Some(by) = by {
                    prop_assert!(found[*by].is_none() && beats(&points[*by], &points[at]));
                }
            }
        }
    }
}
