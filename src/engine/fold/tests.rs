use super::*;
use crate::record::{Exit, Owner, Parts, Sealed, Series};
use crate::wire::{decode_phases, encode_attempt, encode_series};
use proptest::prelude::*;

fn opened() -> Entry {
    let config = Table::from([("model.name".to_owned(), "m".into())]);
    let run = Run::new(Parts { config: config.into(), ..Parts::sample() });
    Entry::Opened {
        owner: Owner { host: "h".to_owned(), boot_id: "b".to_owned(), pid: 1, start_ticks: 2 },
        nonce: Nonce([7; 16]),
        run: Box::new(run),
        settings: Table::new(),
        facts: Table::new(),
        started_unix_ms: 3,
        started_ns: 0,
    }
}

/// Seals the attempt of a worker that reports these entries and finishes. Checks that everything can be decoded again.
fn sealed_of(said: impl Iterator<Item = Entry>) -> Sealed {
    let mut fold = Fold::open(&opened()).unwrap();
    said.for_each(|entry| fold.take(&entry));
    let exit = Some(Exit::Code(0));
    fold.take(&Entry::Ended { outcome: Outcome::Finished, exit, ended_ns: 9, cpu_ns: None });
    let sealed = fold.seal("", 0).unwrap().sealed().unwrap();
    encode_attempt(&sealed.attempt).unwrap();
    assert_eq!(decode_phases(&encode_phases(&sealed.phases).unwrap()).unwrap(), sealed.phases);
    sealed.series.iter().for_each(|series| drop(encode_series(series).unwrap()));
    sealed.check().unwrap();
    sealed
}

fn event(rank: u32, kind: EventKind) -> Entry {
    Entry::Event(Event { t_ns: 1, rank, kind })
}

fn phase(rank: u32, name: &str, index: u64, edge: PhaseEdge) -> Entry {
    event(rank, EventKind::Phase { name: name.to_owned(), index, edge })
}

fn step(rank: u32, step: u64, name: &str, value: f64) -> Entry {
    event(rank, EventKind::Step { step, duration_ns: None, values: vec![(name.to_owned(), value)] })
}

fn fact(name: &str, value: Value) -> Entry {
    event(0, EventKind::Fact { name: name.to_owned(), value })
}

#[test]
fn a_name_has_the_value_of_the_lowest_rank_that_reports_it() {
    let metric =
        |rank, name: &str, value| event(rank, EventKind::Metric { name: name.to_owned(), value, unit: String::new() });
    let digest =
        |rank, name: &str, of: &[u8]| event(rank, EventKind::Digest { name: name.to_owned(), digest: Digest::of(of) });
    let told =
        |rank, name: &str, value: &str| event(rank, EventKind::Fact { name: name.to_owned(), value: value.into() });
    let plan = |rank, samples_per_step| event(rank, EventKind::Plan { steps: 3, epochs: 0, samples_per_step });
    let said = vec![
        plan(1, 7),
        metric(2, "accuracy", 0.2),
        metric(0, "accuracy", 0.8),
        metric(0, "accuracy", 0.9),
        metric(1, "accuracy", 0.1),
        metric(3, "mine", 3.0),
        metric(2, "mine", 2.0),
        digest(1, "shard.1", b"1"),
        digest(0, "weights", b"0"),
        digest(1, "weights", b"1"),
        told(1, "host", "b"),
        told(0, "host", "a"),
        told(3, "torch", "2.11"),
        plan(0, 64),
        plan(2, 0),
    ];
    let values = |sealed: &Sealed, name: &str| sealed.attempt.metrics.get(name).and_then(|metric| metric.value);
    // The lines of several ranks may come in any order.
    let reversed = said.iter().rev().filter(|entry| !matches!(entry, Entry::Event(Event { rank: 0, .. }))).cloned();
    let first = said.iter().filter(|entry| matches!(entry, Entry::Event(Event { rank: 0, .. }))).cloned();
    for said in [said.clone(), first.chain(reversed).collect()] {
        let sealed = sealed_of(said.into_iter());
        let found = ["accuracy", "accuracy.1", "accuracy.2", "mine", "mine.3"].map(|name| values(&sealed, name));
        assert_eq!(found, [0.9, 0.1, 0.2, 2.0, 3.0].map(Some));
        assert_eq!(values(&sealed, "accuracy.0").or(values(&sealed, "mine.2")), None);
        let digests: Vec<&str> = sealed.attempt.digests.keys().map(String::as_str).collect();
        assert_eq!(digests, ["shard.1", "weights", "weights.1"]);
        assert_eq!(sealed.attempt.digests["weights"], Digest::of(b"0"));
        let fact = |name: &str| sealed.attempt.facts[name].as_str().unwrap().to_owned();
        assert_eq!([fact("worker.host"), fact("worker.host.1"), fact("worker.torch")], ["a", "b", "2.11"]);
        assert_eq!(sealed.attempt.warnings, Vec::<String>::new());
    }
}

