//! The published results are those of the attempts in the repository.

use crate::sandbox::repository;
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
