use super::*;
use proptest::prelude::*;

const S: u64 = 1_000_000_000;

fn phase(name: &str, start_s: u64, stop_s: u64) -> Phase {
    Phase { name: name.to_owned(), index: 1, rank: 0, start_ns: start_s * S, stop_ns: Some(stop_s * S) }
}

fn steps(times: &[(u64, Option<u64>)]) -> Vec<Timed> {
    let stamp = |(step, (t_s, duration_s)): (u64, &(u64, Option<u64>))| Timed {
        step,
        t_ns: t_s * S,
        duration_ns: duration_s.map(|duration_s| duration_s * S),
    };
    (1..).zip(times).map(stamp).collect()
}

fn training(steps: Vec<Timed>, phases: Vec<Phase>) -> Training {
    let steps = steps.into_iter().collect();
    Training::new(&Observed { steps, phases, ..Observed::default() })
}

/// 20 steps of 2 s in two epochs, of which the first two took 50 s each, with 5 s of evaluation after each epoch.
fn slow_start(nested: bool) -> Training {
    let mut times = vec![(50, Some(50)), (100, Some(50))];
    times.extend((1..=8).map(|i| (100 + 2 * i, Some(2))));
    times.extend((1..=10).map(|i| (121 + 2 * i, Some(2))));
    let end = if nested { 5 } else { 0 };
    let phases = vec![
        phase("epoch", 0, 116 + end),
        phase("eval", 116, 121),
        phase("epoch", 121, 141 + end),
        phase("eval", 141, 146),
    ];
    training(steps(&times), phases)
}

#[test]
fn the_warm_up_counts_as_measured_steps() {
    for training in [slow_start(false), slow_start(true)] {
        assert_eq!((training.steps(), training.warmup(), training.epochs()), (20, 2, 2));
        assert_eq!(training.step_s(), Some(2.0));
        assert_eq!(training.warmup_s(), Some(100.0));
        assert_eq!(training.train_s(), Some(40.0));
        assert_eq!(training.epoch_s(usize::MAX), Some(20.0), "both epochs are of ten steps");
        assert_eq!(training.measured, Windows::new([(100 * S, 116 * S), (121 * S, 141 * S)]));
        assert_eq!(training.unseen(), None);
    }
}

#[test]
fn an_epoch_that_is_not_a_whole_pass_is_not_counted() {
    // 8 steps and 2 more.
    let times: Vec<(u64, Option<u64>)> = (1..=10).map(|i| (10 * i, Some(10))).collect();
    let cut = training(steps(&times), vec![phase("epoch", 0, 80), phase("epoch", 80, 100)]);
    assert_eq!(cut.whole_epochs(Some(8)), (1, 0.8));
    assert_eq!((cut.epoch_s(1), cut.epoch_s(2)), (Some(80.0), Some(50.0)));
    for each in [None, Some(0), Some(5), Some(10), Some(3)] {
        assert_eq!(cut.whole_epochs(each), (2, 1.0), "{each:?}");
    }
    let only = training(steps(&times), vec![phase("epoch", 0, 100)]);
    assert_eq!(only.whole_epochs(Some(12)), (0, 0.0));
    assert_eq!((only.whole_epochs(Some(10)), only.whole_epochs(Some(1))), ((1, 1.0), (1, 1.0)));
}

#[test]
fn without_epochs_training_goes_from_the_first_step_to_the_last() {
    let told = training(steps(&[(10, Some(4)), (12, Some(2)), (14, Some(2))]), vec![]);
    assert_eq!((told.train_s(), told.epoch_s(usize::MAX), told.warmup_s()), (Some(8.0), None, None));
    let silent = training(steps(&[(10, None), (12, None), (14, None)]), vec![]);
    assert_eq!((silent.train_s(), silent.step_s()), (Some(6.0), Some(2.0)), "the first step counts as the others");
    let many: Vec<(u64, Option<u64>)> = (1..=30).map(|i| (10 + 2 * i, None)).collect();
    assert_eq!(training(steps(&many), vec![]).train_s(), Some(60.0));
    let with_eval = training(steps(&[(2, None), (4, None), (16, None)]), vec![phase("eval", 4, 14)]);
    assert_eq!((with_eval.train_s(), with_eval.step_s()), (Some(6.0), Some(2.0)));
    assert!(training(steps(&[(10, None)]), vec![]).train_s().is_none());
    assert!(training(vec![], vec![]).unseen().is_some());
    assert_eq!(training(vec![], vec![phase("epoch", 3, 9)]).train_s(), Some(6.0));
}

