//! Tests that the indexes give the same answers as the records.

use super::super::Args;
use super::super::scan::by_scan;
use super::*;
use crate::record::{
    Attempt, Change, LogEntry, Metric, Nonce, Outcome, Parts, Phase, Run, Sealed, Table, Target, Value,
};
use crate::report;
use crate::store::Store;
use clap::Parser;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(words: &[&str]) -> Args {
    Line::parse_from(["best"].into_iter().chain(words.iter().copied())).args
}

/// A query of the model `m` by its energy.
fn asked(args: &Args) -> Query<'_> {
    Query::of("m", "energy", &args.rest)
}

/// One attempt: x, seed, type of outcome, energy, time, whether its estimators disagree, whether it is hidden.
type Drawn = (i64, u64, u8, Option<f64>, Option<f64>, bool, bool);

fn drawn() -> impl Strategy<Value = Drawn> {
    let number = || prop_oneof![6 => (1..9u8).prop_map(|i| Some(f64::from(i) / 7.0)), 1 => Just(Some(f64::NAN)), 1 => Just(None)];
    let rare = || prop::bool::weighted(0.15);
    (0..4i64, 0..3u64, 0..7u8, number(), number(), rare(), rare())
}

fn sealed(number: u32, (x, seed, kind, energy, time, disagrees, _): Drawn) -> Sealed {
    let mut config: Table = [("model.name".to_owned(), "m".into()), ("params.x".to_owned(), x.into())].into();
    config.insert("hardware.gpus".to_owned(), (x % 2).into());
    if x == 3 {
        config.insert("params.note".to_owned(), "long".repeat(100).into());
        config.insert("params.dims".to_owned(), vec!["a", "b"].into());
    }
    let run = Run::new(Parts {
        config: config.into(),
        program: Table::from([("revision".to_owned(), x.into())]).into(),
        device: vec!["H200", "H200"].into(),
        seed,
        ..Parts::sample()
    });
    let mut facts: Table = [("host.name".to_owned(), "n1".into())].into();
    let outcome = match kind {
        1 => Outcome::Failed { reason: "r".into() },
        2 => Outcome::Interrupted { reason: "r".into() },
        _ => Outcome::Finished,
    };
    if kind == 3 {
        facts.insert("tainted".into(), vec!["hot start"].into());
    }
    if disagrees {
        facts.insert("telemetry.marks".into(), vec!["disagreement"].into());
    }
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    match energy {
        Some(value) => drop(metrics.insert("energy".to_owned(), Metric::new(value, "J"))),
        None if seed == 0 => drop(metrics.insert("energy".to_owned(), Metric::missing("J", "not read"))),
        None => {}
    }
    metrics.extend(time.map(|value| ("epoch_time".to_owned(), Metric::new(value, "s"))));
    let mut nonce = [0; 16];
    nonce[..4].copy_from_slice(&number.to_le_bytes());
    let attempt = Attempt {
        run: run.id,
        nonce: Nonce(nonce),
        started_unix_ms: i64::from(number),
        outcome,
        metrics,
        settings: [("telemetry.hz".to_owned(), Value::Int(10))].into(),
        facts,
        phases: Phase::digest_all(&[]),
        ..Attempt::sample()
    };
    Sealed { run, attempt, series: Vec::new(), phases: Vec::new() }
}

fn filled(drawn: &[Drawn]) -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    let all: Vec<(Sealed, bool)> = (0u32..).zip(drawn).map(|(number, one)| (sealed(number, *one), one.6)).collect();
    store
        .write(|writer| {
            if let Some((one, _)) = all.last() {
                let (name, target) = ("default".to_owned(), Target::Run(one.run.id));
                writer.note(&LogEntry { unix_ms: 0, change: Change::Tagged { name, target } })?;
            }
            for (one, hidden) in &all {
                let id = writer.seal(one, 0)?.id();
                if *hidden {
                    writer.note(&LogEntry { unix_ms: 0, change: Change::Hidden(Target::Attempt(id)) })?;
                }
            }
            Ok(())
        })
        .unwrap();
    (dir, store)
}

