use super::*;
use crate::analysis::best::tests::contender;
use crate::record::Digest;
use proptest::prelude::*;

const A: [f64; 5] = [12.1, 12.9, 11.4, 12.6, 12.2];
const B: [f64; 3] = [13.4, 14.1, 13.0];
const C: [f64; 2] = [12.3, 12.5];

fn of(values: &[f64]) -> Contender {
    contender(1, values, None, "s")
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9 * expected.abs().max(1e-3), "{found} {expected}");
}

fn matches(found: Comparison, [estimate, low, high, p]: [f64; 4], method: Method) {
    near(found.estimate, estimate);
    near(found.interval.unwrap().0, low);
    near(found.interval.unwrap().1, high);
    assert_eq!(found.test.unwrap().1, method);
    near(found.test.unwrap().0, p);
}

#[test]
fn differences_are_those_of_scipy() {
    // SciPy 1.17.1: r = scipy.stats.ttest_ind(b, a, equal_var=False); r.pvalue, r.confidence_interval(0.95).
    let found = compare(&of(&A), &of(&B), Scale::Difference).unwrap();
    matches(found, [1.26, 0.163514291198454, 2.35648570880155, 0.0325276968503995], Method::Welch);
    near(found.degrees.unwrap(), 4.41880507197037);
    // A share is stated in hundredths.
    let points = compare(&of(&A), &of(&B), Scale::Points).unwrap();
    near(points.estimate, 126.0);
}

#[test]
fn ratios_have_their_interval_on_the_log_scale() {
    // NumPy: v = (sem(a) / mean(a)) ** 2 + (sem(b) / mean(b)) ** 2, Welch's degrees of freedom of these two; r *
    // exp(+-t.ppf(.975, d) * sqrt(v)).
    let found = compare(&of(&A), &of(&B), Scale::Ratio).unwrap();
    matches(found, [1.1029411764705883, 1.0159068920778118, 1.1974318200226866, 0.028252314666164752], Method::Welch);
    near(found.degrees.unwrap(), 4.808254429557252);
}

/// Outcomes of the seeds 1, 2 and so on.
fn seeds(values: &[f64]) -> Contender {
    Contender { kind: MetricKind::Outcome, ..of(values) }
}

#[test]
fn common_seeds_and_rounds_are_pairs() {
    // SciPy: scipy.stats.ttest_rel(y, x).
    let found = compare(&seeds(&[0.90, 0.92, 0.91, 0.95]), &seeds(&[0.88, 0.91, 0.895, 0.92]), Scale::Points).unwrap();
    let expected = [-1.875, -3.233765441898, -0.5162345581019979, 0.021875398782757564];
    matches(found, expected, Method::Paired(Block::Seed, 4));
    // NumPy: d = y / mean(y) - x / mean(x), and so on with sem(d).
    let round = |values: &[f64]| {
        let mut one = of(values);
        one.measured.iter_mut().enumerate().for_each(|(at, measured)| measured.round = Some(at as u64));
        one
    };
    let (x, y) = ([100.0, 110.0, 90.0, 105.0], [108.0, 121.0, 97.0, 113.0]);
    let found = compare(&round(&x), &round(&y), Scale::Ratio).unwrap();
    let expected = [1.0839506172839506, 1.065415542389919, 1.1028081475840266, 0.0006593789563683473];
    matches(found, expected, Method::Paired(Block::Round, 4));
    // Two pairs are too few for a paired test, and so is one common seed of four.
    assert!(!matches!(
        compare(&round(&x[..2]), &round(&y[..2]), Scale::Ratio).unwrap().test,
        Ok((_, Method::Paired(..)))
    ));
    let mut others = seeds(&[0.88, 0.91, 0.895, 0.92]);
    others.measured.iter_mut().skip(1).for_each(|one| one.replicate.seed += 10);
    assert_eq!(compare(&seeds(&x), &others, Scale::Ratio).unwrap().test.unwrap().1, Method::Welch);
}