#[test]
fn each_logged_step_stands_for_those_since_the_one_before() {
    assert_eq!(stands(|| [].into_iter()).next(), None);
    for (numbers, count) in [
        (vec![7], 1),
        ((0..30).collect(), 30),
        ((1..=30).collect(), 30),
        (vec![50, 100, 150, 200], 200),
        (vec![0, 50, 100, 120], 121),
        (vec![1, 51, 101], 101),
        (vec![1050, 1100, 1150], 150),
        (vec![50, 100, 50, 100], 200),
        (vec![3, 3, 3], 3),
        (vec![1, u64::MAX, 1, u64::MAX], u64::MAX),
    ] {
        assert_eq!(total(stands(|| numbers.iter().copied())), count, "{numbers:?}");
    }
}

/// Every fifth of 50 steps of 2 s; `told` is whether they have a duration.
fn every_fifth(told: bool) -> Vec<Timed> {
    let duration_ns = told.then_some(2 * S);
    (1..=10).map(|i| Timed { step: 5 * i, t_ns: 10 * i * S, duration_ns }).collect()
}

#[test]
fn steps_that_are_not_logged_count() {
    for told in [true, false] {
        let sparse = training(every_fifth(told), vec![phase("epoch", 0, 100)]);
        assert_eq!((sparse.steps(), sparse.warmup()), (50, 1));
        assert_eq!((sparse.train_s(), sparse.step_s()), (Some(100.0), told.then_some(2.0)));
        assert!(sparse.rule().unwrap().contains("first 1 of 10 logged"), "{:?}", sparse.rule());
    }
    let few = training(every_fifth(false)[..4].to_vec(), vec![phase("epoch", 0, 40)]);
    assert_eq!((few.steps(), few.step_s()), (20, None), "from the epoch's start to the first logged step are five");
}

#[test]
fn without_epochs_the_steps_are_those_of_the_training_s_time() {
    for (told, seconds) in [(true, 92.0), (false, 90.0)] {
        let sparse = training(every_fifth(told), vec![]);
        assert_eq!(sparse.train_s(), Some(seconds));
        assert_eq!(real(sparse.steps()) * 2.0, seconds);
    }
}

#[test]
fn steps_outside_of_the_epochs_are_no_part_of_the_training() {
    // Ten steps compile before the first epoch is reported.
    let mut times: Vec<(u64, Option<u64>)> = (1..=10).map(|i| (30 * i, Some(30))).collect();
    times.extend((1..=90).map(|i| (300 + i, Some(1))));
    let compiled = training(steps(&times), vec![phase("epoch", 300, 390)]);
    assert_eq!((compiled.warmup(), compiled.warmup_s()), (10, Some(300.0)));
    assert_eq!((compiled.train_s(), compiled.epoch_s(usize::MAX), compiled.steps()), (Some(90.0), Some(90.0), 90));
    // The run is stopped in the third epoch.
    let open = Phase { stop_ns: None, ..phase("epoch", 40, 40) };
    let epochs = vec![phase("epoch", 0, 20), phase("epoch", 20, 40), open];
    for told in [true, false] {
        let times: Vec<(u64, Option<u64>)> = (1..=30).map(|i| (2 * i, told.then_some(2))).collect();
        let stopped = training(steps(&times), epochs.clone());
        assert_eq!((stopped.epochs(), stopped.steps(), stopped.train_s()), (2, 20, Some(40.0)));
    }
    let sparse = training(every_fifth(true), vec![phase("epoch", 0, 40), phase("epoch", 40, 80)]);
    assert_eq!((sparse.steps(), sparse.train_s()), (40, Some(80.0)));
    // One step is reported at the end of the evaluation in its epoch, another at the end of the epoch.
    let late = training(
        steps(&[(6, Some(6)), (17, Some(6)), (26, Some(6))]),
        vec![phase("epoch", 0, 17), phase("eval", 12, 17), phase("epoch", 17, 25)],
    );
    assert_eq!(late.steps(), 3);
}

