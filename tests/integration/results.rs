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
    assert_eq!((numbers(&first), first.lines().count()), ("49 0 gru".to_owned(), 2), "{first}");
    assert_eq!(numbers(&sandbox.run(&["unpack", &pack]).expect(0)), "0 49 gru");
}