#[test]
fn a_value_whose_name_is_taken_by_another_rank_is_dropped() {
    let metric =
        |rank, name: &str, value| event(rank, EventKind::Metric { name: name.to_owned(), value, unit: String::new() });
    let said = [metric(0, "top", 0.9), metric(0, "top.1", 0.5), metric(1, "top", 0.1), metric(2, "x.1", 3.0)];
    let sealed = sealed_of(said.into_iter().chain([metric(0, "x", 1.0), metric(1, "x", 2.0)]));
    let found = ["top", "top.1", "x", "x.1"].map(|name| sealed.attempt.metrics[name].value);
    assert_eq!(found, [0.9, 0.5, 1.0, 3.0].map(Some));
    let text = "2 of the values of ranks have the name of another value, and were dropped (the first: `top` of rank 1, beside the value reported as `top.1`)";
    assert_eq!(sealed.attempt.warnings, [text]);
}

#[test]
fn the_exception_of_a_traceback_is_reported() {
    let told = |stderr: &str| {
        let mut fold = Fold::open(&opened()).unwrap();
        fold.take(&Entry::Stderr(stderr.to_owned()));
        fold.last_stderr_line().unwrap()
    };
    let frames = "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    step()\n";
    assert_eq!(told(&format!("{frames}ValueError: exploded\n")), "ValueError: exploded");
    let cuda = "RuntimeError: CUDA error: an illegal memory access\nCompile with `TORCH_USE_CUDA_DSA`.\n";
    let both = "RuntimeError: CUDA error: an illegal memory access … Compile with `TORCH_USE_CUDA_DSA`.";
    assert_eq!(told(&format!("started\n{frames}{cuda}")), both);
    // The last of two exceptions ended the program.
    let chained = format!("{frames}KeyError: 'a'\n\nDuring handling of it, another:\n\n{frames}OSError: b\n");
    assert_eq!(told(&chained), "OSError: b");
    let prefixed =
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"a.py\"\n[rank0]: ValueError: c\n[rank0]: d\n";
    assert_eq!(told(prefixed), "ValueError: c … [rank0]: d");
    assert_eq!(told("Traceback (most recent call last):\n  cut off"), "cut off");
    assert_eq!(told("no room\nnote: run with `RUST_BACKTRACE=1`\n"), "no room");
}

#[test]
fn a_failure_by_lack_of_gpu_memory_is_recognised() {
    let of = |stderr: &str, outcome: Outcome| {
        let mut fold = Fold::open(&opened()).unwrap();
        fold.take(&Entry::Stderr(stderr.to_owned()));
        fold.take(&Entry::Ended { outcome, exit: Some(Exit::Code(1)), ended_ns: 9, cpu_ns: None });
        fold.seal("", 0).unwrap().attempt.is_out_of_memory()
    };
    let failed = |reason: &str| Outcome::Failed { reason: reason.to_owned() };
    let torch = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 48.00 GiB.\n";
    assert!(of("", failed("out of GPU memory in forward of step 1: 48 GiB more were needed")));
    assert!(of(torch, failed("the worker exited with code 1: torch.OutOfMemoryError")));
    assert!(!of(torch, Outcome::Finished), "it went on with less");
    assert!(!of("", failed("the worker exited with code 1")));
}