#[test]
fn a_warm_up_step_of_unknown_length_is_not_replaced() {
    let logged = |numbers: Vec<u64>| -> Vec<Timed> {
        numbers.into_iter().map(|step| Timed { step, t_ns: step * S, duration_ns: None }).collect()
    };
    // The second, the fourth and the last of five steps of 1 s.
    let twos = logged((0..20).flat_map(|epoch| [2, 4, 5].map(|step| 5 * epoch + step)).collect());
    let whole = training(twos.clone(), vec![phase("epoch", 0, 100)]);
    assert_eq!((whole.warmup(), whole.step_s(), whole.train_s()), (6, Some(1.0), Some(100.0)));
    let epochs: Vec<Phase> = (0..20).map(|epoch| phase("epoch", 5 * epoch, 5 * epoch + 5)).collect();
    let apart = training(twos.clone(), epochs);
    assert_eq!((apart.train_s(), apart.epoch_s(usize::MAX)), (Some(100.0), Some(5.0)));
    // Without epochs the time begins at the end of the first logged step, which counts as one.
    let bare = training(twos, vec![]);
    assert_eq!((bare.train_s(), bare.steps()), (Some(99.0), 99));
    // Every tenth of 31 steps, and the last.
    let tens = logged((0..25).flat_map(|epoch| [10, 20, 30, 31].map(|step| 31 * epoch + step)).collect());
    let epochs: Vec<Phase> = (0..25).map(|epoch| phase("epoch", 31 * epoch, 31 * epoch + 31)).collect();
    assert_eq!(training(tens, epochs).train_s(), Some(775.0));
}

/// Steps of 2 s whose lines were read `many` at a time.
fn read_by(many: u64, steps: u64) -> Vec<Timed> {
    (1..=steps).map(|step| Timed { step, t_ns: step.div_ceil(many) * many * 2 * S, duration_ns: None }).collect()
}

#[test]
fn steps_that_were_read_together_have_no_times() {
    for (steps, epochs) in
        [(read_by(100, 100), vec![]), (read_by(100, 100), vec![phase("epoch", 200, 200)]), (read_by(50, 100), vec![])]
    {
        let together = training(steps, epochs);
        assert_eq!((together.step_s(), together.step_p95_s(), together.warmup_s()), (None, None, None));
        assert_eq!((together.train_s(), together.epoch_s(usize::MAX)), (None, None));
        assert!(together.read_together().is_some_and(|reason| reason.contains("t_ns")));
        assert_eq!(together.unseen(), together.read_together());
    }
}

#[test]
fn steps_that_were_read_a_few_at_a_time_have_a_total_time() {
    let by_twos = training(read_by(2, 100), vec![]);
    assert_eq!((by_twos.step_s(), by_twos.step_p95_s(), by_twos.train_s()), (None, None, Some(196.0)));
    assert_eq!(by_twos.steps(), 98, "those that were read first are no part of that time");
    let rule = "warm-up is the first 10 of 100 logged training steps: times hold it as it was, since no step after it has a time, \
                energies as that time at the mean measured power";
    assert_eq!(by_twos.rule().as_deref(), Some(rule));
    // The lines of the second epoch were read with the last steps of the first.
    let late = training(read_by(50, 100), vec![phase("epoch", 0, 100), phase("epoch", 100, 200)]);
    assert_eq!((late.train_s(), late.epoch_s(usize::MAX)), (None, None));
    let in_epoch = training(read_by(50, 100), vec![phase("epoch", 0, 200)]);
    assert_eq!((in_epoch.step_s(), in_epoch.train_s(), in_epoch.epoch_s(usize::MAX)), (None, Some(200.0), Some(200.0)));
    assert_eq!(in_epoch.steps(), 100);
}