#[test]
fn the_difference_is_that_of_the_common_blocks() {
    // A seed that only one side has, as after a failed run, changes nothing.
    let (x, y) = ([0.90, 0.92, 0.91, 0.95], [0.88, 0.91, 0.895, 0.92]);
    let whole = compare(&seeds(&x), &seeds(&y), Scale::Points).unwrap();
    let more = compare(&seeds(&[&x[..], &[0.10]].concat()), &seeds(&y), Scale::Points).unwrap();
    assert_eq!(more, whole);
    // A round with more attempts of one side, such as control runs, does not count more.
    let rounds = |values: &[f64], rounds: &[u64]| {
        let mut one = of(values);
        one.measured.iter_mut().zip(rounds).for_each(|(measured, round)| measured.round = Some(*round));
        one
    };
    let (x, y) = ([100.0, 110.0, 90.0], [101.0, 111.5, 90.7]);
    let balanced = compare(&rounds(&x, &[1, 2, 3]), &rounds(&y, &[1, 2, 3]), Scale::Ratio).unwrap();
    let unbalanced = rounds(&[100.0, 110.0, 110.0, 110.0, 90.0], &[1, 2, 2, 2, 3]);
    let found = compare(&unbalanced, &rounds(&y, &[1, 2, 3]), Scale::Ratio).unwrap();
    assert_eq!(found, balanced);
    // A rerun belongs to no round.
    let mut rerun = rounds(&[100.0, 110.0, 90.0, 120.0], &[1, 2, 3]);
    rerun.measured[3].round = None;
    assert_eq!(compare(&rerun, &rounds(&y, &[1, 2, 3]), Scale::Ratio).unwrap(), balanced);
}

#[test]
fn two_common_machines_are_compared_within_each() {
    let on_two = |values: &[f64]| {
        let mut one = of(values);
        one.measured.iter_mut().enumerate().for_each(|(at, measured)| measured.replicate.machine = 1 + at as u64 / 3);
        one
    };
    let (a, b) = ([100.0, 102.0, 101.0, 104.0, 105.0, 106.0], [107.0, 108.0, 110.0, 112.0, 111.0, 113.0]);
    // NumPy: the variances within both cells of either side, in units of its mean, with Satterthwaite's degrees of
    // freedom. They are pooled with the square of half the difference between the two machines' differences, which has
    // one degree of freedom.
    let found = compare(&on_two(&a), &on_two(&b), Scale::Ratio).unwrap();
    let expected = [1.0695792880258899, 1.0552820165821337, 1.084070263112392, 1.5825853769233858e-06];
    matches(found, expected, Method::Within(Block::Machine, 2));
}

