//! A rank that fails at each point of a run: the run ends for all, and the error names the rank and the point.

use super::*;
use std::time::{Duration, Instant};

/// A step takes milliseconds. A late rank is found after these limits.
const SOON: Limits =
    Limits { step: Duration::from_millis(1500), first: Duration::from_secs(3), last: Duration::from_millis(500) };

/// Every phase of a rank, in a run whose third step is the last of its first epoch.
const PLACES: [(&str, u64); 11] = [
    ("warm_up", 1),
    ("idle", 1),
    ("epoch", 1),
    ("data", 3),
    ("forward", 3),
    ("backward", 3),
    ("all_reduce", 3),
    ("optimizer", 3),
    ("losses", 3),
    ("eval", 1),
    ("summary", 1),
];

/// Returns the error of a run on two ranks with this fault, and how long the run took.
fn failed(fault: &str) -> (String, Duration) {
    let mut cell = shared(&cell("softmax"), 2);
    cell.config.insert("training.epochs".to_owned(), 2_i64.into());
    failed_as(&cell, fault)
}

/// Returns the error of a run that reaches its end without the fault.
fn failed_unless_learned(fault: &str) -> String {
    let spec = Spec::read(&shared(&cell("softmax"), 2)).expect("valid");
    let loaded = Loaded::load(&spec).expect("generated");
    let run = Run { spec, loaded, limits: SOON, tuned: true, open: |_, _| Ok(Place::Host) };
    let fault = fault.parse().expect("a fault");
    let how = run.share(&Link::Host, Some(fault), &EventLog::default(), &AtomicBool::new(false));
    how.expect_err("nothing was seen").to_string()
}

fn failed_as(cell: &Cell, fault: &str) -> (String, Duration) {
    let spec = Spec::read(cell).expect("valid");
    let loaded = Loaded::load(&spec).expect("generated");
    let open = |_, _| Ok(Place::Device(Device::flex()));
    let run = Run { spec, loaded, limits: SOON, tuned: true, open };
    let (log, start) = (EventLog::default(), Instant::now());
    let fault = fault.parse().expect("a fault");
    let how = run.share(&Link::Host, Some(fault), &log, &AtomicBool::new(false));
    assert!(!log.events().iter().any(|event| matches!(event, EventKind::Digest { name, .. } if name == "weights")));
    (how.expect_err("a rank failed").to_string(), start.elapsed())
}

#[test]
fn a_rank_that_panics_anywhere_ends_the_run_for_all() {
    for (what, index) in PLACES {
        for rank in [0, 1] {
            let (said, took) = failed(&format!("{rank} panic {what} {index}"));
            assert_eq!(said, format!("rank {rank} failed, last in `{what}` {index}: a fault was asked for"));
            assert!(took < Duration::from_secs(30), "{took:?}");
        }
    }
}

/// While the first rank warms up its device or evaluates, the others wait for it, and the supervisor watches it.
#[test]
fn a_rank_that_hangs_anywhere_ends_the_run_for_all() {
    for (what, index) in PLACES {
        for rank in [0, 1] {
            let (said, took) = failed(&format!("{rank} hang {what} {index}"));
            let alone = rank == 0 && ["warm_up", "eval"].contains(&what) || what == "summary";
            let why = if alone { "it takes longer than ".to_owned() } else { format!("rank {rank} did not come to `") };
            assert!(said.starts_with(&format!("rank {rank} failed, last in `{what}` {index}: {why}")), "{said}");
            assert!(took < Duration::from_secs(30), "{said} after {took:?}");
        }
    }
}

#[test]
fn a_fault_that_never_happens_is_reported() {
    for fault in ["2 panic forward 3", "1 hang forward 300", "1 panic inference 1"] {
        assert_eq!(
            failed_unless_learned(fault),
            format!("the fault `{fault}` never happened: no rank of this run came to that place (LEDGER_FAULT)")
        );
    }
}

/// The first rank runs inference alone, after training.
#[test]
fn a_rank_that_hangs_in_inference_ends_the_run_for_all() {
    // The first batch may compile: three seconds. Later ones have the limit of a step.
    for (index, limit) in [(1, "3"), (2, "1.5"), (5, "1.5")] {
        let (said, took) = failed(&format!("0 hang inference {index}"));
        let late = format!("rank 0 failed, last in `inference` {index}: it takes longer than {limit} s");
        assert!(said.starts_with(&late), "{said}");
        assert!(took < Duration::from_secs(30), "{said} after {took:?}");
    }
}

/// If one stage of a pipeline hangs, each other stage waits for its neighbour. The error names the one that hangs.
#[test]
fn a_stage_that_fails_ends_the_run_for_all() {
    let mut cell = tiny_cell("gpt2");
    cell.config.insert("hardware.parallelism".to_owned(), "pipeline".into());
    cell.config.insert("training.micro_batches".to_owned(), 2_i64.into());
    cell.config.insert("hardware.cpu_ranks".to_owned(), 4_i64.into());
    cell.config.insert("training.epochs".to_owned(), 2_i64.into());
    let places = [
        (0, "data"),
        (0, "forward"),
        (1, "forward"),
        (2, "backward"),
        (3, "backward"),
        (1, "together"),
        (0, "eval"),
        (2, "eval"),
        (3, "eval"),
        (1, "inference"),
    ];
    // These happen once, at the end.
    let at_the_end = [(0, "summary"), (3, "summary")];
    for (index, (rank, what)) in places.map(|place| (2, place)).into_iter().chain(at_the_end.map(|place| (1, place))) {
        for how in ["panic", "hang"] {
            let (said, took) = failed_as(&cell, &format!("{rank} {how} {what} {index}"));
            assert!(said.starts_with(&format!("rank {rank} failed, last in `{what}` {index}: ")), "{how}: {said}");
            assert!(took < Duration::from_secs(30), "{said} after {took:?}");
        }
    }
}
