use super::*;
use crate::analysis::resample::Random;
use proptest::prelude::*;

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9 * expected.abs().max(1e-3), "{found} {expected}");
}

#[test]
fn coefficients_and_the_line_are_those_of_scipy() {
    // SciPy 1.17.1: pearsonr(a, b), its confidence_interval(0.95), spearmanr(a, b), linregress(a, b); the slope's error times t.ppf(0.975,
    // 6).
    let a = [1.2, 2.3, 3.1, 4.8, 5.0, 6.6, 7.9, 7.9];
    let b = [2.0, 2.9, 2.7, 5.1, 4.4, 6.0, 9.1, 8.8];
    let points: Vec<(f64, f64)> = a.into_iter().zip(b).collect();
    let found = Correlation::of(&points).unwrap();
    near(found.pearson, 0.964558704662829);
    near(found.pearson_p.unwrap(), 0.000108355922172275);
    near(found.interval.unwrap().0, 0.811378344528296);
    near(found.interval.unwrap().1, 0.993768658754243);
    near(found.spearman, 0.946124746911475);
    // Of all 40,320 orders of the ranks, 52 agree or disagree as much.
    near(found.spearman_p.unwrap(), 52.0 / 40_320.0);
    near(found.slope, 1.03364737550471);
    near(found.intercept, 0.111810228802155);
    near(found.slope_half_width.unwrap(), 0.282470916757584);
}

#[test]
fn few_ranks_have_an_exact_probability() {
    let p = |n: i32| {
        let points: Vec<(f64, f64)> = (0..n).map(|at| (f64::from(at), f64::from(at * at))).collect();
        Correlation::of(&points).unwrap().spearman_p
    };
    assert_eq!([2, 3, 4, 5].map(p), [None, Some(2.0 / 6.0), Some(2.0 / 24.0), Some(2.0 / 120.0)]);
}

#[test]
fn constant_quantities_have_no_correlation() {
    assert_eq!(Correlation::of(&[(1.0, 2.0), (1.0, 3.0)]), None);
    assert_eq!(Correlation::of(&[]), None);
    let points: Vec<(f64, f64)> = (0..11).map(|at| (0.983, f64::from(at))).collect();
    assert_eq!((Correlation::of(&points), split(&points)), (None, None), "nor where its mean is rounded");
    let exact = Correlation::of(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]).unwrap();
    assert_eq!((exact.pearson, exact.pearson_p, exact.interval), (1.0, Some(0.0), None));
    assert_eq!(ranks(&[5.0, 1.0, 5.0, 0.0]), [3.5, 2.0, 3.5, 1.0]);
}

/// Two groups, in each of which y falls with x, the second one higher in both.
fn simpson() -> Vec<(f64, f64)> {
    let group = |x0: f64, y0: f64| {
        (0..12).map(move |at| {
            let (at, wobble) = (f64::from(at), f64::from((at * 7) % 5) * 0.3);
            (x0 + at, y0 - at + wobble)
        })
    };
    group(0.0, 20.0).chain(group(16.0, 60.0)).collect()
}

#[test]
fn simpsons_paradox_is_found_by_splitting_the_points() {
    let points = simpson();
    assert!(Correlation::of(&points).unwrap().pearson > 0.7);
    let split = split(&points).unwrap();
    assert_eq!(split.is_second, [[false; 12], [true; 12]].concat());
    assert!(split.is_strong(), "{}", split.gain);
    let within = |second: bool| {
        let chosen: Vec<_> =
            points.iter().zip(&split.is_second).filter(|(_, is)| **is == second).map(|(point, _)| *point).collect();
        Correlation::of(&chosen).unwrap().pearson
    };
    assert!(within(false) < -0.9 && within(true) < -0.9);
}

#[test]
fn one_cloud_is_not_split() {
    // A slanted lattice without gaps.
    let points: Vec<(f64, f64)> = (0..60)
        .map(|at| (f64::from((at * 17) % 60), f64::from((at * 29) % 60) + 0.5 * f64::from((at * 17) % 60)))
        .collect();
    assert!(split(&points).is_none_or(|split| !split.is_strong()));
    assert_eq!(split(&points[..7]), None);
}

