use super::*;
use proptest::prelude::*;

fn on(machine: u64, seed: u64) -> Replicate {
    Replicate { seed, execution: 100 + seed, machine }
}

fn near(found: f64, expected: f64, relative: f64) {
    assert!((found / expected - 1.0).abs() < relative, "{found} {expected}");
}

/// Energies of attempts on six GPUs, with different numbers of attempts.
const CLUSTERS: [&[f64]; 6] = [
    &[101.2, 100.8, 101.9],
    &[97.4, 98.3],
    &[103.1, 102.2, 102.9, 103.4],
    &[99.7],
    &[100.9, 100.1, 101.3],
    &[98.8, 99.9],
];

fn clustered(clusters: &[&[f64]]) -> Vec<(Replicate, f64)> {
    let of = |(machine, values): (u64, &&[f64])| {
        values.iter().map(move |value| (on(machine, 1), *value)).collect::<Vec<_>>()
    };
    (1..).zip(clusters).flat_map(of).collect()
}

#[test]
fn variances_are_those_of_statsmodels() {
    // statsmodels 0.15.0: mixedlm("y ~ 1", df, groups=df.g).fit(reml=True, method=["powell", "lbfgs"], gtol=1e-14): cov_re, scale.
    let found = mixed(&by_machine(&clustered(&CLUSTERS))).unwrap();
    near(found.between, 2.9451011298204444, 1e-6);
    near(found.within, 0.3487182842299023, 1e-6);
    // NumPy: g = [1 / k, sum(1 / n) / k^2]; v = g @ [between, within]; 2 v^2 / (g @ inv(I) @ g), where I is tr(P A P B)
    // / 2 over both of its matrices.
    near(found.standard_error, 0.7204879116544904, 1e-6);
    near(found.degrees, 5.008894685633085, 1e-6);
    let estimate = Estimate::of(MetricKind::Measured, &clustered(&CLUSTERS), &[]).unwrap();
    assert_eq!((estimate.model, estimate.machines, estimate.attempts), (SampleModel::Mixed, 6, 15));
    near(estimate.mean, 100.31111111111109, 1e-12);
}

#[test]
fn equally_many_attempts_of_each_machine_give_the_intervals_of_their_means() {
    let balanced: [&[f64]; 5] = [&[5.0, 5.2], &[6.1, 6.0], &[4.4, 4.5], &[5.3, 5.6], &[6.6, 6.3]];
    let found = mixed(&by_machine(&clustered(&balanced))).unwrap();
    let means: Vec<f64> = balanced.iter().map(|values| (values[0] + values[1]) / 2.0).collect();
    let summary = Summary::of(&means).unwrap();
    near(found.standard_error, (summary.variance.unwrap() / 5.0).sqrt(), 1e-6);
    near(found.degrees, 4.0, 1e-6);
}

#[test]
fn units_are_seeds_for_outcomes_and_machines_or_attempts_for_measurements() {
    let values = [(on(7, 1), 1.0), (on(7, 1), 1.0), (on(7, 2), 2.0), (on(7, 3), 6.0)];
    let outcome = Estimate::of(MetricKind::Outcome, &values, &[]).unwrap();
    assert_eq!((outcome.model, outcome.mean, outcome.units.len()), (SampleModel::Seeds, 3.0, 3));
    assert_eq!((outcome.attempts, outcome.seeds, outcome.covers()), (4, 3, None));
    let measured = Estimate::of(MetricKind::Measured, &values, &[]).unwrap();
    assert_eq!((measured.model, measured.mean, measured.units.len()), (SampleModel::Attempts, 2.5, 4));
    assert_eq!(measured.covers(), Some("repeats on one machine only"));
    let two = [(on(7, 1), 1.0), (on(8, 1), 2.0), (on(8, 1), 4.0)];
    let clusters = Estimate::of(MetricKind::Measured, &two, &[]).unwrap();
    assert_eq!((clusters.model, clusters.mean, clusters.range()), (SampleModel::Clusters, 2.0, Some((1.0, 3.0))));
    let same = Estimate::of(MetricKind::Outcome, &values[..2], &[]).unwrap();
    assert_eq!((same.model, same.half_width(), same.covers()), (SampleModel::Single, None, None));
    let different = [(on(7, 1), 1.0), (Replicate { execution: 9, ..on(7, 1) }, 2.0)];
    let executions = Estimate::of(MetricKind::Outcome, &different, &[]).unwrap();
    assert_eq!((executions.model, executions.covers()), (SampleModel::Executions, Some("attempts of one seed only")));
    let row = |value: f64| (Replicate { seed: 7 + value.to_bits(), execution: 7 + value.to_bits(), machine: 0 }, value);
    let rows = Estimate::of(MetricKind::Outcome, &[row(1.0), row(2.0), row(3.0)], &[]).unwrap();
    assert_eq!((rows.model, rows.seeds, rows.units.len(), rows.covers()), (SampleModel::Attempts, 0, 3, None));
    assert_eq!(Estimate::of(MetricKind::Outcome, &[], &[]), None);
}

