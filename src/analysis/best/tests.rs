use super::*;
use crate::analysis::pairwise::{Method, Untested};
use crate::record::{Digest, Part, Parts};

/// Attempts of one seed each, on one machine with this sensor. `share` is the sensor's relative uncertainty.
pub(in crate::analysis) fn contender(x: i64, values: &[f64], share: Option<f64>, sensor: &str) -> Contender {
    let run = Run::new(Parts {
        config: Value::Table([("params.x".to_owned(), Value::Int(x))].into()),
        device: sensor.into(),
        ..Parts::sample()
    });
    let id = run.id;
    let configuration = run.parts.digest(Part::Config);
    let machine = sensor.bytes().map(u64::from).sum();
    let measured = (1u8..).zip(values).map(|(at, value)| Measured {
        attempt: AttemptId(Digest([at; 32])),
        run: id,
        configuration,
        started_unix_ms: 0,
        value: *value,
        half_width: share.map(|share| share * value.abs()),
        sensors: [sensor.to_owned()].into(),
        replicate: Replicate { seed: u64::from(at), execution: 100 + u64::from(at), machine },
        round: None,
    });
    Contender { run, agreed: Vec::new(), kind: MetricKind::Measured, measured: measured.collect() }
}

fn x(place: &Place) -> i64 {
    place.contender.run.config()["params.x"].as_int().unwrap()
}

fn lowest() -> Ordering {
    Ordering::of("", "", Direction::Minimize)
}

fn test(place: &Place) -> Result<(f64, Method), Untested> {
    place.against.unwrap().comparison.unwrap().test
}

#[test]
fn equal_means_of_several_groups_keep_their_order_for_any_limit() {
    let agreed = |x: i64| vec![("params.y".to_owned(), Some(Value::Int(x)))];
    let all: Vec<Contender> =
        (1..=8).map(|x| Contender { agreed: agreed(x), ..contender(x, &[1.0], None, "s") }).collect();
    for limit in [3, 8] {
        let places = place(all.clone(), Ordering { limit, ..Ordering::of("", "", Direction::Maximize) });
        assert!(places.iter().map(x).eq((1..=8).take(limit)));
    }
}

#[test]
fn places_are_ordered_tested_and_corrected_together() {
    let a = contender(1, &[12.1, 12.9, 11.4, 12.6, 12.2], None, "s");
    let b = contender(2, &[13.4, 14.1, 13.0], None, "s");
    let c = contender(3, &[12.3, 12.5, 12.8], None, "s");
    let single = contender(4, &[15.0], None, "s");
    let places = place(vec![single, b.clone(), c, a.clone()], Ordering { tolerance: Some(0.03), ..lowest() });
    assert_eq!(places.iter().map(x).collect::<Vec<_>>(), [1, 3, 2, 4]);
    // NumPy and SciPy 1.17.1: as in `pairwise`.
    assert!((test(&places[2]).unwrap().0 - 0.028252314666164752).abs() < 1e-9);
    let corrected = |place: usize| places[place].against.unwrap().corrected;
    assert!((corrected(2).unwrap() - 3.0 * 0.028252314666164752).abs() < 1e-9, "of all three pairs two are told");
    assert_eq!((test(&places[3]), corrected(3)), (Err(Untested::TooFew), None));
    assert_eq!([1, 2, 3].map(|at| places[at].against.unwrap().is_within), [true, false, false]);
    assert_eq!((places[0].against, places[0].olympic_mean), (None, Some((12.1 + 12.2 + 12.6) / 3.0)));
    assert!(places.iter().all(|place| place.probability.is_none()), "nobody knows how one value would repeat");
    // One question alone needs no correction.
    let two = place(vec![a, b], lowest());
    assert_eq!(two[1].against.unwrap().differs(), Some(true));
    let [best, other] = [two[0].probability.unwrap(), two[1].probability.unwrap()];
    assert!((best + other - 1.0).abs() < 1e-12 && best > 0.95, "{best}");
}

