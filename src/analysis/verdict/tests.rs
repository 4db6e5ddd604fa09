use super::*;
use crate::record::{Axis, Digest, Metric, Outcome, Parts};
use proptest::prelude::*;

struct Made {
    device: &'static str,
    program: Value,
    losses: Vec<f64>,
    accuracy: Option<f64>,
    weights: u8,
}

fn trainer() -> Value {
    Value::Table([("revision".to_owned(), Value::Int(3))].into())
}

fn made(losses: &[f64]) -> Made {
    Made { device: "cuda", program: trainer(), losses: losses.to_vec(), accuracy: Some(0.5), weights: 1 }
}

/// Two steps per epoch, with an evaluation after each epoch.
fn phases(steps: usize) -> Vec<Phase> {
    let phase = |name: &str, index: u64, start_ns: u64, stop_ns: u64| Phase {
        name: name.to_owned(),
        index,
        rank: 0,
        start_ns,
        stop_ns: Some(stop_ns),
    };
    let steps = u64::try_from(steps).unwrap();
    let mut all: Vec<Phase> = (1..=steps).map(|step| phase("step", step, 100 * step, 100 * step + 50)).collect();
    all.extend((1..=steps / 2).map(|epoch| phase("epoch", epoch, 200 * epoch - 110, 200 * epoch + 60)));
    all.extend((1..=steps / 2).map(|epoch| phase("eval", epoch, 200 * epoch + 61, 200 * epoch + 70)));
    all
}

fn sealed(made: Made) -> Sealed {
    let config: Table =
        [("hardware.device".to_owned(), made.device.into()), ("training.precision".to_owned(), "fp32".into())].into();
    let run =
        Run::new(Parts { config: config.into(), program: made.program, device: made.device.into(), ..Parts::sample() });
    let mut loss = Series::new("loss", "", Axis::Step);
    made.losses.iter().zip(1..).for_each(|(value, step)| loss.push(step, *value));
    let phases = phases(made.losses.len());
    let attempt = Attempt {
        run: run.id,
        metrics: made.accuracy.map(|value| ("accuracy".to_owned(), Metric::new(value, ""))).into_iter().collect(),
        digests: [("weights".to_owned(), Digest([made.weights; 32]))].into(),
        series: vec![loss.summary()],
        phases: Phase::digest_all(&phases),
        ..Attempt::sample()
    };
    Sealed { run, attempt, series: vec![loss], phases }
}

fn grade(original: &Sealed, rerun: &Sealed) -> Grade {
    verdict(original, &[], &[rerun], None).grade
}

#[test]
fn every_bit_and_digest_counts() {
    let original = sealed(made(&[2.0, 1.0, 0.5, 0.25]));
    assert_eq!(grade(&original, &original.clone()), Grade::Identical);
    let other_weights = sealed(Made { weights: 2, ..made(&[2.0, 1.0, 0.5, 0.25]) });
    // On a GPU the last bits of weights may differ although no recorded loss does.
    assert_eq!(grade(&original, &other_weights), Grade::Equivalent);
    let on_cpu = |weights| sealed(Made { device: "cpu", weights, ..made(&[2.0, 1.0, 0.5, 0.25]) });
    let found = verdict(&on_cpu(1), &[], &[&on_cpu(2)], None);
    assert_eq!(
        (found.grade, found.detail.as_str()),
        (Grade::Drifted, "all recorded curves are identical; different digests of `weights`")
    );
}

#[test]
fn without_curves_none_is_called_identical() {
    let with = |weights| {
        let mut one = sealed(Made { device: "cpu", weights, ..made(&[2.0, 1.0]) });
        one.series.clear();
        one
    };
    let found = verdict(&with(1), &[], &[&with(2)], None);
    assert_eq!((found.grade, found.detail.as_str()), (Grade::Drifted, "different digests of `weights`"));
}