#[test]
fn impossible_values_of_a_worker_make_the_attempt_invalid() {
    let stated = |name: &str, value: f64, unit: &str| {
        let metric = EventKind::Metric { name: name.to_owned(), value, unit: unit.to_owned() };
        sealed_of(std::iter::once(event(0, metric))).attempt
    };
    for (name, value, unit, reason) in [
        ("energy", -100.0, "", "`energy` is negative"),
        ("energy", -0.1, "kJ", "`energy` is negative"),
        ("train_time", -3.0, "s", "`train_time` is negative"),
        ("accuracy", 7.0, "", "`accuracy` is no share from 0 to 1"),
        ("accuracy", 107.0, "%", "`accuracy` is no share from 0 to 1"),
    ] {
        let attempt = stated(name, value, unit);
        assert_eq!(attempt.taints(), [reason], "{name} {value} {unit}");
        assert!(attempt.counts().unwrap_err().reason.contains(reason));
        let [warning] = attempt.warnings.as_slice() else { panic!("{:?}", attempt.warnings) };
        assert!(warning.starts_with(&format!("invalid: {reason} (the worker states ")), "{warning}");
    }
    let percent = stated("accuracy", 97.0, "").warnings.join("");
    assert!(
        percent.ends_with(
            "(the worker states 97; state a percentage with the unit `%`, in the event or in [program.metrics])"
        ),
        "{percent}"
    );

    let right = stated("accuracy", 97.0, "%");
    assert_eq!((right.metric("accuracy"), right.taints().len(), right.warnings.len()), (Some(0.97), 0, 0));
    let share = stated("accuracy", 0.97, "%");
    assert_eq!(share.counts(), Ok(()));
    assert_eq!(share.warnings, ["`accuracy` is read as 0.97 % (leave the unit out if 0.97 is a share of 1)"]);
}

#[test]
fn stops_of_phases_that_never_started_are_one_warning() {
    let one = sealed_of(std::iter::once(phase(0, "p", 3, PhaseEdge::Stop)));
    assert_eq!(one.attempt.warnings, ["phase `p` 3 was stopped but never started"]);
    let many = sealed_of((0..50_000).map(|index| phase(0, "p", index, PhaseEdge::Stop)));
    let expected = "50000 phases were stopped but never started (the first: `p` 0)";
    assert_eq!(many.attempt.warnings, [expected]);
}

#[test]
fn a_phase_that_stops_before_it_starts_gets_length_zero() {
    let at = |t_ns, edge| {
        Entry::Event(Event { t_ns, rank: 0, kind: EventKind::Phase { name: "epoch".to_owned(), index: 1, edge } })
    };
    for stop_ns in [3, 4] {
        let sealed = sealed_of([at(5, PhaseEdge::Start), at(stop_ns, PhaseEdge::Stop)].into_iter());
        assert_eq!((sealed.phases[0].start_ns, sealed.phases[0].stop_ns), (5, Some(5)));
        let [warning] = sealed.attempt.warnings.as_slice() else { panic!("{:?}", sealed.attempt.warnings) };
        assert!(warning.starts_with("phase `epoch` 1 was stopped before it was started"), "{warning}");
    }
}

#[test]
fn a_stop_ends_the_last_open_phase_and_is_fast_with_many() {
    let start = |index| phase(0, "p", index, PhaseEdge::Start);
    let stop = |rank, index| phase(rank, "p", index, PhaseEdge::Stop);
    let said = (0..100_000).map(start).chain((0..100_000).map(|index| stop(1, index)));
    let sealed = sealed_of(said.chain([start(5), stop(0, 5)]));
    assert_eq!(sealed.phases.len(), 100_001);
    let stopped: Vec<usize> = (0..sealed.phases.len()).filter(|at| sealed.phases[*at].stop_ns.is_some()).collect();
    assert_eq!(stopped, [100_000]);
    assert_eq!(sealed.attempt.warnings, ["100000 phases were stopped but never started (the first: `p` 0)"]);
}

#[test]
fn parts_of_steps_leave_room_for_phases_that_define_windows() {
    let one = |name: &'static str, index| {
        [PhaseEdge::Start, PhaseEdge::Stop].into_iter().map(move |edge| phase(0, name, index, edge))
    };
    let parts = (0..MAX_PHASES as u64).flat_map(|index| one("wait", index));
    let sealed = sealed_of(parts.chain(one("epoch", 2)).chain(one("inference", 1)));
    let of = |name: &str| sealed.phases.iter().filter(|phase| phase.name == name && phase.stop_ns.is_some()).count();
    assert_eq!((of("wait"), of("epoch"), of("inference")), (900_000, 1, 1));
    let text =
        "the worker reports more than 900000 phases; 100000 further ones were dropped (the first: `wait` 900000)";
    assert_eq!(sealed.attempt.warnings, [text]);
}