fn both(store: &Store, words: &[&str]) -> (Option<String>, Result<String, String>) {
    let args = args(words);
    let args = asked(&args);
    let shown = |ranking: Ranking| format!("{}{:?}", report::best_text(&ranking), report::best_value(&ranking));
    let failed = |failure: Failure| failure.source.to_string();
    let briefs = store.read(|reader| by_briefs(reader, store, &args, Direction::Minimize)).unwrap();
    let briefs = briefs.map(|found| found.map(shown)).unwrap_or_else(|failure| Some(failure.source.to_string()));
    (briefs, by_scan(&args, Direction::Minimize, store).map(shown).map_err(failed))
}

const QUESTIONS: [&[&str]; 12] = [
    &["--where", "gpus == 1"],
    &["--where", "x >= 2 and not (seed == 1)", "--top", "2"],
    &["--where", "energy < 1.0 or epoch_time > 0.5"],
    &["--where", "outcome == finished and revision in [0, 1, 3]"],
    &["--where", "device == H200 and hz == 10 and container != sif"],
    &["--gpus", "1", "--tolerance", "5%"],
    &["--gpus", "0", "--where", "telemetry.hz <= 10", "--at-least", "epoch_time=0.4"],
    &["--group-by", "gpus"],
    &["--group-by", "x,seed", "--where", "driver == none", "--top", "3"],
    &["--at-least", "epoch_time=0.3"],
    &["--where", "seed != 2", "--against", "fastest"],
    &["--where", "program.revision == 2"],
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn conditions_are_answered_as_by_a_scan_of_the_records(drawn in prop::collection::vec(drawn(), 1..16)) {
        let (_dir, store) = filled(&drawn);
        for words in QUESTIONS {
            let (briefs, scan) = both(&store, words);
            if let Some(briefs) = briefs {
                prop_assert_eq!(Ok(briefs), scan, "{:?}", words);
            }
        }
    }
}

#[test]
fn only_queries_that_the_indexes_cannot_answer_read_the_records() {
    let one = |x, seed| (x, seed, 0, Some(1.0), Some(1.0), false, false);
    let (_dir, store) = filled(&[one(0, 0), one(1, 1), one(2, 2), one(2, 0), one(3, 0)]);
    // Values of type list come from the runs.
    for words in QUESTIONS.into_iter().chain([["--group-by", "dims"].as_slice()]) {
        let (briefs, scan) = both(&store, words);
        assert_eq!(briefs.ok_or(()), scan.map_err(|_| ()), "{words:?}");
    }
    let left: [&[&str]; 5] = [
        &["--where", "host.name == n1"],
        &["--where", "note == long"],
        &["--where", "x == 9"],
        &["--where", "nothing == 9"],
        &["--where", "x == 1", "--include", "failed"],
    ];
    for words in left {
        assert_eq!(both(&store, words).0, None, "{words:?}");
    }
}

#[test]
fn attempts_with_too_many_names_are_read_from_the_records() {
    let one = |x, seed| (x, seed, 0, Some(1.0), Some(1.0), false, false);
    let (_dir, store) = filled(&[one(0, 0), one(1, 1)]);
    let mut hostile = sealed(9, one(2, 2));
    let inner: Table = (0..60_000).map(|number| (format!("f{number}"), Value::Int(number))).collect();
    hostile.attempt.facts.insert("k".repeat(500_000), inner.into());
    store.write(|writer| writer.seal(&hostile, 0)).unwrap();
    assert_eq!(store.read(|reader| reader.verify(&mut |_, _| {})).unwrap().faults, vec![]);
    let (briefs, scan) = both(&store, &["--where", "x == 2"]);
    assert_eq!(briefs, None);
    assert!(scan.is_ok(), "{scan:?}");
}