#[test]
fn a_metric_that_is_stated_to_be_measured_is_not_compared() {
    let with = |ratio: f64, kind: Option<&str>| {
        let mut one = sealed(Made { device: "cpu", ..made(&[2.0, 1.0]) });
        one.attempt.metrics.insert("ratio".to_owned(), Metric::new(ratio, ""));
        let fact = format!("worker.{}ratio", Attempt::METRIC_KIND);
        one.attempt.facts.extend(kind.map(|kind| (fact, kind.into())));
        one
    };
    let told =
        |kind: Option<&str>| computed(&with(1.5, kind).attempt).map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (told(None), told(Some("measured"))),
        (vec!["accuracy".to_owned(), "ratio".to_owned()], vec!["accuracy".to_owned()])
    );
}

#[test]
fn the_first_difference_is_reported_with_its_phase() {
    let made = |losses: &[f64]| sealed(Made { device: "cpu", ..made(losses) });
    let original = made(&[2.0, 1.0, 0.5, 0.25]);
    let found = verdict(&original, &[], &[&made(&[2.0, 1.0, 0.8, 0.25])], None);
    assert_eq!(
        found.detail,
        "`loss` first differs at step 3, in epoch 2: the original has 0.5, the rerun 0.8 (at most 3.0e-1 apart over 4 logged steps)"
    );
    let lost = verdict(&original, &[], &[&made(&[2.0, 1.0, f64::NAN, 0.25])], None).detail;
    assert!(
        lost.ends_with("the original has 0.5, the rerun NaN (infinitely far apart, over 4 logged steps)"),
        "{lost}"
    );
    let none = verdict(&original, &[], &[&made(&[])], None).detail;
    assert!(none.ends_with("the original has 2.0, the rerun no value (they have no step in common)"), "{none}");
    assert_eq!(phase_of(&original.phases, "eval_loss", 2), Some("eval 1".to_owned()));
    assert_eq!(phase_of(&original.phases, "loss", 1), Some("epoch 1".to_owned()));
    assert_eq!(phase_of(&original.phases, "loss", 9), None);
}

#[test]
fn of_curves_that_differ_at_one_step_the_training_curve_is_first() {
    let made = |losses: &[f64], eval: f64| {
        let mut one = sealed(Made { device: "cpu", ..made(losses) });
        for name in ["accuracy_train", "eval_loss"] {
            let mut series = Series::new(name, "", Axis::Step);
            series.push(2, 0.5);
            series.push(4, eval);
            one.series.push(series);
        }
        one
    };
    let original = made(&[2.0, 1.0, 0.5, 0.25], 1.0);
    let detail = |rerun: &Sealed| verdict(&original, &[], &[rerun], None).detail;
    let both = detail(&made(&[2.0, 1.0, 0.5, 0.3], 2.0));
    assert!(both.starts_with("`accuracy_train` first differs at step 4, in epoch 2: "), "{both}");
    assert!(both.ends_with("; also `eval_loss`, `loss`"), "{both}");
    let earlier = detail(&made(&[2.0, 1.0, 0.8, 0.25], 2.0));
    assert!(earlier.starts_with("`loss` first differs at step 3, in epoch 2: "), "{earlier}");
    assert!(earlier.ends_with("; later `accuracy_train`, `eval_loss`"), "{earlier}");
}