#[test]
fn names_that_are_too_long_are_dropped_and_counted() {
    let long = "p".repeat(MAX_NAME_BYTES + 1);
    let named = |name: &str| {
        let (name, value) = (name.to_owned(), 1.0);
        vec![
            phase(0, &name, 0, PhaseEdge::Start),
            phase(0, &name, 0, PhaseEdge::Stop),
            step(0, 1, &name, value),
            fact(&name, Value::Int(1)),
            event(0, EventKind::Digest { name: name.clone(), digest: Digest::of(b"d") }),
            event(0, EventKind::Metric { name, value, unit: String::new() }),
        ]
    };
    let kept = sealed_of(named(&long[1..]).into_iter());
    assert!(kept.attempt.warnings.is_empty());
    assert_eq!((kept.phases.len(), kept.series.len(), kept.attempt.digests.len()), (1, 1, 1));
    let dropped = sealed_of(named(&long).into_iter());
    assert_eq!((dropped.phases.len(), dropped.series.len(), dropped.attempt.digests.len()), (0, 0, 0));
    assert!(dropped.attempt.facts.keys().chain(dropped.attempt.metrics.keys()).all(|name| name.len() < 200));
    let [warning] = dropped.attempt.warnings.as_slice() else { panic!("{:?}", dropped.attempt.warnings) };
    assert!(warning.starts_with("6 of the worker's names and units are longer than 256 bytes"), "{warning}");
}

#[test]
fn facts_metrics_and_names_of_phases_are_bounded_in_number_and_size() {
    let large = || Value::List(vec![Value::Int(1); 500_000]);
    let sealed = sealed_of((0..6).map(|i| fact(&format!("big{i}"), large())));
    assert!(sealed.attempt.facts.contains_key("worker.big0") && !sealed.attempt.facts.contains_key("worker.big1"));
    let [warning] = sealed.attempt.warnings.as_slice() else { panic!("{:?}", sealed.attempt.warnings) };
    assert!(warning.contains("take more than 16 MiB; 5 were dropped (the first: `worker.big1`)"), "{warning}");
    // The last fact of a name takes the place of the one before.
    let again = sealed_of((0..6).map(|_| fact("big", large())));
    assert!(again.attempt.facts.contains_key("worker.big") && again.attempt.warnings.is_empty());

    let all = |i: usize| {
        let name = format!("n{i}");
        [
            event(0, EventKind::Metric { name: name.clone(), value: 1.0, unit: String::new() }),
            event(0, EventKind::Digest { name: name.clone(), digest: Digest::of(b"d") }),
            phase(0, &name, 0, PhaseEdge::Start),
            phase(0, &name, 0, PhaseEdge::Stop),
            step(0, 1, &name, 1.0),
            fact(&name, Value::Int(1)),
        ]
    };
    let sealed = sealed_of((0..MAX_NAMES + 2).flat_map(all));
    let counted = sealed.attempt.metrics.keys().filter(|name| name.starts_with('n')).count();
    assert_eq!((counted, sealed.attempt.digests.len(), sealed.phases.len()), (MAX_NAMES, MAX_NAMES, MAX_NAMES));
    assert_eq!(sealed.series.len(), MAX_SERIES);
    let texts = sealed.attempt.warnings.join("\n");
    for part in [
        "the worker names more than 1000 series; 9002 points of further ones were dropped (the first: `n1000`)",
        "the worker states more than 10000 metrics; 2 further ones were dropped (the first: `n10000`)",
        "the worker reports more than 10000 digests; 2 further ones",
        "the worker's phases have more than 10000 names; 2 of further ones were dropped (the first: `n10000` 0)",
        "the worker's facts are more than 10000 or take more than 16 MiB; 2 were dropped",
    ] {
        assert!(texts.contains(part), "{part}: {texts}");
    }
    assert!(!texts.contains("never started"), "those were stopped that were dropped: {texts}");
}