/// Steps of 1 ms that a program buffers `many` at a time, at the moments when they are read: a thousand lines fill a
/// pipe, which is emptied in 10 ms.
fn kept_back(many: u64, steps: u64) -> Vec<Timed> {
    let read = |step: u64| step.div_ceil(many) * many * S / 1000 + (step - 1) % many / 1000 * S / 100;
    (1..=steps).map(|step| Timed { step, t_ns: read(step), duration_ns: None }).collect()
}

#[test]
fn steps_that_filled_a_pipe_again_and_again_were_read_together() {
    // Read at the end, and in three turns.
    for many in [60_000, 20_000] {
        let steps = kept_back(many, 60_000);
        let moment = |at: usize| steps[at].t_ns;
        let epoch = |from: usize, to: usize| Phase {
            start_ns: moment(from),
            stop_ns: Some(moment(to)),
            ..phase("epoch", 0, 0)
        };
        let late = training(steps.clone(), vec![epoch(0, 29_999), epoch(30_000, 59_999)]);
        for kept in [training(steps.clone(), vec![]), late] {
            assert_eq!((kept.step_s(), kept.train_s(), kept.epoch_s(usize::MAX)), (None, None, None));
            assert_eq!(kept.unseen(), kept.read_together());
        }
    }
    // A buffer of a hundred lines is written out in time.
    let in_time = training(kept_back(100, 60_000), vec![]);
    assert_eq!((in_time.train_s(), in_time.steps()), (Some(59.9), 59_900));
}

/// Examples are a program that flushes each line, or states whole milliseconds, with steps that are faster than that resolution.
#[test]
fn fast_steps_that_share_moments_have_a_total_time() {
    let in_time = |each_us: u64, moment_us: u64| -> Vec<Timed> {
        let read = |step: u64| (100_000 + step * each_us).div_ceil(moment_us) * moment_us * (S / 1_000_000);
        (1..=20_000).map(|step| Timed { step, t_ns: read(step), duration_ns: None }).collect()
    };
    for (each_us, moment_us) in [(50, 100), (10, 30), (80, 1000), (50, 5000)] {
        let steps = in_time(each_us, moment_us);
        let (start, middle, end) = (S / 10, steps[9_999].t_ns, steps[19_999].t_ns);
        let seconds = real(each_us) * 0.02;
        let epochs = vec![phase("epoch", 0, 0); 2];
        let epochs = epochs.into_iter().zip([(start, middle), (middle, end)]);
        let epochs = epochs.map(|(epoch, (from, to))| Phase { start_ns: from, stop_ns: Some(to), ..epoch }).collect();
        for trained in [training(steps.clone(), vec![]), training(steps.clone(), epochs)] {
            let train_s = trained.train_s().unwrap();
            assert!((train_s - seconds).abs() < 0.01 * seconds, "{each_us} by {moment_us}: {train_s}");
        }
    }
}

/// An example is a worker that flushes each line, with a supervisor that is late now and then.
#[test]
fn some_steps_that_share_a_moment_keep_their_times() {
    let mut late = read_by(1, 100);
    (10..90).step_by(10).for_each(|at| late[at].t_ns = late[at + 1].t_ns);
    let late = training(late, vec![]);
    assert_eq!((late.step_s(), late.read_together()), (Some(2.0), None));
    let mut told = read_by(100, 100);
    told.iter_mut().for_each(|step| step.duration_ns = Some(2 * S));
    let told = training(told, vec![]);
    assert_eq!((told.step_s(), told.train_s()), (Some(2.0), Some(200.0)), "they say how long they took");
}