#[test]
fn rounding_is_allowed_to_half_of_the_digits_of_the_format() {
    let original = sealed(made(&[2.0, 1.0, 0.5, 0.25]));
    // In FP32, 2^-12 of the larger value is allowed, plus 2^-24 of the largest.
    let tolerance = 2f64.powi(-12);
    let near = |share: f64| sealed(made(&[2.0, 1.0, 0.5, 0.25 * (1.0 + share)]));
    assert_eq!(grade(&original, &near(0.9 * tolerance)), Grade::Equivalent);
    assert_eq!(grade(&original, &near(1.1 * tolerance)), Grade::Drifted);
    let mut tf32 = original.clone();
    tf32.attempt.facts.insert("worker.precision".to_owned(), "fp32 (tf32 allowed)".into());
    assert_eq!(Class::of(&tf32.run, &tf32.attempt).tolerance(), 2f64.powf(-5.5));
    assert_eq!(grade(&tf32, &near(1.1 * tolerance)), Grade::Equivalent);
    let command: Table = [("command".to_owned(), vec!["python"].into())].into();
    let foreign = |share: f64| sealed(Made { program: command.clone().into(), ..made(&[2.0, 1.0 + share]) });
    assert_eq!(grade(&foreign(0.0), &foreign(1e-9)), Grade::Drifted, "nothing is known of another program");
    let pinned = |losses: &[f64]| {
        let mut sealed = sealed(made(losses));
        let mut config = sealed.run.config().clone();
        config.insert("training.deterministic".to_owned(), true.into());
        sealed.run.parts.config = config.into();
        sealed
    };
    let [one, other] = [1.0, 1.0 + 1e-9].map(|loss| pinned(&[2.0, loss]));
    assert_eq!(Class::of(&one.run, &one.attempt), Class::Bits);
    assert_eq!((grade(&one, &one), grade(&one, &other)), (Grade::Identical, Grade::Drifted));
    // Rounding does not explain a loss that is NaN, nor a curve that ends early.
    assert_eq!(grade(&original, &sealed(made(&[2.0, 1.0, 0.5, f64::NAN]))), Grade::Drifted);
    let ends = |last: f64| sealed(made(&[2.0, 1.0, 0.5, last]));
    for (a, b) in [(f64::INFINITY, 0.25), (f64::NEG_INFINITY, 0.25), (f64::INFINITY, f64::NEG_INFINITY)] {
        assert_eq!(grade(&ends(a), &ends(b)), Grade::Drifted, "{a} {b}");
        assert_eq!(grade(&ends(b), &ends(a)), Grade::Drifted, "{b} {a}");
        assert_eq!(grade(&ends(a), &ends(a)), Grade::Identical);
    }
    assert_eq!(grade(&original, &sealed(made(&[2.0, 1.0, 0.5]))), Grade::Drifted);
}

#[test]
fn metrics_within_a_stated_margin_are_equivalent_over_repeats() {
    let with =
        |accuracy, weights| sealed(Made { device: "cpu", accuracy: Some(accuracy), weights, ..made(&[2.0, 1.0]) });
    let original = with(0.950, 1);
    let near = [0.951, 0.949, 0.950, 0.952].map(|accuracy| with(accuracy, 2));
    let refs: Vec<&Sealed> = near.iter().collect();
    let judged = |margin: &str| verdict(&original, &[], &refs, Some(margin.parse().unwrap()));
    assert_eq!(judged("1%").grade, Grade::Equivalent);
    let strict = judged("0.1%");
    assert_eq!(strict.grade, Grade::Drifted);
    assert!(strict.detail.contains("not shown to be within 0.1%: `accuracy` (p = 0."), "{}", strict.detail);
    let once = verdict(&original, &[], &refs[..1], Some(Margin::Share(0.01)));
    assert!(once.grade == Grade::Drifted && once.detail.contains("`--times 2`"), "{}", once.detail);
    let mut failed = near[0].clone();
    failed.attempt.outcome = Outcome::Failed { reason: "the disk is full".to_owned() };
    let found = verdict(&original, &[], &[refs[0], &failed], Some(Margin::Share(0.01)));
    assert_eq!((found.grade, found.detail.as_str()), (Grade::Failed, "the rerun is failed: the disk is full"));
}