#[test]
fn attempts_of_one_round_depend_on_each_other() {
    let values = [101.2, 100.8, 97.4, 103.1, 102.2, 102.9, 99.7].map(|value| (on(7, 1), value));
    let rounds = [Some(1), Some(1), Some(2), Some(3), Some(3), Some(3), None];
    let found = Estimate::of(MetricKind::Measured, &values, &rounds).unwrap();
    assert_eq!((found.model, found.rounds, found.attempts, found.units.len()), (SampleModel::Rounds, 4, 7, 4));
    near(found.mean, 707.3 / 7.0, 1e-12);
    // NumPy: P = I - 1w', A = diag(w^2 / (1 - w)), S = diag(1 / n): V = sum(A d^2); M = P'APS; trace(M)^2 / trace(MM).
    near(found.standard_error.unwrap(), ROBUST.0, 1e-9);
    near(found.degrees, ROBUST.1, 1e-9);
    assert_eq!(found.covers(), Some("repeats on one machine only"));
    let alone = Estimate::of(MetricKind::Measured, &values, &[Some(1), Some(2), None, Some(3)]).unwrap();
    assert_eq!((alone.model, alone.rounds, alone.degrees), (SampleModel::Attempts, 0, 6.0));
    let one = Estimate::of(MetricKind::Measured, &values, &[Some(1); 7]).unwrap();
    assert_eq!((one.model, one.rounds, one.units.len()), (SampleModel::Attempts, 1, 7));
    assert_eq!(one.covers(), Some("repeats in one round on one machine only"));
    assert_eq!(Estimate::of(MetricKind::Outcome, &values, &rounds).unwrap().rounds, 0, "weights decide an outcome");
}

#[test]
fn rounds_with_equally_many_attempts_have_the_standard_error_of_a_mixed_model() {
    // statsmodels 0.15.0: mixedlm("y ~ 1", df, groups=df.g).fit(reml=True, method=["powell", "lbfgs"], gtol=1e-14).bse["Intercept"].
    let clusters = [[101.2, 100.8, 101.9], [97.4, 98.3, 98.0], [103.1, 102.2, 102.9], [99.7, 100.4, 100.1]];
    let values: Vec<_> = clusters.iter().flatten().map(|value| (on(7, 1), *value)).collect();
    let rounds: Vec<Option<u64>> = (0..12).map(|at| Some(at / 3)).collect();
    let found = Estimate::of(MetricKind::Measured, &values, &rounds).unwrap();
    near(found.standard_error.unwrap(), MIXED_OF_ROUNDS, 1e-6);
    near(found.degrees, 3.0, 1e-12);
}

/// Computed with NumPy.
const ROBUST: (f64, f64) = (1.130334668399164, 2.3684210526315796);
/// Computed with statsmodels.
const MIXED_OF_ROUNDS: f64 = 1.023700623637125;

#[test]
fn more_units_are_asked_for_until_the_interval_is_narrow_enough() {
    let of = |values: &[f64]| {
        let values: Vec<_> = values.iter().map(|value| (on(1, 1), *value)).collect();
        Estimate::of(MetricKind::Measured, &values, &[]).unwrap().units_for(0.05)
    };
    // SciPy: `t.ppf(.975, n - 1) * std([3450, 3550], ddof=1) / sqrt(n)` is 175.7 with 3 and 112.5 with 4; 5% are 175.
    assert_eq!(of(&[3450.0, 3550.0]), Some(2));
    // 179.7 with 12 and 170.9 with 13.
    assert_eq!(of(&[3300.0, 3700.0]), Some(11));
    assert_eq!((of(&[3499.0, 3501.0, 3500.0]), of(&[3499.0]), of(&[5.0, 5.0])), (None, None, None));
}

proptest! {
    #[test]
    fn a_mixed_model_has_valid_variances_and_degrees_of_freedom(
        clusters in prop::collection::vec(prop::collection::vec(1.0..9.0f64, 1..5), 5..9),
    ) {
        let clusters: Vec<&[f64]> = clusters.iter().map(Vec::as_slice).collect();
        if let Some(found) = mixed(&by_machine(&clustered(&clusters))) {
            prop_assert!(found.between >= 0.0 && found.within > 0.0 && found.standard_error > 0.0);
            prop_assert!(found.degrees >= 1.0 && found.degrees < 60.0, "{}", found.degrees);
        }
    }
}