#[test]
fn durations_of_zero_are_not_step_times() {
    let still: Vec<(u64, Option<u64>)> = (1..=30).map(|i| (2 * i, Some(0))).collect();
    let still = training(steps(&still), vec![]);
    assert_eq!((still.step_s(), still.step_p95_s()), (None, None));
}

#[test]
fn checkpoints_are_no_training() {
    for name in ["eval", "inference", "checkpoint"] {
        let saved =
            training(steps(&[(2, None), (4, None), (16, None)]), vec![phase("epoch", 0, 16), phase(name, 4, 14)]);
        assert_eq!((saved.train_s(), saved.step_s()), (Some(6.0), Some(2.0)), "{name}");
    }
}

#[test]
fn sums_of_times_saturate() {
    // Twice half of the range would be 0 in a sum that wraps.
    for duration_ns in [1 << 63, u64::MAX] {
        let endless = |step| Timed { step, t_ns: step * S, duration_ns: Some(duration_ns) };
        let training = training((1..=20).map(endless).collect(), vec![phase("epoch", 0, 20)]);
        assert_eq!(training.warmup_s(), Some(seconds(u64::MAX)));
        assert_eq!(training.train_s(), Some(2.0 * seconds(duration_ns)), "two steps of the median");
    }
}

#[test]
fn steps_reported_at_once_are_laid_end_to_end() {
    let phase = |rank: u32, start_ns: u64, stop_ns: u64| Phase {
        name: "step".to_owned(),
        index: 1,
        rank,
        start_ns,
        stop_ns: Some(stop_ns),
    };
    let mut told = [phase(0, 0, 10), phase(1, 88, 100), phase(0, 70, 100), phase(0, 71, 101), phase(0, 72, 102)];
    lay_out(&mut told);
    let laid: Vec<(u64, Option<u64>)> = told.iter().map(|phase| (phase.start_ns, phase.stop_ns)).collect();
    let expected = [(0, 10), (88, 100), (12, 42), (42, 72), (72, 102)];
    assert_eq!(laid, expected.map(|(start, stop)| (start, Some(stop))));
}

proptest! {
    #[test]
    fn laying_out_keeps_durations_and_never_overlaps(steps in prop::collection::vec((0..50u64, 1..50u64), 1..40)) {
        let mut now = 5000;
        let mut phases: Vec<Phase> = steps.iter().map(|(pause, duration)| {
            now += pause;
            let start_ns = now - duration;
            Phase { name: "step".to_owned(), index: 1, rank: 0, start_ns, stop_ns: Some(now) }
        }).collect();
        let before = phases.clone();
        lay_out(&mut phases);
        for (before, after) in before.iter().zip(&phases) {
            prop_assert_eq!(after.stop_ns.unwrap() - after.start_ns, before.stop_ns.unwrap() - before.start_ns);
            prop_assert!(after.stop_ns <= before.stop_ns, "an event comes after what it tells of");
        }
        prop_assert!(phases.windows(2).all(|pair| pair[0].stop_ns.unwrap() <= pair[1].start_ns));
        prop_assert_eq!(phases.last().unwrap(), before.last().unwrap());
    }
}

#[test]
fn steps_of_unknown_length_are_in_no_steady_row() {
    let even = |from: usize, len: usize| (0..len).map(move |step| (step >= from).then_some(10)).collect::<Vec<_>>();
    assert_eq!(steady_from(even(0, 10).into_iter(), 0.05, 10), Some(0));
    assert_eq!(
        steady_from(even(1, 11).into_iter(), 0.05, 10),
        Some(1),
        "the first one of a worker that states no durations"
    );
    assert_eq!(steady_from(even(1, 10).into_iter(), 0.05, 10), None);
    let mut gap = even(0, 30);
    gap[5] = None;
    assert_eq!(steady_from(gap.into_iter(), 0.05, 10), Some(6));
}