#[test]
fn stated_results_are_compared_and_no_results_are_not_identical() {
    let command: Table = [("command".to_owned(), vec!["python"].into())].into();
    let stated = |accuracy: Option<f64>, weights: bool| {
        let mut one = sealed(Made { program: command.clone().into(), accuracy, ..made(&[]) });
        if !weights {
            one.attempt.digests.clear();
        }
        one
    };
    let original = stated(Some(0.5), false);
    assert_eq!(grade(&original, &original), Grade::Identical);
    for other in [stated(Some(0.5000001), false), stated(None, false)] {
        let found = verdict(&original, &[], &[&other], None);
        assert_eq!(found.grade, Grade::Drifted);
        assert!(found.detail.contains("different final values of `accuracy`"), "{}", found.detail);
    }
    // A metric with a unit, such as a time, is not computed and may differ.
    let timed = |seconds: f64| {
        let mut one = stated(Some(0.5), false);
        one.attempt.metrics.insert("took".to_owned(), Metric::new(seconds, "s"));
        one
    };
    assert_eq!(grade(&timed(1.0), &timed(2.0)), Grade::Identical);
    let nothing = stated(None, false);
    let found = verdict(&nothing, &[], &[&nothing], Some(Margin::Share(0.01)));
    assert_eq!(found.grade, Grade::Failed);
    assert!(found.detail.starts_with("nothing can be compared"), "{}", found.detail);
    assert_eq!(grade(&stated(None, true), &stated(None, true)), Grade::Identical, "its digests are compared");
}

#[test]
fn a_metric_that_is_0_each_time_is_within_any_margin() {
    let with = |skipped: f64, accuracy: f64, weights: u8| {
        let mut one = sealed(Made { device: "cpu", accuracy: Some(accuracy), weights, ..made(&[2.0, 1.0]) });
        one.attempt.metrics.insert("skipped_steps".to_owned(), Metric::new(skipped, ""));
        one
    };
    let original = with(0.0, 0.95, 1);
    let judged = |reruns: &[Sealed]| {
        verdict(&original, &[], &reruns.iter().collect::<Vec<_>>(), Some(Margin::Share(0.01))).grade
    };
    let near = [with(0.0, 0.951, 2), with(0.0, 0.949, 2), with(0.0, 0.95, 2)];
    assert_eq!(judged(&near), Grade::Equivalent);
    assert_eq!(judged(&[with(0.0, 0.951, 2), with(0.0, 0.949, 2), with(1.0, 0.95, 2)]), Grade::Drifted);
    // A single repetition has no known scatter, but bitwise equal values need none.
    assert_eq!(judged(&[with(0.0, 0.95, 2)]), Grade::Equivalent);
    assert_eq!(judged(&[with(0.0, 0.951, 2)]), Grade::Drifted);
}

#[test]
fn the_bubble_of_a_pipeline_is_not_a_computed_metric() {
    let with = |bubble: f64, weights: u8| {
        let mut one = sealed(Made { device: "cpu", weights, ..made(&[2.0, 1.0]) });
        one.attempt.metrics.insert("bubble_fraction".to_owned(), Metric::new(bubble, ""));
        one
    };
    let reruns = [with(0.3, 2), with(0.4, 2)];
    let found = verdict(&with(0.1, 1), &[], &reruns.iter().collect::<Vec<_>>(), Some(Margin::Share(0.01)));
    let tested: Vec<&str> = found.tested.iter().map(|one| one.metric.as_str()).collect();
    assert_eq!((tested, found.grade), (vec!["accuracy"], Grade::Equivalent));
}

#[test]
fn a_known_metric_of_an_older_record_is_compared_in_its_own_unit() {
    let with = |value: f64, unit: &str, program: u8| {
        let mut one = sealed(Made { device: "cpu", ..made(&[2.0, 1.0]) });
        one.attempt.metrics.insert("accuracy".to_owned(), Metric::new(value, unit));
        one.run.parts.program = Value::Str(format!("{program}"));
        one
    };
    let found = metrics(&with(50.0, "%", 1).attempt, &with(0.5, "", 1).attempt);
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(metrics(&with(50.0, "%", 1).attempt, &with(0.75, "", 1).attempt), ["accuracy"]);
}