#[test]
fn a_machine_that_one_side_lacks_changes_nothing() {
    let on = |values: &[f64], machines: &[u64]| {
        let mut one = of(values);
        one.measured.iter_mut().zip(machines).for_each(|(measured, machine)| {
            measured.replicate.machine = *machine;
            measured.sensors = [format!("GPU {machine}")].into();
        });
        one
    };
    // Machines differ by 10, the sides by 1 or so.
    let (x, y) = ([100.0, 110.0, 90.0, 105.0], [101.0, 111.5, 90.7, 106.0]);
    let whole = compare(&on(&x, &[1, 2, 3, 4]), &on(&y, &[1, 2, 3, 4]), Scale::Ratio).unwrap();
    assert_eq!(whole.test.unwrap().1, Method::Paired(Block::Machine, 4));
    let turned = compare(&on(&y, &[1, 2, 3, 4]), &on(&x, &[1, 2, 3, 4]), Scale::Ratio).unwrap();
    for more in [150.0, 50.0] {
        let with_fifth = on(&[&x[..], &[more]].concat(), &[1, 2, 3, 4, 5]);
        assert_eq!(compare(&with_fifth, &on(&y, &[1, 2, 3, 4]), Scale::Ratio).unwrap(), whole);
        assert_eq!(compare(&on(&y, &[1, 2, 3, 4]), &with_fifth, Scale::Ratio).unwrap(), turned);
    }
    // Each side may have a machine of its own.
    let (first, other) =
        (on(&[&x[..], &[70.0]].concat(), &[1, 2, 3, 4, 5]), on(&[&y[..], &[70.0]].concat(), &[1, 2, 3, 4, 6]));
    assert_eq!(compare(&first, &other, Scale::Ratio).unwrap(), whole);
    // Rounds are of a sweep on all machines: an attempt of another round counts for its machine.
    let mut rounds = on(&y, &[1, 2, 3, 4]);
    rounds.measured.iter_mut().enumerate().for_each(|(at, one)| one.round = Some(u64::from(at == 3)));
    let mut single = on(&x, &[1, 2, 3, 4]);
    single.measured.iter_mut().for_each(|one| one.round = Some(0));
    assert_eq!(compare(&single, &rounds, Scale::Ratio).unwrap(), whole);
    // More attempts of one side, on seven more machines, change nothing either.
    let eleven =
        on(&[&x[..], &[91.0, 92.0, 93.0, 95.0, 96.0, 97.0, 98.0]].concat(), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(compare(&eleven, &on(&y, &[1, 2, 3, 4]), Scale::Ratio).unwrap(), whole);
    // One of a row's configurations ran only elsewhere: the mean on the common machines is not that of the row.
    let mut mixed = eleven.clone();
    mixed.measured[4..].iter_mut().for_each(|one| one.configuration = Digest([9; 32]));
    let found = compare(&mixed, &on(&y, &[1, 2, 3, 4]), Scale::Ratio).unwrap();
    assert_eq!(found.test.unwrap().1, Method::Welch);
    near(found.estimate, 102.3 / mean(&mixed.values()));
    // One common machine with both configurations is not enough.
    mixed.measured.push(Measured { value: 10.0, ..mixed.measured[3].clone() });
    mixed.measured.last_mut().unwrap().configuration = Digest([9; 32]);
    assert_eq!(compare(&mixed, &on(&y, &[1, 2, 3, 4]), Scale::Ratio).unwrap().test.unwrap().1, Method::Welch);
    // Both configurations ran on each of four machines, and one of them elsewhere: the four are used.
    let both = |values: &[f64], machine: &[u64], extra: &[u64]| {
        let mut one = on(&[values, values, &vec![500.0; extra.len()]].concat(), &[machine, machine, extra].concat());
        one.measured[4..].iter_mut().for_each(|one| one.configuration = Digest([9; 32]));
        one
    };
    let found = compare(&both(&x, &[1, 2, 3, 4], &[7]), &on(&y, &[1, 2, 3, 4]), Scale::Ratio).unwrap();
    assert_eq!((found.estimate, found.test), (whole.estimate, whole.test));
    // Two common machines are too few.
    let found = compare(&on(&y[..3], &[1, 2, 8]), &on(&x, &[1, 2, 3, 4]), Scale::Ratio).unwrap();
    assert_eq!(found.test.unwrap().1, Method::Welch);
}

#[test]
fn a_single_round_is_compared_within_itself_and_two_within_both() {
    let rounds = |values: &[f64], rounds: &[u64]| {
        let mut one = of(values);
        one.measured.iter_mut().zip(rounds).for_each(|(measured, round)| measured.round = Some(*round));
        one
    };
    let (a, b) = ([100.0, 102.0, 101.0, 104.0, 105.0, 106.0], [107.0, 108.0, 110.0, 112.0, 111.0, 113.0]);
    let both = [1, 1, 1, 2, 2, 2];
    // The same result as on two machines.
    let found = compare(&rounds(&a, &both), &rounds(&b, &both), Scale::Ratio).unwrap();
    let expected = [1.0695792880258899, 1.0552820165821337, 1.084070263112392, 1.5825853769233858e-06];
    matches(found, expected, Method::Within(Block::Round, 2));
    // A difference that depends on the round has a wider interval than its scatter within rounds gives (1.046 to 1.074).
    let (c, d) = ([100.0, 101.0, 100.0, 101.0], [111.0, 112.0, 101.0, 102.0]);
    let found = compare(&rounds(&c, &[1, 1, 2, 2]), &rounds(&d, &[1, 1, 2, 2]), Scale::Ratio).unwrap();
    let expected = [1.0597014925373134, 1.0027707682471814, 1.119864368651999, 0.042822463782699376];
    matches(found, expected, Method::Within(Block::Round, 2));
    // Rounds differ by 100, the sides by 1. Attempts that are missing in one round of either side do not change the difference.
    let (few, many) = ([100.0, 101.0, 102.0, 201.0], [102.0, 201.0, 202.0, 203.0]);
    let found = compare(&rounds(&few, &[1, 1, 1, 2]), &rounds(&many, &[1, 2, 2, 2]), Scale::Difference).unwrap();
    assert_eq!((found.estimate, found.test.unwrap().1), (1.0, Method::Within(Block::Round, 2)));
    let one = |round| rounds(&a[..3], &[round; 3]);
    assert_eq!(compare(&one(1), &one(1), Scale::Ratio).unwrap().test.unwrap().1, Method::Welch);
    // Only the attempts of that round are used from the other side.
    let found = compare(&one(1), &rounds(&b, &both), Scale::Ratio).unwrap();
    let within = compare(&one(1), &rounds(&b[..3], &[1; 3]), Scale::Ratio).unwrap();
    assert_eq!((found.estimate, found.interval), (within.estimate, within.interval));
    assert_eq!(found.test, within.test.map(|(p, _)| (p, Method::Within(Block::Round, 1))));
    assert!(found.is_of_one_round && !within.is_of_one_round);
    // With fewer attempts in the round than a t-test needs, there is no test.
    for other in [one(2), rounds(&b[..3], &[1, 2, 3]), rounds(&b[..4], &[1, 1, 2, 2])] {
        let found = compare(&one(1), &other, Scale::Ratio).unwrap();
        assert_eq!((found.test, found.interval), (Err(Untested::OtherRounds), None));
    }
    // Separate rounds are independent samples: two means of rounds are too few for a test.
    let found = compare(&rounds(&a, &both), &rounds(&b, &[3, 3, 4, 4, 5, 5]), Scale::Ratio).unwrap();
    assert_eq!(found.test, Err(Untested::TooFew));
    let mut other_device = one(2);
    other_device.run.parts.device = "another".into();
    assert!(compare(&one(1), &other_device, Scale::Ratio).unwrap().test.is_ok(), "devices are compared");
}

#[test]
fn a_single_machine_or_seed_of_one_side_prevents_a_test() {
    let on = |machines: &[u64]| {
        let mut one = of(&[100.0, 102.0, 101.0]);
        one.measured.iter_mut().zip(machines).for_each(|(measured, machine)| measured.replicate.machine = *machine);
        one
    };
    let found = compare(&on(&[1, 1, 1]), &on(&[2, 2, 2]), Scale::Ratio).unwrap();
    assert_eq!((found.test, found.interval), (Err(Untested::Confounded), None));
    assert_eq!(compare(&on(&[1, 1, 1]), &on(&[1, 2, 3]), Scale::Ratio).unwrap().test, Err(Untested::Confounded));
    assert!(compare(&on(&[1, 1, 1]), &on(&[1, 1, 1]), Scale::Ratio).unwrap().test.is_ok());
    let mut other_device = on(&[2, 2, 2]);
    other_device.run.parts.device = "another".into();
    assert!(compare(&on(&[1, 1, 1]), &other_device, Scale::Ratio).unwrap().test.is_ok(), "devices are compared");
    let with = |seeds: &[u64]| {
        let mut one = Contender { kind: MetricKind::Outcome, ..of(&[0.5, 0.6, 0.7]) };
        one.measured.iter_mut().zip(seeds).for_each(|(measured, seed)| measured.replicate.seed = *seed);
        one
    };
    for seeds in [[2, 2, 2], [1, 2, 3]] {
        let found = compare(&with(&[1, 1, 1]), &with(&seeds), Scale::Points).unwrap();
        assert_eq!(found.test, Err(Untested::Confounded), "{seeds:?}");
    }
    assert!(compare(&with(&[1, 1, 1]), &with(&[1, 1, 1]), Scale::Points).unwrap().test.is_ok());
}

#[test]
fn few_units_have_a_permutation_test_or_none() {
    // SciPy: scipy.stats.permutation_test of the absolute difference of means, all exchanges.
    let found = compare(&of(&C), &of(&[13.4, 14.1, 13.0, 13.8, 13.9]), Scale::Ratio).unwrap();
    assert_eq!(found.test.unwrap().1, Method::Permutation);
    near(found.test.unwrap().0, 0.047619047619047616);
    assert_eq!(found.interval, None, "a t interval of two units may contradict the exact test");
    assert_eq!(compare(&of(&C), &of(&B), Scale::Ratio).unwrap().test, Err(Untested::TooFew), "0.1 at best");
    assert_eq!(compare(&of(&C), &of(&[13.0, 13.1]), Scale::Ratio).unwrap().test, Err(Untested::TooFew));
    let one = compare(&of(&[5.0]), &of(&B), Scale::Ratio).unwrap();
    assert_eq!((one.test, one.interval), (Err(Untested::TooFew), None));
    // Different sensors, each with an uncertainty of 5%.
    let off = |values: &[f64], sensor: &str| contender(1, values, Some(0.05), sensor);
    let found = compare(&off(&C, "gpu a"), &off(&[13.4, 14.1, 13.0, 13.8, 13.9], "gpu b"), Scale::Ratio).unwrap();
    assert_eq!(found.test, Err(Untested::Sensors));
    let many: Vec<f64> = (0..30).map(|at| 12.0 + f64::from(at) / 100.0).collect();
    near(compare(&of(&[15.0]), &of(&many), Scale::Ratio).unwrap().test.unwrap().0, 1.0 / 31.0);
}

#[test]
fn without_scatter_there_is_a_test_only_for_different_sensors() {
    let still = |value: f64, sensor: &str| contender(1, &[value; 3], (!sensor.is_empty()).then_some(0.05), sensor);
    assert_eq!(compare(&still(1.0, ""), &still(1.0, ""), Scale::Ratio).unwrap().test, Err(Untested::NoScatter));
    let same = compare(&still(1.0, "gpu a"), &still(1.01, "gpu a"), Scale::Ratio).unwrap();
    assert_eq!(same.test, Err(Untested::NoScatter), "what one sensor is off by cancels");
    // SciPy: 2 * norm.sf(log(1.1) / (0.05 / 1.96 * sqrt(2))).
    let other = compare(&still(1.0, "gpu a"), &still(1.1, "gpu b"), Scale::Ratio).unwrap();
    near(other.test.unwrap().0, 0.008245130268337066);
}

proptest! {
    #[test]
    fn a_reversed_comparison_has_the_same_result(
        a in prop::collection::vec(1.0..9.0f64, 3..9),
        b in prop::collection::vec(1.0..9.0f64, 3..9),
    ) {
        let (there, back) = (compare(&of(&a), &of(&b), Scale::Ratio).unwrap(), compare(&of(&b), &of(&a), Scale::Ratio).unwrap());
        prop_assert!((there.test.unwrap().0 - back.test.unwrap().0).abs() < 1e-9);
        prop_assert!((there.estimate * back.estimate - 1.0).abs() < 1e-9);
        prop_assert!((there.interval.unwrap().0 * back.interval.unwrap().1 - 1.0).abs() < 1e-9);
    }
}
