//! The Python package: its own tests, and what it reports through the program.

use crate::sandbox::{Sandbox, curves, repository};
use std::process::Command;

/// The machine's Python, if there is one that the package supports.
fn python() -> Option<Command> {
    let is_new = "import sys; sys.exit(sys.version_info < (3, 9))";
    let answer = Command::new("python3").args(["-c", is_new]).status();
    if !answer.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut command = Command::new("python3");
    command.arg("-B");
    Some(command)
}

#[test]
fn the_package_has_the_events_that_its_tests_expect() {
    let Some(mut python) = python() else {
        println!("skipped: no Python 3.9 or later here");
        return;
    };
    let tests = repository("python/tests");
    let output = python
        .args(["-m", "unittest", "discover", "--start-directory"])
        .arg(tests)
        .env("LEDGER_TEST_BIN", env!("CARGO_BIN_EXE_ledger"))
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_script_with_the_package_is_recorded_and_what_it_dropped_is_a_warning() {
    if python().is_none() {
        println!("skipped: no Python 3.9 or later here");
        return;
    }
    let script = "
import sys
sys.path.insert(0, sys.argv[1])
import ledger_events as ledger

ledger.plan(3, epochs=1, samples_per_step=4)
with ledger.phase('epoch', 1):
    for step in range(1, 4):
        with ledger.step(step) as timed:
            timed.log(loss=1 / step)
ledger.metric('accuracy', 0.97)
ledger.fact('dropped_events', 2)
";
    let sandbox = Sandbox::new();
    sandbox.write("train.py", script);
    let package = repository("python").display().to_string();
    let manifest = format!(
        "[model]\nname = 'toy'\n[program]\ncommand = ['python3', '-B', 'train.py', '{package}']\n[hardware]\ndevice = 'cpu'\n"
    );
    sandbox.write("m.toml", manifest);
    sandbox.run(&["run", "m.toml"]).expect(0);
    let shown = sandbox.json(&["show", "latest"], 0);
    let attempt = &shown["attempts"][0];
    assert_eq!(attempt["metrics"]["accuracy"]["value"], 0.97);
    assert_eq!(curves(attempt), [("loss", 3), ("step_duration", 3)]);
    let warnings = attempt["warnings"].to_string();
    assert!(warnings.contains("the worker dropped 2 events"), "{warnings}");
}

#[test]
fn the_tutorial_is_as_its_page_says() {
    if python().is_none() {
        println!("skipped: no Python 3.9 or later here");
        return;
    }
    let sandbox = Sandbox::new();
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_ledger")).parent().unwrap().display().to_string();
    let mut command = Command::new("python3");
    command.current_dir(sandbox.path("")).env_clear();
    command.env("PATH", format!("{programs}:/usr/local/bin:/usr/bin:/bin")).env("PYTHONPATH", repository("python"));
    command.env("LEDGER_BIN", env!("CARGO_BIN_EXE_ledger")).env("LEDGER_RESTORE", sandbox.path("restore"));
    command.env("HOME", sandbox.path("home")).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let script = repository("tests/readers/tutorial.py");
    let output =
        command.arg(script).arg(repository("docs/guides/python.md")).arg(sandbox.path("tutorial")).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("attach: ran") && out.ends_with("4 files, 7 attempts\n"), "{out}");
}
