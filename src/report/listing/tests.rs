use super::*;
use crate::record::{Digest, RunId};

#[test]
fn a_narrow_label_truncates_names_before_values() {
    let value = |name: &str, value: Value| (name.to_owned(), value);
    let config = [value("params.a_rather_long_name", "alpha".into()), value("params.ticks", Value::Int(20))].into();
    let cell = Cell { config, settings: Table::new(), seed: 2 };
    let axes = ["params.a_rather_long_name", "params.ticks", "seed"].map(str::to_owned);
    let label = |width| axes_label(&cell, &axes, width);
    assert_eq!(label(None), "a_rather_long_name alpha ticks 20 seed 2");
    assert_eq!(label(Some(31)), "a_rather… alpha ticks 20 seed 2");
    assert_eq!(label(Some(21)), "a… alpha t… 20 s… 2");
    assert_eq!(label(Some(9)), "… alpha …");
}

fn line(run: u8, attempt: u8) -> Line {
    Line {
        row: Row {
            attempt: AttemptId(Digest([attempt; 32])),
            run: RunId(Digest([run; 32])),
            started_unix_ms: 0,
            wall_ns: 0,
            outcome: "finished".to_owned(),
            experiment: String::new(),
            model: String::new(),
            label: String::new(),
            seed: 1,
            accuracy: None,
            loss: None,
        },
        run: RunId(Digest([run; 32])).0.prefix(8),
        tags: Vec::new(),
        is_tainted: false,
        is_hidden: false,
        origin: Origin::default(),
        reason: None,
        objective: None,
        rerun_of: None,
        values: Vec::new(),
    }
}

fn text(lines: Vec<Line>) -> String {
    ls_text(&Listing { lines, total: 2, matching: 2, ..Listing::default() })
}

#[test]
fn attempts_of_one_run_are_listed_with_their_own_ids() {
    assert!(!text(vec![line(1, 0xaa), line(2, 0xbb)]).contains("ATTEMPT"));
    let two = text(vec![line(1, 0xaa), line(1, 0xbb)]);
    assert!(two.starts_with("RUN       ATTEMPT ") && two.contains("01010101  bbbbbbbb "), "{two}");
}

#[test]
fn a_skip_beyond_the_last_row_is_told() {
    let told = |skipped| ls_text(&Listing { total: 2, matching: 2, skipped, ..Listing::default() });
    assert_eq!(told(2), "0 of 2 attempts (--skip passes over all 2 that match)\n");
    assert_eq!(told(0), "0 of 2 attempts (-n N shows more, --all all of them)\n");
}

#[test]
fn an_objective_without_a_column_gets_one() {
    let with = |run: u8, name: &str, value: f64| {
        let mut line = line(run, run);
        line.objective = Some((name.to_owned(), Some(value)));
        line
    };
    let told = text(vec![with(1, "bleu", 0.25), with(2, "loss", 3.0)]);
    let rows: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().rev().take(1).collect()).collect();
    assert_eq!(rows[..3], [["bleu"], ["0.25"], ["-"]], "{told}");
    let many = text(["bleu", "rouge", "ter"].into_iter().zip(1..).map(|(name, run)| with(run, name, 1.0)).collect());
    assert!(!many.contains("bleu"), "{many}");
    let json = ls_value(&Listing { lines: vec![with(1, "bleu", 0.25)], ..Listing::default() });
    let json = Value::Table(json).to_string();
    assert!(json.contains("objective = {metric = bleu, value = 0.25}"), "{json}");
}

#[test]
fn accuracy_and_loss_have_a_column_if_an_attempt_has_them() {
    let mut with = line(2, 2);
    with.row.loss = Some(0.5);
    for (second, head) in [(line(2, 2), "TIME"), (with, "LOSS")] {
        let told = text(vec![line(1, 1), second]);
        let (head_line, last) = (told.lines().next().unwrap(), told.lines().nth(2).unwrap());
        assert!(head_line.ends_with(head) && !head_line.contains("ACCURACY"), "{told}");
        assert_eq!(last.ends_with("0.5"), head == "LOSS", "{told}");
    }
}

#[test]
fn a_rerun_is_listed_with_the_attempt_that_it_repeats() {
    let mut rerun = line(1, 0xbb);
    rerun.rerun_of = Some(AttemptId(Digest([0xaa; 32])));
    let told = text(vec![rerun, line(1, 0xaa)]);
    assert!(told.contains("finished (rerun: no verdict)"), "{told}");
    assert!(told.contains("\nreruns: bbbbbbbb of aaaaaaaa\n"), "{told}");
}

#[test]
fn each_reason_is_shown_once_in_one_line() {
    let failed = |attempt: u8, reason: &str| {
        let mut line = line(1, attempt);
        line.row.outcome = "failed".to_owned();
        Line { reason: Some(reason.to_owned()), ..line }
    };
    let alike = (1..=5).map(|attempt| failed(attempt, "exit code 3"));
    let told = text(alike.chain([failed(6, "Traceback:\nRUN  ATTEMPT\n")]).collect());
    let expected = "\nfailed: exit code 3 (01010101, 02020202, 03030303 and 2 more)\nfailed: Traceback: … (06060606)\n";
    assert!(told.contains(expected) && !told.contains("\nRUN  ATTEMPT"), "{told}");
    let many = text((1..=7).map(|attempt| failed(attempt, &format!("signal {attempt}"))).collect());
    assert!(many.contains("(05050505)\n2 more reasons (`ledger show ID` tells one)\n"), "{many}");
}

fn attempt(metrics: &[(&str, Metric)]) -> Attempt {
    Attempt {
        metrics: metrics.iter().map(|(name, metric)| ((*name).to_owned(), metric.clone())).collect(),
        ..Attempt::sample()
    }
}

#[test]
fn metrics_missing_in_all_attempts_have_no_column() {
    let cell = Cell { config: Table::new(), settings: Table::new(), seed: 1 };
    let missing = || Metric::missing("s", "nobody knows");
    let wall = || ("wall_time", Metric::new(3.0, "s"));
    let untimed = attempt(&[("step_time", missing()), ("train_time", missing()), wall()]);
    let text = |newest| summary_text(&[("0123abcd".to_owned(), &cell, Some(newest))], &[]);
    insta::assert_snapshot!(text(&untimed), @r"
    RUN       OUTCOME   wall_time
    0123abcd  finished     3.00 s
    ");
    let timed = attempt(&[("train_time", Metric::new(2.0, "s")), wall()]);
    let both = [&untimed, &timed].map(|newest| ("0123abcd".to_owned(), &cell, Some(newest)));
    insta::assert_snapshot!(summary_text(&both, &[]), @r"
    RUN       OUTCOME   train_time  wall_time
    0123abcd  finished           -     3.00 s
    0123abcd  finished      2.00 s     3.00 s
    ");
    insta::assert_snapshot!(text(&timed), @r"
    RUN       OUTCOME   train_time
    0123abcd  finished      2.00 s
    ");
}
