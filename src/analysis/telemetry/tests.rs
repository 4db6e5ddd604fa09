use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn series(name: &str, points: &[(u64, f64)]) -> Series {
    let mut series = Series::new(name, "", Axis::TimeNs);
    points.iter().for_each(|(position, value)| series.push(*position, *value));
    series
}

fn curve(name: &str, points: &[(u64, f64)]) -> Curve {
    Curve::of(&series(name, points))
}

/// Points with positions that never decrease, some of them not finite.
fn points(values: impl Strategy<Value = f64>) -> impl Strategy<Value = Vec<(u64, f64)>> {
    prop::collection::vec((0..3 * SECOND, values), 0..60).prop_map(|steps| {
        let mut position = 0;
        let sum = |(step, value)| {
            position += step;
            (position, value)
        };
        steps.into_iter().map(sum).collect()
    })
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![8 => -1e6..1e6, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(0.0)]
}

#[test]
fn kinds_follow_from_the_names_of_readings() {
    assert_eq!(Kind::of("gpu.0.energy"), Kind::Counter);
    assert_eq!(Kind::of("host.worker_cpu_time"), Kind::Counter);
    assert_eq!(Kind::of("gpu.12.throttle_reasons"), Kind::Flags);
    assert_eq!(quantity("package.1.energy"), Some(Quantity::Energy));
    for level in ["gpu.0.power_instant", "gpu.0.read_time", "loss", "energy", "gpu.x.energy", "my.energy", ""] {
        assert_eq!(Kind::of(level), Kind::Level, "{level}");
    }
}

#[test]
fn the_mean_weighs_time_and_leaves_gaps_out() {
    let steady = [(0, 0.0), (SECOND, 10.0), (2 * SECOND, 10.0)];
    assert_eq!(curve("host.x", &steady).mean(), Some(7.5));
    let points = [(0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0), (1003, 9.0), (1004, 9.0), (1005, 9.0), (1006, 9.0)];
    let gapped = curve("host.x", &points);
    assert_eq!((gapped.pieces().len(), gapped.mean()), (2, Some(5.0)));
    assert_eq!(gapped.buckets(0, 1006, 4), [Some(1.0), None, None, Some(9.0)]);
    let mut loss = Series::new("loss", "", Axis::Step);
    [(1, 8.0), (2, 4.0), (3, 4.0)].into_iter().for_each(|(step, value)| loss.push(step, value));
    assert_eq!(Curve::of(&loss).buckets(1, 3, 4), [Some(7.0), Some(5.0), Some(4.0), Some(4.0)]);
    assert_eq!(curve("host.x", &[(5, 3.0)]).mean(), Some(3.0));
    assert_eq!(curve("host.x", &[(5, 3.0)]).buckets(0, 10, 2), [None, Some(3.0)]);
    assert_eq!(curve("host.x", &[(5, f64::NAN)]).mean(), None);
}

#[test]
fn a_diverged_level_keeps_its_last_value() {
    let diverged = series("loss", &[(1, 2.0), (2, 4.0), (3, f64::NAN)]);
    let figures = Figures::of(&diverged, &Curve::of(&diverged));
    assert_eq!((figures.range, figures.mean), (Some((2.0, 4.0)), Some(3.0)));
    assert!(figures.last.unwrap().is_nan());
}

#[test]
fn counters_are_rates_over_at_least_a_second_and_survive_a_restart() {
    // Ticks of 50 J every 0.1 s, read twice each.
    let ticks: Vec<(u64, f64)> = (0..41u32).map(|i| (u64::from(i) * 50_000_000, f64::from(i / 2 * 50))).collect();
    assert_eq!(curve("gpu.0.energy", &ticks).range(), Some((500.0, 500.0)));
    let anew = [(0, 100.0), (SECOND, 300.0), (2 * SECOND, 10.0), (4 * SECOND, 30.0), (4 * SECOND + 1, 30.0)];
    let curve = curve("gpu.0.energy", &anew);
    assert_eq!(curve.pieces().len(), 2);
    assert_eq!(curve.pieces()[0], [(0, 200.0), (SECOND, 200.0)]);
    assert!((curve.last().unwrap() - 10.0).abs() < 1e-6);
    assert_eq!(self::curve("gpu.0.energy", &[(7, 5.0)]), Curve::default());
}