#[test]
fn copies_of_one_seed_are_no_sample() {
    let mut copies = contender(1, &[0.75; 8], None, "s");
    copies.kind = MetricKind::Outcome;
    let execution = |at: usize| u64::try_from(at.min(2)).unwrap();
    for (at, one) in copies.measured.iter_mut().enumerate() {
        one.replicate = Replicate { seed: execution(at), execution: 100 + execution(at), machine: 0 };
        one.value = [0.74, 0.75, 0.76][at.min(2)];
    }
    let places = place(vec![copies], Ordering::of("accuracy", "", Direction::Maximize));
    let estimate = &places[0].estimate;
    assert_eq!((estimate.units.as_slice(), estimate.attempts, estimate.seeds), ([0.74, 0.75, 0.76].as_slice(), 8, 3));
    // `scipy.stats.t.interval(0.95, 2, scale=scipy.stats.sem([.74, .75, .76]))`.
    assert!((estimate.half_width().unwrap() - 0.024841377117503303).abs() < 1e-12);
}

#[test]
fn errors_cancel_between_the_same_sensors_and_not_between_different_ones() {
    let first = contender(1, &[100.0, 100.2, 99.8], Some(0.05), "gpu a");
    let same = contender(2, &[103.0, 103.2, 102.8], Some(0.05), "gpu a");
    let other = contender(3, &[103.0, 103.2, 102.8], Some(0.05), "gpu b");
    let places = place(vec![first, same, other], lowest());
    let differs = |wanted: i64| places.iter().find(|place| x(place) == wanted).unwrap().against.unwrap().differs();
    assert_eq!((differs(2), differs(3)), (Some(true), Some(false)));
    // 5% of 100, and what three repetitions scatter by: t(0.975, 2) * 0.2 / sqrt(3) = 0.4968275; in quadrature 5.0246235.
    assert!((places[0].half_width.unwrap() - 5.0246235).abs() < 1e-6);
}

#[test]
fn a_saving_is_relative_to_the_baseline() {
    let one = saving((80.0, 100.0), Some((11.0, 10.0))).unwrap();
    assert!((one.metric + 0.2).abs() < 1e-12 && (one.time.unwrap() - 0.1).abs() < 1e-12);
    assert_eq!(saving((1.0, 0.0), None), None);
    assert_eq!(saving((-1.0, -2.0), Some((1.0, 0.0))), Some(Saving { metric: 0.5, baseline: -2.0, time: None }));
}

#[test]
fn the_probability_of_being_the_best_is_within_common_seeds() {
    let (x, y) = ([0.90, 0.80, 0.70, 0.60, 0.50], [0.89, 0.788, 0.691, 0.589, 0.49]);
    let ordering = Ordering::of("accuracy", "", Direction::Maximize);
    let places = place(vec![accuracies(1, &x), accuracies(2, &y)], ordering);
    assert!(places[0].against.is_none() && places[1].against.unwrap().corrected.unwrap() < 0.001);
    assert!(places[0].probability.unwrap() > 0.99, "{:?}", places[0].probability);
    // With other seeds the difference is small compared with the scatter.
    let mut others = accuracies(2, &y);
    others.measured.iter_mut().for_each(|one| one.replicate.seed += 10);
    let places = place(vec![accuracies(1, &x), others], ordering);
    assert!(places[0].probability.unwrap() < 0.7, "{:?}", places[0].probability);
}

#[test]
fn rows_of_other_seeds_are_compared_on_the_common_ones() {
    let lacking = accuracies(2, &[1.0, 2.2]);
    let places = place(vec![accuracies(1, &[1.0, 2.0, 0.3]), lacking], lowest());
    let (common, comparison) = places[1].on_common_seeds(&places[0]).unwrap();
    assert!(common == 2 && (comparison.estimate - 3.2 / 3.0).abs() < 1e-12);
    assert_eq!(places[0].on_common_seeds(&places[0]), None);
    let measured = place(vec![contender(1, &[1.0, 2.0], None, "s"), contender(2, &[1.0], None, "s")], lowest());
    assert_eq!(measured[1].on_common_seeds(&measured[0]), None);
}