#[test]
fn another_run_is_reported_with_any_result() {
    let original = sealed(Made { device: "cpu", ..made(&[2.0, 1.0]) });
    let mut other = original.clone();
    other.run = Run::new(Parts { container: "sha256:ab".into(), ..original.run.parts.clone() });
    other.attempt.run = other.run.id;
    let identical = verdict(&original, &[], &[&other], None);
    assert_eq!((identical.grade, identical.detail.as_str()), (Grade::Identical, "another run id, by `container`"));
    assert_eq!(identical.detail_of(&identical.reruns[0]), "another run id, by `container`");
    other.attempt.outcome = Outcome::Failed { reason: "the disk is full".to_owned() };
    let failed = verdict(&original, &[], &[&other], None);
    assert!(failed.detail.ends_with("the disk is full; another run id, by `container`"), "{}", failed.detail);
}

#[test]
fn margins_are_shares_or_numbers() {
    assert_eq!("1%".parse(), Ok(Margin::Share(0.01)));
    assert_eq!("0.002".parse(), Ok(Margin::Absolute(0.002)));
    for text in ["", "%", "-1%", "0", "inf", "nan", "a"] {
        assert!(text.parse::<Margin>().is_err(), "{text}");
    }
}

#[test]
fn environment_changes_leave_out_facts_that_differ_each_time() {
    let facts = |pairs: &[(&str, &str)]| -> Table {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect()
    };
    let recorded = facts(&[
        ("host.kernel", "6.1"),
        ("host.os", "Debian"),
        ("load_average", "1"),
        ("SLURM_JOB_ID", "7"),
        ("git.commit", "abc"),
        ("telemetry.marks", "gap"),
    ]);
    let node = |bytes: i64| Value::Table([("memory_bytes".to_owned(), Value::Int(bytes))].into());
    let recorded: Table = recorded.into_iter().chain([("numa.0".to_owned(), node(7))]).collect();
    let here = facts(&[("host.kernel", "6.2"), ("host.os", "Debian"), ("OMP_NUM_THREADS", "4"), ("load_average", "2")]);
    let here: Table = here.into_iter().chain([("numa.0".to_owned(), node(8))]).collect();
    let names: Vec<String> = environment_changes(&recorded, &here).into_iter().map(|change| change.field).collect();
    assert_eq!(names, ["OMP_NUM_THREADS", "host.kernel"]);
    // A new limit is listed; a fact that was not recorded here is not.
    let recorded = facts(&[("memory.limit_bytes", "8"), ("library.libm.sha256", "aa"), ("gpu.0.name", "H200")]);
    let here = facts(&[("cpu.quota_cores", "2"), ("library.libm.sha256", "bb"), ("library.libgomp.sha256", "cc")]);
    let names: Vec<String> = environment_changes(&recorded, &here).into_iter().map(|change| change.field).collect();
    assert_eq!(names, ["cpu.quota_cores", "library.libm.sha256", "memory.limit_bytes"]);
}

proptest! {
    #[test]
    fn equal_bits_are_identical_and_any_changed_bit_is_found(
        losses in prop::collection::vec(any::<f64>(), 1..9),
        at in any::<prop::sample::Index>(),
        bit in 0u32..64,
    ) {
        let made = |losses: &[f64]| sealed(Made { device: "cpu", ..made(losses) });
        let original = made(&losses);
        prop_assert_eq!(grade(&original, &made(&losses)), Grade::Identical);
        let mut other = losses.clone();
        let at = at.index(losses.len());
        other[at] = f64::from_bits(other[at].to_bits() ^ 1 << bit);
        let found = verdict(&original, &[], &[&made(&other)], None);
        prop_assert_eq!(found.grade, Grade::Drifted);
        let step = found.reruns[0].divergence.as_ref().unwrap().first.as_ref().unwrap().first_step;
        prop_assert_eq!(step, Some(u64::try_from(at).unwrap() + 1));
    }
}
