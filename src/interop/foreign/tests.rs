use super::*;
use crate::record::Replicate;

fn point(step: i64, unix_s: f64, value: f64) -> Point {
    Point { step, unix_s, value }
}

fn run() -> ForeignRun {
    let mut run = ForeignRun::new("tensorboard", "boards".to_owned(), "one".to_owned());
    run.curves.insert("loss".to_owned(), vec![point(1, 100.0, 1.0), point(3, 102.0, 0.25), point(2, 101.0, 0.5)]);
    run
}

#[test]
fn every_point_is_kept_with_its_step_and_the_time_it_was_logged() {
    let mut made = run();
    made.system.insert("power".to_owned(), vec![point(0, 100.5, 70.0)]);
    let sealed = made.sealed();
    sealed.check().unwrap();
    let series = |name: &str| sealed.series.iter().find(|series| series.name == name).unwrap();
    assert_eq!((&series("loss").positions, &series("loss").values), (&vec![1, 2, 3], &vec![1.0, 0.5, 0.25]));
    assert_eq!((series("logged_at").unit.as_str(), &series("logged_at").values), ("s", &vec![0.0, 1.0, 2.0]));
    assert_eq!((series("power").axis, &series("power").positions), (Axis::TimeNs, &vec![500_000_000]));
    assert_eq!(sealed.attempt.metrics["loss"].value, Some(0.25));
    assert_eq!((sealed.attempt.started_unix_ms, sealed.attempt.wall_ns), (100_000, 2_000_000_000));
    assert_eq!(sealed.run.config()["params.run"].as_str(), Some("one"), "nothing else tells it from others");
}

#[test]
fn a_second_import_is_the_same_attempt_and_a_grown_run_is_another_of_the_same_run() {
    let (first, again) = (run().sealed(), run().sealed());
    assert_eq!((first.attempt.nonce, first.run.id), (again.attempt.nonce, again.run.id));
    let grown = ForeignRun { digest: Digest::of(b"more"), ..run() }.sealed();
    assert_eq!(grown.run.id, first.run.id);
    assert_ne!(grown.attempt.nonce, first.attempt.nonce);
    let origin = ForeignOrigin::of(&grown.attempt).unwrap();
    assert_eq!(origin, ForeignOrigin { tool: "tensorboard".to_owned(), id: "one".to_owned(), points: 3 });
}

#[test]
fn runs_that_differ_in_a_parameter_named_seed_are_seeds_of_one_configuration() {
    let of = |seed: Value| {
        let params = Table::from([("lr".to_owned(), 0.1.into()), ("seed".to_owned(), seed)]);
        ForeignRun { params, ..run() }.sealed().run
    };
    assert_eq!((of(3i64.into()).parts.seed, of(3.0.into()).parts.seed, of("3".into()).parts.seed), (3, 3, 3));
    assert_eq!(of(3i64.into()).config(), of(4i64.into()).config());
    // Seeds beyond 63 bits stay different, and a float that is not exact is not a seed.
    assert_eq!(of("18446744073709551615".into()).parts.seed, u64::MAX);
    assert_eq!(of(1e19.into()).parts.seed, 0);
    let seeded = |seed: Option<i64>| {
        let params = seed.map(|seed| ("seed".to_owned(), seed.into())).into_iter().collect();
        let sealed = ForeignRun { params, ..run() }.sealed();
        Replicate::of(&sealed.run, &sealed.attempt).is_seeded()
    };
    assert_eq!([Some(0), Some(1), None].map(seeded), [true, true, false], "seed 0 is a seed");
    let other = of("three".into());
    assert_eq!((other.parts.seed, other.config()["params.seed"].as_str()), (0, Some("three")));
}

#[test]
fn items_that_no_record_contains_are_left_out_and_counted() {
    let mut made = run();
    made.curves.insert("x".repeat(257), vec![point(1, 0.0, 1.0)]);
    made.curves.insert("early".to_owned(), vec![point(-1, 100.0, 1.0), point(0, 100.0, 2.0)]);
    made.texts.insert("note".to_owned(), "ö".repeat(MOST_TEXT_BYTES));
    made.skipped.insert("image".to_owned(), 3);
    let sealed = made.sealed();
    sealed.check().unwrap();
    let expected = format!(
        "the import left out 1 name longer than 256 bytes, with all that they name (the first begins `{}`); 1 point at steps below 0; the end of 1 text beyond 64 KiB; 3 images",
        "x".repeat(40)
    );
    assert_eq!(sealed.attempt.warnings, [expected]);
    let long = ForeignRun { params: [("p".repeat(257), 1i64.into())].into(), ..run() }.sealed();
    assert!(long.attempt.warnings[0].contains(&"p".repeat(40)), "{:?}", long.attempt.warnings);
    let mut many = run();
    for number in 0..1200 {
        many.curves.insert(format!("curve{number:04}"), vec![point(1, 100.0, 1.0), point(2, 100.0, 1.0)]);
    }
    let sealed = many.sealed();
    sealed.check().unwrap();
    assert_eq!(sealed.series.len(), 1000);
    assert_eq!(sealed.attempt.warnings, ["the import left out 202 series beyond 999, with 405 points"]);
}