#[test]
fn a_configuration_that_lacks_the_bad_seeds_is_not_the_best() {
    let all = accuracies(1, &[1.11, 1.08, 1.10, 1.13, 1.09, 10.1, 10.1, 10.1]);
    let lacking = accuracies(2, &[1.21, 1.19, 1.20, 1.22, 1.18]);
    let places = place(vec![all.clone(), lacking.clone()], lowest());
    assert!(places.iter().map(|place| (x(place), place.dropped)).eq([(1, 3), (2, 0)]));
    assert!(places.iter().all(|place| place.estimate.units.len() == 5), "the seeds that both have");
    assert!(places[0].probability.unwrap() > 0.95 && places[1].against.unwrap().differs() == Some(true));
    assert!(places[1].against.unwrap().comparison.unwrap().estimate > 1.0);
    // The same if only one is kept.
    let only = place(vec![all.clone(), lacking], Ordering { limit: 1, ..lowest() });
    assert!(only.iter().map(x).eq([1]) && only[0].estimate.units.len() == 5);
    // If both have the seeds, or if the means are in the order of the test, nothing is left out.
    let equal = accuracies(3, &[1.31, 1.28, 1.33, 1.30, 1.29, 10.4, 10.3, 10.3]);
    assert!(place(vec![all.clone(), equal], lowest()).iter().all(|place| place.dropped == 0));
    let worse = accuracies(4, &[12.0, 12.1, 12.2]);
    let places = place(vec![all, worse], lowest());
    assert!(places[0].dropped == 0 && places[0].estimate.units.len() == 8);
    // Rounds are the units of measurements.
    let in_rounds = |number, values: &[f64]| {
        let mut contender = contender(number, values, None, "s");
        contender.measured.iter_mut().for_each(|one| one.round = Some(one.replicate.seed));
        contender
    };
    let (slow, lacking) = (in_rounds(1, &[1.1, 1.2, 1.15, 1.12, 9.0, 9.5]), in_rounds(2, &[1.2, 1.31, 1.24, 1.22]));
    let places = place(vec![slow, lacking], lowest());
    assert!(places.iter().map(x).eq([1, 2]) && places[0].dropped == 2, "{places:?}");
}

/// Attempts on these GPUs, each with its own sensor with an uncertainty of 5%.
fn on_gpus(x: i64, values: &[f64], gpus: &[u64]) -> Contender {
    let mut one = contender(x, values, Some(0.05), "s");
    one.measured.iter_mut().zip(gpus).for_each(|(measured, gpu)| {
        measured.replicate.machine = *gpu;
        measured.sensors = [format!("GPU {gpu}")].into();
    });
    one
}