/// The number of simulated experiments of each kind.
/// `LEDGER_EXPERIMENTS=10000 cargo test --release correlat -- --nocapture` prints the table of docs/measurements.
fn experiments(short: u32) -> u32 {
    std::env::var("LEDGER_EXPERIMENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(short)
}

/// Five standard errors of a share of 5%.
fn slack(experiments: u32) -> f64 {
    5.0 * (0.05 * 0.95 / f64::from(experiments)).sqrt()
}

#[test]
fn one_normal_cloud_is_split_in_at_most_5_of_100_experiments() {
    let experiments = experiments(300);
    let mut random = Random(11);
    let sizes: &[usize] = if experiments > 300 { &[8, 9, 10, 11, 12, 13, 14, 16, 20, 30, 60] } else { &[8, 11, 14] };
    eprintln!("| points | correlation 0 | 0.5 | 0.9 |\n|---|--:|--:|--:|");
    for points in sizes.iter().copied() {
        let shares = [0.0, 0.5, 0.9].map(|slant: f64| {
            let mut cloud = || {
                let (x, rest) = (random.normal(), random.normal());
                (x, slant * x + (1.0 - slant * slant).sqrt() * rest)
            };
            let is_parted = |_: &u32| {
                split(&(0..points).map(|_| cloud()).collect::<Vec<_>>()).is_some_and(|split| split.is_strong())
            };
            let parted = (0..experiments).filter(is_parted).count();
            number(parted) / f64::from(experiments)
        });
        eprintln!("| {points} | {} |", shares.map(|share| format!("{:.1}%", 100.0 * share)).join(" | "));
        assert!(shares.iter().all(|share| *share <= 0.05 + slack(experiments)), "{points}: {shares:?}");
    }
}

#[test]
fn the_jackknife_over_clusters_is_that_of_numpy() {
    // NumPy and SciPy 1.17.1: z = arctanh of pearsonr and spearmanr without each cluster; sqrt(4 / 5 * sum((z - mean(z)) ** 2)); t with 3
    // degrees of freedom.
    let x = [1.2, 2.3, 3.1, 4.8, 5.0, 6.6, 7.9, 7.9, 3.3, 4.1];
    let y = [2.0, 2.9, 2.7, 5.1, 4.4, 6.0, 9.1, 8.8, 1.2, 6.6];
    let points: Vec<(f64, f64)> = x.into_iter().zip(y).collect();
    let cluster: Vec<usize> = (0..10).map(|at| at / 2).collect();
    let found = Correlation::of_clusters(&points, &cluster).unwrap();
    assert_eq!(found.clusters, Some(5));
    near(found.pearson_p.unwrap(), 0.12593242133559232);
    near(found.spearman_p.unwrap(), 0.16784495324315585);
    near(found.interval.unwrap().0, -0.6243964346208376);
    near(found.interval.unwrap().1, 0.9984904199284851);
    near(found.slope_half_width.unwrap(), 0.8605815856278279);
    let each: Vec<usize> = (0..10).collect();
    assert_eq!(Correlation::of_clusters(&points, &each), Correlation::of(&points), "independent points");
    let few = Correlation::of_clusters(&points, &[0, 0, 0, 1, 1, 1, 2, 2, 2, 2]).unwrap();
    assert_eq!((few.pearson_p, few.interval, few.slope_half_width), (None, None, None));
}

#[test]
fn points_of_attempts_without_a_correlation_are_called_correlated_in_at_most_7_of_100_experiments() {
    let experiments = experiments(400);
    let mut random = Random(12);
    eprintln!("| attempts x points | of an attempt alike | as if independent | by attempt |\n|---|--:|--:|--:|");
    for (attempts, points) in [(4, 4), (6, 4), (12, 4), (30, 4)] {
        for alike in [0.0, 0.5, 0.9] {
            let mut significant = [0.0, 0.0];
            for _ in 0..experiments {
                let mut all = Vec::new();
                for _ in 0..attempts {
                    let own = (random.normal(), random.normal());
                    let mut drawn = |own: f64| f64::sqrt(alike) * own + f64::sqrt(1.0 - alike) * random.normal();
                    (0..points).for_each(|_| all.push((drawn(own.0), drawn(own.1))));
                }
                let of: Vec<usize> = (0..all.len()).map(|at| at / points).collect();
                let found = [Correlation::of(&all), Correlation::of_clusters(&all, &of)];
                for (share, found) in significant.iter_mut().zip(found) {
                    let is = found.and_then(|found| found.pearson_p).is_some_and(|p| p < 0.05);
                    *share += f64::from(u8::from(is)) / f64::from(experiments);
                }
            }
            let [alone, by_attempt] = significant.map(|share| format!("{:.1}%", 100.0 * share));
            eprintln!("| {attempts} x {points} | {:.0}% | {alone} | {by_attempt} |", 100.0 * alike);
            assert!(significant[1] <= 0.065 + slack(experiments), "{attempts} {alike}: {significant:?}");
        }
    }
}

proptest! {
    #[test]
    fn nothing_depends_on_scale_or_order(points in prop::collection::vec((-9.0..9.0f64, -9.0..9.0f64), 3..20)) {
        let Some(found) = Correlation::of(&points) else { return Ok(()) };
        let turned: Vec<_> = points.iter().rev().map(|(x, y)| (3.0 * x - 1.0, -0.5 * y)).collect();
        let other = Correlation::of(&turned).unwrap();
        prop_assert!((found.pearson + other.pearson).abs() < 1e-9);
        prop_assert!((found.spearman + other.spearman).abs() < 1e-9);
        prop_assert!(found.pearson.abs() <= 1.0 && found.spearman.abs() <= 1.0);
    }
}