#[test]
fn of_series_with_one_name_that_of_the_lowest_rank_is_kept() {
    let ranks = [step(1, 1, "loss", 100.0), step(0, 1, "loss.1", 5.0), step(0, 1, "loss", 1.0)];
    for said in [ranks.clone().to_vec(), ranks.into_iter().rev().collect()] {
        let sealed = sealed_of(said.into_iter());
        let of = |name: &str| sealed.series.iter().find(|series| series.name == name).unwrap().values.clone();
        assert_eq!((of("loss"), of("loss.1")), (vec![1.0], vec![5.0]));
        let text = "1 series of ranks has names of other ranks' series, and was dropped (the first: `loss` of rank 1, which is another rank's `loss.1`)";
        assert_eq!(sealed.attempt.warnings, [text]);
    }
}

#[test]
fn lines_that_are_not_events_give_one_warning_with_their_number() {
    let line = |_| Entry::Rejected { line: "hello".to_owned(), reason: "it is not a JSON object".to_owned() };
    for warning in ["101180 lines are not events; 1000 were kept".to_owned(), said::no_events(101_180)] {
        let sealed = sealed_of((0..1000).map(line).chain([Entry::Warning(warning)]));
        let [told] = sealed.attempt.warnings.as_slice() else { panic!("{:?}", sealed.attempt.warnings) };
        assert!(told.starts_with("101180 lines of the worker's events are not events: `hello` (it is not"), "{told}");
    }
    let one = sealed_of([line(0)].into_iter()).attempt.warnings.join("\n");
    assert!(one.starts_with("1 line of the worker's events is not an event: `hello`"), "{one}");
}

#[test]
fn a_fold_keeps_few_bytes_of_each_event() {
    const EVENTS: u64 = 1_300_000;
    let dir = tempfile::tempdir().unwrap();
    let mut fold = Fold::open(&opened()).unwrap().spilling_beside(&dir.path().join("a.journal"));
    for step in 1..=EVENTS {
        let values = vec![("loss".to_owned(), 1.0 / real(step)), ("rate".to_owned(), 0.5)];
        let kind = EventKind::Step { step, duration_ns: None, values };
        fold.take(&Entry::Event(Event { t_ns: 1000 * step, rank: 0, kind }));
    }
    assert!(fold.folding.spill.kept_bytes() <= 32 << 20, "{}", fold.folding.spill.kept_bytes());
    let steps = fold.folding.observed.steps.kept_bytes();
    assert!(steps <= 10 * usize::try_from(EVENTS).unwrap(), "{steps}");
    let folded = fold.seal("lost", 0).unwrap();
    let lens: Vec<u64> = folded.attempt.series.iter().map(|series| series.len).collect();
    assert_eq!(lens, [EVENTS, EVENTS]);
    folded.sealed().unwrap().check().unwrap();
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn real(step: u64) -> f64 {
    step as f64
}

proptest! {
    #[test]
    fn series_equal_those_of_a_naive_fold(
        said in prop::collection::vec((0u32..3, 0u64..100, 0usize..3, any::<u64>()), 0..3000)
    ) {
        let names = ["loss", "rate", "x"];
        let mut plain: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        for (rank, at, name, bits) in &said {
            let name = if *rank == 0 { names[*name].to_owned() } else { format!("{}.{rank}", names[*name]) };
            plain.entry(name).or_default().push((*at, *bits));
        }
        plain.values_mut().for_each(|points| points.sort_by_key(|(at, _)| *at));
        let entries = said.iter().map(|(rank, at, name, bits)| step(*rank, *at, names[*name], f64::from_bits(*bits)));
        let sealed = sealed_of(entries);
        let points = |series: &Series| -> Vec<(u64, u64)> {
            series.positions.iter().copied().zip(series.values.iter().map(|value| value.to_bits())).collect()
        };
        let found: BTreeMap<String, Vec<(u64, u64)>> =
            sealed.series.iter().map(|series| (series.name.clone(), points(series))).collect();
        prop_assert_eq!(found, plain);
    }
}

#[test]
fn events_dropped_by_ranks_give_a_warning() {
    let dropped =
        |rank, value: i64| event(rank, EventKind::Fact { name: "dropped_events".to_owned(), value: value.into() });
    let sealed = sealed_of([dropped(0, 5), dropped(0, 7), dropped(2, 3)].into_iter());
    assert_eq!(sealed.attempt.warnings, ["the worker dropped 10 events (its queue was full: log less often)"]);
    assert_eq!(sealed_of([dropped(0, 0)].into_iter()).attempt.warnings, Vec::<String>::new());
}