#[test]
fn rows_with_one_common_round_are_drawn_by_it_as_they_are_tested() {
    let in_rounds = |x: i64, values: &[f64], rounds: &[u64]| {
        let mut one = on_gpus(x, values, &vec![5; values.len()]);
        one.measured.iter_mut().zip(rounds).for_each(|(measured, round)| measured.round = Some(*round));
        one
    };
    // In the common round the second is worse. Its other round was a better one for all.
    let first = in_rounds(1, &[100.0, 100.5, 101.0], &[1, 1, 1]);
    let second = in_rounds(2, &[103.0, 103.5, 104.0, 80.0, 80.5, 81.0], &[1, 1, 1, 2, 2, 2]);
    let places = place(vec![first, second], lowest());
    assert_eq!((x(&places[0]), x(&places[1])), (2, 1));
    assert!(places[1].against.unwrap().comparison.unwrap().is_of_one_round);
    assert!(places[1].probability.unwrap() > 0.95, "{:?}", places[1].probability);
    // The same on two machines each.
    let on_two = |x: i64, values: &[f64], rounds: &[u64]| {
        let mut one = on_gpus(x, values, &(0..values.len()).map(|at| 5 + at as u64 % 2).collect::<Vec<_>>());
        one.measured.iter_mut().zip(rounds).for_each(|(measured, round)| measured.round = Some(*round));
        one
    };
    let first = on_two(1, &[100.0, 110.0, 100.5, 110.5, 101.0, 111.0], &[1; 6]);
    let values = [103.0, 113.0, 103.5, 113.5, 104.0, 114.0, 80.0, 90.0, 80.5, 90.5, 81.0, 91.0];
    let second = on_two(2, &values, &[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
    let places = place(vec![first, second], lowest());
    assert_eq!(test(&places[1]).unwrap().1, Method::Within(Block::Machine, 2));
    assert!(places[1].probability.unwrap() > 0.95, "{:?}", places[1].probability);
    // Rows of that round alone are drawn together too: a worse round of the third moves neither away from the other.
    let (best, close) = (in_rounds(1, &[100.0, 100.5, 101.0], &[1; 3]), in_rounds(2, &[100.1, 100.6, 101.1], &[1; 3]));
    let third = in_rounds(3, &[100.4, 100.41, 100.42, 130.0, 130.01, 130.02], &[1, 1, 1, 2, 2, 2]);
    let places = place(vec![best, close, third], lowest());
    let found: Vec<f64> = places.iter().map(|place| place.probability.unwrap()).collect();
    assert!(found[0] < 0.75 && found[1] > 0.15, "{found:?}");
}

#[test]
fn probabilities_that_contradict_the_comparisons_are_left_out() {
    // On the GPUs that the third has, the first is at 105, so it is drawn there. Its comparison with the second is by its mean, 95.
    let first = on_gpus(1, &[105.0, 106.0, 104.0, 105.0, 85.0, 86.0, 84.0, 85.0], &[1, 2, 3, 4, 5, 6, 7, 8]);
    let second = on_gpus(2, &[97.0, 98.0, 96.0, 97.0], &[11, 12, 13, 14]);
    let third = on_gpus(3, &[210.0, 212.0, 208.0, 210.0], &[1, 2, 3, 4]);
    let places = place(vec![first.clone(), second.clone(), third], lowest());
    assert!(places.iter().map(x).eq([1, 2, 3]));
    assert!(places[1].against.unwrap().comparison.unwrap().estimate > 1.0);
    assert!(places.iter().all(|place| place.probability.is_none()), "{places:?}");
    // Without the third, both are drawn around their means.
    let places = place(vec![first, second], lowest());
    assert!(places[0].probability > places[1].probability && places[1].probability.is_some());
}

/// Returns for each wanted configuration the probability that it is the best of all.
fn probabilities_of<const N: usize>(contenders: Vec<Contender>, wanted: [i64; N]) -> [f64; N] {
    let places = place(contenders, lowest());
    wanted.map(|wanted| places.iter().find(|place| x(place) == wanted).unwrap().probability.unwrap())
}

#[test]
fn a_row_on_other_gpus_does_not_change_the_comparison_of_the_others() {
    let pair = || {
        [
            on_gpus(1, &[100.0, 104.0, 98.0, 102.0], &[1, 2, 3, 4]),
            on_gpus(2, &[101.0, 105.1, 98.9, 103.0], &[1, 2, 3, 4]),
        ]
    };
    // The third is behind the two, between them or ahead.
    for (values, least, most) in [
        ([151.0, 155.0, 149.0], 0.0, 0.01),
        ([101.3, 105.3, 99.3], 0.3, 0.5),
        ([100.9, 104.9, 98.9], 0.35, 0.55),
        ([100.0, 104.0, 98.0], 0.4, 0.65),
    ] {
        let found = probabilities_of(pair().into_iter().chain([on_gpus(3, &values, &[6, 7, 8])]).collect(), [1, 2, 3]);
        assert!(found[1] < 0.01 && (least..=most).contains(&found[2]), "{values:?}: {found:?}");
    }
    // Two of them on the same GPUs are paired with each other, and their sensors' errors cancel.
    let two = [on_gpus(3, &[101.0, 105.0, 99.0], &[6, 7, 8]), on_gpus(4, &[102.0, 106.1, 100.1], &[6, 7, 8])];
    let found = probabilities_of(pair().into_iter().chain(two).collect(), [2, 3, 4]);
    assert!(found[0] < 0.01 && found[1] > 0.3 && found[2] < 0.01, "{found:?}");
    // Two on two GPUs are paired by the scatter within these.
    let [a, b] = [(1, 0.0), (2, 1.0)].map(|(x, more)| {
        on_gpus(x, &[100.0, 100.1, 99.9, 110.0, 110.1, 109.9].map(|value: f64| value + more), &[1, 1, 1, 2, 2, 2])
    });
    let found = probabilities_of(vec![a, b, on_gpus(3, &[150.0, 160.0, 155.0], &[6, 7, 8])], [1, 2, 3]);
    assert!(found[0] > 0.9 && found[1] < 0.01, "{found:?}");
}

#[test]
fn equal_repeats_on_each_gpu_have_finite_draws() {
    let rows =
        [(2, 11.0), (3, 12.0), (4, 13.0)].map(|(x, first)| on_gpus(x, &[first, first, 19.0, 19.0], &[1, 1, 2, 2]));
    let found = probabilities_of(rows.to_vec(), [2, 3, 4]);
    assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-9 && found[0] > 0.99, "{found:?}");
}

#[test]
fn sensors_without_names_do_not_cancel() {
    let unnamed = |x: i64, mean: f64| {
        let mut one = on_gpus(x, &[mean, mean + 4.0, mean - 2.0], &[1, 2, 3]);
        one.measured.iter_mut().for_each(|measured| measured.sensors.clear());
        one
    };
    let found = probabilities_of(vec![unnamed(1, 100.0), unnamed(2, 101.01)], [1, 2]);
    assert!(found[1] > 0.2, "{found:?}");
    let named = [(1, 100.0), (2, 101.01)].map(|(x, mean)| on_gpus(x, &[mean, mean * 1.04, mean * 0.98], &[1, 2, 3]));
    assert!(probabilities_of(named.to_vec(), [1, 2])[1] < 0.01);
}

#[test]
fn paired_rows_have_the_level_of_the_most_certain_one() {
    // The first ran on few GPUs, is first by luck, and is worse than the second on these GPUs.
    let of_gpus: Vec<f64> = (0..20).map(|gpu: u8| f64::from(gpu * 7 % 20) / 2.0 - 4.75).collect();
    let on_many = |x: i64, mean: f64, first: u64| {
        let values: Vec<f64> = of_gpus.iter().map(|effect| mean + effect).collect();
        on_gpus(x, &values, &(first..first + 20).collect::<Vec<_>>())
    };
    let few =
        on_gpus(1, &[0, 1, 3].map(|gpu: usize| 101.0 + of_gpus[gpu] + if gpu == 1 { 0.1 } else { -0.1 }), &[1, 2, 4]);
    let found = probabilities_of(vec![few, on_many(2, 100.0, 1), on_many(3, 115.0, 100)], [1, 2, 3]);
    assert!(found[0] < 0.05 && found[1] > 0.9 && found[2] < 0.02, "{found:?}");
    // Two rows with opposite deviations are equally good, whichever is first.
    let deviations = [1.5, 1.5, -1.5, -1.5, 3.0, -3.0, 0.75, -0.75];
    let sides = [(1, 100.0, 1.0), (2, 100.02, -1.0), (3, 100.3, 1.0)];
    let rows = sides.map(|(x, mean, sign)| {
        let gpus: Vec<u64> = (1..9).map(|gpu| gpu + if x == 3 { 20 } else { 0 }).collect();
        on_gpus(x, &deviations.map(|one| mean + sign * one), &gpus)
    });
    let found = probabilities_of(rows.to_vec(), [1, 2, 3]);
    assert!((found[0] - found[1]).abs() < 0.08, "{found:?}");
}

#[test]
fn a_row_may_be_paired_with_any_row_before_it() {
    let first = on_gpus(1, &[100.0, 104.0, 98.0], &[1, 2, 3]);
    let second = on_gpus(2, &[100.2, 103.9, 98.1, 103.0, 107.0, 101.0], &[1, 2, 3, 4, 5, 6]);
    // A hundredth more than the second on each common GPU.
    let third = on_gpus(3, &[104.0, 108.1, 101.9], &[4, 5, 6]);
    let found = probabilities_of(vec![first, second, third], [1, 2, 3]);
    assert!(found[0] > found[1] && found[2] < 0.02, "{found:?}");
}

#[test]
fn a_gpu_that_one_configuration_lacks_does_not_change_the_ranking() {
    let (best, other) = ([100.0, 104.0, 98.0, 102.0], [101.1, 105.0, 98.9, 103.1]);
    let whole = place(vec![on_gpus(1, &best, &[1, 2, 3, 4]), on_gpus(2, &other, &[1, 2, 3, 4])], lowest());
    let lacking = place(vec![on_gpus(1, &best, &[1, 2, 3, 4]), on_gpus(2, &other[..3], &[1, 2, 3])], lowest());
    for places in [&whole, &lacking] {
        assert!(places.iter().map(x).eq([1, 2]));
        assert!(places[1].against.unwrap().differs() == Some(true), "{places:?}");
        // A different set of sensors does not affect the draws: the common GPUs are compared.
        assert!(places[0].probability.unwrap() > 0.99, "{places:?}");
    }
    // A distant third configuration, on some of the first one's GPUs, does not change which of the two is ahead.
    let near = [[100.0, 104.0, 98.0, 102.0, 101.0], [100.4, 103.2, 98.9, 102.5, 100.1]];
    let two = |others: Vec<Contender>| {
        let pair = [on_gpus(1, &near[0], &[1, 2, 3, 4, 5]), on_gpus(2, &near[1][..4], &[1, 2, 3, 4])];
        let places = place(pair.into_iter().chain(others).collect(), lowest());
        let of = |wanted: i64| places.iter().find(|place| x(place) == wanted).unwrap().probability.unwrap();
        (of(1), of(2))
    };
    let far = on_gpus(3, &[400.0, 412.0, 391.0], &[3, 4, 5]);
    let (alone, beside) = (two(vec![]), two(vec![far]));
    assert!((alone.0 - beside.0).abs() < 0.06 && alone.0 > 0.3 && alone.1 > 0.1, "{alone:?} {beside:?}");
    // Rows that share too few GPUs with the first one are drawn independently, with the sensors' errors. They share the
    // probability equally.
    let elsewhere = |x: i64, gpus: [u64; 3]| on_gpus(x, &[101.0, 105.0, 99.0], &gpus);
    let places = place(
        vec![
            on_gpus(1, &best, &[1, 2, 3, 4]),
            elsewhere(2, [6, 7, 8]),
            elsewhere(3, [6, 7, 8]),
            elsewhere(4, [6, 7, 8]),
        ],
        lowest(),
    );
    let found: Vec<f64> = places.iter().map(|place| place.probability.unwrap()).collect();
    assert!(found[0] > 0.3 && found[1..].iter().all(|one| (one - found[1]).abs() < 0.03), "{found:?}");
    // Different sensors on the same GPUs may have different errors.
    let mut sensed = on_gpus(2, &other[..3], &[1, 2, 3]);
    sensed.measured[0].sensors = ["another".to_owned()].into();
    let places = place(vec![on_gpus(1, &best, &[1, 2, 3, 4]), sensed], lowest());
    assert!(places[0].probability.unwrap() < 0.9, "{places:?}");
    // Only the worse configuration ran on the GPU that needs least.
    let places = place(
        vec![on_gpus(1, &best[..3], &[1, 2, 3]), on_gpus(2, &[101.1, 105.0, 98.9, 80.0], &[1, 2, 3, 4])],
        lowest(),
    );
    assert!(places.iter().map(|place| (x(place), place.dropped)).eq([(1, 0), (2, 1)]), "{places:?}");
}

#[test]
fn configurations_that_computed_the_same_are_equally_likely_the_best() {
    let same = [0.90, 0.92, 0.91];
    let worse = same.map(|value| value - 0.3);
    let places = place(
        vec![accuracies(1, &same), accuracies(2, &same), accuracies(3, &worse)],
        Ordering::of("accuracy", "", Direction::Maximize),
    );
    let found: Vec<f64> = places.iter().map(|place| place.probability.unwrap()).collect();
    assert!((found[0] - 0.5).abs() < 0.01 && (found[1] - 0.5).abs() < 0.01, "{found:?}");
}

#[test]
fn errors_of_different_sensors_enter_the_probability_of_being_the_best() {
    let probability = |sensors: [&str; 3], share| {
        let values = |more: f64| [100.0, 100.2, 99.8, 100.1].map(|value| value + more);
        let of = |x: i64, more, sensor| contender(x, &values(more), Some(share), sensor);
        let [a, b, c] = sensors;
        let places = place(vec![of(0, 0.0, a), of(1, 1.0, b), of(2, 2.0, c)], lowest());
        places.iter().map(|place| place.probability.unwrap()).collect::<Vec<_>>()
    };
    assert!(probability(["a"; 3], 0.05)[0] > 0.99, "what one sensor is off by cancels");
    // The differences are 1 and 2; sensors of 95% half-width 5% have a standard deviation of 2.55.
    let found = probability(["a", "b", "c"], 0.05);
    // NumPy: argmin over 200,000 draws of normal([100, 101, 102], 0.05 / 1.96 of each): 0.499, 0.313 and 0.188.
    assert!((found[0] - 0.499).abs() < 0.06 && (found[2] - 0.188).abs() < 0.05, "{found:?}");
    // The first two share a sensor, so the second is never the best.
    let found = probability(["a", "a", "b"], 0.05);
    assert!(found[1] < 0.01 && found[2] > 0.2, "{found:?}");
}

/// Accuracies of seeds 1, 2 and so on.
fn accuracies(x: i64, values: &[f64]) -> Contender {
    Contender { kind: MetricKind::Outcome, ..contender(x, values, None, "s") }
}

fn corrected(contenders: Vec<Contender>) -> Vec<Option<f64>> {
    let places = place(contenders, Ordering::of("accuracy", "", Direction::Maximize));
    places[1..].iter().map(|place| place.against.unwrap().corrected).collect()
}

#[test]
fn holms_correction_is_over_all_pairs_also_those_without_the_first() {
    let four = vec![
        accuracies(1, &[0.90083, 0.90576, 0.89588]),
        accuracies(2, &[0.89528, 0.89659, 0.88847]),
        accuracies(3, &[0.87956, 0.88371, 0.87517]),
        accuracies(4, &[0.86067, 0.86515, 0.856]),
    ];
    // Paired by seed, the six pairs have P 0.01949, 0.00033, 0.00003, 0.00399, 0.00081 and 0.00009.
    let found: Vec<f64> = corrected(four).into_iter().flatten().collect();
    for (found, expected) in found.iter().zip([0.01949, 0.00033 * 4.0, 0.00003 * 6.0]) {
        assert!((found - expected).abs() < 0.03 * expected + 1e-5, "{found} and {expected}");
    }
    assert_eq!(found.len(), 3);
}

#[test]
fn pairs_that_cannot_be_significant_after_correction_are_not_tested_and_keep_their_interval() {
    let seven = accuracies(1, &[0.90, 0.91, 0.905, 0.91, 0.90, 0.903, 0.904]);
    let (two, other) = (accuracies(2, &[0.80, 0.81]), accuracies(3, &[0.70, 0.71]));
    // Alone, P can be 1/36.
    assert!(corrected(vec![seven.clone(), two.clone()])[0].is_some_and(|p| (p - 1.0 / 36.0).abs() < 1e-12));
    let places = place(vec![seven, two, other], Ordering::of("accuracy", "", Direction::Maximize));
    for place in &places[1..] {
        let against = place.against.unwrap();
        let comparison = against.comparison.unwrap();
        assert_eq!((against.corrected, comparison.test), (None, Err(Untested::TooFew)));
        assert!(comparison.interval.is_some());
    }
}

#[test]
fn a_lead_by_other_seeds_is_distinguished_from_one_with_common_seeds() {
    let leads = |first: &[f64], other: &[f64]| {
        super::super::leads_by_other_seeds(&accuracies(1, first), &accuracies(2, other), Direction::Maximize)
    };
    assert!(leads(&[0.92], &[0.92, 0.88, 0.9]), "the first seed is an easy one");
    assert!(leads(&[0.92], &[0.93, 0.7]));
    assert!(!leads(&[0.93], &[0.92, 0.88]), "better with the seed of both");
    assert!(!leads(&[0.92], &[0.92]), "each has that seed alone");
    assert!(leads(&[0.92, 0.9], &[0.92, 0.91, 0.6]), "the third seed is a bad one");
    assert!(!leads(&[0.92, 0.9], &[0.91, 0.9, 0.6]), "better with the two seeds of both");
    assert!(!leads(&[0.92, 0.9, 0.8], &[0.92, 0.91, 0.81, 0.1]), "three common seeds are compared in pairs");
    assert!(leads(&[0.93, 0.9, 0.9], &[0.94, 0.91, 0.91, 0.1, 0.1, 0.1, 0.1]), "too few of seven for pairs");
    let measured = |x: i64, values: &[f64]| contender(x, values, None, "s");
    let is_measured =
        super::super::leads_by_other_seeds(&measured(1, &[2.0]), &measured(2, &[3.0, 4.0]), Direction::Maximize);
    assert!(!is_measured, "times have no seeds to share");
}
