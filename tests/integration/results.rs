//! The published results are those of the attempts in the repository.

use crate::sandbox::{Sandbox, repository};
use std::process::Command;

#[test]
fn the_pages_of_results_are_what_the_program_answers() {
    let made = Command::new("python3")
        .arg(repository("docs/results/make.py"))
        .args(["--check", env!("CARGO_BIN_EXE_ledger")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn of_many_attempts_unpack_tells_their_numbers() {
    let sandbox = Sandbox::new();
    let pack = repository("ledger/reference/campaign/gru-h200.ledger").display().to_string();
    let numbers = |out: &str| out.lines().nth(1).unwrap().split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    let first = sandbox.run(&["unpack", &pack]).expect(0);
    assert!(first.starts_with("NEW  KNOWN  MODELS  FILE\n"), "{first}");
    assert_eq!((numbers(&first), first.lines().count()), ("87 0 gru".to_owned(), 2), "{first}");
    assert_eq!(numbers(&sandbox.run(&["unpack", &pack]).expect(0)), "0 87 gru");
}

#[test]
fn each_revision_of_the_trainer_has_its_own_row_whatever_else_its_attempts_measured() {
    let sandbox = Sandbox::new();
    let pack = repository("ledger/reference/campaign/lstm-h200.ledger").display().to_string();
    sandbox.run(&["unpack", &pack]).expect(0);
    // Revisions 2 and 5 answered in different batches, so that no configuration ran in both.
    let cell = "experiment == 'lstm-speed' and batch_size == 128 and precision == bf16";
    let asked = ["best", "--model", "lstm", "--metric", "throughput", "--group-by", "precision", "--where", cell];
    let found = sandbox.json(&asked, 0);
    let places = found["places"].as_array().unwrap().iter();
    let revisions: Vec<_> = places.map(|place| place["group"]["program.revision"].as_i64()).collect();
    assert_eq!(revisions, [Some(7), Some(2), Some(5)], "{found}");
}

#[test]
fn rows_that_lack_gpus_are_compared_on_common_ones_or_named() {
    let sandbox = Sandbox::new();
    let pack = repository("ledger/reference/campaign/vgg16-h200.ledger").display().to_string();
    sandbox.run(&["unpack", &pack]).expect(0);
    let newest = "experiment == 'vgg16-speed' and program.revision == 7";
    let asked = ["best", "--model", "vgg16", "--metric", "energy_per_sample", "--group-by", "batch_size,precision"];
    let said = sandbox.run(&[&asked[..], &["--where", newest]].concat()).expect(0);
    assert!(said.contains("VS BEST of #2 #3 #6 is over the GPUs that both ran on, not over all attempts\n"), "{said}");
    assert!(
        said.contains("#4 #5: too few GPUs in common with #1 for pairs, so the sensors' errors do not cancel"),
        "{said}"
    );
    // By the GPUs that both have, the second row is better than the first.
    let asked = ["pareto", "--model", "vgg16", "--metrics", "energy_per_sample,throughput", "--dominated"];
    let front = sandbox.run(&[&asked[..], &["--group-by", "batch_size,precision,pytorch"]].concat()).expect(0);
    assert!(front.contains("#2 has a higher P(FRONT) than #1, which beats it by the means: "), "{front}");
    let front = sandbox.run(&[&asked[..], &["--group-by", "batch_size,precision"]].concat()).expect(0);
    assert!(!front.contains("has a higher P(FRONT)"), "{front}");
}

#[test]
fn other_bits_of_one_run_are_told_with_the_kernels_that_may_explain_them() {
    let sandbox = Sandbox::new();
    let pack = repository("ledger/reference/campaign/maskrcnn-h200.ledger").display().to_string();
    sandbox.run(&["unpack", &pack]).expect(0);
    // Two pieces of a campaign, each of which tuned its kernels.
    let apart = sandbox.run(&["diff", "f9f628cc", "c0804968"]).expect(1);
    assert!(
        apart.starts_with("identity: the same run\nkernels: the two began with different tuned kernels"),
        "{apart}"
    );
    // Of one piece: the same bits need no reason.
    let alike = sandbox.run(&["diff", "f9f628cc", "6cf87126"]).expect(1);
    assert!(!alike.contains("kernels: ") && alike.contains("equal, bit for bit: "), "{alike}");
}