#[test]
fn bits_have_shares_of_the_time() {
    let flags = series("gpu.0.throttle_reasons", &[(0, 0.0), (10, 4.0), (20, 5.0), (30, 0.0), (40, 256.0)]);
    assert_eq!(bit_shares(&flags), (vec![(0, 0.25), (2, 0.5), (8, 0.0)], Some(0.5)));
    assert_eq!(Curve::of(&flags).mean(), Some(0.5));
    assert_eq!(bit_shares(&series("gpu.0.throttle_reasons", &[])), (Vec::new(), None));
}

#[test]
fn thinning_keeps_the_range_in_order() {
    let points: Vec<(u64, f64)> = (0..1000u32).map(|i| (u64::from(i), f64::from(i * 7919 % 1000))).collect();
    let full = curve("host.x", &points);
    let thin = full.thinned(0, 1000, 10);
    assert_eq!(thin.range(), full.range());
    assert!(thin.pieces()[0].len() <= 40 && thin.pieces()[0].is_sorted_by_key(|point| point.0));
}

fn close(a: f64, b: f64, scale: f64) -> bool {
    (a - b).abs() <= 1e-9 * scale.max(1.0)
}

proptest! {
    #[test]
    fn means_lie_within_the_range(points in points(number()), count in 0..50usize, from in 0..SECOND, to in 0..90 * SECOND) {
        for name in ["host.x", "gpu.0.energy", "gpu.0.throttle_reasons"] {
            let curve = curve(name, &points);
            let buckets = curve.buckets(from, to, count);
            prop_assert_eq!(buckets.len(), count);
            prop_assert_eq!(curve.mean().is_some(), curve.range().is_some());
            for mean in buckets.into_iter().flatten().chain(curve.mean()) {
                let (min, max) = curve.range().unwrap();
                let slack = 1e-9 * min.abs().max(max.abs());
                prop_assert!((min - slack..=max + slack).contains(&mean), "{mean} of {min}..{max}");
            }
        }
    }

    /// If all parts are known, the mean of equal parts is that of the whole.
    #[test]
    fn buckets_of_a_curve_without_gaps_have_its_mean(values in prop::collection::vec(-1e6..1e6, 2..60), count in 1..50usize) {
        let points: Vec<(u64, f64)> = (0u64..).step_by(50 * 1000).zip(values).collect();
        let curve = curve("host.x", &points);
        let end = points.last().unwrap().0;
        let buckets: Vec<f64> = curve.buckets(0, end, count).into_iter().map(|mean| mean.unwrap()).collect();
        let mean = buckets.iter().sum::<f64>() / real(count as u64);
        prop_assert!(close(mean, curve.mean().unwrap(), 1e6));
    }

    #[test]
    fn rates_times_their_durations_are_the_counted_amount(points in points(0.0..1e6)) {
        let mut sum = 0.0;
        let counted: Vec<(u64, f64)> = points.into_iter().map(|(position, more)| { sum += more; (position, sum) }).collect();
        let curve = curve("gpu.0.energy", &counted);
        if let Some(mean) = curve.mean() {
            let (first, last) = (counted[0], counted[counted.len() - 1]);
            let counted = mean * real(last.0 - first.0) / 1e9;
            prop_assert!(close(counted, last.1 - first.1, 1e9), "{counted} of {}", last.1 - first.1);
            prop_assert!(curve.range().unwrap().0 >= 0.0);
        }
    }

    #[test]
    fn thinning_keeps_the_extremes_and_adds_nothing(points in points(number()), count in 1..20usize) {
        let full = curve("host.x", &points);
        let thin = full.thinned(0, 180 * SECOND, count);
        prop_assert_eq!(thin.range(), full.range());
        prop_assert_eq!(thin.last(), full.last());
        for (thin, full) in thin.pieces().iter().zip(full.pieces()) {
            prop_assert!(thin.len() <= 4 * count && thin.iter().all(|point| full.contains(point)));
        }
    }
}
